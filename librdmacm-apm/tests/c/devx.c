// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Objects made by mlx5's DevX: a completion queue, a queue pair that fails, and queue pairs. Says what
 * each call returned.
 */
#include <errno.h>
#include <stdio.h>

#include <infiniband/mlx5dv.h>

#define CREATE_CQ 0x400
#define CREATE_QP 0x500

static char device[65536];
static struct ibv_context context = { .device = (struct ibv_device *)device };

static void create(int opcode, size_t length)
{
	unsigned char command[272] = { opcode >> 8, opcode & 0xff }, out[16];
	struct mlx5dv_devx_obj *object;

	errno = 0;
	object = mlx5dv_devx_obj_create(&context, command, length, out, sizeof out);
	printf("%#x: %s, errno %d\n", opcode, object ? "made" : "not made", errno);
	fprintf(stderr, "%#x\n", opcode);
}

int main(void)
{
	create(CREATE_CQ, 272);
	create(CREATE_QP, 0);
	create(CREATE_QP, 272);
	create(CREATE_QP, 272);
	return 0;
}
