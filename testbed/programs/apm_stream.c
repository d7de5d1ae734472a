// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * apm_stream: numbered, checksummed messages in both directions over RC connections made by
 * rdma_cm with AF_IB addresses (GIDs), opted in to APM on both sides.
 *
 *   apm_stream -s -b GID [options]        server: serves -n connections, then ends
 *   apm_stream -b GID [options] GID       client: runs for -C messages, or until SIGTERM
 *
 * Each side sends a message every -i microseconds as long as fewer than WINDOW of its messages are
 * unknown to the peer's program, and says in each how many of the peer's it has received. What the
 * programs find out is printed as lines of KIND key=value...; times are CLOCK_MONOTONIC in ms.
 *
 *   CONNECTED conn qpn t_ms      EVENT conn t_ms name       ERROR conn t_ms what
 *   STATS sent received lost repeated corrupt max_stall_ms t_ms         (each second)
 *   STALL conn start_ms ms       (no message was confirmed for longer than 20 ms)
 *   DONE conn qpn_start qpn_end sent received lost repeated corrupt errors max_stall_ms
 *   RESULT role connections sent received lost repeated corrupt errors qpn_changed migrated_events
 *          max_stall_ms max_stall_at_ms ok
 *
 * Exit status: 0 everything arrived once, in order and unaltered; 1 otherwise; 2 usage.
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/ib.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <rdma/rdma_apm.h>

#include "clock.h"
#include "message.h"

#define WINDOW 64
#define RECEIVES (2 * WINDOW)
#define STALL_NS 20000000ll
#define RESOLVE_MS 5000
#define DISCONNECT_MS 30000
/* Of a path record: selector of the value itself; 4.096 us * 2^18, OpenSM's packet life time. */
#define EXACTLY (2 << 6)
#define LIFE_TIME 18
#define SEND_FLAG (1ull << 32)

struct tally {
	atomic_ullong sent, received, lost, repeated, corrupt, errors;
	atomic_llong max_stall_ns, max_stall_at_ns;
};

struct conn {
	int index;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	unsigned char *memory; /* WINDOW slots to send from, then RECEIVES to receive into */
	uint32_t qpn;
	pthread_t thread;
	bool started, disconnected;

	/* The connection's thread only. */
	uint64_t expected; /* number of the peer's next message */
	uint64_t confirmed; /* how many of ours the peer has */
	uint64_t completed; /* send completions */
	int64_t progress_ns; /* when `confirmed` last grew */
	bool last_sent, peer_last;
	struct tally tally;
};

static struct {
	bool server, opt_in, maker_ends;
	char *bind, *peer;
	const char *port;
	int connections;
	long interval_us, count;
	uint32_t size;
	uint16_t slid, dlid; /* of the route; 0 to ask for it */
	uint16_t alternate; /* the other side's LID that leads to its port 2; 0: nothing is armed by hand */
	uint8_t ack_timeout; /* 0 leaves rdma_cm's */
} options = { .opt_in = true, .port = "7480", .connections = 1, .interval_us = 1000, .size = 1024 };

static struct conn *conns;
static struct rdma_event_channel *channel;
static atomic_bool stopping;
static atomic_int running;
static unsigned long long migrated_events;

static void complain(struct conn *conn, const char *what, const char *why)
{
	printf("ERROR conn=%d t_ms=%.3f what=\"%s: %s\"\n", conn ? conn->index : -1, ms(now_ns()), what, why);
	if (conn)
		conn->tally.errors++;
}

static __attribute__((noreturn)) void die(const char *what)
{
	complain(NULL, what, strerror(errno));
	exit(1);
}

/* Messages */

static unsigned char *send_slot(struct conn *conn, uint64_t number)
{
	return conn->memory + (number % WINDOW) * options.size;
}

static unsigned char *receive_slot(struct conn *conn, uint64_t slot)
{
	return conn->memory + (WINDOW + slot) * options.size;
}

