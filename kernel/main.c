// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The module comes and goes. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>

#include "apm.h"

MODULE_DESCRIPTION("Automatic path migration of InfiniBand RC queue pairs, by order of a daemon");
MODULE_AUTHOR("The apmd authors");
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION("0.1.0");

/* Failovers, and the ends of devices. */
struct workqueue_struct *apm_urgent_wq;

/*
 * The family comes last: with a first load a queue pair's event handler becomes the module's, and
 * no reference keeps a module that is not initialised after all.
 */
static int __init apm_init(void)
{
	int ret;

	apm_urgent_wq = alloc_workqueue("apm_urgent", WQ_UNBOUND | WQ_HIGHPRI | WQ_MEM_RECLAIM, 0);
	if (!apm_urgent_wq)
		return -ENOMEM;
	ret = apm_devices_init();
	if (ret)
		goto no_devices;
	ret = apm_peers_init();
	if (ret)
		goto no_peers;
	ret = apm_probes_init();
	if (ret)
		goto no_probes;
	ret = apm_witness_init();
	if (ret)
		goto no_witness;
	ret = apm_netlink_init();
	if (ret)
		goto no_netlink;
	return 0;

no_netlink:
	apm_witness_exit();
no_witness:
	apm_probes_exit();
no_probes:
	apm_peers_exit();
no_peers:
	apm_devices_exit();
no_devices:
	destroy_workqueue(apm_urgent_wq);
	return ret;
}

/*
 * Not reached while a queue pair's event handler is ours. The probes go first, since they make
 * entries and queue work; then the entries go with their devices, which is told while the family is
 * there; then there is nothing left to give orders to.
 */
static void __exit apm_exit(void)
{
	apm_probes_exit();
	apm_devices_exit();
	apm_netlink_exit();
	apm_witness_exit();
	apm_peers_exit();
	destroy_workqueue(apm_urgent_wq);
}

module_init(apm_init);
module_exit(apm_exit);
