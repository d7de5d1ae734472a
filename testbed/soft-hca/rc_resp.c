// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Responder of the connected services, IBA vol. 1, 9.7 (RC) and 9.8 (UC).
 *
 * A request is executed, and answered, when its packet arrives, so that answers
 * leave in PSN order. No memory region is held between packets: the rest of an
 * RDMA WRITE is checked again with each of its packets.
 */
#include "shca.h"

/* What execute() says besides the NAK codes of <rdma/ib_hdrs.h>. */
#define DONE 0
#define RNR IB_RNR_NAK
#define DIED 0xff	/* a local error has put the QP into Error */

static bool is_first(u8 op)
{
	switch (op) {
	case IB_OPCODE_SEND_FIRST:
	case IB_OPCODE_SEND_ONLY:
	case IB_OPCODE_SEND_ONLY_WITH_IMMEDIATE:
	case IB_OPCODE_SEND_ONLY_WITH_INVALIDATE:
	case IB_OPCODE_RDMA_WRITE_FIRST:
	case IB_OPCODE_RDMA_WRITE_ONLY:
	case IB_OPCODE_RDMA_WRITE_ONLY_WITH_IMMEDIATE:
		return true;
	default:
		return false;
	}
}

static bool is_last(u8 op)
{
	switch (op) {
	case IB_OPCODE_SEND_FIRST:
	case IB_OPCODE_SEND_MIDDLE:
	case IB_OPCODE_RDMA_WRITE_FIRST:
	case IB_OPCODE_RDMA_WRITE_MIDDLE:
		return false;
	default:
		return true;
	}
}

static enum shca_message message_of(u8 op)
{
	if (op >= IB_OPCODE_RDMA_WRITE_FIRST && op <= IB_OPCODE_RDMA_WRITE_ONLY_WITH_IMMEDIATE)
		return SHCA_WRITE;
	if (op <= IB_OPCODE_SEND_ONLY_WITH_IMMEDIATE ||
	    op == IB_OPCODE_SEND_LAST_WITH_INVALIDATE || op == IB_OPCODE_SEND_ONLY_WITH_INVALIDATE)
		return SHCA_SEND;
	return SHCA_NO_MESSAGE;
}

static bool has_immediate(u8 op)
{
	return op == IB_OPCODE_SEND_LAST_WITH_IMMEDIATE ||
	       op == IB_OPCODE_SEND_ONLY_WITH_IMMEDIATE ||
	       op == IB_OPCODE_RDMA_WRITE_LAST_WITH_IMMEDIATE ||
	       op == IB_OPCODE_RDMA_WRITE_ONLY_WITH_IMMEDIATE;
}

static bool has_invalidate(u8 op)
{
	return op == IB_OPCODE_SEND_LAST_WITH_INVALIDATE ||
	       op == IB_OPCODE_SEND_ONLY_WITH_INVALIDATE;
}

/* IBA 9.7.4.1.6: first and middle packets are full, a last one is not empty. */
static bool length_fits(const struct rvt_qp *qp, u8 op, u32 len)
{
	if (!is_last(op))
		return len == qp->pmtu;
	return len <= qp->pmtu && (len || is_first(op));
}

/* ---- answers ---- */

static struct shca_packet *answer(struct rvt_qp *qp, u8 opcode, u32 psn, u32 payload_len)
{
	struct shca_packet *pkt = shca_packet_alloc(payload_len, GFP_ATOMIC);

	if (!pkt)
		return NULL;	/* as if lost on the wire */
	pkt->opcode = opcode;
	pkt->psn = psn;
	pkt->aeth.syndrome = IB_AETH_CREDIT_INVAL;
	pkt->aeth.msn = qp->r_msn & IB_MSN_MASK;
	shca_connected_address(qp, pkt);
	return pkt;
}

static void send_aeth(struct rvt_qp *qp, u32 psn, u8 syndrome)
{
	struct shca_packet *pkt = answer(qp, IB_OPCODE_RC_ACKNOWLEDGE, psn, 0);

	if (!pkt)
		return;
	pkt->aeth.syndrome = syndrome;
	shca_transmit(qp, pkt);
}

