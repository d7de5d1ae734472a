// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A queue pair for the length of one order: found by its number, held by its reference of restrack,
 * which its destruction waits for. No state is set but SQD, and RTS after that, so that none is
 * revived.
 */
#include <rdma/ib_cache.h>
#include <rdma/uverbs_ioctl.h>
#include <rdma/uverbs_types.h>
#include <rdma/restrack.h>

#include "apm.h"

/* A destruction that had begun when a queue pair was taken up is over by then. */
#define TAKEN_UP_MS 1000

/* Of a P_Key. */
#define FULL_MEMBER 0x8000

static struct ib_qp *hold(struct apm_device *dev, u32 qpn)
{
	struct rdma_restrack_entry *res;
	struct ib_device *ib;
	struct ib_qp *qp;

	ib = apm_device_hold(dev);
	if (!ib)
		return ERR_PTR(-ENODEV);
	res = rdma_restrack_get_byid(ib, RDMA_RESTRACK_QP, qpn);
	if (IS_ERR(res)) {
		ib_device_put(ib);
		return ERR_CAST(res);
	}
	qp = container_of(res, struct ib_qp, res);
	if (qp->qp_type == IB_QPT_RC && qp->real_qp == qp)
		return qp;
	apm_qp_release(qp);
	return ERR_PTR(-EOPNOTSUPP);
}

/*
 * ib_core counts the references to the GID of an alternate path with a GRH in
 * qp->alt_path_sgid_attr, which no lock protects: two modifies at once, or a modify and a
 * destruction, may put the same reference twice. The module loads no path with a GRH, so what is
 * there is its owner's, also after a RESET, which leaves it as it is.
 */
static bool owner_holds_gid(const struct ib_qp *qp)
{
	return READ_ONCE(qp->alt_path_sgid_attr);
}

/*
 * Its end may have been missed, and its number be another's since. That one has another object,
 * owner or event handler: the last is ours of every queue pair that was ever loaded.
 */
static bool is_same(const struct apm_qp *q, struct ib_qp *qp)
{
	return qp == q->object && apm_owner_has(&q->owner, qp) &&
	       (!test_bit(APM_QP_HANDLER, &q->flags) ||
		READ_ONCE(qp->event_handler) == apm_event_handler);
}

/* The queue pair and its device, or an error: it is gone, or it is not the one that was known. */
struct ib_qp *apm_qp_hold(struct apm_qp *q)
{
	struct ib_qp *qp = hold(q->dev, q->qpn);

	if (IS_ERR(qp))
		return qp;
	/* Marked before its destruction begins: what is not marked now is the one we know. */
	if (test_bit(APM_QP_DYING, &q->flags) || !is_same(q, qp)) {
		apm_qp_release(qp);
		return ERR_PTR(-ESTALE);
	}
	/* It was loaded before there was this entry. */
	if (owner_holds_gid(qp))
		set_bit(APM_QP_OWN_APM, &q->flags);
	return qp;
}

void apm_qp_release(struct ib_qp *qp)
{
	struct ib_device *ib = qp->device;

	rdma_restrack_put(&qp->res);
	ib_device_put(ib);
}

/* No device is asked: who orders it does not wait for a firmware. */
int apm_qp_adopt(struct apm_device *dev, u32 qpn)
{
	struct ib_qp *qp = hold(dev, qpn);
	unsigned long flags;
	struct apm_qp *q;
	u64 net_cookie;
	int ret = 0;

	if (IS_ERR(qp))
		return PTR_ERR(qp);
	net_cookie = apm_owner_net(qp);
	spin_lock_irqsave(&apm_lock, flags);
	if (!apm_qp_find(qp->device, qpn)) {
		q = apm_qp_add(dev, qp);
		if (q) {
			set_bit(APM_QP_TAKEN_UP, &q->flags);
			q->primary_port = qp->port;
			q->net_cookie = net_cookie;
			apm_look_in_turn(q);
		}
		ret = q ? 0 : -ENOMEM;
	}
	spin_unlock_irqrestore(&apm_lock, flags);
	apm_qp_release(qp);
	return ret;
}

