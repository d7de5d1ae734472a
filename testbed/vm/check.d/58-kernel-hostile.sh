# SPDX-License-Identifier: MIT OR Apache-2.0
# The kernel module apm where something hostile happens: LIDs and P_Keys that mislead, a firmware that hangs, probes that
# are switched off, other namespaces, messages that are none. Names of 57-kernel.sh are used.

# hold DLID: a program has a queue pair on port 1 of shca0 that leads there. Sets holder.
hold() {
	hold_qp shca0 1 "$1" sh -c 'exec sleep 60' >/dev/null &
	holder=$!
}

holds_as() { apm_order get | grep " dev=shca0 .* refusal=$1 .*owner=hold_qp"; }

let_go() {
	kill -KILL "$holder"
	wait "$holder" || true
	await 10 is_alone
}

# A LID is of one subnet: that of another port of the own HCA may be somebody else's in the subnet of this one.
loops() {
	hold "$(lid_of shca0 1)"
	await 10 holds_as loopback
	let_go
	hold "$(lid_of shca0 2)"
	await 10 holds_as none
	let_go
}

# A standing order is meant also while the send queue is drained.
standing_in_sqd() {
	hold_qp -o sqd shca0 1 "$(lid_of shca1 1)" sh -c 'exec sleep 60' >/dev/null &
	holder=$!
	await 10 holds_as none
	output apm_order load "$(field "$(holds_as none)" cookie)" "$(path shca0 shca1 1)" "$(path shca0 shca1 2)" standing
	need 'cause=done .* standing=1$'
	kill -USR1 "$holder"
	await 10 sh -c 'apm_order get | grep " state=4 .*owner=hold_qp"'
	sleep 0.5
	output holds_as none
	need ' state=4 .* standing=1 '
	let_go
}

# set_pkey VALUE: the first entry of port 1 of shca0, as a subnet manager would.
set_pkey() {
	output smp_edit shca2 "$(lid_of shca0 1)" 0x16 0 0 "$1"
	await 10 grep -qx "0x$1" /sys/class/infiniband/shca0/ports/1/pkeys/0
	sleep 0.5
}

# A limited member does not replace a full one: it would be armed, and lose limited peers after a migration.
memberships() {
	hold_qp shca0 2 "$(lid_of shca1 2)" sh -c 'exec sleep 60' >/dev/null &
	holder=$!
	await 10 holds_as none
	set -- load "$(field "$(holds_as none)" cookie)" "$(path shca0 shca1 2)" "$(path shca0 shca1 1)"
	set_pkey 7fff
	output apm_order "$@"
	need 'cause=failed .* errno=2 '
	set_pkey ffff
	output apm_order "$@"
	need 'cause=done .* alternate-pkey=0xffff '
	let_go
}

# The references to GID attributes that ib_core counts are right when the GIDs go.
gid_attributes() { # ROUNDS
	local way
	for way in reset load; do
		output apm_gid "$way" "$1" -n
		need "queue pairs: $1, .*; orders done: 0, refused: 0"
	done
	output apm_gid load "$1"
	need "queue pairs: $1, left alone: 0; orders done: [1-9]"
	# What its owner has loaded with a GRH is never touched.
	output apm_gid reset "$1"
	need "queue pairs: $1, left alone: $1; orders done: 0, refused: [1-9]"
	world netns
	world flat
	kernel_is_content
	! grep "GID entry ref leak" "$logs/kernel" || fail "a GID attribute was not put"
}

# firmware MS: how late the answers to shca0's queries come.
firmware() { echo "0 query $1" >/sys/module/shca/parameters/firmware; }

# at_once COMMAND...: it does not wait for a query of 10 s.
at_once() {
	local began=$EPOCHREALTIME ms
	output "$@"
	ms=$(((${EPOCHREALTIME/./} - ${began/./}) / 1000))
	echo "$ms ms: $*"
	[ "$ms" -lt 4000 ] || fail "a query that takes 10 s was waited for"
}

are_held() { [ "$(apm_order get | grep -c " dev=shca0 .*owner=hold_qp")" = "$1" ]; }

