// SPDX-License-Identifier: MIT OR Apache-2.0
/* The clock that the programs and the drills share: CLOCK_MONOTONIC, printed in milliseconds. */
#ifndef CLOCK_H
#define CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ll + time.tv_nsec;
}

static inline double ms(int64_t ns)
{
	return ns / 1e6;
}

#endif
