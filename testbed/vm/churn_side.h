/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * One side of a pair of qp_churn: a process with one RC queue pair at a time, which it connects to
 * its peer's, works with, and breaks in mid-flight, round after round.
 *
 * What completes with success is verified: each message that comes in (the right one, once, in
 * order, whole), what was written there and read back, and what atomics return.
 */
#ifndef CHURN_SIDE_H
#define CHURN_SIDE_H

#include <poll.h>
#include <pthread.h>
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

static inline bool begin_round(struct side *s)
{
	uint32_t i;

	s->round++;
	s->plan = chance(&s->random, BREAKINGS);
	s->gone = false;
	s->peer_over = false;
	s->target = 20 + chance(&s->random, 60);
	s->posted = s->completed = s->announced = s->received = 0;
	s->atomics = 0;
	memset(slot(s, COUNTER, 0), 0, sizeof(uint64_t));
	if (!s->end.qp)
		create_qp(s);
	to_init(s);
	for (i = 0; i < DEPTH; i++)
		post_receive(s, i);
	s->own = (struct word){
		.qpn = s->end.qp->qp_num, .psn = chance(&s->random, 1 << 24),
		.rkey = s->end.mr->rkey, .lid = port_of(&s->end, s->port).lid,
		.mtu = IBV_MTU_256 + chance(&s->random, 5),
		.address = (uintptr_t)s->end.memory, .key = mix(s->random),
	};
	if (!tell(s, HELLO) || !hear(s, HELLO, &s->peer))
		return false;
	connect_qp(s);
	return tell(s, READY) && hear(s, READY, &(struct word){ 0 });
}

/* ---- work ---- */

static inline bool reads_back(const struct side *s)
{
	return s->posted && s->operations[(s->posted - 1) % SLOTS].opcode == IBV_WR_RDMA_WRITE;
}

static inline void post_operation(struct side *s)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE,
		IBV_WR_ATOMIC_FETCH_AND_ADD,
	};
	uint32_t n = s->posted, source = n % SLOTS;
	struct operation *op = &s->operations[source];
	uint64_t key = message_key(&s->own, s->announced), target = 0;
	uint32_t length = length_of(key);
	char *at = slot(s, SOURCES, source);
	struct ibv_send_wr wr = { .wr_id = (uint64_t)s->round << 32 | n, .num_sge = 1 }, *stuck;
	struct ibv_sge sge;

	if (reads_back(s)) {
		uint32_t before = (n - 1) % SLOTS;

		op->opcode = IBV_WR_RDMA_READ;
		op->expected = s->operations[before].expected;
		length = length_of(op->expected);
		at = slot(s, READ_BACK, source);
		target = peer_slot(s, WRITTEN, before);
	} else {
		op->opcode = opcodes[chance(&s->random, 4)];
	}
	switch (op->opcode) {
	case IBV_WR_RDMA_WRITE:
		op->expected = key = mix(key + n);
		length = length_of(key);
		target = peer_slot(s, WRITTEN, source);
		fill(at, length, key);
		break;
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		target = peer_slot(s, ANNOUNCED, s->announced % TARGETS);
		wr.imm_data = s->announced++;
		fill(at, length, key);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		op->expected = s->atomics++;
		length = sizeof(uint64_t);
		at = slot(s, READ_BACK, source);
		wr.wr.atomic.compare_add = 1;
		wr.wr.atomic.remote_addr = peer_slot(s, COUNTER, 0);
		wr.wr.atomic.rkey = s->peer.rkey;
		break;
	default:
		break;
	}
	if (op->opcode != IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.rdma.remote_addr = target;
		wr.wr.rdma.rkey = s->peer.rkey;
	}
	sge = piece(s, at, length);
	wr.sg_list = &sge;
	wr.num_sge = length ? 1 : 0;
	wr.opcode = op->opcode;
	s->posted++;
	if (ibv_post_send(s->end.qp, &wr, &stuck))
		s->gone = true;		/* its QP has been reset, or its memory region is no more */
}

static inline bool check_operation(struct side *s, uint32_t n)
{
	const struct operation *op = &s->operations[n % SLOTS];
	const char *at = slot(s, READ_BACK, n % SLOTS);
	uint64_t counter;

	if (n != s->completed++)
		return bad("round %u: operation %u completes in the place of %u", s->round, n,
			   s->completed - 1);
	if (op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		memcpy(&counter, at, sizeof(counter));
		if (counter != op->expected)
			return bad("round %u: atomic %llu returned %llu", s->round,
				   (unsigned long long)op->expected, (unsigned long long)counter);
	} else if (op->opcode == IBV_WR_RDMA_READ &&
		   !holds(at, length_of(op->expected), op->expected)) {
		return bad("round %u: operation %u reads other data than was written", s->round, n);
	}
	return true;
}

static inline bool check_message(struct side *s, const struct ibv_wc *wc)
{
	uint32_t number = s->received++, index = (uint32_t)wc->wr_id;
	uint64_t key = message_key(&s->peer, number);
	bool send = wc->opcode == IBV_WC_RECV;
	const char *at = send ? slot(s, RECEIVES, index) : slot(s, ANNOUNCED, number % TARGETS);

	if (wc->imm_data != number || wc->byte_len != length_of(key))
		return bad("round %u: message %u of %u bytes comes in as %u of %u", s->round, number,
			   length_of(key), wc->imm_data, wc->byte_len);
	if (!holds(at, wc->byte_len, key))
		return bad("round %u: message %u is not what was sent (%s)", s->round, number,
			   send ? "SEND" : "RDMA WRITE with immediate");
	post_receive(s, index);
	return true;
}

