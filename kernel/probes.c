// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Where ib_core and ib_cm are listened to. A handler runs at the beginning of the function, with
 * preemption disabled: it notes what is asked for and has the queue pair looked at later.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kprobes.h>
#include <linux/module.h>
#include <rdma/ib_cm.h>

#include "apm.h"
#include "arguments.h"

/* How long a queue pair may be on its way before it is looked at. */
#define ON_ITS_WAY_MS 20

/* More destructions at a time than these leave the module pinned; more modifies are not counted. */
#define RETURNS 1024

/* They are what they are taken for, or this does not compile; and ib_cm is loaded with this. */
static struct {
	int (*modify_qp)(struct ib_qp *qp, struct ib_qp_attr *attr, int mask);
	int (*modify_qp_with_udata)(struct ib_qp *qp, struct ib_qp_attr *attr, int mask,
				    struct ib_udata *udata);
	int (*destroy_qp_user)(struct ib_qp *qp, struct ib_udata *udata);
	int (*send_cm_req)(struct ib_cm_id *id, struct ib_cm_req_param *param);
	int (*send_cm_rep)(struct ib_cm_id *id, struct ib_cm_rep_param *param);
} signatures __used = {
	.modify_qp = ib_modify_qp,
	.modify_qp_with_udata = ib_modify_qp_with_udata,
	.destroy_qp_user = ib_destroy_qp_user,
	.send_cm_req = ib_send_cm_req,
	.send_cm_rep = ib_send_cm_rep,
};

static bool is_concerned(const struct ib_qp *qp)
{
	return qp && qp->qp_type == IB_QPT_RC && qp->real_qp == qp;
}

static bool loads_paths(const struct ib_qp_attr *attr, int mask)
{
	return (mask & IB_QP_ALT_PATH) ||
	       ((mask & IB_QP_PATH_MIG_STATE) && attr->path_mig_state != IB_MIG_MIGRATED);
}

/*
 * Where a connection leads is set on the way to RTR, its ACK timeout on that to RTS. The attributes
 * are the caller's own for this one call. With apm_lock held.
 */
static void bound_timeout(struct apm_qp *q, const struct ib_qp *qp, struct ib_qp_attr *attr,
			  int mask)
{
	if ((mask & IB_QP_AV) && attr->ah_attr.type == RDMA_AH_ATTR_TYPE_IB)
		q->primary_lid = rdma_ah_get_dlid(&attr->ah_attr);
	if (!(mask & IB_QP_STATE) || attr->qp_state != IB_QPS_RTS || !(mask & IB_QP_TIMEOUT))
		return;
	if (test_bit(APM_QP_OWN_APM, &q->flags) || !apm_owner_is_protected(&q->owner) ||
	    !(qp->device->attrs.device_cap_flags & IB_DEVICE_AUTO_PATH_MIG))
		return;
	attr->timeout = apm_peer_timeout(q->dev, qp->port, q->primary_lid, attr->timeout);
}

/* Who is left alone by the settings is told of once, and causes nothing more. */
static void have_seen(struct apm_qp *q)
{
	if (READ_ONCE(q->refusal) != APM_REFUSAL_OWNER)
		apm_look_after(q, ON_ITS_WAY_MS);
}

/*
 * Whether this modify to RESET or INIT ends what was connected. ib_core rejects RESET with any
 * other attribute, and INIT from RTR or a later state: such a modify ends nothing, unless an
 * earlier RESET was missed, which a look shows. INIT from INIT ends nothing either, unless another
 * queue pair has the number now: the end of an adopted one may have been missed. With apm_lock
 * held.
 */
static bool ends_connection(struct apm_qp *q, struct ib_qp *qp, const struct ib_qp_attr *attr,
			    int mask)
{
	return !apm_owner_has(&q->owner, qp) ||
	       (attr->qp_state == IB_QPS_RESET && mask == IB_QP_STATE);
}

