# SPDX-License-Identifier: MIT OR Apache-2.0
# The connected transports by plain verbs: what pingpongs and perftest never do.

transport_cases() {
	output rc_verbs
	need_count 0 '^FAIL'
	need_count 17 '^PASS'
	cable mend
}

full_row rc-verbs "rc_verbs (raw verbs)" transport_cases