static void answer_atomic(struct rvt_qp *qp, u32 psn, u64 result)
{
	struct shca_packet *pkt = answer(qp, IB_OPCODE_RC_ATOMIC_ACKNOWLEDGE, psn, 0);

	if (!pkt)
		return;
	pkt->atomic_ack = result;
	shca_transmit(qp, pkt);
}

static u32 read_packets(const struct rvt_qp *qp, u32 length)
{
	return length ? (length + qp->pmtu - 1) >> qp->log_pmtu : 1;
}

static u8 read_opcode(bool first, bool last)
{
	if (first)
		return last ? IB_OPCODE_RC_RDMA_READ_RESPONSE_ONLY :
			      IB_OPCODE_RC_RDMA_READ_RESPONSE_FIRST;
	return last ? IB_OPCODE_RC_RDMA_READ_RESPONSE_LAST :
		      IB_OPCODE_RC_RDMA_READ_RESPONSE_MIDDLE;
}

static u8 answer_read(struct shca_qp *sq, const struct shca_packet *req)
{
	struct rvt_qp *qp = sq->qp;
	struct rvt_sge_state ss = { .num_sge = 1 };
	u32 left = req->reth.length;
	u32 packets = read_packets(qp, left);
	u32 i;

	if (left && !rvt_rkey_ok(qp, &ss.sge, left, req->reth.vaddr, req->reth.rkey,
				 IB_ACCESS_REMOTE_READ))
		return IB_NAK_REMOTE_ACCESS_ERROR;
	for (i = 0; i < packets; i++) {
		u32 len = min_t(u32, left, qp->pmtu);
		struct shca_packet *pkt = answer(qp, read_opcode(!i, i == packets - 1),
						 req->psn + i, len);

		left -= len;
		if (!pkt) {
			rvt_skip_sge(&ss, len, false);
			continue;
		}
		shca_copy_out(&ss, pkt->payload, len);
		shca_transmit(qp, pkt);
	}
	if (req->reth.length)
		rvt_put_mr(ss.sge.mr);
	return DONE;
}

/* ---- execution ---- */

/* Takes a receive WQE for a message; one left from a broken message comes first. */
static u8 take_rwqe(struct shca_qp *sq, bool wr_id_only)
{
	struct rvt_qp *qp = sq->qp;

	if (!sq->reuse_rwqe) {
		int ret = rvt_get_rwqe(qp, wr_id_only);

		if (!ret)
			return RNR;
		if (ret < 0)
			return IB_NAK_REMOTE_OPERATIONAL_ERROR;
	}
	sq->reuse_rwqe = false;
	qp->r_rcv_len = 0;
	sq->scatter = qp->r_sge;
	return DONE;
}

static u8 begin_write(struct shca_qp *sq, const struct shca_packet *pkt)
{
	struct rvt_qp *qp = sq->qp;
	struct rvt_sge sge;

	if (!(qp->qp_access_flags & IB_ACCESS_REMOTE_WRITE))
		return IB_NAK_INVALID_REQUEST;
	if (pkt->reth.length) {
		if (!rvt_rkey_ok(qp, &sge, pkt->reth.length, pkt->reth.vaddr, pkt->reth.rkey,
				 IB_ACCESS_REMOTE_WRITE))
			return IB_NAK_REMOTE_ACCESS_ERROR;
		rvt_put_mr(sge.mr);
	}
	sq->write_addr = pkt->reth.vaddr;
	sq->write_rkey = pkt->reth.rkey;
	sq->write_left = pkt->reth.length;
	qp->r_rcv_len = 0;
	return DONE;
}

static u8 write_payload(struct shca_qp *sq, const struct shca_packet *pkt)
{
	struct rvt_sge_state ss = { .num_sge = 1 };
	struct rvt_qp *qp = sq->qp;
	u32 len = pkt->payload_len;

	if (len > sq->write_left || (is_last(pkt->opcode & 0x1f) && len != sq->write_left))
		return IB_NAK_INVALID_REQUEST;
	if (!len)
		return DONE;
	if (!rvt_rkey_ok(qp, &ss.sge, len, sq->write_addr, sq->write_rkey,
			 IB_ACCESS_REMOTE_WRITE))
		return IB_NAK_REMOTE_ACCESS_ERROR;
	/* A program that polls the end of the buffer must see it written last. */
	rvt_copy_sge(qp, &ss, (void *)pkt->payload, len, true, is_last(pkt->opcode & 0x1f));
	sq->write_addr += len;
	sq->write_left -= len;
	return DONE;
}

