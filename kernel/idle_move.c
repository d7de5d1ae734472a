// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Queue pairs that wait for traffic in ReArm: hardware does not migrate them. IBA lets the primary
 * path be changed in SQD, so an order takes one from RTS to SQD, makes its alternate the primary
 * there, and takes it back to RTS.
 *
 * Nobody can keep its owner from modifying it meanwhile. So the order stops at the next step if one
 * of the owner's modifies has begun, and leaves the queue pair in the state that the owner has set.
 */
#include <linux/delay.h>

#include "apm.h"

/* What is outstanding over a path that is dead never drains; over a good one it takes no longer. */
#define DRAIN_LOOKS 3
#define DRAIN_PAUSE_US 500

/* How long a modify of the owner's is waited for. */
#define OWNER_LOOKS 10
#define OWNER_PAUSE_US 1000

/*
 * Between attempts to take one back to RTS, where the device waits until it is drained: the first
 * pause, and how often it doubles.
 */
#define RESUME_MS 5
#define RESUME_DOUBLINGS 8

/* An owner that changes the state all the time is followed with the next look. */
#define OWNER_CHANGES 16

/* With apm_lock held. */
bool apm_idle_is_undisturbed(const struct apm_qp *q)
{
	return q->entered == q->returned && q->entered == q->moved_at;
}

static bool is_undisturbed(struct apm_qp *q)
{
	unsigned long flags;
	bool yes;

	spin_lock_irqsave(&apm_lock, flags);
	yes = apm_idle_is_undisturbed(q) && !test_bit(APM_QP_DYING, &q->flags);
	spin_unlock_irqrestore(&apm_lock, flags);
	return yes;
}

/* It was read as being in RTS. */
static int begin(struct apm_qp *q)
{
	unsigned long flags;
	int ret = 0;

	spin_lock_irqsave(&apm_lock, flags);
	if (q->entered != q->returned) {
		ret = -EBUSY;
	} else {
		q->moved_at = q->entered;
		q->owner_state = IB_QPS_RTS;
		set_bit(APM_QP_MOVING, &q->flags);
	}
	spin_unlock_irqrestore(&apm_lock, flags);
	return ret;
}

static int wait_until_drained(struct apm_qp *q, struct ib_qp *qp)
{
	struct apm_glance now;
	int i, ret;

	for (i = 0; i < DRAIN_LOOKS; i++) {
		if (i)
			usleep_range(DRAIN_PAUSE_US, 2 * DRAIN_PAUSE_US);
		ret = apm_qp_glance(qp, &now);
		if (ret)
			return ret;
		if (now.state != IB_QPS_SQD || !is_undisturbed(q))
			return -EBUSY;
		if (!now.draining)
			return 0;
	}
	return -ETIMEDOUT;
}

/* The state in which its owner wants it, once none of its modifies is under way; how many began. */
static int wanted_state(struct apm_qp *q, enum ib_qp_state *wanted, unsigned int *entered)
{
	unsigned long flags;
	bool busy;
	int i;

	for (i = 0; i < OWNER_LOOKS; i++) {
		if (i)
			usleep_range(OWNER_PAUSE_US, 2 * OWNER_PAUSE_US);
		spin_lock_irqsave(&apm_lock, flags);
		busy = q->entered != q->returned;
		*entered = q->entered;
		*wanted = q->owner_state == IB_QPS_SQD ? IB_QPS_SQD : IB_QPS_RTS;
		spin_unlock_irqrestore(&apm_lock, flags);
		if (!busy)
			return 0;
	}
	return -EBUSY;
}

/* In other states than RTS and SQD it is its owner's alone. */
static int set_wanted_state(struct apm_qp *q, struct ib_qp *qp)
{
	enum ib_qp_state wanted;
	struct apm_glance now;
	unsigned int entered;
	int i, ret;

	for (i = 0; i < OWNER_CHANGES; i++) {
		ret = wanted_state(q, &wanted, &entered) ?: apm_qp_glance(qp, &now);
		if (ret)
			return ret;
		if ((now.state == IB_QPS_RTS || now.state == IB_QPS_SQD) && now.state != wanted)
			ret = apm_qp_set_state(q, qp, wanted);
		if (ret || READ_ONCE(q->entered) == entered)
			return ret;
	}
	return -EBUSY;
}

/* A port may have failed while it was in SQD, where a standing order is not carried out. */
static void look_at_port_again(struct apm_qp *q)
{
	if (!q->standing)
		return;
	set_bit(q->last.primary.port, q->dev->failed_ports);
	queue_work(apm_urgent_wq, &q->dev->standing);
}

/*
 * Takes one back to RTS that is in SQD by order, if it still is. Some devices refuse that until it
 * is drained: then it is tried again with a later look. With the mutex held.
 */
int apm_idle_resume(struct apm_qp *q, struct ib_qp *qp)
{
	/* A reset ends that, too. */
	int ret = test_bit(APM_QP_DYING, &q->flags) ? -ESTALE : set_wanted_state(q, qp);

	if (ret && ret != -ESTALE) {
		apm_look_soon(q, RESUME_MS << q->failed_resumes);
		if (q->failed_resumes < RESUME_DOUBLINGS)
			q->failed_resumes++;
		return ret;
	}
	q->failed_resumes = 0;
	clear_bit(APM_QP_MOVING, &q->flags);
	if (!ret)
		look_at_port_again(q);
	return ret;
}

/*
 * It was reset just before it went to SQD, and may be connected again: then that connection was
 * stopped, and its own entry has it go on.
 */
static void hand_over(struct apm_qp *q, struct ib_qp *qp)
{
	struct apm_qp *successor;
	unsigned long flags;

	spin_lock_irqsave(&apm_lock, flags);
	clear_bit(APM_QP_MOVING, &q->flags);
	successor = apm_qp_find(qp->device, qp->qp_num);
	if (successor && successor->object == qp) {
		set_bit(APM_QP_MOVING, &successor->flags);
		apm_look_soon(successor, 0);
	}
	spin_unlock_irqrestore(&apm_lock, flags);
}

/*
 * Gives one that is in RTS another primary path. On an error it has the one that it had. With the
 * mutex held.
 */
int apm_idle_move(struct apm_qp *q, struct ib_qp *qp, const struct apm_path *to)
{
	int ret, resumed;

	ret = begin(q);
	if (ret)
		return ret;
	ret = apm_qp_suspend(q, qp);
	if (!ret && test_bit(APM_QP_DYING, &q->flags)) {
		hand_over(q, qp);
		return -ESTALE;
	}
	if (ret) {
		clear_bit(APM_QP_MOVING, &q->flags);
		return ret;
	}
	ret = wait_until_drained(q, qp);
	if (!ret)
		ret = apm_qp_set_primary(q, qp, to);
	resumed = apm_idle_resume(q, qp);
	return ret ?: resumed;
}
