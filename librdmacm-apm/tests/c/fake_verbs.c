// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The calls of libibverbs, librdmacm and libmlx5 that the library stands in front of or makes itself,
 * for a device of a few lines: two ports, LIDs 0x11 and 0x12, and QPs that remember their state. It is
 * preloaded behind the library, in the place of rdma-core.
 */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#undef ibv_query_port

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	(void)device;
	return htobe64(0xabcd);
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	(void)context;
	memset(attr, 0, sizeof *attr);
	attr->phys_port_cnt = 2;
	attr->device_cap_flags = IBV_DEVICE_AUTO_PATH_MIG;
	return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *compat)
{
	struct ibv_port_attr *attr = (struct ibv_port_attr *)compat;

	(void)context;
	attr->lid = 0x10 + port;
	attr->lmc = 0;
	attr->link_layer = IBV_LINK_LAYER_INFINIBAND;
	attr->gid_tbl_len = attr->pkey_tbl_len = 1;
	return 0;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	(void)context, (void)index;
	memset(gid, 0, sizeof *gid);
	gid->raw[0] = 0xfe;
	gid->raw[1] = 0x80;
	gid->raw[15] = port;
	return 0;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	(void)context, (void)port;
	*pkey = htobe16(0xffff);
	return index;
}

/* A QP leads to the LID that its context pointer is. */
int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	(void)mask, (void)init;
	memset(attr, 0, sizeof *attr);
	attr->qp_state = qp->state;
	attr->path_mig_state = IBV_MIG_MIGRATED;
	attr->port_num = 1;
	attr->ah_attr.dlid = (uintptr_t)qp->qp_context;
	attr->dest_qp_num = qp->qp_num + 100;
	return 0;
}

/* No connected QP has a Q_Key. */
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	if (qp->qp_type == IBV_QPT_RC && mask & IBV_QP_QKEY)
		return EINVAL;
	if (mask & IBV_QP_STATE)
		qp->state = attr->qp_state;
	return 0;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	memset(qp, 0xee, sizeof *qp);
	return 0;
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	(void)id, (void)param;
	return 0;
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	(void)id, (void)param;
	return 0;
}

int rdma_establish(struct rdma_cm_id *id)
{
	(void)id;
	return 0;
}

/* Every command succeeds but those that are empty. */
struct mlx5dv_devx_obj *mlx5dv_devx_obj_create(struct ibv_context *context, const void *in, size_t inlen,
					       void *out, size_t outlen)
{
	(void)context, (void)in, (void)outlen;
	return inlen ? out : NULL;
}
