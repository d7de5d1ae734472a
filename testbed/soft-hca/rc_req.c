// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Requester of the connected services, IBA vol. 1, 9.7 (RC) and 9.8 (UC).
 *
 * Nothing of a packet is remembered after it is sent: opcode, address and
 * payload follow from its WQE and PSN, so that going back is setting s_psn.
 *
 * The emulated links have no credits to push back with. An RC requester paces
 * itself instead: it leaves a limited number of packets unacknowledged, fewer when
 * the device has many RC QPs; after a timeout it sends a single packet and waits
 * for its answer, so that repetitions never fill a queue that is merely slow; and
 * it asks for the data of a long RDMA READ in several requests of SHCA_READ_CHUNK
 * packets, as a requester that resumes a broken READ would (9.7.5.2.7). These
 * requests cut the WQE at fixed PSNs, also when they are repeated.
 */
#include <linux/jiffies.h>
#include "shca.h"

#define SHCA_DEVICE_WINDOW 1024	/* packets unacknowledged, over all RC QPs */
#define SHCA_MAX_WINDOW 64
#define SHCA_MIN_WINDOW 8
#define SHCA_ACK_EVERY SHCA_MIN_WINDOW	/* so that no smaller window waits for nothing */

static bool is_local(const struct rvt_swqe *wqe)
{
	return wqe->wr.opcode == IB_WR_LOCAL_INV || wqe->wr.opcode == IB_WR_REG_MR;
}

static bool is_atomic(const struct rvt_swqe *wqe)
{
	return wqe->wr.opcode == IB_WR_ATOMIC_CMP_AND_SWP ||
	       wqe->wr.opcode == IB_WR_ATOMIC_FETCH_AND_ADD;
}

/* Its responses, and nothing else, acknowledge it. */
static bool has_response(const struct rvt_swqe *wqe)
{
	return wqe->wr.opcode == IB_WR_RDMA_READ || is_atomic(wqe);
}

static u32 next_index(const struct rvt_qp *qp, u32 i)
{
	return i + 1 >= qp->s_size ? 0 : i + 1;
}

/* ---- the ACK timer, IBA 9.7.6.1.3 ---- */

static void start_timer(struct shca_qp *sq)
{
	struct rvt_qp *qp = sq->qp;
	u64 ns;

	if (!qp->timeout)
		return;
	ns = 4096ULL << min_t(u8, qp->timeout, 31);
	sq->ack_deadline = jiffies + nsecs_to_jiffies(ns) + 1;
	qp->s_flags |= RVT_S_TIMER;
	mod_timer(&qp->s_timer, sq->ack_deadline);
}

static void stop_timer(struct shca_qp *sq)
{
	struct rvt_qp *qp = sq->qp;

	if (qp->s_flags & RVT_S_TIMER) {
		qp->s_flags &= ~RVT_S_TIMER;
		timer_delete(&qp->s_timer);
	}
}

/* ---- sending ---- */

static u32 window(struct shca_qp *sq)
{
	u32 share = SHCA_DEVICE_WINDOW / max_t(u32, READ_ONCE(sq->dev->rdi.n_rc_qps), 1);

	if (sq->cautious)
		return 1;
	return clamp_t(u32, share, SHCA_MIN_WINDOW, SHCA_MAX_WINDOW);
}

static struct rvt_sge_state *gather(struct shca_cursor *c, struct rvt_swqe *wqe, u32 psn,
				    u32 offset)
{
	if (c->wqe != wqe || c->psn != psn || !offset) {
		c->wqe = wqe;
		c->ss.sge = wqe->sg_list[0];
		c->ss.sg_list = wqe->sg_list + 1;
		c->ss.num_sge = wqe->wr.num_sge;
		c->ss.total_len = wqe->length;
		rvt_skip_sge(&c->ss, offset, false);
	}
	c->psn = (psn + 1) & SHCA_PSN_MASK;
	return &c->ss;
}

