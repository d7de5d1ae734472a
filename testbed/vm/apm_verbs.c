// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * apm_verbs: automatic path migration by plain verbs, without any of this
 * project's other parts: it judges the software HCA.
 *
 * One process holds both ends of an RC connection, one on each of two devices,
 * and spoils the fabric with cable(1). Prints "PASS name" or "FAIL name: why"
 * for each case; the exit status is 0 only if all passed.
 *
 *   apm_verbs [-g] [-a DEVICE] [-b DEVICE] [-p PORT] [-q PORT]
 *
 * -p is the port of the primary path on both devices, -q of the alternate; with
 * -g the addresses carry a GRH.
 */
#define _GNU_SOURCE
#include "verbs_pair.h"

#define DEPTH 64
#define SLOT 64			/* bytes of a message */
#define SLOTS (2 * DEPTH + 1)
#define TIMEOUT 14		/* 67 ms */
#define RETRIES 5

static struct end a, b;
static int primary = 1, alternate = 2;
static bool with_grh;
static enum ibv_qp_type transport = IBV_QPT_RC;

static int other_port(int port)
{
	return port == primary ? alternate : primary;
}

static char *send_slot(struct end *end)
{
	return end->memory + (DEPTH + end->sent % DEPTH) * SLOT;
}

static uint64_t *target(struct end *end)
{
	return (uint64_t *)(end->memory + 2 * DEPTH * SLOT);
}

/* ---- queue pairs ---- */

static struct ibv_ah_attr path_to(const struct end *to, int port)
{
	struct ibv_ah_attr ah = {
		.dlid = port_of(to, port).lid,
		.port_num = port,
	};

	if (with_grh) {
		ah.is_global = 1;
		ah.grh.hop_limit = 1;
		if (ibv_query_gid(to->context, port, 0, &ah.grh.dgid))
			die("ibv_query_gid");
	}
	return ah;
}

static struct ibv_qp_attr state_of(struct end *end)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	if (ibv_query_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PATH_MIG_STATE | IBV_QP_PORT |
			 IBV_QP_AV | IBV_QP_TIMEOUT, &init))
		die("ibv_query_qp");
	return attr;
}

static const char *mig_name(enum ibv_mig_state state)
{
	return state == IBV_MIG_MIGRATED ? "Migrated" : state == IBV_MIG_REARM ? "ReArm" : "Armed";
}

static bool is_in(struct end *end, enum ibv_mig_state state, int port)
{
	struct ibv_qp_attr attr = state_of(end);

	if (attr.path_mig_state != state || attr.port_num != port)
		return bad("%s is %s on port %d, not %s on port %d", end->name,
			   mig_name(attr.path_mig_state), attr.port_num, mig_name(state), port);
	return attr.ah_attr.port_num == port ||
	       bad("%s: address is for port %d, QP on port %d", end->name,
		   attr.ah_attr.port_num, port);
}

static bool both_in(enum ibv_mig_state state, int port)
{
	return is_in(&a, state, port) && is_in(&b, state, port);
}

static void post_receive(struct end *end, int slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)end->memory + slot * SLOT, .length = SLOT, .lkey = end->mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *stuck;

	if (ibv_post_recv(end->qp, &wr, &stuck))
		die("ibv_post_recv");
}

static void create_qp(struct end *end)
{
	struct ibv_qp_init_attr init = {
		.send_cq = end->cq, .recv_cq = end->cq, .qp_type = transport, .sq_sig_all = 1,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = primary,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC,
	};
	int slot;

	end->qp = ibv_create_qp(end->pd, &init);
	if (!end->qp)
		die("ibv_create_qp");
	if (ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			  IBV_QP_ACCESS_FLAGS))
		die("to INIT");
	for (slot = 0; slot < DEPTH; slot++)
		post_receive(end, slot);
	end->sent = end->received = 0;
	end->sends_pending = end->receives_pending = 0;
	end->failure = IBV_WC_SUCCESS;
}

