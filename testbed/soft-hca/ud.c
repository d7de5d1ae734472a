// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Unreliable datagrams, and with them management datagrams on QP0 and QP1.
 * IBA vol. 1, 9.8.3, 10.2.5 (Q_Keys), 13.5 (special QPs).
 */
#include "shca.h"

#define GRH_BYTES sizeof(struct ib_grh)

static u16 pkey_to_send(struct shca_qp *sq, const struct rvt_swqe *wqe)
{
	struct rvt_qp *qp = sq->qp;

	switch (qp->ibqp.qp_type) {
	case IB_QPT_SMI:
		return 0xffff;
	case IB_QPT_GSI:
		return shca_pkey(sq->dev, qp->port_num, wqe->ud_wr.wr.pkey_index);
	default:
		return shca_pkey(sq->dev, qp->port_num, qp->s_pkey_index);
	}
}

static struct shca_packet *datagram(struct shca_qp *sq, struct rvt_swqe *wqe)
{
	struct rvt_sge_state ss = {
		.sg_list = wqe->sg_list + 1,
		.sge = wqe->sg_list[0],
		.num_sge = wqe->wr.num_sge,
		.total_len = wqe->length,
	};
	struct shca_packet *pkt = shca_packet_alloc(wqe->length, GFP_ATOMIC);
	u32 qkey = rvt_get_swqe_remote_qkey(wqe);
	struct rvt_qp *qp = sq->qp;

	if (!pkt)
		return NULL;
	if (!shca_copy_out(&ss, pkt->payload, wqe->length)) {
		shca_packet_free(pkt);
		return NULL;
	}
	shca_address(sq->dev, qp->port_num, rvt_get_swqe_ah_attr(wqe), pkt);
	if (qp->ibqp.qp_type == IB_QPT_SMI)
		pkt->vl = 15;
	pkt->opcode = IB_OPCODE_UD_SEND_ONLY;
	if (wqe->wr.opcode == IB_WR_SEND_WITH_IMM) {
		pkt->opcode = IB_OPCODE_UD_SEND_ONLY_WITH_IMMEDIATE;
		pkt->immdata = wqe->wr.ex.imm_data;
	}
	pkt->solicited = wqe->wr.send_flags & IB_SEND_SOLICITED;
	pkt->migreq = true;	/* IBA 9.2.3: always 1 where there is no connection */
	pkt->pkey = pkey_to_send(sq, wqe);
	pkt->dest_qpn = rvt_get_swqe_remote_qpn(wqe);
	pkt->psn = wqe->psn;
	/* IBA 10.2.5: a controlled Q_Key is asked for by its high bit; the QP's is used. */
	pkt->deth.qkey = qkey & 0x80000000 ? qp->qkey : qkey;
	pkt->deth.src_qpn = qp->ibqp.qp_num;
	return pkt;
}

/* Sends the next datagram. False when there is none, or the QP may not send. */
bool shca_ud_send_next(struct shca_qp *sq)
{
	struct rvt_qp *qp = sq->qp;
	struct shca_packet *pkt;
	struct rvt_swqe *wqe;

	if (!(ib_rvt_state_ops[qp->state] & RVT_PROCESS_NEXT_SEND_OK) ||
	    qp->s_last == READ_ONCE(qp->s_head))
		return false;
	smp_rmb(); /* with rvt_post_one_wr(): the head is written last */
	wqe = rvt_get_swqe_ptr(qp, qp->s_last);
	pkt = datagram(sq, wqe);
	if (pkt) {
		if (shca_is_multicast(pkt->dlid))
			shca_copy_multicast(shca_port(sq->dev, qp->port_num), pkt);
		shca_transmit(qp, pkt);
	}
	rvt_send_complete(qp, wqe, IB_WC_SUCCESS);
	return true;
}

/* Whether the packet's P_Key lets it in; for QP1 any key of the table does (10.9.4). */
static bool pkey_admits(struct shca_qp *sq, u32 port_num, u16 pkey, u16 *index)
{
	*index = 0;
	switch (sq->qp->ibqp.qp_type) {
	case IB_QPT_SMI:
		return true;
	case IB_QPT_GSI:
		for (; *index < SHCA_PKEYS; ++*index)
			if (shca_pkeys_match(shca_pkey(sq->dev, port_num, *index), pkey))
				return true;
		return false;
	default:
		*index = sq->qp->s_pkey_index;
		return shca_pkeys_match(shca_pkey(sq->dev, port_num, *index), pkey);
	}
}

static bool keys_admit(struct shca_qp *sq, u32 port_num, const struct shca_packet *pkt,
		       u16 *pkey_index)
{
	struct fabric_port *fp = shca_port(sq->dev, port_num)->fabric;

	if (!pkey_admits(sq, port_num, pkt->pkey, pkey_index)) {
		fabric_count_pkey_violation(fp);
		return false;
	}
	if (sq->qp->ibqp.qp_type != IB_QPT_SMI && pkt->deth.qkey != sq->qp->qkey) {
		fabric_count_qkey_violation(fp);
		return false;
	}
	return true;
}

void shca_ud_receive(struct shca_qp *sq, u32 port_num, const struct shca_packet *pkt)
{
	struct rvt_qp *qp = sq->qp;
	struct ib_wc wc = {
		.status = IB_WC_SUCCESS,
		.opcode = IB_WC_RECV,
		.byte_len = GRH_BYTES + pkt->payload_len,
		.qp = &qp->ibqp,
		.src_qp = pkt->deth.src_qpn,
		.slid = pkt->slid,
		.sl = pkt->sl,
		.port_num = port_num,
	};

	if (port_num != qp->port_num || !keys_admit(sq, port_num, pkt, &wc.pkey_index))
		return;
	if (!sq->reuse_rwqe) {
		int ret = rvt_get_rwqe(qp, false);

		if (ret < 0)
			shca_qp_fatal(qp, IB_WC_LOC_QP_OP_ERR);
		if (ret <= 0)
			return;
	}
	/* A datagram too long for the buffer is dropped, and the buffer kept for the next. */
	sq->reuse_rwqe = wc.byte_len > qp->r_len;
	if (sq->reuse_rwqe)
		return;
	sq->scatter = qp->r_sge;
	if (pkt->has_grh) {
		wc.wc_flags |= IB_WC_GRH;
		rvt_copy_sge(qp, &sq->scatter, (void *)&pkt->grh, GRH_BYTES, false, false);
	} else {
		rvt_skip_sge(&sq->scatter, GRH_BYTES, false);
	}
	rvt_copy_sge(qp, &sq->scatter, (void *)pkt->payload, pkt->payload_len, false, false);
	rvt_put_ss(&qp->r_sge);
	clear_bit(RVT_R_WRID_VALID, &qp->r_aflags);
	wc.wr_id = qp->r_wr_id;
	wc.dlid_path_bits = pkt->dlid & ((1 << fabric_port_lmc(shca_port(sq->dev,
							       port_num)->fabric)) - 1);
	if (pkt->opcode == IB_OPCODE_UD_SEND_ONLY_WITH_IMMEDIATE) {
		wc.ex.imm_data = pkt->immdata;
		wc.wc_flags |= IB_WC_WITH_IMM;
	}
	rvt_recv_cq(qp, &wc, pkt->solicited);
}
