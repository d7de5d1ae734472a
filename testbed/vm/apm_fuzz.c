// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * apm_fuzz COUNT SEED [user|namespace]: so many messages to the kernel module apm that are hardly orders:
 * any command, attributes of any type, length and nesting, cut off anywhere. As root, after orders that are
 * wrong in one way each, with the reason that the module must give; or as a user, or as the root of a user and
 * network namespace of its own, where nothing at all may be granted or told.
 *
 * Root's leaves the settings as they are when the module is loaded. Prints how many were refused, with how
 * many different reasons, and ends with 1 if what is to be refused was not, or if nothing was.
 */
#define _GNU_SOURCE
#include "apm_netlink.h"

#include <sched.h>

#define KNOWN 64
#define REASONS 64
#define NOBODY 65534

static uint64_t cookies[KNOWN];
static unsigned int count;
static unsigned long granted, told, refusals;
static char reasons[REASONS][96];
static unsigned int reason_count;
static char last_reason[96];
static uint64_t chances;

/* xorshift: the same choices for the same seed. */
static uint32_t chance(uint32_t below)
{
	chances ^= chances << 13;
	chances ^= chances >> 7;
	chances ^= chances << 17;
	return chances % below;
}

static void learn_reason(struct nlmsghdr *nl)
{
	struct nlmsgerr *error = NLMSG_DATA(nl);
	struct nlattr *a[ATTRIBUTES];
	size_t skip = NLMSG_HDRLEN + sizeof(*error);
	unsigned int i;

	if (!(nl->nlmsg_flags & NLM_F_CAPPED))
		skip += NLMSG_ALIGN(error->msg.nlmsg_len) - sizeof(struct nlmsghdr);
	if (!(nl->nlmsg_flags & NLM_F_ACK_TLVS) || skip > nl->nlmsg_len)
		return;
	attributes((struct nlattr *)((char *)nl + skip), nl->nlmsg_len - skip, a);
	if (!a[NLMSGERR_ATTR_MSG])
		return;
	snprintf(last_reason, sizeof(last_reason), "%s", (char *)data(a[NLMSGERR_ATTR_MSG]));
	for (i = 0; i < reason_count; i++)
		if (!strcmp(reasons[i], data(a[NLMSGERR_ATTR_MSG])))
			return;
	if (reason_count < REASONS)
		snprintf(reasons[reason_count++], sizeof(reasons[0]), "%s",
			 (char *)data(a[NLMSGERR_ATTR_MSG]));
}

static void hear(int flags)
{
	static char buffer[1 << 16] __attribute__((aligned(8)));
	struct nlmsghdr *nl = (struct nlmsghdr *)buffer;
	struct nlattr *a[ATTRIBUTES];
	int left;

	for (;;) {
		left = recv(sock, buffer, sizeof(buffer), flags);
		if (left < 0 && errno == ENOBUFS)
			continue;
		if (left < 0 && errno == EAGAIN)
			return;
		if (left < 0)
			die("recv");
		for (nl = (struct nlmsghdr *)buffer; NLMSG_OK(nl, (unsigned int)left);
		     nl = NLMSG_NEXT(nl, left)) {
			if (nl->nlmsg_type == NLMSG_ERROR && ((struct nlmsgerr *)NLMSG_DATA(nl))->error) {
				refusals++;
				learn_reason(nl);
			} else if (nl->nlmsg_type == NLMSG_ERROR) {
				granted++;
			}
			if (nl->nlmsg_type != family)
				continue;
			told++;
			attributes((struct nlattr *)((struct message *)nl)->room,
				   nl->nlmsg_len - NLMSG_LENGTH(GENL_HDRLEN), a);
			if (a[APM_A_QP_COOKIE])
				cookies[count++ % KNOWN] = number(a[APM_A_QP_COOKIE]);
		}
		flags = MSG_DONTWAIT;
	}
}

