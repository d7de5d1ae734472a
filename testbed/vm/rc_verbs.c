// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * rc_verbs: the connected transports by plain verbs: long and empty messages,
 * receivers that are not ready, errors and what they leave behind, lost packets.
 * It judges the software HCA.
 *
 * Both ends are in this process, on port 1 of shca0 and shca1 (or -a and -b).
 * Prints "PASS name" or "FAIL name: why" for each case; the exit status is 0
 * only if all passed.
 */
#define _GNU_SOURCE
#include "verbs_pair.h"

#define MEMORY (4 << 20)
#define BIG 1000001		/* bytes; not a multiple of any MTU */
#define PORT 1
#define DEPTH 64
#define FIRST_PSN 0xffffe0	/* PSNs wrap early on */
#define SHORT_MS 300		/* for what must not happen */

static struct end a, b;
static int reads_accepted = 4;	/* max_dest_rd_atomic */

static void setup_end(struct end *end, enum ibv_qp_type type, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = end->cq, .recv_cq = end->cq, .srq = srq, .qp_type = type, .sq_sig_all = 1,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH,
			 .max_send_sge = 4, .max_recv_sge = 4 },
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = PORT,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC,
	};

	end->qp = ibv_create_qp(end->pd, &init);
	if (!end->qp || ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
				      IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("a queue pair");
}

static void connect_end(struct end *end, struct end *peer, enum ibv_mtu mtu, int rnr_retry)
{
	bool rc = end->qp->qp_type == IBV_QPT_RC;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = mtu, .dest_qp_num = peer->qp->qp_num,
		.rq_psn = FIRST_PSN, .max_dest_rd_atomic = reads_accepted, .min_rnr_timer = 12,
		.ah_attr = { .dlid = port_of(peer, PORT).lid, .port_num = PORT },
	};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

	if (rc)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (ibv_modify_qp(end->qp, &attr, mask))
		die("to RTR");
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = rnr_retry;
	attr.sq_psn = FIRST_PSN;
	attr.max_rd_atomic = 4;
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (rc)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	if (ibv_modify_qp(end->qp, &attr, mask))
		die("to RTS");
}

static void setup(enum ibv_qp_type type, enum ibv_mtu mtu, int rnr_retry, struct ibv_srq *srq)
{
	setup_end(&a, type, NULL);
	setup_end(&b, type, srq);
	connect_end(&a, &b, mtu, rnr_retry);
	connect_end(&b, &a, mtu, rnr_retry);
}

static void setup_rc(void)
{
	setup(IBV_QPT_RC, IBV_MTU_1024, 7, NULL);
}

static void teardown(void)
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

/* ---- work ---- */

static struct ibv_sge piece(struct end *end, size_t offset, uint32_t length)
{
	return (struct ibv_sge){
		.addr = (uintptr_t)end->memory + offset, .length = length, .lkey = end->mr->lkey,
	};
}

static void receive_into(struct end *end, uint64_t id, size_t offset, uint32_t length)
{
	struct ibv_sge sge = piece(end, offset, length);
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *stuck;
	int err = end->qp->srq ? ibv_post_srq_recv(end->qp->srq, &wr, &stuck) :
				 ibv_post_recv(end->qp, &wr, &stuck);

	if (err)
		die("posting a receive");
}

static void post(struct ibv_send_wr *wr)
{
	struct ibv_send_wr *stuck;

	if (ibv_post_send(a.qp, wr, &stuck))
		die("ibv_post_send");
}

/* From a's memory, or into it, at the offset; at b the same offset of its memory. */
static void request(enum ibv_wr_opcode opcode, size_t offset, uint32_t length, uint32_t rkey)
{
	struct ibv_sge sge = piece(&a, offset, length);
	struct ibv_send_wr wr = {
		.wr_id = opcode, .sg_list = &sge, .num_sge = length ? 1 : 0, .opcode = opcode,
		.imm_data = 0x1234,
		.wr.rdma = { .remote_addr = (uintptr_t)b.memory + offset, .rkey = rkey },
	};

	post(&wr);
}

