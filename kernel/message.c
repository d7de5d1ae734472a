// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* What is told of queue pairs, in the network namespaces that may use their device. */
#include <linux/user_namespace.h>
#include <net/genetlink.h>
#include <net/net_namespace.h>

#include "apm.h"

static int put_gid(struct sk_buff *skb, int type, const union ib_gid *gid)
{
	/* Not known. */
	if (!gid->global.subnet_prefix && !gid->global.interface_id)
		return 0;
	return nla_put(skb, type, sizeof(*gid), gid);
}

static int put_path(struct sk_buff *skb, int type, const struct apm_path *path)
{
	struct nlattr *nest = nla_nest_start(skb, type);

	if (!nest || nla_put_u8(skb, APM_A_PATH_PORT, path->port) ||
	    nla_put_u8(skb, APM_A_PATH_SL, path->sl) ||
	    nla_put_u8(skb, APM_A_PATH_MTU, path->mtu) ||
	    nla_put_u8(skb, APM_A_PATH_RATE, path->rate) ||
	    nla_put_u8(skb, APM_A_PATH_ACK_TIMEOUT, path->ack_timeout) ||
	    nla_put_u16(skb, APM_A_PATH_SLID, path->slid) ||
	    nla_put_u16(skb, APM_A_PATH_DLID, path->dlid) ||
	    nla_put_u16(skb, APM_A_PATH_PKEY, path->pkey) ||
	    put_gid(skb, APM_A_PATH_SGID, &path->sgid) ||
	    put_gid(skb, APM_A_PATH_DGID, &path->dgid) ||
	    (path->global && nla_put_flag(skb, APM_A_PATH_GLOBAL)))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

static int put_snapshot(struct sk_buff *skb, const struct apm_snapshot *s)
{
	if (nla_put_u32(skb, APM_A_QP_QP_STATE, s->state) ||
	    nla_put_u32(skb, APM_A_QP_MIGRATION, s->migration) ||
	    nla_put_u32(skb, APM_A_QP_PEER_QPN, s->peer_qpn) ||
	    nla_put_u8(skb, APM_A_QP_RETRIES, s->retries) ||
	    (s->primary.port && put_path(skb, APM_A_QP_PRIMARY, &s->primary)) ||
	    (s->loaded && put_path(skb, APM_A_QP_ALTERNATE, &s->alternate)))
		return -EMSGSIZE;
	return 0;
}

static int put_owner(struct sk_buff *skb, const struct apm_owner *owner)
{
	if (nla_put_string(skb, APM_A_QP_OWNER_NAME, owner->name) ||
	    nla_put_u32(skb, APM_A_QP_OWNER_UID, from_kuid_munged(&init_user_ns, owner->uid)) ||
	    nla_put_u32(skb, APM_A_QP_CHARGED_UID,
			from_kuid_munged(&init_user_ns, owner->charged)))
		return -EMSGSIZE;
	if (!owner->user)
		return 0;
	if (nla_put_u32(skb, APM_A_QP_OWNER_PID, owner->pid) ||
	    nla_put_u64_64bit(skb, APM_A_QP_OWNER_START, owner->start_ns, APM_A_QP_PAD))
		return -EMSGSIZE;
	return 0;
}

static int put_device_names(struct sk_buff *skb, struct apm_qp *q)
{
	struct ib_device *ib = apm_device_hold(q->dev);
	int ret = 0;

	if (!ib)
		return 0;
	if (nla_put_u32(skb, APM_A_QP_DEV_INDEX, ib->index) ||
	    nla_put_string(skb, APM_A_QP_DEV_NAME, dev_name(&ib->dev)) ||
	    nla_put_u64_64bit(skb, APM_A_QP_NODE_GUID, be64_to_cpu(ib->node_guid), APM_A_QP_PAD))
		ret = -EMSGSIZE;
	ib_device_put(ib);
	return ret;
}

static int put_cookie(struct sk_buff *skb, const struct apm_qp *q)
{
	return nla_put_u64_64bit(skb, APM_A_QP_COOKIE, q->cookie, APM_A_QP_PAD);
}

/* All that is known. */
int apm_message_qp(struct sk_buff *skb, struct apm_qp *q)
{
	struct apm_known known;

	apm_get_known(q, &known);
	if (put_cookie(skb, q) || nla_put_u32(skb, APM_A_QP_QPN, q->qpn) ||
	    nla_put_u32(skb, APM_A_QP_ROLE, READ_ONCE(q->role)) ||
	    nla_put_u32(skb, APM_A_QP_REFUSAL, known.refusal) ||
	    nla_put_u8(skb, APM_A_QP_STANDING, known.standing) ||
	    put_device_names(skb, q) || put_owner(skb, &q->owner) ||
	    put_snapshot(skb, &known.last))
		return -EMSGSIZE;
	return 0;
}

/*
 * A device in a namespace of its own is nobody else's business. And who may administer a network
 * namespace that a user has made may not administer this host.
 */
static bool may_hear(struct net *net, const struct ib_device *ib)
{
	return net->user_ns == &init_user_ns && rdma_dev_access_netns(ib, net);
}

/* Messages that did not reach every subscriber. */
static atomic64_t lost = ATOMIC64_INIT(0);

u64 apm_messages_lost(void)
{
	return atomic64_read(&lost);
}

/*
 * Whether all subscribers of a namespace have it, or there is none. A full receive buffer is an
 * error here only if its socket has NETLINK_BROADCAST_ERROR.
 */
static bool deliver(struct net *net, struct sk_buff *skb)
{
	struct sk_buff *copy = skb ? skb_clone(skb, GFP_ATOMIC) : NULL;
	int ret;

	if (!copy) {
		genl_set_err(&apm_family, net, 0, 0, -ENOBUFS);
		return false;
	}
	ret = genlmsg_multicast_netns(&apm_family, net, copy, 0, 0, GFP_ATOMIC);
	return !ret || ret == -ESRCH;
}

/* NULL could not be put together: who listens learns that as an overrun, and asks for all. */
static void tell_namespaces(struct apm_qp *q, struct sk_buff *skb)
{
	struct ib_device *ib = apm_device_hold(q->dev);
	bool reached_all = true;
	struct net *net;

	if (ib) {
		rcu_read_lock();
		for_each_net_rcu(net)
			if (may_hear(net, ib) && !deliver(net, skb))
				reached_all = false;
		rcu_read_unlock();
		ib_device_put(ib);
	}
	if (!reached_all)
		atomic64_inc(&lost);
	nlmsg_free(skb);
}

/*
 * Without a client nothing is put together: one that comes later asks for all. Who listens is
 * known for all network namespaces at once (netlink_has_listeners), by the group's place among
 * ours. Probes may run before the family is there: the group's number is 0 then, nobody's.
 */
static bool somebody_listens(void)
{
	return genl_has_listeners(&apm_family, &init_net, 0);
}

static struct sk_buff *begin_message(struct apm_qp *q, u8 command, void **head)
{
	struct sk_buff *skb;

	if (!somebody_listens())
		return NULL;
	/* With the mutex held, for which a standing order may wait: better lost than late. */
	skb = genlmsg_new(GENLMSG_DEFAULT_SIZE, GFP_NOIO | __GFP_NORETRY | __GFP_NOWARN);
	if (!skb) {
		tell_namespaces(q, NULL);
		return NULL;
	}
	*head = genlmsg_put(skb, 0, 0, &apm_family, 0, command);
	return skb;
}

static void finish_message(struct apm_qp *q, struct sk_buff *skb, void *head, int failure)
{
	if (failure) {
		nlmsg_free(skb);
		tell_namespaces(q, NULL);
		return;
	}
	genlmsg_end(skb, head);
	tell_namespaces(q, skb);
}

void apm_tell_new(struct apm_qp *q)
{
	void *head;
	struct sk_buff *skb = begin_message(q, APM_CMD_NEW, &head);

	if (skb)
		finish_message(q, skb, head, apm_message_qp(skb, q));
}

static int put_request(struct sk_buff *skb, struct apm_qp *q, const struct apm_path *path)
{
	if (put_device_names(skb, q) || put_owner(skb, &q->owner) ||
	    put_path(skb, APM_A_QP_PRIMARY, path))
		return -EMSGSIZE;
	return 0;
}

/* Of the path what a REQ says, and the port. With the mutex held. */
void apm_tell_connecting(struct apm_qp *q, const struct apm_path *path)
{
	void *head;
	struct sk_buff *skb = begin_message(q, APM_CMD_CONNECTING, &head);

	if (skb)
		finish_message(q, skb, head, put_request(skb, q, path));
}

void apm_tell_del(struct apm_qp *q)
{
	void *head;
	struct sk_buff *skb = begin_message(q, APM_CMD_DEL, &head);

	if (skb)
		finish_message(q, skb, head, put_cookie(skb, q));
}

static int put_report(struct sk_buff *skb, struct apm_qp *q, const struct apm_news *news)
{
	if (put_cookie(skb, q) || nla_put_u32(skb, APM_A_QP_CAUSE, news->cause) ||
	    nla_put_u8(skb, APM_A_QP_STANDING, q->standing) ||
	    (news->has_token && nla_put_u32(skb, APM_A_QP_TOKEN, news->token)) ||
	    (news->error && nla_put_u32(skb, APM_A_QP_ERRNO, -news->error)) ||
	    put_snapshot(skb, &q->last))
		return -EMSGSIZE;
	return 0;
}

void apm_tell(struct apm_qp *q, const struct apm_news *news)
{
	void *head;
	struct sk_buff *skb = begin_message(q, APM_CMD_REPORT, &head);

	if (skb)
		finish_message(q, skb, head, put_report(skb, q, news));
}
