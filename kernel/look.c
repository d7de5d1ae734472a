// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Reads queue pairs of which something was heard, and tells what is new. */
#include <linux/sched/mm.h>

#include "trace.h"

/*
 * Pauses between looks at one that is to become Armed, which no event tells. An idle one may never
 * do, but once it is used again somebody has to notice: clients go by what they were told last.
 */
#define REARM_MS 2
#define LONGEST_MS 60000

/* One that cannot be read is tried again, the pauses doubling: for 25 s in all. */
#define READ_AGAIN_MS 100
#define READ_AGAIN 8

/* How long one may be in RTR before it is taken for one that stays there; how long to RTS. */
#define RTR_MS 3000
#define RTS_MS 2000

/*
 * Who makes many connections does that first: one that is followed by others of the same user is
 * read, and told, when none has come for so long, or after the longest time in any case. Users do
 * not wait for each other.
 */
#define CALM_MS 50
#define BURST_MS 1000

static struct {
	u64 cookie;
	uid_t uid;
	unsigned long since;
} newest;

static void look_begins(struct apm_qp *q)
{
	unsigned long flags;

	spin_lock_irqsave(&q->look_lock, flags);
	q->look_waits = false;
	spin_unlock_irqrestore(&q->look_lock, flags);
}

static struct workqueue_struct *queue_of(const struct apm_qp *q, bool news)
{
	if (q->owner.user && test_bit(APM_QP_DYING, &q->flags))
		return q->dev->queues.ends;
	return news ? q->dev->queues.looks : apm_queue_of_owner(q);
}

/*
 * For news, or because of what its owner does. One that waits is never postponed, and decides
 * itself when the next is due. With look_lock held. The work holds a reference of the entry.
 */
static void look_at(struct apm_qp *q, unsigned long when, bool news)
{
	unsigned long here = jiffies;

	/* It was looked at, or is, because it ends: a later look would only keep the entry. */
	if (time_after(when, here) && test_bit(APM_QP_DYING, &q->flags))
		return;
	/* News that is there does not wait where owners' doings do, nor while timers are late. */
	if (q->look_waits && !time_before(when, q->look_at) && (!news || time_after(when, here)))
		return;
	q->look_waits = true;
	q->look_at = when;
	apm_qp_get(q);
	if (mod_delayed_work(queue_of(q, news), &q->look,
			     time_after(when, here) ? when - here : 0))
		apm_qp_put(q);
}

static void look_in(struct apm_qp *q, unsigned int ms, bool news)
{
	unsigned long flags;

	spin_lock_irqsave(&q->look_lock, flags);
	look_at(q, jiffies + msecs_to_jiffies(ms), news);
	spin_unlock_irqrestore(&q->look_lock, flags);
}

/* There is news, or may be in so many ms. From anywhere, event handlers included. */
void apm_look_soon(struct apm_qp *q, unsigned int ms)
{
	look_in(q, ms, true);
}

/* It is to be judged anew, when it is its turn among owners' doings. */
void apm_look_in_turn(struct apm_qp *q)
{
	look_in(q, 0, false);
}

/*
 * Its owner does something, of which there is something to be seen in so many ms, and not only
 * before. From anywhere, probes included.
 */
void apm_look_after(struct apm_qp *q, unsigned int ms)
{
	unsigned long when = jiffies + msecs_to_jiffies(ms);
	unsigned long flags;

	spin_lock_irqsave(&q->look_lock, flags);
	if (time_after(when, q->look_until))
		q->look_until = when;
	look_at(q, when, false);
	spin_unlock_irqrestore(&q->look_lock, flags);
}

