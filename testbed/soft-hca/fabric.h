/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The emulated subnet: end ports, switches, links, and their faults.
 *
 * The transport (verbs, QPs) sees the fabric only through this header, and the
 * fabric sees the transport only through the two upcalls at its end.
 */
#ifndef SHCA_FABRIC_H
#define SHCA_FABRIC_H

#include <linux/types.h>
#include <rdma/ib_verbs.h>
#include "packet.h"

#define SHCA_PORTS 2		/* per HCA, at most */
#define SHCA_PKEYS 16
#define SHCA_GUIDS 8	/* of a port, IBA 14.2.5.5 */
#define SHCA_MAX_LMC 7

struct shca_dev;
struct fabric_port;		/* an HCA end port, as the fabric knows it */

/*
 * GUIDs of HCAs and their ports are locally administered EUI-64s:
 * 06 53 48 43 41 00 <HCA> <port, 0 for the node>. Not 02: a node GUID may serve
 * as a service ID, and those that begin so are ib_cm's own.
 */
static inline __be64 fabric_guid(unsigned int index, unsigned int port_num)
{
	return cpu_to_be64(0x0653484341000000ULL | (index + 1) << 8 | port_num);
}

int fabric_init(void);		/* topology, switches, forwarding, faults */
void fabric_exit(void);

/* What the topology says of an HCA. */
struct fabric_hca {
	const char *name;
	unsigned int index;
	unsigned int ports;
	unsigned int system;	/* the index whose GUID is its system image's */
};

/* False if there are not so many. */
bool fabric_hca(unsigned int index, struct fabric_hca *hca);

/*
 * One end port. Created LinkUp/INIT (its link is plugged), GUIDs given.
 * port_num is 1-based. NULL when out of memory.
 */
struct fabric_port *fabric_port_create(struct shca_dev *dev, const struct fabric_hca *hca,
				       u32 port_num);
void fabric_port_destroy(struct fabric_port *fp);

/*
 * Sends a packet out of an end port. Takes the packet; never sleeps; delivery is
 * asynchronous and in order per (source port, destination port). A packet that
 * the port state, a fault, a forwarding table, or the loss rate drops is freed
 * silently, as a wire would.
 *
 * LID-routed packets whose DLID is one of the port's own LIDs loop back inside
 * the HCA, as IBA 17.2.1 has it.
 */
void fabric_transmit(struct fabric_port *fp, struct shca_packet *pkt);

/* What the verbs layer reports of the port (lid, lmc, state, sm_lid, gids, PKEY counters...). */
void fabric_query_port(struct fabric_port *fp, struct ib_port_attr *attr);
u16  fabric_port_lid(struct fabric_port *fp);
u8   fabric_port_lmc(struct fabric_port *fp);
enum ib_port_state fabric_port_state(struct fabric_port *fp);
u8   fabric_port_mtu(struct fabric_port *fp);		/* enum ib_mtu */
u8   fabric_sl_to_vl(struct fabric_port *fp, u8 sl);
int  fabric_query_pkey(struct fabric_port *fp, u16 index, u16 *pkey);
/* Returns 0 where the subnet manager has assigned none. */
__be64 fabric_port_guid(struct fabric_port *fp, unsigned int index);
__be64 fabric_gid_prefix(struct fabric_port *fp);
/* ib_modify_port(): capability bits and counters of Q_Key/P_Key violations. */
int  fabric_modify_port(struct fabric_port *fp, int mask, struct ib_port_modify *modify);
/* Counted in PortCounters / extended counters. */
void fabric_count_qkey_violation(struct fabric_port *fp);
void fabric_count_pkey_violation(struct fabric_port *fp);

/*
 * ib_modify_device(IB_DEVICE_MODIFY_NODE_DESC): NodeDescription of the HCA, told to
 * the SM by trap 144. Until it is called, NodeDescription is the device's name.
 * Call it for any one port of the device.
 */
void fabric_set_node_desc(struct fabric_port *fp, const char desc[IB_DEVICE_NODE_DESC_MAX]);

/* struct ib_device_ops.process_mad of the HCA: SMA and PMA of one end port. */
int fabric_process_mad(struct fabric_port *fp, int flags, const struct ib_wc *wc,
		       const struct ib_grh *grh, const struct ib_mad *in, struct ib_mad *out,
		       size_t *out_mad_size, u16 *out_mad_pkey_index);

/* ---- upcalls, implemented by the transport ---- */

/* A packet has arrived at an end port. Process context. Takes the packet. */
void shca_receive(struct shca_dev *dev, u32 port_num, struct shca_packet *pkt);
/* Something of the port changed; dispatch it to ib_core (and to QPs, for errors). May sleep. */
void shca_port_event(struct shca_dev *dev, u32 port_num, enum ib_event_type event);

#endif
