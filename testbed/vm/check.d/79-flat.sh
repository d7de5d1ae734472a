# SPDX-License-Identifier: MIT OR Apache-2.0
# The HCAs back in one namespace.

back_to_flat() {
	world flat
	output ibv_devices
	need_count 1 'shca0'
	need_count 1 'shca1'
	pair 18515 ibv_rc_pingpong -n 100 -c
	need '^100 iters in '
}

row world-flat "rdma dev set netns, ibv_rc_pingpong" back_to_flat
