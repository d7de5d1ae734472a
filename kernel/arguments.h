/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The arguments of a function that a probe has caught at its beginning.
 */
#ifndef APM_ARGUMENTS_H
#define APM_ARGUMENTS_H

#include <linux/ptrace.h>

/* Argument @n of the function, from 0: five at most are in registers on all of these machines. */
static inline unsigned long apm_argument(struct pt_regs *regs, unsigned int n)
{
#if defined(CONFIG_HAVE_FUNCTION_ARG_ACCESS_API)
	return regs_get_kernel_argument(regs, n);
#elif defined(CONFIG_PPC64)
	/* Both 64-bit ELF ABIs pass the first eight words in r3 to r10. */
	return regs->gpr[3 + n];
#else
#error "apm does not know how arguments are passed on this architecture"
#endif
}

#endif
