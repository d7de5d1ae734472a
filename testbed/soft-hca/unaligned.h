/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Access to unaligned data: Linux 6.12 moved the header. */
#ifndef SHCA_UNALIGNED_H
#define SHCA_UNALIGNED_H

#ifdef SHCA_HAS_LINUX_UNALIGNED
#include <linux/unaligned.h>
#else
#include <asm/unaligned.h>
#endif

#endif
