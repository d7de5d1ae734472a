// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The life of a packet. Most are either short, requests and acknowledgements and
 * MADs, or as long as the MTU: there is a cache for each.
 */
#include <linux/overflow.h>
#include <linux/slab.h>
#include <linux/string.h>
#include "packet.h"

#define SHORT_PAYLOAD	IB_MGMT_MAD_SIZE
#define LONG_PAYLOAD	4096

static struct kmem_cache *short_packets, *long_packets;

static struct kmem_cache *create(const char *name, size_t payload_len)
{
	return kmem_cache_create(name, sizeof(struct shca_packet) + payload_len, 0, 0, NULL);
}

static struct kmem_cache *cache_of(u32 payload_len)
{
	return payload_len <= SHORT_PAYLOAD ? short_packets : long_packets;
}

int shca_packets_init(void)
{
	short_packets = create("shca_packet_short", SHORT_PAYLOAD);
	long_packets = create("shca_packet_long", LONG_PAYLOAD);
	if (short_packets && long_packets)
		return 0;
	shca_packets_exit();
	return -ENOMEM;
}

void shca_packets_exit(void)
{
	kmem_cache_destroy(short_packets);
	kmem_cache_destroy(long_packets);
}

struct shca_packet *shca_packet_alloc(u32 payload_len, gfp_t gfp)
{
	struct shca_packet *pkt;

	if (payload_len > LONG_PAYLOAD)
		return NULL;
	pkt = kmem_cache_alloc(cache_of(payload_len), gfp);
	if (!pkt)
		return NULL;
	memset(pkt, 0, struct_size(pkt, payload, payload_len));
	INIT_LIST_HEAD(&pkt->list);
	pkt->payload_len = payload_len;
	return pkt;
}

struct shca_packet *shca_packet_dup(const struct shca_packet *pkt, gfp_t gfp)
{
	struct shca_packet *dup = kmem_cache_alloc(cache_of(pkt->payload_len), gfp);

	if (!dup)
		return NULL;
	memcpy(dup, pkt, struct_size(pkt, payload, pkt->payload_len));
	INIT_LIST_HEAD(&dup->list);
	return dup;
}

void shca_packet_free(struct shca_packet *pkt)
{
	kmem_cache_free(cache_of(pkt->payload_len), pkt);
}
