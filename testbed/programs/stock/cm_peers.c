// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A client and a server that use librdmacm in ways in which real programs do and the stock examples do
 * not. Each connection carries numbered messages that the server sends back; both sides check them.
 *
 *   cm_peers [options] ADDRESS            the server
 *   cm_peers [options] -c LOCAL ADDRESS   the client
 *     -n NUMBER   connections, all on one event channel        (1)
 *     -t NUMBER   threads among which they are divided         (1)
 *     -d SECONDS  how long the client sends                    (10)
 *     -p PORT     of the server                                (7491)
 *     -f          fork and exec every 300 ms
 *     -l          librdmacm by dlopen and dlsym
 *     -o          queue pairs of the program's own (rdma_init_qp_attr, rdma_establish)
 *     -v          with -o: every second queue pair, from the first on, by calls that are looked up by the
 *                 handle of libibverbs, or of the library that VERBS_LIBRARY names
 *     -e          the server never reads ESTABLISHED, nor any event after it
 *     -i          idle: after each message the client is silent until it gets SIGUSR1, or SIGUSR2 for
 *                 the last; to be given to both
 *
 * Linked statically it is cm_peers_static, which has no -l and no -v; built with AddressSanitizer, cm_peers_asan.
 *
 * Exit status: 0 if every message came, unaltered, in its turn; 1 otherwise; 2 usage.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <err.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEPTH 4
#define WORDS 256
#define PAUSE_US 20000
#define SILENCE_MS 90000	/* longer than any fault lasts */

/* librdmacm as this program calls it: linked, or looked up at run time. */
#define CALLS(X)				\
	X(rdma_create_event_channel)		\
	X(rdma_create_id)			\
	X(rdma_bind_addr)			\
	X(rdma_listen)				\
	X(rdma_resolve_addr)			\
	X(rdma_resolve_route)			\
	X(rdma_create_qp)			\
	X(rdma_init_qp_attr)			\
	X(rdma_connect)				\
	X(rdma_establish)			\
	X(rdma_accept)				\
	X(rdma_disconnect)			\
	X(rdma_get_cm_event)			\
	X(rdma_ack_cm_event)

static struct {
#define FIELD(name) __typeof__(&name) name;
	CALLS(FIELD)
} cm;

/* libibverbs by itself: as NCCL and others have it. */
static struct {
	__typeof__(&ibv_create_qp) create_qp;
	__typeof__(&ibv_modify_qp) modify_qp;
} by_handle;

struct message {
	uint32_t number;
	uint32_t last;
	uint32_t words[WORDS];
};

struct peer {
	struct rdma_cm_id *id;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct message in[DEPTH], out;
	uint32_t number;	/* of the message that comes next */
	int received;		/* the slot of one that has come, or -1 */
	bool sent;		/* and whether ours has gone */
	bool ended;
};

static struct {
	const char *local, *address;
	int connections, threads, seconds, port;
	bool forks, looks_up, own_qps, by_handle, deaf, idle;
} option = { .connections = 1, .threads = 1, .seconds = 10, .port = 7491 };

static struct peer *peers;
static struct ibv_pd *pd;
static struct rdma_event_channel *channel;
static time_t deadline;
static atomic_bool failed;

static time_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec;
}

static void *open_library(const char *name)
{
	void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);

	if (!library)
		errx(1, "%s", dlerror());
	return library;
}

static void *look_up(void *library, const char *name)
{
	void *call = dlsym(library, name);

	if (!call)
		errx(1, "%s", dlerror());
	return call;
}

static void find_calls(void)
{
	void *library;

	if (!option.looks_up) {
#define TAKE(name) cm.name = name;
		CALLS(TAKE)
		return;
	}
	library = open_library("librdmacm.so.1");
#define LOOK_UP(name) cm.name = (__typeof__(&name))look_up(library, #name);
	CALLS(LOOK_UP)
}

static void find_verbs(void)
{
	const char *name = getenv("VERBS_LIBRARY");
	void *library = open_library(name ? name : "libibverbs.so.1");

	by_handle.create_qp = (__typeof__(by_handle.create_qp))look_up(library, "ibv_create_qp");
	by_handle.modify_qp = (__typeof__(by_handle.modify_qp))look_up(library, "ibv_modify_qp");
}

static bool is_by_handle(const struct peer *peer)
{
	return option.by_handle && (peer - peers) % 2 == 0;
}

/* --- Connections */