static u8 message_opcode(const struct rvt_swqe *wqe, bool first, bool last)
{
	bool write = wqe->wr.opcode == IB_WR_RDMA_WRITE ||
		     wqe->wr.opcode == IB_WR_RDMA_WRITE_WITH_IMM;

	if (!last) {
		if (write)
			return first ? IB_OPCODE_RDMA_WRITE_FIRST : IB_OPCODE_RDMA_WRITE_MIDDLE;
		return first ? IB_OPCODE_SEND_FIRST : IB_OPCODE_SEND_MIDDLE;
	}
	switch (wqe->wr.opcode) {
	case IB_WR_RDMA_WRITE:
		return first ? IB_OPCODE_RDMA_WRITE_ONLY : IB_OPCODE_RDMA_WRITE_LAST;
	case IB_WR_RDMA_WRITE_WITH_IMM:
		return first ? IB_OPCODE_RDMA_WRITE_ONLY_WITH_IMMEDIATE :
			       IB_OPCODE_RDMA_WRITE_LAST_WITH_IMMEDIATE;
	case IB_WR_SEND_WITH_IMM:
		return first ? IB_OPCODE_SEND_ONLY_WITH_IMMEDIATE :
			       IB_OPCODE_SEND_LAST_WITH_IMMEDIATE;
	case IB_WR_SEND_WITH_INV:
		return first ? IB_OPCODE_SEND_ONLY_WITH_INVALIDATE :
			       IB_OPCODE_SEND_LAST_WITH_INVALIDATE;
	default:
		return first ? IB_OPCODE_SEND_ONLY : IB_OPCODE_SEND_LAST;
	}
}

/* One packet of a SEND or RDMA WRITE. NULL when there is no memory for it. */
static struct shca_packet *message_packet(struct shca_qp *sq, struct rvt_swqe *wqe)
{
	struct rvt_qp *qp = sq->qp;
	u32 psn = qp->s_psn;
	u32 index = psn_diff(psn, wqe->psn);
	u32 offset = index << qp->log_pmtu;
	u32 len = min_t(u32, wqe->length - offset, qp->pmtu);
	bool last = !psn_cmp(psn, wqe->lpsn);
	struct shca_packet *pkt;

	pkt = shca_packet_alloc(len, GFP_ATOMIC);
	if (!pkt)
		return NULL;
	pkt->opcode = message_opcode(wqe, !index, last);
	if (!index && (wqe->wr.opcode == IB_WR_RDMA_WRITE ||
		       wqe->wr.opcode == IB_WR_RDMA_WRITE_WITH_IMM)) {
		pkt->reth.vaddr = wqe->rdma_wr.remote_addr;
		pkt->reth.rkey = wqe->rdma_wr.rkey;
		pkt->reth.length = wqe->length;
	}
	if (last) {
		if (wqe->wr.opcode == IB_WR_SEND_WITH_INV)
			pkt->ieth_rkey = wqe->wr.ex.invalidate_rkey;
		else
			pkt->immdata = wqe->wr.ex.imm_data;
		pkt->solicited = wqe->wr.send_flags & IB_SEND_SOLICITED;
	}
	pkt->ack_req = last || index % SHCA_ACK_EVERY == SHCA_ACK_EVERY - 1 ||
		       psn_diff(psn, sq->una) + 1 >= window(sq);
	if (len && !shca_copy_out(gather(&sq->tx, wqe, psn, offset), pkt->payload, len)) {
		shca_packet_free(pkt);
		return NULL;
	}
	return pkt;
}

/* The PSN of the last response to the READ request that begins at psn. */
static u32 chunk_end(const struct rvt_swqe *wqe, u32 psn)
{
	u32 end = wqe->psn + (psn_diff(psn, wqe->psn) / SHCA_READ_CHUNK + 1) * SHCA_READ_CHUNK - 1;

	return psn_cmp(end, wqe->lpsn) < 0 ? end : wqe->lpsn;
}

static struct shca_packet *read_packet(struct shca_qp *sq, struct rvt_swqe *wqe, u32 *packets)
{
	struct rvt_qp *qp = sq->qp;
	u32 offset = psn_diff(qp->s_psn, wqe->psn) << qp->log_pmtu;
	struct shca_packet *pkt;

