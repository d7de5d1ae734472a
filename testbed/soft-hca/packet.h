/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * One InfiniBand packet on the emulated wire.
 *
 * Headers travel decoded, in host byte order; the fields are those of IBA
 * vol. 1 ch. 7.7 (LRH), 8.3 (GRH), 9.2 (BTH) and 9.3 (extended headers).
 * Whoever is handed a packet owns it and ends by passing it on or by
 * shca_packet_free().
 */
#ifndef SHCA_PACKET_H
#define SHCA_PACKET_H

#include <linux/list.h>
#include <linux/types.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_pack.h>
#include <rdma/ib_verbs.h>

struct fabric_port;

struct shca_deth {
	u32 qkey;
	u32 src_qpn;
};

struct shca_reth {
	u64 vaddr;
	u32 rkey;
	u32 length;
};

struct shca_atomic_eth {
	u64 vaddr;
	u32 rkey;
	u64 swap_add;
	u64 compare;
};

struct shca_aeth {
	u8 syndrome;
	u32 msn;
};

struct shca_packet {
	struct list_head list;

	/* Under way: the port at the far end of the wire, and how many wires there were */
	struct fabric_port *at;
	u8 hops;

	/* LRH */
	u16 dlid;
	u16 slid;
	u8 sl;
	u8 vl;

	/* GRH */
	bool has_grh;
	struct ib_grh grh;

	/* BTH; opcode is one of enum IB_OPCODE_* of <rdma/ib_pack.h> */
	u8 opcode;
	bool solicited;
	bool migreq;		/* MigReq: 1 = sender is in state Migrated */
	bool ack_req;
	u16 pkey;
	u32 dest_qpn;
	u32 psn;

	/* Extended headers; which are valid follows from the opcode */
	struct shca_deth deth;
	struct shca_reth reth;
	struct shca_atomic_eth atomic;
	struct shca_aeth aeth;
	u64 atomic_ack;
	__be32 immdata;
	u32 ieth_rkey;

	u64 sent;		/* when, in packets that connected QPs have sent so far */

	u32 payload_len;
	u8 payload[];		/* at most the path MTU; a MAD is 256 bytes */
};

int shca_packets_init(void);
void shca_packets_exit(void);

/* Zeroed, with room for payload_len bytes; NULL when out of memory, or too long. */
struct shca_packet *shca_packet_alloc(u32 payload_len, gfp_t gfp);
struct shca_packet *shca_packet_dup(const struct shca_packet *pkt, gfp_t gfp);
void shca_packet_free(struct shca_packet *pkt);

#endif
