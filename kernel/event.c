// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The events of queue pairs under care. Their handler is exchanged with the first load, and stays
 * as long as the queue pair: a driver may have read it just before, so the module is pinned.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/rcupdate.h>

#include "apm.h"

/*
 * Once for each queue pair. The caller holds the queue pair, and the mutex of the entry. An order
 * may still be carried out while the module is on its way out: no handler is exchanged then.
 */
int apm_event_take(struct apm_qp *q, struct ib_qp *qp)
{
	struct apm_qp *before;
	unsigned long flags;
	int ret = 0;

	spin_lock_irqsave(&apm_lock, flags);
	/* It was reset meanwhile: what was ordered was meant for what it was before. */
	if (test_bit(APM_QP_DYING, &q->flags))
		ret = -ESTALE;
	if (ret || test_bit(APM_QP_HANDLER, &q->flags))
		goto out;
	if (!try_module_get(THIS_MODULE)) {
		ret = -ESHUTDOWN;
		goto out;
	}
	before = apm_qp_find_handler(qp->device, qp->qp_num);
	if (qp->event_handler == apm_event_handler) {
		/* It was reset, and has a new entry since. */
		if (before) {
			q->chained = before->chained;
			/* Whoever finds the entry finds whom to pass events on to. */
			smp_mb__before_atomic();
			set_bit(APM_QP_HANDLER, &q->flags);
			apm_qp_forget(before);
		} else {
			module_put(THIS_MODULE);
		}
		goto out;
	}
	q->chained = qp->event_handler;
	set_bit(APM_QP_HANDLER, &q->flags);
	/* Whoever reads the handler finds the entry. */
	smp_store_release(&qp->event_handler, apm_event_handler);
out:
	spin_unlock_irqrestore(&apm_lock, flags);
	return ret;
}

static bool is_kept(struct apm_qp *q, enum ib_event_type type)
{
	if (test_bit(APM_QP_DYING, &q->flags) || test_bit(APM_QP_OWN_APM, &q->flags))
		return false;
	/* A device may tell of SQD though it was not asked to: this was not the owner's. */
	if (type == IB_EVENT_SQ_DRAINED)
		return test_bit(APM_QP_MOVING, &q->flags) &&
		       READ_ONCE(q->owner_state) != IB_QPS_SQD;
	if (type == IB_EVENT_PATH_MIG)
		set_bit(APM_QP_MIG, &q->flags);
	else if (type == IB_EVENT_PATH_MIG_ERR)
		set_bit(APM_QP_MIG_ERR, &q->flags);
	else
		return false;
	/* It was found under RCU, and may be on its way out. */
	if (apm_qp_try_get(q)) {
		apm_look_soon(q, 0);
		apm_qp_put(q);
	}
	/* rds drops its connection and svcrdma closes its own; UCX prints an error. */
	return !q->owner.user || apm_config_swallows();
}

/*
 * The entry that knows whom to pass events on to. Where a queue pair that was reset has a new one,
 * a search may come between the two, and find neither: they change under the lock. Under RCU.
 */
static struct apm_qp *find_handler(const struct ib_qp *qp)
{
	struct apm_qp *q = apm_qp_find_handler(qp->device, qp->qp_num);
	unsigned long flags;

	if (q)
		return q;
	spin_lock_irqsave(&apm_lock, flags);
	q = apm_qp_find_handler(qp->device, qp->qp_num);
	spin_unlock_irqrestore(&apm_lock, flags);
	return q;
}

/* Called by drivers, in whatever context. */
void apm_event_handler(struct ib_event *event, void *context)
{
	void (*chained)(struct ib_event *event, void *context) = NULL;
	struct ib_qp *qp = event->element.qp;
	bool keep = false;
	struct apm_qp *q;

	rcu_read_lock();
	/* The driver has read the handler: with the release in apm_event_take. */
	smp_rmb();
	q = find_handler(qp);
	if (q) {
		/* Its bit was seen: with the barrier before that. */
		smp_rmb();
		keep = is_kept(q, event->event);
		chained = q->chained;
	} else {
		pr_warn_once("event %d of a queue pair that is not known\n", event->event);
	}
	rcu_read_unlock();
	if (chained && !keep)
		chained(event, context);
}