# While shca0 answers nothing, what is known of its queue pairs is told, others are taken up, and shca1's orders are
# carried out. More queries hang than a device has places for.
hung_firmware() {
	local cookie i holders=() queries=()
	long_pingpong 18607
	for device in shca0 shca1; do await 10 is_known "$device"; done
	for i in 1 2 3 4 5 6 7 8; do
		hold "$(lid_of shca1 1)"
		holders+=("$holder")
	done
	await 10 are_held 8
	cookie=$(cookie_of shca1)
	at_once apm_order get
	firmware 10000
	for i in $(apm_order get | sed -n 's/.*cookie=\([0-9]*\) .* dev=shca0 .*/\1/p'); do
		apm_order query "$i" >/dev/null &
		queries+=($!)
	done
	sleep 0.5
	at_once apm_order get
	need_count 10 '^new '
	at_once apm_order adopt "$(index_of shca0)" "$(field "$(known shca0)" qpn)"
	at_once apm_order query "$cookie"
	at_once apm_order load "$cookie" "$(path shca1 shca0 1)" "$(path shca1 shca0 2)"
	need 'cause=done'
	firmware 0
	kill -KILL "${queries[@]}" "${holders[@]}"
	wait "${queries[@]}" "${holders[@]}" || true
	end_pingpong
	await 20 is_alone
}

# An order is not carried out that waited for longer than a second, here for the reading of its queue pair.
late_order() {
	local cookie
	long_pingpong 18609
	await 10 is_known shca0
	cookie=$(cookie_of shca0)
	firmware 2000
	output apm_order load "$cookie" "$(path shca0 shca1 1)" "$(path shca0 shca1 2)"
	need 'cause=stale .* migration=migrated'
	firmware 0
	output apm_order load "$cookie" "$(path shca0 shca1 1)" "$(path shca0 shca1 2)"
	need 'cause=done '
	end_pingpong
	await 20 is_alone
}

kprobes() { echo "$1" >/sys/kernel/debug/kprobes/enabled; }
is_alone_once_read() { apm_order probes && is_alone; }

# Who switches the probes off is not noticed by them: the module says it, and finds out what has ended meanwhile.
blindness() {
	output apm_order probes
	need 'probes=working missed=0 lost='
	# Busy; Linux 7 has nobody switch it off.
	out=$(sysctl -w kernel.ftrace_enabled=0 2>&1) && fail "ftrace can be switched off"
	output apm_order probes
	need 'probes=working missed=0 lost='
	long_pingpong 18608
	for device in shca0 shca1; do await 10 is_known "$device"; done
	kprobes 0
	output apm_order probes
	need 'probes=blind'
	end_pingpong
	await 10 is_alone_once_read
	kprobes 1
	output apm_order probes
	need 'probes=working missed=0 lost='
	long_pingpong 18609
	for device in shca0 shca1; do await 10 is_known "$device"; done
	end_pingpong
	await 10 is_alone
}

# Settings are the host's; so are orders where namespaces share devices, but for what a namespace's own programs have.
foreign_settings() {
	refused_in_namespace 'settings are changed from the initial network namespace only' protect none
	output unshare -n apm_order protect all
	need 'protect=2'
}

refused_in_namespace() { # PATTERN ARGUMENT...
	local why=$1
	shift
	out=$(unshare -n apm_order "$@" 2>&1) && fail "not refused in another namespace: $*"
	need "$why"
}

foreign_orders() {
	local cookie
	long_pingpong 18610
	for device in shca0 shca1; do await 10 is_known "$device"; done
	cookie=$(cookie_of shca0)
	await 10 set_netns shared
	refused_in_namespace 'of another network namespace' load "$cookie" "$(path shca0 shca1 1)" "$(path shca0 shca1 2)"
	refused_in_namespace 'of another network namespace' standing "$cookie" "$(path shca0 shca1 1)"
	refused_in_namespace 'of another network namespace' migrate "$cookie" "$(path shca0 shca1 1)"
	refused_in_namespace 'of another network namespace' peer "$(index_of shca0)" 1 2 10
	output unshare -n hold_qp shca0 1 "$(lid_of shca1 1)" bash -c '
		until own=$(apm_order get | grep owner=hold_qp); do sleep 0.2; done
		exec apm_order load "$(sed "s/.*cookie=\([0-9]*\).*/\1/" <<<"$own")" "$0" "$1"' \
		"$(path shca0 shca1 1)" "$(path shca0 shca1 2)"
	need 'cause=done'
	end_pingpong
	await 10 is_alone
	await 20 set_netns exclusive
}