	*packets = psn_diff(chunk_end(wqe, qp->s_psn), qp->s_psn) + 1;
	pkt = shca_packet_alloc(0, GFP_ATOMIC);
	if (!pkt)
		return NULL;
	pkt->opcode = IB_OPCODE_RC_RDMA_READ_REQUEST;
	pkt->reth.vaddr = wqe->rdma_wr.remote_addr + offset;
	pkt->reth.rkey = wqe->rdma_wr.rkey;
	pkt->reth.length = min_t(u32, wqe->length - offset, *packets << qp->log_pmtu);
	pkt->ack_req = true;
	return pkt;
}

static struct shca_packet *atomic_packet(struct rvt_swqe *wqe)
{
	struct shca_packet *pkt = shca_packet_alloc(0, GFP_ATOMIC);

	if (!pkt)
		return NULL;
	pkt->atomic.vaddr = wqe->atomic_wr.remote_addr;
	pkt->atomic.rkey = wqe->atomic_wr.rkey;
	if (wqe->wr.opcode == IB_WR_ATOMIC_CMP_AND_SWP) {
		pkt->opcode = IB_OPCODE_RC_COMPARE_SWAP;
		pkt->atomic.swap_add = wqe->atomic_wr.swap;
		pkt->atomic.compare = wqe->atomic_wr.compare_add;
	} else {
		pkt->opcode = IB_OPCODE_RC_FETCH_ADD;
		pkt->atomic.swap_add = wqe->atomic_wr.compare_add;
	}
	pkt->ack_req = true;
	return pkt;
}

static bool responses_missing(struct shca_qp *sq)
{
	struct rvt_qp *qp = sq->qp;
	u32 i;

	for (i = qp->s_last; i != qp->s_cur; i = next_index(qp, i))
		if (has_response(rvt_get_swqe_ptr(qp, i)))
			return true;
	return false;
}

/*
 * SQD, IBA 10.3.1: the send queue is drained when the messages that were begun are
 * sent (UC) or acknowledged (RC). rdmavt's own idea of it leaves out the one that
 * is partly sent.
 */
void shca_req_check_drained(struct shca_qp *sq)
{
	struct rvt_qp *qp = sq->qp;

	if (qp->state != IB_QPS_SQD)
		return;
	qp->s_draining = qp->s_last != READ_ONCE(qp->s_head) &&
			 psn_cmp(rvt_get_swqe_ptr(qp, qp->s_last)->psn, sq->snd_max) < 0;
	if (qp->s_draining || !sq->tell_drained)
		return;
	sq->tell_drained = false;
	shca_qp_event(qp, IB_EVENT_SQ_DRAINED);
}

/* Completes, in order, what is sent (UC) or acknowledged (RC). */
static void complete_done(struct shca_qp *sq)
{
	struct rvt_qp *qp = sq->qp;

	while (qp->s_last != qp->s_cur && ib_rvt_state_ops[qp->state] & RVT_PROCESS_SEND_OK) {
		struct rvt_swqe *wqe = rvt_get_swqe_ptr(qp, qp->s_last);

		if (qp->ibqp.qp_type == IB_QPT_RC && psn_cmp(wqe->lpsn, sq->una) >= 0)
			return;
		rvt_send_complete(qp, wqe, IB_WC_SUCCESS);
		shca_req_check_drained(sq);
	}
}

/* A fast register or local invalidate; rdmavt does those that need not wait at once. */
static void do_local(struct shca_qp *sq, struct rvt_swqe *wqe)
{
	struct rvt_qp *qp = sq->qp;

	if (!(wqe->wr.send_flags & RVT_SEND_COMPLETION_ONLY)) {
		int err = rvt_invalidate_rkey(qp, wqe->wr.ex.invalidate_rkey);

		wqe->wr.send_flags |= RVT_SEND_COMPLETION_ONLY;
		atomic_dec(&qp->local_ops_pending);
		if (err) {
			rvt_send_complete(qp, wqe, IB_WC_LOC_PROT_ERR);
			shca_qp_fatal(qp, IB_WC_WR_FLUSH_ERR);
			return;
		}
	}
	qp->s_cur = next_index(qp, qp->s_cur);
	complete_done(sq);
}

