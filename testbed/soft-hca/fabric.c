// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * End ports of the HCAs, the wires, and delivery.
 *
 * A packet's whole way, wire by wire and table by table, is decided when it is
 * sent; where it ends it waits in a queue that a worker empties in order.
 */
#include <linux/random.h>
#include <linux/slab.h>
#include "fabric_int.h"

#define RX_LIMIT	8192	/* packets waiting at one port */
#define RX_BATCH	32	/* of them delivered in one run of the worker */

struct fabric fabric = {
	.lock = __SPIN_LOCK_UNLOCKED(fabric.lock),
};

/* ---- counting ---- */

/* Bytes of the extended transport headers by the low five bits of the opcode. */
static const u8 extended_header_len[32] = {
	[IB_OPCODE_SEND_LAST_WITH_IMMEDIATE] = 4,
	[IB_OPCODE_SEND_ONLY_WITH_IMMEDIATE] = 4,
	[IB_OPCODE_RDMA_WRITE_FIRST] = 16,
	[IB_OPCODE_RDMA_WRITE_LAST_WITH_IMMEDIATE] = 4,
	[IB_OPCODE_RDMA_WRITE_ONLY] = 16,
	[IB_OPCODE_RDMA_WRITE_ONLY_WITH_IMMEDIATE] = 20,
	[IB_OPCODE_RDMA_READ_REQUEST] = 16,
	[IB_OPCODE_RDMA_READ_RESPONSE_FIRST] = 4,
	[IB_OPCODE_RDMA_READ_RESPONSE_LAST] = 4,
	[IB_OPCODE_RDMA_READ_RESPONSE_ONLY] = 4,
	[IB_OPCODE_ACKNOWLEDGE] = 4,
	[IB_OPCODE_ATOMIC_ACKNOWLEDGE] = 12,
	[IB_OPCODE_COMPARE_SWAP] = 28,
	[IB_OPCODE_FETCH_ADD] = 28,
	[IB_OPCODE_SEND_LAST_WITH_INVALIDATE] = 4,
	[IB_OPCODE_SEND_ONLY_WITH_INVALIDATE] = 4,
};

/* PortXmitData counts words from the LRH to the ICRC, both included. */
static u32 packet_words(const struct shca_packet *pkt)
{
	u32 bytes = 8 + 12 + 4;

	if (pkt->has_grh)
		bytes += sizeof(pkt->grh);
	if ((pkt->opcode & 0xe0) == IB_OPCODE_UD)
		bytes += 8;
	bytes += extended_header_len[pkt->opcode & 0x1f];
	return (bytes + pkt->payload_len + 3) / 4;
}

static void count_xmit(struct fabric_port *port, const struct shca_packet *pkt)
{
	port->counters.total[CNT_XMIT_DATA] += packet_words(pkt);
	port_count(port, CNT_XMIT_PKTS);
	port_count(port, lid_is_multicast(pkt->dlid) ? CNT_MULTICAST_XMIT_PKTS :
						       CNT_UNICAST_XMIT_PKTS);
}

static void count_rcv(struct fabric_port *port, const struct shca_packet *pkt)
{
	port->counters.total[CNT_RCV_DATA] += packet_words(pkt);
	port_count(port, CNT_RCV_PKTS);
	port_count(port, lid_is_multicast(pkt->dlid) ? CNT_MULTICAST_RCV_PKTS :
						       CNT_UNICAST_RCV_PKTS);
}

/* ---- wires ---- */

static bool wire_loses(const struct fabric_port *from)
{
	u32 ppm = from->link->loss_ppm;

	if (from->silent || from->node->blackhole || port_peer(from)->node->blackhole)
		return true;
	/* 2^32 outcomes against a million: the bias is below 0.03 %. */
	return ppm && prandom_u32_state(&fabric.loss_dice) % 1000000 < ppm;
}

static bool hca_accepts(const struct fabric_port *port, const struct shca_packet *pkt)
{
	if (pkt->dlid == be16_to_cpu(IB_LID_PERMISSIVE))
		return packet_is_smp(pkt);
	return lid_is_multicast(pkt->dlid) || port_has_lid(port, pkt->dlid);
}

static void port_receive(struct fabric_port *port, struct shca_packet *pkt)
{
	if (!packet_is_smp(pkt)) {
		if (port->state == IB_PORT_INIT) {
			shca_packet_free(pkt);
			return;
		}
		/* IBA 7.2.7.2: data tells an Armed port that its neighbour is Active. */
		port_set_state(port, IB_PORT_ACTIVE);
	}
	count_rcv(port, pkt);
	if (node_is_switch(port->node))
		switch_receive(port, pkt);
	else if (hca_accepts(port, pkt))
		port_enqueue(port, pkt);
	else
		shca_packet_free(pkt);
}