static void modify(struct peer *peer, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask;

	if (cm.rdma_init_qp_attr(peer->id, &attr, &mask))
		err(1, "rdma_init_qp_attr %d", state);
	if ((is_by_handle(peer) ? by_handle.modify_qp : ibv_modify_qp)(peer->qp, &attr, mask))
		err(1, "ibv_modify_qp %d", state);
}

static void post_receive(struct peer *peer, int slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)&peer->in[slot],
		.length = sizeof(peer->in[slot]),
		.lkey = peer->mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;

	if (ibv_post_recv(peer->qp, &wr, &bad))
		errx(1, "ibv_post_recv");
}

static void make_qp(struct peer *peer)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	struct ibv_comp_channel *completions;

	if (!pd)
		pd = ibv_alloc_pd(peer->id->verbs);
	completions = ibv_create_comp_channel(peer->id->verbs);
	if (!pd || !completions)
		errx(1, "no protection domain or completion channel");
	peer->cq = ibv_create_cq(peer->id->verbs, 4 * DEPTH, NULL, completions, 0);
	peer->mr = ibv_reg_mr(pd, peer, sizeof(*peer), IBV_ACCESS_LOCAL_WRITE);
	if (!peer->cq || !peer->mr || ibv_req_notify_cq(peer->cq, 0))
		errx(1, "no completion queue or memory region");
	init.send_cq = init.recv_cq = peer->cq;
	if (option.own_qps) {
		peer->qp = (is_by_handle(peer) ? by_handle.create_qp : ibv_create_qp)(pd, &init);
		if (!peer->qp)
			err(1, "ibv_create_qp");
		modify(peer, IBV_QPS_INIT);
	} else {
		if (cm.rdma_create_qp(peer->id, pd, &init))
			err(1, "rdma_create_qp");
		peer->qp = peer->id->qp;
	}
	peer->received = -1;
	peer->sent = true;
	for (int slot = 0; slot < DEPTH; slot++)
		post_receive(peer, slot);
}

static struct rdma_conn_param parameters(const struct peer *peer)
{
	struct rdma_conn_param param = {
		.responder_resources = 1,
		.initiator_depth = 1,
		.retry_count = 7,
		.rnr_retry_count = 7,
		.qp_num = option.own_qps ? peer->qp->qp_num : 0,
	};

	return param;
}

static void accept_peer(struct rdma_cm_id *id, struct peer *peer)
{
	struct rdma_conn_param param;

	peer->id = id;
	id->context = peer;
	make_qp(peer);
	if (option.own_qps) {
		modify(peer, IBV_QPS_RTR);
		modify(peer, IBV_QPS_RTS);
	}
	param = parameters(peer);
	if (cm.rdma_accept(id, &param))
		err(1, "rdma_accept");
}

static void connect_peer(struct peer *peer)
{
	struct rdma_conn_param param;

	make_qp(peer);
	param = parameters(peer);
	if (cm.rdma_connect(peer->id, &param))
		err(1, "rdma_connect");
}

static void establish(struct peer *peer)
{
	modify(peer, IBV_QPS_RTR);
	modify(peer, IBV_QPS_RTS);
	if (cm.rdma_establish(peer->id))
		err(1, "rdma_establish");
}

/* Handles one event; returns how many connections that completes. */
static int handle_event(int accepted)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	struct peer *peer;
	enum rdma_cm_event_type type;
	int status;

	if (cm.rdma_get_cm_event(channel, &event))
		err(1, "rdma_get_cm_event");
	id = event->id;
	peer = id->context;
	type = event->event;
	status = event->status;
	cm.rdma_ack_cm_event(event);
	switch (type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (cm.rdma_resolve_route(id, 10000))
			err(1, "rdma_resolve_route");
		return 0;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		connect_peer(peer);
		return 0;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		establish(peer);
		return 1;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		accept_peer(id, &peers[accepted]);
		return 1;
	case RDMA_CM_EVENT_ESTABLISHED:
		return option.local ? 1 : 0;
	default:
		errx(1, "event %s, status %d", rdma_event_str(type), status);
	}
}

static struct sockaddr_in address_of(const char *text, int port)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons(port) };

	if (inet_pton(AF_INET, text, &sin.sin_addr) != 1)
		errx(2, "no address: %s", text);
	return sin;
}

