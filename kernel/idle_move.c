// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Queue pairs that wait for traffic in ReArm: hardware does not migrate them. IBA lets the primary
 * path be changed in SQD, so an order takes one from RTS to SQD, makes its alternate the primary
 * there, and takes it back to RTS.
 */
#include <linux/delay.h>

#include "apm.h"

/* What is outstanding over a path that is dead never drains. */
#define DRAIN_LOOKS 10
#define DRAIN_PAUSE_US 1000

/*
 * Between attempts to take one back to RTS, where the device waits until it is drained: the first
 * pause, and how often it doubles.
 */
#define RESUME_MS 5
#define RESUME_DOUBLINGS 8

/* An owner that changes the state all the time is not followed for ever. */
#define OWNER_CHANGES 16

static int wait_until_drained(struct apm_qp *q, struct ib_qp *qp)
{
	struct apm_glance now;
	int i, ret;

	for (i = 0; i < DRAIN_LOOKS; i++) {
		ret = apm_qp_glance(qp, &now);
		if (ret)
			return ret;
		/* Its owner has set another state meanwhile, and that counts. */
		if (now.state != IB_QPS_SQD || test_bit(APM_QP_OWN_SQD, &q->flags) ||
		    test_bit(APM_QP_DYING, &q->flags))
			return -ESTALE;
		if (!now.draining)
			return 0;
		usleep_range(DRAIN_PAUSE_US, DRAIN_PAUSE_US + DRAIN_PAUSE_US / 4);
	}
	return -ETIMEDOUT;
}

static enum ib_qp_state wanted_state(const struct apm_qp *q)
{
	return READ_ONCE(q->owner_state) == IB_QPS_SQD ? IB_QPS_SQD : IB_QPS_RTS;
}

/* In SQD only if its owner has asked for that meanwhile, and for nothing else since. */
static int set_wanted_state(struct apm_qp *q, struct ib_qp *qp)
{
	enum ib_qp_state wanted;
	int i = 0, ret;

	do {
		wanted = wanted_state(q);
		ret = apm_qp_set_state(q, qp, wanted);
	} while (!ret && wanted != wanted_state(q) && ++i < OWNER_CHANGES);
	return ret;
}

/*
 * Takes one back to RTS that is in SQD by order, if it still is. Some devices refuse that until it
 * is drained: then it is tried again with the next look. With the mutex held.
 */
int apm_idle_resume(struct apm_qp *q, struct ib_qp *qp)
{
	struct apm_glance now;
	int ret;

	/* A reset ends that, too. */
	ret = test_bit(APM_QP_DYING, &q->flags) ? -ESTALE : apm_qp_glance(qp, &now);
	if (!ret && now.state == IB_QPS_SQD)
		ret = set_wanted_state(q, qp);
	if (ret && ret != -ESTALE) {
		apm_look_soon(q, RESUME_MS << q->failed_resumes);
		if (q->failed_resumes < RESUME_DOUBLINGS)
			q->failed_resumes++;
		return ret;
	}
	q->failed_resumes = 0;
	clear_bit(APM_QP_SUSPENDED, &q->flags);
	clear_bit(APM_QP_MOVING, &q->flags);
	return ret;
}

/*
 * Gives one that is in RTS another primary path. On an error it has the one that it had. With the
 * mutex held.
 */
int apm_idle_move(struct apm_qp *q, struct ib_qp *qp, const struct apm_path *to)
{
	int ret, resumed;

	set_bit(APM_QP_MOVING, &q->flags);
	ret = apm_qp_suspend(q, qp);
	if (ret) {
		clear_bit(APM_QP_MOVING, &q->flags);
		return ret;
	}
	/*
	 * It was reset just before, and may be connected again: then that connection was stopped.
	 */
	if (test_bit(APM_QP_DYING, &q->flags)) {
		set_wanted_state(q, qp);
		return -ESTALE;
	}
	ret = wait_until_drained(q, qp);
	if (!ret)
		ret = apm_qp_set_primary(q, qp, to);
	resumed = apm_idle_resume(q, qp);
	return ret ?: resumed;
}
