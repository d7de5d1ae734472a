# SPDX-License-Identifier: MIT OR Apache-2.0
# Automatic path migration by plain verbs, and reliable connections over a link that loses packets.

# Whatever a case leaves behind must not spoil the next row.
healthy() {
	cable mend
	for device in shca0 shca1; do
		for port in 1 2; do await 20 state_is "$device" "$port" ACTIVE; done
	done
}

apm_cases() { # ARGUMENT...
	output apm_verbs "$@"
	need_count 0 '^FAIL'
	healthy
}

# One case of the run above.
apm_case() { # NAME
	grep -x "PASS $1" "$logs/apm-verbs" || fail "$(grep "^FAIL $1:" "$logs/apm-verbs")"
}

lossy_pingpong() {
	local try
	cable loss shca0 1 1
	# Who is done leaves at once, and if the last acknowledgement is lost, the other sends in vain: that
	# is one run in a hundred, and no defect.
	for try in 1 2 3; do
		if (pair $((18514 + try)) ibv_rc_pingpong -n 500 -c -s 8192 && need '^500 iters in '); then
			break
		fi
		[ "$try" -lt 3 ] || fail "three runs failed"
	done
	cable heal shca0 1
}

full_row apm-verbs "apm_verbs (raw verbs)" apm_cases
for case in arm migrate-by-fault migrate-by-modify rearm double-loss; do
	full_row "apm-$case" "apm_verbs" apm_case "$case"
done
full_row apm-verbs-grh "apm_verbs -g -p 2 -q 1" apm_cases -g -p 2 -q 1
full_row rc-pingpong-loss "ibv_rc_pingpong, 1 % lost" lossy_pingpong