/* Notes what probes would have. -ESTALE: it leads nowhere, and needs no entry. */
int apm_qp_catch_up(struct apm_qp *q, struct ib_qp *qp)
{
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;
	unsigned long flags;
	int ret;

	memset(&attr, 0, sizeof(attr));
	ret = ib_query_qp(qp, &attr, IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MIG_STATE, &init);
	if (ret)
		return ret;
	spin_lock_irqsave(&apm_lock, flags);
	clear_bit(APM_QP_TAKEN_UP, &q->flags);
	/*
	 * These lead nowhere, and may be on their way out; what connects them again begins with
	 * INIT.
	 */
	if (attr.qp_state == IB_QPS_RESET || attr.qp_state == IB_QPS_ERR) {
		apm_qp_retire(q);
		ret = -ESTALE;
	}
	/* It was loaded by somebody else. */
	if (attr.path_mig_state != IB_MIG_MIGRATED)
		set_bit(APM_QP_OWN_APM, &q->flags);
	q->owner_state = attr.qp_state;
	if (attr.qp_state >= IB_QPS_RTR && !q->rtr_since) {
		q->primary_lid = rdma_ah_get_dlid(&attr.ah_attr);
		q->rtr_since = jiffies | 1;
	}
	spin_unlock_irqrestore(&apm_lock, flags);
	/* Its end may have been announced before there was an entry. */
	if (!ret)
		apm_look_after(q, TAKEN_UP_MS);
	return ret;
}

static int query(struct ib_qp *qp, struct ib_qp_attr *attr)
{
	struct ib_qp_init_attr init;

	memset(attr, 0, sizeof(*attr));
	return ib_query_qp(qp, attr,
			   IB_QP_STATE | IB_QP_AV | IB_QP_PORT | IB_QP_PKEY_INDEX | IB_QP_TIMEOUT |
			   IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_ALT_PATH | IB_QP_PATH_MIG_STATE |
			   IB_QP_RETRY_CNT,
			   &init);
}

/* What the attributes say; ports are asked for their LIDs. */
static int translate(struct apm_qp *q, struct ib_qp *qp, const struct ib_qp_attr *attr,
		     struct apm_snapshot *now)
{
	int ret;

	memset(now, 0, sizeof(*now));
	now->state = attr->qp_state;
	now->migration = attr->path_mig_state;
	now->peer_qpn = attr->dest_qp_num & 0xffffff;
	now->retries = attr->retry_cnt;
	if (attr->qp_state < IB_QPS_RTR)
		return 0;
	now->primary.port = attr->port_num;
	now->primary.mtu = attr->path_mtu;
	now->primary.ack_timeout = attr->timeout;
	ret = apm_path_read(qp->device, &attr->ah_attr, attr->pkey_index, &now->primary);
	/* In Error a device may not know the path any more. */
	if (ret)
		return attr->qp_state == IB_QPS_ERR ? 0 : ret;
	if (!now->primary.global && now->primary.port == q->peer_port &&
	    now->primary.dlid == q->peer_lid)
		now->primary.dgid = q->peer_gid;
	now->loaded = attr->path_mig_state != IB_MIG_MIGRATED && attr->alt_port_num;
	if (!now->loaded)
		return 0;
	now->alternate.port = attr->alt_port_num;
	now->alternate.mtu = attr->path_mtu;
	now->alternate.ack_timeout = attr->alt_timeout;
	return apm_path_read(qp->device, &attr->alt_ah_attr, attr->alt_pkey_index, &now->alternate);
}

int apm_qp_read(struct apm_qp *q, struct ib_qp *qp, struct apm_snapshot *now)
{
	struct ib_qp_attr attr;

	return query(qp, &attr) ?: translate(q, qp, &attr, now);
}

static bool leads_along(const struct rdma_ah_attr *ah, u8 port, const struct apm_path *path)
{
	return path->port == port && path->dlid == rdma_ah_get_dlid(ah) &&
	       path->path_bits == rdma_ah_get_path_bits(ah);
}

static bool is_as_before(const struct apm_snapshot *last, const struct ib_qp_attr *attr)
{
	return last->state == attr->qp_state && last->migration == attr->path_mig_state &&
	       last->primary.ack_timeout == attr->timeout &&
	       leads_along(&attr->ah_attr, attr->port_num, &last->primary) &&
	       (last->migration == IB_MIG_MIGRATED ||
		(last->loaded &&
		 leads_along(&attr->alt_ah_attr, attr->alt_port_num, &last->alternate)));
}

/*
 * Reads one that was read before. Where it is as it was, no port is asked for its LID, since that
 * may be a firmware's command: if it has changed, the next order finds it out.
 */
int apm_qp_reread(struct apm_qp *q, struct ib_qp *qp, struct apm_snapshot *now)
{
	struct ib_qp_attr attr;
	int ret = query(qp, &attr);

	if (ret)
		return ret;
	if (!is_as_before(&q->last, &attr))
		return translate(q, qp, &attr, now);
	*now = q->last;
	return 0;
}

