// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * dead_qps SECONDS SEED: RC queue pairs between shca0 and shca1 that come into Error while others give orders
 * about them, and are read for seconds afterwards: none may be in any other state again.
 *
 * Messages go both ways first, so that what is loaded becomes Armed. Then one end, or both, is put into Error
 * by modify; or one is destroyed, and the other gets there by a completion whose retries are exhausted, as
 * everybody does whose cable is out for too long. SIGTERM ends it as the time does. Ends with "PASS" and a
 * tally, or says what is wrong.
 */
#define _GNU_SOURCE
#include <signal.h>

#include "verbs_pair.h"

#define PAIRS 12
#define DEPTH 4
#define LENGTH 64
#define LIVES_MS 700		/* at most, before it is put into Error */
#define WATCHED_MS 2500		/* at most, afterwards */

struct half {
	struct ibv_qp *qp;
	bool busy;		/* a send of its is not completed */
	bool loaded;		/* an alternate path was seen */
	bool failed;		/* its owner or a completion said so */
	bool dead;		/* it is in Error: its owner put it there, or it was read */
};

struct pair {
	struct half half[2];
	int port;
	int64_t breaks, ends;	/* ms */
	bool broken;
};

static struct end ends[2] = { { .name = "shca0" }, { .name = "shca1" } };
static struct pair pairs[PAIRS];
static uint64_t chances;
static unsigned long count, by_modify, by_completion, while_loaded, in_rts, in_error;
static volatile sig_atomic_t enough;

/* xorshift: the same choices for the same seed. */
static uint32_t chance(uint32_t below)
{
	chances ^= chances << 13;
	chances ^= chances >> 7;
	chances ^= chances << 17;
	return chances % below;
}

/* ---- a pair ---- */

static void post_receive(int side, struct ibv_qp *qp)
{
	struct ibv_sge sge = { (uintptr_t)ends[side].memory, LENGTH, ends[side].mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *stuck;

	if (ibv_post_recv(qp, &wr, &stuck))
		die("ibv_post_recv");
}

static void post_send(int side, struct half *half)
{
	struct ibv_sge sge = { (uintptr_t)ends[side].memory + LENGTH, LENGTH, ends[side].mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *stuck;

	if (ibv_post_send(half->qp, &wr, &stuck))
		half->failed = true;
	else
		half->busy = true;
}

static void create_half(int side, struct pair *pair)
{
	struct ibv_qp_init_attr init = {
		.send_cq = ends[side].cq, .recv_cq = ends[side].cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = pair->port };
	struct half *half = &pair->half[side];
	int i;

	half->qp = ibv_create_qp(ends[side].pd, &init);
	if (!half->qp || ibv_modify_qp(half->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
				       IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("a queue pair in Init");
	for (i = 0; i < DEPTH; i++)
		post_receive(side, half->qp);
	count++;
}

static void connect_half(int side, struct pair *pair)
{
	struct ibv_qp *qp = pair->half[side].qp;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .dest_qp_num = pair->half[!side].qp->qp_num,
		.path_mtu = IBV_MTU_1024, .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .dlid = port_of(&ends[!side], pair->port).lid, .port_num = pair->port },
	};

	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("to RTR");
	/* Tries that are over soon, so that a cable that is out is one way into Error. */
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 11, .retry_cnt = 7, .rnr_retry = 7,
		.max_rd_atomic = 1,
	};
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
			  IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC))
		die("to RTS");
}

static void begin_pair(struct pair *pair)
{
	int side;

	*pair = (struct pair){ .port = 1 + chance(2) };
	for (side = 0; side < 2; side++)
		create_half(side, pair);
	for (side = 0; side < 2; side++)
		connect_half(side, pair);
	pair->breaks = now_ms() + 5 + chance(LIVES_MS);
}

static void destroy_half(struct half *half)
{
	if (half->qp && ibv_destroy_qp(half->qp))
		die("ibv_destroy_qp");
	half->qp = NULL;
}

/* ---- Error ---- */

static void break_half(struct half *half)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	/* It may be there already: that changes nothing. */
	if (ibv_modify_qp(half->qp, &attr, IBV_QP_STATE))
		die("to Error");
	half->failed = half->dead = true;
	by_modify++;
}