static void connect_all(void)
{
	struct sockaddr_in local = address_of(option.local, 0);
	struct sockaddr_in remote = address_of(option.address, option.port);

	for (int i = 0; i < option.connections; i++) {
		if (cm.rdma_create_id(channel, &peers[i].id, &peers[i], RDMA_PS_TCP))
			err(1, "rdma_create_id");
		if (cm.rdma_resolve_addr(peers[i].id, (struct sockaddr *)&local,
					 (struct sockaddr *)&remote, 10000))
			err(1, "rdma_resolve_addr");
		/* One after the other: a listener's backlog is short. */
		while (!handle_event(0))
			;
	}
}

static void accept_all(void)
{
	struct sockaddr_in local = address_of(option.address, option.port);
	struct rdma_cm_id *listener;

	if (cm.rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP))
		err(1, "rdma_create_id");
	if (cm.rdma_bind_addr(listener, (struct sockaddr *)&local) || cm.rdma_listen(listener, 8))
		err(1, "rdma_listen");
	printf("ready\n");
	for (int accepted = 0; accepted < option.connections;)
		accepted += handle_event(accepted);
}

/* Whoever is not deaf hears of what comes after the connections are made. */
static void *listen_on(void *unused)
{
	struct rdma_cm_event *event;

	(void)unused;
	while (!cm.rdma_get_cm_event(channel, &event)) {
		printf("event %s\n", rdma_event_str(event->event));
		cm.rdma_ack_cm_event(event);
	}
	return NULL;
}

/* --- Messages */

static void fill(struct message *message, uint32_t number, bool last)
{
	message->number = number;
	message->last = last;
	for (uint32_t i = 0; i < WORDS; i++)
		message->words[i] = number * 2654435761u + i;
}

static bool is_right(const struct message *message, uint32_t number)
{
	for (uint32_t i = 0; i < WORDS; i++)
		if (message->words[i] != number * 2654435761u + i)
			return false;
	return message->number == number;
}

static void post_send(struct peer *peer)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)&peer->out,
		.length = sizeof(peer->out),
		.lkey = peer->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = DEPTH, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	peer->sent = false;
	if (ibv_post_send(peer->qp, &wr, &bad))
		errx(1, "ibv_post_send");
}

static void complete(struct peer *peer, const struct ibv_wc *wc)
{
	if (wc->status)
		errx(1, "QP %u: %s", peer->qp->qp_num, ibv_wc_status_str(wc->status));
	if (wc->wr_id == DEPTH)
		peer->sent = true;
	else
		peer->received = wc->wr_id;
}

/* Waits until our message has gone, and, if one is to come, until it has. */
static void await(struct peer *peer, bool one_comes)
{
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *context;

	for (;;) {
		struct pollfd fd = { .fd = peer->cq->channel->fd, .events = POLLIN };

		while (ibv_poll_cq(peer->cq, 1, &wc) == 1)
			complete(peer, &wc);
		if (peer->sent && (!one_comes || peer->received >= 0))
			return;
		if (poll(&fd, 1, option.idle && !option.local ? -1 : SILENCE_MS) != 1)
			errx(1, "QP %u: silence", peer->qp->qp_num);
		if (ibv_get_cq_event(peer->cq->channel, &cq, &context))
			err(1, "ibv_get_cq_event");
		ibv_ack_cq_events(cq, 1);
		ibv_req_notify_cq(cq, 0);
	}
}

/* Checks the message that has come, and makes room for the next. */
static void take(struct peer *peer)
{
	int slot = peer->received;
	const struct message *message = &peer->in[slot];

	if (!is_right(message, peer->number)) {
		warnx("QP %u: message %u for %u, or altered", peer->qp->qp_num, message->number,
		      peer->number);
		failed = true;
	}
	peer->number++;
	peer->ended = message->last;
	if (!option.local)
		peer->out = *message;
	peer->received = -1;
	post_receive(peer, slot);
}

static sigset_t waited_for(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	return set;
}

/* Before there is any thread: they are for the one that waits. */
static void block_signals(void)
{
	sigset_t set = waited_for();

	if (pthread_sigmask(SIG_BLOCK, &set, NULL))
		errx(1, "pthread_sigmask");
}

/* Whether the message that comes next is the last. */
static bool wait_for_signal(void)
{
	sigset_t set = waited_for();
	int signal;

	printf("silent\n");
	if (sigwait(&set, &signal))
		errx(1, "sigwait");
	return signal == SIGUSR2;
}

