// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The entries: by device and number for probes and events, by cookie for orders.
 *
 * The tables hold a reference of an entry while it is in by_number. An entry that is dying leaves
 * by_cookie at once; it stays in by_number if its queue pair's event handler is ours, which has to
 * find whom to pass events on to until the queue pair is gone.
 */
#include <linux/hashtable.h>
#include <linux/jhash.h>
#include <linux/module.h>
#include <linux/nsproxy.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/wait_bit.h>
#include <net/net_namespace.h>

#include "apm.h"

#define BITS 12

DEFINE_SPINLOCK(apm_lock);
static DEFINE_HASHTABLE(by_number, BITS);
static DEFINE_HASHTABLE(by_cookie, BITS);
static u64 last_cookie;
static atomic_t entries = ATOMIC_INIT(0);

static u32 key_of(const struct ib_device *ib, u32 qpn)
{
	return jhash_2words(hash_ptr(ib, 32), qpn, 0);
}

/* With apm_lock held or under RCU. The device is compared, not looked into. */
static struct apm_qp *find_entry(struct ib_device *ib, u32 qpn, bool handler)
{
	struct apm_qp *q;

	hash_for_each_possible_rcu(by_number, q, by_number, key_of(ib, qpn),
				   lockdep_is_held(&apm_lock)) {
		if (q->dev->ib != ib || q->qpn != qpn)
			continue;
		if (handler ? test_bit(APM_QP_HANDLER, &q->flags) :
			      !test_bit(APM_QP_DYING, &q->flags))
			return q;
	}
	return NULL;
}

/* The entry of a queue pair that is not dying. With apm_lock held. */
struct apm_qp *apm_qp_find(struct ib_device *ib, u32 qpn)
{
	return find_entry(ib, qpn, false);
}

/* The entry that knows the queue pair's own event handler. With apm_lock held or under RCU. */
struct apm_qp *apm_qp_find_handler(struct ib_device *ib, u32 qpn)
{
	return find_entry(ib, qpn, true);
}

/* With a reference, or NULL. */
struct apm_qp *apm_qp_get_by_cookie(u64 cookie)
{
	struct apm_qp *q, *found = NULL;
	unsigned long flags;

	spin_lock_irqsave(&apm_lock, flags);
	hash_for_each_possible(by_cookie, q, by_cookie, cookie) {
		if (q->cookie == cookie) {
			apm_qp_get(q);
			found = q;
			break;
		}
	}
	spin_unlock_irqrestore(&apm_lock, flags);
	return found;
}

/*
 * The next entry in the order of a bucket and of cookies in it, with a reference; NULL after the
 * last. Entries that come and go meanwhile do not disturb those that stay.
 */
struct apm_qp *apm_qp_walk(unsigned int *bucket, u64 *after)
{
	struct apm_qp *q, *best = NULL;
	unsigned long flags;

	for (; *bucket < HASH_SIZE(by_cookie); (*bucket)++, *after = 0) {
		spin_lock_irqsave(&apm_lock, flags);
		hlist_for_each_entry(q, &by_cookie[*bucket], by_cookie)
			if (q->cookie > *after && (!best || q->cookie < best->cookie))
				best = q;
		if (best)
			apm_qp_get(best);
		spin_unlock_irqrestore(&apm_lock, flags);
		if (best) {
			*after = best->cookie;
			return best;
		}
	}
	return NULL;
}

/* A number that comes again before its last owner's end was seen: that end was missed. */
static void forget_missed(struct ib_qp *qp)
{
	struct apm_qp *old = find_entry(qp->device, qp->qp_num, true);

	if (!old || READ_ONCE(qp->event_handler) == apm_event_handler)
		return;
	apm_qp_forget(old);
}

/*
 * A new entry for a queue pair that the caller keeps alive. With apm_lock held; may be called where
 * nothing sleeps.
 */
struct apm_qp *apm_qp_add(struct apm_device *dev, struct ib_qp *qp)
{
	struct apm_qp *q;

