// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * From an arrived packet to the queue pairs it is for.
 */
#include "shca.h"

static bool is_response(u8 opcode)
{
	return opcode >= IB_OPCODE_RC_RDMA_READ_RESPONSE_FIRST &&
	       opcode <= IB_OPCODE_RC_ATOMIC_ACKNOWLEDGE;
}

static void deliver_connected(struct shca_qp *sq, u32 port_num, const struct shca_packet *pkt)
{
	if (!shca_apm_admit(sq, port_num, pkt))
		return;
	if (sq->qp->allowed_ops == IB_OPCODE_UC)
		shca_uc_request(sq, pkt);
	else if (is_response(pkt->opcode))
		shca_rc_response(sq, pkt);
	else
		shca_rc_request(sq, pkt);
	/* A response makes room for more requests, and these need not wait for a worker. */
	if (is_response(pkt->opcode) && shca_send_run(sq, SHCA_READ_CHUNK))
		shca_kick(sq);
}

static void deliver(struct rvt_qp *qp, u32 port_num, const struct shca_packet *pkt)
{
	struct shca_qp *sq = to_shca_qp(qp);
	unsigned long flags = shca_qp_lock(qp);

	if (ib_rvt_state_ops[qp->state] & RVT_PROCESS_RECV_OK &&
	    (pkt->opcode & RVT_OPCODE_QP_MASK) == qp->allowed_ops) {
		if (qp->allowed_ops == IB_OPCODE_UD)
			shca_ud_receive(sq, port_num, pkt);
		else
			deliver_connected(sq, port_num, pkt);
	}
	shca_qp_unlock(qp, flags);
}

static bool is_multicast(u16 dlid)
{
	return dlid >= be16_to_cpu(IB_MULTICAST_LID_BASE) &&
	       dlid != be16_to_cpu(IB_LID_PERMISSIVE);
}

/* A copy for each QP attached to the group (IBA 10.5.2). */
static void deliver_multicast(struct shca_dev *dev, u32 port_num, const struct shca_packet *pkt)
{
	union ib_gid mgid = pkt->grh.dgid;
	struct rvt_mcast_qp *member;
	struct rvt_mcast *group;

	if (!pkt->has_grh)
		return;
	group = rvt_mcast_find(&shca_port(dev, port_num)->rvp, &mgid, pkt->dlid);
	if (!group)
		return;
	list_for_each_entry_rcu(member, &group->qp_list, list)
		deliver(member->qp, port_num, pkt);
	/* Whoever detaches the last member waits for its readers. */
	if (atomic_dec_return(&group->refcount) <= 1)
		wake_up(&group->wait);
}

void shca_receive(struct shca_dev *dev, u32 port_num, struct shca_packet *pkt)
{
	struct rvt_qp *qp;

	rcu_read_lock();
	if (READ_ONCE(dev->hears)) {
		if (is_multicast(pkt->dlid)) {
			deliver_multicast(dev, port_num, pkt);
		} else {
			qp = rvt_lookup_qpn(&dev->rdi, &shca_port(dev, port_num)->rvp,
					    pkt->dest_qpn);
			if (qp)
				deliver(qp, port_num, pkt);
		}
	}
	rcu_read_unlock();
	shca_packet_free(pkt);
}
