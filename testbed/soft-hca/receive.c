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

bool shca_is_multicast(u16 dlid)
{
	return dlid >= be16_to_cpu(IB_MULTICAST_LID_BASE) &&
	       dlid != be16_to_cpu(IB_LID_PERMISSIVE);
}

static bool is_own(struct shca_dev *dev, u32 port_num, const struct rvt_qp *qp,
		   const struct shca_packet *pkt)
{
	u16 lid = fabric_port_lid(shca_port(dev, port_num)->fabric);
	u8 lmc = fabric_port_lmc(shca_port(dev, port_num)->fabric);

	return pkt->deth.src_qpn == qp->ibqp.qp_num && pkt->slid >> lmc == lid >> lmc;
}

/* A copy for each QP attached to the group (IBA 10.5.2), but not for the sender. */
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
	list_for_each_entry_rcu(member, &group->qp_list, list) {
		if (!is_own(dev, port_num, member->qp, pkt))
			deliver(member->qp, port_num, pkt);
	}
	/* Whoever detaches the last member waits for its readers. */
	if (atomic_dec_return(&group->refcount) <= 1)
		wake_up(&group->wait);
}

void shca_receive(struct shca_dev *dev, u32 port_num, struct shca_packet *pkt)
{
	struct rvt_qp *qp;

	rcu_read_lock();
	if (READ_ONCE(dev->hears)) {
		if (shca_is_multicast(pkt->dlid)) {
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

static void deliver_copies(struct work_struct *work)
{
	struct shca_port *port = container_of(work, struct shca_port, copies_work);
	struct shca_packet *pkt, *next;
	LIST_HEAD(copies);

	spin_lock_irq(&port->copies_lock);
	list_splice_init(&port->copies, &copies);
	spin_unlock_irq(&port->copies_lock);
	list_for_each_entry_safe(pkt, next, &copies, list) {
		list_del_init(&pkt->list);
		shca_receive(port->dev, port->num, pkt);
		cond_resched();
	}
}

/*
 * The fabric brings no multicast back to where it came from. To the other members
 * on the sender's port its HCA hands it, as an HCA does.
 */
void shca_copy_multicast(struct shca_port *port, const struct shca_packet *pkt)
{
	struct shca_packet *copy;
	unsigned long flags;

	if (fabric_port_state(port->fabric) != IB_PORT_ACTIVE)
		return;
	copy = shca_packet_dup(pkt, GFP_ATOMIC);
	if (!copy)
		return;
	spin_lock_irqsave(&port->copies_lock, flags);
	list_add_tail(&copy->list, &port->copies);
	spin_unlock_irqrestore(&port->copies_lock, flags);
	queue_work(port->dev->wq, &port->copies_work);
}

void shca_copies_init(struct shca_port *port)
{
	spin_lock_init(&port->copies_lock);
	INIT_LIST_HEAD(&port->copies);
	INIT_WORK(&port->copies_work, deliver_copies);
}

void shca_copies_stop(struct shca_port *port)
{
	cancel_work_sync(&port->copies_work);
	/* Frees what is left: the device hears nothing any more. */
	deliver_copies(&port->copies_work);
}
