# SPDX-License-Identifier: MIT OR Apache-2.0
# libibverbs' own examples: host-a's HCA serves, host-b's is the client.

dev_info() {
	output ibv_devinfo -v
	need_count "$(device_count)" '^hca_id:'
	need_count "$(port_count)" '^[[:space:]]*state:[[:space:]]+PORT_ACTIVE'
	need_count "$(port_count)" 'link_layer:.*InfiniBand'
	need_count "$(device_count)" 'AUTO_PATH_MIG'
}

# ibdev2netdev and rdma-core's tests find the IPoIB links of an HCA by its parent. A target for SRP takes
# its node's GUID as a service ID, which must not be one of ib_cm's own, 02...
identity() {
	local device
	for device in $(devices); do
		output ls "/sys/class/infiniband/$device/device/net"
		need_count "$(ports_of_device "$device" | wc -l)" '^ib'
		output cat "/sys/class/infiniband/$device/node_guid"
		need_count 0 '^02'
	done
}

listens() { ss -Htln "sport = :$1" | grep -q LISTEN; }

# pair PORT COMMAND...: the command as a server on shca0 and as a client on shca1, each over its port 1.
# Leaves the client's output in $out.
pair() {
	local port=$1 server
	shift
	host-a "$@" -d shca0 -i 1 -p "$port" >"$logs/server.$port" 2>&1 &
	server=$!
	await 10 listens "$port"
	output host-b "$@" -d shca1 -i 1 -p "$port" 127.0.0.1
	wait "$server" || { cat "$logs/server.$port"; fail "the server ended with status $?"; }
}

pingpong() { # KIND ITERATIONS ARGUMENT...
	local kind=$1 iterations=$2
	shift 2
	pair 18515 "ibv_${kind}_pingpong" -n "$iterations" "$@"
	need "^$iterations iters in "
	need "$((2 * iterations * size)) bytes in "
}

# A subnet manager may give a port more GUIDs (GUIDInfo), and each makes a GID.
second_gid() {
	local zero_gid=0000:0000:0000:0000:0000:0000:0000:0000 end device guid
	for end in "shca0 0000000000000aa1" "shca1 0000000000000aa2"; do
		read -r device guid <<<"$end"
		output smp_edit shca2 "$(lid_of "$device" 1)" 0x14 0 8 "$guid"
		await 5 grep -q "${guid: -4}\$" "/sys/class/infiniband/$device/ports/1/gids/1"
	done
	output ibv_devinfo -v -d shca0 -i 1
	need 'GID\[ *1\]:.*0aa1'
	pingpong rc 200 -c -s 4096 -g 1
	for device in shca0 shca1; do
		output smp_edit shca2 "$(lid_of "$device" 1)" 0x14 0 8 0000000000000000
	done
	await 5 grep -qx "$zero_gid" /sys/class/infiniband/shca0/ports/1/gids/1
}

row ibv_devinfo "ibv_devinfo -v" dev_info
row identity sysfs identity
size=4096
row rc-pingpong ibv_rc_pingpong pingpong rc 500 -c -s 4096
full_row rc-pingpong-events "ibv_rc_pingpong -e -g 0" pingpong rc 200 -c -e -g 0 -s 4096
full_row uc-pingpong ibv_uc_pingpong pingpong uc 500 -c -s 4096
full_row srq-pingpong ibv_srq_pingpong pingpong srq 500 -s 4096
full_row second-gid "smp_edit, ibv_rc_pingpong -g 1" second_gid
size=65536
full_row rc-pingpong-64k "ibv_rc_pingpong -s 65536" pingpong rc 100 -c -s 65536
size=1024
row ud-pingpong ibv_ud_pingpong pingpong ud 100 -s 1024