/* With apm_lock held. */
static void note_modify(struct apm_device *dev, struct ib_qp *qp, struct ib_qp_attr *attr,
			int mask)
{
	struct apm_qp *q;

	if (apm_qp_is_by_order())
		return;
	q = apm_qp_find(qp->device, qp->qp_num);
	if ((mask & IB_QP_STATE) &&
	    (attr->qp_state == IB_QPS_RESET || attr->qp_state == IB_QPS_INIT)) {
		if (q && ends_connection(q, qp, attr, mask)) {
			apm_qp_retire(q);
			q = NULL;
		}
		if (!q && attr->qp_state == IB_QPS_INIT)
			q = apm_qp_add(dev, qp);
		if (q && q->rtr_since)
			have_seen(q);
		else if (q && attr->qp_state == IB_QPS_INIT && (mask & IB_QP_PORT))
			q->primary_port = attr->port_num;
		return;
	}
	/* It was in INIT when the module came. */
	if (!q && (mask & IB_QP_STATE) && attr->qp_state == IB_QPS_RTR) {
		q = apm_qp_add(dev, qp);
		if (q)
			q->primary_port = qp->port;
	}
	if (!q)
		return;
	if (loads_paths(attr, mask))
		set_bit(APM_QP_OWN_APM, &q->flags);
	bound_timeout(q, qp, attr, mask);
	if (!(mask & IB_QP_STATE)) {
		if (mask & (IB_QP_AV | IB_QP_PORT | IB_QP_ALT_PATH | IB_QP_PATH_MIG_STATE))
			have_seen(q);
		return;
	}
	/* Of one that was loaded the return tells whether the state was set. */
	if (!test_bit(APM_QP_HANDLER, &q->flags))
		WRITE_ONCE(q->owner_state, attr->qp_state);
	switch (attr->qp_state) {
	case IB_QPS_RTR:
		q->rtr_since = jiffies | 1;
		apm_look_in_rtr(q);
		return;
	case IB_QPS_RTS:
		if (!test_and_set_bit(APM_QP_TO_RTS, &q->flags))
			apm_look_connected(q);
		break;
	default:
		break;
	}
	have_seen(q);
}

/* The arguments of both functions begin alike. */
static int on_modify(struct kprobe *probe, struct pt_regs *regs)
{
	struct ib_qp *qp = (void *)apm_argument(regs, 0);
	struct ib_qp_attr *attr = (void *)apm_argument(regs, 1);
	int mask = apm_argument(regs, 2);
	struct apm_device *dev;
	unsigned long flags;

	if (!is_concerned(qp))
		return 0;
	dev = apm_device_of(qp->device);
	if (!dev)
		return 0;
	spin_lock_irqsave(&apm_lock, flags);
	note_modify(dev, qp, attr, mask);
	spin_unlock_irqrestore(&apm_lock, flags);
	return 0;
}

/* A modify of the owner's that is under way. */
struct owner_modify {
	u64 cookie;
	bool sets_state;
	enum ib_qp_state state;
};

/*
 * An order that has put a queue pair into SQD leaves it as its owner has set it. So modifies of the
 * owner's are counted, and the state is noted if they succeed: of queue pairs that were loaded,
 * which those that are being connected were not.
 */
static int modify_begins(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct owner_modify *modify = (void *)instance->data;
	struct ib_qp *qp = (void *)apm_argument(regs, 0);
	struct ib_qp_attr *attr = (void *)apm_argument(regs, 1);
	int mask = apm_argument(regs, 2);
	unsigned long flags;
	struct apm_qp *q;

	if (!is_concerned(qp))
		return 1;
	spin_lock_irqsave(&apm_lock, flags);
	q = apm_qp_is_by_order() ? NULL : apm_qp_find(qp->device, qp->qp_num);
	if (q && !test_bit(APM_QP_HANDLER, &q->flags))
		q = NULL;
	if (q) {
		q->entered++;
		modify->cookie = q->cookie;
		modify->sets_state = mask & IB_QP_STATE;
		modify->state = attr->qp_state;
	}
	spin_unlock_irqrestore(&apm_lock, flags);
	return q ? 0 : 1;
}