static bool port_may_send(const struct fabric_port *port, const struct shca_packet *pkt)
{
	if (packet_is_smp(pkt))
		return port->state != IB_PORT_DOWN;
	return port->state == IB_PORT_ACTIVE &&
	       pkt->payload_len <= ib_mtu_enum_to_int(port->neighbor_mtu);
}

/* Over the wire to the other end of the link, whatever awaits it there. */
void port_send(struct fabric_port *from, struct shca_packet *pkt)
{
	if (!from->link || from->phys != IB_PORT_PHYS_STATE_LINK_UP ||
	    !port_may_send(from, pkt)) {
		port_count(from, CNT_XMIT_DISCARDS);
		shca_packet_free(pkt);
		return;
	}
	count_xmit(from, pkt);
	if (wire_loses(from)) {
		shca_packet_free(pkt);
		return;
	}
	port_receive(port_peer(from), pkt);
}

/* Where a packet's way ends: at an HCA port, or for the management of a switch. */
void port_enqueue(struct fabric_port *port, struct shca_packet *pkt)
{
	struct fabric_rx_queue *rx = &port->rx;

	if (rx->len >= RX_LIMIT) {
		if (packet_is_smp(pkt))
			port_count(port, CNT_VL15_DROPPED);
		else
			port_count(port_peer(port) ?: port, CNT_XMIT_DISCARDS);
		shca_packet_free(pkt);
		return;
	}
	list_add_tail(&pkt->list, &rx->packets);
	rx->len++;
	queue_work(fabric.wq, &rx->work);
}

/* A packet that the port's own node makes. */
void port_originate(struct fabric_port *port, struct shca_packet *pkt)
{
	if (node_is_switch(port->node))
		switch_route(port, pkt);
	else if (!port_has_lid(port, pkt->dlid))
		port_send(port, pkt);
	else if (packet_is_smp(pkt) || port->state == IB_PORT_ACTIVE)
		port_enqueue(port, pkt);	/* IBA 17.2.1: to itself */
	else
		shca_packet_free(pkt);
}

void fabric_transmit(struct fabric_port *fp, struct shca_packet *pkt)
{
	unsigned long flags;

	spin_lock_irqsave(&fabric.lock, flags);
	port_originate(fp, pkt);
	spin_unlock_irqrestore(&fabric.lock, flags);
}

/* ---- delivery ---- */

static void rx_run(struct work_struct *work)
{
	struct fabric_port *port = container_of(work, struct fabric_port, rx.work);
	struct shca_packet *pkt, *next;
	unsigned int taken = 0;
	LIST_HEAD(batch);
	bool more;

	spin_lock_irq(&fabric.lock);
	list_for_each_entry_safe(pkt, next, &port->rx.packets, list) {
		if (taken == RX_BATCH)
			break;
		list_move_tail(&pkt->list, &batch);
		taken++;
	}
	port->rx.len -= taken;
	more = port->rx.len;
	spin_unlock_irq(&fabric.lock);

	list_for_each_entry_safe(pkt, next, &batch, list) {
		list_del_init(&pkt->list);
		if (port->dev)
			shca_receive(port->dev, port->num, pkt);
		else
			switch_manage(port, pkt);
		cond_resched();
	}
	if (more)
		queue_work(fabric.wq, work);
}

/* ---- events ---- */

void port_event(struct fabric_port *port, enum ib_event_type event)
{
	struct fabric_event_queue *q = &port->events;

	if (!port->dev)
		return;
	if (q->len == FABRIC_EVENTS) {
		q->overrun = true;
		return;
	}
	q->event[(q->head + q->len++) % FABRIC_EVENTS] = event;
	queue_work(fabric.wq, &q->work);
}

static bool event_next(struct fabric_port *port, enum ib_event_type *event)
{
	struct fabric_event_queue *q = &port->events;

	if (!q->len && q->overrun) {
		/* Some were lost: tell again how things stand now. */
		q->overrun = false;
		port_event(port, IB_EVENT_LID_CHANGE);
		port_event(port, IB_EVENT_PKEY_CHANGE);
		port_event(port, IB_EVENT_GID_CHANGE);
		port_event(port, port->state == IB_PORT_ACTIVE ? IB_EVENT_PORT_ACTIVE :
								 IB_EVENT_PORT_ERR);
	}
	if (!q->len)
		return false;
	*event = q->event[q->head];
	q->head = (q->head + 1) % FABRIC_EVENTS;
	q->len--;
	return true;
}

static void event_run(struct work_struct *work)
{
	struct fabric_port *port = container_of(work, struct fabric_port, events.work);
	enum ib_event_type event;
	bool found;

	for (;;) {
		spin_lock_irq(&fabric.lock);
		found = event_next(port, &event);
		spin_unlock_irq(&fabric.lock);
		if (!found)
			return;
		shca_port_event(port->dev, port->num, event);
	}
}

