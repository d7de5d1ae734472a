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

/* A socket that has named peers. */
struct client {
	struct list_head all;
	struct list_head peers;
	struct net *net;		/* to be compared only */
	u32 portid;
};

struct peer {
	struct hlist_node by_lid;
	struct list_head of_client;
	struct client *client;
	struct apm_device *dev;		/* to be compared only: goes before its device does */
	u8 port;
	u8 bound;
	u16 dlid;
};

static LIST_HEAD(clients);
static DEFINE_HASHTABLE(peers, BITS);
static unsigned int count;
/* Taken in probes, within apm_lock. */
static DEFINE_SPINLOCK(peers_lock);

static struct peer *find_peer(const struct apm_device *dev, u32 port, u16 dlid)
{
	struct peer *peer;

	hash_for_each_possible(peers, peer, by_lid, dlid)
		if (peer->dev == dev && peer->port == port && peer->dlid == dlid)
			return peer;
	return NULL;
}

static struct client *find_client(const struct net *net, u32 portid)
{
	struct client *client;

	list_for_each_entry(client, &clients, all)
		if (client->net == net && client->portid == portid)
			return client;
	return NULL;
}

static struct client *provide_client(struct net *net, u32 portid)
{
	struct client *client = find_client(net, portid);

	if (client)
		return client;
	client = kmalloc(sizeof(*client), GFP_ATOMIC);
	if (!client)
		return NULL;
	client->net = net;
	client->portid = portid;
	INIT_LIST_HEAD(&client->peers);
	list_add(&client->all, &clients);
	return client;
}

/* Clients have at least one peer. */
static void forget_idle(struct client *client)
{
	if (!list_empty(&client->peers))
		return;
	list_del(&client->all);
	kfree(client);
}

static void forget(struct peer *peer)
{
	hash_del(&peer->by_lid);
	list_del(&peer->of_client);
	forget_idle(peer->client);
	kfree(peer);
	count--;
}

static struct peer *add(const struct peer *like)
{
	struct peer *peer;

	/* Nobody would forget it any more. */
	if (READ_ONCE(like->dev->leaving))
		return ERR_PTR(-ENODEV);
	if (count == PEERS)
		return ERR_PTR(-ENOSPC);
	peer = kmemdup(like, sizeof(*like), GFP_ATOMIC);
	if (!peer)
		return ERR_PTR(-ENOMEM);
	hash_add(peers, &peer->by_lid, peer->dlid);
	list_add(&peer->of_client, &peer->client->peers);
	count++;
	return peer;
}

/* The last who has named it is whose it is. */
static void take_over(struct peer *peer, const struct peer *like)
{
	struct client *before = peer->client;

	peer->bound = like->bound;
	peer->client = like->client;
	list_move(&peer->of_client, &peer->client->peers);
	forget_idle(before);
}

static int name(struct peer *like, struct net *net, u32 portid)
{
	struct peer *peer = find_peer(like->dev, like->port, like->dlid);

	like->client = provide_client(net, portid);
	if (!like->client)
		return -ENOMEM;
	if (peer) {
		take_over(peer, like);
		return 0;
	}
	peer = add(like);
	if (IS_ERR(peer))
		forget_idle(like->client);
	return PTR_ERR_OR_ZERO(peer);
}

/* A bound of 0 forgets the peer. -ENOENT: it was not known; -ENOSPC: there are too many. */
int apm_peer_set(struct apm_device *dev, const struct apm_path *path, struct net *net, u32 portid)
{
	struct peer like = {
		.dev = dev,
		.port = path->port,
		.dlid = path->dlid,
		.bound = path->ack_timeout,
	};
	struct peer *known;
	unsigned long flags;
	int ret = 0;

	spin_lock_irqsave(&peers_lock, flags);
	if (like.bound) {
		ret = name(&like, net, portid);
	} else {
		known = find_peer(dev, like.port, like.dlid);
		if (known)
			forget(known);
		else
			ret = -ENOENT;
	}
	spin_unlock_irqrestore(&peers_lock, flags);
	return ret;
}

/* Those of a device; all if none is given. */
static void forget_those(const struct apm_device *dev)
{
	struct hlist_node *next;
	unsigned long flags;
	struct peer *peer;
	int bucket;

	spin_lock_irqsave(&peers_lock, flags);
	hash_for_each_safe(peers, bucket, next, peer, by_lid)
		if (!dev || peer->dev == dev)
			forget(peer);
	spin_unlock_irqrestore(&peers_lock, flags);
}

void apm_peer_forget_device(const struct apm_device *dev)
{
	forget_those(dev);
}

/* Told of every socket of generic netlink that goes, of which anybody has any number. */
void apm_peer_forget_socket(const struct net *net, u32 portid)
{
	struct peer *peer, *next;
	struct client *client;
	unsigned long flags;
	LIST_HEAD(named);

	spin_lock_irqsave(&peers_lock, flags);
	client = find_client(net, portid);
	if (client)
		list_splice_init(&client->peers, &named);
	list_for_each_entry_safe(peer, next, &named, of_client) {
		hash_del(&peer->by_lid);
		kfree(peer);
		count--;
	}
	if (client)
		forget_idle(client);
	spin_unlock_irqrestore(&peers_lock, flags);
}

/* The ACK timeout for a way that is to have this one. 0 has no end, and is left to its owner. */
u8 apm_peer_timeout(const struct apm_device *dev, u32 port, u16 dlid, u8 timeout)
{
	unsigned long flags;
	struct peer *peer;

	spin_lock_irqsave(&peers_lock, flags);
	peer = find_peer(dev, port, dlid);
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
	yes = find_peer(dev, port, dlid);
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
	forget_those(NULL);
}