static bool connect_end(struct end *end, struct end *peer, bool with_alternate)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp->qp_num,
		.rq_psn = 0xfffff0, .max_dest_rd_atomic = 4, .min_rnr_timer = 12,
		.ah_attr = path_to(peer, primary),
		.alt_ah_attr = path_to(peer, alternate), .alt_port_num = alternate,
		.alt_timeout = TIMEOUT,
	};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

	if (transport == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (ibv_modify_qp(end->qp, &attr, mask | (with_alternate ? IBV_QP_ALT_PATH : 0)))
		return bad("%s to RTR: %s", end->name, strerror(errno));
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = TIMEOUT;
	attr.retry_cnt = RETRIES;
	attr.rnr_retry = 7;
	attr.sq_psn = 0xfffff0;		/* PSNs wrap early on */
	attr.max_rd_atomic = 4;
	attr.path_mig_state = IBV_MIG_REARM;
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (transport == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	if (ibv_modify_qp(end->qp, &attr, mask | (with_alternate ? IBV_QP_PATH_MIG_STATE : 0)))
		return bad("%s to RTS: %s", end->name, strerror(errno));
	return true;
}

static bool connect_both(bool with_alternate)
{
	create_qp(&a);
	create_qp(&b);
	return connect_end(&a, &b, with_alternate) && connect_end(&b, &a, with_alternate);
}

static void disconnect(void)
{
	struct ibv_wc wc;

	ibv_destroy_qp(a.qp);
	ibv_destroy_qp(b.qp);
	while (ibv_poll_cq(a.cq, 1, &wc) > 0 || ibv_poll_cq(b.cq, 1, &wc) > 0)
		;
	collect_events(&a);
	collect_events(&b);
	memset(a.events, 0, sizeof(a.events));
	memset(b.events, 0, sizeof(b.events));
}

static bool load(struct end *end, struct end *peer, int port)
{
	struct ibv_qp_attr attr = {
		.alt_ah_attr = path_to(peer, port), .alt_port_num = port,
		.alt_timeout = TIMEOUT, .path_mig_state = IBV_MIG_REARM,
	};
	int err = ibv_modify_qp(end->qp, &attr, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE);

	return !err || bad("%s: load and rearm: %s", end->name, strerror(err));
}

static bool load_both(int port)
{
	return load(&a, &b, port) && load(&b, &a, port);
}

static int force_migration(struct end *end)
{
	struct ibv_qp_attr attr = { .path_mig_state = IBV_MIG_MIGRATED };

	return ibv_modify_qp(end->qp, &attr, IBV_QP_PATH_MIG_STATE);
}

/* ---- traffic ---- */

static bool take_receive(struct end *end, const struct ibv_wc *wc)
{
	uint64_t number;

	memcpy(&number, end->memory + wc->wr_id * SLOT, sizeof(number));
	if (number != end->received)
		return bad("%s: message %llu came as %llu", end->name,
			   (unsigned long long)number, (unsigned long long)end->received);
	end->received++;
	end->receives_pending--;
	post_receive(end, wc->wr_id);
	return true;
}

static bool poll_end(struct end *end)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(end->cq, 1, &wc) > 0) {
		if (wc.status != IBV_WC_SUCCESS) {
			if (end->failure == IBV_WC_SUCCESS)
				end->failure = wc.status;
			continue;
		}
		if (!(wc.opcode & IBV_WC_RECV))
			end->sends_pending--;
		else if (!take_receive(end, &wc))
			return false;
	}
	return true;
}

static bool drain(void)
{
	int64_t until = now_ms() + PATIENCE_MS;

	while (a.sends_pending || b.sends_pending || a.receives_pending || b.receives_pending) {
		if (!poll_end(&a) || !poll_end(&b))
			return false;
		if (a.failure || b.failure)
			return bad("completion error: %s",
				   ibv_wc_status_str(a.failure ? a.failure : b.failure));
		if (now_ms() > until)
			return bad("stuck: %s sent %llu, %s received %llu; %s sent %llu, %s received %llu",
				   a.name, (unsigned long long)a.sent, b.name,
				   (unsigned long long)b.received, b.name,
				   (unsigned long long)b.sent, a.name,
				   (unsigned long long)a.received);
	}
	return true;
}

