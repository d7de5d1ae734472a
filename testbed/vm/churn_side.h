/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * One side of a pair of qp_churn: a process with one RC queue pair at a time, which it connects to
 * its peer's. What it does with it is in churn_round.h.
 */
#ifndef CHURN_SIDE_H
#define CHURN_SIDE_H

#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "verbs_pair.h"

#define SLOT 8192		/* bytes; what a message may be long */
#define WINDOW 8		/* operations outstanding */
#define SLOTS 16		/* more than WINDOW: a slot is not in use when it comes again */
#define DEPTH 16		/* receives posted */
#define TARGETS 32		/* more than DEPTH: where the peer's RDMA WRITEs with immediate go */

/* Memory of a side, in slots. */
enum area {
	SOURCES = 0,
	READ_BACK = SOURCES + SLOTS,
	RECEIVES = READ_BACK + SLOTS,
	ANNOUNCED = RECEIVES + DEPTH,	/* what the peer writes with immediate */
	WRITTEN = ANNOUNCED + TARGETS,	/* what the peer writes, and reads back */
	COUNTER = WRITTEN + SLOTS,	/* of the peer's atomics */
	AREAS
};

enum breaking { COMPLETE, TO_ERROR, TO_RESET, DESTROY, DEREGISTER, BREAKINGS };

/* What all processes count in common; the supervisor judges by it. */
struct tally {
	atomic_ulong rounds, verified, flushed, exhausted, denied, kept, kills, pulls;
	atomic_ulong broken[BREAKINGS];
	atomic_bool stop, failed;
};

struct side {
	struct tally *tally;
	atomic_uint *deregistered, *peer_deregistered;	/* the last round in which they did */
	const char *device;
	int port, socket;
	uint64_t random;

	struct end end;
	struct ibv_srq *srq;

	/* the round */
	uint32_t round;
	enum breaking plan;
	atomic_bool gone;	/* QP or memory region are broken, or about to be */
	bool peer_over;
	uint32_t target;	/* operations to do */
	uint32_t posted, completed;
	uint32_t announced, received;	/* messages that take a receive, out and in */
	uint64_t atomics;
	struct operation {
		enum ibv_wr_opcode opcode;
		uint64_t expected;	/* key of the pattern read back, or the counter */
	} operations[SLOTS];
	struct word {
		enum { HELLO, READY, OVER } kind;
		uint32_t qpn, psn, rkey;
		uint16_t lid;
		enum ibv_mtu mtu;
		uint64_t address, key;
	} own, peer;
};

/* ---- chance, and what is written ---- */

static inline uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

static inline uint32_t chance(uint64_t *random, uint32_t below)
{
	*random += 0x9e3779b97f4a7c15ULL;
	return (mix(*random) >> 32) % below;
}

static inline uint64_t message_key(const struct word *sender, uint32_t number)
{
	return mix(sender->key + number);
}

/* Many are short, some are empty. */
static inline uint32_t length_of(uint64_t key)
{
	return key & 0x100 ? key % 64 : key % (SLOT + 1);
}

static inline void fill(char *at, uint32_t length, uint64_t key)
{
	for (; length >= 8; at += 8, length -= 8, key += 0x9e3779b97f4a7c15ULL)
		memcpy(at, &key, 8);
	memcpy(at, &key, length);
}

static inline bool holds(const char *at, uint32_t length, uint64_t key)
{
	for (; length >= 8; at += 8, length -= 8, key += 0x9e3779b97f4a7c15ULL)
		if (memcmp(at, &key, 8))
			return false;
	return !memcmp(at, &key, length);
}

static inline char *slot(struct side *s, enum area area, uint32_t index)
{
	return s->end.memory + (size_t)(area + index) * SLOT;
}

static inline uint64_t peer_slot(const struct side *s, enum area area, uint32_t index)
{
	return s->peer.address + (uint64_t)(area + index) * SLOT;
}

