// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The device as ib_core sees it: limits, ports, keys. The rest is rdmavt's.
 */
#include <linux/module.h>
#include <rdma/ib_sysfs.h>
#include "shca.h"

#define FW_MAJOR 1
#define FW_MINOR 0
#define FW_SUB 0

#define ON_RC BIT(IB_QPT_RC)
#define ON_CONNECTED (BIT(IB_QPT_RC) | BIT(IB_QPT_UC))
#define ON_ANY (ON_CONNECTED | BIT(IB_QPT_UD) | BIT(IB_QPT_GSI) | BIT(IB_QPT_SMI))

const struct rvt_operation_params shca_post_parms[RVT_OPERATION_MAX] = {
	[IB_WR_SEND] = { sizeof(struct ib_send_wr), ON_ANY },
	[IB_WR_SEND_WITH_IMM] = { sizeof(struct ib_send_wr), ON_ANY },
	[IB_WR_SEND_WITH_INV] = { sizeof(struct ib_send_wr), ON_RC },
	[IB_WR_RDMA_WRITE] = { sizeof(struct ib_rdma_wr), ON_CONNECTED },
	[IB_WR_RDMA_WRITE_WITH_IMM] = { sizeof(struct ib_rdma_wr), ON_CONNECTED },
	[IB_WR_RDMA_READ] = { sizeof(struct ib_rdma_wr), ON_RC, RVT_OPERATION_ATOMIC },
	[IB_WR_ATOMIC_CMP_AND_SWP] = { sizeof(struct ib_atomic_wr), ON_RC,
		RVT_OPERATION_ATOMIC | RVT_OPERATION_ATOMIC_SGE },
	[IB_WR_ATOMIC_FETCH_AND_ADD] = { sizeof(struct ib_atomic_wr), ON_RC,
		RVT_OPERATION_ATOMIC | RVT_OPERATION_ATOMIC_SGE },
	[IB_WR_LOCAL_INV] = { sizeof(struct ib_send_wr), ON_RC, RVT_OPERATION_LOCAL },
	[IB_WR_REG_MR] = { sizeof(struct ib_reg_wr), ON_RC,
		RVT_OPERATION_LOCAL | RVT_OPERATION_PRIV },
};

const enum ib_wc_opcode shca_wc_opcode[RVT_OPERATION_MAX] = {
	[IB_WR_SEND] = IB_WC_SEND,
	[IB_WR_SEND_WITH_IMM] = IB_WC_SEND,
	[IB_WR_SEND_WITH_INV] = IB_WC_SEND,
	[IB_WR_RDMA_WRITE] = IB_WC_RDMA_WRITE,
	[IB_WR_RDMA_WRITE_WITH_IMM] = IB_WC_RDMA_WRITE,
	[IB_WR_RDMA_READ] = IB_WC_RDMA_READ,
	[IB_WR_ATOMIC_CMP_AND_SWP] = IB_WC_COMP_SWAP,
	[IB_WR_ATOMIC_FETCH_AND_ADD] = IB_WC_FETCH_ADD,
	[IB_WR_LOCAL_INV] = IB_WC_LOCAL_INV,
	[IB_WR_REG_MR] = IB_WC_REG_MR,
};

void shca_set_limits(struct rvt_driver_params *dparms, __be64 guid)
{
	struct ib_device_attr *props = &dparms->props;

	props->fw_ver = (u64)FW_MAJOR << 32 | FW_MINOR << 16 | FW_SUB;
	props->sys_image_guid = guid;
	props->vendor_id = 0x065348;
	props->vendor_part_id = 1;
	props->hw_ver = 1;
	props->max_mr_size = ~0ULL;
	props->page_size_cap = PAGE_SIZE;
	props->device_cap_flags = IB_DEVICE_BAD_PKEY_CNTR | IB_DEVICE_BAD_QKEY_CNTR |
		IB_DEVICE_AUTO_PATH_MIG | IB_DEVICE_CHANGE_PHY_PORT |
		IB_DEVICE_PORT_ACTIVE_EVENT | IB_DEVICE_SYS_IMAGE_GUID |
		IB_DEVICE_RC_RNR_NAK_GEN | IB_DEVICE_SRQ_RESIZE |
		IB_DEVICE_MEM_MGT_EXTENSIONS;
	props->max_qp = 16384;
	props->max_qp_wr = SHCA_MAX_WR;
	props->max_send_sge = SHCA_MAX_SGE;
	props->max_recv_sge = SHCA_MAX_SGE;
	props->max_sge_rd = SHCA_MAX_SGE;
	props->max_cq = 65536;
	props->max_cqe = 131071;
	props->max_mr = 65535;
	props->max_pd = 32768;
	props->max_ah = 65536;
	props->max_qp_rd_atom = SHCA_MAX_RD_ATOMIC;
	props->max_qp_init_rd_atom = SHCA_MAX_RD_ATOMIC;
	props->max_res_rd_atom = SHCA_MAX_RD_ATOMIC * props->max_qp;
	props->atomic_cap = IB_ATOMIC_GLOB;	/* all HCAs use the one CPU's atomics */
	props->max_srq = 4096;
	props->max_srq_wr = SHCA_MAX_WR;
	props->max_srq_sge = SHCA_MAX_SGE;
	props->max_mcast_grp = 8192;
	props->max_mcast_qp_attach = 244;
	props->max_total_mcast_qp_attach = props->max_mcast_grp * props->max_mcast_qp_attach;
	props->max_fast_reg_page_list_len = 512;
	props->max_pkeys = SHCA_PKEYS;
	props->local_ca_ack_delay = 15;

	/* rdmavt's bookkeeping */
	dparms->lkey_table_size = 16;
	dparms->qp_table_size = 1024;
	dparms->qpn_inc = 1;
	dparms->npkeys = SHCA_PKEYS;
	dparms->node = first_online_node;
	dparms->psn_mask = SHCA_PSN_MASK;
	dparms->psn_modify_mask = SHCA_PSN_MASK;
	dparms->psn_shift = 8;
	dparms->core_cap_flags = RDMA_CORE_PORT_IBA_IB;
	dparms->max_mad_size = IB_MGMT_MAD_SIZE;
	dparms->max_rdma_atomic = SHCA_MAX_RD_ATOMIC;
	dparms->reserved_operations = 1;
	/*
	 * dparms->nports stays 0: rdmavt would register MAD agents of its own, and
	 * these do not follow the device to another network namespace.
	 */
}

