// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Addresses: from an address vector to packet headers, and whether a packet
 * came over the path an address vector describes.
 */
#include "shca.h"

u16 shca_pkey(struct shca_dev *dev, u32 port_num, u16 index)
{
	u16 pkey;

	if (fabric_query_pkey(shca_port(dev, port_num)->fabric, index, &pkey))
		return 0;
	return pkey;
}

/* IBA 10.9.3: same base value, not both limited members, and a valid base. */
bool shca_pkeys_match(u16 a, u16 b)
{
	return (a & 0x7fff) && (a & 0x7fff) == (b & 0x7fff) && ((a | b) & 0x8000);
}

bool shca_own_gid(struct shca_dev *dev, u32 port_num, union ib_gid *gid)
{
	struct fabric_port *fp = shca_port(dev, port_num)->fabric;
	__be64 link_local = cpu_to_be64(0xfe80000000000000ULL);
	unsigned int i;

	/* IBA 4.1.1: the link-local prefix always works, besides the assigned one. */
	if (gid->global.subnet_prefix != fabric_gid_prefix(fp) &&
	    gid->global.subnet_prefix != link_local)
		return false;
	for (i = 0; i < SHCA_GUIDS; i++)
		if (gid->global.interface_id &&
		    gid->global.interface_id == fabric_port_guid(fp, i))
			return true;
	return false;
}

static void fill_grh(struct shca_dev *dev, u32 port_num, const struct rdma_ah_attr *ah,
		     struct shca_packet *pkt)
{
	const struct ib_global_route *route = rdma_ah_read_grh(ah);
	struct fabric_port *fp = shca_port(dev, port_num)->fabric;

	pkt->has_grh = true;
	pkt->grh.version_tclass_flow =
		cpu_to_be32(IB_GRH_VERSION << IB_GRH_VERSION_SHIFT |
			    route->traffic_class << IB_GRH_TCLASS_SHIFT |
			    (route->flow_label & IB_GRH_FLOW_MASK));
	pkt->grh.paylen = cpu_to_be16(IB_BTH_BYTES + IB_DETH_BYTES +
				      ALIGN(pkt->payload_len, 4) + sizeof(u32));
	pkt->grh.next_hdr = IB_GRH_NEXT_HDR;
	pkt->grh.hop_limit = route->hop_limit;
	pkt->grh.sgid.global.subnet_prefix = fabric_gid_prefix(fp);
	pkt->grh.sgid.global.interface_id = fabric_port_guid(fp, route->sgid_index);
	pkt->grh.dgid = route->dgid;
}

/* Which of the port's LIDs the path uses. */
static u8 path_bits(struct fabric_port *fp, const struct rdma_ah_attr *ah)
{
	return rdma_ah_get_path_bits(ah) & ((1 << fabric_port_lmc(fp)) - 1);
}

void shca_address(struct shca_dev *dev, u32 port_num, const struct rdma_ah_attr *ah,
		  struct shca_packet *pkt)
{
	struct fabric_port *fp = shca_port(dev, port_num)->fabric;
	u16 lid = fabric_port_lid(fp);

	pkt->dlid = rdma_ah_get_dlid(ah);
	/* IBA 14.2.2: a port without a LID may still send directed-route SMPs. */
	pkt->slid = lid ? lid + path_bits(fp, ah) : be16_to_cpu(IB_LID_PERMISSIVE);
	pkt->sl = rdma_ah_get_sl(ah);
	pkt->vl = fabric_sl_to_vl(fp, pkt->sl);
	if (rdma_ah_get_ah_flags(ah) & IB_AH_GRH)
		fill_grh(dev, port_num, ah, pkt);
}

/* Headers of a packet, request or response, of a connected QP. */
void shca_connected_address(struct rvt_qp *qp, struct shca_packet *pkt)
{
	struct shca_dev *dev = to_shca(qp->ibqp.device);

	shca_address(dev, qp->port_num, &qp->remote_ah_attr, pkt);
	pkt->pkey = shca_pkey(dev, qp->port_num, qp->s_pkey_index);
	pkt->dest_qpn = qp->remote_qpn;
	pkt->migreq = shca_apm_migreq(qp);
}

/* A clock by which it can be told what a sender cannot have known yet. */
static atomic64_t packets_sent;

u64 shca_packets_sent(void)
{
	return atomic64_read(&packets_sent);
}

void shca_transmit(struct rvt_qp *qp, struct shca_packet *pkt)
{
	struct shca_dev *dev = to_shca(qp->ibqp.device);

	pkt->psn &= SHCA_PSN_MASK;
	pkt->sent = atomic64_inc_return(&packets_sent);
	fabric_transmit(shca_port(dev, qp->port_num)->fabric, pkt);
}

/*
 * IBA 9.6.1.3 and 9.6.1.5: a packet of a connected service belongs to the
 * connection only if it came in at the QP's port, from the LID to the LID (and,
 * when the path has a GRH, from the GID to the GID) that the QP context names.
 */
bool shca_path_matches(struct shca_dev *dev, const struct rdma_ah_attr *ah, u32 ah_port,
		       u32 port_num, const struct shca_packet *pkt)
{
	struct fabric_port *fp = shca_port(dev, port_num)->fabric;
	union ib_gid dgid;

	if (port_num != ah_port || pkt->slid != rdma_ah_get_dlid(ah) ||
	    pkt->dlid != fabric_port_lid(fp) + path_bits(fp, ah))
		return false;
	if (!(rdma_ah_get_ah_flags(ah) & IB_AH_GRH))
		return !pkt->has_grh;
	if (!pkt->has_grh)
		return false;
	dgid = pkt->grh.dgid;
	return shca_own_gid(dev, port_num, &dgid) &&
	       !memcmp(&pkt->grh.sgid, &rdma_ah_read_grh(ah)->dgid, sizeof(dgid));
}
