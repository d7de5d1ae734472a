// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * apm_hammer [-x OWNER] SECONDS SEED LID:LID...: orders to the kernel module apm without regard to what its
 * queue pairs do meanwhile, and messages that are no orders. A pair of LIDs is one of a port and one of the
 * other port of the same HCA: an alternate path goes from and to those that are paired with the primary's.
 * Queue pairs of the command OWNER are left alone.
 *
 * Prints how many of each, how many queue pairs it was told the end of, and how often one was moved that waited for
 * traffic. The module is to be neither
 * impressed nor damaged; that the kernel is content is for others to look at. SIGTERM ends it as the time does,
 * and the module's end. Ends with 1 if nothing was ever loaded or migrated.
 */
#define _GNU_SOURCE
#include "apm_netlink.h"

#include <signal.h>
#include <time.h>

#define KNOWN 256
/* Orders whose answers may be outstanding; the latest replaces the earliest. */
#define OUTSTANDING 4096
#define LIDS 16
/* As enum ib_mig_state: it has not migrated. */
#define REARM 1

struct path {
	uint8_t port;
	uint16_t slid, dlid;
};

struct known {
	uint64_t cookie;
	struct path primary;
};

static struct known known[KNOWN];
static unsigned int count, pairs;
static uint16_t lids[LIDS][2];
static unsigned long orders, nonsense, refused, done, stale, failed, ended, moved;
static bool moves_idle[OUTSTANDING];	/* by token */
static const char *spared = "";
static volatile sig_atomic_t enough;
static bool module_left;
static uint64_t chances;

/* xorshift: the same choices for the same seed. */
static uint32_t chance(uint32_t below)
{
	chances ^= chances << 13;
	chances ^= chances >> 7;
	chances ^= chances << 17;
	return chances % below;
}

static uint16_t paired(uint16_t lid)
{
	unsigned int i;

	for (i = 0; i < pairs; i++) {
		if (lids[i][0] == lid)
			return lids[i][1];
		if (lids[i][1] == lid)
			return lids[i][0];
	}
	return lid;
}

static void learn(struct nlattr **a)
{
	struct nlattr *p[ATTRIBUTES];

	if (!a[APM_A_QP_PRIMARY] || count == KNOWN)
		return;
	if (a[APM_A_QP_OWNER_NAME] && !strcmp(data(a[APM_A_QP_OWNER_NAME]), spared))
		return;
	attributes(data(a[APM_A_QP_PRIMARY]), a[APM_A_QP_PRIMARY]->nla_len - NLA_HDRLEN, p);
	known[count].cookie = number(a[APM_A_QP_COOKIE]);
	known[count].primary.port = number(p[APM_A_PATH_PORT]);
	known[count].primary.slid = number(p[APM_A_PATH_SLID]);
	known[count].primary.dlid = number(p[APM_A_PATH_DLID]);
	count++;
}

/* All that is there to be read; or, where an end is to come, until it comes. */
static void hear(bool until_done)
{
	static char buffer[1 << 16] __attribute__((aligned(8)));
	bool at_end = false;

	while (!until_done || !at_end) {
		int left = recv(sock, buffer, sizeof(buffer), until_done ? 0 : MSG_DONTWAIT);
		struct nlmsghdr *nl = (struct nlmsghdr *)buffer;
		struct nlattr *a[ATTRIBUTES];

		/* Told more than could be read in time: that is netlink's. */
		if (left < 0 && (errno == ENOBUFS || errno == EINTR))
			continue;
		if (left < 0 && errno == EAGAIN && !until_done)
			return;
		if (left < 0)
			die("recv");
		for (; NLMSG_OK(nl, (unsigned int)left); nl = NLMSG_NEXT(nl, left)) {
			struct message *m = (struct message *)nl;

			if (nl->nlmsg_type == NLMSG_DONE)
				at_end = true;
			else if (nl->nlmsg_type == NLMSG_ERROR)
				refused += !!((struct nlmsgerr *)NLMSG_DATA(nl))->error;
			/* Of all that is asked for only a dump is waited for; without a family there is none. */
			if (nl->nlmsg_type == NLMSG_ERROR && until_done)
				at_end = module_left = true;
			if (nl->nlmsg_type != family)
				continue;
			ended += m->genl.cmd == APM_CMD_DEL;
			attributes((struct nlattr *)m->room,
				   nl->nlmsg_len - NLMSG_LENGTH(GENL_HDRLEN), a);
			if (m->genl.cmd == APM_CMD_NEW)
				learn(a);
			if (m->genl.cmd != APM_CMD_REPORT || !a[APM_A_QP_TOKEN])
				continue;
			done += number(a[APM_A_QP_CAUSE]) == APM_CAUSE_DONE;
			moved += number(a[APM_A_QP_CAUSE]) == APM_CAUSE_DONE &&
				 number(a[APM_A_QP_MIGRATION]) == REARM &&
				 moves_idle[number(a[APM_A_QP_TOKEN]) % OUTSTANDING];
			stale += number(a[APM_A_QP_CAUSE]) == APM_CAUSE_STALE;
			failed += number(a[APM_A_QP_CAUSE]) == APM_CAUSE_FAILED;
		}
	}
}