/* Steps s_cur over WQEs all of whose packets are below s_psn. */
static void skip_sent(struct shca_qp *sq)
{
	struct rvt_qp *qp = sq->qp;

	while (qp->s_cur != READ_ONCE(qp->s_head)) {
		struct rvt_swqe *wqe;

		smp_rmb(); /* with rvt_post_one_wr(): the head is written last */
		wqe = rvt_get_swqe_ptr(qp, qp->s_cur);
		if (psn_cmp(wqe->lpsn, qp->s_psn) >= 0)
			return;
		if (is_local(wqe) && !(wqe->wr.send_flags & RVT_SEND_COMPLETION_ONLY))
			return;
		qp->s_cur = next_index(qp, qp->s_cur);
	}
}

static bool may_begin(struct shca_qp *sq, struct rvt_swqe *wqe)
{
	if (!(ib_rvt_state_ops[sq->qp->state] & RVT_PROCESS_NEXT_SEND_OK))
		return false;
	return !(wqe->wr.send_flags & IB_SEND_FENCE) || !responses_missing(sq);
}

/* Sends the next packet of an RC or UC QP. False when there is none to send now. */
bool shca_rc_send_next(struct shca_qp *sq)
{
	struct rvt_qp *qp = sq->qp;
	bool rc = qp->ibqp.qp_type == IB_QPT_RC;
	struct shca_packet *pkt;
	struct rvt_swqe *wqe;
	u32 packets = 1;

	if (!(ib_rvt_state_ops[qp->state] & RVT_PROCESS_SEND_OK) || qp->s_flags & RVT_S_WAIT_RNR)
		return false;
	skip_sent(sq);
	complete_done(sq);
	if (qp->s_cur == READ_ONCE(qp->s_head))
		return false;
	smp_rmb(); /* with rvt_post_one_wr(): the head is written last */
	wqe = rvt_get_swqe_ptr(qp, qp->s_cur);
	if ((is_local(wqe) || psn_cmp(wqe->psn, sq->snd_max) >= 0) && !may_begin(sq, wqe))
		return false;
	if (is_local(wqe)) {
		do_local(sq, wqe);
		return true;
	}
	if (rc && psn_diff(qp->s_psn, sq->una) >= window(sq))
		return false;
	if (has_response(wqe)) {
		if (sq->reads_out >= max_t(u32, qp->s_max_rd_atomic, 1))
			return false;
		sq->reads_out++;
		pkt = is_atomic(wqe) ? atomic_packet(wqe) : read_packet(sq, wqe, &packets);
	} else {
		pkt = message_packet(sq, wqe);
	}

	/* Without memory for it, the packet counts as lost on the wire. */
	if (pkt) {
		if (!rc)
			pkt->opcode |= IB_OPCODE_UC;
		pkt->psn = qp->s_psn;
		shca_connected_address(qp, pkt);
		shca_transmit(qp, pkt);
	}
	qp->s_psn = (qp->s_psn + packets) & SHCA_PSN_MASK;
	if (psn_cmp(qp->s_psn, sq->snd_max) > 0)
		sq->snd_max = qp->s_psn;
	skip_sent(sq);
	if (!rc)
		complete_done(sq);
	else if (!(qp->s_flags & RVT_S_TIMER))
		start_timer(sq);
	return true;
}

/* ---- responses ---- */

static bool anything_outstanding(struct shca_qp *sq)
{
	return psn_cmp(sq->una, sq->snd_max) < 0;
}

static void go_back(struct shca_qp *sq)
{
	struct rvt_qp *qp = sq->qp;

	qp->s_psn = sq->una;
	qp->s_cur = qp->s_last;
	sq->reads_out = 0;
	sq->tx.wqe = NULL;
}

static void fail(struct shca_qp *sq, enum ib_wc_status status)
{
	struct rvt_qp *qp = sq->qp;

	stop_timer(sq);
	if (qp->s_last != READ_ONCE(qp->s_head))
		rvt_send_complete(qp, rvt_get_swqe_ptr(qp, qp->s_last), status);
	shca_qp_fatal(qp, IB_WC_WR_FLUSH_ERR);
}

/*
 * A timeout, a sequence NAK, or a missing response: all draw on the same retry
 * count (9.7.5.2.8), and its exhaustion is what migrates an Armed QP (17.2.8).
 */
