// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The switches: forwarding by the tables that the subnet manager writes
 * (IBA vol. 1, 18.2.4.3), directed routes (14.2.2), and their own management.
 */
#include <linux/mm.h>
#include "fabric_int.h"

#define SWITCH_GUID_BASE	0x0653484353000000ULL	/* compare fabric_guid() */
#define PERMISSIVE		be16_to_cpu(IB_LID_PERMISSIVE)

/* ---- forwarding ---- */

/*
 * The P_Key of @port whose lower 15 bits are those of @pkey, 0 if there is none.
 * Two limited ones do not match (IBA 10.9.3), except inbound: the subnet manager
 * gives the switch port its neighbour's table, and what a limited member sends
 * bears a limited P_Key.
 */
static u16 pkey_match(const struct fabric_port *port, u16 pkey, bool inbound)
{
	unsigned int i;

	for (i = 0; i < SHCA_PKEYS; i++) {
		u16 own = port->pkeys[i];

		if ((own & 0x7fff) && (own & 0x7fff) == (pkey & 0x7fff) &&
		    (inbound || ((own | pkey) & 0x8000)))
			return own;
	}
	return 0;
}

#define ENFORCE_INBOUND		0x8
#define ENFORCE_OUTBOUND	0x4

static bool inbound_admitted(struct fabric_port *in, const struct shca_packet *pkt)
{
	if (packet_is_smp(pkt) || !(in->enforce & ENFORCE_INBOUND) ||
	    pkey_match(in, pkt->pkey, true))
		return true;
	port_count(in, CNT_RCV_CONSTRAINT_ERRORS);
	return false;
}

/* Out of an external port, or to the switch itself. Takes the packet. */
static void switch_emit(struct fabric_port *in, struct fabric_port *out,
			struct shca_packet *pkt)
{
	u8 pair = out->sl_to_vl[in->num][(pkt->sl & 0xf) / 2];

	if (out->num == 0) {
		if (port_has_lid(out, pkt->dlid))
			port_enqueue(in, pkt);
		else
			shca_packet_free(pkt);
		return;
	}
	if (packet_is_smp(pkt)) {
		port_send(out, pkt);
		return;
	}
	pkt->vl = pkt->sl & 1 ? pair & 0xf : pair >> 4;
	if (pkt->vl == 15) {
		port_count(out, CNT_XMIT_DISCARDS);
		shca_packet_free(pkt);
	} else if ((out->enforce & ENFORCE_OUTBOUND) && !pkey_match(out, pkt->pkey, false)) {
		port_count(out, CNT_XMIT_CONSTRAINT_ERRORS);
		shca_packet_free(pkt);
	} else {
		port_send(out, pkt);
	}
}

/* To a port by its number, if a forwarding table may send it there. */
static bool switch_emit_to(struct fabric_port *in, u8 num, struct shca_packet *pkt)
{
	if (num > in->node->num_ports || num == in->num)
		return false;
	switch_emit(in, in->node->port[num], pkt);
	return true;
}

static bool route_unicast(struct fabric_port *in, struct shca_packet *pkt)
{
	const struct fabric_tables *tables = in->node->tables;

	if (pkt->dlid == 0 || pkt->dlid > tables->lft_top)
		return false;
	/* What the switch sends to its own LID. */
	if (in->num == 0 && tables->lft[pkt->dlid] == 0) {
		switch_emit(in, in, pkt);
		return true;
	}
	return switch_emit_to(in, tables->lft[pkt->dlid], pkt);
}

static bool route_multicast(struct fabric_port *in, struct shca_packet *pkt)
{
	const struct fabric_tables *tables = in->node->tables;
	unsigned int index = pkt->dlid - be16_to_cpu(IB_MULTICAST_LID_BASE);
	u64 ports;
	u8 num;

	if (index >= FABRIC_MFT_ENTRIES) {
		u8 by_default = tables->mcast_primary == in->num ? tables->mcast_secondary :
								   tables->mcast_primary;

		return by_default && switch_emit_to(in, by_default, pkt);
	}
	if (!tables->mft[index])
		return false;
	/* The switch has no QP that takes part in a group: port 0 gets none. */
	ports = tables->mft[index] & ~(BIT_ULL(in->num) | BIT_ULL(0));
	for (num = 1; num <= in->node->num_ports; num++) {
		struct shca_packet *copy;

		if (!(ports & BIT_ULL(num)))
			continue;
		copy = shca_packet_dup(pkt, GFP_ATOMIC);
		if (copy)
			switch_emit(in, in->node->port[num], copy);
		else
			port_count(in->node->port[num], CNT_XMIT_DISCARDS);
	}
	shca_packet_free(pkt);
	return true;
}

