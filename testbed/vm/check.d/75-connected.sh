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

row ipoib-connected "ping, nc, rdma resource" connected
row ipoib-datagram "ping, rdma resource" to_datagram
