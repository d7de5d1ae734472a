// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * hold_qp [-r|-v|-o ACTS] DEVICE PORT DLID COMMAND...: becomes COMMAND with "--qpn NUMBER" added, a process that
 * has this RC queue pair, in RTS, on the path from the port to the LID. With -r it is left in RTR. With -o,
 * when SIGUSR1 comes, it is modified by these acts, separated by commas, and then the process becomes COMMAND: sqd,
 * sqd-notify, sqd-bad (which fails), rts, rts-bad, reset (and connected again). With -v modifies of it have failed that
 * would have disconnected it.
 *
 * hold_qp -n COUNT LIDS DEVICE PORT DLID: has COUNT such queue pairs, to as many LIDs from DLID on in turn, says
 * so, and stays.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <signal.h>

#include "verbs_pair.h"

#define PSN 1

static void to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS, .sq_psn = PSN, .max_rd_atomic = 1,
		.timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
	};

	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
			  IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC))
		die("to RTS");
}

static void to_rtr(struct ibv_qp *qp, int port, int dlid);

static int set_state(struct ibv_qp *qp, enum ibv_qp_state state, int mask)
{
	struct ibv_qp_attr attr = { .qp_state = state, .en_sqd_async_notify = 1 };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | mask);
}

static void act(struct ibv_qp *qp, const char *name, int port, int dlid)
{
	int ret = -1;

	if (!strcmp(name, "sqd"))
		ret = set_state(qp, IBV_QPS_SQD, 0);
	else if (!strcmp(name, "sqd-notify"))
		ret = set_state(qp, IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY);
	else if (!strcmp(name, "sqd-bad"))
		ret = set_state(qp, IBV_QPS_SQD, IBV_QP_SQ_PSN);
	else if (!strcmp(name, "rts"))
		ret = set_state(qp, IBV_QPS_RTS, 0);
	else if (!strcmp(name, "rts-bad"))
		ret = set_state(qp, IBV_QPS_RTS, IBV_QP_SQ_PSN);
	else if (!strcmp(name, "reset"))
		ret = set_state(qp, IBV_QPS_RESET, 0);
	fprintf(stderr, "hold_qp: %s: %s\n", name, ret ? strerror(ret) : "ok");
	if (strcmp(name, "reset"))
		return;
	to_rtr(qp, port, dlid);
	to_rts(qp);
}

static void act_when_told(struct ibv_qp *qp, const sigset_t *told, char *acts, int port, int dlid)
{
	char *name;
	int signal;

	if (sigwait(told, &signal))
		die("sigwait");
	for (name = strtok(acts, ","); name; name = strtok(NULL, ","))
		act(qp, name, port, dlid);
}

/* From RTS nothing leads to INIT, and with RESET nothing else may be set. */
static void modify_in_vain(struct ibv_qp *qp, int port)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = port };

	if (!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			   IBV_QP_ACCESS_FLAGS))
		die("went from RTS to INIT");
	attr.qp_state = IBV_QPS_RESET;
	if (!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS))
		die("went to RESET with access flags");
}

static void to_rtr(struct ibv_qp *qp, int port, int dlid)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = port,
		.path_mtu = IBV_MTU_1024, .rq_psn = PSN,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .dlid = dlid, .port_num = port },
	};

	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			  IBV_QP_ACCESS_FLAGS))
		die("to INIT");
	attr.qp_state = IBV_QPS_RTR;
	attr.dest_qp_num = qp->qp_num ^ 1;
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			  IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			  IBV_QP_MIN_RNR_TIMER))
		die("to RTR");
}

static struct ibv_qp *rtr_qp(struct end *end, int port, int dlid)
{
	struct ibv_qp_init_attr init = {
		.send_cq = end->cq, .recv_cq = end->cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(end->pd, &init);

	if (!qp)
		die("a queue pair");
	to_rtr(qp, port, dlid);
	return qp;
}

/* What is open stays open in the command: so the queue pair stays, and is the command's. */
static void keep_open(void)
{
	DIR *fds = opendir("/proc/self/fd");
	struct dirent *entry;

	if (!fds)
		die("/proc/self/fd");
	while ((entry = readdir(fds)))
		fcntl(atoi(entry->d_name), F_SETFD, 0);
	closedir(fds);
}

static int hold_many(int argc, char **argv)
{
	struct end end = { 0 };
	int count, lids, dlid, i;

	if (argc != 7) {
		fprintf(stderr, "usage: hold_qp -n COUNT LIDS DEVICE PORT DLID\n");
		return 2;
	}
	count = atoi(argv[2]);
	lids = atoi(argv[3]);
	dlid = atoi(argv[6]);
	if (lids < 1)
		die("LIDS");
	open_end(&end, argv[4], 4096, 1);
	for (i = 0; i < count; i++)
		to_rts(rtr_qp(&end, atoi(argv[5]), dlid + i % lids));
	printf("STATS held=%d\n", count);
	fflush(stdout);
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	bool stays_in_rtr = argc > 1 && !strcmp(argv[1], "-r");
	bool in_vain = argc > 1 && !strcmp(argv[1], "-v");
	char *acts = argc > 2 && !strcmp(argv[1], "-o") ? argv[2] : NULL;
	struct end end = { 0 };
	char **command, qpn[16];
	struct ibv_qp *qp;
	sigset_t told;

	if (argc > 1 && !strcmp(argv[1], "-n"))
		return hold_many(argc, argv);
	argc -= acts ? 2 : stays_in_rtr || in_vain;
	argv += acts ? 2 : stays_in_rtr || in_vain;
	if (argc < 5) {
		fprintf(stderr, "usage: hold_qp [-r|-v|-o ACTS] DEVICE PORT DLID COMMAND...\n");
		return 2;
	}
	sigemptyset(&told);
	sigaddset(&told, SIGUSR1);
	sigprocmask(SIG_BLOCK, &told, NULL);
	open_end(&end, argv[1], 4096, 1);
	qp = rtr_qp(&end, atoi(argv[2]), atoi(argv[3]));
	if (!stays_in_rtr)
		to_rts(qp);
	if (in_vain)
		modify_in_vain(qp, atoi(argv[2]));
	if (acts)
		act_when_told(qp, &told, acts, atoi(argv[2]), atoi(argv[3]));
	snprintf(qpn, sizeof(qpn), "%u", qp->qp_num);
	command = calloc(argc, sizeof(*command));
	if (!command)
		die("memory");
	memcpy(command, argv + 4, (argc - 4) * sizeof(*command));
	command[argc - 4] = "--qpn";
	command[argc - 3] = qpn;
	keep_open();
	execvp(command[0], command);
	die(command[0]);
}
