// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Standing orders: armed queue pairs leave a port that has failed, with nobody to be asked. */
#include <linux/delay.h>
#include <linux/sched/mm.h>

#include "trace.h"

/* How often one that is busy is passed over, a millisecond each time. */
#define ROUNDS 100

/* A path that leaves from the same port, from another of its LIDs, is as dead. */
static enum apm_stand may_leave(const struct apm_qp *q, u8 port, const struct apm_glance *now)
{
	if (now->state != IB_QPS_RTS || now->migration != IB_MIG_ARMED)
		return APM_STAND_NOT_ARMED;
	if (now->port != port || now->dlid != q->last.primary.dlid)
		return APM_STAND_MOVED;
	return now->alternate_port == port ? APM_STAND_SAME_PORT : APM_STAND_MIGRATED;
}

/* With the mutex held. The look that follows reports the new state of the queue pair. */
static void carry_out(struct apm_qp *q, struct ib_qp *qp, u8 port)
{
	enum apm_stand outcome = APM_STAND_UNREADABLE;
	struct apm_glance now;
	int ret;

	ret = apm_qp_glance(qp, &now);
	if (!ret)
		outcome = may_leave(q, port, &now);
	if (outcome == APM_STAND_MIGRATED) {
		ret = apm_qp_migrate(q, qp);
		if (ret) {
			outcome = APM_STAND_FAILED;
		} else {
			q->standing = false;
			set_bit(APM_QP_MIG, &q->flags);
		}
		apm_look_soon(q, 0);
	}
	trace_apm_standing(q, port, &now, outcome, ret);
}

/* With the mutex held. */
static void leave(struct apm_qp *q, u8 port)
{
	struct ib_qp *qp;

	if (!q->standing || !apm_qp_is_under_care(q))
		return;
	qp = apm_qp_hold(q);
	if (IS_ERR(qp))
		return;
	carry_out(q, qp, port);
	apm_qp_release(qp);
}

/*
 * One that is just being read or modified holds up no other, unless that takes long for all that
 * are left.
 */
static void leave_all(struct list_head *leaving, u8 port)
{
	struct apm_qp *q, *next;
	int rounds = 0;

	while (!list_empty(leaving)) {
		if (rounds++)
			usleep_range(1000, 1500);
		list_for_each_entry_safe(q, next, leaving, leaving) {
			if (rounds > ROUNDS)
				mutex_lock(&q->mutex);
			else if (!mutex_trylock(&q->mutex))
				continue;
			leave(q, port);
			mutex_unlock(&q->mutex);
			list_del_init(&q->leaving);
			apm_qp_put(q);
			cond_resched();
		}
	}
}

static bool is_down(struct apm_device *dev, u8 port)
{
	struct ib_device *ib = apm_device_hold(dev);
	struct ib_port_attr attr;
	bool down = false;

	if (!ib)
		return false;
	if (rdma_is_port_valid(ib, port) && !ib_query_port(ib, port, &attr))
		down = attr.state != IB_PORT_ACTIVE;
	ib_device_put(ib);
	return down;
}

/* One device has one of these at a time; an entry is on one list. */
void apm_standing_work(struct work_struct *work)
{
	struct apm_device *dev = container_of(work, struct apm_device, standing);
	unsigned int noio = memalloc_noio_save();
	LIST_HEAD(leaving);
	unsigned int port;

	for_each_set_bit(port, dev->failed_ports, 256) {
		clear_bit(port, dev->failed_ports);
		/* What counts is how the port is now. */
		if (!is_down(dev, port))
			continue;
		apm_qp_collect(dev, port, &leaving);
		leave_all(&leaving, port);
	}
	memalloc_noio_restore(noio);
}