static int modify_ended(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	const struct owner_modify *modify = (void *)instance->data;
	struct apm_qp *q = apm_qp_get_by_cookie(modify->cookie);
	unsigned long flags;

	if (!q)
		return 0;
	spin_lock_irqsave(&apm_lock, flags);
	q->returned++;
	if (modify->sets_state && !(int)regs_return_value(regs))
		WRITE_ONCE(q->owner_state, modify->state);
	spin_unlock_irqrestore(&apm_lock, flags);
	apm_qp_put(q);
	return 0;
}

/* With apm_lock held. */
static void note_destroy(struct ib_qp *qp)
{
	struct apm_qp *q = apm_qp_find(qp->device, qp->qp_num);

	if (q)
		apm_qp_retire(q);
	apm_qp_destroyed(qp);
}

/* The return probe does this as well, but may be missed. */
static int on_destroy(struct kprobe *probe, struct pt_regs *regs)
{
	struct ib_qp *qp = (void *)apm_argument(regs, 0);
	unsigned long flags;

	if (!is_concerned(qp))
		return 0;
	spin_lock_irqsave(&apm_lock, flags);
	note_destroy(qp);
	spin_unlock_irqrestore(&apm_lock, flags);
	return 0;
}

/*
 * The number of the queue pair is the caller's word. Of a program it counts for its own, of a
 * kernel thread or root (who log in to a target) for the kernel's. With apm_lock held.
 */
static struct apm_qp *find_own(struct ib_device *ib, u32 qpn)
{
	struct apm_qp *q = apm_qp_find(ib, qpn);

	if (!q)
		return NULL;
	if (q->owner.user)
		return q->owner.pid == current->tgid ? q : NULL;
	return (current->flags & PF_KTHREAD) || uid_eq(current_euid(), GLOBAL_ROOT_UID) ? q : NULL;
}

static int on_req(struct kprobe *probe, struct pt_regs *regs)
{
	struct ib_cm_id *id = (void *)apm_argument(regs, 0);
	const struct ib_cm_req_param *param = (void *)apm_argument(regs, 1);
	const struct sa_path_rec *path = param->primary_path;
	unsigned long flags;
	struct apm_qp *q;

	spin_lock_irqsave(&apm_lock, flags);
	q = find_own(id->device, param->qp_num);
	if (q) {
		q->role = APM_ROLE_ACTIVE;
		/* A GID belongs to its LID and subnet: after a migration it says nothing. */
		if (path && path->rec_type == SA_PATH_REC_TYPE_IB) {
			q->peer_port = q->primary_port;
			q->peer_lid = be16_to_cpu(path->ib.dlid);
			q->peer_pkey = be16_to_cpu(path->pkey);
			q->peer_gid = path->dgid;
			apm_connecting(q, id->device);
		}
	}
	spin_unlock_irqrestore(&apm_lock, flags);
	return 0;
}

static int on_rep(struct kprobe *probe, struct pt_regs *regs)
{
	struct ib_cm_id *id = (void *)apm_argument(regs, 0);
	const struct ib_cm_rep_param *param = (void *)apm_argument(regs, 1);
	unsigned long flags;
	struct apm_qp *q;

	spin_lock_irqsave(&apm_lock, flags);
	q = find_own(id->device, param->qp_num);
	if (q)
		q->role = APM_ROLE_PASSIVE;
	spin_unlock_irqrestore(&apm_lock, flags);
	return 0;
}

/*
 * Remembers an entry whose event handler is ours until its queue pair is gone. From the same moment
 * on no order exchanges the handler any more: nobody would remember that.
 */
