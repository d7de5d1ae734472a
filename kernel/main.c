// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The module comes and goes. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>

#include "apm.h"

MODULE_DESCRIPTION("Automatic path migration of InfiniBand RC queue pairs, by order of a daemon");
MODULE_AUTHOR("The apmd authors");
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION("0.1.0");

struct workqueue_struct *apm_wq;
struct workqueue_struct *apm_order_wq;
struct workqueue_struct *apm_urgent_wq;

static int __init apm_init(void)
{
	int ret;

	/* Few at a time: a firmware command of each queue pair may wait here. */
	apm_wq = alloc_workqueue("apm", WQ_UNBOUND | WQ_MEM_RECLAIM, 8);
	if (!apm_wq)
		return -ENOMEM;
	/* Looks are as many as users make of them: orders do not wait for these. */
	apm_order_wq = alloc_workqueue("apm_orders", WQ_UNBOUND | WQ_MEM_RECLAIM, 8);
	if (!apm_order_wq) {
		ret = -ENOMEM;
		goto no_orders;
	}
	apm_urgent_wq = alloc_workqueue("apm_urgent", WQ_UNBOUND | WQ_HIGHPRI | WQ_MEM_RECLAIM, 0);
	if (!apm_urgent_wq) {
		ret = -ENOMEM;
		goto no_urgent;
	}
	ret = apm_devices_init();
	if (ret)
		goto no_devices;
	ret = apm_peers_init();
	if (ret)
		goto no_peers;
	ret = apm_netlink_init();
	if (ret)
		goto no_netlink;
	ret = apm_probes_init();
	if (ret)
		goto no_probes;
	return 0;

no_probes:
	apm_netlink_exit();
no_netlink:
	apm_peers_exit();
no_peers:
	apm_devices_exit();
no_devices:
	destroy_workqueue(apm_urgent_wq);
no_urgent:
	destroy_workqueue(apm_order_wq);
no_orders:
	destroy_workqueue(apm_wq);
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
	apm_peers_exit();
	destroy_workqueue(apm_urgent_wq);
	destroy_workqueue(apm_order_wq);
	destroy_workqueue(apm_wq);
}

module_init(apm_init);
module_exit(apm_exit);
