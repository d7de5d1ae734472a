// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The end ports of the HCAs, as the transport sees them through fabric.h. */
#include "fabric_int.h"

void fabric_transmit(struct fabric_port *fp, struct shca_packet *pkt)
{
	unsigned long flags;

	spin_lock_irqsave(&fabric.lock, flags);
	port_originate(fp, pkt);
	spin_unlock_irqrestore(&fabric.lock, flags);
}

bool fabric_hca(unsigned int index, struct fabric_hca *hca)
{
	const struct fabric_node *node;

	if (index >= fabric.hcas)
		return false;
	node = &fabric.hca[index];
	*hca = (struct fabric_hca){
		.name = node->name,
		.index = index,
		.ports = node->num_ports,
		.system = node->system,
	};
	return true;
}

struct fabric_port *fabric_port_create(struct shca_dev *dev, const struct fabric_hca *hca,
				       u32 port_num)
{
	struct fabric_node *node = &fabric.hca[hca->index];
	struct fabric_port *port = port_create(node, port_num,
					       fabric_guid(hca->index, port_num));

	if (!port)
		return NULL;

	port->dev = dev;
	port->cap_mask = IB_PORT_TRAP_SUP | IB_PORT_AUTO_MIGR_SUP | IB_PORT_SL_MAP_SUP |
			 IB_PORT_LED_INFO_SUP | IB_PORT_SYS_IMAGE_GUID_SUP | IB_PORT_CM_SUP |
			 IB_PORT_CAP_MASK_NOTICE_SUP | IB_PORT_CLIENT_REG_SUP |
			 IB_PORT_OTHER_LOCAL_CHANGES_SUP;
	node->guid = fabric_guid(hca->index, 0);
	node->system_guid = fabric_guid(hca->system, 0);
	port_attach(port);
	return port;
}

void fabric_port_destroy(struct fabric_port *fp)
{
	port_destroy(fp);
}

void fabric_query_port(struct fabric_port *fp, struct ib_port_attr *attr)
{
	unsigned long flags;

	spin_lock_irqsave(&fabric.lock, flags);
	attr->state = fp->state;
	attr->phys_state = fp->phys;
	attr->max_mtu = IB_MTU_4096;
	attr->active_mtu = fp->neighbor_mtu;
	attr->gid_tbl_len = SHCA_GUIDS;
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

__be64 fabric_port_guid(struct fabric_port *fp, unsigned int index)
{
	if (!index)
		return fp->guid;
	return index < SHCA_GUIDS ? READ_ONCE(fp->more_guids[index - 1]) : 0;
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