static void break_pair(struct pair *pair)
{
	int side = chance(2);

	switch (chance(3)) {
	case 0:
		break_half(&pair->half[side]);
		break;
	case 1:
		break_half(&pair->half[side]);
		break_half(&pair->half[!side]);
		break;
	default:
		destroy_half(&pair->half[side]);
	}
	pair->broken = true;
	pair->ends = now_ms() + 500 + chance(WATCHED_MS - 500);
}

/* ---- work ---- */

static struct half *owner_of(int side, uint32_t qpn)
{
	int i;

	for (i = 0; i < PAIRS; i++)
		if (pairs[i].half[side].qp && pairs[i].half[side].qp->qp_num == qpn)
			return &pairs[i].half[side];
	return NULL;
}

static void complete(int side, const struct ibv_wc *wc)
{
	struct half *half = owner_of(side, wc->qp_num);

	if (!half)
		return;
	if (wc->status && !half->failed) {
		half->failed = true;
		by_completion++;
	} else if (!wc->status && wc->wr_id) {
		half->busy = false;
	} else if (!wc->status) {
		post_receive(side, half->qp);
	}
}

static void drain(int side)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(ends[side].cq, 1, &wc) > 0)
		complete(side, &wc);
	collect_events(&ends[side]);
}

static bool read_half(int side, struct half *half)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	bool error;

	if (ibv_query_qp(half->qp, &attr, IBV_QP_STATE | IBV_QP_PATH_MIG_STATE, &init))
		die("ibv_query_qp");
	error = attr.qp_state == IBV_QPS_ERR;
	if (half->dead && !error)
		return bad("%s: queue pair %u was in Error, and is in state %d", ends[side].name,
			   half->qp->qp_num, attr.qp_state);
	half->dead = error;
	half->loaded |= !error && attr.path_mig_state != IBV_MIG_MIGRATED;
	in_rts += attr.qp_state == IBV_QPS_RTS;
	in_error += error;
	return true;
}

static bool end_half(int side, struct half *half)
{
	/* A completion says so just before it is so. */
	if (half->qp && half->failed && !half->dead)
		return bad("%s: queue pair %u failed, and never came into Error", ends[side].name,
			   half->qp->qp_num);
	while_loaded += half->loaded && half->dead;
	destroy_half(half);
	return true;
}

static bool turn(struct pair *pair)
{
	int64_t now = now_ms();
	int side;

	if (!pair->half[0].qp && !pair->half[1].qp) {
		begin_pair(pair);
		return true;
	}
	if (!pair->broken && now >= pair->breaks)
		break_pair(pair);
	for (side = 0; side < 2; side++) {
		struct half *half = &pair->half[side];

		if (!half->qp)
			continue;
		if (!half->failed && !half->busy)
			post_send(side, half);
		if (!read_half(side, half))
			return false;
	}
	if (!pair->broken || now < pair->ends)
		return true;
	return end_half(0, &pair->half[0]) && end_half(1, &pair->half[1]);
}

static bool churn(int64_t until)
{
	int i;

	while (!enough && now_ms() < until) {
		for (i = 0; i < PAIRS; i++) {
			if (!turn(&pairs[i]))
				return false;
			drain(0);
			drain(1);
		}
		pause_ms(3);
	}
	return (by_modify && by_completion && in_rts && in_error) || bad("too little has happened");
}

static void end_now(int signal)
{
	enough = signal;
}

int main(int argc, char **argv)
{
	bool ok;
	int i;

	if (argc != 3)
		return 2;
	chances = strtoull(argv[2], NULL, 0) | 1;
	signal(SIGTERM, end_now);
	for (i = 0; i < 2; i++)
		open_end(&ends[i], ends[i].name, 2 * LENGTH, 4096);
	ok = churn(now_ms() + 1000 * atol(argv[1]));
	for (i = 0; i < PAIRS; i++) {
		destroy_half(&pairs[i].half[0]);
		destroy_half(&pairs[i].half[1]);
	}
	for (i = 0; i < 2; i++)
		close_end(&ends[i]);
	printf("queue pairs: %lu, into Error by modify: %lu, by a completion: %lu, with a path loaded: %lu, "
	       "read in RTS: %lu, in Error: %lu\n", count, by_modify, by_completion, while_loaded, in_rts,
	       in_error);
	printf(ok ? "PASS\n" : "FAIL %s\n", why);
	return !ok;
}
