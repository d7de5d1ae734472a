// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The tracepoints, which are made once. */
#include <linux/module.h>

#define CREATE_TRACE_POINTS
#include "trace.h"