static void write_there(size_t offset, uint32_t length)
{
	request(IBV_WR_RDMA_WRITE, offset, length, b.mr->rkey);
}

static void read_there(size_t offset, uint32_t length)
{
	request(IBV_WR_RDMA_READ, offset, length, b.mr->rkey);
}

static void send_there(uint32_t length)
{
	request(IBV_WR_SEND, 0, length, 0);
}

static bool next(struct end *end, struct ibv_wc *wc, int patience)
{
	int64_t until = now_ms() + patience;

	while (ibv_poll_cq(end->cq, 1, wc) < 1)
		if (now_ms() > until)
			return bad("%s: no completion", end->name);
	return true;
}

static bool nothing(struct end *end)
{
	struct ibv_wc wc;

	return !next(end, &wc, SHORT_MS) ||
	       bad("%s: unwanted completion: %s", end->name, ibv_wc_status_str(wc.status));
}

static bool ends_with(struct end *end, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	if (!next(end, &wc, PATIENCE_MS))
		return false;
	return wc.status == status || bad("%s: \"%s\", not \"%s\"", end->name,
					  ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
}

static bool done(struct end *end)
{
	return ends_with(end, IBV_WC_SUCCESS);
}

static bool received(uint64_t id, uint32_t length)
{
	struct ibv_wc wc;

	if (!next(&b, &wc, PATIENCE_MS))
		return false;
	if (wc.status)
		return bad("receive: %s", ibv_wc_status_str(wc.status));
	return (wc.wr_id == id && wc.byte_len == length) ||
	       bad("receive %llu of %u bytes, not %llu of %u", (unsigned long long)wc.wr_id,
		   wc.byte_len, (unsigned long long)id, length);
}

static bool in_error(struct end *end)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	if (ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init))
		die("ibv_query_qp");
	return attr.qp_state == IBV_QPS_ERR || bad("%s: QP not in Error", end->name);
}

static void scribble(struct end *end, unsigned int seed)
{
	size_t i;

	for (i = 0; i < MEMORY; i++)
		end->memory[i] = i * 7 + (i >> 8) + seed;
}

/* b has what a has from offset on, and was not touched before and after that. */
static bool same(size_t offset, size_t length, const char *untouched)
{
	if (memcmp(a.memory + offset, b.memory + offset, length))
		return bad("data of %zu bytes altered", length);
	return (b.memory[offset - 1] == untouched[0] &&
		b.memory[offset + length] == untouched[1]) ||
	       bad("wrote beyond %zu bytes", length);
}

static bool moves_data(enum ibv_wr_opcode opcode, size_t offset, uint32_t length)
{
	char edge[2];

	scribble(&a, 1);
	scribble(&b, 2);
	edge[0] = b.memory[offset - 1];
	edge[1] = b.memory[offset + length];
	if (opcode == IBV_WR_SEND)
		receive_into(&b, 7, offset, length);
	request(opcode, offset, length, b.mr->rkey);
	return done(&a) && (opcode != IBV_WR_SEND || received(7, length)) &&
	       same(offset, length, edge);
}

/* ---- the cases ---- */

static bool long_messages(void)
{
	enum ibv_mtu mtu;
	bool ok = true;

	for (mtu = IBV_MTU_256; ok && mtu <= IBV_MTU_4096; mtu++) {
		setup(IBV_QPT_RC, mtu, 7, NULL);
		ok = moves_data(IBV_WR_SEND, 5, BIG) && moves_data(IBV_WR_RDMA_WRITE, 4095, BIG) &&
		     moves_data(IBV_WR_RDMA_READ, 3, BIG);
		teardown();
	}
	return ok;
}

static bool long_messages_with_loss(void)
{
	bool ok = cable_loss(&a, PORT, 3) && cable_loss(&b, PORT, 3);

	setup_rc();
	ok = ok && moves_data(IBV_WR_SEND, 5, BIG / 4) &&
	     moves_data(IBV_WR_RDMA_WRITE, 4095, BIG / 4) &&
	     moves_data(IBV_WR_RDMA_READ, 3, BIG / 4);
	teardown();
	return cable("heal", &a, PORT) && cable("heal", &b, PORT) && ok;
}