static int destroy_begins(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct apm_qp **kept = (struct apm_qp **)instance->data;
	struct ib_qp *qp = (void *)apm_argument(regs, 0);
	unsigned long flags;

	if (!is_concerned(qp))
		return 1;
	spin_lock_irqsave(&apm_lock, flags);
	note_destroy(qp);
	*kept = apm_qp_find_handler(qp->device, qp->qp_num);
	/*
	 * The probe of its return is not to go before that: its pin may, if the number comes
	 * again.
	 */
	if (*kept && !try_module_get(THIS_MODULE))
		*kept = NULL;
	if (*kept)
		apm_qp_get(*kept);
	spin_unlock_irqrestore(&apm_lock, flags);
	return *kept ? 0 : 1;
}

static int destroy_ended(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct apm_qp *q = *(struct apm_qp **)instance->data;
	unsigned long flags;

	/* Refused: it lives on, unprotected, and its events go on being passed on. */
	if ((int)regs_return_value(regs) == 0) {
		spin_lock_irqsave(&apm_lock, flags);
		apm_qp_forget(q);
		spin_unlock_irqrestore(&apm_lock, flags);
	}
	apm_qp_put(q);
	module_put(THIS_MODULE);
	return 0;
}

static struct kprobe modify_probe = { .symbol_name = "ib_modify_qp", .pre_handler = on_modify };
static struct kprobe modify_user_probe = {
	.symbol_name = "ib_modify_qp_with_udata", .pre_handler = on_modify
};

static struct kprobe destroy_probe = {
	.symbol_name = "ib_destroy_qp_user", .pre_handler = on_destroy
};

static struct kprobe req_probe = { .symbol_name = "ib_send_cm_req", .pre_handler = on_req };
static struct kprobe rep_probe = { .symbol_name = "ib_send_cm_rep", .pre_handler = on_rep };
static struct kprobe *probes[] = {
	&destroy_probe, &modify_probe, &modify_user_probe, &req_probe, &rep_probe
};

static struct kretprobe destruction = {
	.kp.symbol_name = "ib_destroy_qp_user",
	.entry_handler = destroy_begins,
	.handler = destroy_ended,
	.maxactive = RETURNS,
	.data_size = sizeof(struct apm_qp *),
};

static struct kretprobe modify_return = {
	.kp.symbol_name = "ib_modify_qp",
	.entry_handler = modify_begins,
	.handler = modify_ended,
	.maxactive = RETURNS,
	.data_size = sizeof(struct owner_modify),
};

static struct kretprobe modify_user_return = {
	.kp.symbol_name = "ib_modify_qp_with_udata",
	.entry_handler = modify_begins,
	.handler = modify_ended,
	.maxactive = RETURNS,
	.data_size = sizeof(struct owner_modify),
};

static struct kretprobe *returns[] = { &destruction, &modify_return, &modify_user_return };

unsigned long apm_probes_missed(void)
{
	unsigned long missed = 0;
	int i;

	for (i = 0; i < ARRAY_SIZE(returns); i++)
		missed += returns[i]->nmissed;
	for (i = 0; i < ARRAY_SIZE(probes); i++)
		missed += probes[i]->nmissed;
	return missed;
}

static int listen_to_returns(void)
{
	int i, ret;

	for (i = 0; i < ARRAY_SIZE(returns); i++) {
		ret = register_kretprobe(returns[i]);
		if (ret) {
			pr_err("cannot listen to the return of %s: error %d\n",
			       returns[i]->kp.symbol_name, ret);
			unregister_kretprobes(returns, i);
			return ret;
		}
	}
	return 0;
}

int apm_probes_init(void)
{
	int i, ret;

	ret = listen_to_returns();
	if (ret)
		return ret;
	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		ret = register_kprobe(probes[i]);
		if (ret) {
			pr_err("cannot listen to %s: error %d\n", probes[i]->symbol_name, ret);
			unregister_kprobes(probes, i);
			unregister_kretprobes(returns, ARRAY_SIZE(returns));
			return ret;
		}
	}
	return 0;
}

void apm_probes_exit(void)
{
	unregister_kprobes(probes, ARRAY_SIZE(probes));
	unregister_kretprobes(returns, ARRAY_SIZE(returns));
}
