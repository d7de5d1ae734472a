# SPDX-License-Identifier: MIT OR Apache-2.0
# The kernel module apm: sees queue pairs of programs that know nothing of it, loads and uses alternates by
# order, and leaves a port that has failed with nobody to be asked. No daemon is in this.

# known DEVICE: the line of the client's or server's connection on it.
known() { apm_order get | grep " dev=$1 .*owner=ibv_rc_pingpong"; }
field() { sed -n "s/.* $2=\([^ ]*\).*/\1/p" <<<"$1"; } # LINE NAME
is_known() { [ -n "$(known "$1")" ]; }
reads() { [ "$(field "$(known "$1")" "$2")" = "$3" ]; } # DEVICE NAME VALUE
is_alone() { [ -z "$(apm_order get)" ]; }
cookie_of() { field "$(known "$1")" cookie; }

# path FROM TO PORT: the path from one device to the other between their ports of this number.
path() { echo "$3:$(lid_of "$1" "$3"):$(lid_of "$2" "$3")"; }

arm() { # FROM TO PRIMARY_PORT ALTERNATE_PORT
	output apm_order load "$(cookie_of "$1")" "$(path "$1" "$2" "$3")" "$(path "$1" "$2" "$4")" standing
	need 'cause=done token=77 .* migration=(rearm|armed) .* standing=1$'
}

# refused PATTERN ARGUMENT...: the module says why.
refused() {
	local why=$1
	shift
	out=$(apm_order "$@" 2>&1) && fail "not refused: $*"
	need "$why"
}

# Each sets the name of what it starts.
start_server() { # TCP_PORT
	host-a ibv_rc_pingpong -d shca0 -i 1 -p "$1" -n 100000000 >"$logs/server.kernel" 2>&1 &
	server=$!
	await 10 listens "$1"
}

start_client() { # TCP_PORT
	host-b ibv_rc_pingpong -d shca1 -i 1 -p "$1" -n 100000000 127.0.0.1 >"$logs/client.kernel" 2>&1 &
	client=$!
}

long_pingpong() { # TCP_PORT
	start_server "$1"
	start_client "$1"
}

still_run() { kill -0 "$server" && kill -0 "$client"; }

end_pingpong() {
	kill -KILL "$server" "$client"
	wait "$server" "$client" || true
}

load_apm() {
	output modprobe apm
	output lsmod
	need '^apm '
	output apm_order get
	need_count 0 .
}

orders() {
	local a other
	long_pingpong 18601
	for device in shca0 shca1; do await 10 is_known "$device"; done
	output known shca0
	need "primary=$(path shca0 shca1 1) .* role=unknown refusal=none .* owner=ibv_rc_pingpong pid="
	a=$(cookie_of shca0)
	refused 'no queue pair has this cookie' query 1
	refused 'a path needs|range|Invalid' load "$a" 1:0:0 "$(path shca0 shca1 2)"
	refused 'no such InfiniBand device' adopt 4711 1
	refused 'there is no such rate' load "$a" "$(path shca0 shca1 1)" "$(path shca0 shca1 2):14:1"
	# For another primary, or to where it is already: nothing is modified.
	output apm_order load "$a" "$(path shca0 shca1 2)" "$(path shca0 shca1 1)"
	need 'cause=stale .* migration=migrated'
	output apm_order load "$a" "$(path shca0 shca1 1)" "$(path shca0 shca1 1)"
	need 'cause=failed .* errno=22'
	output apm_order migrate "$a" "$(path shca0 shca1 1)"
	need 'cause=stale'
	arm shca0 shca1 1 2
	arm shca1 shca0 1 2
	for device in shca0 shca1; do await 10 reads "$device" migration armed; done
	output known shca0
	need 'alternate-pkey=0xffff'
	# In Armed only the path is changed. One without an ACK timeout gets the primary's, and not one without end.
	output apm_order load "$a" "$(path shca0 shca1 1)" "$(path shca0 shca1 2):0" standing
	need 'cause=done .* migration=armed .* primary-timeout=14 .* alternate-timeout=14 standing=1$'
	output apm_order migrate "$a" "$(path shca0 shca1 1)"
	need "cause=done .* primary=$(path shca0 shca1 2)"
	await 10 reads shca1 primary "$(path shca1 shca0 2)"
	still_run || fail "a program ended"
}