static u8 send_payload(struct shca_qp *sq, const struct shca_packet *pkt)
{
	struct rvt_qp *qp = sq->qp;

	if (qp->r_rcv_len + pkt->payload_len > qp->r_len)
		return IB_NAK_INVALID_REQUEST;
	rvt_copy_sge(qp, &sq->scatter, (void *)pkt->payload, pkt->payload_len, false, false);
	return DONE;
}

static void complete_receive(struct shca_qp *sq, const struct shca_packet *pkt, u8 op)
{
	struct rvt_qp *qp = sq->qp;
	struct ib_wc wc = {
		.wr_id = qp->r_wr_id,
		.status = IB_WC_SUCCESS,
		.opcode = message_of(op) == SHCA_WRITE ? IB_WC_RECV_RDMA_WITH_IMM : IB_WC_RECV,
		.byte_len = qp->r_rcv_len,
		.qp = &qp->ibqp,
		.src_qp = qp->remote_qpn,
		.slid = pkt->slid,
		.sl = pkt->sl,
		.port_num = qp->port_num,
	};

	if (has_immediate(op)) {
		wc.ex.imm_data = pkt->immdata;
		wc.wc_flags = IB_WC_WITH_IMM;
	} else if (has_invalidate(op)) {
		wc.ex.invalidate_rkey = pkt->ieth_rkey;
		wc.wc_flags = IB_WC_WITH_INVALIDATE;
	}
	rvt_put_ss(&qp->r_sge);
	clear_bit(RVT_R_WRID_VALID, &qp->r_aflags);
	rvt_recv_cq(qp, &wc, pkt->solicited);
}

/* A packet of a SEND or RDMA WRITE that has the expected PSN. */
static u8 execute_message(struct shca_qp *sq, const struct shca_packet *pkt, u8 op)
{
	struct rvt_qp *qp = sq->qp;
	enum shca_message kind = message_of(op);
	bool write_imm = kind == SHCA_WRITE && has_immediate(op);
	u8 ret = DONE;

	if (is_first(op) ? sq->message != SHCA_NO_MESSAGE : sq->message != kind)
		return IB_NAK_INVALID_REQUEST;
	if (!length_fits(qp, op, pkt->payload_len))
		return IB_NAK_INVALID_REQUEST;
	if (is_first(op))
		ret = kind == SHCA_WRITE ? begin_write(sq, pkt) : take_rwqe(sq, false);
	if (ret)
		return ret;
	if (kind == SHCA_SEND)
		sq->message = SHCA_SEND;	/* it holds a receive WQE from here on */
	if (has_invalidate(op) && rvt_invalidate_rkey(qp, pkt->ieth_rkey))
		return IB_NAK_REMOTE_ACCESS_ERROR;
	if (write_imm) {
		u32 received = qp->r_rcv_len;

		/* Not ready: the packet comes again, its message is still in progress. */
		ret = take_rwqe(sq, true);
		qp->r_rcv_len = received;
		if (ret)
			return ret;
	}
	ret = kind == SHCA_WRITE ? write_payload(sq, pkt) : send_payload(sq, pkt);
	if (ret)
		return ret;
	qp->r_rcv_len += pkt->payload_len;
	sq->message = is_last(op) ? SHCA_NO_MESSAGE : kind;
	if (!is_last(op))
		return DONE;
	qp->r_msn++;
	if (kind == SHCA_SEND || write_imm)
		complete_receive(sq, pkt, op);
	return ib_rvt_state_ops[qp->state] & RVT_PROCESS_RECV_OK ? DONE : DIED;
}

/*
 * Whether more READs and atomics are outstanding than max_dest_rd_atomic provides
 * for (9.7.5.2.8, "responder resources"): the requester sent this one before the
 * answer to one so far back was even begun. Answers take no time here, so that
 * counting what is not yet answered would never find any.
 */
static bool resources_exceeded(const struct shca_qp *sq, const struct shca_packet *pkt)
{
	u32 limit = min_t(u32, sq->qp->r_max_rd_atomic, SHCA_MAX_RD_ATOMIC);

	if (!limit)
		return true;
	return sq->answered[(sq->next_answered - limit) % SHCA_MAX_RD_ATOMIC] >= pkt->sent;
}

