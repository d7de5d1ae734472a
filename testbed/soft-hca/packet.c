// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The life of a packet.
 */
#include <linux/overflow.h>
#include <linux/slab.h>
#include <linux/string.h>
#include "packet.h"

struct shca_packet *shca_packet_alloc(u32 payload_len, gfp_t gfp)
{
	struct shca_packet *pkt;

	pkt = kzalloc(struct_size(pkt, payload, payload_len), gfp);
	if (!pkt)
		return NULL;
	INIT_LIST_HEAD(&pkt->list);
	pkt->payload_len = payload_len;
	return pkt;
}

struct shca_packet *shca_packet_dup(const struct shca_packet *pkt, gfp_t gfp)
{
	struct shca_packet *dup;

	dup = kmemdup(pkt, struct_size(pkt, payload, pkt->payload_len), gfp);
	if (dup)
		INIT_LIST_HEAD(&dup->list);
	return dup;
}

void shca_packet_free(struct shca_packet *pkt)
{
	kfree(pkt);
}
