# SPDX-License-Identifier: MIT OR Apache-2.0
# librdmacm's examples by GID (AF_IB): no IP address is in use.

# A communication identifier is bound to the HCA. (rdma does not list those with AF_IB addresses, but
# counts them.)
is_bound() { rdma resource show "$1" | grep -q 'cm_id [1-9]'; }

# by_gid COMMAND...: the command as a server on shca0/1 and as a client on shca1/1.
by_gid() {
	local server serve_gid client_gid
	serve_gid=$(gid_of shca0 1) client_gid=$(gid_of shca1 1)
	host-a "$@" -f gid -b "$serve_gid" >"$logs/server.gid" 2>&1 &
	server=$!
	await 20 is_bound shca0
	# It listens directly after it has bound itself.
	sleep 0.5
	output host-b "$@" -f gid -s "$serve_gid" -b "$client_gid"
	wait "$server" || { cat "$logs/server.gid"; fail "the server failed"; }
}

cm_test() { # PROGRAM
	by_gid "$1" -c 4 -C 20
	need 'data transfers complete'
	need 'return status 0'
}

r_stream() {
	by_gid rstream -T v -S 4096 -C 100 -I 5
	need '^custom +4k +100 +5 '
}

row ucmatose "ucmatose -f gid" cm_test ucmatose
row udaddy "udaddy -f gid" cm_test udaddy
row rstream "rstream -f gid" r_stream
