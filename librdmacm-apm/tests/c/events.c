// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Two ids with one event channel, and events of the daemon's for both: the first is destroyed before its
 * event is read, the second by another thread before it is acknowledged. Prints what becomes of it; the
 * test compares.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include <rdma/rdma_apm.h>

#define PEER ((void *)0x20)

static struct ibv_device device;
static struct ibv_context context = { .device = &device, .async_fd = -1 };
static struct ibv_qp qps[] = {
	{ .qp_num = 7, .qp_context = PEER, .context = &context, .qp_type = IBV_QPT_RC },
	{ .qp_num = 9, .qp_context = PEER, .context = &context, .qp_type = IBV_QPT_RC },
};

static struct rdma_cm_id *accepted(struct rdma_event_channel *channel, struct ibv_qp *qp)
{
	struct rdma_cm_id *id;
	uint8_t on = 1;

	qp->state = IBV_QPS_RTS;
	rdma_create_id(channel, &id, NULL, RDMA_PS_TCP);
	id->verbs = &context;
	id->qp = qp;
	id->qp_type = IBV_QPT_RC;
	id->port_num = 1;
	if (rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_APM, &on, 1))
		perror("option");
	rdma_accept(id, NULL);
	return id;
}

static int readable(struct rdma_event_channel *channel, int timeout)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };

	return poll(&fd, 1, timeout);
}

static atomic_bool acknowledged;

static void *destroy(void *id)
{
	rdma_destroy_id(id);
	printf("destroyed when it is%s acknowledged\n", acknowledged ? "" : " not");
	return NULL;
}

int main(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *first = accepted(channel, &qps[0]);
	struct rdma_cm_id *second = accepted(channel, &qps[1]);
	struct rdma_cm_event *event;
	pthread_t thread;

	/* A failing test ends; it does not hang. */
	alarm(20);
	readable(channel, -1);
	rdma_destroy_id(first);
	printf("readable without the first: %d\n", readable(channel, 0));
	fflush(stdout);
	rdma_get_cm_event(channel, &event);
	printf("%s of the %s\n", rdma_event_str(event->event),
	       event->id == second ? "second" : "wrong one");
	printf("readable after that: %d\n", readable(channel, 0));
	pthread_create(&thread, NULL, destroy, second);
	/* Time for the thread to come to where it waits, or to show that it does not. */
	readable(channel, 50);
	acknowledged = true;
	rdma_ack_cm_event(event);
	pthread_join(thread, NULL);
	rdma_destroy_event_channel(channel);
	return 0;
}
