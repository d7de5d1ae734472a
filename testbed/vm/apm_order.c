// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * apm_order: gives orders to the kernel module apm, and prints what it tells, one line each.
 *
 *   apm_order get                                 all queue pairs that it knows
 *   apm_order load COOKIE PATH PATH [standing]    an alternate, the second, where the first is primary
 *   apm_order migrate COOKIE PATH
 *   apm_order move-idle COOKIE PATH
 *   apm_order standing COOKIE PATH [standing]     gives the standing order, or withdraws it
 *   apm_order query COOKIE
 *   apm_order adopt DEV_INDEX QPN
 *   apm_order protect none|ulps|all
 *   apm_order peer DEV_INDEX PORT DLID BOUND      bounds ACK timeouts towards it, until it is ended
 *   apm_order probes                              whether it sees what happens
 *   apm_order listen COUNT                        until so many were told
 *   apm_order ignore                              subscribes with the smallest buffer and reads nothing, until it is ended
 *
 * A PATH is PORT:SLID:DLID[:TIMEOUT[:RATE]]; a timeout of 0 is left out. Exit status 1 is a refusal, with the module's reason.
 */
#define _GNU_SOURCE
#include "apm_netlink.h"

#define TOKEN 77

/* ---- writing ---- */

static void put_path(struct message *m, uint16_t type, const char *text)
{
	struct nlattr *nest = put(m, type | NLA_F_NESTED, NULL, 0);
	unsigned int port, slid, dlid, timeout = 14, rate = 0;

	if (sscanf(text, "%u:%u:%u:%u:%u", &port, &slid, &dlid, &timeout, &rate) < 3) {
		fprintf(stderr, "apm_order: %s is not PORT:SLID:DLID\n", text);
		exit(2);
	}
	put(m, APM_A_PATH_PORT, &(uint8_t){ port }, 1);
	put(m, APM_A_PATH_SLID, &(uint16_t){ slid }, 2);
	put(m, APM_A_PATH_DLID, &(uint16_t){ dlid }, 2);
	put(m, APM_A_PATH_RATE, &(uint8_t){ rate }, 1);
	if (timeout)
		put(m, APM_A_PATH_ACK_TIMEOUT, &(uint8_t){ timeout }, 1);
	nest->nla_len = (char *)m + m->nl.nlmsg_len - (char *)nest;
}

/* ---- reading ---- */

static void print_number(const char *name, struct nlattr *a)
{
	if (a)
		printf(" %s=%llu", name, (unsigned long long)number(a));
}

static void print_path(const char *name, struct nlattr *nest)
{
	struct nlattr *a[ATTRIBUTES];

	if (!nest)
		return;
	attributes(data(nest), nest->nla_len - NLA_HDRLEN, a);
	printf(" %s=%u:%u:%u", name, (unsigned int)number(a[APM_A_PATH_PORT]),
	       (unsigned int)number(a[APM_A_PATH_SLID]), (unsigned int)number(a[APM_A_PATH_DLID]));
	printf(" %s-pkey=%#x", name, (unsigned int)number(a[APM_A_PATH_PKEY]));
	printf(" %s-timeout=%u", name, (unsigned int)number(a[APM_A_PATH_ACK_TIMEOUT]));
}

static const char *const role[] = { "unknown", "active", "passive" };
static const char *const cause[] = {
	"done", "stale", "failed", "armed", "path-migrated", "path-mig-err", "changed", "broken"
};
static const char *const refusal[] = {
	"none", "owner", "own-apm", "responder-only", "loopback", "no-apm"
};
static const char *const probes[] = { "blind", "working" };
static const char *const migration[] = { "migrated", "rearm", "armed" };

#define print_name(name, a, names) \
	do { \
		if ((a) && number(a) < sizeof(names) / sizeof(*(names))) \
			printf(" %s=%s", name, (names)[number(a)]); \
	} while (0)

