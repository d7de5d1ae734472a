// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * send_mads: sends MADs of any class and content out of a port, as root of a host can.
 *
 *   send_mads DEVICE PORT [RATE LIDS] < RECORDS
 *
 * A record is the destination LID (2 bytes, big-endian) and the MAD (256 bytes). They go to
 * QP1 in the default partition, from the port's own base LID: an HCA puts that into every
 * packet. The number sent is said at the end. With a RATE the records are sent over and over,
 * so many a second, from LIDS LIDs of the port (path bits) in turn, until the process is
 * killed; after each RATE of them the number sent so far is printed.
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
#include <time.h>
#include <unistd.h>

#define MAD_SIZE 256
/* The lower half of the transaction ID in a MAD's header. */
#define TID_LOW 12
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

static struct ib_user_mad_reg_req agent = { .qpn = 1 }; /* of no class: it may send, and receives nothing */

static void send_record(int fd, const struct record *record, int path_bits)
{
	struct datagram datagram;

	memset(&datagram, 0, sizeof(datagram));
	datagram.head.id = agent.id;
	datagram.head.qpn = htobe32(1);
	datagram.head.qkey = htobe32(QP1_QKEY);
	datagram.head.lid = record->lid;
	datagram.head.path_bits = path_bits;
	memcpy(datagram.mad, record->mad, MAD_SIZE);
	if (write(fd, &datagram, sizeof(datagram)) < 0)
		die("write");
}

/* The next of so many a second. What was missed while the process stood still is not made up for. */
static void wait_for_turn(struct timespec *turn, unsigned long rate)
{
	struct timespec now;

	turn->tv_nsec += 1000000000 / rate;
	turn->tv_sec += turn->tv_nsec / 1000000000;
	turn->tv_nsec %= 1000000000;
	if (clock_gettime(CLOCK_MONOTONIC, &now))
		die("clock_gettime");
	if (now.tv_sec > turn->tv_sec)
		*turn = now;
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, turn, NULL);
}

static void send_over_and_over(int fd, unsigned long rate, unsigned long lids)
{
	static struct record records[4096];
	size_t count = fread(records, sizeof(*records), 4096, stdin);
	unsigned long sent = 0;
	struct timespec turn;

	if (!count || !rate || !lids || clock_gettime(CLOCK_MONOTONIC, &turn))
		die("nothing to send");
	for (;;) {
		struct record *record = &records[sent % count];
		uint32_t tid = htobe32(sent);

		/* The kernel refuses a request with the transaction ID of one that it still sends. */
		memcpy(record->mad + TID_LOW, &tid, sizeof(tid));
		send_record(fd, record, sent / count % lids);
		if (++sent % rate == 0) {
			printf("STATS sent=%lu\n", sent);
			fflush(stdout);
		}
		wait_for_turn(&turn, rate);
	}
}

int main(int argc, char **argv)
{
	struct record record;
	unsigned long sent = 0;
	int fd;

	if (argc != 3 && argc != 5) {
		fprintf(stderr, "usage: send_mads DEVICE PORT [RATE LIDS] < RECORDS\n");
		return 2;
	}
	fd = open_umad(argv[1], argv[2]);
	if (fd < 0)
		die(argv[1]);
	if (ioctl(fd, IB_USER_MAD_ENABLE_PKEY))
		die("IB_USER_MAD_ENABLE_PKEY");
	if (ioctl(fd, IB_USER_MAD_REGISTER_AGENT, &agent))
		die("IB_USER_MAD_REGISTER_AGENT");
	if (argc == 5)
		send_over_and_over(fd, strtoul(argv[3], NULL, 0), strtoul(argv[4], NULL, 0));
	while (fread(&record, sizeof(record), 1, stdin) == 1) {
		send_record(fd, &record, 0);
		sent++;
	}
	printf("sent %lu\n", sent);
	return 0;
}