/* Memory that is no longer registered is what these come of; nothing else here is. */
static inline bool may_be_denied(const struct side *s, enum ibv_wc_status status)
{
	return (status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_OP_ERR ||
		status == IBV_WC_LOC_PROT_ERR) &&
	       (*s->deregistered == s->round || *s->peer_deregistered == s->round);
}

static inline bool judge(struct side *s, const struct ibv_wc *wc)
{
	struct tally *t = s->tally;
	bool in = wc->opcode & IBV_WC_RECV;

	if (wc->wr_id >> 32 != s->round)
		return bad("round %u: a completion of round %llu", s->round,
			   (unsigned long long)wc->wr_id >> 32);
	switch (wc->status) {
	case IBV_WC_SUCCESS:
		t->verified++;
		return in ? check_message(s, wc) : check_operation(s, (uint32_t)wc->wr_id);
	case IBV_WC_WR_FLUSH_ERR:
		t->flushed++;
		break;
	case IBV_WC_RETRY_EXC_ERR:
		t->exhausted++;
		break;
	default:
		if (!may_be_denied(s, wc->status))
			return bad("round %u: %s", s->round, ibv_wc_status_str(wc->status));
		t->denied++;
	}
	s->gone = true;
	return true;
}

static inline bool drain(struct side *s)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(s->end.cq, 1, &wc) > 0)
		if (!judge(s, &wc))
			return false;
	return true;
}

/* ---- breaking ---- */

static inline void to_state(struct side *s, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	if (ibv_modify_qp(s->end.qp, &attr, IBV_QP_STATE))
		die("to Error or Reset");
}

/* From another thread: in the midst of a post, of a poll, of anything. */
static inline void *break_qp(void *side)
{
	struct side *s = side;

	usleep(s->own.key % 30000);
	to_state(s, s->plan == TO_ERROR ? IBV_QPS_ERR : IBV_QPS_RESET);
	/* Reset takes what is posted away without a completion. */
	s->gone = true;
	return NULL;
}

static inline void deregister(struct side *s)
{
	*s->deregistered = s->round;
	if (ibv_dereg_mr(s->end.mr))
		die("ibv_dereg_mr");
	s->end.mr = NULL;
}

static inline void break_now(struct side *s)
{
	s->gone = true;
	if (s->plan == DESTROY)
		destroy_qp(s);
	else
		deregister(s);
}

static inline bool breaks_now(const struct side *s, uint32_t when)
{
	return (s->plan == DESTROY || s->plan == DEREGISTER) && s->posted >= when;
}

/* Until all is done on both sides, or something is broken. */
static inline bool work(struct side *s)
{
	uint32_t when = 1 + chance(&s->random, s->target);
	int64_t until = now_ms() + PATIENCE_MS;
	bool told = false;

	while (!s->gone && !(s->completed == s->target && s->peer_over)) {
		if (s->posted < s->target && s->posted - s->completed < WINDOW)
			post_operation(s);
		if (breaks_now(s, when)) {
			break_now(s);
			break;
		}
		if (!drain(s))
			return false;
		if (!told && s->completed == s->target)
			told = tell(s, OVER);
		listen_for_end(s);
		if (now_ms() > until)
			return bad("round %u does not end", s->round);
		if (s->posted - s->completed == WINDOW || s->posted == s->target)
			sched_yield();
	}
	return true;
}

/*
 * Whatever the plan was: nothing is connected when the peer hears that the round is over. The QP
 * may serve again. One in Reset has nothing of what it was.
 */
static inline bool end_round(struct side *s)
{
	bool keep = s->end.qp && s->end.mr && !s->srq && chance(&s->random, 2);

	/* There is no way from Reset to Error. */
	if (s->end.qp && s->plan != TO_RESET && chance(&s->random, 3)) {
		to_state(s, IBV_QPS_ERR);
		if (!drain(s))
			return false;
	}
	if (keep) {
		/*
		 * Reset takes away what is posted before it. One may be posted after it, which
		 * the library should refuse, and does not.
		 */
		if (s->plan == TO_RESET)
			to_init(s);
		to_state(s, IBV_QPS_RESET);
		s->tally->kept++;
	} else {
		destroy_qp(s);
	}
	if (!drain(s))
		return false;
	collect_events(&s->end);
	if (!s->end.mr) {
		s->end.mr = ibv_reg_mr(s->end.pd, s->end.memory, (size_t)AREAS * SLOT,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
		if (!s->end.mr)
			die("ibv_reg_mr");
	}
	s->tally->broken[s->plan]++;
	s->tally->rounds++;
	return true;
}

static inline bool play_round(struct side *s)
{
	bool by_thread = s->plan == TO_ERROR || s->plan == TO_RESET, ok;
	pthread_t breaker;

	errno = by_thread ? pthread_create(&breaker, NULL, break_qp, s) : 0;
	if (errno)
		die("pthread_create");
	ok = work(s);
	if (by_thread)
		pthread_join(breaker, NULL);
	return ok && end_round(s) && (tell(s, OVER) || true);
}

/* Until it is told to stop, or the peer is no more. */
static inline int side_main(struct side *s)
{
	why[0] = 0;
	open_end(&s->end, s->device, (size_t)AREAS * SLOT, 4 * (SLOTS + DEPTH));
	while (!s->tally->stop && begin_round(s) && play_round(s))
		;
	if (why[0]) {
		printf("FAIL %s: %s\n", s->device, why);
		fflush(stdout);
		s->tally->failed = true;
		return 1;
	}
	/* Or the kernel tidies up. */
	if (chance(&s->random, 2)) {
		destroy_qp(s);
		close_end(&s->end);
	}
	return 0;
}

#endif
