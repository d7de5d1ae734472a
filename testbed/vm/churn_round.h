/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The rounds of one side of a pair: it works with its queue pair, breaks it in mid-flight, and begins
 * again.
 *
 * What completes with success is verified: each message that comes in (the right one, once, in
 * order, whole), what was written there and read back, and what atomics return.
 */
#ifndef CHURN_ROUND_H
#define CHURN_ROUND_H

#include <pthread.h>

#include "churn_side.h"

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

/* ---- rounds ---- */

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

	/* What has come in and is not polled yet: a receive posted for it would be the next round's. */
	s->gone = true;
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