/* ---- ports come and go ---- */

struct fabric_port *port_create(struct fabric_node *node, u8 num, __be64 guid)
{
	struct fabric_port *port = kzalloc(sizeof(*port), GFP_KERNEL);

	if (!port)
		return NULL;
	port->node = node;
	port->num = num;
	port->guid = guid;
	INIT_LIST_HEAD(&port->rx.packets);
	INIT_WORK(&port->rx.work, rx_run);
	INIT_WORK(&port->events.work, event_run);
	trap_init(port);
	port_init_attributes(port);
	return port;
}

void port_destroy(struct fabric_port *port)
{
	struct shca_packet *pkt, *next;

	spin_lock_irq(&fabric.lock);
	if (port->link) {
		port->link->end[port->end] = NULL;
		link_train(port->link);
	}
	port->node->port[port->num] = NULL;
	spin_unlock_irq(&fabric.lock);

	/* Nothing finds the port any more; what is under way ends here. */
	trap_stop(port);
	cancel_work_sync(&port->rx.work);
	cancel_work_sync(&port->events.work);
	list_for_each_entry_safe(pkt, next, &port->rx.packets, list)
		shca_packet_free(pkt);
	kfree(port);
}

void port_attach(struct fabric_port *port, struct fabric_link *link, u8 end)
{
	spin_lock_irq(&fabric.lock);
	port->node->port[port->num] = port;
	port->link = link;
	port->end = end;
	if (link) {
		link->end[end] = port;
		link_train(link);
	}
	spin_unlock_irq(&fabric.lock);
}

struct fabric_port *fabric_port_create(struct shca_dev *dev, unsigned int dev_index,
				       u32 port_num, __be64 node_guid, __be64 port_guid)
{
	struct fabric_node *node;
	struct fabric_port *port;

	if (dev_index >= FABRIC_MAX_HCAS || port_num < 1 || port_num > SHCA_PORTS)
		return NULL;
	node = &fabric.hca[dev_index];
	port = port_create(node, port_num, port_guid);
	if (!port)
		return NULL;

	port->dev = dev;
	port->cap_mask = IB_PORT_TRAP_SUP | IB_PORT_AUTO_MIGR_SUP | IB_PORT_SL_MAP_SUP |
			 IB_PORT_LED_INFO_SUP | IB_PORT_SYS_IMAGE_GUID_SUP | IB_PORT_CM_SUP |
			 IB_PORT_CAP_MASK_NOTICE_SUP | IB_PORT_CLIENT_REG_SUP |
			 IB_PORT_OTHER_LOCAL_CHANGES_SUP;
	node->guid = node_guid;
	node->num_ports = SHCA_PORTS;
	if (!node->desc[0])
		strscpy(node->desc, node->name, sizeof(node->desc));
	port_attach(port, &fabric.link[dev_index][port_num - 1], 0);
	return port;
}

void fabric_port_destroy(struct fabric_port *fp)
{
	port_destroy(fp);
}

/* ---- what the transport asks of a port ---- */

void fabric_query_port(struct fabric_port *fp, struct ib_port_attr *attr)
{
	unsigned long flags;

	spin_lock_irqsave(&fabric.lock, flags);
	attr->state = fp->state;
	attr->phys_state = fp->phys;
	attr->max_mtu = IB_MTU_4096;
	attr->active_mtu = fp->neighbor_mtu;
	attr->gid_tbl_len = 1;
	attr->pkey_tbl_len = SHCA_PKEYS;
	attr->port_cap_flags = fp->cap_mask;
	attr->max_msg_sz = 1U << 31;
	attr->bad_pkey_cntr = fp->pkey_violations;
	attr->qkey_viol_cntr = fp->qkey_violations;
	attr->lid = fp->lid;
	attr->sm_lid = fp->sm_lid;
	attr->lmc = fp->lmc;
	attr->max_vl_num = FABRIC_VLS;
	attr->sm_sl = fp->sm_sl;
	attr->subnet_timeout = fp->subnet_timeout;
	attr->init_type_reply = fp->init_type_reply;
	attr->active_width = IB_WIDTH_4X;
	attr->active_speed = IB_SPEED_QDR;
	spin_unlock_irqrestore(&fabric.lock, flags);
}

u16 fabric_port_lid(struct fabric_port *fp)
{
	return READ_ONCE(fp->lid);
}

u8 fabric_port_lmc(struct fabric_port *fp)
{
	return READ_ONCE(fp->lmc);
}

enum ib_port_state fabric_port_state(struct fabric_port *fp)
{
	return READ_ONCE(fp->state);
}

u8 fabric_port_mtu(struct fabric_port *fp)
{
	return READ_ONCE(fp->neighbor_mtu);
}

