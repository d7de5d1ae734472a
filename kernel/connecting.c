// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Tells of connections that are asked for, while their REQ is under way: what a client finds out
 * about the peer meanwhile (see peer.c) counts when the queue pair goes to RTS.
 */
#include <linux/cred.h>
#include <linux/hash.h>
#include <linux/ratelimit.h>
#include <linux/sched/mm.h>

#include "apm.h"

/* So many of a user's are told in a second. */
#define ASKED_A_SECOND 100

static void tell_request(struct apm_qp *q)
{
	struct apm_path path = {};
	unsigned long flags;

	spin_lock_irqsave(&apm_lock, flags);
	path.port = q->peer_port;
	path.dlid = q->peer_lid;
	path.pkey = q->peer_pkey;
	spin_unlock_irqrestore(&apm_lock, flags);
	apm_tell_connecting(q, &path);
}

static void connecting(struct work_struct *work)
{
	struct apm_qp *q = container_of(work, struct apm_qp, connecting);
	unsigned int noio = memalloc_noio_save();

	mutex_lock(&q->mutex);
	if (!test_bit(APM_QP_DYING, &q->flags))
		tell_request(q);
	mutex_unlock(&q->mutex);
	apm_qp_put(q);
	memalloc_noio_restore(noio);
}

void apm_connecting_init(struct apm_qp *q)
{
	INIT_WORK(&q->connecting, connecting);
}

/*
 * A program may ask in vain as often as it likes. What is not told is found out when the connection
 * is there, too late for its ACK timeout. By users, as queues are. With apm_lock held.
 */
static bool is_too_often(const struct apm_qp *q)
{
	static struct ratelimit_state limits[APM_USER_WQS];
	struct ratelimit_state *limit =
		&limits[hash_32(__kuid_val(q->owner.charged), APM_USER_WQ_BITS)];

	if (!limit->interval) {
		ratelimit_state_init(limit, HZ, ASKED_A_SECOND);
		/* Nothing is said of what was suppressed. */
		ratelimit_set_flags(limit, RATELIMIT_MSG_ON_RELEASE);
	}
	return q->owner.user && !__ratelimit(limit);
}

/* With apm_lock held, from a probe. The work holds a reference of the entry. */
void apm_connecting(struct apm_qp *q, const struct ib_device *ib)
{
	if (test_bit(APM_QP_OWN_APM, &q->flags) || !apm_owner_is_protected(&q->owner) ||
	    !(ib->attrs.device_cap_flags & IB_DEVICE_AUTO_PATH_MIG))
		return;
	/* Nothing has to be found out. */
	if (apm_peer_is_named(q->dev, q->peer_port, q->peer_lid) || is_too_often(q))
		return;
	apm_qp_get(q);
	if (!queue_work(apm_queue_of_owner(q), &q->connecting))
		apm_qp_put(q);
}
