// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Queue pairs: what rdmavt asks of a driver, and the send engine's turns.
 */
#include <linux/module.h>
#include <linux/slab.h>
#include "shca.h"

#define INLINE_BUDGET 16	/* packets sent in the context of a post or an ACK */
#define TURN_BUDGET 16		/* packets sent while the locks are held once */
#define TURNS 4			/* turns of one run of the work item */

/* Both locks are held; the event is told without them, and in order. */
void shca_qp_event(struct rvt_qp *qp, enum ib_event_type type)
{
	struct shca_qp *sq = to_shca_qp(qp);

	if (!qp->ibqp.event_handler)
		return;
	if (!kfifo_put(&sq->events, type))
		pr_warn_ratelimited("shca: %s QP %u: too many events, one is lost\n",
				    sq->dev->name, qp->ibqp.qp_num);
	queue_work(sq->dev->wq, &sq->events_work);
}

static bool next_event(struct shca_qp *sq, u8 *type)
{
	unsigned long flags = shca_qp_lock(sq->qp);
	bool found = kfifo_get(&sq->events, type);

	shca_qp_unlock(sq->qp, flags);
	return found;
}

static void events_work(struct work_struct *work)
{
	struct shca_qp *sq = container_of(work, struct shca_qp, events_work);
	struct rvt_qp *qp = sq->qp;
	struct ib_event event = {
		.device = qp->ibqp.device,
		.element.qp = &qp->ibqp,
	};
	u8 type;

	while (next_event(sq, &type)) {
		event.event = type;
		qp->ibqp.event_handler(&event, qp->ibqp.qp_context);
	}
}

/* To Error; what is queued is flushed. A receive in progress ends with the status. */
void shca_qp_fatal(struct rvt_qp *qp, enum ib_wc_status status)
{
	if (rvt_error_qp(qp, status))
		shca_qp_event(qp, IB_EVENT_QP_LAST_WQE_REACHED);
}

bool shca_copy_out(struct rvt_sge_state *ss, void *to, u32 len)
{
	while (len) {
		u32 part = rvt_get_sge_length(&ss->sge, len);

		if (WARN_ON_ONCE(!part))
			return false;
		memcpy(to, ss->sge.vaddr, part);
		rvt_update_sge(ss, part, false);
		to += part;
		len -= part;
	}
	return true;
}

void shca_kick(struct shca_qp *sq)
{
	if (sq->qp->state != IB_QPS_RESET)
		queue_work(sq->dev->wq, &sq->send_work);
}

/* Sends, or flushes, at most budget packets. True when there may be more. */
bool shca_send_run(struct shca_qp *sq, unsigned int budget)
{
	struct rvt_qp *qp = sq->qp;

	while (budget--) {
		if (ib_rvt_state_ops[qp->state] & RVT_FLUSH_SEND) {
			if (qp->s_last == READ_ONCE(qp->s_head))
				return false;
			smp_rmb(); /* with rvt_post_one_wr(): the head is written last */
			rvt_send_complete(qp, rvt_get_swqe_ptr(qp, qp->s_last),
					  IB_WC_WR_FLUSH_ERR);
		} else if (qp->allowed_ops == IB_OPCODE_UD ? !shca_ud_send_next(sq) :
							     !shca_rc_send_next(sq)) {
			return false;
		}
	}
	return true;
}

static void send_work(struct work_struct *work)
{
	struct shca_qp *sq = container_of(work, struct shca_qp, send_work);
	unsigned int turn;

	for (turn = 0; turn < TURNS; turn++) {
		unsigned long flags = shca_qp_lock(sq->qp);
		bool more = shca_send_run(sq, TURN_BUDGET);

		shca_qp_unlock(sq->qp, flags);
		if (!more)
			return;
		cond_resched();
	}
	shca_kick(sq);
}

static void do_send(struct rvt_qp *qp)
{
	struct shca_qp *sq = to_shca_qp(qp);
	unsigned long flags = shca_qp_lock(qp);

	if (shca_send_run(sq, INLINE_BUDGET))
		shca_kick(sq);
	shca_qp_unlock(qp, flags);
}

static bool schedule_send(struct rvt_qp *qp)
{
	shca_kick(to_shca_qp(qp));
	return true;
}

static int setup_wqe(struct rvt_qp *qp, struct rvt_swqe *wqe, bool *call_send)
{
	switch (wqe->wr.opcode) {
	case IB_WR_LOCAL_INV:
	case IB_WR_REG_MR:
		/* Takes no PSN: an empty range where it stands in the queue. */
		wqe->psn = qp->s_next_psn;
		wqe->lpsn = qp->s_next_psn - 1;
		return 0;
	case IB_WR_ATOMIC_CMP_AND_SWP:
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		wqe->length = sizeof(u64);
		wqe->lpsn = wqe->psn;
		return 0;
	default:
		break;
	}
	if (qp->allowed_ops == IB_OPCODE_UD)
		return wqe->length > 1U << rvt_get_swqe_ah(wqe)->log_pmtu ? -EINVAL : 0;
	return wqe->length > 0x80000000U ? -EINVAL : 0;
}