static bool send_one(struct end *end, struct end *peer)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)send_slot(end), .length = SLOT, .lkey = end->mr->lkey,
	};
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *stuck;

	memcpy(send_slot(end), &end->sent, sizeof(end->sent));
	if (ibv_post_send(end->qp, &wr, &stuck))
		return bad("%s: ibv_post_send failed", end->name);
	end->sent++;
	end->sends_pending++;
	peer->receives_pending++;
	return true;
}

/* Messages in turn, each way; every one arrives once, in order, or it is a failure. */
static bool exchange(int messages)
{
	while (messages--)
		if (!send_one(&a, &b) || !send_one(&b, &a) || !drain())
			return false;
	return true;
}

static bool one_way(struct end *from, struct end *to)
{
	return send_one(from, to) && drain();
}

static bool fetch_and_add(void)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)send_slot(&a), .length = 8, .lkey = a.mr->lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.wr.atomic = { .remote_addr = (uintptr_t)target(&b), .rkey = b.mr->rkey,
			       .compare_add = 1 },
	}, *stuck;
	uint64_t before = *target(&b), seen;

	if (ibv_post_send(a.qp, &wr, &stuck))
		return bad("posting an atomic failed");
	a.sends_pending++;
	if (!drain())
		return false;
	memcpy(&seen, send_slot(&a), sizeof(seen));
	if (seen != before || *target(&b) != before + 1)
		return bad("fetch and add on %llu fetched %llu and left %llu",
			   (unsigned long long)before, (unsigned long long)seen,
			   (unsigned long long)*target(&b));
	return true;
}

static bool armed(int port)
{
	return exchange(2) && both_in(IBV_MIG_ARMED, port);
}

static bool migrated_to(int port)
{
	return await_event(&a, IBV_EVENT_PATH_MIG) && await_event(&b, IBV_EVENT_PATH_MIG) &&
	       both_in(IBV_MIG_MIGRATED, port);
}

static bool dies_with_retry_exceeded(struct end *end, struct end *peer)
{
	int64_t until = now_ms() + PATIENCE_MS;

	if (!send_one(end, peer))
		return false;
	while (end->failure == IBV_WC_SUCCESS) {
		if (!poll_end(&a) || !poll_end(&b))
			return false;
		if (now_ms() > until)
			return bad("%s: the send never fails", end->name);
	}
	if (end->failure != IBV_WC_RETRY_EXC_ERR)
		return bad("%s: %s", end->name, ibv_wc_status_str(end->failure));
	return state_of(end).qp_state == IBV_QPS_ERR || bad("%s: QP not in Error", end->name);
}

/* ---- the cases: each leaves both ports up and the connection usable for the next ---- */

static bool arm(void)
{
	return connect_both(true) && both_in(IBV_MIG_REARM, primary) && armed(primary) &&
	       no_event(&a, IBV_EVENT_PATH_MIG) && no_event(&b, IBV_EVENT_PATH_MIG);
}

static bool user_cannot_arm(void)
{
	struct ibv_qp_attr attr = { .path_mig_state = IBV_MIG_ARMED };

	return ibv_modify_qp(a.qp, &attr, IBV_QP_PATH_MIG_STATE) ||
	       bad("modify QP to Armed was taken");
}

static bool migrate_by_fault(void)
{
	return cable("pull", &a, primary) && exchange(3) && migrated_to(alternate) &&
	       cable("plug", &a, primary) && await_active(&a, primary);
}

static bool stays_rearm_when_idle(void)
{
	if (!load_both(primary))
		return false;
	pause_ms(300);
	return both_in(IBV_MIG_REARM, alternate);
}

static bool rearm(void)
{
	return armed(alternate);
}

