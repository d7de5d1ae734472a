// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Tells of connections that are asked for, while their REQ is under way: what a client finds out
 * about the peer meanwhile (see peer.c) counts when the queue pair goes to RTS.
 */
#include <linux/sched/mm.h>

#include "apm.h"

static void tell(struct apm_qp *q)
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
		tell(q);
	mutex_unlock(&q->mutex);
	apm_qp_put(q);
	memalloc_noio_restore(noio);
}

void apm_connecting_init(struct apm_qp *q)
{
	INIT_WORK(&q->connecting, connecting);
}

/* With apm_lock held, from a probe. The work holds a reference of the entry. */
void apm_connecting(struct apm_qp *q, const struct ib_device *ib)
{
	if (test_bit(APM_QP_OWN_APM, &q->flags) || !apm_owner_is_protected(&q->owner) ||
	    !(ib->attrs.device_cap_flags & IB_DEVICE_AUTO_PATH_MIG))
		return;
	/* Nothing has to be found out. */
	if (apm_peer_is_named(q->dev, q->peer_port, q->peer_lid))
		return;
	apm_qp_get(q);
	if (!queue_work(apm_urgent_wq, &q->connecting))
		apm_qp_put(q);
}
