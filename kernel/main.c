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
struct workqueue_struct *apm_user_wq[APM_USER_WQS];
struct workqueue_struct *apm_ends_wq;
struct workqueue_struct *apm_order_wq;
struct workqueue_struct *apm_urgent_wq;

static void destroy_queue(struct workqueue_struct *queue)
{
	if (queue)
		destroy_workqueue(queue);
}

static void destroy_queues(void)
{
	unsigned int i;

	destroy_queue(apm_urgent_wq);
	destroy_queue(apm_order_wq);
	destroy_queue(apm_ends_wq);
	for (i = 0; i < APM_USER_WQS; i++)
		destroy_queue(apm_user_wq[i]);
	destroy_queue(apm_wq);
}

/*
 * A program can modify its queue pairs all the time, if only in vain: probes see it before it is
 * checked. Each is then looked at by commands of the firmware, and a program may have thousands. So
 * such looks have queues of their own, by user: what the hardware, orders and kernel ULPs bring
 * about does not wait for them, and other users' new connections do only where their queue happens
 * to be the same. Nobody waits for these to free memory.
 */
static int __init create_user_queues(void)
{
	unsigned int i;

	for (i = 0; i < APM_USER_WQS; i++) {
		apm_user_wq[i] = alloc_workqueue("apm_user%u", WQ_UNBOUND, 2, i);
		if (!apm_user_wq[i])
			return -ENOMEM;
	}
	/*
	 * Of ends, too, a user may cause as many as he likes. No device is asked for these, so they
	 * do not add up; behind such looks they would, and a number be somebody else's meanwhile.
	 */
	apm_ends_wq = alloc_workqueue("apm_ends", WQ_UNBOUND, 2);
	return apm_ends_wq ? 0 : -ENOMEM;
}

static int __init create_queues(void)
{
	/* Few at a time: a firmware command of each queue pair may wait here. */
	apm_wq = alloc_workqueue("apm", WQ_UNBOUND | WQ_MEM_RECLAIM, 8);
	/* Many queue pairs may be looked at: orders do not wait for that. */
	apm_order_wq = alloc_workqueue("apm_orders", WQ_UNBOUND | WQ_MEM_RECLAIM, 8);
	apm_urgent_wq = alloc_workqueue("apm_urgent", WQ_UNBOUND | WQ_HIGHPRI | WQ_MEM_RECLAIM, 0);
	if (!create_user_queues() && apm_wq && apm_order_wq && apm_urgent_wq)
		return 0;
	destroy_queues();
	return -ENOMEM;
}

/*
 * The family comes last: with a first load a queue pair's event handler becomes the module's, and
 * no reference keeps a module that is not initialised after all.
 */
static int __init apm_init(void)
{
	int ret;

	ret = create_queues();
	if (ret)
		return ret;
	ret = apm_devices_init();
	if (ret)
		goto no_devices;
	ret = apm_peers_init();
	if (ret)
		goto no_peers;
	ret = apm_probes_init();
	if (ret)
		goto no_probes;
	ret = apm_netlink_init();
	if (ret)
		goto no_netlink;
	return 0;

no_netlink:
	apm_probes_exit();
no_probes:
	apm_peers_exit();
no_peers:
	apm_devices_exit();
no_devices:
	destroy_queues();
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
	destroy_queues();
}

module_init(apm_init);
module_exit(apm_exit);
