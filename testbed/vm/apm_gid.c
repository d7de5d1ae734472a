// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * apm_gid reset|load ROUNDS [-n]: the GID attribute that ib_core keeps of a queue pair's alternate path, while the
 * kernel module apm is ordered to load another path and the queue pair is destroyed. The firmware of shca0 answers late
 * meanwhile, so that all three are under way at once. Needs root.
 *
 *   reset   the owner has loaded an alternate with a GRH, and has reset and connected the queue pair again since
 *   load    the owner loads an alternate with a GRH while the module's order is under way
 *
 * -n: no orders, the control. Prints what became of the orders. What the kernel thinks of it shows when the GIDs
 * go: rdma dev set shca0 netns.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include "verbs_pair.h"
#include "apm_netlink.h"

#define TOGETHER 64	/* queue pairs in one go */
#define ORDER_MS 2	/* an order is with the firmware by then */

static struct end here = { .name = "shca0" }, there = { .name = "shca1" };
static struct ibv_qp *qps[TOGETHER];
static uint64_t cookies[TOGETHER];
static bool alone[TOGETHER];
static pthread_t threads[TOGETHER];
static unsigned long known, spared, loaded, refused;
static bool with_orders = true;

static struct ibv_ah_attr way(int port, bool with_grh)
{
	struct ibv_ah_attr ah = { .dlid = port_of(&there, port).lid, .port_num = port };

	if (with_grh) {
		ah.is_global = 1;
		ah.grh.hop_limit = 1;
		if (ibv_query_gid(there.context, port, 0, &ah.grh.dgid))
			die("ibv_query_gid");
	}
	return ah;
}

/* ---- queue pairs ---- */

static void connect_qp(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			  IBV_QP_ACCESS_FLAGS))
		die("to INIT");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12, .ah_attr = way(1, false),
	};
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			  IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			  IBV_QP_MIN_RNR_TIMER))
		die("to RTR");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.max_rd_atomic = 1,
	};
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
			  IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC))
		die("to RTS");
}

static struct ibv_qp *create_qp(void)
{
	struct ibv_qp_init_attr init = {
		.send_cq = here.cq, .recv_cq = here.cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(here.pd, &init);

	if (!qp)
		die("ibv_create_qp");
	return qp;
}

static int load_own(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.alt_ah_attr = way(2, true), .alt_port_num = 2, .alt_timeout = 14,
		.path_mig_state = IBV_MIG_REARM,
	};

	return ibv_modify_qp(qp, &attr, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE);
}

static void reset_qp(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE))
		die("to RESET");
}

/* How late the answers to modify come. */
static void slow_down(const char *ms)
{
	FILE *to = fopen("/sys/module/shca/parameters/firmware", "w");

	if (!to || fprintf(to, "0 modify %s\n", ms) < 0 || fclose(to))
		die("firmware");
}

/* ---- the module ---- */

static void forget(uint64_t cookie)
{
	int i;

	for (i = 0; i < TOGETHER; i++) {
		if (qps[i] && cookies[i] == cookie) {
			cookies[i] = 0;
			known--;
			spared -= alone[i];
		}
	}
}

/* A queue pair that is announced with what is known of it: its cookie, and whether it is left alone. */
static void note(struct message *m)
{
	struct nlattr *a[ATTRIBUTES];
	int i;

	attributes((struct nlattr *)m->room, m->nl.nlmsg_len - NLMSG_LENGTH(GENL_HDRLEN), a);
	if (m->genl.cmd == APM_CMD_REPORT && a[APM_A_QP_TOKEN]) {
		loaded += number(a[APM_A_QP_CAUSE]) == APM_CAUSE_DONE;
		refused += number(a[APM_A_QP_CAUSE]) == APM_CAUSE_FAILED &&
			   number(a[APM_A_QP_ERRNO]) == EPERM;
	}
	/* It was announced before it was reset. */
	if (m->genl.cmd == APM_CMD_DEL)
		forget(number(a[APM_A_QP_COOKIE]));
	if (m->genl.cmd != APM_CMD_NEW || strcmp(data(a[APM_A_QP_DEV_NAME]), here.name))
		return;
	for (i = 0; i < TOGETHER; i++) {
		if (!qps[i] || cookies[i] || qps[i]->qp_num != number(a[APM_A_QP_QPN]))
			continue;
		cookies[i] = number(a[APM_A_QP_COOKIE]);
		known++;
		alone[i] = number(a[APM_A_QP_REFUSAL]) == APM_REFUSAL_OWN_APM;
		spared += alone[i];
	}
}