static bool gathered(void)
{
	struct ibv_sge from[3] = { piece(&a, 10, 3000), piece(&a, 20000, 1), piece(&a, 9001, 4097) };
	struct ibv_send_wr wr = { .sg_list = from, .num_sge = 3, .opcode = IBV_WR_SEND };
	struct ibv_sge to[2] = { piece(&b, 0, 5000), piece(&b, 8000, 3000) };
	struct ibv_recv_wr receive = { .wr_id = 1, .sg_list = to, .num_sge = 2 }, *stuck;

	scribble(&a, 1);
	scribble(&b, 2);
	if (ibv_post_recv(b.qp, &receive, &stuck))
		die("ibv_post_recv");
	post(&wr);
	if (!done(&a) || !received(1, 3000 + 1 + 4097))
		return false;
	return (!memcmp(b.memory, a.memory + 10, 3000) && b.memory[3000] == a.memory[20000] &&
		!memcmp(b.memory + 3001, a.memory + 9001, 1999) &&
		!memcmp(b.memory + 8000, a.memory + 11000, 2098)) ||
	       bad("pieces not put together");
}

static bool empty_messages(void)
{
	receive_into(&b, 1, 0, 100);
	receive_into(&b, 2, 0, 100);
	send_there(0);
	write_there(0, 0);
	read_there(0, 0);
	request(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0, b.mr->rkey);
	return done(&a) && done(&a) && done(&a) && done(&a) && received(1, 0) && received(2, 0);
}

static bool immediate(void)
{
	struct ibv_wc wc;

	receive_into(&b, 1, 0, 100);
	request(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 10000, b.mr->rkey);
	if (!done(&a) || !next(&b, &wc, PATIENCE_MS))
		return false;
	return (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.wc_flags & IBV_WC_WITH_IMM &&
		wc.imm_data == 0x1234 && wc.byte_len == 10000) || bad("wrong immediate");
}

static bool fence(void)
{
	struct ibv_sge sge = piece(&a, 0, 64);
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_FENCE,
		.wr.rdma = { .remote_addr = (uintptr_t)b.memory + BIG, .rkey = b.mr->rkey },
	};

	/* What the READ brings must be what the WRITE after it takes along. */
	memset(a.memory, 'a', 64);
	memset(b.memory, 'b', 2 * BIG);
	read_there(0, BIG);
	post(&wr);
	if (!done(&a) || !done(&a))
		return false;
	return !memcmp(b.memory, b.memory + BIG, 64) || bad("written before it was read");
}

static bool late_receive(void)
{
	send_there(5000);
	request(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 10000, b.mr->rkey);
	if (!nothing(&a))
		return false;
	receive_into(&b, 1, 0, 8000);
	if (!done(&a) || !received(1, 5000) || !nothing(&a))
		return false;
	receive_into(&b, 2, 0, 8000);
	return done(&a) && received(2, 10000);
}

static bool receive_too_late(void)
{
	bool ok;

	setup(IBV_QPT_RC, IBV_MTU_1024, 2, NULL);
	send_there(100);
	send_there(100);
	ok = ends_with(&a, IBV_WC_RNR_RETRY_EXC_ERR) && ends_with(&a, IBV_WC_WR_FLUSH_ERR) &&
	     in_error(&a);
	teardown();
	return ok;
}

static bool receive_too_short(void)
{
	receive_into(&b, 1, 0, 100);
	receive_into(&b, 2, 0, 100);
	send_there(101);
	return ends_with(&a, IBV_WC_REM_INV_REQ_ERR) && ends_with(&b, IBV_WC_LOC_LEN_ERR) &&
	       ends_with(&b, IBV_WC_WR_FLUSH_ERR) && in_error(&a) && in_error(&b) &&
	       await_event(&b, IBV_EVENT_QP_REQ_ERR);
}

