// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Whether the probes work. All of them can be switched off, and nobody who has one is told: by
 * sysctl kernel.ftrace_enabled, since they lie on ftrace, and by debugfs' kprobes/enabled. So there
 * is one on a function of the module's own, which is called to see whether the probe sees it.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ftrace.h>
#include <linux/kprobes.h>

#include "apm.h"

static DEFINE_MUTEX(one_at_a_time);
static unsigned int seen;

/* Nothing but a place for a probe. */
noinline void apm_witness(void)
{
	asm volatile("");
}

static int on_witness(struct kprobe *probe, struct pt_regs *regs)
{
	WRITE_ONCE(seen, seen + 1);
	return 0;
}

static struct kprobe witness_probe = {
	.symbol_name = "apm_witness", .pre_handler = on_witness
};

bool apm_probes_work(void)
{
	unsigned int before;
	bool work;

	mutex_lock(&one_at_a_time);
	before = READ_ONCE(seen);
	apm_witness();
	work = READ_ONCE(seen) != before;
	mutex_unlock(&one_at_a_time);
	return work;
}

/*
 * While somebody on ftrace says that he has to stay, as live patches do, kernel.ftrace_enabled
 * cannot be cleared. The probes are kprobes all the same, since of the return of a function ftrace
 * tells nothing on 6.1.
 */
#ifdef CONFIG_DYNAMIC_FTRACE
static void on_entry(unsigned long ip, unsigned long parent, struct ftrace_ops *ops,
		     struct ftrace_regs *regs)
{
}

static struct ftrace_ops keeper = { .func = on_entry, .flags = FTRACE_OPS_FL_PERMANENT };
static bool kept;

static void keep_ftrace(void)
{
	int ret = ftrace_set_filter_ip(&keeper, (unsigned long)apm_witness, 0, 0);

	if (!ret)
		ret = register_ftrace_function(&keeper);
	kept = !ret;
	if (ret)
		pr_warn("cannot keep ftrace enabled: error %d; is kernel.ftrace_enabled 0?\n", ret);
}

/* What the filter has allocated goes with neither the registration nor the module. */
static void release_ftrace(void)
{
	if (kept)
		unregister_ftrace_function(&keeper);
	ftrace_free_filter(&keeper);
}
#else
static void keep_ftrace(void)
{
}

static void release_ftrace(void)
{
}
#endif

int apm_witness_init(void)
{
	int ret = register_kprobe(&witness_probe);

	if (ret) {
		pr_err("cannot listen to %s: error %d\n", witness_probe.symbol_name, ret);
		return ret;
	}
	keep_ftrace();
	if (!apm_probes_work())
		pr_warn("probes are switched off: no queue pair is seen\n");
	return 0;
}

void apm_witness_exit(void)
{
	release_ftrace();
	unregister_kprobe(&witness_probe);
}