/* What has come in, if anything has. */
static bool hear(int flags)
{
	static char buffer[1 << 16] __attribute__((aligned(8)));
	int left = recv(sock, buffer, sizeof(buffer), flags);
	struct nlmsghdr *nl = (struct nlmsghdr *)buffer;

	if (left < 0 && !(flags & MSG_DONTWAIT))
		die("recv");
	if (left < 0)
		return false;
	for (; NLMSG_OK(nl, (unsigned int)left); nl = NLMSG_NEXT(nl, left))
		if (nl->nlmsg_type == family)
			note((struct message *)nl);
	return true;
}

static void hear_all(void)
{
	while (hear(MSG_DONTWAIT))
		;
}

static void put_way(struct message *m, uint16_t type, int port)
{
	struct nlattr *nest = put(m, type | NLA_F_NESTED, NULL, 0);

	put(m, APM_A_PATH_PORT, &(uint8_t){ port }, 1);
	put(m, APM_A_PATH_SLID, &(uint16_t){ port_of(&here, port).lid }, 2);
	put(m, APM_A_PATH_DLID, &(uint16_t){ port_of(&there, port).lid }, 2);
	put(m, APM_A_PATH_ACK_TIMEOUT, &(uint8_t){ 14 }, 1);
	nest->nla_len = (char *)m + m->nl.nlmsg_len - (char *)nest;
}

static void order_load(uint64_t cookie)
{
	struct message m;

	if (!with_orders)
		return;
	begin(&m, family, APM_CMD_LOAD, 0);
	put(&m, APM_A_QP_COOKIE, &cookie, sizeof(cookie));
	put(&m, APM_A_QP_TOKEN, &(uint32_t){ 1 }, sizeof(uint32_t));
	put_way(&m, APM_A_QP_PRIMARY, 1);
	put_way(&m, APM_A_QP_ALTERNATE, 2);
	send_message(&m);
	pause_ms(ORDER_MS);
}

/* ---- rounds ---- */

/* Resets and destructions wait for an RCU grace period each: in threads, they wait together. */
static void start(int i, void *(*work)(void *))
{
	errno = pthread_create(&threads[i], NULL, work, qps[i]);
	if (errno)
		die("pthread_create");
}

static void join(int many)
{
	int i;

	for (i = 0; i < many; i++)
		pthread_join(threads[i], NULL);
}

static void *connect_with_own(void *qp)
{
	connect_qp(qp);
	if (load_own(qp))
		die("the owner's own alternate");
	reset_qp(qp);
	connect_qp(qp);
	return NULL;
}

static void *connect_only(void *qp)
{
	connect_qp(qp);
	return NULL;
}

static void *destroy(void *qp)
{
	if (ibv_destroy_qp(qp))
		die("ibv_destroy_qp");
	return NULL;
}

static void begin_round(int i, bool by_reset)
{
	qps[i] = create_qp();
	cookies[i] = 0;
	start(i, by_reset ? connect_with_own : connect_only);
}

static void end_round(int i, bool by_reset)
{
	order_load(cookies[i]);
	/* The module may have come first, and Armed takes no migration state: that is no matter. */
	if (!by_reset)
		load_own(qps[i]);
	start(i, destroy);
	qps[i] = NULL;
	hear_all();
}

static void go(unsigned long rounds, bool by_reset)
{
	unsigned long n, before;
	int i, many;

	for (n = 0; n < rounds; n += many) {
		many = rounds - n < TOGETHER ? rounds - n : TOGETHER;
		before = known;
		for (i = 0; i < many; i++)
			begin_round(i, by_reset);
		join(many);
		while (known < before + many)
			hear(0);
		slow_down("1 12");
		for (i = 0; i < many; i++)
			end_round(i, by_reset);
		join(many);
		slow_down("0");
		hear_all();
	}
}

int main(int argc, char **argv)
{
	bool by_reset = argc > 1 && !strcmp(argv[1], "reset");

	if (argc < 3 || (!by_reset && strcmp(argv[1], "load")))
		return 2;
	with_orders = argc < 4 || strcmp(argv[3], "-n");
	open_end(&here, here.name, 4096, 16);
	open_end(&there, there.name, 4096, 16);
	open_socket();
	subscribe();
	go(strtoul(argv[2], NULL, 0), by_reset);
	pause_ms(500);
	hear_all();
	close_end(&here);
	close_end(&there);
	printf("queue pairs: %lu, left alone: %lu; orders done: %lu, refused: %lu\n", known, spared,
	       loaded, refused);
	return 0;
}
