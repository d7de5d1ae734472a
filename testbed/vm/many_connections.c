// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * many_connections COUNT RATE DEVICE PORT PEER_DEVICE PEER_PORT: COUNT RC connections from a port to a peer's port, both
 * ends in this process. No connection manager and no library take part. In turn each connection sends one message,
 * RATE messages a second in all, and none while its last one is not completed: each end then receives a packet, the
 * message or its acknowledgement, so an alternate path that is loaded becomes Armed.
 *
 * Prints "STATS held=COUNT sent=N completed=N failed=N" each second, from when all connections are open.
 */
#define _GNU_SOURCE
#include "verbs_pair.h"

#define DEPTH 2			/* receives of each connection */
#define LENGTH 32
#define CQES 8192
#define POLLED 64
#define TURN_MS 10

#define ACK_TIMEOUT 20		/* 4.3 s, of which apmd makes less where the peer's apmd answers */

struct connection {
	struct ibv_qp *qp[2];
	bool busy;		/* its send is not completed */
	bool failed;
};

static struct end ends[2];
static int ports[2];
static struct connection *connections;
static unsigned long count, sent, completed, failed;

static void post_receive(int side, unsigned long number)
{
	struct ibv_sge sge = { (uintptr_t)ends[side].memory, LENGTH, ends[side].mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = number, .sg_list = &sge, .num_sge = 1 }, *stuck;

	if (ibv_post_recv(connections[number].qp[side], &wr, &stuck))
		die("ibv_post_recv");
}

static void post_send(unsigned long number)
{
	struct connection *one = &connections[number];
	struct ibv_sge sge = { (uintptr_t)ends[0].memory + LENGTH, LENGTH, ends[0].mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = number, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *stuck;

	if (ibv_post_send(one->qp[0], &wr, &stuck))
		die("ibv_post_send");
	one->busy = true;
	sent++;
}

static struct ibv_qp *initialised_qp(int side)
{
	struct ibv_qp_init_attr init = {
		.send_cq = ends[side].cq, .recv_cq = ends[side].cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = ports[side] };
	struct ibv_qp *qp = ibv_create_qp(ends[side].pd, &init);

	if (!qp || ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				 IBV_QP_ACCESS_FLAGS))
		die("a queue pair in Init");
	return qp;
}

static void connect_end(int side, struct connection *one, int dlid)
{
	struct ibv_qp *qp = one->qp[side];
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .dest_qp_num = one->qp[!side]->qp_num,
		.path_mtu = IBV_MTU_1024, .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .dlid = dlid, .port_num = ports[side] },
	};

	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("to RTR");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = ACK_TIMEOUT, .retry_cnt = 7, .rnr_retry = 7,
		.max_rd_atomic = 1,
	};
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
			  IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC))
		die("to RTS");
}

static void open_all(void)
{
	int lids[2], side, i;
	unsigned long number;

	for (side = 0; side < 2; side++)
		lids[side] = port_of(&ends[side], ports[side]).lid;
	for (number = 0; number < count; number++) {
		struct connection *one = &connections[number];

		for (side = 0; side < 2; side++)
			one->qp[side] = initialised_qp(side);
		for (i = 0; i < DEPTH; i++)
			post_receive(1, number);
		for (side = 0; side < 2; side++)
			connect_end(side, one, lids[!side]);
	}
}

/* Completions of one end: of sends at the first, of receives at the second. */
static void collect(int side)
{
	struct ibv_wc completions[POLLED];
	int found, i;

	while ((found = ibv_poll_cq(ends[side].cq, POLLED, completions)) > 0) {
		for (i = 0; i < found; i++) {
			const struct ibv_wc *wc = &completions[i];
			struct connection *one = &connections[wc->wr_id];

			if (side == 0)
				one->busy = false;
			if (wc->status != IBV_WC_SUCCESS) {
				failed += !one->failed;
				one->failed = true;
			} else if (side == 0) {
				completed++;
			} else {
				post_receive(1, wc->wr_id);
			}
		}
	}
}

static void tell(void)
{
	printf("STATS held=%lu sent=%lu completed=%lu failed=%lu\n", count, sent, completed, failed);
	fflush(stdout);
}

static void send_for_ever(unsigned long rate)
{
	unsigned long next = 0;
	int64_t before = now_ms(), told = before, now;
	double due = 0;

	for (;;) {
		pause_ms(TURN_MS);
		now = now_ms();
		due += rate * (now - before) / 1000.0;
		before = now;
		/* What was not sent in time, such as while the process was stopped, is not made up for. */
		for (due = due > rate ? rate : due; due >= 1; due--) {
			struct connection *one = &connections[next];

			next = (next + 1) % count;
			if (!one->busy && !one->failed)
				post_send(one - connections);
		}
		collect(0);
		collect(1);
		if (now - told >= 1000) {
			told = now;
			tell();
		}
	}
}

int main(int argc, char **argv)
{
	int side;

	if (argc != 7 || atol(argv[1]) < 1) {
		fprintf(stderr,
			"usage: many_connections COUNT RATE DEVICE PORT PEER_DEVICE PEER_PORT\n");
		return 2;
	}
	count = atol(argv[1]);
	connections = calloc(count, sizeof(*connections));
	if (!connections)
		die("memory");
	for (side = 0; side < 2; side++) {
		ports[side] = atoi(argv[4 + 2 * side]);
		open_end(&ends[side], argv[3 + 2 * side], 2 * LENGTH, CQES);
	}
	open_all();
	tell();
	send_for_ever(atol(argv[2]));
}