/* By one call: every moment counts. */
int apm_qp_glance(struct ib_qp *qp, struct apm_glance *now)
{
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;
	int ret;

	memset(&attr, 0, sizeof(attr));
	ret = ib_query_qp(qp, &attr, IB_QP_STATE | IB_QP_AV | IB_QP_PORT | IB_QP_PATH_MIG_STATE |
			  IB_QP_ALT_PATH, &init);
	now->state = attr.qp_state;
	now->migration = attr.path_mig_state;
	now->port = attr.port_num;
	now->alternate_port = attr.alt_port_num;
	now->dlid = rdma_ah_get_dlid(&attr.ah_attr);
	now->draining = attr.sq_draining;
	return ret;
}

/*
 * Whether orders may be carried out. Since the last look its owner may have begun to do APM itself,
 * or the settings may have changed. With the mutex held.
 */
bool apm_qp_is_under_care(struct apm_qp *q)
{
	return test_bit(APM_QP_ANNOUNCED, &q->flags) && q->refusal == APM_REFUSAL_NONE &&
	       !test_bit(APM_QP_OWN_APM, &q->flags) && apm_owner_is_protected(&q->owner);
}

/* A modify may release the references to the GIDs of two paths: the primary and the alternate. */
#define GIDS 2

static const struct ib_gid_attr *gid_of(const struct ib_qp *qp, int which)
{
	return which ? READ_ONCE(qp->alt_path_sgid_attr) : READ_ONCE(qp->av_sgid_attr);
}

/* A modify by order. Under apm_lock. */
struct modifier {
	struct list_head all;
	struct task_struct *task;
	struct ib_qp *qp;
	const struct ib_gid_attr *gid[GIDS];	/* see apm_qp_destroyed() */
};

static LIST_HEAD(modifiers);

/* This modify is the module's own, whatever entry its queue pair has now. With apm_lock held. */
bool apm_qp_is_by_order(void)
{
	struct modifier *one;

	list_for_each_entry(one, &modifiers, all)
		if (one->task == current)
			return true;
	return false;
}

/*
 * The destruction of a queue pair begins, and reads which GIDs it is to put in the end. If its
 * owner has set a path with a GRH since an order began to modify it, the order may put the same
 * one: here is a second reference for that. With apm_lock held.
 */
void apm_qp_destroyed(struct ib_qp *qp)
{
	struct modifier *one;
	int i;

	list_for_each_entry(one, &modifiers, all) {
		for (i = 0; one->qp == qp && i < GIDS; i++) {
			if (one->gid[i])
				continue;
			one->gid[i] = gid_of(qp, i);
			if (one->gid[i])
				rdma_hold_gid_attr(one->gid[i]);
		}
	}
}

/*
 * One that was reset, or begins to go, since it was taken is not what the order was meant for. An
 * owner that loads paths is left alone from the moment on in which a probe sees it, and so is, in
 * an idle move, one that modifies anything. With apm_lock held.
 */
static int may_modify(const struct apm_qp *q, const struct ib_qp *qp, int mask)
{
	if (test_bit(APM_QP_DYING, &q->flags))
		return -ESTALE;
	if (test_bit(APM_QP_OWN_APM, &q->flags) || owner_holds_gid(qp))
		return -EPERM;
	if (!(mask & (IB_QP_AV | IB_QP_STATE)))
		return 0;
	if (!apm_idle_is_undisturbed(q))
		return -EBUSY;
	/* Its GID would be released beside the destruction, as an alternate's. */
	return qp->av_sgid_attr ? -EOPNOTSUPP : 0;
}

static int modify_begins(struct apm_qp *q, struct ib_qp *qp, struct modifier *own, int mask,
			 bool anyway)
{
	unsigned long flags;
	int ret;

	memset(own, 0, sizeof(*own));
	own->task = current;
	own->qp = qp;
	spin_lock_irqsave(&apm_lock, flags);
	if (anyway)
		ret = test_bit(APM_QP_DYING, &q->flags) ? -ESTALE : 0;
	else
		ret = may_modify(q, qp, mask);
	if (!ret)
		list_add(&own->all, &modifiers);
	spin_unlock_irqrestore(&apm_lock, flags);
	return ret;
}

/*
 * A GID that the order has not put is still there, and nobody else puts the second reference.
 */
static void modify_ended(struct modifier *own)
{
	unsigned long flags;
	int i;

	spin_lock_irqsave(&apm_lock, flags);
	list_del(&own->all);
	for (i = 0; i < GIDS; i++)
		if (!gid_of(own->qp, i))
			own->gid[i] = NULL;
	spin_unlock_irqrestore(&apm_lock, flags);
	for (i = 0; i < GIDS; i++)
		if (own->gid[i])
			rdma_put_gid_attr(own->gid[i]);
}

/*
 * Drivers expect a user's data with a user's queue pair: there is none, but a context. @anyway: it
 * ends what an order has begun, and so is not up to the owner.
 */