/* Attributes with attributes in them, of lengths that are true or not. */
static void put_some(struct message *m, int depth)
{
	unsigned int n = chance(6), i;
	uint8_t random[40];

	while (n--) {
		uint16_t type = chance(APM_A_QP_MAX + 3);
		unsigned int length = chance(3) ? 1U << chance(4) : chance(sizeof(random));
		struct nlattr *one;

		if (m->nl.nlmsg_len > sizeof(*m) - 128)
			return;
		for (i = 0; i < sizeof(random); i++)
			random[i] = chance(3) ? chance(4) : chance(256);
		if (depth < 4 && (type == APM_A_QP_PRIMARY || type == APM_A_QP_ALTERNATE ||
				  type == APM_A_QP_RULES || !chance(8))) {
			one = put(m, type | (chance(8) ? NLA_F_NESTED : 0), NULL, 0);
			put_some(m, depth + 1);
			one->nla_len = (char *)m + m->nl.nlmsg_len - (char *)one;
		} else {
			one = put(m, type | (chance(16) ? 0 : NLA_F_NESTED), random, length);
		}
		if (!chance(24))
			one->nla_len = chance(2) ? chance(8) : chance(65536);
	}
}

static void talk(void)
{
	uint8_t command = chance(APM_CMD_MAX + 2);
	uint32_t index = chance(3);
	struct message m;

	begin(&m, family, command, chance(command == APM_CMD_GET ? 2 : 16) ? 0 : NLM_F_DUMP);
	if (count && chance(2))
		put(&m, APM_A_QP_COOKIE, &cookies[chance(count < KNOWN ? count : KNOWN)], 8);
	if (!chance(3))
		put(&m, APM_A_QP_DEV_INDEX, &index, 4);
	put_some(&m, 0);
	if (!chance(8))
		m.nl.nlmsg_len = NLMSG_HDRLEN + chance(m.nl.nlmsg_len - NLMSG_HDRLEN + 1);
	if (!chance(32))
		m.genl.version = chance(256);
	send_message(&m);
	hear(MSG_DONTWAIT);
}

/* What a wrong order has. No queue pair has its cookie, and no device its index. */
enum {
	COOKIE = 1, DEVICE = 2, NUMBER = 4, PRIMARY = 8, ALTERNATE = 16, ENDS = 32, GLOBAL = 64, RULE = 128,
	CGROUP = 256
};

static const struct {
	uint8_t command;
	unsigned int has;
	const char *reason;
} wrong[] = {
	{ APM_CMD_LOAD, 0, "the order names no cookie" },
	{ APM_CMD_LOAD, COOKIE, "the order names no primary path" },
	{ APM_CMD_LOAD, COOKIE | PRIMARY, "a path needs port, slid and dlid" },
	{ APM_CMD_LOAD, COOKIE | PRIMARY | ENDS, "the order names no alternate path" },
	{ APM_CMD_LOAD, COOKIE | PRIMARY | ENDS | ALTERNATE | GLOBAL, "no alternate path with a GRH is loaded" },
	{ APM_CMD_LOAD, COOKIE | PRIMARY | ENDS | ALTERNATE, "no queue pair has this cookie" },
	{ APM_CMD_MIGRATE, PRIMARY | ENDS, "the order names no cookie" },
	{ APM_CMD_MIGRATE, COOKIE | PRIMARY | ENDS, "no queue pair has this cookie" },
	{ APM_CMD_STANDING, COOKIE | PRIMARY | ENDS, "no queue pair has this cookie" },
	{ APM_CMD_QUERY, COOKIE, "no queue pair has this cookie" },
	{ APM_CMD_QUERY, NUMBER, "name a cookie, or dev-index and qpn" },
	{ APM_CMD_QUERY, DEVICE | NUMBER, "there is no such InfiniBand device here" },
	{ APM_CMD_PEER, DEVICE, "a peer needs dev-index and primary" },
	{ APM_CMD_PEER, PRIMARY | ENDS, "a peer needs dev-index and primary" },
	{ APM_CMD_PEER, DEVICE | PRIMARY, "a peer's path needs port and dlid" },
	{ APM_CMD_PEER, DEVICE | PRIMARY | ENDS, "there is no such InfiniBand device here" },
	{ APM_CMD_CONFIG, RULE, "a rule needs a name, a uid or a cgroup" },
	{ APM_CMD_CONFIG, RULE | CGROUP, "a rule's cgroup is not a path below the root" },
};