/* The client's share of a thread: every connection's message goes out, then every answer is awaited. */
static void *send_messages(void *argument)
{
	int thread = (intptr_t)argument;
	bool last = !option.idle && now() >= deadline, ended = false;

	while (!ended) {
		for (int i = thread; i < option.connections; i += option.threads) {
			fill(&peers[i].out, peers[i].number, last);
			post_send(&peers[i]);
		}
		for (int i = thread; i < option.connections; i += option.threads) {
			await(&peers[i], true);
			take(&peers[i]);
		}
		ended = last;
		if (option.idle && !ended) {
			last = wait_for_signal();
		} else {
			usleep(PAUSE_US);
			last = now() >= deadline;
		}
	}
	return NULL;
}

/* The server's: each message goes back as it came. */
static void *send_back(void *argument)
{
	int thread = (intptr_t)argument;
	int left = 0;

	for (int i = thread; i < option.connections; i += option.threads)
		left++;
	while (left) {
		for (int i = thread; i < option.connections; i += option.threads) {
			if (peers[i].ended)
				continue;
			await(&peers[i], true);
			take(&peers[i]);
			post_send(&peers[i]);
			await(&peers[i], false);
			left -= peers[i].ended;
		}
	}
	return NULL;
}

static void *fork_on(void *unused)
{
	(void)unused;
	for (;;) {
		pid_t child = fork();

		if (!child) {
			execlp("true", "true", NULL);
			_exit(127);
		}
		if (child < 0 || waitpid(child, NULL, 0) != child)
			err(1, "fork");
		usleep(300000);
	}
	return NULL;
}

static void run_threads(void)
{
	pthread_t threads[option.threads], other;

	if (option.forks && pthread_create(&other, NULL, fork_on, NULL))
		errx(1, "pthread_create");
	if (!option.deaf && pthread_create(&other, NULL, listen_on, NULL))
		errx(1, "pthread_create");
	for (int i = 0; i < option.threads; i++)
		if (pthread_create(&threads[i], NULL, option.local ? send_messages : send_back,
				   (void *)(intptr_t)i))
			errx(1, "pthread_create");
	for (int i = 0; i < option.threads; i++)
		pthread_join(threads[i], NULL);
}

static void usage(void)
{
	fprintf(stderr, "usage: cm_peers [-n N] [-t N] [-d SECONDS] [-p PORT] [-flovei] [-c LOCAL] ADDRESS\n");
	exit(2);
}

static void parse(int argc, char **argv)
{
	int opt;

	while ((opt = getopt(argc, argv, "n:t:d:p:floveic:")) != -1) {
		switch (opt) {
		case 'n': option.connections = atoi(optarg); break;
		case 't': option.threads = atoi(optarg); break;
		case 'd': option.seconds = atoi(optarg); break;
		case 'p': option.port = atoi(optarg); break;
		case 'f': option.forks = true; break;
		case 'l': option.looks_up = true; break;
		case 'o': option.own_qps = true; break;
		case 'v': option.by_handle = true; break;
		case 'e': option.deaf = true; break;
		case 'i': option.idle = true; break;
		case 'c': option.local = optarg; break;
		default: usage();
		}
	}
	if (optind + 1 != argc || option.connections < 1 || option.threads < 1 ||
	    (option.by_handle && !option.own_qps) || (option.idle && option.threads > 1))
		usage();
	option.address = argv[optind];
}

int main(int argc, char **argv)
{
	uint64_t messages = 0;

	parse(argc, argv);
	setlinebuf(stdout);
	if (option.idle)
		block_signals();
#ifdef RDMA_STATIC_PROVIDERS
	/* Names the drivers that are linked in: libibverbs opens none at run time then. */
	ibv_free_device_list(ibv_get_device_list(NULL));
#endif
	if (option.forks && ibv_fork_init())
		errx(1, "ibv_fork_init");
	find_calls();
	if (option.by_handle)
		find_verbs();
	peers = aligned_alloc(4096, option.connections * sizeof(*peers) / 4096 * 4096 + 4096);
	channel = cm.rdma_create_event_channel();
	if (!peers || !channel)
		errx(1, "no memory or no event channel");
	memset(peers, 0, option.connections * sizeof(*peers));
	option.deaf = option.deaf && !option.local;
	if (option.local)
		connect_all();
	else
		accept_all();
	deadline = now() + option.seconds;
	run_threads();
	for (int i = 0; i < option.connections; i++)
		messages += peers[i].number;
	printf("%llu messages, %s\n", (unsigned long long)messages,
	       failed ? "not all right" : "all right");
	return failed;
}