static int modify(struct apm_qp *q, struct ib_qp *qp, struct ib_qp_attr *attr, int mask,
		  bool anyway)
{
	struct modifier own;
	int ret;

	ret = modify_begins(q, qp, &own, mask, anyway);
	if (ret)
		return ret;
	if (q->owner.user) {
		struct uverbs_attr_bundle none = {};

		none.context = qp->pd->uobject ? qp->pd->uobject->context : NULL;
		ret = none.context ? ib_modify_qp_with_udata(qp, attr, mask, &none.driver_udata) :
				     -ENXIO;
	} else {
		ret = ib_modify_qp(qp, attr, mask);
	}
	modify_ended(&own);
	return ret;
}

/*
 * The index of exactly this P_Key. ib_find_cached_pkey() takes a limited member
 * for a full one, and ib_find_exact_cached_pkey() is gone from newer kernels.
 */
static int find_pkey(struct ib_device *device, u8 port, u16 pkey, u16 *index)
{
	u16 at, found;

	for (at = 0; !ib_get_cached_pkey(device, port, at, &found); at++) {
		if (found == pkey) {
			*index = at;
			return 0;
		}
	}
	return -ENOENT;
}

/*
 * The alternate has the partition of the primary, whatever its index is on the other port. A
 * limited member may be a full one there, which reaches whom it reached before; a full one is not
 * replaced by a limited one, which would lose the limited members after a migration.
 */
static int pkey_index_of(struct ib_qp *qp, u8 port, u16 *index)
{
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;
	u16 pkey;
	int ret;

	memset(&attr, 0, sizeof(attr));
	ret = ib_query_qp(qp, &attr, IB_QP_PKEY_INDEX | IB_QP_PORT, &init);
	if (!ret)
		ret = ib_get_cached_pkey(qp->device, attr.port_num, attr.pkey_index, &pkey);
	if (ret)
		return ret;
	ret = find_pkey(qp->device, port, pkey, index);
	if (ret && !(pkey & FULL_MEMBER))
		ret = find_pkey(qp->device, port, pkey | FULL_MEMBER, index);
	return ret;
}

int apm_qp_load(struct apm_qp *q, struct ib_qp *qp, const struct apm_path *alternate, bool rearm)
{
	struct ib_qp_attr attr;
	int mask = IB_QP_ALT_PATH;
	int ret;

	memset(&attr, 0, sizeof(attr));
	ret = apm_path_write(qp->device, alternate, &attr.alt_ah_attr);
	if (!ret)
		ret = pkey_index_of(qp, alternate->port, &attr.alt_pkey_index);
	if (ret)
		return ret;
	attr.alt_port_num = alternate->port;
	/* None would be without end. */
	attr.alt_timeout = alternate->ack_timeout ?: q->last.primary.ack_timeout;
	if (rearm) {
		attr.path_mig_state = IB_MIG_REARM;
		mask |= IB_QP_PATH_MIG_STATE;
	}
	return modify(q, qp, &attr, mask, false);
}

int apm_qp_migrate(struct apm_qp *q, struct ib_qp *qp)
{
	struct ib_qp_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.path_mig_state = IB_MIG_MIGRATED;
	return modify(q, qp, &attr, IB_QP_PATH_MIG_STATE, false);
}

/* From RTS to SQD: it receives, and what is posted waits. Whoever has done this takes it back. */
int apm_qp_suspend(struct apm_qp *q, struct ib_qp *qp)
{
	struct ib_qp_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IB_QPS_SQD;
	return modify(q, qp, &attr, IB_QP_STATE, false);
}

/* In SQD. */
int apm_qp_set_primary(struct apm_qp *q, struct ib_qp *qp, const struct apm_path *primary)
{
	struct ib_qp_attr attr;
	int ret;

	memset(&attr, 0, sizeof(attr));
	ret = apm_path_write(qp->device, primary, &attr.ah_attr);
	if (!ret)
		ret = pkey_index_of(qp, primary->port, &attr.pkey_index);
	if (ret)
		return ret;
	attr.port_num = primary->port;
	attr.timeout = primary->ack_timeout ?: q->last.primary.ack_timeout;
	return modify(q, qp, &attr, IB_QP_AV | IB_QP_PORT | IB_QP_PKEY_INDEX | IB_QP_TIMEOUT,
		      false);
}

/* Of one that was suspended. From other states than RTS and SQD nothing leads there. */
int apm_qp_set_state(struct apm_qp *q, struct ib_qp *qp, enum ib_qp_state state)
{
	struct ib_qp_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.qp_state = state;
	return modify(q, qp, &attr, IB_QP_STATE, true);
}