	/* Nobody would forget it any more. */
	if (READ_ONCE(dev->leaving))
		return NULL;
	q = kzalloc(sizeof(*q), GFP_ATOMIC);
	if (!q)
		return NULL;
	forget_missed(qp);
	if (!last_cookie)
		last_cookie = (u64)get_random_u32() << 32;
	atomic_inc(&entries);
	q->cookie = ++last_cookie;
	q->dev = dev;
	refcount_inc(&dev->refs);
	q->qpn = qp->qp_num;
	q->object = qp;
	refcount_set(&q->refs, 1);
	mutex_init(&q->mutex);
	apm_owner_of(qp, &q->owner);
	if (qp->res.task && qp->res.task->tgid == current->tgid && current->nsproxy)
		q->net_cookie = current->nsproxy->net_ns->net_cookie;
	INIT_LIST_HEAD(&q->leaving);
	apm_connecting_init(q);
	apm_look_init(q);
	apm_order_init(q);
	hash_add_rcu(by_number, &q->by_number, key_of(qp->device, q->qpn));
	hash_add(by_cookie, &q->by_cookie, q->cookie);
	return q;
}

/*
 * Its queue pair is being destroyed, or begins anew: nothing is done to it from now on, and what
 * waits finds out. With apm_lock held.
 */
void apm_qp_retire(struct apm_qp *q)
{
	if (test_and_set_bit(APM_QP_DYING, &q->flags))
		return;
	hash_del(&q->by_cookie);
	apm_look_soon(q, 0);
	if (!test_bit(APM_QP_HANDLER, &q->flags)) {
		hash_del_rcu(&q->by_number);
		apm_qp_put(q);
	}
}

/* The queue pair of an entry with APM_QP_HANDLER is gone. With apm_lock held. */
void apm_qp_forget(struct apm_qp *q)
{
	if (!test_and_clear_bit(APM_QP_HANDLER, &q->flags))
		return;
	module_put(THIS_MODULE);
	if (test_bit(APM_QP_DYING, &q->flags)) {
		hash_del_rcu(&q->by_number);
		apm_qp_put(q);
	} else {
		apm_qp_retire(q);
	}
}

/* The device goes, or the module. */
void apm_qp_forget_device(struct apm_device *dev)
{
	unsigned int bucket = 0;
	unsigned long flags;
	struct apm_qp *q;
	u64 after = 0;

	while ((q = apm_qp_walk(&bucket, &after))) {
		if (q->dev == dev) {
			spin_lock_irqsave(&apm_lock, flags);
			apm_qp_retire(q);
			spin_unlock_irqrestore(&apm_lock, flags);
		}
		apm_qp_put(q);
	}
}

/*
 * Takes entries that may have a standing order for a port to a list of the caller's, with
 * references. Who has one is known under the mutex only: orders give and withdraw it, and a load
 * that is under way has withdrawn it until it is done. The kernel's own come first: a program may
 * have thousands.
 */
void apm_qp_collect(struct apm_device *dev, u8 port, struct list_head *leaving)
{
	unsigned int bucket = 0;
	u64 after = 0;
	struct apm_qp *q;

	while ((q = apm_qp_walk(&bucket, &after))) {
		/* A guess: whoever carries it out looks again under the mutex. */
		if (q->dev != dev || !test_bit(APM_QP_HANDLER, &q->flags) ||
		    READ_ONCE(q->last.primary.port) != port || !list_empty(&q->leaving))
			apm_qp_put(q);
		else if (q->owner.user)
			list_add_tail(&q->leaving, leaving);
		else
			list_add(&q->leaving, leaving);
	}
}

void apm_qp_get(struct apm_qp *q)
{
	refcount_inc(&q->refs);
}

/* For who is under RCU only: not of one that nobody holds any more. */
bool apm_qp_try_get(struct apm_qp *q)
{
	return refcount_inc_not_zero(&q->refs);
}

void apm_qp_put(struct apm_qp *q)
{
	if (!refcount_dec_and_test(&q->refs))
		return;
	apm_device_put(q->dev);
	kfree_rcu(q, rcu);
	if (atomic_dec_and_test(&entries))
		wake_up_var(&entries);
}

/* Looks that wait for their time hold their entries, so none is left after this. */
void apm_qp_wait_for_last(void)
{
	wait_var_event(&entries, !atomic_read(&entries));
}
