// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What an application does that protects itself: when its connection fails, it connects again by the other
 * pair of ports, and sends what was not answered once more. A numbered message goes to the server and comes
 * back, one at a time; a message that was lost, repeated or altered ends the client.
 *
 *   reconnect [options] -s GID [GID]                       the server, at one port or two
 *   reconnect [options] LOCAL REMOTE LOCAL REMOTE          the client, by the first pair first
 *     -p N     port (7485)
 *     -T N     local ACK timeout, 4.096 us * 2^N (rdma_cm's)
 *
 *   CONNECTED pair t_ms     STATS received t_ms  (each second)     ERROR t_ms what
 *   STALL start_ms ms  (no answer for longer than 20 ms)
 *
 * Both run until SIGTERM. Exit status: 0; 1 if something went wrong; 2 usage.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "../clock.h"

#define SIZE 1024
#define DEPTH 4
#define PAUSE_NS 1000000
#define STALL_NS 20000000ll
#define ASK_NS 100000000ll
#define AGAIN_NS 10000000	/* between two tries to connect */

static const char *port = "7485";
static uint8_t ack_timeout;

struct side {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	unsigned char memory[(DEPTH + 1) * SIZE];	/* the last slot is sent from */
};

static void complain(const char *what, const char *why)
{
	printf("ERROR t_ms=%.3f what=\"%s: %s\"\n", ms(now_ns()), what, why);
}

static __attribute__((noreturn)) void die(const char *what)
{
	complain(what, strerror(errno));
	exit(1);
}

static void rest(int64_t ns)
{
	struct timespec time = { .tv_nsec = ns };

	nanosleep(&time, NULL);
}

/* Messages */

static void fill(unsigned char *slot, uint64_t number)
{
	for (size_t i = 0; i < SIZE / sizeof number; i++) {
		uint64_t word = number * 0x9e3779b97f4a7c15 + i;

		memcpy(slot + i * sizeof word, i ? &word : &number, sizeof word);
	}
}

static bool intact(const unsigned char *slot, uint64_t number)
{
	unsigned char wanted[SIZE];

	fill(wanted, number);
	return !memcmp(slot, wanted, SIZE);
}

static unsigned char *slot(struct side *side, uint64_t number)
{
	return side->memory + number * SIZE;
}

static int post_receive(struct side *side, uint64_t number)
{
	return rdma_post_recv(side->id, (void *)(uintptr_t)number, slot(side, number), SIZE, side->mr);
}

static int send_out(struct side *side)
{
	return rdma_post_send(side->id, (void *)(uintptr_t)DEPTH, slot(side, DEPTH), SIZE, side->mr,
			      IBV_SEND_SIGNALED);
}

/* The next completion; false if the connection has failed. Yields between looks, as the answer is awaited. */
static bool completion(struct ibv_cq *cq, struct ibv_wc *wc)
{
	int n;

	while (!(n = ibv_poll_cq(cq, 1, wc)))
		rest(50000);
	return n > 0 && wc->status == IBV_WC_SUCCESS;
}

/* Connections */

static struct rdma_addrinfo *resolve(const char *gid, int flags, struct rdma_addrinfo *source)
{
	struct rdma_addrinfo hints = {
		.ai_flags = RAI_NUMERICHOST | RAI_FAMILY | flags,
		.ai_family = AF_IB,
		.ai_port_space = RDMA_PS_TCP,
		.ai_qp_type = IBV_QPT_RC,
		.ai_src_addr = source ? source->ai_src_addr : NULL,
		.ai_src_len = source ? source->ai_src_len : 0,
	}, *info;

	if (rdma_getaddrinfo((char *)gid, (char *)port, &hints, &info)) {
		errno = EADDRNOTAVAIL;
		die(gid);
	}
	return info;
}

static struct ibv_qp_init_attr queues(void)
{
	return (struct ibv_qp_init_attr){
		.cap = { .max_send_wr = 2, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
}

static int prepare(struct side *side)
{
	side->mr = rdma_reg_msgs(side->id, side->memory, sizeof side->memory);
	if (!side->mr)
		return -1;
	for (uint64_t number = 0; number < DEPTH; number++)
		if (post_receive(side, number))
			return -1;
	if (ack_timeout)
		return rdma_set_option(side->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &ack_timeout,
				       sizeof ack_timeout);
	return 0;
}

static void end(struct side *side)
{
	if (side->mr)
		rdma_dereg_mr(side->mr);
	if (side->id)
		rdma_destroy_ep(side->id);
	memset(side, 0, sizeof *side);
}

/* The client */

static bool connect_by(struct side *side, const char *local, const char *remote)
{
	struct rdma_addrinfo *source = resolve(local, RAI_PASSIVE, NULL), *info = resolve(remote, 0, source);
	struct rdma_conn_param param = {
		.responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7,
	};
	struct ibv_qp_init_attr attr = queues();
	bool connected = !rdma_create_ep(&side->id, info, NULL, &attr) && !prepare(side) &&
			 !rdma_connect(side->id, &param);

	rdma_freeaddrinfo(info);
	rdma_freeaddrinfo(source);
	return connected;
}

static void connect_again(struct side *side, char **gids)
{
	static int pair = -1;

	do {
		end(side);
		if (pair >= 0)
			rest(AGAIN_NS);
		pair = (pair + 1) % 2;
	} while (!connect_by(side, gids[2 * pair], gids[2 * pair + 1]));
	printf("CONNECTED pair=%d t_ms=%.3f\n", pair + 1, ms(now_ns()));
}

/* Writes nothing: it completes if the peer is there, and fails if it is not. */
static int ask_whether_it_lives(struct side *side)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED }, *bad;

	return ibv_post_send(side->id->qp, &wr, &bad);
}

/* What has come of the send queue: how many are done, or -1. */
static int sends_done(struct side *side)
{
	struct ibv_wc wc[2];
	int n = ibv_poll_cq(side->id->send_cq, 2, wc);

	for (int i = 0; i < n; i++)
		if (wc[i].status != IBV_WC_SUCCESS)
			return -1;
	return n;
}

/* Sends the message and waits for its answer; false if the connection has failed. The message may have
 * arrived and the answer be lost, of which only the server knows: so something is sent now and then. */
static bool exchange(struct side *side, uint64_t number)
{
	int64_t ask_at = now_ns() + ASK_NS;
	int outstanding = 1, n;
	struct ibv_wc wc;

	fill(slot(side, DEPTH), number);
	if (send_out(side))
		return false;
	while (!(n = ibv_poll_cq(side->id->recv_cq, 1, &wc))) {
		int done = sends_done(side);

		if (done < 0)
			return false;
		outstanding -= done;
		if (!outstanding && now_ns() > ask_at) {
			if (ask_whether_it_lives(side))
				return false;
			outstanding++;
			ask_at = now_ns() + ASK_NS;
		}
		rest(50000);
	}
	if (n < 0 || wc.status != IBV_WC_SUCCESS)
		return false;
	if (wc.byte_len != SIZE || !intact(slot(side, wc.wr_id), number)) {
		complain("answer", "not what was sent");
		exit(1);
	}
	if (post_receive(side, wc.wr_id))
		die("post receive");
	while (outstanding) {
		int done = sends_done(side);

		if (done < 0)
			return false;
		outstanding -= done;
	}
	return true;
}

static void client(char **gids)
{
	static struct side side;
	int64_t last = now_ns(), stats = last + 1000000000, now;

	connect_again(&side, gids);
	for (uint64_t number = 1;; number++) {
		while (!exchange(&side, number))
			connect_again(&side, gids);
		now = now_ns();
		if (number > 1 && now - last > STALL_NS)
			printf("STALL start_ms=%.3f ms=%.3f\n", ms(last), ms(now - last));
		last = now;
		if (now > stats) {
			printf("STATS received=%" PRIu64 " t_ms=%.3f\n", number, ms(now));
			stats = now + 1000000000;
		}
		rest(PAUSE_NS);
	}
}

/* The server */

static void *serve(void *argument)
{
	struct side *side = argument;
	struct ibv_wc wc;

	while (completion(side->id->recv_cq, &wc)) {
		memcpy(slot(side, DEPTH), slot(side, wc.wr_id), SIZE);
		if (post_receive(side, wc.wr_id) || send_out(side) || !completion(side->id->send_cq, &wc))
			break;
	}
	end(side);
	free(side);
	return NULL;
}

static void *listen_at(void *gid)
{
	struct rdma_addrinfo *own = resolve(gid, RAI_PASSIVE, NULL);
	struct ibv_qp_init_attr attr = queues();
	struct rdma_cm_id *listener;

	if (rdma_create_ep(&listener, own, NULL, &attr) || rdma_listen(listener, 8))
		die("listening");
	printf("LISTENING t_ms=%.3f\n", ms(now_ns()));
	for (;;) {
		struct side *side = calloc(1, sizeof *side);
		pthread_t thread;

		if (!side || rdma_get_request(listener, &side->id))
			die("rdma_get_request");
		/* Who connects may have given up meanwhile. */
		if (prepare(side) || rdma_accept(side->id, NULL)) {
			end(side);
			free(side);
			continue;
		}
		if (pthread_create(&thread, NULL, serve, side))
			die("pthread_create");
		pthread_detach(thread);
	}
}

static int usage(void)
{
	fprintf(stderr, "usage: reconnect [-p PORT] [-T ACK_TIMEOUT] -s GID [GID]\n"
			"       reconnect [-p PORT] [-T ACK_TIMEOUT] LOCAL REMOTE LOCAL REMOTE\n");
	return 2;
}

int main(int argc, char **argv)
{
	bool server = false;
	pthread_t thread;
	int option;

	while ((option = getopt(argc, argv, "sp:T:")) != -1) {
		switch (option) {
		case 's': server = true; break;
		case 'p': port = optarg; break;
		case 'T': ack_timeout = atoi(optarg); break;
		default: return usage();
		}
	}
	argc -= optind;
	argv += optind;
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!server) {
		if (argc != 4)
			return usage();
		client(argv);
	}
	if (argc != 1 && argc != 2)
		return usage();
	if (argc == 2 && pthread_create(&thread, NULL, listen_at, argv[1]))
		die("pthread_create");
	listen_at(argv[0]);
}