static int post_receive(struct conn *conn, uint64_t slot)
{
	return rdma_post_recv(conn->id, (void *)(uintptr_t)slot, receive_slot(conn, slot), options.size, conn->mr);
}

static void send_next(struct conn *conn)
{
	uint64_t number = conn->tally.sent + 1;
	bool last;

	if (options.server)
		last = conn->peer_last;
	else
		last = stopping || (options.count && number >= (uint64_t)options.count);
	message_fill((struct message *)send_slot(conn, number), options.size, conn->index, number,
		     conn->expected - 1, last);
	if (rdma_post_send(conn->id, (void *)(uintptr_t)(SEND_FLAG | (number % WINDOW)), send_slot(conn, number),
			   options.size, conn->mr, IBV_SEND_SIGNALED)) {
		complain(conn, "post send", strerror(errno));
		return;
	}
	conn->tally.sent++;
	conn->last_sent = last;
}

static void note_progress(struct conn *conn, uint64_t confirmed)
{
	int64_t now = now_ns(), stood = now - conn->progress_ns;

	if (confirmed <= conn->confirmed)
		return;
	conn->confirmed = confirmed;
	if (stood > STALL_NS)
		printf("STALL conn=%d start_ms=%.3f ms=%.3f\n", conn->index, ms(conn->progress_ns), ms(stood));
	if (stood > conn->tally.max_stall_ns) {
		conn->tally.max_stall_ns = stood;
		conn->tally.max_stall_at_ns = conn->progress_ns;
	}
	conn->progress_ns = now;
}

static void take(struct conn *conn, struct message *message, uint32_t length)
{
	uint64_t number;

	if (!message_intact(message, options.size, length)) {
		conn->tally.corrupt++;
		return;
	}
	number = be64toh(message->number);
	if (number < conn->expected) {
		conn->tally.repeated++;
		return;
	}
	conn->tally.lost += number - conn->expected;
	conn->tally.received++;
	conn->expected = number + 1;
	note_progress(conn, be64toh(message->received));
	if (be32toh(message->last))
		conn->peer_last = true;
}

/* A connection */

/* Handles what has completed; the thread goes on until this says no. */
static bool drain(struct conn *conn)
{
	struct ibv_wc wc[16];
	int n;

	while ((n = ibv_poll_cq(conn->cq, 16, wc)) > 0) {
		for (int i = 0; i < n; i++) {
			bool send = wc[i].wr_id & SEND_FLAG;

			if (wc[i].status != IBV_WC_SUCCESS) {
				complain(conn, send ? "send completion" : "receive completion",
					 ibv_wc_status_str(wc[i].status));
				return false;
			}
			if (send) {
				conn->completed++;
				continue;
			}
			take(conn, (struct message *)receive_slot(conn, wc[i].wr_id), wc[i].byte_len);
			if (post_receive(conn, wc[i].wr_id)) {
				complain(conn, "post receive", strerror(errno));
				return false;
			}
		}
	}
	if (n < 0)
		complain(conn, "poll CQ", strerror(errno));
	return n == 0;
}

/* Each side's last message is out, and what this side needs to know of the other's is known. */
static bool finished(struct conn *conn)
{
	if (!conn->last_sent || !conn->peer_last)
		return false;
	return options.server ? conn->completed == conn->tally.sent : conn->confirmed == conn->tally.sent;
}