/* A look that came sooner than what was heard can be seen is followed by another. */
static void look_later(struct apm_qp *q)
{
	unsigned long flags;

	spin_lock_irqsave(&q->look_lock, flags);
	if (time_before(jiffies, q->look_until))
		look_at(q, q->look_until, false);
	spin_unlock_irqrestore(&q->look_lock, flags);
}

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
	/* A path of another link layer has no LIDs. */
	if (!(ib->attrs.device_cap_flags & IB_DEVICE_AUTO_PATH_MIG) ||
	    !rdma_protocol_ib(ib, now->primary.port) || !now->primary.dlid)
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
	return now->migration != last->migration || now->state != last->state;
}

static void make_known(struct apm_qp *q)
{
	unsigned long flags;

	spin_lock_irqsave(&q->known_lock, flags);
	q->known = (struct apm_known){
		.last = q->last, .refusal = q->refusal, .standing = q->standing,
	};
	spin_unlock_irqrestore(&q->known_lock, flags);
}

/* As it was read last, also while it is being read or modified. */
void apm_get_known(struct apm_qp *q, struct apm_known *known)
{
	unsigned long flags;

	spin_lock_irqsave(&q->known_lock, flags);
	*known = q->known;
	spin_unlock_irqrestore(&q->known_lock, flags);
}

/* Remembers a reading, and looks again if it is to become Armed. With the mutex held. */
void apm_saw(struct apm_qp *q, const struct apm_snapshot *now)
{
	if (test_bit(APM_QP_ANNOUNCED, &q->flags) && is_open(now) &&
	    !apm_path_same_way(&now->primary, &q->last.primary))
		trace_apm_migrated(q, &q->last.primary, now);
	q->last = *now;
	/* In SQD it is still meant, and carried out when it is in RTS again. */
	if (!is_open(now) || now->migration == IB_MIG_MIGRATED)
		q->standing = false;
	make_known(q);
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
	bool to_rts = test_bit(APM_QP_TO_RTS, &q->flags);
	unsigned long in_rtr, end, here = jiffies;

	/* It was taken up in INIT, and went on before it had its entry. */
	if (now->state == IB_QPS_RTR && !READ_ONCE(q->rtr_since))
		WRITE_ONCE(q->rtr_since, here | 1);
	in_rtr = READ_ONCE(q->rtr_since);
	end = in_rtr + msecs_to_jiffies(to_rts ? RTR_MS + RTS_MS : RTR_MS);
	if (test_bit(APM_QP_ANNOUNCED, &q->flags) || is_open(now))
		return true;
	/* The modify may not be done with yet. */
	if (!in_rtr || now->state > IB_QPS_RTR)
		return false;
	if (time_before(here, end)) {
		look_in(q, to_rts ? RTS_MS / 20 : jiffies_to_msecs(end - here) + 1, false);
		return false;
	}
	return now->state == IB_QPS_RTR && !to_rts;
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
	if (!test_bit(APM_QP_ANNOUNCED, &q->flags) || refusal != q->refusal) {
		WRITE_ONCE(q->refusal, refusal);
		apm_saw(q, now);
		set_bit(APM_QP_ANNOUNCED, &q->flags);
		apm_tell_new(q);
	} else if (news_of(q, now, &news.cause)) {
		apm_saw(q, now);
		apm_tell(q, &news);
	} else {
		apm_saw(q, now);
	}
}

/*
 * Nobody can say how it is, but an event may have said where. Protection that cannot be seen is
 * told as none: a client that wants it back gives orders, and learns from these how it is.
 */
static void give_up(struct apm_qp *q)
{
	struct apm_snapshot now = q->last;
	struct apm_news news = {};

	if (!test_bit(APM_QP_ANNOUNCED, &q->flags))
		return;
	if (test_bit(APM_QP_MIG, &q->flags) && now.loaded)
		now.primary = now.alternate;
	now.migration = IB_MIG_MIGRATED;
	now.loaded = false;
	if (!news_of(q, &now, &news.cause))
		return;
	apm_saw(q, &now);
	apm_tell(q, &news);
}

