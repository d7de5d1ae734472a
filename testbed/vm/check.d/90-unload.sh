# SPDX-License-Identifier: MIT OR Apache-2.0
# The end: the module goes while nothing is open, comes back, and the kernel has nothing to complain of.

unload() {
	local resource
	# While there is an SM: otherwise IPoIB waits long for answers when it leaves its groups.
	rmmod ib_ipoib
	killall opensm
	await 20 sh -c '! pidof opensm'
	for resource in qp cq mr pd cm_id; do
		output rdma resource show "$resource"
		! grep -v '\[' <<<"$out" | grep -q pid || fail "a program still holds a $resource"
	done
	output lsmod
	need '^shca +[0-9]+ +0( |$)'
	rmmod shca
	[ -z "$(devices)" ] || fail "still there: $(devices)"
	modprobe shca
	[ -e "/sys/class/infiniband/$(subnet_manager_device)" ] || fail "the module does not load again"
	rmmod shca
}

row unload "rmmod, modprobe" unload
row dmesg dmesg kernel_is_content
