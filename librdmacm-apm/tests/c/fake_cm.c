// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Event channels as the kernel and librdmacm have them, in a few lines: a channel can be read from as
 * long as an event is queued, an id takes its queued events with it, and is not destroyed before those
 * that were read are acknowledged. It is preloaded behind the library, in the place of rdma-core.
 */
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

struct id {
	struct rdma_cm_id id;
	/* Events that were read, and not yet acknowledged. */
	int unacknowledged;
};

struct event {
	struct rdma_cm_event event;
	struct event *next;
};

/* Its descriptor counts the events. */
struct channel {
	struct rdma_event_channel channel;
	struct event *first;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t acknowledged = PTHREAD_COND_INITIALIZER;

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct channel *channel = calloc(1, sizeof *channel);

	channel->channel.fd = eventfd(0, EFD_SEMAPHORE);
	return &channel->channel;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	close(channel->fd);
	free(channel);
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
		   enum rdma_port_space ps)
{
	struct id *new = calloc(1, sizeof *new);

	new->id.channel = channel;
	new->id.context = context;
	new->id.ps = ps;
	*id = &new->id;
	return 0;
}

/* Takes out the first event, of an id or of any. */
static struct event *take(struct channel *channel, struct rdma_cm_id *of)
{
	struct event **at = &channel->first;
	struct event *found;
	uint64_t one;

	while (*at && of && (*at)->event.id != of)
		at = &(*at)->next;
	found = *at;
	if (found) {
		*at = found->next;
		if (read(channel->channel.fd, &one, sizeof one) != sizeof one)
			abort();
	}
	return found;
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	struct id *gone = (struct id *)id;
	struct event *event;

	pthread_mutex_lock(&lock);
	while ((event = take((struct channel *)id->channel, id)))
		free(event);
	while (gone->unacknowledged)
		pthread_cond_wait(&acknowledged, &lock);
	pthread_mutex_unlock(&lock);
	free(gone);
	return 0;
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *from, struct sockaddr *to, int timeout_ms)
{
	struct channel *channel = (struct channel *)id->channel;
	struct event *event = calloc(1, sizeof *event);
	struct event **at;
	uint64_t one = 1;

	(void)from, (void)to, (void)timeout_ms;
	event->event.id = id;
	event->event.event = RDMA_CM_EVENT_ADDR_RESOLVED;
	pthread_mutex_lock(&lock);
	for (at = &channel->first; *at; at = &(*at)->next)
		;
	*at = event;
	if (write(channel->channel.fd, &one, sizeof one) != sizeof one)
		abort();
	pthread_mutex_unlock(&lock);
	return 0;
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	struct event *first;

	do {
		poll(&fd, 1, -1);
		pthread_mutex_lock(&lock);
		first = take((struct channel *)channel, NULL);
		if (first)
			((struct id *)first->event.id)->unacknowledged++;
		pthread_mutex_unlock(&lock);
	} while (!first);
	*event = &first->event;
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	pthread_mutex_lock(&lock);
	((struct id *)event->id)->unacknowledged--;
	pthread_cond_broadcast(&acknowledged);
	pthread_mutex_unlock(&lock);
	free(event);
	return 0;
}
