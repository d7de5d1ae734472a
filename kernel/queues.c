// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The queues in which a device's queue pairs are worked on. Nearly all such work are commands of
 * the device's firmware, so each device has its own.
 */
#include <linux/cred.h>
#include <linux/hash.h>

#include "apm.h"

/* A program's waits where its user's does, what the kernel's owners do behind no program. */
struct workqueue_struct *apm_queue_of_owner(const struct apm_qp *q)
{
	const struct apm_queues *queues = &q->dev->queues;
	u32 user = hash_32(__kuid_val(q->owner.charged), APM_USER_WQ_BITS);

	return q->owner.user ? queues->user[user] : queues->looks;
}

static void destroy_queue(struct workqueue_struct *queue)
{
	if (queue)
		destroy_workqueue(queue);
}

void apm_queues_exit(struct apm_queues *queues)
{
	unsigned int i;

	destroy_queue(queues->orders);
	destroy_queue(queues->ends);
	for (i = 0; i < APM_USER_WQS; i++)
		destroy_queue(queues->user[i]);
	destroy_queue(queues->looks);
}

/* Answers and ends are told by these. */
void apm_queues_flush(const struct apm_queues *queues)
{
	unsigned int i;

	flush_workqueue(queues->orders);
	for (i = 0; i < APM_USER_WQS; i++)
		flush_workqueue(queues->user[i]);
	flush_workqueue(queues->ends);
	flush_workqueue(queues->looks);
}

/*
 * A program can modify its queue pairs all the time, if only in vain: probes see it before it is
 * checked. Each is then looked at by commands of the firmware, and a program may have thousands. So
 * such looks have queues of their own, by user: what the hardware, orders and kernel ULPs bring
 * about does not wait for them, and other users' new connections do only where their queue happens
 * to be the same. Nobody waits for these to free memory.
 */
static int create_user_queues(struct apm_queues *queues, unsigned int device)
{
	unsigned int i;

	for (i = 0; i < APM_USER_WQS; i++) {
		queues->user[i] = alloc_workqueue("apm_user%u_%u", WQ_UNBOUND, 2, device, i);
		if (!queues->user[i])
			return -ENOMEM;
	}
	/*
	 * Of ends, too, a user may cause as many as he likes. No device is asked for these, so they
	 * do not add up; behind such looks they would, and a number be somebody else's meanwhile.
	 */
	queues->ends = alloc_workqueue("apm_ends%u", WQ_UNBOUND, 2, device);
	return queues->ends ? 0 : -ENOMEM;
}

int apm_queues_init(struct apm_queues *queues, unsigned int device)
{
	/* Few at a time: a firmware command of each queue pair may wait here. */
	queues->looks = alloc_workqueue("apm_looks%u", WQ_UNBOUND | WQ_MEM_RECLAIM, 8, device);
	/* Many queue pairs may be looked at: orders do not wait for that. */
	queues->orders = alloc_workqueue("apm_orders%u", WQ_UNBOUND | WQ_MEM_RECLAIM, 8, device);
	if (!create_user_queues(queues, device) && queues->looks && queues->orders)
		return 0;
	apm_queues_exit(queues);
	return -ENOMEM;
}
