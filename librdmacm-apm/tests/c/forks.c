// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program that forks while its threads use RDMA, on the device of fake_verbs.c.
 *
 * "handler": a child uses RDMA already in a handler of pthread_atfork that the program has registered before anything
 * else. Prints whether one hung.
 *
 * "leaks": children of children exit as programs do, each having lost 77 bytes of its own.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#define FORKS 300
#define HUNG_AFTER 10	/* seconds */

static struct ibv_device device;
static struct ibv_context context = { .device = &device, .async_fd = -1 };
static struct ibv_qp qp = {
	.qp_num = 7, .qp_context = (void *)0x20, .qp_type = IBV_QPT_RC, .context = &context,
};
static struct ibv_qp busy = {
	.qp_num = 9, .qp_context = (void *)0x20, .qp_type = IBV_QPT_RC, .context = &context,
};

static void to(struct ibv_qp *one, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	if (ibv_modify_qp(one, &attr, IBV_QP_STATE))
		abort();
}

static void in_child(void)
{
	alarm(HUNG_AFTER);
	to(&qp, IBV_QPS_RTS);
}

static void *use(void *unused)
{
	(void)unused;
	for (;;) {
		to(&busy, IBV_QPS_RTS);
		to(&busy, IBV_QPS_ERR);
	}
	return NULL;
}

static int handler(void)
{
	int i, status, hung = 0;
	pthread_t thread;

	pthread_atfork(NULL, NULL, in_child);
	pthread_create(&thread, NULL, use, NULL);
	for (i = 0; i < FORKS && !hung; i++) {
		pid_t child = fork();

		if (!child)
			_exit(0);
		if (waitpid(child, &status, 0) != child)
			abort();
		hung += status != 0;
	}
	printf("%d hung\n", hung);
	return 0;
}

static int leaks(void)
{
	void *volatile lost;
	int status, depth;

	to(&qp, IBV_QPS_RTS);
	/* The commit thread has it when its daemon has been notified. */
	getchar();
	for (depth = 0; depth < 2; depth++) {
		pid_t child = fork();

		if (child) {
			if (waitpid(child, &status, 0) != child)
				abort();
			break;
		}
		to(&busy, IBV_QPS_RTS);
		lost = malloc(77);
		lost = NULL;
	}
	(void)lost;
	return 0;
}

int main(int argc, char **argv)
{
	return argc > 1 && !strcmp(argv[1], "leaks") ? leaks() : handler();
}
