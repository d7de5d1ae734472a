// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program that is linked with no part of rdma-core: it opens the library that VERBS_LIBRARY names, and looks up by
 * its handle what it calls, with versions, as NCCL does. Prints what it does not find, and what a call that librdmacm-apm
 * catches comes to.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const wanted[][2] = {
	{ "ibv_get_device_list", "IBVERBS_1.1" },
	{ "ibv_free_device_list", "IBVERBS_1.1" },
	{ "ibv_get_device_name", "IBVERBS_1.1" },
	{ "ibv_open_device", "IBVERBS_1.1" },
	{ "ibv_close_device", "IBVERBS_1.1" },
	{ "ibv_get_async_event", "IBVERBS_1.1" },
	{ "ibv_ack_async_event", "IBVERBS_1.1" },
	{ "ibv_query_device", "IBVERBS_1.1" },
	{ "ibv_query_port", "IBVERBS_1.1" },
	{ "ibv_query_gid", "IBVERBS_1.1" },
	{ "ibv_query_qp", "IBVERBS_1.1" },
	{ "ibv_alloc_pd", "IBVERBS_1.1" },
	{ "ibv_dealloc_pd", "IBVERBS_1.1" },
	{ "ibv_reg_mr", "IBVERBS_1.1" },
	{ "ibv_reg_mr_iova2", "IBVERBS_1.8" },
	{ "ibv_reg_dmabuf_mr", "IBVERBS_1.12" },
	{ "ibv_dereg_mr", "IBVERBS_1.1" },
	{ "ibv_create_comp_channel", "IBVERBS_1.0" },
	{ "ibv_destroy_comp_channel", "IBVERBS_1.0" },
	{ "ibv_create_cq", "IBVERBS_1.1" },
	{ "ibv_destroy_cq", "IBVERBS_1.1" },
	{ "ibv_create_qp", "IBVERBS_1.1" },
	{ "ibv_modify_qp", "IBVERBS_1.1" },
	{ "ibv_destroy_qp", "IBVERBS_1.1" },
	{ "ibv_fork_init", "IBVERBS_1.1" },
	{ "ibv_event_type_str", "IBVERBS_1.1" },
	{ "ibv_query_ece", "IBVERBS_1.10" },
	{ "ibv_set_ece", "IBVERBS_1.10" },
};

/* The object in which the handle has the function. */
static const char *place_of(void *function)
{
	Dl_info info;
	const char *slash;

	if (!dladdr(function, &info))
		return "nowhere";
	slash = strrchr(info.dli_fname, '/');
	return slash ? slash + 1 : info.dli_fname;
}

int main(void)
{
	void *library = dlopen(getenv("VERBS_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
	void *(*create_event_channel)(void);
	size_t i;

	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 2;
	}
	for (i = 0; i < sizeof wanted / sizeof *wanted; i++)
		if (!dlvsym(library, wanted[i][0], wanted[i][1]))
			printf("%s: not found\n", wanted[i][0]);
	printf("ibv_modify_qp is in %s\n", place_of(dlvsym(library, "ibv_modify_qp", "IBVERBS_1.1")));
	*(void **)&create_event_channel = dlvsym(library, "rdma_create_event_channel", "RDMACM_1.0");
	if (create_event_channel)
		printf("event channel: %s\n", create_event_channel() ? "made" : strerror(errno));
	return 0;
}
