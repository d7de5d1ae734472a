# SPDX-License-Identifier: MIT OR Apache-2.0
# The kernel module apm moves queue pairs that wait for traffic, and what their owners do meanwhile counts. Names of
# 57-kernel.sh and 58-kernel-hostile.sh are used.

# wait_idle [OPTION]: a program has a silent queue pair with an alternate. Sets holder, cookie, first and second.
wait_idle() {
	first=$(path shca0 shca1 1)
	second=$(path shca0 shca1 2)
	hold_qp "$@" shca0 1 "$(lid_of shca1 1)" sh -c 'exec sleep 60' >/dev/null &
	holder=$!
	await 10 holds_as none
	cookie=$(field "$(holds_as none)" cookie)
	output apm_order load "$cookie" "$first" "$second" standing
	need 'cause=done .* migration=rearm .* standing=1$'
}

is_as() { apm_order get | grep " dev=shca0 .* state=$1 .* primary=$2 .*owner=hold_qp"; } # STATE PATH

moved_idle() {
	local holder cookie first second
	output apm_order probes
	need ' moves-idle$'
	wait_idle
	output apm_order move-idle "$cookie" "$second"
	need "cause=stale .* primary=$first"
	output apm_order move-idle "$cookie" "$first"
	need "cause=done .* state=3 .* primary=$second .* standing=0$"
	# The alternate that it has is its primary now.
	output apm_order move-idle "$cookie" "$second"
	need "cause=stale .* primary=$second"
	output apm_order load "$cookie" "$second" "$first"
	need 'cause=done .* migration=rearm '
	output apm_order move-idle "$cookie" "$second"
	need "cause=done .* state=3 .* primary=$first"
	let_go
}

sqd() { echo "$1" >/sys/module/shca/parameters/sqd; }

# A device without it, as mlx5, has the queue pair as it was.
refused_idle() {
	local holder cookie first second
	wait_idle
	sqd N
	output apm_order move-idle "$cookie" "$first"
	sqd Y
	need "cause=failed .* errno=22 .* state=3 .* primary=$first .* standing=1$"
	let_go
}

# as_left STATE ACTS PAUSE: its program does this in the middle of a move, of which each of the three modifies takes 0.4 s,
# and finds the queue pair in this state afterwards.
as_left() {
	local holder cookie first second order
	wait_idle -o "$2"
	slow_modify 400
	apm_order move-idle "$cookie" "$first" >"$logs/moved.idle" &
	order=$!
	sleep "$3"
	slow_modify 0
	kill -USR1 "$holder"
	# Of one that was reset no report comes.
	sleep 0.8
	kill "$order" 2>/dev/null || true
	wait "$order" || true
	cat "$logs/moved.idle"
	output sh -c 'rdma resource show qp | grep sleep'
	need " state $1 "
	let_go
}

owner_in_sqd() {
	local holder cookie first second
	wait_idle -o sqd
	kill -USR1 "$holder"
	await 10 is_as 4 "$first"
	output apm_order move-idle "$cookie" "$first"
	need "cause=stale .* state=4 .* primary=$first"
	let_go
	# While the first modify is answered, the second, and the third.
	for pause in 0.2 0.6 1.0; do as_left SQD sqd "$pause"; done
	# In SQD already: both fail, so nothing has changed for the program.
	as_left RTS sqd-notify 0.2
	as_left RTS sqd-bad 0.2
	as_left SQD reset,sqd 0.2
	as_left RTS sqd,reset 0.2
	as_left SQD rts,sqd-notify 0.6
	as_left SQD sqd,rts-bad 0.6
	as_left RTS sqd,rts 0.6
}

slow_modify() { echo "0 modify $1" >/sys/module/shca/parameters/firmware; } # MS

# Its program ends at any moment of a move.
ended_idle() {
	local holder cookie first second order pause
	for pause in 0.2 0.6 1.0; do
		wait_idle
		slow_modify 400
		apm_order move-idle "$cookie" "$first" >"$logs/moved.idle" &
		order=$!
		sleep "$pause"
		kill -KILL "$holder"
		wait "$holder" || true
		slow_modify 0
		kill "$order" 2>/dev/null || true
		wait "$order" || true
		await 10 is_alone
	done
	healthy
}

# What is outstanding over a dead path does not drain: after a moment it goes on as it was, and nothing is lost. The
# programs' retries take half a minute.
outstanding() {
	local cookie device
	host-a ib_send_lat -d shca0 -u 20 -D 600 -p 18620 >"$logs/server.kernel" 2>&1 &
	server=$!
	await 10 listens 18620
	host-b ib_send_lat -d shca1 -u 20 -D 600 -p 18620 127.0.0.1 >"$logs/client.kernel" 2>&1 &
	client=$!
	for device in shca0 shca1; do await 10 sends "$device"; done
	cookie=$(field "$(sends shca1)" cookie)
	cable blackhole shca0 1
	output apm_order load "$cookie" "$(path shca1 shca0 1)" "$(path shca1 shca0 2)"
	need 'cause=done .* migration=rearm '
	output apm_order move-idle "$cookie" "$(path shca1 shca0 1)"
	need "cause=failed .* errno=110 .* primary=$(path shca1 shca0 1)"
	cable heal shca0 1
	# Once both ends have an alternate, the packets that pass again arm them.
	output apm_order load "$(field "$(sends shca0)" cookie)" "$(path shca0 shca1 1)" "$(path shca0 shca1 2)"
	need 'cause=done'
	for device in shca0 shca1; do await 10 passes "$device"; done
	still_run || fail "a program ended"
	end_pingpong
	await 10 is_alone
}

sends() { apm_order get | grep " dev=$1 .* state=3 .*owner=ib_send_lat"; } # DEVICE
passes() { sends "$1" | grep ' migration=armed '; }

# Orders without regard to 64 queue pairs that wait for traffic: all are in RTS afterwards.
hammered_idle() {
	local seed=$RANDOM holder
	hold_qp -n 64 1 shca0 1 "$(lid_of shca1 1)" >/dev/null &
	holder=$!
	await 20 are_held 64
	echo "seed $seed"
	output apm_hammer "$((5 * patience))" "$seed" "$(lid_of shca0 1):$(lid_of shca0 2)" "$(lid_of shca1 1):$(lid_of shca1 2)"
	await 10 rest_in_rts 64
	output apm_order get
	need " primary=$(path shca0 shca1 2) "
	let_go
	healthy
}

rest_in_rts() { [ "$(apm_order get | grep -c ' state=3 ')" = "$1" ]; }

idle_moves() {
	moved_idle
	refused_idle
	outstanding
}

idle_owners() {
	owner_in_sqd
	ended_idle
	hammered_idle
}

full_row kernel-idle "apm_order, hold_qp, ib_send_lat" idle_moves
full_row kernel-idle-owner "apm_order, apm_hammer, hold_qp" idle_owners
