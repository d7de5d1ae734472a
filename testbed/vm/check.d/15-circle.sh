# SPDX-License-Identifier: MIT OR Apache-2.0
# Forwarding tables that send packets around in a circle, where the fabric has one.

switch_lid() { ibswitches | sed -n "s/.*\"$1\".* lid \([0-9]*\) .*/\1/p"; }

forward() { # SWITCH LID PORT
	smp_edit shca0 "$(switch_lid "$1")" 0x19 $(($2 / 64)) $(($2 % 64)) "$(printf '%02x' "$3")"
}

discards() { perfquery -C shca0 -P 1 "$(switch_lid "$1")" "$2" | sed -n 's/^PortXmitDiscards:\.*//p'; }

answers() { smpquery -C shca0 -P 1 -t 200 nodeinfo "$1"; }

in_a_circle() {
	local lid port before=0 after=0
	lid=$(lid_of shca1 1)
	answers "$lid"
	for port in leaf0:7 spine0:2 leaf1:8 spine1:1; do
		forward "${port%:*}" "$lid" "${port#*:}"
		before=$((before + $(discards "${port%:*}" "${port#*:}")))
	done
	! answers "$lid" || fail "LID $lid answers, whose packets go in a circle"
	for port in leaf0:7 spine0:2 leaf1:8 spine1:1; do
		after=$((after + $(discards "${port%:*}" "${port#*:}")))
	done
	echo "discarded: $before, $after"
	[ "$after" -gt "$before" ] || fail "what circles is not counted"
	subnet-manager stop
	subnet-manager start
	await 20 answers "$lid"
}

! switches | grep -qx spine1 || row in-a-circle "smp_edit, smpquery, perfquery" in_a_circle