static void retry(struct shca_qp *sq)
{
	struct rvt_qp *qp = sq->qp;

	if (!anything_outstanding(sq))
		return;
	pr_debug("shca: %s QP %u goes back to PSN %u of %u, %u tries left\n",
		 sq->dev->name, qp->ibqp.qp_num, sq->una, sq->snd_max, qp->s_retry);
	if (qp->s_retry) {
		qp->s_retry--;
	} else if (!shca_apm_migrate_on_exhaustion(sq)) {
		fail(sq, IB_WC_RETRY_EXC_ERR);
		return;
	}
	stop_timer(sq);
	go_back(sq);
	shca_kick(sq);
}

static void progress(struct shca_qp *sq, u32 una)
{
	struct rvt_qp *qp = sq->qp;

	sq->una = una & SHCA_PSN_MASK;
	qp->s_last_psn = sq->una - 1;
	qp->s_retry = qp->s_retry_cnt;
	qp->s_rnr_retry = qp->s_rnr_retry_cnt;
	sq->implied_nak = false;
	sq->cautious = false;
	if (psn_cmp(qp->s_psn, sq->una) < 0)
		qp->s_psn = sq->una;
	skip_sent(sq);
	complete_done(sq);
	stop_timer(sq);
	if (anything_outstanding(sq) && !(qp->s_flags & RVT_S_WAIT_RNR) &&
	    ib_rvt_state_ops[qp->state] & RVT_PROCESS_SEND_OK)
		start_timer(sq);
}

/*
 * Takes everything below PSN upto as acknowledged, but stops at a READ or atomic
 * whose response has not come (9.7.5.1.2). Whether it got all the way.
 */
static bool acknowledge(struct shca_qp *sq, u32 upto)
{
	struct rvt_qp *qp = sq->qp;
	u32 una = upto;
	u32 i;

	for (i = qp->s_last; i != READ_ONCE(qp->s_head); i = next_index(qp, i)) {
		struct rvt_swqe *wqe = rvt_get_swqe_ptr(qp, i);

		if (psn_cmp(wqe->psn, upto) >= 0)
			break;
		if (!is_local(wqe) && has_response(wqe) && psn_cmp(wqe->lpsn, sq->una) >= 0) {
			una = psn_cmp(wqe->psn, sq->una) > 0 ? wqe->psn : sq->una;
			break;
		}
	}
	if (psn_cmp(una, sq->una) > 0)
		progress(sq, una);
	return psn_cmp(sq->una, upto) >= 0;
}

/* A response is missing. Once for each gap: what is in flight shows it again. */
static void implied_nak(struct shca_qp *sq)
{
	if (sq->implied_nak)
		return;
	retry(sq);
	sq->implied_nak = true;
}

static void handle_rnr(struct shca_qp *sq, u8 timer)
{
	struct rvt_qp *qp = sq->qp;

	if (qp->s_flags & RVT_S_WAIT_RNR || !anything_outstanding(sq))
		return;
	if (!qp->s_rnr_retry) {
		fail(sq, IB_WC_RNR_RETRY_EXC_ERR);
		return;
	}
	if (qp->s_rnr_retry_cnt < 7)	/* 7: for ever */
		qp->s_rnr_retry--;
	stop_timer(sq);
	go_back(sq);
	rvt_add_rnr_timer(qp, (u32)timer << IB_AETH_CREDIT_SHIFT);
}

static void handle_nak(struct shca_qp *sq, u8 syndrome)
{
	switch (syndrome) {
	case IB_NAK_PSN_ERROR:
		retry(sq);
		break;
	case IB_NAK_INVALID_REQUEST:
		fail(sq, IB_WC_REM_INV_REQ_ERR);
		break;
	case IB_NAK_REMOTE_ACCESS_ERROR:
		fail(sq, IB_WC_REM_ACCESS_ERR);
		break;
	case IB_NAK_REMOTE_OPERATIONAL_ERROR:
		fail(sq, IB_WC_REM_OP_ERR);
		break;
	default:
		break;	/* reserved: 9.7.5.2.8 has it ignored */
	}
}

