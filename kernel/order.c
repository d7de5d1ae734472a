// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Orders, one after the other for each queue pair, and each answered by a report. */
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "trace.h"

/* Nobody has more than a few of one queue pair under way. */
#define WAITING 16

/* After a queue pair could not be read. */
#define READ_AGAIN_MS 100

static bool is_current(const struct apm_snapshot *now, const struct apm_path *primary)
{
	return now->state == IB_QPS_RTS && apm_path_same_way(&now->primary, primary);
}

/*
 * In Armed only the path may be changed, from the other states it goes to ReArm. One that was read
 * as ReArm may have become Armed before it is modified, which then fails.
 */
static int load_in(struct apm_qp *q, struct ib_qp *qp, enum ib_mig_state migration,
		   const struct apm_path *alternate)
{
	struct apm_snapshot again;
	int ret;

	ret = apm_qp_load(q, qp, alternate, migration != IB_MIG_ARMED);
	if (ret && migration != IB_MIG_ARMED && !apm_qp_read(q, qp, &again) &&
	    again.migration == IB_MIG_ARMED)
		ret = apm_qp_load(q, qp, alternate, false);
	return ret;
}

static void answer(struct apm_news *news, enum apm_cause cause, int error)
{
	news->cause = error ? APM_CAUSE_FAILED : cause;
	news->error = error;
}

/* What it is after a modify. What cannot be read is as it was before, until the next look. */
static int read_again(struct apm_qp *q, struct ib_qp *qp, struct apm_snapshot *now)
{
	struct apm_snapshot fresh;
	int ret = apm_qp_read(q, qp, &fresh);

	if (ret)
		apm_look_soon(q, READ_AGAIN_MS);
	else
		*now = fresh;
	return ret;
}

/*
 * An order that waited longer than a second, behind firmware that hangs for instance, was decided
 * for a fabric that may have changed: the daemon probes each path about once a second.
 */
static bool is_late(const struct apm_order *order)
{
	return time_after(jiffies, order->queued + HZ);
}

static void load(struct apm_qp *q, struct ib_qp *qp, const struct apm_order *order,
		 struct apm_snapshot *now, struct apm_news *news)
{
	int ret, again;

	if (is_late(order) || !is_current(now, &order->primary))
		return answer(news, APM_CAUSE_STALE, 0);
	if (apm_path_same_way(&order->alternate, &order->primary))
		return answer(news, APM_CAUSE_DONE, -EINVAL);
	ret = apm_event_take(q, qp);
	if (ret)
		return answer(news, APM_CAUSE_DONE, ret);
	q->standing = false;
	ret = load_in(q, qp, now->migration, &order->alternate);
	again = read_again(q, qp, now);
	trace_apm_loaded(q, &order->alternate, now, ret);
	if (again)
		return answer(news, APM_CAUSE_DONE, again);
	/* It may have migrated in between: what was loaded was not meant for it. */
	if (!ret && !is_current(now, &order->primary))
		return answer(news, APM_CAUSE_STALE, 0);
	if (!ret)
		q->standing = order->standing;
	answer(news, APM_CAUSE_DONE, ret);
}

static void migrate(struct apm_qp *q, struct ib_qp *qp, const struct apm_order *order,
		    struct apm_snapshot *now, struct apm_news *news)
{
	struct apm_path before = now->primary;
	int ret, again;

	if (is_late(order) || !is_current(now, &order->primary) || now->migration != IB_MIG_ARMED)
		return answer(news, APM_CAUSE_STALE, 0);
	ret = apm_qp_migrate(q, qp);
	again = read_again(q, qp, now);
	/* The look that follows tells where it is. */
	if (again && !ret)
		set_bit(APM_QP_MIG, &q->flags);
	/* An error does not matter if the hardware was faster. */
	if (!again && !apm_path_same_way(&now->primary, &before))
		ret = 0;
	answer(news, APM_CAUSE_DONE, ret ?: again);
}

/*
 * One that has become Armed migrates. An alternate that is the primary itself is what an earlier
 * move has left.
 */
static void move_idle(struct apm_qp *q, struct ib_qp *qp, const struct apm_order *order,
		      struct apm_snapshot *now, struct apm_news *news)
{
	const struct apm_path to = now->alternate;
	int ret, again;

