// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * block_writer FILE SECONDS: writes blocks past the page cache, each at another place, and reads each
 * back at once; at the end all of them once more. Says "begun" after the first, of each operation that took
 * 20 ms how long that was, and how long the longest took. SIGTERM ends it as the time does.
 * Exit status: 0 if every block came back as it was written; 1 otherwise; 2 usage.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 4096
#define BLOCKS 2048	/* 8 MiB */
#define SLOW 0.02	/* s */

static uint32_t written[BLOCKS];	/* the number of the writing that each block holds, 0: none */
static uint32_t *block, *back;
static double longest;
static volatile sig_atomic_t enough;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static void fill(uint32_t *words, uint32_t place, uint32_t number)
{
	words[0] = place;
	words[1] = number;
	for (uint32_t i = 2; i < BLOCK / 4; i++)
		words[i] = (place * 31 + number) * 2654435761u + i;
}

static void note(double since)
{
	double took = now() - since;

	if (took >= SLOW) {
		printf("operation took %.3f s\n", took);
		fflush(stdout);
	}
	if (took > longest)
		longest = took;
}

static void check(int file, uint32_t place)
{
	double start = now();

	fill(block, place, written[place]);
	if (pread(file, back, BLOCK, (off_t)place * BLOCK) != BLOCK)
		err(1, "read of block %u", place);
	note(start);
	if (memcmp(block, back, BLOCK))
		errx(1, "block %u: %u/%u read for %u/%u", place, back[0], back[1], place, written[place]);
}

static void write_one(int file, uint32_t place, uint32_t number)
{
	double start = now();

	fill(block, place, number);
	if (pwrite(file, block, BLOCK, (off_t)place * BLOCK) != BLOCK)
		err(1, "write of block %u", place);
	note(start);
	written[place] = number;
}

static void end_now(int signal)
{
	enough = signal;
}

int main(int argc, char **argv)
{
	uint32_t number = 0;
	double end;
	int file;

	if (argc != 3) {
		fprintf(stderr, "usage: block_writer FILE SECONDS\n");
		return 2;
	}
	file = open(argv[1], O_RDWR | O_CREAT | O_DIRECT, 0600);
	if (file < 0)
		err(1, "%s", argv[1]);
	block = aligned_alloc(BLOCK, BLOCK);
	back = aligned_alloc(BLOCK, BLOCK);
	signal(SIGTERM, end_now);
	end = now() + atof(argv[2]);
	while (!enough && now() < end) {
		uint32_t place = number++ * 797 % BLOCKS;

		write_one(file, place, number);
		check(file, place);
		if (number == 1) {
			puts("begun");
			fflush(stdout);
		}
	}
	for (uint32_t place = 0; place < BLOCKS; place++)
		if (written[place])
			check(file, place);
	printf("%u blocks right, longest operation %.3f s\n", number, longest);
	return 0;
}
