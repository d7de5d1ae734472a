// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * mpi_check pingpong|alltoall SECONDS: two processes or more exchange numbered messages and check what
 * arrives. Exit status: 0 if all of it was right; 1 otherwise; 2 usage.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS 16384	/* more than UCX sends without a rendezvous */

static int rank, size;
static uint32_t round_number, wrong;
static uint32_t *out, *in;

static uint32_t word(int from, int to, uint32_t i)
{
	return (round_number * 64 + from * 8 + to) * 2654435761u + i;
}

static void fill(uint32_t *words, int to)
{
	for (uint32_t i = 0; i < WORDS; i++)
		words[i] = word(rank, to, i);
}

static void check(const uint32_t *words, int from)
{
	for (uint32_t i = 0; i < WORDS; i++) {
		if (words[i] != word(from, rank, i)) {
			wrong++;
			return;
		}
	}
}

/* Between the first two. */
static void pingpong(void)
{
	int peer = 1 - rank;

	if (rank > 1)
		return;
	fill(out, peer);
	if (rank == 0)
		MPI_Send(out, WORDS, MPI_UINT32_T, peer, 0, MPI_COMM_WORLD);
	MPI_Recv(in, WORDS, MPI_UINT32_T, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (rank == 1)
		MPI_Send(out, WORDS, MPI_UINT32_T, peer, 0, MPI_COMM_WORLD);
	check(in, peer);
}

static void alltoall(void)
{
	for (int to = 0; to < size; to++)
		fill(out + to * WORDS, to);
	MPI_Alltoall(out, WORDS, MPI_UINT32_T, in, WORDS, MPI_UINT32_T, MPI_COMM_WORLD);
	for (int from = 0; from < size; from++)
		check(in + from * WORDS, from);
}

int main(int argc, char **argv)
{
	void (*exchange)(void);
	uint32_t all_wrong;
	double end;
	int go_on = 1;

	if (argc != 3) {
		fprintf(stderr, "usage: mpi_check pingpong|alltoall SECONDS\n");
		return 2;
	}
	exchange = strcmp(argv[1], "alltoall") ? pingpong : alltoall;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	out = calloc(size, WORDS * sizeof(*out));
	in = calloc(size, WORDS * sizeof(*in));
	end = MPI_Wtime() + atof(argv[2]);
	while (go_on) {
		exchange();
		round_number++;
		/* One clock decides for all. */
		go_on = MPI_Wtime() < end;
		MPI_Bcast(&go_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
	}
	MPI_Allreduce(&wrong, &all_wrong, 1, MPI_UINT32_T, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d processes, %u rounds, %u wrong\n", size, round_number, all_wrong);
	MPI_Finalize();
	return all_wrong != 0;
}
