# SPDX-License-Identifier: MIT OR Apache-2.0
# What the kernel module apm tells beside netlink: its tracepoints. Names of 57-kernel.sh are used.

tracefs=/sys/kernel/debug/tracing

traced() { echo "$1" >"$tracefs/events/apm/enable"; }
trace_has() { grep -Eq -- "$1" "$tracefs/trace"; } # PATTERN

# need_trace COUNT PATTERN: so many lines of the trace have it.
need_trace() {
	out=$(cat "$tracefs/trace")
	need_count "$@"
}

# Orders that load, are stale, are refused and migrate; then a standing order for a port that fails, on one end only:
# the other end is moved by the hardware, and so has no line apm_standing.
tracepoints() {
	local a b here there to_b to_a
	long_pingpong 18612
	for device in shca0 shca1; do await 10 is_known "$device"; done
	a=$(cookie_of shca0)
	b=$(cookie_of shca1)
	here="dev=shca0 qpn=$(field "$(known shca0)" qpn)"
	there="dev=shca1 qpn=$(field "$(known shca1)" qpn)"
	to_b="$(path shca0 shca1 1)"
	to_a="$(path shca1 shca0 1)"
	: >"$tracefs/trace"
	output apm_order query "$a"
	need_trace 0 'apm_(order|loaded|migrated|standing): '
	traced 1

	arm shca0 shca1 1 2
	arm shca1 shca0 1 2
	for device in shca0 shca1; do await 10 reads "$device" migration armed; done
	need_trace 1 "apm_loaded: $here primary=$to_b alternate=$(path shca0 shca1 2) migration=(rearm|armed) error=0\$"
	need_trace 1 "apm_order: $here load token=77 primary=$to_b alternate=$(path shca0 shca1 2) standing=1 ms=[0-9]+ outcome=done error=0\$"
	need_trace 1 "apm_loaded: $there "

	output apm_order load "$a" "$(path shca0 shca1 2)" "$to_b"
	output apm_order load "$a" "$to_b" "$to_b"
	output apm_order standing "$b" "$to_a"
	need_trace 1 "apm_order: $here load .* outcome=stale error=0\$"
	need_trace 1 "apm_order: $here load .* outcome=failed error=-22\$"
	need_trace 1 "apm_order: $there standing .* primary=$to_a alternate=0:0:0 standing=0 .* outcome=done error=0\$"
	need_trace 0 'apm_(migrated|standing): '

	output apm_order migrate "$a" "$to_b"
	need_trace 1 "apm_migrated: $here from=$to_b to=$(path shca0 shca1 2) migration=migrated\$"
	need_trace 1 "apm_order: $here migrate .* outcome=done error=0\$"
	await 10 trace_has "apm_migrated: $there from=$to_a to=$(path shca1 shca0 2) "

	arm shca0 shca1 2 1
	output apm_order load "$b" "$(path shca1 shca0 2)" "$to_a"
	for device in shca0 shca1; do await 10 reads "$device" migration armed; done
	cable pull shca0 2
	await 10 trace_has "apm_standing: $here failed-port=2 port=2 dlid=$(lid_of shca1 2) alternate-port=1 migration=armed outcome=migrated error=0\$"
	await 10 trace_has "apm_migrated: $here from=$(path shca0 shca1 2) to=$to_b "
	await 10 trace_has "apm_migrated: $there from=$(path shca1 shca0 2) to=$to_a "
	need_trace 1 'apm_standing: '
	traced 0
	: >"$tracefs/trace"
	output apm_order query "$a"
	need_trace 0 'apm_order: '
	cable plug shca0 2
	await 20 state_is shca0 2 ACTIVE
	still_run || fail "a program ended"
	end_pingpong
	await 10 is_alone
}

lost() { field "$(apm_order probes)" lost; }

# A subscriber that reads nothing: what it has no room for is counted, as long as it is there.
lost_messages() {
	local a deaf before
	long_pingpong 18613
	await 10 is_known shca0
	a=$(cookie_of shca0)
	output apm_order query "$a"
	[ "$(lost)" = 0 ] || fail "lost $(lost) messages before there was a reason"
	apm_order ignore >"$logs/deaf" &
	deaf=$!
	await 10 grep -q subscribed "$logs/deaf"
	for _ in {1..30}; do output apm_order query "$a"; done
	before=$(lost)
	[ "$before" -gt 0 ] || fail "none of 30 messages was lost"
	output apm_order query "$a"
	[ "$(lost)" = $((before + 1)) ] || fail "lost $(lost) messages, not one more than $before"
	kill -KILL "$deaf"
	wait "$deaf" || true
	before=$(lost)
	output apm_order query "$a"
	[ "$(lost)" = "$before" ] || fail "lost a message to nobody"
	end_pingpong
	await 10 is_alone
}

# Its unit tests, which run when they are loaded: each suite leaves its results.
unit_tests() {
	local suite
	modprobe apm_kunit
	for suite in apm_path apm_owner; do
		output cat "/sys/kernel/debug/kunit/$suite/results"
		need "^ok [0-9]+ (- )?$suite\$"
		need_count 0 'not ok'
	done
	rmmod apm_kunit
}

full_row kernel-trace "apm_order, tracefs" tracepoints
full_row kernel-lost "apm_order" lost_messages
# Only a kernel with KUnit has them in its image.
if modinfo -n apm_kunit >/dev/null 2>&1; then full_row kernel-unit "apm_kunit" unit_tests; fi
