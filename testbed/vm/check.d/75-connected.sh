# SPDX-License-Identifier: MIT OR Apache-2.0
# IPoIB in connected mode (RFC 4755): reliable connections of the kernel's, with a shared receive queue,
# set up by ib_cm.

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
is_without_connections() { [ "$(connections "$1")" -eq 0 ]; } # HOST
is_unconnected() { is_without_connections host-a && is_without_connections host-b; }

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

# load FROM TO ADDRESS: data and large datagrams, whatever becomes of the link and of each that sends.
load() {
	while :; do
		timeout 80 "$2" nc -l -p 7001 < <(sleep 80) || true
		sleep 0.1
	done >/dev/null 2>&1 &
	while :; do
		timeout 80 "$1" nc "$3" 7001 </dev/zero || true
		sleep 0.1
	done >/dev/null 2>&1 &
	while :; do
		timeout 80 "$1" ping -A -s 60000 "$3" || true
		sleep 0.1
	done >/dev/null 2>&1 &
}

received() { # HOST
	"$1" cat /sys/class/net/ib0/statistics/rx_bytes
}

# Data arrives at both hosts, over connections.
under_load() {
	local a b
	a=$(received host-a) b=$(received host-b)
	sleep 0.5
	is_connected && [ "$(received host-a)" -gt $((a + 100000)) ] && [ "$(received host-b)" -gt $((b + 100000)) ]
}

link_down() { # HOST
	step "$1's link goes down"
	timeout 20 "$1" ip link set ib0 down || fail "ib0 does not go down"
}

link_up() { # HOST
	await 20 is_without_connections "$1"
	step "$1's link comes up"
	timeout 20 "$1" ip link set ib0 up || fail "ib0 does not come up"
}

# Connections end while sends are under way that nobody will ever acknowledge. These fail when nobody polls
# any more, and their completions are found by who polls next.
teardown() {
	local host
	began=$EPOCHREALTIME
	load host-a host-b 10.0.1.2
	load host-b host-a 10.0.1.1
	await 20 under_load
	cable blackhole shca0 1
	link_down host-a
	cable heal shca0 1
	link_up host-a
	await 20 under_load
	cable blackhole shca0 1
	set_mode host-a datagram
	cable heal shca0 1
	set_mode host-a connected
	# Ends of connections of which the other end has gone in silence stay for minutes, if the link stays up.
	for host in host-a host-b; do
		await 20 under_load
		link_down "$host"
		link_up "$host"
	done
	await 20 under_load
	kernel_is_content
}

to_datagram() {
	local host
	began=$EPOCHREALTIME
	for host in host-a host-b; do
		set_mode "$host" datagram
		[ "$(mtu_of "$host")" -eq 2044 ] || fail "$host has an MTU of $(mtu_of "$host")"
	done
	step "no connection is left"
	await 20 is_unconnected
	ipoib_ping 10.0.1.2
	kernel_is_content
}

full_row ipoib-connected "ping, nc, rdma resource" connected
limit=300 full_row ipoib-teardown "ip link, nc, ping" teardown
full_row ipoib-datagram "ping, rdma resource" to_datagram