static bool migrate_by_modify(void)
{
	int err = force_migration(&a);

	if (err)
		return bad("modify QP: %s", strerror(err));
	return await_event(&a, IBV_EVENT_PATH_MIG) && is_in(&a, IBV_MIG_MIGRATED, primary) &&
	       is_in(&b, IBV_MIG_ARMED, alternate) && one_way(&a, &b) &&
	       await_event(&b, IBV_EVENT_PATH_MIG) && both_in(IBV_MIG_MIGRATED, primary) &&
	       exchange(3);
}

static bool no_migration_unless_armed(void)
{
	if (!load(&a, &b, alternate))
		return false;
	if (!force_migration(&a))
		return bad("modify QP from ReArm to Migrated was taken");
	/* The peer sends MigReq = 1: that does not arm. */
	if (!one_way(&b, &a) || !is_in(&a, IBV_MIG_REARM, primary))
		return false;
	return load(&b, &a, alternate) && armed(primary);
}

static bool migrate_by_blackhole(void)
{
	return cable("blackhole", &b, primary) && exchange(3) && migrated_to(alternate) &&
	       cable("heal", &b, primary) && load_both(primary) && armed(alternate);
}

/* Only the acknowledgements vanish: the request is repeated, and executed once. */
static bool lost_acknowledgements(void)
{
	int port = state_of(&a).port_num;

	if (!cable("blackhole-tx", &b, port) || !one_way(&a, &b) ||
	    !migrated_to(other_port(port)) || !cable("heal", &b, port))
		return false;
	pause_ms(200);
	if (!exchange(3) || !load_both(port) || !armed(other_port(port)))
		return false;
	port = other_port(port);
	return cable("blackhole-tx", &b, port) && fetch_and_add() &&
	       migrated_to(other_port(port)) && cable("heal", &b, port) &&
	       load_both(port) && armed(other_port(port));
}

/*
 * Losses that the retry count covers are no reason to migrate. A round trip passes four lossy
 * times: that all of its six tries fail happens once in half a million.
 */
static bool recovers_from_loss(void)
{
	int port = state_of(&a).port_num, i;
	bool ok = cable_loss(&a, port, 3) && cable_loss(&b, port, 3);

	for (i = 0; ok && i < 25; i++)
		ok = exchange(1) && fetch_and_add();
	return cable("heal", &a, port) && cable("heal", &b, port) && ok &&
	       both_in(IBV_MIG_ARMED, port);
}

static bool send_burst(void)
{
	int i;

	for (i = 0; i < DEPTH / 2; i++)
		if (!send_one(&a, &b) || !send_one(&b, &a))
			return false;
	return true;
}

/* Faults at either end, with the send queues full: nothing is lost, doubled or reordered. */
static bool storm(void)
{
	int round;

	for (round = 0; round < 8; round++) {
		struct end *end = round & 1 ? &b : &a;
		int port = state_of(&a).port_num;
		const char *fault = round & 2 ? "blackhole" : "pull";
		const char *remedy = round & 2 ? "heal" : "plug";

		if (!send_burst() || !cable(fault, end, port) || !send_burst() || !drain() ||
		    !exchange(1) || !migrated_to(other_port(port)) || !cable(remedy, end, port) ||
		    !await_active(end, port) || !load_both(port) || !armed(other_port(port)))
			return false;
	}
	return true;
}

static bool double_loss(void)
{
	bool ok = cable("blackhole", &a, primary) && cable("blackhole", &a, alternate) &&
		  dies_with_retry_exceeded(&a, &b) && await_event(&a, IBV_EVENT_PATH_MIG);

	disconnect();
	return cable("heal", &a, primary) && cable("heal", &a, alternate) && ok;
}

static bool not_armed_dies(void)
{
	bool ok = connect_both(false) && exchange(2) &&
		  both_in(IBV_MIG_MIGRATED, primary) && cable("blackhole", &a, primary) &&
		  dies_with_retry_exceeded(&a, &b) && no_event(&a, IBV_EVENT_PATH_MIG);

	disconnect();
	return cable("heal", &a, primary) && ok;
}

