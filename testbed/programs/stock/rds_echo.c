// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * rds_echo ADDRESS [PEER SECONDS]: messages over RDS and InfiniBand. With ADDRESS alone it says "ready" and
 * sends back all that comes; otherwise it sends numbered messages from ADDRESS to PEER and checks that
 * each comes back as it was, once. Says "begun" after the first, of each that took 20 ms how long that was,
 * and how long the longest took. SIGTERM ends it as the time does.
 * Exit status: 0 if all was right; 1 otherwise; 2 usage.
 */
#include <arpa/inet.h>
#include <err.h>
#include <linux/rds.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define PORT 4001
#define WORDS 2048	/* 8 KiB */
#define SLOW 0.02	/* s */

static uint32_t sent[WORDS], came[WORDS];

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static struct sockaddr_in address(const char *text)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(PORT) };

	if (inet_pton(AF_INET, text, &address.sin_addr) != 1)
		errx(2, "not an address: %s", text);
	return address;
}

/* Both ends of a machine have RDS over TCP and loopback as well. */
static int bound(const char *text)
{
	struct sockaddr_in local = address(text);
	int transport = RDS_TRANS_IB, s = socket(AF_RDS, SOCK_SEQPACKET, 0);

	if (s < 0)
		err(1, "socket");
	if (setsockopt(s, SOL_RDS, SO_RDS_TRANSPORT, &transport, sizeof(transport)))
		err(1, "RDS over InfiniBand");
	if (bind(s, (struct sockaddr *)&local, sizeof(local)))
		err(1, "bind to %s", text);
	return s;
}

static void send_to(int s, const void *data, size_t length, const struct sockaddr_in *peer)
{
	ssize_t done = sendto(s, data, length, 0, (const struct sockaddr *)peer, sizeof(*peer));

	if (done != (ssize_t)length)
		err(1, "send");
}

static void serve(int s)
{
	for (;;) {
		struct sockaddr_in peer;
		socklen_t size = sizeof(peer);
		ssize_t length = recvfrom(s, came, sizeof(came), 0, (struct sockaddr *)&peer, &size);

		if (length < 0)
			err(1, "receive");
		send_to(s, came, length, &peer);
	}
}

static void exchange(int s, const struct sockaddr_in *peer, uint32_t number)
{
	ssize_t length;

	for (uint32_t i = 0; i < WORDS; i++)
		sent[i] = number * 2654435761u + i;
	send_to(s, sent, sizeof(sent), peer);
	length = recv(s, came, sizeof(came), 0);
	if (length < 0)
		err(1, "receive");
	if (length != sizeof(sent) || memcmp(sent, came, sizeof(sent)))
		errx(1, "message %u did not come back as it was", number);
}

static volatile sig_atomic_t enough;

static void end_now(int signal)
{
	enough = signal;
}

int main(int argc, char **argv)
{
	struct sockaddr_in peer;
	double end, longest = 0;
	uint32_t number = 0;
	int s;

	if (argc != 2 && argc != 4) {
		fprintf(stderr, "usage: rds_echo ADDRESS [PEER SECONDS]\n");
		return 2;
	}
	s = bound(argv[1]);
	if (argc == 2) {
		puts("ready");
		fflush(stdout);
		serve(s);
	}
	peer = address(argv[2]);
	end = now() + atof(argv[3]);
	signal(SIGTERM, end_now);
	while (!enough && now() < end) {
		double start = now(), took;

		exchange(s, &peer, number++);
		took = now() - start;
		if (number == 1) {
			puts("begun");
			fflush(stdout);
		}
		if (took >= SLOW) {
			printf("operation took %.3f s\n", took);
			fflush(stdout);
		}
		if (took > longest)
			longest = took;
	}
	printf("%u messages right, longest %.3f s\n", number, longest);
	return 0;
}