static void sleep_until(int64_t ns)
{
	struct timespec time = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

static void *exchange(void *argument)
{
	struct conn *conn = argument;
	int64_t tick = now_ns();

	conn->progress_ns = tick;
	while (drain(conn) && !finished(conn) && !conn->tally.errors) {
		/* A slot is free when its last message was completed and confirmed; a peer that has sent its
		 * last message confirms nothing more. */
		uint64_t free_from = conn->completed;

		if (!conn->peer_last && conn->confirmed < free_from)
			free_from = conn->confirmed;

		if (!conn->last_sent && conn->tally.sent - free_from < WINDOW)
			send_next(conn);
		tick += options.interval_us * 1000;
		if (tick < now_ns())
			tick = now_ns() + options.interval_us * 1000;
		sleep_until(tick);
	}
	/* The client leaves the connection to the server, which knows when its last message is over. */
	if (options.server || conn->tally.errors)
		rdma_disconnect(conn->id);
	running--;
	return NULL;
}

static int set_up(struct conn *conn)
{
	size_t bytes = (size_t)(WINDOW + RECEIVES) * options.size;
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 2 * WINDOW, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	conn->expected = 1;
	conn->memory = calloc(1, bytes);
	conn->pd = ibv_alloc_pd(conn->id->verbs);
	if (!conn->memory || !conn->pd)
		return -1;
	conn->cq = ibv_create_cq(conn->id->verbs, 2 * WINDOW + RECEIVES, NULL, NULL, 0);
	conn->mr = ibv_reg_mr(conn->pd, conn->memory, bytes, IBV_ACCESS_LOCAL_WRITE);
	if (!conn->cq || !conn->mr)
		return -1;
	attr.send_cq = attr.recv_cq = conn->cq;
	if (rdma_create_qp(conn->id, conn->pd, &attr))
		return -1;
	conn->qpn = conn->id->qp->qp_num;
	for (uint64_t slot = 0; slot < RECEIVES; slot++)
		if (post_receive(conn, slot))
			return -1;
	return 0;
}

static void *set_up_thread(void *conn)
{
	return set_up(conn) ? conn : NULL;
}

/* The kernel knows a queue pair's owner by the thread that made it. */
static int set_up_qp(struct conn *conn)
{
	pthread_t thread;
	void *failed;

	if (!options.maker_ends)
		return set_up(conn);
	if (pthread_create(&thread, NULL, set_up_thread, conn) || pthread_join(thread, &failed))
		return -1;
	return failed ? -1 : 0;
}

static int opt_in(struct rdma_cm_id *id)
{
	uint8_t on = 1;

	if (!options.opt_in)
		return 0;
	return rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_APM, &on, sizeof on);
}

static int set_ack_timeout(struct rdma_cm_id *id)
{
	uint8_t timeout = options.ack_timeout;

	if (!timeout)
		return 0;
	return rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout);
}

/* What hardware APM can do with nobody's help: an alternate from port 2 to port 2, loaded once. */
static int arm_by_hand(struct conn *conn)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	if (!options.alternate)
		return 0;
	if (ibv_query_qp(conn->id->qp, &attr, IBV_QP_AV | IBV_QP_TIMEOUT, &init))
		return -1;
	attr.alt_ah_attr = attr.ah_attr;
	attr.alt_ah_attr.is_global = 0;
	attr.alt_ah_attr.dlid = options.alternate;
	attr.alt_ah_attr.port_num = 2;
	attr.alt_port_num = 2;
	attr.alt_pkey_index = 0;
	attr.alt_timeout = attr.timeout;
	attr.path_mig_state = IBV_MIG_REARM;
	return ibv_modify_qp(conn->id->qp, &attr, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE);
}

/* Connection manager events */

static void established(struct conn *conn)
{
	if (arm_by_hand(conn))
		die("arming by hand");
	printf("CONNECTED conn=%d qpn=%#08x t_ms=%.3f\n", conn->index, conn->qpn, ms(now_ns()));
	running++;
	conn->started = true;
	if (pthread_create(&conn->thread, NULL, exchange, conn))
		die("pthread_create");
}

static void connect_requested(struct rdma_cm_id *id)
{
	static int accepted;
	struct rdma_conn_param param = {
		.responder_resources = 1, .initiator_depth = 1, .rnr_retry_count = 7
	};
	struct conn *conn;

	if (accepted == options.connections) {
		rdma_reject(id, NULL, 0);
		return;
	}
	conn = &conns[accepted++];
	conn->id = id;
	id->context = conn;
	if (opt_in(id))
		die("rdma_set_option(RDMA_OPTION_IB_APM)");
	if (set_ack_timeout(id))
		die("rdma_set_option(RDMA_OPTION_ID_ACK_TIMEOUT)");
	if (set_up_qp(conn))
		die("setting up a QP");
	if (rdma_accept(id, &param))
		die("rdma_accept");
}

