# SPDX-License-Identifier: MIT OR Apache-2.0
# ibacm, the address and path service, asked by ib_acme and checked against the SA.

acm() {
	local from to
	ib_acme -A -O
	ibacm -P >"$logs/ibacm" 2>&1 &
	await 10 ib_acme -e
	from=$(lid_of shca0 1) to=$(lid_of shca1 1)
	output ib_acme -f l -s "$from" -d "$to" -v
	need "dlid: $to"
	need 'verified|SA verification: success'
}

full_row ibacm "ibacm, ib_acme" acm