static void *qp_priv_alloc(struct rvt_dev_info *rdi, struct rvt_qp *qp)
{
	struct shca_qp *sq = kzalloc(sizeof(*sq), GFP_KERNEL);

	if (!sq)
		return ERR_PTR(-ENOMEM);
	sq->qp = qp;
	sq->dev = to_shca(&rdi->ibdev);
	INIT_WORK(&sq->send_work, send_work);
	INIT_KFIFO(sq->events);
	INIT_WORK(&sq->events_work, events_work);
	return sq;
}

static u32 cq_next(const struct rvt_cq *cq, u32 entry)
{
	return entry >= cq->ibcq.cqe ? 0 : entry + 1;
}

/*
 * A kernel consumer that polls finds the QP by ib_wc.qp, so that of a QP that is gone
 * must not come any more: HCAs' drivers take its completions out of the CQ. Those in a
 * CQ of user space are that user's.
 */
static void drop_completions(struct ib_cq *ibcq, const struct rvt_qp *qp)
{
	struct rvt_cq *cq = ibcq_to_rvtcq(ibcq);
	struct rvt_k_cq_wc *wc;
	unsigned long flags;
	u32 from, to;

	spin_lock_irqsave(&cq->lock, flags);
	wc = cq->kqueue;
	if (wc) {
		to = wc->tail;
		for (from = wc->tail; from != wc->head; from = cq_next(cq, from)) {
			if (wc->kqueue[from].qp == &qp->ibqp)
				continue;
			if (to != from)
				wc->kqueue[to] = wc->kqueue[from];
			to = cq_next(cq, to);
		}
		wc->head = to;
	}
	spin_unlock_irqrestore(&cq->lock, flags);
}

/* The QP is destroyed, and nothing uses it any more; or it did not come to be, without CQs. */
static void qp_priv_free(struct rvt_dev_info *rdi, struct rvt_qp *qp)
{
	struct ib_cq *send_cq = qp->ibqp.send_cq, *recv_cq = qp->ibqp.recv_cq;

	if (send_cq)
		drop_completions(send_cq, qp);
	if (recv_cq && recv_cq != send_cq)
		drop_completions(recv_cq, qp);
	if (qp->ibqp.qp_num > 1)
		xa_erase(&to_shca(&rdi->ibdev)->qpns, qp->ibqp.qp_num);
	kfree(qp->priv);
	qp->priv = NULL;
}

/* rdmavt's own allocator never gives QP0 and QP1 back. Numbers are used in turn. */
static int alloc_qpn(struct rvt_dev_info *rdi, struct rvt_qpn_table *qpt,
		     enum ib_qp_type type, u32 port_num)
{
	struct shca_dev *dev = to_shca(&rdi->ibdev);
	u32 qpn;
	int err;

	if (type == IB_QPT_SMI)
		return 0;
	if (type == IB_QPT_GSI)
		return 1;
	err = xa_alloc_cyclic(&dev->qpns, &qpn, xa_mk_value(1), XA_LIMIT(2, RVT_QPN_MASK - 1),
			      &dev->next_qpn, GFP_KERNEL);
	return err < 0 ? err : qpn;
}

static unsigned int free_all_qps(struct rvt_dev_info *rdi)
{
	return 0;
}

/*
 * What is posted is not there any more in Reset (IBA 10.3.1). rdmavt leaves the
 * receives, and the number of them it remembers, as they were.
 */
static void drop_receives(struct rvt_qp *qp)
{
	struct rvt_rq *rq = &qp->r_rq;
	u32 head;

	if (!rq->kwq)	/* it takes them from a shared receive queue */
		return;
	spin_lock(&rq->kwq->c_lock);
	if (qp->ip) {	/* the queue is user space's, which may have written anything */
		head = RDMA_READ_UAPI_ATOMIC(rq->wq->head);
		RDMA_WRITE_UAPI_ATOMIC(rq->wq->tail, head < rq->size ? head : 0);
	} else {
		rq->kwq->tail = rq->kwq->head;
	}
	rq->kwq->count = 0;
	spin_unlock(&rq->kwq->c_lock);
}

static void notify_qp_reset(struct rvt_qp *qp)
{
	struct shca_qp *sq = to_shca_qp(qp);

	drop_receives(qp);
	shca_req_reset(sq, 0);
	shca_resp_reset(sq);
	sq->refusal_told = false;
}

static void notify_error_qp(struct rvt_qp *qp)
{
	struct shca_qp *sq = to_shca_qp(qp);

	/* rdmavt releases and flushes the receive WQE that was in use. */
	sq->message = SHCA_NO_MESSAGE;
	sq->reuse_rwqe = false;
}

static void nothing_waits(struct rvt_qp *qp)
{
	/* Packets are handed to the fabric at once; no QP ever queues for it. */
}