static void route_resolved(struct conn *conn)
{
	struct rdma_conn_param param = {
		.responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7
	};

	if (set_up_qp(conn))
		die("setting up a QP");
	if (rdma_connect(conn->id, &param))
		die("rdma_connect");
}

/* Instead of asking subnet administration; RDMA_CM_EVENT_ROUTE_RESOLVED follows. */
static int set_route(struct rdma_cm_id *id)
{
	struct rdma_ib_addr *addr = &id->route.addr.addr.ibaddr;
	struct ibv_path_data data = {
		.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL,
		.path = {
			.dgid = addr->dgid,
			.sgid = addr->sgid,
			.dlid = htobe16(options.dlid),
			.slid = htobe16(options.slid),
			.reversible_numpath = IBV_PATH_RECORD_REVERSIBLE | 1,
			.pkey = htobe16(0xffff),
			.mtu = EXACTLY | IBV_MTU_4096,
			.rate = EXACTLY | IBV_RATE_40_GBPS,
			.packetlifetime = EXACTLY | LIFE_TIME,
		},
	};

	return rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &data, sizeof data);
}

static void handle(struct rdma_cm_event *event)
{
	struct conn *conn = event->id->context;
	/* Not the enum: events of rdma_apm.h are beyond it. */
	int kind = event->event;

	switch (kind) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (options.slid ? set_route(conn->id) : rdma_resolve_route(conn->id, RESOLVE_MS))
			die("resolving a route");
		return;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		route_resolved(conn);
		return;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		connect_requested(event->id);
		return;
	case RDMA_CM_EVENT_ESTABLISHED:
		established(conn);
		return;
	}
	printf("EVENT conn=%d t_ms=%.3f status=%d name=\"%s\"\n", conn ? conn->index : -1, ms(now_ns()),
	       event->status, rdma_event_str(event->event));
	switch (kind) {
	case RDMA_CM_EVENT_PATH_MIGRATED:
		migrated_events++;
		return;
	case RDMA_CM_EVENT_DISCONNECTED:
		conn->disconnected = true;
		return;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
		complain(conn, "connecting", rdma_event_str(event->event));
		exit(1);
	}
}

/* The program */

static void total(struct tally *sum)
{
	memset(sum, 0, sizeof *sum);
	for (int i = 0; i < options.connections; i++) {
		struct tally *one = &conns[i].tally;

		sum->sent += one->sent;
		sum->received += one->received;
		sum->lost += one->lost;
		sum->repeated += one->repeated;
		sum->corrupt += one->corrupt;
		sum->errors += one->errors;
		if (one->max_stall_ns > sum->max_stall_ns) {
			sum->max_stall_ns = one->max_stall_ns;
			sum->max_stall_at_ns = one->max_stall_at_ns;
		}
	}
}

static void print_stats(void)
{
	struct tally sum;

	total(&sum);
	printf("STATS sent=%llu received=%llu lost=%llu repeated=%llu corrupt=%llu max_stall_ms=%.3f t_ms=%.3f\n",
	       sum.sent, sum.received, sum.lost, sum.repeated, sum.corrupt, ms(sum.max_stall_ns), ms(now_ns()));
}

static bool all_started(void)
{
	for (int i = 0; i < options.connections; i++)
		if (!conns[i].started)
			return false;
	return true;
}

static bool all_disconnected(void)
{
	for (int i = 0; i < options.connections; i++)
		if (!conns[i].disconnected)
			return false;
	return true;
}