static bool wrong_rkey(void)
{
	request(IBV_WR_RDMA_WRITE, 0, 100, b.mr->rkey ^ 0x100);
	return ends_with(&a, IBV_WC_REM_ACCESS_ERR) && in_error(&a) && in_error(&b) &&
	       await_event(&b, IBV_EVENT_QP_ACCESS_ERR);
}

static bool beyond_the_region(void)
{
	struct ibv_sge sge = piece(&a, 0, 100);
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
		.wr.rdma = { .remote_addr = (uintptr_t)b.memory + MEMORY - 99,
			     .rkey = b.mr->rkey },
	};

	post(&wr);
	send_there(100);
	return ends_with(&a, IBV_WC_REM_ACCESS_ERR) && ends_with(&a, IBV_WC_WR_FLUSH_ERR);
}

static bool invalidated(void)
{
	struct ibv_mr *mr = ibv_reg_mr(b.pd, b.memory, 4096,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_sge sge = piece(&a, 0, 64);
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_INV,
	};
	bool ok;

	if (!mr)
		die("ibv_reg_mr");
	wr.invalidate_rkey = mr->rkey;
	receive_into(&b, 1, 0, 100);
	request(IBV_WR_RDMA_WRITE, 0, 64, mr->rkey);
	post(&wr);
	request(IBV_WR_RDMA_WRITE, 0, 64, mr->rkey);
	ok = done(&a) && done(&a) && received(1, 64) && ends_with(&a, IBV_WC_REM_ACCESS_ERR);
	ibv_dereg_mr(mr);
	return ok;
}

static bool shared_receive_queue(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };
	struct ibv_srq_attr limit = { .srq_limit = 4 };
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct ibv_srq *srq = ibv_create_srq(b.pd, &init);
	bool ok;
	int i;

	if (!srq)
		die("ibv_create_srq");
	setup(IBV_QPT_RC, IBV_MTU_1024, 7, srq);
	for (i = 0; i < 5; i++)
		receive_into(&b, i, 0, 100);
	if (ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT))
		die("ibv_modify_srq");
	send_there(10);
	send_there(20);
	ok = done(&a) && done(&a) && received(0, 10) && received(1, 20) &&
	     await_event(&b, IBV_EVENT_SRQ_LIMIT_REACHED);
	if (ibv_modify_qp(b.qp, &error, IBV_QP_STATE))
		die("to Error");
	ok = ok && await_event(&b, IBV_EVENT_QP_LAST_WQE_REACHED);
	teardown();
	ibv_destroy_srq(srq);
	return ok;
}

static bool drains(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };

	write_there(0, 2 * BIG);
	if (ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY))
		die("to SQD");
	write_there(0, 100);
	if (!await_event(&a, IBV_EVENT_SQ_DRAINED) || !done(&a) || !nothing(&a))
		return false;
	attr.qp_state = IBV_QPS_RTS;
	if (ibv_modify_qp(a.qp, &attr, IBV_QP_STATE))
		die("to RTS");
	return done(&a);
}

/* A region or a queue pair may go while packets that need it are under way. */
static bool taken_away(void)
{
	struct ibv_mr *mr = ibv_reg_mr(a.pd, a.memory, MEMORY, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge sge = { .addr = (uintptr_t)a.memory, .length = MEMORY };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { .remote_addr = (uintptr_t)b.memory, .rkey = b.mr->rkey },
	};

	if (!mr)
		die("ibv_reg_mr");
	sge.lkey = mr->lkey;
	post(&wr);
	post(&wr);
	if (ibv_dereg_mr(mr))
		return bad("the region could not be deregistered");
	teardown();
	setup_rc();
	write_there(0, MEMORY);
	read_there(0, MEMORY);
	return true;	/* and now the queue pairs go */
}

