# SPDX-License-Identifier: MIT OR Apache-2.0
# The subnet: what OpenSM made of it, and what the diagnostic programs see.

subnet_up() {
	local device port
	output cat /var/log/opensm.log
	need 'SUBNET UP'
	! grep -E ' ERR ' /var/log/opensm.log || fail "OpenSM reports errors"
	for device in $(devices); do
		for port in $(ports_of_device "$device"); do
			state_is "$device" "$port" ACTIVE || fail "$device/$port is $(state_of "$device" "$port")"
			[ "$(lid_of "$device" "$port")" -gt 0 ] || fail "$device/$port has no LID"
		done
	done
	# What was sent through ports that were not active yet has been discarded and counted, and what went
	# round in a circle of switches.
	await 30 multicast_is_settled
	ibqueryerrors --clear-errors || true # that is its status when there were any
}

# OpenSM changes the tables of one switch after another as members join: until all are set, a packet may go
# round in a circle.
multicast_is_settled() {
	local before
	before=$(saquery MFTR) || return
	sleep 1
	[ "$before" = "$(saquery MFTR)" ]
}

net_discover() {
	output ibnetdiscover
	need_count "$(switch_count)" '^Switch'
	need_count "$(device_count)" '^Ca'
	# Each HCA port once below a switch, and cables between switches from both their ends.
	need_count "$(port_count)" '^\[[0-9]+\].*"H-'
	need_count $((2 * $(cables_between_switches))) '^\[[0-9]+\][[:space:]]+"S-'
}

# "NAME PORT NAME PORT" for each cable, whichever end comes first.
alike() { awk '{ a = $1 " " $2; b = $3 " " $4; print (a < b ? a " " b : b " " a) }' | sort -u; }

# The fabric of a file is the one that the file describes. ([1] "shca0"[1] stands below Switch 8 "ring0")
as_described() {
	local file=$1
	sed -En 's/^\[([0-9]+)\][[:space:]]+"([^"]+)"\[([0-9]+)\].*/cable \1 \2 \3/p; s/^(Switch|Hca)[[:space:]]+[0-9]+[[:space:]]+"([^"]+)".*/node \2/p' "$file" |
		awk '$1 == "node" { node = $2 } $1 == "cable" { print node, $2, $3, $4 }' | alike >"$logs/described"
	[ -s "$logs/described" ] || fail "$file describes no cable"
	cables | alike | diff "$logs/described" - || fail "the fabric is another than $file describes"
}

link_info() {
	output iblinkinfo --line
	need_count $((2 * $(cable_count))) 'Active/ +LinkUp'
}

sa_query() {
	local from to
	output saquery NR
	need_count "$(switch_count)" 'node_type.*Switch|node_type\.+2'
	from=$(lid_of shca0 1) to=$(lid_of shca1 1)
	output saquery --src-to-dst "$from:$to" PR
	need "dlid\.+$to"
	need "slid\.+$from"
	output saquery -s
	need 'OpenSM|IsSM|shca'
}

sm_info() {
	output sminfo
	need 'SMINFO_MASTER'
	need "sm lid $(lid_of "$(subnet_manager_device)" 1) "
}

counter() { # NAME PERFQUERY_ARGUMENT...
	local name=$1
	shift
	perfquery -x "$@" | sed -n "s/^$name:\.*//p"
}

perf_query() {
	local before after name port switch
	before=$(counter PortRcvPkts -C shca0 -P 1)
	ibping_once
	after=$(counter PortRcvPkts -C shca0 -P 1)
	echo "shca0/1 PortRcvPkts: $before, $after"
	[ "$after" -gt "$before" ] || fail "the HCA's counter does not count"
	read -r name port < <(far_end shca0 1)
	switch=$(ibswitches | sed -n "s/.*\"$name\".* lid \([0-9]*\) .*/\1/p")
	before=$(counter PortXmitData "$switch" "$port")
	ibping_once
	after=$(counter PortXmitData "$switch" "$port")
	echo "switch (LID $switch) PortXmitData: $before, $after"
	[ "$after" -gt "$before" ] || fail "the switch's counter does not count"
}

# Management datagrams to shca0/1 and back.
ibping_once() { smpquery -C shca1 -P 1 nodeinfo "$(lid_of shca0 1)"; }

# Since the subnet is up. Multicast that would go back to where it came from is counted as a relay error:
# not an error here.
no_errors() {
	output ibqueryerrors --suppress-common
	need 'Summary: .* nodes checked, 0 bad nodes found'
}

pull_and_plug() {
	cable pull shca0 2
	await 5 state_is shca0 2 DOWN
	output ibnetdiscover
	need_count $(($(port_count) - 1)) '^\[[0-9]+\].*"H-'
	cable plug shca0 2
	await 20 state_is shca0 2 ACTIVE
	output ibnetdiscover
	need_count "$(port_count)" '^\[[0-9]+\].*"H-'
}

row subnet-up opensm subnet_up
row ibnetdiscover ibnetdiscover net_discover
for file in /host/*.net; do [ ! -e "$file" ] || row as-described "--fabric ${file##*/}" as_described "$file"; done
row iblinkinfo iblinkinfo link_info
row saquery saquery sa_query
row sminfo sminfo sm_info
row perfquery "perfquery, smpquery" perf_query
row ibqueryerrors ibqueryerrors no_errors
row pull-and-plug "opensm, ibnetdiscover" pull_and_plug