/* What was heard of it stays noted until it can be read. With the mutex held. */
static void not_read(struct apm_qp *q)
{
	bool news = test_bit(APM_QP_MIG, &q->flags) || test_bit(APM_QP_MIG_ERR, &q->flags);

	if (q->failed_looks == READ_AGAIN)
		give_up(q);
	else
		look_in(q, READ_AGAIN_MS << q->failed_looks++, news);
}

static void retire(struct apm_qp *q)
{
	unsigned long flags;

	spin_lock_irqsave(&apm_lock, flags);
	apm_qp_retire(q);
	spin_unlock_irqrestore(&apm_lock, flags);
}

static bool waits_for_calm(struct apm_qp *q)
{
	unsigned long here = jiffies;

	if (test_bit(APM_QP_ANNOUNCED, &q->flags) || !test_bit(APM_QP_TO_RTS, &q->flags) ||
	    READ_ONCE(newest.cookie) == q->cookie ||
	    READ_ONCE(newest.uid) != __kuid_val(q->owner.charged) ||
	    time_after(here, READ_ONCE(newest.since) + msecs_to_jiffies(CALM_MS)) ||
	    time_after(here, READ_ONCE(q->rts_since) + msecs_to_jiffies(BURST_MS)))
		return false;
	look_in(q, CALM_MS, false);
	return true;
}

static void look(struct work_struct *work)
{
	struct apm_qp *q = container_of(to_delayed_work(work), struct apm_qp, look);
	unsigned int noio = memalloc_noio_save();
	struct apm_snapshot now;
	struct ib_qp *qp;
	int ret;

	look_begins(q);
	mutex_lock(&q->mutex);
	if (test_bit(APM_QP_DYING, &q->flags)) {
		if (test_and_clear_bit(APM_QP_ANNOUNCED, &q->flags))
			apm_tell_del(q);
		goto out;
	}
	if (waits_for_calm(q))
		goto out;
	qp = apm_qp_hold(q);
	if (IS_ERR(qp)) {
		/* Taken up while it was being destroyed; or its end was missed. */
		if (PTR_ERR(qp) == -ENOENT || PTR_ERR(qp) == -ESTALE)
			retire(q);
		goto out;
	}
	/* An order has left it in SQD. */
	if (test_bit(APM_QP_MOVING, &q->flags))
		apm_idle_resume(q, qp);
	ret = test_bit(APM_QP_TAKEN_UP, &q->flags) ? apm_qp_catch_up(q, qp) : 0;
	if (!ret)
		ret = apm_qp_reread(q, qp, &now);
	if (!ret && now.state < IB_QPS_RTR && test_bit(APM_QP_TO_RTS, &q->flags)) {
		/* Its RESET was missed. What connects it again is known from RTR on. */
		retire(q);
	} else if (!ret) {
		q->failed_looks = 0;
		judge(q, qp->device, &now);
	} else if (ret != -ESTALE) {
		not_read(q);
	}
	apm_qp_release(qp);
	look_later(q);
out:
	mutex_unlock(&q->mutex);
	apm_qp_put(q);
	memalloc_noio_restore(noio);
}

void apm_look_init(struct apm_qp *q)
{
	q->pause_ms = REARM_MS;
	spin_lock_init(&q->known_lock);
	spin_lock_init(&q->look_lock);
	q->look_until = jiffies;
	INIT_DELAYED_WORK(&q->look, look);
}

/* There is nothing to be seen before it is connected, or stays as it is. */
void apm_look_in_rtr(struct apm_qp *q)
{
	look_in(q, RTR_MS + 1, false);
}

/* It goes to RTS. With apm_lock held. */
void apm_look_connected(struct apm_qp *q)
{
	WRITE_ONCE(q->rts_since, jiffies);
	WRITE_ONCE(newest.since, q->rts_since);
	WRITE_ONCE(newest.uid, __kuid_val(q->owner.charged));
	WRITE_ONCE(newest.cookie, q->cookie);
}
