# SPDX-License-Identifier: MIT OR Apache-2.0
# Queue pairs that come to a bad end, many at once, and what they leave behind: nothing. The kernel runs
# with slub_debug, so that what was freed is poison and each object of its heap names who allocated it.

heap=/sys/kernel/debug/slab

resources() { rdma resource show shca0 && rdma resource show shca1; }

# What KASAN keeps back of freed objects goes, too, when a cache shrinks.
shrink_caches() {
	local cache
	for cache in /sys/kernel/slab/kmalloc-*; do echo 1 >"$cache/shrink"; done
}

# Objects of the kernel's heap that the software HCA, rdmavt and apm hold.
objects() { shrink_caches && cat "$heap"/kmalloc-*/alloc_traces | awk '/^ *[0-9]+ .*\[(shca|rdmavt|apm)\]/ { n += $1 } END { print n + 0 }'; }

# as_before WHAT BEFORE: soon at least; what is freed by RCU takes its time.
as_before() {
	local tries=$((10 * patience)) now
	while [ $((tries -= 1)) -ge 0 ]; do
		now=$("$1")
		[ "$now" != "$2" ] || return 0
		sleep 0.3
	done
	fail "$1 now: $now"
}

nothing_left() { # RESOURCES OBJECTS
	local resource
	as_before resources "$1"
	for resource in qp cq mr pd srq; do
		! rdma resource show "$resource" | grep 'comm qp_churn' || fail "that $resource is still there"
	done
	as_before objects "$2"
}

heap_is_sound() {
	local cache
	for cache in /sys/kernel/slab/shca_packet_* /sys/kernel/slab/kmalloc-*; do
		echo 1 >"$cache/validate" || fail "${cache##*/} cannot be validated"
	done
	kernel_is_content
}

churn() {
	local resources objects
	resources=$(resources) objects=$(objects)
	echo "before: $objects objects, $resources"
	[ "$objects" -gt 0 ] || fail "nobody knows who allocated what"
	output timeout -s KILL "$((80 * patience))" qp_churn -t "$((5 * patience))"
	need '^PASS'
	healthy
	nothing_left "$resources" "$objects"
	heap_is_sound
}

full_row qp-churn "qp_churn (raw verbs)" churn
