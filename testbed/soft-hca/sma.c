// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The subnet management agent of HCAs and switches (IBA vol. 1, 14.2.5). */
#include "fabric_int.h"

#define OK		IB_MGMT_MAD_STATUS_SUCCESS
#define UNSUPPORTED	IB_MGMT_MAD_STATUS_UNSUPPORTED_METHOD_ATTRIB
#define INVALID		IB_MGMT_MAD_STATUS_INVALID_ATTRIB_VALUE

#define DEVICE_ID_HCA		0x5301
#define DEVICE_ID_SWITCH	0x5302
#define PKEY_BLOCK		32
#define LFT_BLOCK		64
#define MFT_BLOCK		32

struct fabric_port *sma_select_port(struct sma_request *rq, u8 num)
{
	struct fabric_node *node = rq->port->node;
	struct fabric_port *port;

	if (!node_is_switch(node) && num == 0)
		return rq->port;
	if (num > node->num_ports)
		return NULL;
	port = node->port[num];
	/* A neighbouring HCA port has an M_Key of its own. */
	if (port && !node_is_switch(node) && port != rq->port && !rq->ignore_mkey &&
	    !sma_mkey_valid(port, rq->mkey, rq->set))
		return NULL;
	return port;
}

static u16 node_description(struct sma_request *rq)
{
	if (rq->set)
		return UNSUPPORTED;
	memcpy(rq->data, rq->port->node->desc, IB_DEVICE_NODE_DESC_MAX);
	return OK;
}

static u16 node_info(struct sma_request *rq)
{
	struct ib_node_info *ni = (struct ib_node_info *)rq->data;
	struct fabric_node *node = rq->port->node;
	bool is_switch = node_is_switch(node);

	if (rq->set)
		return UNSUPPORTED;
	memset(ni, 0, IB_SMP_DATA_SIZE);
	ni->base_version = IB_MGMT_BASE_VERSION;
	ni->class_version = 1;
	ni->node_type = is_switch ? RDMA_NODE_IB_SWITCH : RDMA_NODE_IB_CA;
	ni->num_ports = node->num_ports;
	ni->sys_guid = node->system_guid;
	ni->node_guid = node->guid;
	ni->port_guid = rq->port->guid;
	ni->partition_cap = cpu_to_be16(SHCA_PKEYS);
	ni->device_id = cpu_to_be16(is_switch ? DEVICE_ID_SWITCH : DEVICE_ID_HCA);
	ni->local_port_num = rq->local_port;
	memcpy(ni->vendor_id, &node->guid, sizeof(ni->vendor_id));
	return OK;
}

/* IBA 14.2.5.4 */
struct switch_info {
	__be16 linear_cap;
	__be16 random_cap;
	__be16 multicast_cap;
	__be16 linear_top;
	u8 default_port;
	u8 default_mcast_primary;
	u8 default_mcast_not_primary;
	u8 life_state;			/* LifeTimeValue 5, PortStateChange 1, 2 */
	__be16 lids_per_port;
	__be16 enforce_cap;
	u8 flags;
	u8 reserved;
	__be16 multicast_top;
};

#define SI_STATE_CHANGE		0x04
#define SI_INBOUND_ENFORCE	0x80
#define SI_OUTBOUND_ENFORCE	0x40
#define SI_ENHANCED_PORT0	0x08

static u16 switch_info(struct sma_request *rq)
{
	struct fabric_tables *tables = rq->port->node->tables;
	struct switch_info *si = (struct switch_info *)rq->data;

	if (rq->set) {
		u16 top = be16_to_cpu(si->linear_top);

		if (top >= FABRIC_LFT_ENTRIES)
			return INVALID;
		tables->lft_top = top;
		tables->default_port = si->default_port;
		tables->mcast_primary = si->default_mcast_primary;
		tables->mcast_secondary = si->default_mcast_not_primary;
		tables->life_time = si->life_state >> 3;
		tables->mft_top = be16_to_cpu(si->multicast_top);
		/* Writing the bit clears it. */
		if (si->life_state & SI_STATE_CHANGE)
			tables->state_change = false;
	}
	memset(si, 0, IB_SMP_DATA_SIZE);
	si->linear_cap = cpu_to_be16(FABRIC_LFT_ENTRIES);
	si->multicast_cap = cpu_to_be16(FABRIC_MFT_ENTRIES);
	si->linear_top = cpu_to_be16(tables->lft_top);
	si->default_port = tables->default_port;
	si->default_mcast_primary = tables->mcast_primary;
	si->default_mcast_not_primary = tables->mcast_secondary;
	si->life_state = tables->life_time << 3 | (tables->state_change ? SI_STATE_CHANGE : 0);
	si->enforce_cap = cpu_to_be16(SHCA_PKEYS);
	si->flags = SI_INBOUND_ENFORCE | SI_OUTBOUND_ENFORCE | SI_ENHANCED_PORT0;
	si->multicast_top = cpu_to_be16(tables->mft_top);
	return OK;
}