/* One end's alternate is not the path the other migrates to. */
static bool refused_migration(void)
{
	bool ok = connect_both(true) && load(&b, &a, primary) && armed(primary) &&
		  !force_migration(&a) && dies_with_retry_exceeded(&a, &b) &&
		  await_event(&b, IBV_EVENT_PATH_MIG_ERR) && no_event(&b, IBV_EVENT_PATH_MIG) &&
		  is_in(&b, IBV_MIG_ARMED, primary);

	disconnect();
	return ok;
}

/* An end that rearms before its peer has followed cannot be heard, nor migrate again. */
static bool rearm_too_early(void)
{
	bool ok = connect_both(true) && armed(primary) && !force_migration(&a) &&
		  load(&a, &b, primary) && dies_with_retry_exceeded(&a, &b) &&
		  is_in(&b, IBV_MIG_ARMED, primary);

	disconnect();
	return ok;
}

/* UC has APM, too, but no retries that could run out: only modify QP migrates it. */
static bool unreliable_connection(void)
{
	bool ok;

	transport = IBV_QPT_UC;
	ok = connect_both(true) && armed(primary) && !force_migration(&a) && one_way(&a, &b) &&
	     migrated_to(alternate) && exchange(3) && load_both(primary) && armed(alternate);
	disconnect();
	transport = IBV_QPT_RC;
	return ok;
}

static const struct {
	const char *name;
	bool (*run)(void);
	bool needs_connection;
} cases[] = {
	{ "arm", arm, false },
	{ "user-cannot-arm", user_cannot_arm, true },
	{ "migrate-by-fault", migrate_by_fault, true },
	{ "idle-stays-rearm", stays_rearm_when_idle, true },
	{ "rearm", rearm, true },
	{ "migrate-by-modify", migrate_by_modify, true },
	{ "no-migration-unless-armed", no_migration_unless_armed, true },
	{ "migrate-by-blackhole", migrate_by_blackhole, true },
	{ "lost-acknowledgements", lost_acknowledgements, true },
	{ "recovers-from-loss", recovers_from_loss, true },
	{ "storm", storm, true },
	{ "double-loss", double_loss, true },
	{ "not-armed-dies", not_armed_dies, false },
	{ "refused-migration", refused_migration, false },
	{ "rearm-too-early", rearm_too_early, false },
	{ "unreliable-connection", unreliable_connection, false },
};

static bool run_cases(void)
{
	bool connected = true, all = true;
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		bool ok;

		/* After a failure the connection of the first cases cannot be trusted. */
		if (cases[i].needs_connection && !connected) {
			printf("FAIL %s: not run, an earlier case failed\n", cases[i].name);
			continue;
		}
		ok = report(cases[i].name, cases[i].run());
		if (!ok && (cases[i].needs_connection || cases[i].run == arm)) {
			connected = false;
			if (cases[i].run != double_loss)
				disconnect();
		}
		all = all && ok;
	}
	return all;
}

int main(int argc, char **argv)
{
	const char *name_a = "shca0", *name_b = "shca1";
	bool ok;
	int c;

	while ((c = getopt(argc, argv, "a:b:p:q:g")) != -1) {
		switch (c) {
		case 'a':
			name_a = optarg;
			break;
		case 'b':
			name_b = optarg;
			break;
		case 'p':
			primary = atoi(optarg);
			break;
		case 'q':
			alternate = atoi(optarg);
			break;
		case 'g':
			with_grh = true;
			break;
		default:
			fprintf(stderr, "usage: apm_verbs [-g] [-a DEVICE] [-b DEVICE] [-p PORT] [-q PORT]\n");
			return 2;
		}
	}
	open_end(&a, name_a, SLOTS * SLOT, 4 * DEPTH);
	open_end(&b, name_b, SLOTS * SLOT, 4 * DEPTH);
	ok = run_cases();
	close_end(&a);
	close_end(&b);
	return !ok;
}
