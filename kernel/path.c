// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Paths as netlink has them, and as verbs do. */
#include <rdma/ib_cache.h>

#include "apm.h"

int apm_path_read(struct ib_device *ib, const struct rdma_ah_attr *ah, u16 pkey_index,
		  struct apm_path *path)
{
	struct ib_port_attr port;
	int ret;

	if (!rdma_is_port_valid(ib, path->port))
		return -EPROTO;
	/* Of other paths nothing is needed: who has them is left alone. */
	if (ah->type != RDMA_AH_ATTR_TYPE_IB)
		return 0;
	ret = ib_query_port(ib, path->port, &port);
	if (ret)
		return ret;
	path->path_bits = rdma_ah_get_path_bits(ah);
	path->sl = rdma_ah_get_sl(ah);
	path->rate = rdma_ah_get_static_rate(ah);
	path->slid = port.lid | (path->path_bits & ((1 << port.lmc) - 1));
	path->dlid = rdma_ah_get_dlid(ah);
	path->global = rdma_ah_get_ah_flags(ah) & IB_AH_GRH;
	ret = ib_get_cached_pkey(ib, path->port, pkey_index, &path->pkey);
	if (ret)
		return ret;
	if (path->global)
		path->dgid = rdma_ah_read_grh(ah)->dgid;
	return rdma_query_gid(ib, path->port,
			      path->global ? rdma_ah_read_grh(ah)->sgid_index : 0, &path->sgid);
}

/* No GRH: the release of its GID attribute would race with the destruction of the queue pair. */
int apm_path_write(struct ib_device *ib, const struct apm_path *path, struct rdma_ah_attr *ah)
{
	struct ib_port_attr port;
	int ret;

	if (!rdma_is_port_valid(ib, path->port))
		return -ENODEV;
	if (path->global)
		return -EOPNOTSUPP;
	ret = ib_query_port(ib, path->port, &port);
	if (ret)
		return ret;
	if ((path->slid & ~((1 << port.lmc) - 1)) != port.lid)
		return -EADDRNOTAVAIL;
	memset(ah, 0, sizeof(*ah));
	ah->type = rdma_ah_find_type(ib, path->port);
	if (ah->type != RDMA_AH_ATTR_TYPE_IB)
		return -EOPNOTSUPP;
	rdma_ah_set_port_num(ah, path->port);
	rdma_ah_set_dlid(ah, path->dlid);
	rdma_ah_set_sl(ah, path->sl);
	rdma_ah_set_static_rate(ah, path->rate);
	rdma_ah_set_path_bits(ah, path->slid & ((1 << port.lmc) - 1));
	return 0;
}

bool apm_path_same_way(const struct apm_path *a, const struct apm_path *b)
{
	return a->port == b->port && a->slid == b->slid && a->dlid == b->dlid;
}

static bool has_lid(struct ib_device *ib, u8 num, u16 lid)
{
	struct ib_port_attr port;

	return !ib_query_port(ib, num, &port) && port.lid &&
	       (lid & ~((1 << port.lmc) - 1)) == port.lid;
}

static bool has_gid(struct ib_device *ib, const union ib_gid *gid)
{
	const struct ib_gid_attr *attr = rdma_find_gid(ib, gid, IB_GID_TYPE_IB, NULL);

	if (IS_ERR(attr))
		return false;
	rdma_put_gid_attr(attr);
	return true;
}

/*
 * Whether it ends at a port of its own device. A LID names a port of one subnet only, and each port
 * may be in a subnet of its own: so it is compared with the LID of the port that the path leaves
 * from, and with no other. Another port is recognised by its GID, where the path's is known.
 */
bool apm_path_leads_back(struct ib_device *ib, const struct apm_path *path)
{
	return has_lid(ib, path->port, path->dlid) ||
	       (memchr_inv(&path->dgid, 0, sizeof(path->dgid)) && has_gid(ib, &path->dgid));
}