static void more_guids_set(struct fabric_port *port, const __be64 *guids)
{
	bool changed = false;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(port->more_guids); i++) {
		changed |= port->more_guids[i] != guids[i];
		WRITE_ONCE(port->more_guids[i], guids[i]);
	}
	if (changed)
		port_event(port, IB_EVENT_GID_CHANGE);
}

/* IBA 14.2.5.5: the first is given at manufacture and cannot be set. A switch has no other. */
static u16 guid_info(struct sma_request *rq)
{
	struct fabric_port *port = rq->port;
	__be64 *block = (__be64 *)rq->data;

	if (rq->modifier)
		return INVALID;
	if (rq->set && !node_is_switch(port->node))
		more_guids_set(port, block + 1);
	block[0] = port->guid;
	memcpy(block + 1, port->more_guids, sizeof(port->more_guids));
	return OK;
}

static u16 pkey_set(struct fabric_port *port, const __be16 *block)
{
	bool changed = false;
	unsigned int i;

	for (i = SHCA_PKEYS; i < PKEY_BLOCK; i++)
		if (block[i])
			return INVALID;
	for (i = 0; i < SHCA_PKEYS; i++) {
		changed |= port->pkeys[i] != be16_to_cpu(block[i]);
		port->pkeys[i] = be16_to_cpu(block[i]);
	}
	if (changed)
		port_event(port, IB_EVENT_PKEY_CHANGE);
	return OK;
}

static u16 pkey_table(struct sma_request *rq)
{
	struct fabric_port *port = rq->port;
	__be16 *block = (__be16 *)rq->data;
	unsigned int i;
	u16 status = OK;

	if (node_is_switch(port->node))
		port = sma_select_port(rq, rq->modifier >> 16);
	if (!port || (rq->modifier & 0xffff))
		return INVALID;
	if (rq->set)
		status = pkey_set(port, block);
	memset(block, 0, IB_SMP_DATA_SIZE);
	for (i = 0; i < SHCA_PKEYS; i++)
		block[i] = cpu_to_be16(port->pkeys[i]);
	return status;
}

static u16 sl_to_vl_table(struct sma_request *rq)
{
	struct fabric_port *port = rq->port;
	unsigned int in = 0;

	if (node_is_switch(port->node)) {
		in = rq->modifier >> 8 & 0xff;
		port = sma_select_port(rq, rq->modifier & 0xff);
		if (!port || in > port->node->num_ports || rq->modifier > 0xffff)
			return INVALID;
	}
	if (rq->set)
		memcpy(port->sl_to_vl[in], rq->data, sizeof(port->sl_to_vl[in]));
	memset(rq->data, 0, IB_SMP_DATA_SIZE);
	memcpy(rq->data, port->sl_to_vl[in], sizeof(port->sl_to_vl[in]));
	return OK;
}

/* Blocks 1 and 2 are the low priority table, 3 and 4 the high; we have 1 and 3. */
static u16 vl_arb_table(struct sma_request *rq)
{
	unsigned int block = rq->modifier >> 16;
	struct fabric_port *port = rq->port;

	if (node_is_switch(port->node))
		port = sma_select_port(rq, rq->modifier & 0xff);
	if (!port || (block != 1 && block != 3))
		return INVALID;
	BUILD_BUG_ON(sizeof(port->vl_arb[0]) != IB_SMP_DATA_SIZE);
	if (rq->set)
		memcpy(port->vl_arb[block / 2], rq->data, IB_SMP_DATA_SIZE);
	memcpy(rq->data, port->vl_arb[block / 2], IB_SMP_DATA_SIZE);
	return OK;
}

static u16 linear_forwarding_table(struct sma_request *rq)
{
	struct fabric_tables *tables = rq->port->node->tables;

	if (rq->modifier >= FABRIC_LFT_ENTRIES / LFT_BLOCK)
		return INVALID;
	if (rq->set)
		memcpy(&tables->lft[rq->modifier * LFT_BLOCK], rq->data, LFT_BLOCK);
	memcpy(rq->data, &tables->lft[rq->modifier * LFT_BLOCK], LFT_BLOCK);
	return OK;
}

/* A position is 16 ports wide. */
static u16 multicast_forwarding_table(struct sma_request *rq)
{
	unsigned int block = rq->modifier & 0x1ff, position = rq->modifier >> 28;
	struct fabric_tables *tables = rq->port->node->tables;
	__be16 *masks = (__be16 *)rq->data;
	unsigned int i;

	if (block >= FABRIC_MFT_ENTRIES / MFT_BLOCK || 16 * position > rq->port->node->num_ports)
		return INVALID;
	for (i = 0; i < MFT_BLOCK; i++) {
		u64 *mask = &tables->mft[block * MFT_BLOCK + i];

		if (rq->set) {
			*mask &= ~(0xffffULL << 16 * position);
			*mask |= (u64)be16_to_cpu(masks[i]) << 16 * position;
			*mask &= GENMASK_ULL(rq->port->node->num_ports, 0);
		}
		masks[i] = cpu_to_be16(*mask >> 16 * position);
	}
	return OK;
}