u8 fabric_sl_to_vl(struct fabric_port *fp, u8 sl)
{
	u8 pair = READ_ONCE(fp->sl_to_vl[0][(sl & 0xf) / 2]);

	return sl & 1 ? pair & 0xf : pair >> 4;
}

int fabric_query_pkey(struct fabric_port *fp, u16 index, u16 *pkey)
{
	if (index >= SHCA_PKEYS)
		return -EINVAL;
	*pkey = READ_ONCE(fp->pkeys[index]);
	return 0;
}

__be64 fabric_port_guid(struct fabric_port *fp)
{
	return fp->guid;
}

__be64 fabric_gid_prefix(struct fabric_port *fp)
{
	return READ_ONCE(fp->gid_prefix);
}

int fabric_modify_port(struct fabric_port *fp, int mask, struct ib_port_modify *modify)
{
	unsigned long flags;
	u32 caps;

	spin_lock_irqsave(&fabric.lock, flags);
	caps = (fp->cap_mask | modify->set_port_cap_mask) & ~modify->clr_port_cap_mask;
	if (caps != fp->cap_mask) {
		fp->cap_mask = caps;
		trap_local_change(fp, 0);
	}
	if (mask & IB_PORT_RESET_QKEY_CNTR)
		fp->qkey_violations = 0;
	if (mask & IB_PORT_INIT_TYPE)
		fp->init_type = modify->init_type & 0xf;
	if (mask & IB_PORT_SHUTDOWN)
		port_retrain(fp, fp->link_down_default);
	spin_unlock_irqrestore(&fabric.lock, flags);
	return 0;
}

static void count_violation(u16 *counter)
{
	unsigned long flags;

	spin_lock_irqsave(&fabric.lock, flags);
	if (*counter != U16_MAX)
		++*counter;
	spin_unlock_irqrestore(&fabric.lock, flags);
}

void fabric_count_qkey_violation(struct fabric_port *fp)
{
	count_violation(&fp->qkey_violations);
}

void fabric_count_pkey_violation(struct fabric_port *fp)
{
	count_violation(&fp->pkey_violations);
}

void fabric_set_node_desc(struct fabric_port *fp, const char desc[IB_DEVICE_NODE_DESC_MAX])
{
	struct fabric_node *node = fp->node;
	unsigned long flags;
	unsigned int i;

	spin_lock_irqsave(&fabric.lock, flags);
	memcpy(node->desc, desc, sizeof(node->desc));
	for (i = 1; i <= node->num_ports; i++)
		if (node->port[i])
			trap_local_change(node->port[i], IB_NOTICE_TRAP_NODE_DESC_CHG);
	spin_unlock_irqrestore(&fabric.lock, flags);
}

int fabric_process_mad(struct fabric_port *fp, int flags, const struct ib_wc *wc,
		       const struct ib_grh *grh, const struct ib_mad *in, struct ib_mad *out,
		       size_t *out_mad_size, u16 *out_mad_pkey_index)
{
	unsigned long irq;
	int ret = IB_MAD_RESULT_SUCCESS;

	spin_lock_irqsave(&fabric.lock, irq);
	switch (in->mad_hdr.mgmt_class) {
	case IB_MGMT_CLASS_SUBN_LID_ROUTED:
	case IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE:
		ret = sma_process(fp, fp->num, flags, (const struct ib_smp *)in,
				  (struct ib_smp *)out);
		break;
	case IB_MGMT_CLASS_PERF_MGMT:
		ret = pma_process(fp, in, out);
		break;
	}
	spin_unlock_irqrestore(&fabric.lock, irq);
	return ret;
}

/* ---- the whole ---- */

int fabric_init(void)
{
	unsigned int i;
	int ret = 0;

	fabric.wq = alloc_workqueue("shca_fabric", WQ_HIGHPRI | WQ_MEM_RECLAIM, 0);
	if (!fabric.wq)
		return -ENOMEM;
	prandom_seed_state(&fabric.loss_dice, get_random_u64());
	for (i = 0; i < FABRIC_MAX_HCAS; i++)
		snprintf(fabric.hca[i].name, sizeof(fabric.hca[i].name), "shca%u", i);
	for (i = 0; i < FABRIC_SWITCHES && !ret; i++)
		ret = switch_create(&fabric.sw[i], i);
	if (ret) {
		fabric_exit();
		return ret;
	}
	spin_lock_irq(&fabric.lock);
	fabric.ready = true;
	spin_unlock_irq(&fabric.lock);
	return 0;
}

void fabric_exit(void)
{
	unsigned int i;

	spin_lock_irq(&fabric.lock);
	fabric.ready = false;
	spin_unlock_irq(&fabric.lock);
	for (i = 0; i < FABRIC_SWITCHES; i++)
		switch_destroy(&fabric.sw[i]);
	destroy_workqueue(fabric.wq);
}