/* The QP is reset. Before it may go, whoever waits for its events has them all. */
static void stop_work(struct rvt_qp *qp)
{
	struct shca_qp *sq = to_shca_qp(qp);

	cancel_work_sync(&sq->send_work);
	flush_work(&sq->events_work);
}

static int get_pmtu_from_attr(struct rvt_dev_info *rdi, struct rvt_qp *qp,
			      struct ib_qp_attr *attr)
{
	return ib_mtu_enum_to_int(attr->path_mtu) < 0 ? -EINVAL : attr->path_mtu;
}

static u32 mtu_from_qp(struct rvt_dev_info *rdi, struct rvt_qp *qp, u32 pmtu)
{
	return ib_mtu_enum_to_int(pmtu);
}

static int mtu_to_path_mtu(u32 mtu)
{
	return ib_mtu_int_to_enum(mtu);
}

/* Off: no queue pair gets to SQD, as with mlx5. */
static bool sqd = true;
module_param(sqd, bool, 0644);
MODULE_PARM_DESC(sqd, "queue pairs can go to SQD");

/*
 * In SQD, the paths are changed and the QP goes on when its send queue is drained,
 * IBA 10.3.1. rdmavt allows both at any time; what is outstanding would be sent again
 * over another path.
 */
static bool sqd_forbids(const struct rvt_qp *qp, const struct ib_qp_attr *attr, int mask)
{
	enum ib_qp_state to = mask & IB_QP_STATE ? attr->qp_state : qp->state;

	if (qp->state == IB_QPS_RTS)
		return to == IB_QPS_SQD && !READ_ONCE(sqd);
	if (qp->state != IB_QPS_SQD || !qp->s_draining)
		return false;
	return to == IB_QPS_RTS || mask & (IB_QP_AV | IB_QP_PORT | IB_QP_PKEY_INDEX);
}

static int check_modify_qp(struct rvt_qp *qp, struct ib_qp_attr *attr, int mask,
			   struct ib_udata *udata)
{
	if (sqd_forbids(qp, attr, mask))
		return -EINVAL;
	shca_apm_before_modify(to_shca_qp(qp), attr, mask);
	return 0;
}

static void after_modify_qp(struct rvt_qp *qp, struct ib_qp_attr *attr, int mask,
			    struct ib_udata *udata)
{
	struct shca_qp *sq = to_shca_qp(qp);

	shca_apm_after_modify(sq, attr, mask);
	if (mask & IB_QP_SQ_PSN)
		shca_req_reset(sq, qp->s_psn);
	if (mask & IB_QP_RQ_PSN)
		shca_resp_reset(sq);
	if (mask & IB_QP_EN_SQD_ASYNC_NOTIFY)
		sq->tell_drained = attr->en_sqd_async_notify;
	if (mask & IB_QP_STATE && qp->state == IB_QPS_SQD)
		shca_req_check_drained(sq);
	if (mask & IB_QP_STATE && qp->state == IB_QPS_RTS)
		shca_kick(sq);
}

static struct pci_dev *get_pci_dev(struct rvt_dev_info *rdi)
{
	return to_shca(&rdi->ibdev)->pci;
}

/* One completion vector for each CPU. */
static int comp_vect_cpu_lookup(struct rvt_dev_info *rdi, int vector)
{
	return cpu_online(vector) ? vector : cpumask_first(cpu_online_mask);
}

static void notify_new_ah(struct ib_device *ibdev, struct rdma_ah_attr *attr, struct rvt_ah *ah)
{
	struct fabric_port *fp = shca_port(to_shca(ibdev), rdma_ah_get_port_num(attr))->fabric;
	int mtu = ib_mtu_enum_to_int(fabric_port_mtu(fp));

	ah->vl = fabric_sl_to_vl(fp, rdma_ah_get_sl(attr));
	ah->log_pmtu = ilog2(mtu > 0 ? mtu : 256);
}

const struct rvt_driver_provided shca_rvt_ops = {
	.alloc_qpn = alloc_qpn,
	.check_modify_qp = check_modify_qp,
	.comp_vect_cpu_lookup = comp_vect_cpu_lookup,
	.do_send = do_send,
	.flush_qp_waiters = nothing_waits,
	.free_all_qps = free_all_qps,
	.get_pci_dev = get_pci_dev,
	.get_pmtu_from_attr = get_pmtu_from_attr,
	.modify_qp = after_modify_qp,
	.mtu_from_qp = mtu_from_qp,
	.mtu_to_path_mtu = mtu_to_path_mtu,
	.notify_error_qp = notify_error_qp,
	.notify_new_ah = notify_new_ah,
	.notify_qp_reset = notify_qp_reset,
	.notify_restart_rc = shca_rc_restart,
	.qp_priv_alloc = qp_priv_alloc,
	.qp_priv_free = qp_priv_free,
	/* The second time for what a timer queued while the first one waited. */
	.quiesce_qp = stop_work,
	.schedule_send = schedule_send,
	.schedule_send_no_lock = schedule_send,
	.setup_wqe = setup_wqe,
	.stop_send_queue = stop_work,
};
