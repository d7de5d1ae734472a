// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Automatic Path Migration, IBA vol. 1, 17.2.8 (protocol) and 10.4 (verbs).
 *
 * A QP is Migrated, ReArm, or Armed. It sends MigReq = 1 when Migrated, else 0.
 *
 *   Migrated --(modify QP)--> ReArm --(packet in with MigReq = 0)--> Armed
 *   Armed --(retries exhausted | modify QP | packet in with MigReq = 1 over the
 *            alternate path)--> Migrated, with the alternate path as primary
 *
 * Readings of the specification taken here where it leaves room:
 *
 * - After a migration primary and alternate are the same path, until software
 *   loads another (17.2.8). Packets over the old path "may be refused": they
 *   are, as a packet over any path but the primary is.
 * - "Path Migration Request Error" (11.6.3.2) means that an incoming request to
 *   migrate was not accepted. It is raised, once for each time the QP arms,
 *   when a packet with MigReq = 1 comes to an Armed QP otherwise than over its
 *   alternate path, or to a QP in ReArm otherwise than over its primary. In
 *   Migrated no alternate is loaded, and a stray packet is just dropped.
 * - Nothing makes a migration depend on the state of the alternate's port. A QP
 *   that migrates onto a dead port exhausts its retries there and, no longer
 *   Armed, goes to Error with RETRY_EXC.
 * - Migration alone resends nothing, except after exhaustion: what was in
 *   flight is repeated over the new path when its ACK timer expires.
 */
#include <rdma/ib_cache.h>
#include "shca.h"

bool shca_apm_migreq(const struct rvt_qp *qp)
{
	return qp->s_mig_state == IB_MIG_MIGRATED;
}

static void take_over_alternate(struct shca_qp *sq)
{
	struct rvt_qp *qp = sq->qp;

	qp->port_num = rdma_ah_get_port_num(&qp->alt_ah_attr);
	qp->s_pkey_index = qp->s_alt_pkey_index;
	qp->timeout = qp->alt_timeout;
	qp->s_mig_state = IB_MIG_MIGRATED;
	qp->s_retry = qp->s_retry_cnt;
	sq->refusal_told = false;
}

static void migrate(struct shca_qp *sq)
{
	struct rvt_qp *qp = sq->qp;

	/* Not a plain copy: each of the two holds a reference to its source GID. */
	rdma_replace_ah_attr(&qp->remote_ah_attr, &qp->alt_ah_attr);
	take_over_alternate(sq);
	shca_qp_event(qp, IB_EVENT_PATH_MIG);
}

static bool pkey_admits(struct shca_dev *dev, u32 port_num, u16 index,
			const struct shca_packet *pkt)
{
	if (shca_pkeys_match(shca_pkey(dev, port_num, index), pkt->pkey))
		return true;
	fabric_count_pkey_violation(shca_port(dev, port_num)->fabric);
	return false;
}

static void refuse_migration(struct shca_qp *sq)
{
	if (sq->refusal_told)
		return;
	sq->refusal_told = true;
	shca_qp_event(sq->qp, IB_EVENT_PATH_MIG_ERR);
}

/*
 * Whether an inbound packet, request or response, belongs to the connection;
 * follows the peer's migration and arms, as the packet's MigReq bit says.
 */
bool shca_apm_admit(struct shca_qp *sq, u32 port_num, const struct shca_packet *pkt)
{
	struct rvt_qp *qp = sq->qp;
	struct shca_dev *dev = sq->dev;

	if (qp->s_mig_state == IB_MIG_ARMED && pkt->migreq) {
		if (!shca_path_matches(dev, &qp->alt_ah_attr,
				       rdma_ah_get_port_num(&qp->alt_ah_attr), port_num, pkt)) {
			refuse_migration(sq);
			return false;
		}
		if (!pkey_admits(dev, port_num, qp->s_alt_pkey_index, pkt))
			return false;
		migrate(sq);
		return true;
	}

	if (!shca_path_matches(dev, &qp->remote_ah_attr, qp->port_num, port_num, pkt)) {
		if (qp->s_mig_state == IB_MIG_REARM && pkt->migreq)
			refuse_migration(sq);
		return false;
	}
	if (!pkey_admits(dev, port_num, qp->s_pkey_index, pkt))
		return false;
	if (qp->s_mig_state == IB_MIG_REARM && !pkt->migreq)
		qp->s_mig_state = IB_MIG_ARMED;
	return true;
}

/* The requester's last retry failed. True: the QP migrated, start afresh. */
bool shca_apm_migrate_on_exhaustion(struct shca_qp *sq)
{
	if (sq->qp->s_mig_state != IB_MIG_ARMED)
		return false;
	migrate(sq);
	return true;
}

/*
 * rvt_modify_qp() migrates by copying alt_ah_attr over remote_ah_attr, which
 * loses the reference to the source GID that was there and shares the other
 * one. The one to be lost is noted before, and both are put right after.
 */
void shca_apm_before_modify(struct shca_qp *sq, const struct ib_qp_attr *attr, int mask)
{
	struct rvt_qp *qp = sq->qp;

	sq->forced = (mask & IB_QP_PATH_MIG_STATE) && attr->path_mig_state == IB_MIG_MIGRATED &&
		     qp->s_mig_state == IB_MIG_ARMED;
	sq->lost_sgid = mask & IB_QP_AV ? attr->ah_attr.grh.sgid_attr :
					  qp->remote_ah_attr.grh.sgid_attr;
}

void shca_apm_after_modify(struct shca_qp *sq, const struct ib_qp_attr *attr, int mask)
{
	struct rvt_qp *qp = sq->qp;

	if (mask & IB_QP_ALT_PATH)
		qp->alt_timeout = attr->alt_timeout;
	if (mask & IB_QP_PATH_MIG_STATE)
		sq->refusal_told = false;
	if (!sq->forced)
		return;
	sq->forced = false;
	if (qp->remote_ah_attr.grh.sgid_attr)
		rdma_hold_gid_attr(qp->remote_ah_attr.grh.sgid_attr);
	if (sq->lost_sgid)
		rdma_put_gid_attr(sq->lost_sgid);
	take_over_alternate(sq);
}