static u16 led_info(struct sma_request *rq)
{
	struct fabric_port *port = rq->port;

	if (node_is_switch(port->node))
		port = sma_select_port(rq, rq->modifier & 0xff);
	if (!port)
		return INVALID;
	if (rq->set)
		port->led = rq->data[0] & 0x80;
	memset(rq->data, 0, IB_SMP_DATA_SIZE);
	rq->data[0] = port->led;
	return OK;
}

struct sma_attribute {
	__be16 id;
	bool switch_only;
	u16 (*handle)(struct sma_request *rq);
};

static const struct sma_attribute sma_attributes[] = {
	{ IB_SMP_ATTR_NODE_DESC, false, node_description },
	{ IB_SMP_ATTR_NODE_INFO, false, node_info },
	{ IB_SMP_ATTR_SWITCH_INFO, true, switch_info },
	{ IB_SMP_ATTR_GUID_INFO, false, guid_info },
	{ IB_SMP_ATTR_PORT_INFO, false, sma_port_info },
	{ IB_SMP_ATTR_PKEY_TABLE, false, pkey_table },
	{ IB_SMP_ATTR_SL_TO_VL_TABLE, false, sl_to_vl_table },
	{ IB_SMP_ATTR_VL_ARB_TABLE, false, vl_arb_table },
	{ IB_SMP_ATTR_LINEAR_FORWARD_TABLE, true, linear_forwarding_table },
	{ IB_SMP_ATTR_MCAST_FORWARD_TABLE, true, multicast_forwarding_table },
	{ IB_SMP_ATTR_LED_INFO, false, led_info },
};

static u16 sma_dispatch(struct sma_request *rq, __be16 id)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(sma_attributes); i++) {
		const struct sma_attribute *attribute = &sma_attributes[i];

		if (attribute->id == id &&
		    (!attribute->switch_only || node_is_switch(rq->port->node)))
			return attribute->handle(rq);
	}
	return UNSUPPORTED;
}

static int sma_reply(struct ib_smp *out, u16 status)
{
	out->method = IB_MGMT_METHOD_GET_RESP;
	out->status = cpu_to_be16(status);
	if (out->mgmt_class == IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE)
		out->status |= IB_SMP_DIRECTION;
	return IB_MAD_RESULT_SUCCESS | IB_MAD_RESULT_REPLY;
}

static int sma_get_or_set(struct fabric_port *port, u8 local_port, int flags,
			  const struct ib_smp *in, struct ib_smp *out)
{
	struct sma_request rq = {
		.port = port,
		.local_port = local_port,
		.set = in->method == IB_MGMT_METHOD_SET,
		.ignore_mkey = flags & IB_MAD_IGNORE_MKEY,
		.mkey = in->mkey,
		.modifier = be32_to_cpu(in->attr_mod),
		.data = out->data,
	};

	/* SMInfo belongs to the subnet manager of this port, if there is one. */
	if (in->attr_id == IB_SMP_ATTR_SM_INFO) {
		if (port->cap_mask & IB_PORT_SM)
			return IB_MAD_RESULT_SUCCESS;
		if (port->cap_mask & IB_PORT_SM_DISABLED)
			return IB_MAD_RESULT_SUCCESS | IB_MAD_RESULT_CONSUMED;
	}
	/* IBA 14.2.4: whoever lacks the M_Key gets no answer. */
	if (!rq.ignore_mkey && !sma_mkey_valid(port, rq.mkey, rq.set))
		return IB_MAD_RESULT_SUCCESS | IB_MAD_RESULT_CONSUMED;
	return sma_reply(out, sma_dispatch(&rq, in->attr_id));
}

int sma_process(struct fabric_port *port, u8 local_port, int flags,
		const struct ib_smp *in, struct ib_smp *out)
{
	*out = *in;
	if (in->class_version != 1 || in->base_version != IB_MGMT_BASE_VERSION)
		return in->method & IB_MGMT_METHOD_RESP ? IB_MAD_RESULT_SUCCESS :
		       sma_reply(out, IB_MGMT_MAD_STATUS_BAD_VERSION);

	switch (in->method) {
	case IB_MGMT_METHOD_GET:
	case IB_MGMT_METHOD_SET:
		return sma_get_or_set(port, local_port, flags, in, out);
	case IB_MGMT_METHOD_TRAP_REPRESS:
		trap_repress(port, in->tid);
		return IB_MAD_RESULT_SUCCESS | IB_MAD_RESULT_CONSUMED;
	case IB_MGMT_METHOD_TRAP:
	case IB_MGMT_METHOD_REPORT:
	case IB_MGMT_METHOD_REPORT_RESP:
	case IB_MGMT_METHOD_GET_RESP:
		return IB_MAD_RESULT_SUCCESS;
	default:
		return sma_reply(out, IB_MGMT_MAD_STATUS_UNSUPPORTED_METHOD);
	}
}
