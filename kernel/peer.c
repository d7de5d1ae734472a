// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Peers towards which the ACK timeout of a new connection is bounded: a client has named them,
 * since somebody answers there who takes part in migrating. What a socket has named goes with it,
 * so nothing is bounded for a client that is not there any more.
 */
#include <linux/hashtable.h>
#include <linux/netlink.h>
#include <linux/slab.h>

#include "apm.h"

#define PEERS 16384
#define BITS 10

struct peer {
	struct hlist_node by_lid;
	struct apm_device *dev;		/* to be compared only: goes before its device does */
	u8 port;
	u8 bound;
	u16 dlid;
	struct net *net;		/* the socket's, to be compared only */
	u32 portid;
};

static DEFINE_HASHTABLE(peers, BITS);
static unsigned int count;
/* Taken in probes, within apm_lock. */
static DEFINE_SPINLOCK(peers_lock);

static struct peer *find(const struct apm_device *dev, u32 port, u16 dlid)
{
	struct peer *peer;

	hash_for_each_possible(peers, peer, by_lid, dlid)
		if (peer->dev == dev && peer->port == port && peer->dlid == dlid)
			return peer;
	return NULL;
}

static void forget(struct peer *peer)
{
	hash_del(&peer->by_lid);
	kfree(peer);
	count--;
}

static int change(const struct peer *like)
{
	struct peer *peer = find(like->dev, like->port, like->dlid);

	if (!like->bound) {
		if (!peer)
			return -ENOENT;
		forget(peer);
		return 0;
	}
	if (!peer) {
		/* Nobody would forget it any more. */
		if (READ_ONCE(like->dev->leaving))
			return -ENODEV;
		if (count == PEERS)
			return -ENOSPC;
		peer = kmalloc(sizeof(*peer), GFP_ATOMIC);
		if (!peer)
			return -ENOMEM;
		*peer = *like;
		hash_add(peers, &peer->by_lid, peer->dlid);
		count++;
	}
	peer->bound = like->bound;
	peer->net = like->net;
	peer->portid = like->portid;
	return 0;
}

/* A bound of 0 forgets the peer. -ENOENT: it was not known; -ENOSPC: there are too many. */
int apm_peer_set(struct apm_device *dev, const struct apm_path *path, struct net *net, u32 portid)
{
	struct peer like = {
		.dev = dev,
		.port = path->port,
		.dlid = path->dlid,
		.bound = path->ack_timeout,
		.net = net,
		.portid = portid,
	};
	unsigned long flags;
	int ret;

	spin_lock_irqsave(&peers_lock, flags);
	ret = change(&like);
	spin_unlock_irqrestore(&peers_lock, flags);
	return ret;
}

/* Those of a device, or those named by a socket; all if neither is given. */
static void forget_those(const struct apm_device *dev, const struct net *net, u32 portid)
{
	struct hlist_node *next;
	unsigned long flags;
	struct peer *peer;
	int bucket;

	spin_lock_irqsave(&peers_lock, flags);
	hash_for_each_safe(peers, bucket, next, peer, by_lid) {
		if (dev && peer->dev != dev)
			continue;
		if (net && (peer->net != net || peer->portid != portid))
			continue;
		forget(peer);
	}
	spin_unlock_irqrestore(&peers_lock, flags);
}

void apm_peer_forget_device(const struct apm_device *dev)
{
	forget_those(dev, NULL, 0);
}

void apm_peer_forget_socket(const struct net *net, u32 portid)
{
	forget_those(NULL, net, portid);
}

/* The ACK timeout for a way that is to have this one. 0 has no end, and is left to its owner. */
u8 apm_peer_timeout(const struct apm_device *dev, u32 port, u16 dlid, u8 timeout)
{
	unsigned long flags;
	struct peer *peer;

	spin_lock_irqsave(&peers_lock, flags);
	peer = find(dev, port, dlid);
	if (peer && timeout > peer->bound)
		timeout = peer->bound;
	spin_unlock_irqrestore(&peers_lock, flags);
	return timeout;
}

/* Whether somebody has named it: with apm_lock held, from probes. */
bool apm_peer_is_named(const struct apm_device *dev, u32 port, u16 dlid)
{
	unsigned long flags;
	bool yes;

	spin_lock_irqsave(&peers_lock, flags);
	yes = find(dev, port, dlid);
	spin_unlock_irqrestore(&peers_lock, flags);
	return yes;
}

static int on_notify(struct notifier_block *block, unsigned long event, void *data)
{
	const struct netlink_notify *gone = data;

	if (event == NETLINK_URELEASE && gone->protocol == NETLINK_GENERIC)
		apm_peer_forget_socket(gone->net, gone->portid);
	return NOTIFY_DONE;
}

static struct notifier_block sockets = { .notifier_call = on_notify };

int apm_peers_init(void)
{
	return netlink_register_notifier(&sockets);
}

void apm_peers_exit(void)
{
	netlink_unregister_notifier(&sockets);
	forget_those(NULL, NULL, 0);
}
