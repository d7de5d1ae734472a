// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * send_mads: sends MADs of any class and content out of a port, as root of a host can.
 *
 *   send_mads DEVICE PORT < RECORDS
 *
 * A record is the destination LID (2 bytes, big-endian) and the MAD (256 bytes). They go to
 * QP1 in the default partition, from the port's own base LID: an HCA puts that into every
 * packet. The number sent is said at the end.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <rdma/ib_user_mad.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define MAD_SIZE 256
#define QP1_QKEY 0x80010000u

struct record {
	uint16_t lid;
	uint8_t mad[MAD_SIZE];
};

struct datagram {
	struct ib_user_mad_hdr head;
	uint8_t mad[MAD_SIZE];
};

static void die(const char *what)
{
	fprintf(stderr, "send_mads: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* The first line of an attribute of umad device i; empty if there is none. */
static void attribute(int i, const char *name, char *text, int size)
{
	char path[64];
	FILE *file;

	text[0] = '\0';
	snprintf(path, sizeof(path), "/sys/class/infiniband_mad/umad%d/%s", i, name);
	file = fopen(path, "r");
	if (!file)
		return;
	if (fgets(text, size, file))
		text[strcspn(text, "\n")] = '\0';
	fclose(file);
}

static int open_umad(const char *device, const char *port)
{
	char path[64], found[64], number[16];
	int i;

	for (i = 0; i < 64; i++) {
		attribute(i, "ibdev", found, sizeof(found));
		attribute(i, "port", number, sizeof(number));
		if (strcmp(found, device) || strcmp(number, port))
			continue;
		snprintf(path, sizeof(path), "/dev/infiniband/umad%d", i);
		return open(path, O_RDWR);
	}
	errno = ENODEV;
	return -1;
}

int main(int argc, char **argv)
{
	/* Of no class: it may send, and receives nothing. */
	struct ib_user_mad_reg_req agent = { .qpn = 1 };
	struct datagram datagram;
	struct record record;
	unsigned long sent = 0;
	int fd;

	if (argc != 3) {
		fprintf(stderr, "usage: send_mads DEVICE PORT < RECORDS\n");
		return 2;
	}
	fd = open_umad(argv[1], argv[2]);
	if (fd < 0)
		die(argv[1]);
	if (ioctl(fd, IB_USER_MAD_ENABLE_PKEY))
		die("IB_USER_MAD_ENABLE_PKEY");
	if (ioctl(fd, IB_USER_MAD_REGISTER_AGENT, &agent))
		die("IB_USER_MAD_REGISTER_AGENT");
	while (fread(&record, sizeof(record), 1, stdin) == 1) {
		memset(&datagram, 0, sizeof(datagram));
		datagram.head.id = agent.id;
		datagram.head.qpn = htobe32(1);
		datagram.head.qkey = htobe32(QP1_QKEY);
		datagram.head.lid = record.lid;
		memcpy(datagram.mad, record.mad, MAD_SIZE);
		if (write(fd, &datagram, sizeof(datagram)) < 0)
			die("write");
		sent++;
	}
	printf("sent %lu\n", sent);
	return 0;
}
