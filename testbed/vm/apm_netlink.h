/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The netlink family of the kernel module apm, spoken without a library: what apm_order and apm_hammer
 * have in common.
 */
#ifndef APM_NETLINK_H
#define APM_NETLINK_H

#include <errno.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "apm_nl.h"

#define ATTRIBUTES 64
#define ROOM (8 << 20)

struct message {
	struct nlmsghdr nl;
	struct genlmsghdr genl;
	char room[1024];
};

static int sock;
static uint16_t family;
static uint32_t group;

#ifndef VERBS_PAIR_H /* which has it too */
static inline void die(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
	exit(2);
}
#endif

/* ---- writing ---- */

static inline void begin(struct message *m, uint16_t type, uint8_t command, uint16_t flags)
{
	memset(m, 0, sizeof(*m));
	m->nl.nlmsg_len = NLMSG_LENGTH(GENL_HDRLEN);
	m->nl.nlmsg_type = type;
	m->nl.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags;
	m->genl.cmd = command;
	m->genl.version = 1;
}

static inline struct nlattr *put(struct message *m, uint16_t type, const void *data, size_t length)
{
	struct nlattr *a = (struct nlattr *)((char *)m + NLMSG_ALIGN(m->nl.nlmsg_len));

	a->nla_type = type;
	a->nla_len = NLA_HDRLEN + length;
	if (length)
		memcpy((char *)a + NLA_HDRLEN, data, length);
	m->nl.nlmsg_len = NLMSG_ALIGN(m->nl.nlmsg_len) + NLA_ALIGN(a->nla_len);
	return a;
}

static inline void send_message(struct message *m)
{
	if (send(sock, m, m->nl.nlmsg_len, 0) != (ssize_t)m->nl.nlmsg_len)
		die("send");
}

/* ---- reading ---- */

static inline void attributes(struct nlattr *a, int left, struct nlattr **table)
{
	memset(table, 0, ATTRIBUTES * sizeof(*table));
	for (; left >= NLA_HDRLEN && a->nla_len >= NLA_HDRLEN && a->nla_len <= left;
	     left -= NLA_ALIGN(a->nla_len), a = (struct nlattr *)((char *)a + NLA_ALIGN(a->nla_len)))
		if ((a->nla_type & NLA_TYPE_MASK) < ATTRIBUTES)
			table[a->nla_type & NLA_TYPE_MASK] = a;
}

static inline void *data(struct nlattr *a)
{
	return (char *)a + NLA_HDRLEN;
}

static inline uint64_t number(struct nlattr *a)
{
	uint64_t value = 0;

	if (a)
		memcpy(&value, data(a), a->nla_len - NLA_HDRLEN);
	return value;
}

/* ---- the family ---- */

static inline void find_group(struct nlattr *groups)
{
	struct nlattr *all[ATTRIBUTES], *one[ATTRIBUTES];
	int i;

	attributes(data(groups), groups->nla_len - NLA_HDRLEN, all);
	for (i = 0; i < ATTRIBUTES; i++) {
		if (!all[i])
			continue;
		attributes(data(all[i]), all[i]->nla_len - NLA_HDRLEN, one);
		if (one[CTRL_ATTR_MCAST_GRP_NAME] &&
		    !strcmp(data(one[CTRL_ATTR_MCAST_GRP_NAME]), APM_MCGRP_EVENTS))
			group = number(one[CTRL_ATTR_MCAST_GRP_ID]);
	}
}

static inline void find_family(void)
{
	char buffer[8192] __attribute__((aligned(8)));
	struct nlmsghdr *nl = (struct nlmsghdr *)buffer;
	struct nlattr *a[ATTRIBUTES];
	struct message m;

	begin(&m, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 0);
	m.nl.nlmsg_flags = NLM_F_REQUEST;
	put(&m, CTRL_ATTR_FAMILY_NAME, APM_FAMILY_NAME, sizeof(APM_FAMILY_NAME));
	send_message(&m);
	if (recv(sock, buffer, sizeof(buffer), 0) < 0)
		die("recv");
	if (nl->nlmsg_type == NLMSG_ERROR) {
		fprintf(stderr, "the module apm is not loaded\n");
		exit(1);
	}
	attributes((struct nlattr *)((struct message *)nl)->room,
		   nl->nlmsg_len - NLMSG_LENGTH(GENL_HDRLEN), a);
	if (!a[CTRL_ATTR_FAMILY_ID] || !a[CTRL_ATTR_MCAST_GROUPS]) {
		fprintf(stderr, "the family has no number or no group\n");
		exit(2);
	}
	family = number(a[CTRL_ATTR_FAMILY_ID]);
	find_group(a[CTRL_ATTR_MCAST_GROUPS]);
}

static inline void open_socket(void)
{
	struct sockaddr_nl here = { .nl_family = AF_NETLINK };
	struct timeval patience = { .tv_sec = 20 };
	int on = 1;

	sock = socket(AF_NETLINK, SOCK_RAW, NETLINK_GENERIC);
	if (sock < 0 || bind(sock, (struct sockaddr *)&here, sizeof(here)) ||
	    setsockopt(sock, SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof(on)) ||
	    setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)))
		die("netlink");
	find_family();
}

/* What is told meanwhile has room: an answer that finds none is lost. Not everybody may have so much. */
static inline void subscribe(void)
{
	if ((setsockopt(sock, SOL_SOCKET, SO_RCVBUFFORCE, &(int){ ROOM }, sizeof(int)) &&
	     setsockopt(sock, SOL_SOCKET, SO_RCVBUF, &(int){ ROOM }, sizeof(int))) ||
	    setsockopt(sock, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group)))
		die("listen");
}

#endif