static void handle_aeth(struct shca_qp *sq, const struct shca_packet *pkt)
{
	u8 syndrome = pkt->aeth.syndrome;
	bool ack = !(syndrome >> 5);

	if (psn_cmp(pkt->psn, sq->una) < 0)
		return;
	/* An ACK includes its own PSN; a NAK acknowledges what comes before it. */
	if (!acknowledge(sq, ack ? pkt->psn + 1 : pkt->psn)) {
		implied_nak(sq);
		return;
	}
	if (ack || !(ib_rvt_state_ops[sq->qp->state] & RVT_PROCESS_SEND_OK))
		return;
	if ((syndrome & 0x60) == IB_RNR_NAK)
		handle_rnr(sq, syndrome & 0x1f);
	else
		handle_nak(sq, syndrome);
}

static bool store_response(struct shca_qp *sq, struct rvt_swqe *wqe,
			   const struct shca_packet *pkt)
{
	struct rvt_qp *qp = sq->qp;
	u32 offset = psn_diff(pkt->psn, wqe->psn) << qp->log_pmtu;
	u64 result = pkt->atomic_ack;

	if (pkt->opcode == IB_OPCODE_RC_ATOMIC_ACKNOWLEDGE) {
		if (!is_atomic(wqe))
			return false;
		rvt_copy_sge(qp, gather(&sq->rx, wqe, pkt->psn, 0), &result, sizeof(result),
			     false, false);
		return true;
	}
	if (wqe->wr.opcode != IB_WR_RDMA_READ ||
	    pkt->payload_len != min_t(u32, wqe->length - offset, qp->pmtu))
		return false;
	if (pkt->payload_len)
		rvt_copy_sge(qp, gather(&sq->rx, wqe, pkt->psn, offset),
			     (void *)pkt->payload, pkt->payload_len, false, false);
	return true;
}

static void handle_data(struct shca_qp *sq, const struct shca_packet *pkt)
{
	struct rvt_qp *qp = sq->qp;
	struct rvt_swqe *wqe;

	if (psn_cmp(pkt->psn, sq->una) < 0)
		return;
	if (!acknowledge(sq, pkt->psn)) {
		implied_nak(sq);
		return;
	}
	if (qp->s_last == READ_ONCE(qp->s_head))
		return;
	wqe = rvt_get_swqe_ptr(qp, qp->s_last);
	if (psn_cmp(wqe->psn, pkt->psn) > 0 || !has_response(wqe))
		return;
	if (!store_response(sq, wqe, pkt)) {
		fail(sq, IB_WC_BAD_RESP_ERR);
		return;
	}
	if (sq->reads_out && (pkt->opcode == IB_OPCODE_RC_ATOMIC_ACKNOWLEDGE ||
			      !psn_cmp(pkt->psn, chunk_end(wqe, pkt->psn))))
		sq->reads_out--;
	progress(sq, pkt->psn + 1);
}

void shca_rc_response(struct shca_qp *sq, const struct shca_packet *pkt)
{
	if (!(ib_rvt_state_ops[sq->qp->state] & RVT_PROCESS_SEND_OK))
		return;
	if (psn_cmp(pkt->psn, sq->snd_max) >= 0)
		return;		/* answers nothing that was ever asked */
	if (pkt->opcode == IB_OPCODE_RC_ACKNOWLEDGE)
		handle_aeth(sq, pkt);
	else
		handle_data(sq, pkt);
}

/* rdmavt's timer ran out. Both locks are held. */
void shca_rc_restart(struct rvt_qp *qp, u32 psn, int wait)
{
	struct shca_qp *sq = to_shca_qp(qp);

	if (!(ib_rvt_state_ops[qp->state] & RVT_PROCESS_SEND_OK))
		return;
	/* It was stopped and started anew while its handler waited for the locks. */
	if (time_before(jiffies, sq->ack_deadline)) {
		qp->s_flags |= RVT_S_TIMER;
		mod_timer(&qp->s_timer, sq->ack_deadline);
		return;
	}
	sq->cautious = true;
	retry(sq);
}

void shca_req_reset(struct shca_qp *sq, u32 psn)
{
	sq->una = psn & SHCA_PSN_MASK;
	sq->snd_max = sq->una;
	sq->reads_out = 0;
	sq->implied_nak = false;
	sq->cautious = false;
	sq->tx.wqe = NULL;
	sq->rx.wqe = NULL;
}