static void note_answered(struct shca_qp *sq)
{
	sq->answered[sq->next_answered++ % SHCA_MAX_RD_ATOMIC] = shca_packets_sent();
}

static u8 execute_read(struct shca_qp *sq, const struct shca_packet *pkt)
{
	struct rvt_qp *qp = sq->qp;
	u8 ret;

	if (sq->message != SHCA_NO_MESSAGE || !(qp->qp_access_flags & IB_ACCESS_REMOTE_READ) ||
	    resources_exceeded(sq, pkt) || read_packets(qp, pkt->reth.length) > SHCA_READ_CHUNK)
		return IB_NAK_INVALID_REQUEST;
	qp->r_msn++;
	note_answered(sq);
	ret = answer_read(sq, pkt);
	if (ret == DONE)
		qp->r_psn += read_packets(qp, pkt->reth.length) - 1;
	return ret;
}

static u8 execute_atomic(struct shca_qp *sq, const struct shca_packet *pkt)
{
	struct rvt_qp *qp = sq->qp;
	struct shca_saved_atomic *saved;
	struct rvt_sge sge;
	u64 *target;

	if (sq->message != SHCA_NO_MESSAGE || !(qp->qp_access_flags & IB_ACCESS_REMOTE_ATOMIC) ||
	    resources_exceeded(sq, pkt) || pkt->atomic.vaddr & (sizeof(u64) - 1))
		return IB_NAK_INVALID_REQUEST;
	if (!rvt_rkey_ok(qp, &sge, sizeof(u64), pkt->atomic.vaddr, pkt->atomic.rkey,
			 IB_ACCESS_REMOTE_ATOMIC))
		return IB_NAK_REMOTE_ACCESS_ERROR;
	saved = &sq->atomics[sq->next_atomic++ % ARRAY_SIZE(sq->atomics)];
	saved->valid = true;
	saved->opcode = pkt->opcode;
	saved->psn = pkt->psn;
	target = sge.vaddr;
	if (pkt->opcode == IB_OPCODE_RC_FETCH_ADD)
		saved->result = atomic64_fetch_add(pkt->atomic.swap_add, (atomic64_t *)target);
	else
		saved->result = cmpxchg(target, pkt->atomic.compare, pkt->atomic.swap_add);
	rvt_put_mr(sge.mr);
	qp->r_msn++;
	note_answered(sq);
	answer_atomic(qp, pkt->psn, saved->result);
	return DONE;
}

static u8 execute(struct shca_qp *sq, const struct shca_packet *pkt)
{
	switch (pkt->opcode) {
	case IB_OPCODE_RC_RDMA_READ_REQUEST:
		return execute_read(sq, pkt);
	case IB_OPCODE_RC_COMPARE_SWAP:
	case IB_OPCODE_RC_FETCH_ADD:
		return execute_atomic(sq, pkt);
	default:
		if (message_of(pkt->opcode) == SHCA_NO_MESSAGE)
			return IB_NAK_INVALID_REQUEST;
		return execute_message(sq, pkt, pkt->opcode);
	}
}

/*
 * A request with a PSN already passed: its answer was lost, or is on its way. It
 * is answered again. Only a READ is executed again (9.7.5.1.4 ff.).
 */
static void repeat_answer(struct shca_qp *sq, const struct shca_packet *pkt)
{
	struct rvt_qp *qp = sq->qp;
	u32 i;

	switch (pkt->opcode) {
	case IB_OPCODE_RC_RDMA_READ_REQUEST:
		if (psn_cmp(pkt->psn + read_packets(qp, pkt->reth.length), qp->r_psn) <= 0 &&
		    read_packets(qp, pkt->reth.length) <= SHCA_READ_CHUNK)
			answer_read(sq, pkt);
		break;
	case IB_OPCODE_RC_COMPARE_SWAP:
	case IB_OPCODE_RC_FETCH_ADD:
		for (i = 0; i < ARRAY_SIZE(sq->atomics); i++) {
			struct shca_saved_atomic *saved = &sq->atomics[i];

			if (saved->valid && saved->psn == pkt->psn && saved->opcode == pkt->opcode)
				answer_atomic(qp, pkt->psn, saved->result);
		}
		break;
	default:
		if (pkt->ack_req)
			send_aeth(qp, pkt->psn, IB_AETH_CREDIT_INVAL);
	}
}