	if (now->migration != IB_MIG_REARM)
		return migrate(q, qp, order, now, news);
	if (is_late(order) || !is_current(now, &order->primary) || !now->loaded ||
	    apm_path_same_way(&to, &now->primary))
		return answer(news, APM_CAUSE_STALE, 0);
	ret = apm_idle_move(q, qp, &to);
	again = read_again(q, qp, now);
	if (!ret || (!again && apm_path_same_way(&now->primary, &to)))
		q->standing = false;
	answer(news, APM_CAUSE_DONE, ret ?: again);
}

static void stand(struct apm_qp *q, const struct apm_order *order, const struct apm_snapshot *now,
		  struct apm_news *news)
{
	if (!is_current(now, &order->primary) || !now->loaded)
		return answer(news, APM_CAUSE_STALE, 0);
	q->standing = order->standing;
	answer(news, APM_CAUSE_DONE, 0);
}

/* Of a queue pair as it was read now. */
static void obey(struct apm_qp *q, struct ib_qp *qp, const struct apm_order *order,
		 struct apm_snapshot *now, struct apm_news *news)
{
	if (order->command == APM_CMD_QUERY)
		answer(news, APM_CAUSE_DONE, 0);
	else if (!apm_qp_is_under_care(q))
		answer(news, APM_CAUSE_DONE, -EPERM);
	else if (order->command == APM_CMD_LOAD)
		load(q, qp, order, now, news);
	else if (order->command == APM_CMD_MIGRATE)
		migrate(q, qp, order, now, news);
	else if (order->command == APM_CMD_MOVE_IDLE)
		move_idle(q, qp, order, now, news);
	else
		stand(q, order, now, news);
}

static void carry_out(struct apm_qp *q, const struct apm_order *order)
{
	struct apm_news news = { .has_token = true, .token = order->token };
	struct apm_snapshot now;
	struct ib_qp *qp;
	int ret;

	qp = apm_qp_hold(q);
	ret = PTR_ERR_OR_ZERO(qp);
	if (!ret) {
		ret = apm_qp_read(q, qp, &now);
		if (!ret)
			obey(q, qp, order, &now, &news);
		apm_qp_release(qp);
	}
	if (ret) {
		answer(&news, APM_CAUSE_DONE, ret);
	} else {
		q->pause_ms = 2;
		apm_saw(q, &now);
	}
	trace_apm_order(q, order, &news);
	apm_tell(q, &news);
}

static struct apm_order *next_of(struct apm_qp *q)
{
	struct apm_order *order;
	unsigned long flags;

	spin_lock_irqsave(&apm_lock, flags);
	order = list_first_entry_or_null(&q->orders, struct apm_order, all);
	if (order)
		list_del(&order->all);
	spin_unlock_irqrestore(&apm_lock, flags);
	return order;
}

static void carry_out_orders(struct work_struct *work)
{
	struct apm_qp *q = container_of(work, struct apm_qp, carry_out);
	/* What is paged out to may hang on this very queue pair. */
	unsigned int noio = memalloc_noio_save();
	struct apm_order *order;

	while ((order = next_of(q))) {
		mutex_lock(&q->mutex);
		/* One that is gone is told of by del. */
		if (!test_bit(APM_QP_DYING, &q->flags))
			carry_out(q, order);
		mutex_unlock(&q->mutex);
		kfree(order);
	}
	apm_qp_put(q);
	memalloc_noio_restore(noio);
}

void apm_order_init(struct apm_qp *q)
{
	INIT_LIST_HEAD(&q->orders);
	INIT_WORK(&q->carry_out, carry_out_orders);
}

int apm_order_queue(struct apm_qp *q, const struct apm_order *order)
{
	struct apm_order *copy;
	struct list_head *at;
	unsigned long flags;
	int waiting = 0;

	copy = kmemdup(order, sizeof(*order), GFP_KERNEL);
	if (!copy)
		return -ENOMEM;
	copy->queued = jiffies;
	spin_lock_irqsave(&apm_lock, flags);
	list_for_each(at, &q->orders)
		waiting++;
	if (waiting < WAITING)
		list_add_tail(&copy->all, &q->orders);
	spin_unlock_irqrestore(&apm_lock, flags);
	if (waiting >= WAITING) {
		kfree(copy);
		return -ENOBUFS;
	}
	apm_qp_get(q);
	if (!queue_work(q->dev->queues.orders, &q->carry_out))
		apm_qp_put(q);
	return 0;
}
