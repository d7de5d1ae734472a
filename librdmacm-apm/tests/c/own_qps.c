// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * QPs that an application makes by itself, on the device of fake_verbs.c. "opt": its ids opt in; "attach": it sets the
 * migration state of one and then puts it under APM; "vain": modifies that would end the protection of one fail.
 * The QPs exist until there is a line on standard input.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rdma/rdma_apm.h>

#define PEER ((void *)0x20)
#define OWN_OTHER_PORT ((void *)0x12)

static struct ibv_device device;
static struct ibv_context context = { .device = &device, .async_fd = -1 };
static struct ibv_qp alone = { .qp_num = 7, .qp_context = PEER };
static struct ibv_qp accepted = { .qp_num = 9, .qp_context = PEER };
static struct ibv_qp connected = { .qp_num = 11, .qp_context = PEER };
static struct ibv_qp back = { .qp_num = 13, .qp_context = OWN_OTHER_PORT };
static struct ibv_qp managed = { .qp_num = 15, .qp_context = PEER };
static struct ibv_qp waiting = { .qp_num = 17, .qp_context = PEER };
static struct ibv_qp datagram = { .qp_num = 19, .qp_context = PEER, .qp_type = IBV_QPT_UD };
static struct ibv_qp brief = { .qp_num = 21, .qp_context = PEER };
static struct ibv_qp careful = { .qp_num = 23, .qp_context = PEER };

static struct ibv_qp *const all[] = {
	&alone, &accepted, &connected, &back, &managed, &waiting, &datagram, &brief,
	&careful,
};

static void to(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

/* What the device refuses changes nothing. */
static void modify_in_vain(struct ibv_qp *qp)
{
	static const struct {
		enum ibv_qp_state state;
		int mask;
	} tried[] = {
		{ IBV_QPS_ERR, IBV_QP_STATE },
		{ IBV_QPS_RESET, IBV_QP_STATE },
		{ IBV_QPS_RTS, IBV_QP_PATH_MIG_STATE },
		{ IBV_QPS_RTS, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE },
	};
	size_t i;

	for (i = 0; i < sizeof tried / sizeof *tried; i++) {
		struct ibv_qp_attr attr = {
			.qp_state = tried[i].state, .path_mig_state = IBV_MIG_REARM,
		};

		if (ibv_modify_qp(qp, &attr, tried[i].mask | IBV_QP_QKEY) != EINVAL)
			fprintf(stderr, "modified\n");
	}
}

static void connect_by_cm(int opt)
{
	static struct rdma_cm_id server, client;
	struct rdma_conn_param param = { .qp_num = accepted.qp_num };
	uint8_t on = 1;

	server.verbs = client.verbs = &context;
	server.qp_type = client.qp_type = IBV_QPT_RC;
	server.port_num = client.port_num = 1;
	if (opt && (rdma_set_option(&server, RDMA_OPTION_IB, RDMA_OPTION_IB_APM, &on, 1) ||
		    rdma_set_option(&client, RDMA_OPTION_IB, RDMA_OPTION_IB_APM, &on, 1)))
		perror("option");
	/* The accepting side is in RTS before the CM hears of the QP, the connecting side after. */
	to(&accepted, IBV_QPS_RTS);
	rdma_accept(&server, &param);
	param.qp_num = connected.qp_num;
	rdma_connect(&client, &param);
	to(&connected, IBV_QPS_RTS);
	rdma_establish(&client);
}

static void attach(struct ibv_qp *qp)
{
	int (*attach_qp)(struct ibv_qp *, enum rdma_apm_role, const union ibv_gid *);

	*(void **)&attach_qp = dlsym(RTLD_DEFAULT, "rdma_apm_attach_qp");
	if (!attach_qp || attach_qp(qp, RDMA_APM_PASSIVE, NULL))
		perror("attach");
	else if (attach_qp(qp, RDMA_APM_PASSIVE, NULL) != -1 || errno != EEXIST)
		fprintf(stderr, "attached twice\n");
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	struct ibv_qp_attr alternate = { .path_mig_state = IBV_MIG_REARM };
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .path_mig_state = IBV_MIG_MIGRATED };
	size_t i;

	for (i = 0; i < sizeof all / sizeof *all; i++) {
		all[i]->context = &context;
		if (all[i] != &datagram)
			all[i]->qp_type = IBV_QPT_RC;
	}
	to(&alone, IBV_QPS_RTR);
	to(&alone, IBV_QPS_RTS);
	if (!strcmp(how, "vain"))
		modify_in_vain(&alone);
	ibv_modify_qp(&careful, &rts, IBV_QP_STATE | IBV_QP_PATH_MIG_STATE);
	to(&back, IBV_QPS_RTS);
	to(&managed, IBV_QPS_RTS);
	ibv_modify_qp(&managed, &alternate, IBV_QP_PATH_MIG_STATE);
	if (!strcmp(how, "attach"))
		attach(&managed);
	to(&waiting, IBV_QPS_RTR);
	to(&datagram, IBV_QPS_RTS);
	to(&brief, IBV_QPS_RTS);
	connect_by_cm(!strcmp(how, "opt"));
	to(&brief, IBV_QPS_ERR);
	getchar();
	for (i = 0; i < sizeof all / sizeof *all; i++)
		ibv_destroy_qp(all[i]);
	getchar();
	return 0;
}