static void look(void)
{
	struct message m;

	hear(false);
	count = 0;
	begin(&m, family, APM_CMD_GET, NLM_F_DUMP);
	send_message(&m);
	hear(true);
}

static void put_path_of(struct message *m, uint16_t type, struct path path)
{
	struct nlattr *nest = put(m, type | NLA_F_NESTED, NULL, 0);

	put(m, APM_A_PATH_PORT, &path.port, 1);
	put(m, APM_A_PATH_SLID, &path.slid, 2);
	put(m, APM_A_PATH_DLID, &path.dlid, 2);
	put(m, APM_A_PATH_ACK_TIMEOUT, &(uint8_t){ 12 }, 1);
	nest->nla_len = (char *)m + m->nl.nlmsg_len - (char *)nest;
}

static void order(const struct known *one)
{
	static const uint8_t commands[] = { APM_CMD_LOAD, APM_CMD_LOAD, APM_CMD_MIGRATE,
					    APM_CMD_MOVE_IDLE, APM_CMD_MOVE_IDLE,
					    APM_CMD_STANDING, APM_CMD_QUERY };
	uint8_t command = commands[chance(sizeof(commands))];
	struct path other = {
		.port = one->primary.port == 1 ? 2 : 1,
		.slid = paired(one->primary.slid),
		.dlid = paired(one->primary.dlid),
	};
	uint32_t token = ++orders;
	struct message m;

	moves_idle[token % OUTSTANDING] = command == APM_CMD_MOVE_IDLE;
	begin(&m, family, command, 0);
	put(&m, APM_A_QP_COOKIE, &one->cookie, sizeof(one->cookie));
	put(&m, APM_A_QP_TOKEN, &token, sizeof(token));
	put(&m, APM_A_QP_STANDING, &(uint8_t){ chance(2) }, 1);
	put_path_of(&m, APM_A_QP_PRIMARY, one->primary);
	put_path_of(&m, APM_A_QP_ALTERNATE, other);
	send_message(&m);
}

/* Attributes of any type and length, some with a cookie that is known. Settings are left alone. */
static void talk_nonsense(void)
{
	unsigned int attributes = chance(8), i;
	uint8_t command = chance(APM_CMD_MOVE_IDLE + 2);
	char random[40];
	struct message m;

	if (command == APM_CMD_CONFIG)
		return;
	begin(&m, family, command, command == APM_CMD_GET && chance(2) ? NLM_F_DUMP : 0);
	if (count && chance(2))
		put(&m, APM_A_QP_COOKIE, &known[chance(count)].cookie, 8);
	while (attributes--) {
		for (i = 0; i < sizeof(random); i++)
			random[i] = chance(4) ? chance(4) : chance(256);
		put(&m, chance(APM_A_QP_MAX + 3) | (chance(3) ? 0 : NLA_F_NESTED), random,
		    chance(sizeof(random)));
	}
	nonsense++;
	send_message(&m);
	hear(false);
}

static void end_now(int signal)
{
	enough = signal;
}

int main(int argc, char **argv)
{
	time_t end;
	int i;

	if (argc > 2 && !strcmp(argv[1], "-x")) {
		spared = argv[2];
		argc -= 2;
		argv += 2;
	}
	if (argc < 4 || argc - 3 > LIDS)
		return 2;
	signal(SIGTERM, end_now);
	end = time(NULL) + atoi(argv[1]);
	chances = strtoull(argv[2], NULL, 0) | 1;
	for (i = 3; i < argc; i++, pairs++)
		if (sscanf(argv[i], "%hu:%hu", &lids[pairs][0], &lids[pairs][1]) != 2)
			return 2;
	open_socket();
	subscribe();
	while (!enough && !module_left && time(NULL) < end) {
		unsigned int n;

		look();
		for (n = 0; n < count; n++) {
			order(&known[n]);
			if (!chance(4))
				talk_nonsense();
		}
		talk_nonsense();
		hear(false);
	}
	printf("orders: %lu (done %lu, stale %lu, failed %lu), nonsense: %lu, refused: %lu, ended: %lu, moved idle: %lu\n",
	       orders, done, stale, failed, nonsense, refused, ended, moved);
	return !done;
}