# in_user_namespace UID MAP COMMAND...: as user 5 of a namespace that this user has made, with MAP.
in_user_namespace() {
	local uid=$1 map=$2
	shift 2
	setpriv --reuid="$uid" --clear-groups unshare -U sleep 60 &
	namespace=$!
	await 10 sh -c "[ \"\$(readlink /proc/$namespace/ns/user)\" != \"\$(readlink /proc/self/ns/user)\" ]"
	echo "$map" >"/proc/$namespace/uid_map"
	echo "$map" >"/proc/$namespace/gid_map"
	nsenter -U -t "$namespace" -S 5 -G 5 "$@" &
	holder=$!
}

charged() { apm_order get | grep -q "owner=hold_qp .*uid=$1 charged=$2\$"; }

# Users of a namespace take the share of who has made that; but where root has, their own.
sub_uids() {
	local namespace holder uid charge
	chmod 666 /dev/infiniband/uverbs*
	for uid in 1234 0; do
		in_user_namespace "$uid" "0 100000 1000" hold_qp shca0 1 "$(lid_of shca1 1)" sh -c 'exec sleep 50'
		charge=$uid
		[ "$uid" != 0 ] || charge=100005
		await 10 charged 100005 "$charge"
		kill -KILL "$namespace" "$holder"
		wait "$namespace" "$holder" || true
		await 10 is_alone
	done
}

rights() {
	foreign_settings
	foreign_orders
	sub_uids
}

# Messages that are hardly orders, while queue pairs are under care.
fuzz() { # MESSAGES
	local seed=$RANDOM
	long_pingpong 18605
	for device in shca0 shca1; do await 10 is_known "$device"; done
	arm shca0 shca1 1 2
	arm shca1 shca0 1 2
	echo "seed $seed"
	output apm_fuzz "$(($1 / 10))" "$seed" user
	output apm_fuzz "$(($1 / 10))" "$seed" namespace
	output apm_fuzz "$1" "$seed"
	still_run || fail "a program ended"
	end_pingpong
	await 20 is_alone
	heap_is_sound
}

# A program that migrates paths by itself, and the module beside it.
beside() {
	output apm_verbs
	need_count 0 '^FAIL'
	await 20 is_alone
	healthy
}

# Entries are freed seconds after their end: some of rows before may have been among those counted.
no_more_objects() { [ "$(objects)" -le "$1" ]; }

# Queue pairs come to their bad ends while orders come without regard, and messages that are none.
hammered_churn() {
	local resources objects hammer seed=$RANDOM
	resources=$(resources) objects=$(objects)
	echo "before: $objects objects, $resources; seed $seed"
	apm_hammer "$((15 * patience))" "$seed" "$(lid_of shca0 1):$(lid_of shca0 2)" "$(lid_of shca1 1):$(lid_of shca1 2)" \
		>"$logs/hammer" 2>&1 &
	hammer=$!
	output timeout -s KILL "$((80 * patience))" qp_churn -t "$((5 * patience))"
	need '^PASS'
	wait "$hammer" || { cat "$logs/hammer"; fail "the hammer ended with status $?"; }
	cat "$logs/hammer"
	healthy
	await 20 is_alone
	as_before resources "$resources"
	await 10 no_more_objects "$objects"
	heap_is_sound
}

full_row kernel-sqd "apm_order, hold_qp" standing_in_sqd
full_row kernel-pkey "apm_order, hold_qp, smp_edit" memberships
full_row kernel-loopback "hold_qp" loops
full_row kernel-gid "apm_gid" gid_attributes 96
named_row kernel-gid-long "apm_gid, 10,000 rounds" gid_attributes 10000
full_row kernel-firmware "apm_order, hold_qp" hung_firmware
full_row kernel-late-order "apm_order" late_order
full_row kernel-rights "apm_order, hold_qp, unshare" rights
full_row kernel-probes "apm_order, sysctl" blindness
full_row kernel-fuzz "apm_fuzz" fuzz "$((30000 / patience))"
named_row kernel-fuzz-long "apm_fuzz, a million messages" fuzz 1000000
full_row kernel-beside "apm_verbs" beside
full_row kernel-churn "qp_churn, apm_hammer" hammered_churn