/* By the forwarding tables. @in is port 0 for what the switch itself sends. */
void switch_route(struct fabric_port *in, struct shca_packet *pkt)
{
	bool routed;

	if (lid_is_multicast(pkt->dlid))
		routed = route_multicast(in, pkt);
	else
		routed = route_unicast(in, pkt);
	if (!routed) {
		port_count(in, CNT_RCV_SWITCH_RELAY_ERRORS);
		shca_packet_free(pkt);
	}
}

/* From a wire. Directed routes go through the worker: their hops are many. */
void switch_receive(struct fabric_port *in, struct shca_packet *pkt)
{
	if (packet_is_smp(pkt) && pkt->dlid == PERMISSIVE)
		port_enqueue(in, pkt);
	else if (inbound_admitted(in, pkt))
		switch_route(in, pkt);
	else
		shca_packet_free(pkt);
}

/* ---- directed routes ---- */

static void directed_send(struct fabric_port *in, u8 num, struct shca_packet *pkt)
{
	struct fabric_node *sw = in->node;

	if (num == 0 || num > sw->num_ports) {
		shca_packet_free(pkt);
		return;
	}
	pkt->slid = PERMISSIVE;
	pkt->dlid = PERMISSIVE;
	port_send(sw->port[num], pkt);
}

/* The directed part is over; the rest of the way is by LID. */
static void directed_to_lid(struct fabric_port *in, __be16 dlid, struct shca_packet *pkt)
{
	struct fabric_port *port0 = in->node->port[0];

	pkt->slid = port0->lid;
	pkt->dlid = be16_to_cpu(dlid);
	switch_route(port0, pkt);
}

/* IBA 14.2.2.4, returning SMPs */
static void directed_return(struct fabric_port *in, struct shca_packet *pkt)
{
	struct ib_smp *smp = (struct ib_smp *)pkt->payload;

	if ((smp->hop_cnt && smp->hop_ptr == smp->hop_cnt + 1) ||
	    (smp->hop_ptr >= 2 && smp->hop_ptr <= smp->hop_cnt)) {
		smp->hop_ptr--;
		directed_send(in, smp->return_path[smp->hop_ptr], pkt);
	} else if (smp->hop_ptr == 1 && smp->dr_slid != IB_LID_PERMISSIVE) {
		smp->hop_ptr--;
		directed_to_lid(in, smp->dr_slid, pkt);
	} else {
		shca_packet_free(pkt);	/* for a subnet manager on the switch, or senseless */
	}
}

static bool switch_sma(struct fabric_port *in, struct shca_packet *pkt)
{
	struct ib_smp request;
	int ret;

	memcpy(&request, pkt->payload, sizeof(request));
	ret = sma_process(in->node->port[0], in->num, 0, &request,
			  (struct ib_smp *)pkt->payload);
	return ret & IB_MAD_RESULT_REPLY;
}

/* IBA 14.2.2.3, outgoing SMPs */
static void directed_onward(struct fabric_port *in, struct shca_packet *pkt)
{
	struct ib_smp *smp = (struct ib_smp *)pkt->payload;

	if (smp->hop_cnt && smp->hop_ptr == 0) {
		smp->hop_ptr++;
		directed_send(in, smp->initial_path[smp->hop_ptr], pkt);
	} else if (smp->hop_ptr && smp->hop_ptr < smp->hop_cnt) {
		smp->return_path[smp->hop_ptr] = in->num;
		smp->hop_ptr++;
		directed_send(in, smp->initial_path[smp->hop_ptr], pkt);
	} else if (smp->hop_ptr == smp->hop_cnt) {
		if (smp->hop_cnt)
			smp->return_path[smp->hop_ptr] = in->num;
		smp->hop_ptr++;
		if (smp->dr_dlid != IB_LID_PERMISSIVE)
			directed_to_lid(in, smp->dr_dlid, pkt);
		else if (switch_sma(in, pkt))
			directed_return(in, pkt);
		else
			shca_packet_free(pkt);
	} else if (smp->hop_ptr == smp->hop_cnt + 1 && switch_sma(in, pkt)) {
		directed_return(in, pkt);
	} else {
		shca_packet_free(pkt);
	}
}

/* ---- the switch as an end node ---- */

/* Sends the packet back where it came from. */
static void switch_answer(struct fabric_port *in, struct shca_packet *pkt)
{
	u16 slid = pkt->slid;

	pkt->slid = pkt->dlid;
	pkt->dlid = slid;
	swap(pkt->grh.sgid, pkt->grh.dgid);
	swap(pkt->dest_qpn, pkt->deth.src_qpn);
	pkt->deth.qkey = pkt->dest_qpn ? IB_QP1_QKEY : 0;
	switch_route(in->node->port[0], pkt);
}