# By the standing order: what is told is no answer to an order, and comes from the device's event.
standing_order() {
	local told
	arm shca0 shca1 2 1
	arm shca1 shca0 2 1
	for device in shca0 shca1; do await 10 reads "$device" migration armed; done
	apm_order listen 2 >"$logs/told.kernel" &
	told=$!
	sleep 0.5
	cable pull shca0 2
	await 10 reads shca0 primary "$(path shca0 shca1 1)"
	await 10 reads shca1 primary "$(path shca1 shca0 1)"
	wait "$told"
	output cat "$logs/told.kernel"
	need_count 2 'cause=path-migrated .* migration=migrated'
	cable plug shca0 2
	await 20 state_is shca0 2 ACTIVE
	still_run || fail "a program ended"
	sleep 0.5
	still_run || fail "a program ended"
}

# set_lmc LMC: the subnet manager gives each port 2^LMC LIDs.
set_lmc() {
	local device
	subnet-manager stop
	subnet-manager start "$1"
	for device in shca0 shca1; do
		for port in 1 2; do
			await 30 has_lmc "$device" "$port" "$1"
			await 30 state_is "$device" "$port" ACTIVE
		done
	done
}

has_lmc() { [ $(($(cat "/sys/class/infiniband/$1/ports/$2/lid_mask_count"))) = "$3" ]; } # DEVICE PORT LMC

# second_path FROM TO: between the ports 1, by the second LID of each.
second_path() { echo "1:$(($(lid_of "$1" 1) + 1)):$(($(lid_of "$2" 1) + 1))"; }