static int query_port(struct ib_device *ibdev, u32 port_num, struct ib_port_attr *attr)
{
	struct shca_dev *dev = to_shca(ibdev);

	/* ib_core takes no device that does not answer when it is registered. */
	if (shca_has_quirk(dev, SHCA_EINVAL) && READ_ONCE(dev->tells))
		return -EINVAL;
	fabric_query_port(shca_port(dev, port_num)->fabric, attr);
	return 0;
}

static int modify_port(struct ib_device *ibdev, u32 port_num, int mask,
		       struct ib_port_modify *modify)
{
	struct shca_dev *dev = to_shca(ibdev);
	struct ib_port_modify masked = *modify;

	if (shca_has_quirk(dev, SHCA_NO_CM))
		masked.set_port_cap_mask &= ~IB_PORT_CM_SUP;
	return fabric_modify_port(shca_port(dev, port_num)->fabric, mask, &masked);
}

static int modify_device(struct ib_device *ibdev, int mask, struct ib_device_modify *modify)
{
	if (mask & ~IB_DEVICE_MODIFY_NODE_DESC)
		return -EOPNOTSUPP;
	if (mask & IB_DEVICE_MODIFY_NODE_DESC) {
		memcpy(ibdev->node_desc, modify->node_desc, IB_DEVICE_NODE_DESC_MAX);
		fabric_set_node_desc(shca_port(to_shca(ibdev), 1)->fabric, modify->node_desc);
	}
	return 0;
}

static int query_pkey(struct ib_device *ibdev, u32 port_num, u16 index, u16 *pkey)
{
	return fabric_query_pkey(shca_port(to_shca(ibdev), port_num)->fabric, index, pkey);
}

static int query_gid(struct ib_device *ibdev, u32 port_num, int index, union ib_gid *gid)
{
	struct fabric_port *fp = shca_port(to_shca(ibdev), port_num)->fabric;

	if (index < 0 || index >= SHCA_GUIDS)
		return -EINVAL;
	gid->global.interface_id = shca_has_quirk(to_shca(ibdev), SHCA_NO_GID) ?
				   0 : fabric_port_guid(fp, index);
	/* The GID of an entry without GUID is zero, as all know it that is not in use. */
	gid->global.subnet_prefix = gid->global.interface_id ? fabric_gid_prefix(fp) : 0;
	return 0;
}

static int process_mad(struct ib_device *ibdev, int flags, u32 port_num, const struct ib_wc *wc,
		       const struct ib_grh *grh, const struct ib_mad *in, struct ib_mad *out,
		       size_t *out_size, u16 *out_pkey_index)
{
	return fabric_process_mad(shca_port(to_shca(ibdev), port_num)->fabric, flags, wc, grh,
				  in, out, out_size, out_pkey_index);
}

static void get_dev_fw_str(struct ib_device *ibdev, char *str)
{
	snprintf(str, IB_FW_VERSION_NAME_MAX, "%d.%d.%d", FW_MAJOR, FW_MINOR, FW_SUB);
}

/* ib_core then destroys what user space holds itself; nothing here is mapped from hardware. */
static void disassociate_ucontext(struct ib_ucontext *context)
{
}

static ssize_t hca_type_show(struct device *device, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "soft-hca\n");
}
static DEVICE_ATTR_RO(hca_type);

static ssize_t board_id_show(struct device *device, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "SHCA\n");
}
static DEVICE_ATTR_RO(board_id);

static ssize_t hw_rev_show(struct device *device, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "1\n");
}
static DEVICE_ATTR_RO(hw_rev);

static struct attribute *device_attributes[] = {
	&dev_attr_hca_type.attr,
	&dev_attr_board_id.attr,
	&dev_attr_hw_rev.attr,
	NULL,
};

static const struct attribute_group device_group = { .attrs = device_attributes };

/* rdmavt wants the list to exist. */
static const struct attribute_group *port_groups[] = { NULL };

const struct ib_device_ops shca_ops = {
	.owner = THIS_MODULE,
	/* Debian's libhfi1verbs is the user half of rdmavt, and binds by this. */
	.driver_id = RDMA_DRIVER_HFI1,
	.device_group = &device_group,
	.port_groups = port_groups,

	.disassociate_ucontext = disassociate_ucontext,
	.get_dev_fw_str = get_dev_fw_str,
	.modify_device = modify_device,
	.modify_port = modify_port,
	.process_mad = process_mad,
	.query_gid = query_gid,
	.query_pkey = query_pkey,
	.query_port = query_port,
};
