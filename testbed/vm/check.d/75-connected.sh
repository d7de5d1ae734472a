# SPDX-License-Identifier: MIT OR Apache-2.0
# IPoIB in connected mode (RFC 4755): reliable connections of the kernel's, with a shared receive queue,
# set up by ib_cm; torn down while data flows over them.

# What a row does, and when.
step() { echo "$(seconds_since "$began") s: $*"; }

set_mode() { # HOST MODE
	step "$1 becomes $2"
	timeout 20 "$1" sh -c "echo $2 >/sys/class/net/ib0/mode" || fail "$1's ib0 does not become $2"
}

mtu_of() { "$1" cat /sys/class/net/ib0/mtu; }

connections() { # HOST
	"$1" rdma resource show qp | grep -c 'type RC .*comm \[ib_ipoib\]'
}

is_connected() { [ "$(connections host-a)" -gt 0 ] && [ "$(connections host-b)" -gt 0 ]; }
is_unconnected() { [ "$(connections host-a)" -eq 0 ] && [ "$(connections host-b)" -eq 0 ]; }

fragments() { # HOST
	"$1" awk '/^Ip: [0-9]/ { print $20 }' /proc/net/snmp
}

large_ping() {
	output timeout 60 host-a ping -c 5 -i 0.2 -s 60000 10.0.1.2
	need '5 packets received, 0% packet loss'
}

accepts() { # HOST PORT
	"$1" ss -Htln "sport = :$2" | grep -q LISTEN
}

# receive HOST PORT: what comes in over TCP. (nc tells its peer when its own input ends, and that ends.)
receive() { timeout -s KILL 80 "$1" nc -l -p "$2" < <(sleep 80); }

# transfer FROM TO ADDRESS: what arrives is what was sent.
transfer() {
	local receiver
	step "from $1 to $2"
	receive "$2" 7000 >"$logs/arrived" &
	receiver=$!
	await 10 accepts "$2" 7000
	timeout 60 "$1" nc "$3" 7000 <"$logs/sent" || fail "$1 cannot send to $3"
	wait "$receiver" || fail "$2 does not receive"
	step "compare"
	cmp "$logs/sent" "$logs/arrived" || fail "$2 receives other data than $1 sends"
}

connected() {
	local host before
	before=$(fragments host-a)
	began=$EPOCHREALTIME
	large_ping
	[ "$(fragments host-a)" -gt "$before" ] || fail "60000 bytes are one datagram of 2044"
	await 5 is_unconnected
	for host in host-a host-b; do
		set_mode "$host" connected
		[ "$(mtu_of "$host")" -ge 65500 ] || fail "$host has an MTU of $(mtu_of "$host")"
	done
	before=$(fragments host-a)
	large_ping
	[ "$(fragments host-a)" -eq "$before" ] || fail "60000 bytes are sent in fragments"
	output host-a rdma resource show qp
	need 'type RC state RTS .*comm \[ib_ipoib\]'
	output host-b rdma resource show qp
	need 'type RC state RTS .*comm \[ib_ipoib\]'
	head -c 2000001 /dev/urandom >"$logs/sent"
	transfer host-a host-b 10.0.1.2
	transfer host-b host-a 10.0.1.1
}

received() { "$1" cat /sys/class/net/ib0/statistics/rx_bytes; }
has_received() { # HOST BYTES
	[ "$(received "$1")" -gt "$2" ]
}

# Data without an end, but no more than leaves the VM's processors room for all else.
trickle() {
	local block never=$logs/never
	printf -v block '%016000d' 0
	[ -p "$never" ] || mkfifo "$never"
	while printf '%s' "$block"; do read -rt 0.05 <>"$never" || true; done
}

# stream FROM TO ADDRESS: data flows until the row ends.
stream() {
	receive "$2" 7001 >/dev/null &
	await 10 accepts "$2" 7001
	trickle | timeout -s KILL 80 "$1" nc "$3" 7001 >/dev/null &
}

data_flows() {
	local by_a by_b
	step "data flows"
	by_a=$(received host-a) by_b=$(received host-b)
	await 20 has_received host-a $((by_a + 50000))
	await 20 has_received host-b $((by_b + 50000))
}

link() { # HOST up|down
	step "$1's link goes $2"
	timeout 20 "$1" ip link set ib0 "$2" || fail "$1's ib0 does not go $2"
}

# IPoIB waits for what a queue pair in Error still owes it, the event of its last WQE too, and says so
# when that does not come.
nothing_is_missed() {
	kernel_is_content
	! grep -E 'ib[0-9]+: .*timing out' "$logs/kernel" || fail "IPoIB has waited in vain"
}

torn_down() {
	local host
	began=$EPOCHREALTIME
	stream host-a host-b 10.0.1.2
	stream host-b host-a 10.0.1.1
	data_flows
	await 5 is_connected
	step "the cable is pulled"
	cable pull shca0 1
	sleep 0.5
	cable plug shca0 1
	data_flows
	set_mode host-a datagram
	set_mode host-a connected
	for host in host-a host-b; do
		data_flows
		link "$host" down
		link "$host" up
	done
	await 20 is_connected
	for host in host-a host-b; do
		set_mode "$host" datagram
		[ "$(mtu_of "$host")" -eq 2044 ] || fail "$host has an MTU of $(mtu_of "$host")"
	done
	# A connection whose other end could not say that it ends goes with the link, or after minutes.
	for host in host-a host-b; do link "$host" down; done
	step "no connection is left"
	await 10 is_unconnected
	for host in host-a host-b; do link "$host" up; done
	await 20 host-a ping -c 1 -W 1 10.0.1.2
	step "done"
	nothing_is_missed
}

row ipoib-connected "ping, nc, rdma resource" connected
row ipoib-torn-down "nc, ip link, cable" torn_down
row ipoib-datagram ping ipoib_ping 10.0.1.2
