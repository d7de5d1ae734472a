// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Reads queue pairs of which something was heard, and tells what is new. */
#include <linux/sched/mm.h>

#include "apm.h"

/* Pauses between looks at one that is to become Armed, which no event tells. */
#define REARM_MS 2
#define LONGEST_MS 1000

/* How long one may be in RTR before it is taken for one that stays there; how long to RTS. */
#define RTR_MS 3000
#define RTS_MS 2000

static bool is_open(const struct apm_snapshot *s)
{
	return s->state == IB_QPS_RTS || s->state == IB_QPS_SQD;
}

static enum apm_refusal refusal_of(struct apm_qp *q, struct ib_device *ib,
				   const struct apm_snapshot *now)
{
	if (!apm_owner_is_protected(&q->owner))
		return APM_REFUSAL_OWNER;
	if (test_bit(APM_QP_OWN_APM, &q->flags))
		return APM_REFUSAL_OWN_APM;
	if (!(ib->attrs.device_cap_flags & IB_DEVICE_AUTO_PATH_MIG) ||
	    !rdma_protocol_ib(ib, now->primary.port))
		return APM_REFUSAL_NO_APM;
	if (now->state == IB_QPS_RTR)
		return APM_REFUSAL_RESPONDER_ONLY;
	/* Ports are asked once for each way: that may be a firmware's command. */
	if (test_bit(APM_QP_ANNOUNCED, &q->flags) && q->refusal == APM_REFUSAL_NONE &&
	    apm_path_same_way(&now->primary, &q->last.primary))
		return APM_REFUSAL_NONE;
	return apm_path_leads_back(ib, &now->primary) ? APM_REFUSAL_LOOPBACK : APM_REFUSAL_NONE;
}

/* What has happened between two readings, if it is to be told. */
static bool news_of(struct apm_qp *q, const struct apm_snapshot *now, enum apm_cause *cause)
{
	const struct apm_snapshot *last = &q->last;
	bool failed = test_and_clear_bit(APM_QP_MIG_ERR, &q->flags);
	bool migrated = test_and_clear_bit(APM_QP_MIG, &q->flags);

	if (!is_open(now)) {
		*cause = APM_CAUSE_BROKEN;
		return is_open(last);
	}
	if (migrated || !apm_path_same_way(&now->primary, &last->primary) ||
	    (last->migration == IB_MIG_ARMED && now->migration == IB_MIG_MIGRATED)) {
		*cause = APM_CAUSE_PATH_MIGRATED;
		return true;
	}
	if (failed) {
		*cause = APM_CAUSE_PATH_MIG_ERR;
		return true;
	}
	*cause = now->migration == IB_MIG_ARMED ? APM_CAUSE_ARMED : APM_CAUSE_CHANGED;
	return now->migration != last->migration;
}

/* Remembers a reading, and looks again if it is to become Armed. With the mutex held. */
void apm_saw(struct apm_qp *q, const struct apm_snapshot *now)
{
	q->last = *now;
	if (now->state != IB_QPS_RTS || now->migration == IB_MIG_MIGRATED)
		WRITE_ONCE(q->standing, false);
	if (now->state != IB_QPS_RTS || now->migration != IB_MIG_REARM || q->refusal) {
		q->pause_ms = REARM_MS;
		return;
	}
	apm_look_soon(q, q->pause_ms);
	q->pause_ms = min(2 * q->pause_ms, (u32)LONGEST_MS);
}

/* One that is not in RTS (yet). Whether there is something to be told. */
static bool is_settled(struct apm_qp *q, const struct apm_snapshot *now)
{
	unsigned long in_rtr = q->rtr_since;

	if (test_bit(APM_QP_ANNOUNCED, &q->flags))
		return true;
	if (now->state != IB_QPS_RTR)
		return is_open(now);
	if (test_bit(APM_QP_TO_RTS, &q->flags)) {
		if (time_before(jiffies, in_rtr + msecs_to_jiffies(RTR_MS + RTS_MS)))
			apm_look_soon(q, RTS_MS / 20);
		return false;
	}
	return !time_before(jiffies, in_rtr + msecs_to_jiffies(RTR_MS));
}

static void judge(struct apm_qp *q, struct ib_device *ib, const struct apm_snapshot *now)
{
	struct apm_news news = {};
	enum apm_refusal refusal;

	if (!is_settled(q, now)) {
		q->last = *now;
		return;
	}
	/* One that has left RTS keeps what was said of it. */
	refusal = is_open(now) || now->state == IB_QPS_RTR ? refusal_of(q, ib, now) : q->refusal;
	if (!test_and_set_bit(APM_QP_ANNOUNCED, &q->flags) || refusal != q->refusal) {
		q->refusal = refusal;
		apm_saw(q, now);
		apm_tell_new(q);
	} else if (news_of(q, now, &news.cause)) {
		apm_saw(q, now);
		apm_tell(q, &news);
	} else {
		apm_saw(q, now);
	}
}

static void retire(struct apm_qp *q)
{
	unsigned long flags;

	spin_lock_irqsave(&apm_lock, flags);
	apm_qp_retire(q);
	spin_unlock_irqrestore(&apm_lock, flags);
}

static void look(struct work_struct *work)
{
	struct apm_qp *q = container_of(to_delayed_work(work), struct apm_qp, look);
	unsigned int noio = memalloc_noio_save();
	struct apm_snapshot now;
	struct ib_qp *qp;
	int ret;

	mutex_lock(&q->mutex);
	if (test_bit(APM_QP_DYING, &q->flags)) {
		if (test_and_clear_bit(APM_QP_ANNOUNCED, &q->flags))
			apm_tell_del(q);
		goto out;
	}
	qp = apm_qp_hold(q);
	if (IS_ERR(qp)) {
		/* Taken up while it was being destroyed. */
		if (PTR_ERR(qp) == -ENOENT)
			retire(q);
		goto out;
	}
	ret = apm_qp_read(q, qp, &now);
	if (!ret)
		judge(q, qp->device, &now);
	apm_qp_release(qp);
out:
	mutex_unlock(&q->mutex);
	apm_qp_put(q);
	memalloc_noio_restore(noio);
}

void apm_look_init(struct apm_qp *q)
{
	q->pause_ms = REARM_MS;
	INIT_DELAYED_WORK(&q->look, look);
}

/* From anywhere, probes and event handlers included. The work holds a reference of the entry. */
void apm_look_soon(struct apm_qp *q, unsigned int ms)
{
	apm_qp_get(q);
	if (mod_delayed_work(apm_wq, &q->look, msecs_to_jiffies(ms)))
		apm_qp_put(q);
}