static void put_ends(struct message *m, uint16_t type, unsigned int has)
{
	struct nlattr *nest = put(m, type | NLA_F_NESTED, NULL, 0);

	if (has & ENDS) {
		put(m, APM_A_PATH_PORT, &(uint8_t){ 1 }, 1);
		put(m, APM_A_PATH_SLID, &(uint16_t){ 1 }, 2);
		put(m, APM_A_PATH_DLID, &(uint16_t){ 2 }, 2);
	}
	if ((has & GLOBAL) && type == APM_A_QP_ALTERNATE)
		put(m, APM_A_PATH_GLOBAL, NULL, 0);
	nest->nla_len = (char *)m + m->nl.nlmsg_len - (char *)nest;
}

static void order_wrongly(uint8_t command, unsigned int has, const char *reason)
{
	struct nlattr *list, *rule;
	struct message m;

	begin(&m, family, command, 0);
	if (has & COOKIE)
		put(&m, APM_A_QP_COOKIE, &(uint64_t){ 1 }, 8);
	if (has & DEVICE)
		put(&m, APM_A_QP_DEV_INDEX, &(uint32_t){ 4711 }, 4);
	if (has & NUMBER)
		put(&m, APM_A_QP_QPN, &(uint32_t){ 4711 }, 4);
	if (has & PRIMARY)
		put_ends(&m, APM_A_QP_PRIMARY, has);
	if (has & ALTERNATE)
		put_ends(&m, APM_A_QP_ALTERNATE, has);
	if (has & RULE) {
		list = put(&m, APM_A_QP_RULES | NLA_F_NESTED, NULL, 0);
		rule = put(&m, APM_A_RULE_LIST_RULE | NLA_F_NESTED, NULL, 0);
		if (has & CGROUP)
			put(&m, APM_A_RULE_CGROUP, "/", sizeof("/"));
		rule->nla_len = (char *)&m + m.nl.nlmsg_len - (char *)rule;
		list->nla_len = (char *)&m + m.nl.nlmsg_len - (char *)list;
	}
	last_reason[0] = 0;
	send_message(&m);
	hear(0);
	if (strcmp(last_reason, reason)) {
		fprintf(stderr, "apm_fuzz: command %u, with %#x: \"%s\", want \"%s\"\n", command, has,
			last_reason, reason);
		exit(1);
	}
}

/* As they are at the beginning. */
static void restore_settings(void)
{
	uint32_t protect = APM_PROTECT_ALL;
	struct nlattr *list, *rule;
	struct message m;

	begin(&m, family, APM_CMD_CONFIG, 0);
	put(&m, APM_A_QP_PROTECT, &protect, sizeof(protect));
	put(&m, APM_A_QP_SWALLOW, &(uint8_t){ 1 }, 1);
	list = put(&m, APM_A_QP_RULES | NLA_F_NESTED, NULL, 0);
	rule = put(&m, APM_A_RULE_LIST_RULE | NLA_F_NESTED, NULL, 0);
	put(&m, APM_A_RULE_NAME, "ib_ipoib", sizeof("ib_ipoib"));
	rule->nla_len = (char *)&m + m.nl.nlmsg_len - (char *)rule;
	list->nla_len = (char *)&m + m.nl.nlmsg_len - (char *)list;
	granted = 0;
	send_message(&m);
	hear(0);
	if (!granted) {
		fprintf(stderr, "apm_fuzz: a good order was refused\n");
		exit(1);
	}
}

static void become(const char *whom)
{
	if (!strcmp(whom, "user")) {
		if (setgid(NOBODY) || setuid(NOBODY))
			die("user");
	} else if (unshare(CLONE_NEWUSER | CLONE_NEWNET)) {
		die("namespace");
	}
}

int main(int argc, char **argv)
{
	bool root = argc < 4;
	long left;

	if (argc < 3)
		return 2;
	chances = strtoull(argv[2], NULL, 0) | 1;
	if (!root)
		become(argv[3]);
	open_socket();
	for (left = 0; root && left < (long)(sizeof(wrong) / sizeof(wrong[0])); left++)
		order_wrongly(wrong[left].command, wrong[left].has, wrong[left].reason);
	if (root)
		subscribe();
	for (left = atol(argv[1]); left > 0; left--)
		talk();
	printf("%s messages: %lu granted, %lu refused, %lu told; %u reasons\n", argv[1], granted, refusals,
	       told, reason_count);
	for (left = 0; left < reason_count; left++)
		printf("  %s\n", reasons[left]);
	if (!refusals || (!root && (granted || told)))
		return 1;
	if (root)
		restore_settings();
	return 0;
}