/* Its token, or 0. */
static uint32_t print(struct message *m)
{
	struct nlattr *a[ATTRIBUTES];

	attributes((struct nlattr *)m->room, m->nl.nlmsg_len - NLMSG_LENGTH(GENL_HDRLEN), a);
	printf("%s", m->genl.cmd == APM_CMD_NEW ? "new" : m->genl.cmd == APM_CMD_DEL ? "del" :
		     m->genl.cmd == APM_CMD_REPORT ? "report" :
		     m->genl.cmd == APM_CMD_GET ? "get" : "config");
	print_number("cookie", a[APM_A_QP_COOKIE]);
	print_name("cause", a[APM_A_QP_CAUSE], cause);
	print_number("token", a[APM_A_QP_TOKEN]);
	print_number("errno", a[APM_A_QP_ERRNO]);
	if (a[APM_A_QP_DEV_NAME])
		printf(" dev=%s", (char *)data(a[APM_A_QP_DEV_NAME]));
	print_number("dev-index", a[APM_A_QP_DEV_INDEX]);
	print_number("qpn", a[APM_A_QP_QPN]);
	print_number("peer", a[APM_A_QP_PEER_QPN]);
	print_number("state", a[APM_A_QP_QP_STATE]);
	print_name("migration", a[APM_A_QP_MIGRATION], migration);
	print_path("primary", a[APM_A_QP_PRIMARY]);
	print_path("alternate", a[APM_A_QP_ALTERNATE]);
	print_name("role", a[APM_A_QP_ROLE], role);
	print_name("refusal", a[APM_A_QP_REFUSAL], refusal);
	print_number("standing", a[APM_A_QP_STANDING]);
	if (a[APM_A_QP_OWNER_NAME])
		printf(" owner=%s", (char *)data(a[APM_A_QP_OWNER_NAME]));
	print_number("pid", a[APM_A_QP_OWNER_PID]);
	print_number("uid", a[APM_A_QP_OWNER_UID]);
	print_number("charged", a[APM_A_QP_CHARGED_UID]);
	print_number("protect", a[APM_A_QP_PROTECT]);
	print_name("probes", a[APM_A_QP_PROBES], probes);
	print_number("missed", a[APM_A_QP_MISSED_HITS]);
	print_number("lost", a[APM_A_QP_LOST_MESSAGES]);
	if (a[APM_A_QP_MOVES_IDLE])
		printf(" moves-idle");
	printf("\n");
	fflush(stdout);
	return number(a[APM_A_QP_TOKEN]);
}

/* The kernel's reason stands behind the header that it repeats. */
static int refused(struct nlmsghdr *nl)
{
	struct nlmsgerr *error = NLMSG_DATA(nl);
	struct nlattr *a[ATTRIBUTES];
	size_t skip = NLMSG_HDRLEN + sizeof(*error);

	if (!(nl->nlmsg_flags & NLM_F_CAPPED))
		skip += NLMSG_ALIGN(error->msg.nlmsg_len) - sizeof(struct nlmsghdr);
	attributes((struct nlattr *)((char *)nl + skip),
		   nl->nlmsg_flags & NLM_F_ACK_TLVS ? (int)(nl->nlmsg_len - skip) : 0, a);
	fprintf(stderr, "apm_order: %s (%s)\n",
		a[NLMSGERR_ATTR_MSG] ? (char *)data(a[NLMSGERR_ATTR_MSG]) : "refused",
		strerror(-error->error));
	return 1;
}

/*
 * Reads until the order is acknowledged and, if it bears a token, reported; or until count messages came.
 * The exit status.
 */
static int converse(bool wants_ack, uint32_t token, int count)
{
	static char buffer[1 << 16] __attribute__((aligned(8)));

	while (wants_ack || token || count > 0) {
		int left = recv(sock, buffer, sizeof(buffer), 0);
		struct nlmsghdr *nl = (struct nlmsghdr *)buffer;

		if (left < 0)
			die("recv");
		for (; NLMSG_OK(nl, (unsigned int)left); nl = NLMSG_NEXT(nl, left)) {
			if (nl->nlmsg_type == NLMSG_ERROR) {
				if (((struct nlmsgerr *)NLMSG_DATA(nl))->error)
					return refused(nl);
				wants_ack = false;
			} else if (nl->nlmsg_type == NLMSG_DONE) {
				wants_ack = false;
			} else if (nl->nlmsg_type == family) {
				bool ours = nl->nlmsg_pid || count > 0;
				struct message *m = (struct message *)nl;

				/* What is told to all is of interest if it answers the order. */
				if (ours || token)
					token = print(m) == token ? 0 : token;
				count--;
			}
		}
	}
	return 0;
}

/* ---- orders ---- */

static int usage(void)
{
	fprintf(stderr, "usage: apm_order get | load COOKIE PATH PATH [standing] | migrate COOKIE PATH |\n"
			"       move-idle COOKIE PATH | standing COOKIE PATH [standing] | query COOKIE | adopt DEV_INDEX QPN |\n"
			"       protect none|ulps|all | peer DEV_INDEX PORT DLID BOUND | probes |\n"
			"       listen COUNT | ignore\n");
	return 2;
}