static void nak_and_die(struct shca_qp *sq, u32 psn, u8 nak)
{
	struct rvt_qp *qp = sq->qp;

	send_aeth(qp, psn, nak);
	switch (nak) {
	case IB_NAK_REMOTE_ACCESS_ERROR:
		shca_qp_fatal(qp, IB_WC_LOC_PROT_ERR);
		shca_qp_event(qp, IB_EVENT_QP_ACCESS_ERR);
		break;
	case IB_NAK_INVALID_REQUEST:
		/* The receive WQE in use, if any, was too short. */
		shca_qp_fatal(qp, IB_WC_LOC_LEN_ERR);
		shca_qp_event(qp, IB_EVENT_QP_REQ_ERR);
		break;
	default:
		shca_qp_fatal(qp, IB_WC_LOC_QP_OP_ERR);
		shca_qp_event(qp, IB_EVENT_QP_FATAL);
	}
}

static void note_first_packet(struct rvt_qp *qp)
{
	/* Not rvt_comm_est(), which calls the handler under the QP's locks. */
	if (qp->state == IB_QPS_RTR && !(qp->r_flags & RVT_R_COMM_EST)) {
		qp->r_flags |= RVT_R_COMM_EST;
		shca_qp_event(qp, IB_EVENT_COMM_EST);
	}
}

void shca_rc_request(struct shca_qp *sq, const struct shca_packet *pkt)
{
	struct rvt_qp *qp = sq->qp;
	int order = psn_cmp(pkt->psn, qp->r_psn);
	u8 ret;

	note_first_packet(qp);
	if (order < 0) {
		repeat_answer(sq, pkt);
		return;
	}
	if (order > 0) {
		/* Once, until the missing packet comes (9.7.5.2.8). */
		if (!qp->r_nak_state)
			send_aeth(qp, qp->r_psn, IB_NAK_PSN_ERROR);
		qp->r_nak_state = IB_NAK_PSN_ERROR;
		return;
	}
	qp->r_nak_state = 0;
	ret = execute(sq, pkt);
	switch (ret) {
	case DONE:
		qp->r_psn = (qp->r_psn + 1) & SHCA_PSN_MASK;
		if (pkt->ack_req && message_of(pkt->opcode) != SHCA_NO_MESSAGE)
			send_aeth(qp, pkt->psn, IB_AETH_CREDIT_INVAL);
		break;
	case RNR:
		send_aeth(qp, pkt->psn, IB_RNR_NAK | qp->r_min_rnr_timer);
		qp->r_nak_state = IB_RNR_NAK;
		break;
	case DIED:
		break;
	default:
		nak_and_die(sq, pkt->psn, ret);
	}
}

/* The rest of a UC message is missing. Its receive WQE serves the next one (9.8.2.2). */
static void drop_message(struct shca_qp *sq)
{
	if (sq->message == SHCA_SEND)
		sq->reuse_rwqe = true;
	sq->message = SHCA_NO_MESSAGE;
}

void shca_uc_request(struct shca_qp *sq, const struct shca_packet *pkt)
{
	struct rvt_qp *qp = sq->qp;
	u8 op = pkt->opcode & 0x1f;
	u8 ret;

	note_first_packet(qp);
	if (message_of(op) == SHCA_NO_MESSAGE || has_invalidate(op))
		return;
	if (psn_cmp(pkt->psn, qp->r_psn) || is_first(op))
		drop_message(sq);
	qp->r_psn = (pkt->psn + 1) & SHCA_PSN_MASK;
	if (!is_first(op) && sq->message == SHCA_NO_MESSAGE)
		return;		/* the rest of a message that was dropped */
	ret = execute_message(sq, pkt, op);
	if (ret && ret != DIED)
		drop_message(sq);
	if (ret == IB_NAK_REMOTE_OPERATIONAL_ERROR)
		shca_qp_fatal(qp, IB_WC_LOC_QP_OP_ERR);
}

void shca_resp_reset(struct shca_qp *sq)
{
	sq->message = SHCA_NO_MESSAGE;
	sq->reuse_rwqe = false;
	memset(sq->atomics, 0, sizeof(sq->atomics));
	sq->next_atomic = 0;
	memset(sq->answered, 0, sizeof(sq->answered));
	sq->next_answered = 0;
}
