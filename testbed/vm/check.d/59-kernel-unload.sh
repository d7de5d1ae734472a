# SPDX-License-Identifier: MIT OR Apache-2.0
# The kernel module apm goes after all rows that use it.

unload_apm() {
	output lsmod
	need '^apm +[0-9]+ +0( |$)'
	output rmmod apm
	kernel_is_content
}

full_row kernel-unload "rmmod apm" unload_apm
