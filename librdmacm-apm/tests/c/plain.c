/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A program that never heard of path migration, on a machine without a device: every call's result
 * and errno must be the same with and without librdmacm-apm. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>

static void show(const char *call, int failed)
{
	printf("%s: %s\n", call, failed ? strerrorname_np(errno) : "ok");
	errno = 0;
}

static void calls(const char *who)
{
	struct rdma_cm_id *id = NULL;
	struct rdma_cm_event *event;
	struct rdma_event_channel closed = { .fd = -1 };
	struct { struct rdma_cm_id id; char private[1024]; } dead;
	uint8_t byte = 1;

	memset(&dead, 0, sizeof(dead));
	dead.id.channel = &closed;
	dead.id.ps = RDMA_PS_UDP;
	printf("%s\n", who);
	errno = 0;
	show("rdma_create_event_channel", rdma_create_event_channel() == NULL);
	show("rdma_create_id", rdma_create_id(&closed, &id, NULL, RDMA_PS_TCP));
	show("rdma_create_id, synchronous", rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	show("rdma_get_cm_event", rdma_get_cm_event(&closed, &event));
	show("rdma_ack_cm_event", rdma_ack_cm_event(NULL));
	show("rdma_set_option", rdma_set_option(&dead.id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1));
	show("rdma_set_option, unknown", rdma_set_option(&dead.id, 9, 9, &byte, 1));
	show("rdma_migrate_id", rdma_migrate_id(&dead.id, &closed));
	show("rdma_get_request", rdma_get_request(&dead.id, &id));
	show("rdma_disconnect", rdma_disconnect(&dead.id));
	show("rsocket", rsocket(AF_INET, SOCK_STREAM, 0) < 0);
	printf("%s\n", rdma_event_str(RDMA_CM_EVENT_DISCONNECTED));
	printf("%s\n", rdma_event_str((enum rdma_cm_event_type)77));
	fflush(stdout);
}

/* Many programs end their event thread by pthread_cancel(), which unwinds it from within a call. */
static void *cancelled(void *unused)
{
	struct rdma_event_channel closed = { .fd = -1 };
	struct { struct rdma_cm_id id; char private[1024]; } dead;

	memset(&dead, 0, sizeof(dead));
	dead.id.channel = &closed;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	pthread_cancel(pthread_self());
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	rdma_migrate_id(&dead.id, &closed);
	return unused;
}

int main(void)
{
	pthread_t thread;
	void *result;
	int status;

	calls("parent");
	pthread_create(&thread, NULL, cancelled, NULL);
	pthread_join(thread, &result);
	printf("thread: %s\n", result == PTHREAD_CANCELED ? "cancelled" : "ended");
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		calls("child");
		_exit(7);
	}
	waitpid(child, &status, 0);
	printf("child ended with %d\n", WEXITSTATUS(status));
	return 3;
}