/* Handles events and signals until `until` holds; false after `deadline_ns` (0: none). */
static bool serve(int signals, bool (*until)(void), int64_t deadline_ns)
{
	struct pollfd fds[] = { { .fd = channel->fd, .events = POLLIN }, { .fd = signals, .events = POLLIN } };
	int64_t stats = now_ns() + 1000000000;

	while (!until()) {
		struct rdma_cm_event *event;
		struct signalfd_siginfo signal;

		if (deadline_ns && now_ns() > deadline_ns)
			return false;
		if (poll(fds, 2, 100) < 0 && errno != EINTR)
			die("poll");
		if (fds[0].revents & POLLIN) {
			if (rdma_get_cm_event(channel, &event))
				die("rdma_get_cm_event");
			handle(event);
			rdma_ack_cm_event(event);
		}
		if (fds[1].revents & POLLIN && read(signals, &signal, sizeof signal) == sizeof signal) {
			if (options.server || !all_started()) {
				errno = EINTR;
				die("ended by a signal");
			}
			stopping = true;
		}
		if (now_ns() > stats) {
			print_stats();
			stats += 1000000000;
		}
	}
	return true;
}

static bool all_ended(void)
{
	return all_started() && !running;
}

static void resolve(const char *gid, const char *port, int flags, struct rdma_addrinfo *source,
		    struct rdma_addrinfo **info)
{
	struct rdma_addrinfo hints = {
		.ai_flags = RAI_NUMERICHOST | RAI_FAMILY | flags,
		.ai_family = AF_IB,
		.ai_port_space = RDMA_PS_TCP,
		.ai_src_addr = source ? source->ai_src_addr : NULL,
		.ai_src_len = source ? source->ai_src_len : 0,
	};

	if (rdma_getaddrinfo((char *)gid, (char *)port, &hints, info)) {
		errno = EADDRNOTAVAIL;
		die(gid);
	}
}

static void listen_at(struct rdma_cm_id **listener)
{
	struct rdma_addrinfo *own;

	resolve(options.bind, options.port, RAI_PASSIVE, NULL, &own);
	if (rdma_create_id(channel, listener, NULL, RDMA_PS_TCP))
		die("rdma_create_id");
	if (rdma_bind_addr(*listener, own->ai_src_addr) || rdma_listen(*listener, options.connections))
		die("listening");
	rdma_freeaddrinfo(own);
	printf("LISTENING t_ms=%.3f\n", ms(now_ns()));
}

static void connect_all(void)
{
	struct rdma_addrinfo *own, *route;

	resolve(options.bind, NULL, RAI_PASSIVE, NULL, &own);
	resolve(options.peer, options.port, 0, own, &route);
	for (int i = 0; i < options.connections; i++) {
		if (rdma_create_id(channel, &conns[i].id, &conns[i], RDMA_PS_TCP))
			die("rdma_create_id");
		if (opt_in(conns[i].id))
			die("rdma_set_option(RDMA_OPTION_IB_APM)");
		if (set_ack_timeout(conns[i].id))
			die("rdma_set_option(RDMA_OPTION_ID_ACK_TIMEOUT)");
		if (rdma_resolve_addr(conns[i].id, route->ai_src_addr, route->ai_dst_addr, RESOLVE_MS))
			die("rdma_resolve_addr");
	}
	rdma_freeaddrinfo(route);
	rdma_freeaddrinfo(own);
}

static int print_result(void)
{
	struct tally sum;
	int changed = 0;
	bool ok;

	for (int i = 0; i < options.connections; i++) {
		struct conn *conn = &conns[i];
		uint32_t qpn = conn->id->qp->qp_num;

		changed += qpn != conn->qpn;
		printf("DONE conn=%d qpn_start=%#08x qpn_end=%#08x sent=%llu received=%llu lost=%llu repeated=%llu "
		       "corrupt=%llu errors=%llu max_stall_ms=%.3f\n",
		       conn->index, conn->qpn, qpn, conn->tally.sent, conn->tally.received, conn->tally.lost,
		       conn->tally.repeated, conn->tally.corrupt, conn->tally.errors, ms(conn->tally.max_stall_ns));
	}
	total(&sum);
	ok = !sum.lost && !sum.repeated && !sum.corrupt && !sum.errors && !changed;
	printf("RESULT role=%s connections=%d sent=%llu received=%llu lost=%llu repeated=%llu corrupt=%llu errors=%llu "
	       "qpn_changed=%d migrated_events=%llu max_stall_ms=%.3f max_stall_at_ms=%.3f ok=%d\n",
	       options.server ? "server" : "client", options.connections, sum.sent, sum.received, sum.lost,
	       sum.repeated, sum.corrupt, sum.errors, changed, migrated_events, ms(sum.max_stall_ns),
	       ms(sum.max_stall_at_ns), ok);
	return ok ? 0 : 1;
}

