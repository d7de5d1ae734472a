// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * smp_edit: Get() of an attribute of a port or switch, some bytes of it replaced,
 * and Set() of the whole: what a subnet manager with a defect might do. It goes out
 * of port 1 of the device, by LID.
 *
 *   smp_edit DEVICE LID ATTRIBUTE MODIFIER OFFSET BYTES
 *
 * Numbers are C's; BYTES are hexadecimal digits. The exit status is 0 if the answer
 * to the Set() has the bytes.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/ib_user_mad.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define MAD_SIZE 256
#define DATA_SIZE 64
#define PATIENCE_MS 3000
#define METHOD_GET 1
#define METHOD_SET 2
#define METHOD_GET_RESP 0x81

/* A LID-routed SMP (IBA 14.2.1.1) */
struct smp {
	uint8_t base_version, mgmt_class, class_version, method;
	uint16_t status, class_specific;
	uint64_t tid;
	uint16_t attribute, reserved;
	uint32_t modifier;
	uint64_t mkey;
	uint8_t reserved2[32];
	uint8_t data[DATA_SIZE];
	uint8_t reserved3[128];
};

struct datagram {
	struct ib_user_mad_hdr head;
	struct smp smp;
};

static void die(const char *what)
{
	fprintf(stderr, "smp_edit: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int open_umad(const char *device)
{
	char path[64], name[64];
	int i;

	for (i = 0; i < 64; i++) {
		FILE *file;

		snprintf(path, sizeof(path), "/sys/class/infiniband_mad/umad%d/ibdev", i);
		file = fopen(path, "r");
		if (!file)
			continue;
		if (fscanf(file, "%63s", name) != 1)
			name[0] = 0;
		fclose(file);
		/* The first is that of port 1. */
		if (strcmp(name, device))
			continue;
		snprintf(path, sizeof(path), "/dev/infiniband/umad%d", i);
		return open(path, O_RDWR);
	}
	errno = ENODEV;
	return -1;
}

/* Sends *smp and puts the answer in its place. */
static void ask(int fd, uint32_t agent, uint16_t lid, struct smp *smp)
{
	struct datagram out = { .head = { .id = agent, .timeout_ms = 1000, .retries = 2,
					  .lid = htobe16(lid) }, .smp = *smp };
	struct pollfd ready = { .fd = fd, .events = POLLIN };

	if (write(fd, &out, sizeof(out)) != sizeof(out))
		die("sending");
	errno = ETIMEDOUT;
	if (poll(&ready, 1, PATIENCE_MS * 2) != 1)
		die("waiting");
	if (read(fd, &out, sizeof(out)) != sizeof(out))
		die("receiving");
	errno = out.head.status ? (int)out.head.status : EPROTO;
	if (out.head.status || out.smp.method != METHOD_GET_RESP || out.smp.status)
		die("the answer");
	*smp = out.smp;
}

int main(int argc, char **argv)
{
	struct ib_user_mad_reg_req agent = { .qpn = 0, .mgmt_class = 1, .mgmt_class_version = 1 };
	struct smp smp = { .base_version = 1, .mgmt_class = 1, .class_version = 1,
			   .method = METHOD_GET };
	uint8_t bytes[DATA_SIZE];
	size_t offset, count, i;
	uint16_t lid;
	int fd;

	_Static_assert(sizeof(struct smp) == MAD_SIZE, "a MAD");
	if (argc != 7) {
		fprintf(stderr, "usage: smp_edit DEVICE LID ATTRIBUTE MODIFIER OFFSET BYTES\n");
		return 2;
	}
	lid = strtoul(argv[2], NULL, 0);
	smp.attribute = htobe16(strtoul(argv[3], NULL, 0));
	smp.modifier = htobe32(strtoul(argv[4], NULL, 0));
	offset = strtoul(argv[5], NULL, 0);
	count = strlen(argv[6]) / 2;
	if (offset > DATA_SIZE || count > DATA_SIZE - offset) {
		fprintf(stderr, "smp_edit: an attribute has %d bytes\n", DATA_SIZE);
		return 2;
	}
	for (i = 0; i < count; i++)
		if (sscanf(argv[6] + 2 * i, "%2hhx", &bytes[i]) != 1)
			return 2;
	fd = open_umad(argv[1]);
	if (fd < 0)
		die(argv[1]);
	/* With the P_Key index in the header, as struct ib_user_mad_hdr has it. */
	if (ioctl(fd, IB_USER_MAD_ENABLE_PKEY) || ioctl(fd, IB_USER_MAD_REGISTER_AGENT, &agent))
		die("registering");
	smp.tid = htobe64(1);
	ask(fd, agent.id, lid, &smp);
	memcpy(smp.data + offset, bytes, count);
	smp.method = METHOD_SET;
	smp.tid = htobe64(2);
	ask(fd, agent.id, lid, &smp);
	errno = EPROTO;
	if (memcmp(smp.data + offset, bytes, count))
		die("the bytes were not taken");
	return 0;
}
