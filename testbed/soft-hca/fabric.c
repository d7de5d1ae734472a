// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Ports of any node, the wires, and delivery.
 *
 * A packet's whole way, wire by wire and table by table, is decided when it is
 * sent; where it ends it waits in a queue that a worker empties in order.
 */
#include <linux/random.h>
#include <linux/slab.h>
#include "fabric_int.h"

#define RX_LIMIT	8192	/* packets waiting at one port */
#define RX_BATCH	32	/* of them delivered in one run of the worker */

/*
 * What circles is discarded when its lifetime in a switch ends (IBA 18.2.5.4). Here
 * nothing takes time: wires are counted instead, of each packet, and of all the
 * copies of a multicast.
 */
#define MAX_HOPS	64
#define MAX_CROSSINGS	4096

struct fabric fabric = {
	.lock = __SPIN_LOCK_UNLOCKED(fabric.lock),
	.wires = LIST_HEAD_INIT(fabric.wires),
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

/*
 * Takes all packets on wires a wire further, until each is where its way ends. What
 * switches send on meanwhile is added to the list: there is no recursion.
 */
static void wires_run(void)
{
	struct shca_packet *pkt;

	if (fabric.wires_running)
		return;
	fabric.wires_running = true;
	fabric.crossings = 0;
	while ((pkt = list_first_entry_or_null(&fabric.wires, struct shca_packet, list))) {
		list_del_init(&pkt->list);
		port_receive(pkt->at, pkt);
	}
	fabric.wires_running = false;
}

/* Over the wire to the other end of the link, whatever awaits it there. */
void port_send(struct fabric_port *from, struct shca_packet *pkt)
{
	if (!from->link || from->phys != IB_PORT_PHYS_STATE_LINK_UP ||
	    !port_may_send(from, pkt) || pkt->hops >= MAX_HOPS ||
	    (fabric.wires_running && fabric.crossings >= MAX_CROSSINGS)) {
		port_count(from, CNT_XMIT_DISCARDS);
		shca_packet_free(pkt);
		return;
	}
	count_xmit(from, pkt);
	if (wire_loses(from)) {
		shca_packet_free(pkt);
		return;
	}
	pkt->hops++;
	pkt->at = port_peer(from);
	fabric.crossings++;
	list_add_tail(&pkt->list, &fabric.wires);
	wires_run();
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
	trap_prepare(port);
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

void port_attach(struct fabric_port *port)
{
	spin_lock_irq(&fabric.lock);
	port->node->port[port->num] = port;
	port->link = port->node->socket[port->num].link;
	port->end = port->node->socket[port->num].end;
	if (port->link) {
		port->link->end[port->end] = port;
		link_train(port->link);
	}
	spin_unlock_irq(&fabric.lock);
}

/* ---- the whole ---- */

int fabric_init(void)
{
	unsigned int i;
	int ret = topology_build();

	if (ret)
		return ret;
	fabric.wq = alloc_workqueue("shca_fabric", SHCA_WQ_PERCPU | WQ_HIGHPRI | WQ_MEM_RECLAIM, 0);
	if (!fabric.wq)
		return -ENOMEM;
	prandom_seed_state(&fabric.loss_dice, get_random_u64());
	for (i = 0; i < fabric.switches && !ret; i++)
		ret = switch_create(&fabric.sw[i], i);
	if (ret) {
		fabric_exit();
		return ret;
	}
	spin_lock_irq(&fabric.lock);
	fabric.ready = true;
	spin_unlock_irq(&fabric.lock);
	cable_init();
	return 0;
}

void fabric_exit(void)
{
	unsigned int i;

	cable_exit();
	spin_lock_irq(&fabric.lock);
	fabric.ready = false;
	spin_unlock_irq(&fabric.lock);
	for (i = 0; i < fabric.switches; i++)
		switch_destroy(&fabric.sw[i]);
	destroy_workqueue(fabric.wq);
}