static int give(uint8_t command, int argc, char **argv)
{
	int paths = command == APM_CMD_LOAD ? 2 : command == APM_CMD_QUERY ? 0 : 1;
	uint32_t token = TOKEN;
	uint64_t cookie;
	struct message m;

	if (argc < 3 + paths)
		return usage();
	cookie = strtoull(argv[2], NULL, 10);
	begin(&m, family, command, 0);
	put(&m, APM_A_QP_COOKIE, &cookie, sizeof(cookie));
	put(&m, APM_A_QP_TOKEN, &token, sizeof(token));
	if (paths > 0)
		put_path(&m, APM_A_QP_PRIMARY, argv[3]);
	if (paths > 1)
		put_path(&m, APM_A_QP_ALTERNATE, argv[4]);
	if (argc > 3 + paths && !strcmp(argv[3 + paths], "standing"))
		put(&m, APM_A_QP_STANDING, &(uint8_t){ 1 }, 1);
	subscribe();
	send_message(&m);
	return converse(true, token, 0);
}

static int configure(const char *what)
{
	uint32_t protect = !strcmp(what, "all") ? APM_PROTECT_ALL :
			   !strcmp(what, "ulps") ? APM_PROTECT_ULPS : APM_PROTECT_NONE;
	struct message m;

	begin(&m, family, APM_CMD_CONFIG, 0);
	put(&m, APM_A_QP_PROTECT, &protect, sizeof(protect));
	send_message(&m);
	return converse(true, 0, 0);
}

static int adopt(const char *device, const char *qpn)
{
	uint32_t index = atoi(device), number = atoi(qpn);
	struct message m;

	begin(&m, family, APM_CMD_QUERY, 0);
	put(&m, APM_A_QP_DEV_INDEX, &index, sizeof(index));
	put(&m, APM_A_QP_QPN, &number, sizeof(number));
	send_message(&m);
	return converse(true, 0, 0);
}

/* What is named lasts as long as the socket. */
static int name_peer(char **argv)
{
	uint32_t index = atoi(argv[0]);
	struct nlattr *nest;
	struct message m;
	int status;

	begin(&m, family, APM_CMD_PEER, 0);
	put(&m, APM_A_QP_DEV_INDEX, &index, sizeof(index));
	nest = put(&m, APM_A_QP_PRIMARY | NLA_F_NESTED, NULL, 0);
	put(&m, APM_A_PATH_PORT, &(uint8_t){ atoi(argv[1]) }, 1);
	put(&m, APM_A_PATH_DLID, &(uint16_t){ atoi(argv[2]) }, 2);
	put(&m, APM_A_PATH_ACK_TIMEOUT, &(uint8_t){ atoi(argv[3]) }, 1);
	nest->nla_len = (char *)&m + m.nl.nlmsg_len - (char *)nest;
	send_message(&m);
	status = converse(true, 0, 0);
	if (status)
		return status;
	puts("named");
	fflush(stdout);
	pause();
	return 0;
}

/* What the kernel cannot deliver is an error for the sender. */
static int ignore(void)
{
	if (setsockopt(sock, SOL_SOCKET, SO_RCVBUF, &(int){ 1 }, sizeof(int)) ||
	    setsockopt(sock, SOL_NETLINK, NETLINK_BROADCAST_ERROR, &(int){ 1 }, sizeof(int)) ||
	    setsockopt(sock, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group)))
		die("ignore");
	puts("subscribed");
	fflush(stdout);
	pause();
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	struct message m;

	open_socket();
	if (!strcmp(what, "get")) {
		begin(&m, family, APM_CMD_GET, NLM_F_DUMP);
		send_message(&m);
		return converse(true, 0, 0);
	}
	if (!strcmp(what, "probes")) {
		begin(&m, family, APM_CMD_GET, 0);
		send_message(&m);
		return converse(true, 0, 0);
	}
	if (!strcmp(what, "load"))
		return give(APM_CMD_LOAD, argc, argv);
	if (!strcmp(what, "migrate"))
		return give(APM_CMD_MIGRATE, argc, argv);
	if (!strcmp(what, "move-idle"))
		return give(APM_CMD_MOVE_IDLE, argc, argv);
	if (!strcmp(what, "standing"))
		return give(APM_CMD_STANDING, argc, argv);
	if (!strcmp(what, "query"))
		return give(APM_CMD_QUERY, argc, argv);
	if (!strcmp(what, "adopt") && argc > 3)
		return adopt(argv[2], argv[3]);
	if (!strcmp(what, "protect") && argc > 2)
		return configure(argv[2]);
	if (!strcmp(what, "peer") && argc > 5)
		return name_peer(argv + 2);
	if (!strcmp(what, "ignore"))
		return ignore();
	if (!strcmp(what, "listen") && argc > 2) {
		subscribe();
		return converse(false, 0, atoi(argv[2]));
	}
	return usage();
}