static void destroy(struct conn *conn)
{
	rdma_destroy_qp(conn->id);
	ibv_dereg_mr(conn->mr);
	ibv_destroy_cq(conn->cq);
	ibv_dealloc_pd(conn->pd);
	rdma_destroy_id(conn->id);
	free(conn->memory);
}

static int usage(void)
{
	fprintf(stderr, "usage: apm_stream -s -b GID [options]\n"
			"       apm_stream -b GID [options] PEER_GID\n"
			"  -n N   connections (1)            -i US  a message each US microseconds (1000)\n"
			"  -p N   port (7480)                -S N   bytes of a message (1024)\n"
			"  -C N   client: messages of each connection, 0 until SIGTERM (0)\n"
			"  -x     do not opt in to APM       -t     queue pairs are made by a thread that ends\n"
			"  -r SLID,DLID   client: the route, not to be asked for\n"
			"  -a DLID        arm the QP once, by hand: an alternate from port 2 to that LID\n"
			"  -T N           local ACK timeout, 4.096 us * 2^N (rdma_cm's)\n");
	return 2;
}

static bool parse(int argc, char **argv)
{
	int option;

	while ((option = getopt(argc, argv, "sxtb:n:p:i:S:C:r:a:T:")) != -1) {
		switch (option) {
		case 's': options.server = true; break;
		case 'x': options.opt_in = false; break;
		case 't': options.maker_ends = true; break;
		case 'b': options.bind = optarg; break;
		case 'n': options.connections = atoi(optarg); break;
		case 'p': options.port = optarg; break;
		case 'i': options.interval_us = atol(optarg); break;
		case 'S': options.size = atoi(optarg); break;
		case 'a': options.alternate = atoi(optarg); break;
		case 'T': options.ack_timeout = atoi(optarg); break;
		case 'C': options.count = atol(optarg); break;
		case 'r':
			if (sscanf(optarg, "%" SCNu16 ",%" SCNu16, &options.slid, &options.dlid) != 2)
				return false;
			break;
		default: return false;
		}
	}
	options.peer = argv[optind];
	return options.bind && options.connections > 0 && options.interval_us > 0 && options.count >= 0 &&
	       options.size >= sizeof(struct message) && options.size <= 1 << 20 &&
	       argc - optind == (options.server ? 0 : 1);
}

/* Signals are read from a descriptor: no thread, of ours or of the library, is interrupted. */
static int take_signals(void)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	fd = signalfd(-1, &set, SFD_CLOEXEC);
	if (fd < 0)
		die("signalfd");
	return fd;
}

int main(int argc, char **argv)
{
	struct rdma_cm_id *listener = NULL;
	int signals, status;

	if (!parse(argc, argv))
		return usage();
	setvbuf(stdout, NULL, _IOLBF, 0);
	signals = take_signals();
	channel = rdma_create_event_channel();
	conns = calloc(options.connections, sizeof *conns);
	if (!channel || !conns)
		die("rdma_create_event_channel");
	for (int i = 0; i < options.connections; i++)
		conns[i].index = i;
	if (options.server)
		listen_at(&listener);
	else
		connect_all();
	serve(signals, all_ended, 0);
	serve(signals, all_disconnected, now_ns() + DISCONNECT_MS * 1000000ll);
	status = print_result();
	for (int i = 0; i < options.connections; i++) {
		pthread_join(conns[i].thread, NULL);
		destroy(&conns[i]);
	}
	if (listener)
		rdma_destroy_id(listener);
	rdma_destroy_event_channel(channel);
	free(conns);
	return status;
}
