// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * vain_connects FROM_GID TO_GID: two threads connect 1,000 queue pairs in vain, as often as they can: each asks for a
 * connection with more private data than a REQ has place for, and then goes to RTS from where that is not allowed. The
 * kernel refuses both, and has been asked both; so the module apm sees two beginnings of connections each time.
 *
 * Prints "ready" when its queue pairs are there, then each second how many attempts there were so far. SIGSTOP and
 * SIGCONT do what they do. Runs until it is killed.
 */
#define _GNU_SOURCE
#include <err.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS 2
#define QPS 500		/* of each */
#define RESOLVE_MS 20000
#define TOO_LONG 200	/* bytes of private data; a REQ has 92 */

struct crowd {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	struct ibv_pd *pd;
	struct ibv_qp *qps[QPS];
};

static struct crowd crowds[THREADS];
static atomic_ulong attempts;

static void await(struct crowd *crowd, enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event;
	enum rdma_cm_event_type type;

	if (rdma_get_cm_event(crowd->channel, &event))
		err(1, "rdma_get_cm_event");
	type = event->event;
	rdma_ack_cm_event(event);
	if (type != wanted)
		errx(1, "%s, not %s", rdma_event_str(type), rdma_event_str(wanted));
}

/* Port 1 of a device that need not listen: nothing is ever sent there. */
static struct rdma_addrinfo *address(const char *from, const char *to)
{
	struct rdma_addrinfo hints = {
		.ai_flags = RAI_NUMERICHOST | RAI_FAMILY | RAI_PASSIVE,
		.ai_family = AF_IB, .ai_port_space = RDMA_PS_TCP,
	};
	struct rdma_addrinfo *here, *there;

	if (rdma_getaddrinfo(from, NULL, &hints, &here))
		err(1, "%s", from);
	hints.ai_flags &= ~RAI_PASSIVE;
	hints.ai_src_addr = here->ai_src_addr;
	hints.ai_src_len = here->ai_src_len;
	if (rdma_getaddrinfo(to, "7471", &hints, &there))
		err(1, "%s", to);
	return there;
}

static struct ibv_qp *create_qp(struct crowd *crowd)
{
	struct ibv_qp_init_attr init = {
		.send_cq = crowd->cq, .recv_cq = crowd->cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = crowd->id->port_num };
	struct ibv_qp *qp = ibv_create_qp(crowd->pd, &init);

	if (!qp || ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				 IBV_QP_ACCESS_FLAGS))
		err(1, "a queue pair");
	return qp;
}

static void prepare(struct crowd *crowd, const struct rdma_addrinfo *to)
{
	int i;

	crowd->channel = rdma_create_event_channel();
	if (!crowd->channel || rdma_create_id(crowd->channel, &crowd->id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(crowd->id, to->ai_src_addr, to->ai_dst_addr, RESOLVE_MS))
		err(1, "resolve the address");
	await(crowd, RDMA_CM_EVENT_ADDR_RESOLVED);
	if (rdma_resolve_route(crowd->id, RESOLVE_MS))
		err(1, "resolve the route");
	await(crowd, RDMA_CM_EVENT_ROUTE_RESOLVED);
	crowd->pd = ibv_alloc_pd(crowd->id->verbs);
	crowd->cq = ibv_create_cq(crowd->id->verbs, 1, NULL, NULL, 0);
	if (!crowd->pd || !crowd->cq)
		err(1, "resources");
	for (i = 0; i < QPS; i++)
		crowd->qps[i] = create_qp(crowd);
}

static void *connect_all(void *argument)
{
	static const uint8_t data[TOO_LONG];
	struct crowd *crowd = argument;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
	};
	int i;

	for (i = 0;; i = (i + 1) % QPS) {
		struct rdma_conn_param param = {
			.private_data = data, .private_data_len = sizeof(data),
			.qp_num = crowd->qps[i]->qp_num,
		};

		if (!rdma_connect(crowd->id, &param))
			errx(1, "a REQ was sent");
		if (!ibv_modify_qp(crowd->qps[i], &attr,
				   IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
				   IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC))
			errx(1, "a queue pair went from INIT to RTS");
		atomic_fetch_add(&attempts, 1);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct rdma_addrinfo *to;
	pthread_t thread;
	int i;

	if (argc != 3) {
		fprintf(stderr, "usage: vain_connects FROM_GID TO_GID\n");
		return 2;
	}
	to = address(argv[1], argv[2]);
	for (i = 0; i < THREADS; i++)
		prepare(&crowds[i], to);
	printf("ready\n");
	fflush(stdout);
	for (i = 0; i < THREADS; i++)
		if (pthread_create(&thread, NULL, connect_all, &crowds[i]))
			errx(1, "pthread_create");
	for (;;) {
		sleep(1);
		printf("%lu attempts\n", atomic_load(&attempts));
		fflush(stdout);
	}
}