static void manage_smp(struct fabric_port *in, struct shca_packet *pkt)
{
	struct ib_smp *smp = (struct ib_smp *)pkt->payload;

	if (smp->mgmt_class == IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE) {
		if (smp->hop_cnt >= IB_SMP_MAX_PATH_HOPS)
			shca_packet_free(pkt);
		else if (ib_get_smp_direction(smp))
			directed_return(in, pkt);
		else
			directed_onward(in, pkt);
	} else if (smp->mgmt_class == IB_MGMT_CLASS_SUBN_LID_ROUTED &&
		   pkt->dlid != PERMISSIVE && switch_sma(in, pkt)) {
		switch_answer(in, pkt);
	} else {
		shca_packet_free(pkt);
	}
}

static void manage_gmp(struct fabric_port *in, struct shca_packet *pkt)
{
	struct ib_mad *mad = (struct ib_mad *)pkt->payload;
	struct fabric_port *port0 = in->node->port[0];
	struct ib_mad request;

	/* A limited member is answered with the full P_Key, or it could not hear it. */
	pkt->pkey = pkey_match(port0, pkt->pkey, false);
	if (!pkt->pkey) {
		if (port0->pkey_violations != U16_MAX)
			port0->pkey_violations++;
		shca_packet_free(pkt);
		return;
	}
	memcpy(&request, mad, sizeof(request));
	if (request.mad_hdr.mgmt_class == IB_MGMT_CLASS_PERF_MGMT) {
		if (!(pma_process(port0, &request, mad) & IB_MAD_RESULT_REPLY)) {
			shca_packet_free(pkt);
			return;
		}
	} else if (request.mad_hdr.method == IB_MGMT_METHOD_GET ||
		   request.mad_hdr.method == IB_MGMT_METHOD_SET) {
		mad->mad_hdr.method = IB_MGMT_METHOD_GET_RESP;
		mad->mad_hdr.status = cpu_to_be16(IB_MGMT_MAD_STATUS_UNSUPPORTED_METHOD_ATTRIB);
	} else {
		shca_packet_free(pkt);
		return;
	}
	switch_answer(in, pkt);
}

/* From the worker: a MAD for the switch, or a directed route through it. */
void switch_manage(struct fabric_port *in, struct shca_packet *pkt)
{
	spin_lock_irq(&fabric.lock);
	pkt->hops = 0;	/* a directed route ends by its own count */
	if (pkt->opcode != IB_OPCODE_UD_SEND_ONLY || pkt->payload_len < IB_MGMT_MAD_SIZE)
		shca_packet_free(pkt);
	else if (packet_is_smp(pkt))
		manage_smp(in, pkt);
	else if (pkt->dest_qpn == 1 && pkt->deth.qkey == IB_QP1_QKEY)
		manage_gmp(in, pkt);
	else
		shca_packet_free(pkt);
	spin_unlock_irq(&fabric.lock);
}

/* ---- creation ---- */

static int switch_create_ports(struct fabric_node *sw)
{
	u8 num;

	for (num = 0; num <= sw->num_ports; num++) {
		struct fabric_port *port = port_create(sw, num, sw->guid);

		if (!port)
			return -ENOMEM;
		if (num == 0) {
			port->phys = IB_PORT_PHYS_STATE_LINK_UP;
			port->state = IB_PORT_ACTIVE;
			port->cap_mask = IB_PORT_TRAP_SUP | IB_PORT_SL_MAP_SUP |
					 IB_PORT_LED_INFO_SUP | IB_PORT_SYS_IMAGE_GUID_SUP |
					 IB_PORT_CLIENT_REG_SUP;
		}
		port_attach(port);
	}
	return 0;
}

int switch_create(struct fabric_node *sw, unsigned int index)
{
	struct fabric_tables *tables = kvzalloc(sizeof(*tables), GFP_KERNEL);

	if (!tables)
		return -ENOMEM;
	memset(tables->lft, FABRIC_NO_PORT, sizeof(tables->lft));
	tables->mcast_primary = FABRIC_NO_PORT;
	tables->mcast_secondary = FABRIC_NO_PORT;
	tables->default_port = FABRIC_NO_PORT;
	sw->tables = tables;
	sw->guid = cpu_to_be64(SWITCH_GUID_BASE + index);
	sw->system_guid = sw->guid;
	return switch_create_ports(sw);
}

void switch_destroy(struct fabric_node *sw)
{
	u8 num;

	/* Port 0 last: the state changes of the others are its traps. */
	for (num = sw->num_ports; num > 0; num--)
		if (sw->port[num])
			port_destroy(sw->port[num]);
	if (sw->port[0])
		port_destroy(sw->port[0]);
	kvfree(sw->tables);
	sw->tables = NULL;
}
