/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Two devices in one process, to try queue pairs between them: what apm_verbs and
 * rc_verbs have in common.
 */
#ifndef VERBS_PAIR_H
#define VERBS_PAIR_H

#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_MS 20000	/* for what must happen */

/* A device, and what there is of it for one queue pair. */
struct end {
	const char *name;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	char *memory;		/* registered as mr, for all kinds of access */
	unsigned int events[32];	/* by type, not yet looked at */

	/* what has passed over the queue pair */
	uint64_t sent, received;
	int sends_pending, receives_pending;
	enum ibv_wc_status failure;
};

static char why[512];	/* the last case failed */

/* ---- judging ---- */

static inline bool bad(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	return false;
}

static inline void die(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
	exit(2);
}

static inline int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static inline void pause_ms(int ms)
{
	usleep(ms * 1000);
}

/* ---- the fabric ---- */

static inline bool cable(const char *command, const struct end *end, int port)
{
	char line[128];
	int status;

	snprintf(line, sizeof(line), "cable %s %s %d", command, end->name, port);
	status = system(line);
	if (status == -1 || !WIFEXITED(status) || WEXITSTATUS(status))
		return bad("\"%s\" failed", line);
	return true;
}

static inline bool cable_loss(const struct end *end, int port, int percent)
{
	char line[128];

	snprintf(line, sizeof(line), "cable loss %s %d %d", end->name, port, percent);
	return !system(line) || bad("\"%s\" failed", line);
}

static inline struct ibv_port_attr port_of(const struct end *end, int port)
{
	struct ibv_port_attr attr;

	if (ibv_query_port(end->context, port, &attr))
		die("ibv_query_port");
	return attr;
}

/* A port plugged back in is INIT until the subnet manager has been there. */
static inline bool await_active(const struct end *end, int port)
{
	int64_t until = now_ms() + PATIENCE_MS;

	while (port_of(end, port).state != IBV_PORT_ACTIVE) {
		if (now_ms() > until)
			return bad("%s port %d does not get ACTIVE", end->name, port);
		pause_ms(20);
	}
	return true;
}

/* ---- the devices ---- */

static inline void open_end(struct end *end, const char *name, size_t memory, int cqes)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	int i;

	if (!list)
		die("ibv_get_device_list");
	for (i = 0; list[i] && strcmp(ibv_get_device_name(list[i]), name); i++)
		;
	errno = ENODEV;
	end->name = name;
	end->context = list[i] ? ibv_open_device(list[i]) : NULL;
	if (!end->context)
		die(name);
	ibv_free_device_list(list);
	fcntl(end->context->async_fd, F_SETFL, O_NONBLOCK);
	end->memory = calloc(1, memory);
	end->pd = ibv_alloc_pd(end->context);
	end->cq = ibv_create_cq(end->context, cqes, NULL, NULL, 0);
	if (!end->memory || !end->pd || !end->cq)
		die("resources");
	end->mr = ibv_reg_mr(end->pd, end->memory, memory,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			     IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	if (!end->mr)
		die("ibv_reg_mr");
}

static inline void close_end(struct end *end)
{
	ibv_dereg_mr(end->mr);
	ibv_destroy_cq(end->cq);
	ibv_dealloc_pd(end->pd);
	ibv_close_device(end->context);
	free(end->memory);
}

static inline void collect_events(struct end *end)
{
	struct ibv_async_event event;

	while (!ibv_get_async_event(end->context, &event)) {
		if (event.event_type < 32)
			end->events[event.event_type]++;
		ibv_ack_async_event(&event);
	}
}

static inline bool await_event(struct end *end, enum ibv_event_type type)
{
	int64_t until = now_ms() + PATIENCE_MS;

	do {
		collect_events(end);
		if (end->events[type]) {
			end->events[type] = 0;
			return true;
		}
		pause_ms(5);
	} while (now_ms() < until);
	return bad("%s: no event \"%s\"", end->name, ibv_event_type_str(type));
}

static inline bool no_event(struct end *end, enum ibv_event_type type)
{
	collect_events(end);
	return !end->events[type] ||
	       bad("%s: unwanted event \"%s\"", end->name, ibv_event_type_str(type));
}

/* ---- the cases ---- */

static inline bool report(const char *name, bool ok)
{
	if (ok)
		printf("PASS %s\n", name);
	else
		printf("FAIL %s: %s\n", name, why);
	fflush(stdout);
	return ok;
}

#endif