# A standing order does not lead to another LID of the port that has failed. The programs stand still meanwhile, for the
# hardware, whose retries would be used up, goes to whatever is loaded.
same_port() {
	local from to
	set_lmc 1
	long_pingpong 18611
	for from in shca0 shca1; do await 10 is_known "$from"; done
	for from in shca0 shca1; do
		to=shca$((1 - ${from#shca}))
		output apm_order load "$(cookie_of "$from")" "$(path "$from" "$to" 1)" "$(second_path "$from" "$to")" standing
		need 'cause=done .* standing=1$'
	done
	for from in shca0 shca1; do await 10 reads "$from" migration armed; done
	kill -STOP "$server" "$client"
	sleep 0.5
	cable pull shca0 1
	await 10 state_is shca0 1 DOWN
	sleep 1
	output apm_order query "$(cookie_of shca0)"
	need "cause=done .* migration=armed primary=1:[0-9]+:$(lid_of shca1 1) .* standing=1\$"
	cable plug shca0 1
	await 20 state_is shca0 1 ACTIVE
	kill -CONT "$server" "$client"
	end_pingpong
	await 10 is_alone
	set_lmc "$(subnet-manager lmc)"
	healthy
}

# Handlers of events are the module's: it stays until the queue pairs are gone, however they end.
pinned() {
	rmmod apm 2>/dev/null && fail "the module went while queue pairs are under its care"
	end_pingpong
	await 10 is_alone
}

# Older than the module; and left alone where that is said.
adoption() {
	local qpn
	rmmod apm
	long_pingpong 18602
	await 10 sh -c '[ "$(rdma resource show qp | grep -c "type RC state RTS")" -ge 2 ]'
	modprobe apm
	is_alone || fail "it knows what is older than it"
	qpn=$(rdma resource show qp link shca0 | sed -n 's/.* lqpn \([0-9]*\) .*type RC .*/\1/p' | head -n 1)
	output apm_order adopt "$(rdma dev show shca0 | cut -d: -f1)" "$qpn"
	await 10 is_known shca0
	output apm_order protect ulps
	need 'protect=1'
	await 10 reads shca0 refusal owner
	output apm_order load "$(cookie_of shca0)" "$(path shca0 shca1 1)" "$(path shca0 shca1 2)"
	need 'cause=failed .* errno=1 '
	output apm_order protect all
	await 10 reads shca0 refusal none
	farewell
	end_pingpong
	await 10 is_alone
}

# The end of what is known is told before the module goes; what it knew goes on.
farewell() {
	local cookie told
	cookie=$(cookie_of shca0)
	apm_order listen 1 >"$logs/told.farewell" &
	told=$!
	sleep 0.5
	rmmod apm
	wait "$told"
	output cat "$logs/told.farewell"
	need "^del cookie=$cookie\$"
	still_run || fail "a program ended"
	modprobe apm
}

# held NAME: of the queue pair of a program that only has it.
held() { field "$(apm_order get | grep " dev=shca0 .*owner=sleep")" "$1"; }
is_held_as() { [ "$(held refusal)" = "$1" ]; }

# Older than the module, and waiting in RTR: that may be on its way, or never send.
adoption_in_rtr() {
	local holder
	rmmod apm
	hold_qp -r shca0 1 "$(lid_of shca1 1)" sh -c 'echo "$2" >"$0"; exec sleep 60' "$logs/held" >/dev/null &
	holder=$!
	await 10 test -s "$logs/held"
	modprobe apm
	output apm_order adopt "$(index_of shca0)" "$(cat "$logs/held")"
	await 10 is_held_as responder-only
	output apm_order load "$(held cookie)" "$(path shca0 shca1 1)" "$(path shca0 shca1 2)"
	need 'cause=failed .* errno=1 '
	kill -KILL "$holder"
	wait "$holder" || true
	await 10 is_alone
}

# Older than the module, and waiting in INIT: it is known when it goes on, and nobody has to name it.
known_from_rtr() {
	rmmod apm
	start_server 18606
	modprobe apm
	is_alone || fail "it knows what is older than it"
	start_client 18606
	for device in shca0 shca1; do await 10 is_known "$device"; done
	arm shca0 shca1 1 2
	end_pingpong
	await 10 is_alone
}

adoptions() {
	adoption
	adoption_in_rtr
	known_from_rtr
}

# A modify to INIT or RESET that fails changes nothing: it is known, and takes orders.
vain() { field "$(apm_order get | grep " dev=shca0 .*owner=hold_qp")" "$1"; }
is_vain_as() { [ "$(vain refusal)" = "$1" ]; }
modified_in_vain() {
	local holder
	hold_qp -v shca0 1 "$(lid_of shca1 1)" sh -c 'exec sleep 60' >/dev/null &
	holder=$!
	await 10 is_vain_as none
	output apm_order load "$(vain cookie)" "$(path shca0 shca1 1)" "$(path shca0 shca1 2)"
	need 'cause=done .* migration=(rearm|armed) '
	kill -KILL "$holder"
	wait "$holder" || true
	await 10 is_alone
}

index_of() { rdma dev show "$1" | cut -d: -f1; }

# timeouts FROM_A FROM_B: the ACK timeouts of a new connection's ends.
timeouts() {
	long_pingpong 18603
	await 10 reads shca0 primary-timeout "$1"
	await 10 reads shca1 primary-timeout "$2"
	end_pingpong
	await 10 is_alone
}

# Of connections that begin towards a peer that a client has named, as long as that is there; never raised.
timeout_bound() {
	local peer
	refused 'there is no such peer' peer "$(index_of shca0)" 1 "$(lid_of shca1 1)" 0
	refused 'no such InfiniBand device' peer 4711 1 "$(lid_of shca1 1)" 10
	timeouts 14 14
	apm_order peer "$(index_of shca0)" 1 "$(lid_of shca1 1)" 10 >"$logs/peer" &
	peer=$!
	await 10 grep -q named "$logs/peer"
	timeouts 10 14
	output apm_order protect ulps
	timeouts 14 14
	output apm_order protect all
	kill -KILL "$peer"
	wait "$peer" || true
	timeouts 14 14
	apm_order peer "$(index_of shca0)" 1 "$(lid_of shca1 1)" 20 >"$logs/peer" &
	peer=$!
	await 10 grep -q named "$logs/peer"
	timeouts 14 14
	kill -KILL "$peer"
	wait "$peer" || true
}

set_netns() { rdma system set netns "$1" 2>/dev/null; }

# Any user of the host's, in its own namespaces.
unprivileged() {
	out=$(setpriv --reuid=1234 --regid=1234 --clear-groups timeout "$((5 * patience))" apm_order listen 1 2>&1) &&
		fail "any user hears: $out"
	need 'Operation not permitted'
}

# Where network namespaces share devices, one of the host's hears of all; who has made one of his own, and
# may administer that, does not.
eavesdropping() { # COOKIE
	local ear host_ear
	await 10 set_netns shared
	timeout "$((5 * patience))" unshare -Urn apm_order listen 1 >"$logs/told.stranger" 2>&1 &
	ear=$!
	timeout "$((5 * patience))" unshare -n apm_order listen 1 >"$logs/told.namespace" 2>&1 &
	host_ear=$!
	sleep "$patience"
	output apm_order query "$1"
	wait "$ear" && fail "a stranger hears: $(cat "$logs/told.stranger")"
	output cat "$logs/told.stranger"
	need_count 0 '^(new|del|report) '
	wait "$host_ear" || fail "a namespace of the host's hears nothing"
	output cat "$logs/told.namespace"
	need_count 1 cause=done
	# Namespaces that end are there for a while.
	await 20 set_netns exclusive
}

# Who may not, and from where the device is not to be seen.
strangers() {
	local a
	long_pingpong 18604
	for device in shca0 shca1; do await 10 is_known "$device"; done
	a=$(cookie_of shca0)
	output unshare -n apm_order get
	need_count 0 .
	out=$(unshare -n apm_order query "$a" 2>&1) && fail "a stranger may ask"
	need 'no queue pair has this cookie'
	out=$(unshare -n apm_order peer "$(index_of shca0)" 1 2 10 2>&1) && fail "a stranger may name peers"
	need 'there is no such InfiniBand device here'
	out=$(unshare -n apm_order adopt "$(index_of shca0)" 2 2>&1) && fail "a stranger may adopt"
	need 'there is no such InfiniBand device here'
	refused 'there is no such queue pair' adopt "$(index_of shca0)" 16777215
	# Migrated and with nothing loaded: no order that needs an alternate.
	output apm_order migrate "$a" "$(path shca0 shca1 1)"
	need 'cause=stale .* migration=migrated'
	output apm_order standing "$a" "$(path shca0 shca1 1)" standing
	need 'cause=stale .* standing=0$'
	unprivileged
	eavesdropping "$a"
	end_pingpong
	await 10 is_alone
}

# What a row starts dies with it: these are one.
protected_pingpong() {
	orders
	standing_order
	pinned
}

full_row kernel-load "modprobe apm" load_apm
full_row kernel-orders "apm_order, ibv_rc_pingpong" protected_pingpong
full_row kernel-same-port "apm_order, opensm -l 1" same_port
full_row kernel-adopt "apm_order, ibv_rc_pingpong, hold_qp" adoptions
full_row kernel-in-vain "apm_order, hold_qp" modified_in_vain
full_row kernel-timeout "apm_order, ibv_rc_pingpong" timeout_bound
full_row kernel-strangers "apm_order, unshare, setpriv" strangers