/* ---- the peer ---- */

/* False: the peer is no more, or does not answer. */
static inline bool hear(struct side *s, unsigned int kind, struct word *word)
{
	struct pollfd fd = { .fd = s->socket, .events = POLLIN };

	do {
		if (poll(&fd, 1, PATIENCE_MS) == 0)
			return bad("%s: the peer does not answer in round %u", s->device, s->round);
		if (recv(s->socket, word, sizeof(*word), 0) != sizeof(*word))
			return false;
	} while (word->kind != kind);
	return true;
}

static inline bool tell(struct side *s, unsigned int kind)
{
	s->own.kind = kind;
	return send(s->socket, &s->own, sizeof(s->own), MSG_NOSIGNAL) == sizeof(s->own);
}

static inline void listen_for_end(struct side *s)
{
	struct word word;
	ssize_t got;

	if (s->peer_over)
		return;
	got = recv(s->socket, &word, sizeof(word), MSG_DONTWAIT);
	s->peer_over = got == 0 || (got == sizeof(word) && word.kind == OVER) ||
		       (got < 0 && errno != EAGAIN);
}

/* ---- a connection ---- */

static inline struct ibv_sge piece(struct side *s, char *at, uint32_t length)
{
	return (struct ibv_sge){ (uintptr_t)at, length, s->end.mr->lkey };
}

static inline void post_receive(struct side *s, uint32_t index)
{
	struct ibv_sge sge;
	struct ibv_recv_wr wr = {
		.wr_id = (uint64_t)s->round << 32 | index, .sg_list = &sge, .num_sge = 1,
	}, *stuck;

	if (s->gone)
		return;
	sge = piece(s, slot(s, RECEIVES, index), SLOT);
	if (s->srq)
		ibv_post_srq_recv(s->srq, &wr, &stuck);
	else
		ibv_post_recv(s->end.qp, &wr, &stuck);
}

static inline void create_qp(struct side *s)
{
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };
	struct ibv_qp_init_attr init = {
		.send_cq = s->end.cq, .recv_cq = s->end.cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = SLOTS, .max_recv_wr = DEPTH,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};

	if (!chance(&s->random, 4)) {
		s->srq = ibv_create_srq(s->end.pd, &shared);
		if (!s->srq)
			die("ibv_create_srq");
	}
	init.srq = s->srq;
	s->end.qp = ibv_create_qp(s->end.pd, &init);
	if (!s->end.qp)
		die("ibv_create_qp");
}

static inline void destroy_qp(struct side *s)
{
	collect_events(&s->end);
	if (s->end.qp && ibv_destroy_qp(s->end.qp))
		die("ibv_destroy_qp");
	if (s->srq && ibv_destroy_srq(s->srq))
		die("ibv_destroy_srq");
	s->end.qp = NULL;
	s->srq = NULL;
}

static inline void to_init(struct side *s)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = s->port,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC,
	};

	if (ibv_modify_qp(s->end.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			  IBV_QP_ACCESS_FLAGS))
		die("to Init");
}

static inline void connect_qp(struct side *s)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .dest_qp_num = s->peer.qpn, .rq_psn = s->peer.psn,
		.path_mtu = s->own.mtu < s->peer.mtu ? s->own.mtu : s->peer.mtu,
		.max_dest_rd_atomic = 4, .min_rnr_timer = 12,
		.ah_attr = { .dlid = s->peer.lid, .port_num = s->port },
	};

	if (ibv_modify_qp(s->end.qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			  IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			  IBV_QP_MIN_RNR_TIMER))
		die("to RTR");
	/* Tries that are over soon: a pulled cable, or a peer that went, ends the round. */
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 10, .retry_cnt = 7, .rnr_retry = 7,
		.sq_psn = s->own.psn, .max_rd_atomic = 4,
	};
	if (ibv_modify_qp(s->end.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
			  IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC))
		die("to RTS");
}

#endif
