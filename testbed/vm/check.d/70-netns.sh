# SPDX-License-Identifier: MIT OR Apache-2.0
# The hosts as two namespaces with IPoIB: what uses IP addresses.

to_netns() {
	world netns
	output host-a rdma dev
	need_count 1 'shca0'
	need_count 0 'shca1'
	output host-b ibv_devices
	need_count 1 'shca1'
	need_count 0 'shca0'
}

ipoib_ping() { # ADDRESS
	output host-a ping -c 5 -i 0.2 -s 1400 "$1"
	need '5 packets received, 0% packet loss'
}

host_listener() { host-a rdma resource show cm_id | grep -q 'state LISTEN'; }

r_ping() { # ADDRESS
	local server
	host-a rping -s -a "$1" -C 20 -V -v >"$logs/server.rping" 2>&1 &
	server=$!
	await 10 host_listener
	output host-b rping -c -a "$1" -C 20 -V -v
	need_count 20 '^ping data: rdma-ping-[0-9]+: '
	wait "$server" || { cat "$logs/server.rping"; fail "the server ended with status $?"; }
}

# The SA knows the group into which the kernel maps 239.0.0.7.
has_group() { saquery MCMR | grep -qi 'ff12:4001:ffff::f00:7'; }

multicast() {
	local receiver
	host-a mckey -m 239.0.0.7 -b 10.0.1.1 -C 20 >"$logs/receiver" 2>&1 &
	receiver=$!
	await 10 has_group
	output host-b mckey -m 239.0.0.7 -b 10.0.1.2 -C 20 -s
	need 'return status 0'
	wait "$receiver" || { cat "$logs/receiver"; fail "the receiver ended with status $?"; }
	output cat "$logs/receiver"
	need 'data transfers complete'
	need 'return status 0'
}

# A member on the sender's own port gets a copy as well, from the HCA: the fabric brings none back.
multicast_on_a_port() {
	local receiver
	host-a mckey -m 239.0.0.7 -b 10.0.1.1 -C 20 >"$logs/own-receiver" 2>&1 &
	receiver=$!
	await 10 has_group
	sleep 2
	output host-a mckey -m 239.0.0.7 -b 10.0.1.1 -C 20 -s
	need 'return status 0'
	wait "$receiver" || { cat "$logs/own-receiver"; fail "the receiver ended with status $?"; }
	output cat "$logs/own-receiver"
	need 'data transfers complete'
}

row world-netns "rdma dev set netns, ibv_devices" to_netns
row ipoib-rail-a ping ipoib_ping 10.0.1.2
row ipoib-rail-b ping ipoib_ping 10.0.2.2
row rping-rail-a rping r_ping 10.0.1.1
row rping-rail-b rping r_ping 10.0.2.1
row mckey mckey multicast
row mckey-own-port mckey multicast_on_a_port