/* More READs at a time than the responder said it has resources for. */
static bool too_many_reads(void)
{
	struct ibv_send_wr wr[DEPTH / 2] = {};
	struct ibv_sge sge = piece(&a, 0, 60000);
	size_t i, count = sizeof(wr) / sizeof(wr[0]);
	bool ok;

	reads_accepted = 1;
	setup(IBV_QPT_RC, IBV_MTU_4096, 7, NULL);
	reads_accepted = 4;
	for (i = 0; i < count; i++) {
		wr[i].next = i + 1 < count ? &wr[i + 1] : NULL;
		wr[i].sg_list = &sge;
		wr[i].num_sge = 1;
		wr[i].opcode = IBV_WR_RDMA_READ;
		wr[i].wr.rdma.remote_addr = (uintptr_t)b.memory;
		wr[i].wr.rdma.rkey = b.mr->rkey;
	}
	post(wr);
	for (i = 0, ok = true; i < count && ok; i++) {
		struct ibv_wc wc;

		ok = next(&a, &wc, PATIENCE_MS);
		if (ok && wc.status == IBV_WC_REM_INV_REQ_ERR)
			break;
		if (ok && wc.status)
			ok = bad("%s", ibv_wc_status_str(wc.status));
	}
	if (ok && i == count)
		ok = bad("all %zu READs were answered", count);
	teardown();
	return ok;
}

/* UC: a message with a lost packet is not delivered, and its receive serves the next. */
static bool unreliable(void)
{
	bool ok = cable_loss(&a, PORT, 5);
	struct ibv_wc wc;
	unsigned int i, got = 0;

	setup(IBV_QPT_UC, IBV_MTU_4096, 7, NULL);
	for (i = 0; i < DEPTH; i++)
		receive_into(&b, i, 0, 40000);
	for (i = 0; ok && i < DEPTH - 1; i++) {
		send_there(40000);
		ok = done(&a);
	}
	ok = cable("heal", &a, PORT) && ok;
	send_there(111);
	while (ok && next(&b, &wc, SHORT_MS)) {
		if (wc.status || wc.wr_id != got)
			ok = bad("receive %llu, expected %u: %s", (unsigned long long)wc.wr_id,
				 got, ibv_wc_status_str(wc.status));
		got++;
	}
	if (ok && (got < 2 || got >= DEPTH || wc.byte_len != 111))
		ok = bad("%u of %u messages, the last of %u bytes", got, DEPTH, wc.byte_len);
	teardown();
	return ok;
}

static const struct {
	const char *name;
	bool (*run)(void);
	bool own_setup;
} cases[] = {
	{ "long-messages", long_messages, true },
	{ "long-messages-with-loss", long_messages_with_loss, true },
	{ "gather-scatter", gathered, false },
	{ "empty-messages", empty_messages, false },
	{ "write-with-immediate", immediate, false },
	{ "fence", fence, false },
	{ "receive-late", late_receive, false },
	{ "receive-too-late", receive_too_late, true },
	{ "receive-too-short", receive_too_short, false },
	{ "wrong-rkey", wrong_rkey, false },
	{ "read-beyond-region", beyond_the_region, false },
	{ "send-with-invalidate", invalidated, false },
	{ "shared-receive-queue", shared_receive_queue, true },
	{ "send-queue-drained", drains, false },
	{ "taken-away", taken_away, false },
	{ "too-many-reads", too_many_reads, true },
	{ "uc-with-loss", unreliable, true },
};

int main(int argc, char **argv)
{
	const char *name_a = "shca0", *name_b = "shca1";
	bool all = true;
	size_t i;
	int c;

	while ((c = getopt(argc, argv, "a:b:")) != -1) {
		switch (c) {
		case 'a':
			name_a = optarg;
			break;
		case 'b':
			name_b = optarg;
			break;
		default:
			fprintf(stderr, "usage: rc_verbs [-a DEVICE] [-b DEVICE]\n");
			return 2;
		}
	}
	open_end(&a, name_a, MEMORY, 4 * DEPTH);
	open_end(&b, name_b, MEMORY, 4 * DEPTH);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (!cases[i].own_setup)
			setup_rc();
		all = report(cases[i].name, cases[i].run()) && all;
		if (!cases[i].own_setup)
			teardown();
	}
	close_end(&a);
	close_end(&b);
	return !all;
}
