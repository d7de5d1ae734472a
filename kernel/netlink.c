// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Orders as they come, checked before they are queued. apm.yaml says what the attributes are. */
#include <linux/module.h>
#include <net/genetlink.h>

#include "apm.h"

/* Not const: 6.1 takes it so. */
static struct netlink_range_validation unicast_lids = { .min = 1, .max = 0xbfff };

static const struct nla_policy path_policy[APM_A_PATH_MAX + 1] = {
	[APM_A_PATH_PORT] = NLA_POLICY_MIN(NLA_U8, 1),
	[APM_A_PATH_SL] = NLA_POLICY_MAX(NLA_U8, 15),
	[APM_A_PATH_MTU] = NLA_POLICY_RANGE(NLA_U8, IB_MTU_256, IB_MTU_4096),
	[APM_A_PATH_RATE] = NLA_POLICY_MAX(NLA_U8, 63),
	[APM_A_PATH_ACK_TIMEOUT] = NLA_POLICY_MAX(NLA_U8, 31),
	[APM_A_PATH_SLID] = NLA_POLICY_FULL_RANGE(NLA_U16, &unicast_lids),
	[APM_A_PATH_DLID] = NLA_POLICY_FULL_RANGE(NLA_U16, &unicast_lids),
	[APM_A_PATH_PKEY] = { .type = NLA_U16 },
	[APM_A_PATH_SGID] = NLA_POLICY_EXACT_LEN(16),
	[APM_A_PATH_DGID] = NLA_POLICY_EXACT_LEN(16),
	[APM_A_PATH_GLOBAL] = { .type = NLA_FLAG },
};

static const struct nla_policy rule_policy[APM_A_RULE_MAX + 1] = {
	[APM_A_RULE_NAME] = { .type = NLA_NUL_STRING, .len = APM_OWNER_NAME_LEN - 1 },
	[APM_A_RULE_UID] = { .type = NLA_U32 },
	[APM_A_RULE_CGROUP] = { .type = NLA_NUL_STRING, .len = APM_CGROUP_LEN - 2 },
};

static const struct nla_policy rule_list_policy[APM_A_RULE_LIST_MAX + 1] = {
	[APM_A_RULE_LIST_RULE] = NLA_POLICY_NESTED(rule_policy),
};

static const struct nla_policy policy[APM_A_QP_MAX + 1] = {
	[APM_A_QP_COOKIE] = { .type = NLA_U64 },
	[APM_A_QP_TOKEN] = { .type = NLA_U32 },
	[APM_A_QP_DEV_INDEX] = { .type = NLA_U32 },
	[APM_A_QP_QPN] = NLA_POLICY_MASK(NLA_U32, 0xffffff),
	[APM_A_QP_PRIMARY] = NLA_POLICY_NESTED(path_policy),
	[APM_A_QP_ALTERNATE] = NLA_POLICY_NESTED(path_policy),
	[APM_A_QP_STANDING] = NLA_POLICY_MAX(NLA_U8, 1),
	[APM_A_QP_PROTECT] = NLA_POLICY_MAX(NLA_U32, APM_PROTECT_ALL),
	[APM_A_QP_SWALLOW] = NLA_POLICY_MAX(NLA_U8, 1),
	[APM_A_QP_RULES] = NLA_POLICY_NESTED(rule_list_policy),
};

/* With a constant text, as extack wants it. */
#define refuse(info, error, why) ({ GENL_SET_ERR_MSG(info, why); (error); })

/* As of the port, or one that the kernel knows. */
static bool is_rate(u8 rate)
{
	return rate == IB_RATE_PORT_CURRENT || ib_rate_to_mbps(rate) > 0;
}

static int parse_path(struct genl_info *info, int type, struct apm_path *path)
{
	struct nlattr *a[APM_A_PATH_MAX + 1];
	int ret;

	if (!info->attrs[type])
		return type == APM_A_QP_PRIMARY ?
			       refuse(info, -EINVAL, "the order names no primary path") :
			       refuse(info, -EINVAL, "the order names no alternate path");
	ret = nla_parse_nested(a, APM_A_PATH_MAX, info->attrs[type], path_policy, info->extack);
	if (ret)
		return ret;
	if (!a[APM_A_PATH_PORT] || !a[APM_A_PATH_SLID] || !a[APM_A_PATH_DLID])
		return refuse(info, -EINVAL, "a path needs port, slid and dlid");
	memset(path, 0, sizeof(*path));
	path->port = nla_get_u8(a[APM_A_PATH_PORT]);
	path->slid = nla_get_u16(a[APM_A_PATH_SLID]);
	path->dlid = nla_get_u16(a[APM_A_PATH_DLID]);
	path->global = a[APM_A_PATH_GLOBAL];
	if (a[APM_A_PATH_SL])
		path->sl = nla_get_u8(a[APM_A_PATH_SL]);
	if (a[APM_A_PATH_RATE])
		path->rate = nla_get_u8(a[APM_A_PATH_RATE]);
	if (a[APM_A_PATH_ACK_TIMEOUT])
		path->ack_timeout = nla_get_u8(a[APM_A_PATH_ACK_TIMEOUT]);
	return is_rate(path->rate) ? 0 : refuse(info, -EINVAL, "there is no such rate");
}

static bool may_see(struct apm_device *dev, struct net *net)
{
	struct ib_device *ib = apm_device_hold(dev);
	bool yes;

	if (!ib)
		return false;
	yes = rdma_dev_access_netns(ib, net);
	ib_device_put(ib);
	return yes;
}

/*
 * Whether who is here may order something for all who use the device: whose it is. Where network
 * namespaces share devices that is the initial one.
 */
static bool is_owned(struct apm_device *dev, const struct net *net)
{
	struct ib_device *ib = apm_device_hold(dev);
	bool yes;

	if (!ib)
		return false;
	yes = net_eq(read_pnet(&ib->coredev.rdma_net), net);
	ib_device_put(ib);
	return yes;
}

/* Queue pairs of other network namespaces are theirs, and the initial one's. */
static bool may_order(const struct apm_qp *q, const struct net *net)
{
	return is_owned(q->dev, net) || (q->net_cookie && q->net_cookie == net->net_cookie);
}

static int parse_order(struct genl_info *info, struct apm_order *order)
{
	int ret = 0;

	memset(order, 0, sizeof(*order));
	order->command = info->genlhdr->cmd;
	if (info->attrs[APM_A_QP_TOKEN])
		order->token = nla_get_u32(info->attrs[APM_A_QP_TOKEN]);
	if (info->attrs[APM_A_QP_STANDING])
		order->standing = nla_get_u8(info->attrs[APM_A_QP_STANDING]);
	if (order->command != APM_CMD_QUERY)
		ret = parse_path(info, APM_A_QP_PRIMARY, &order->primary);
	if (!ret && order->command == APM_CMD_LOAD)
		ret = parse_path(info, APM_A_QP_ALTERNATE, &order->alternate);
	if (!ret && order->alternate.global)
		ret = refuse(info, -EOPNOTSUPP, "no alternate path with a GRH is loaded");
	return ret;
}

static int adopt(struct genl_info *info)
{
	struct apm_device *dev = NULL;
	int ret;

	if (!info->attrs[APM_A_QP_DEV_INDEX] || !info->attrs[APM_A_QP_QPN])
		return refuse(info, -EINVAL, "name a cookie, or dev-index and qpn");
	dev = apm_device_by_index(nla_get_u32(info->attrs[APM_A_QP_DEV_INDEX]));
	if (!dev || !may_see(dev, genl_info_net(info)))
		ret = refuse(info, -ENODEV, "there is no such InfiniBand device here");
	else
		ret = apm_qp_adopt(dev, nla_get_u32(info->attrs[APM_A_QP_QPN]));
	if (ret == -ENOENT)
		refuse(info, ret, "there is no such queue pair");
	else if (ret == -EOPNOTSUPP)
		refuse(info, ret, "the queue pair is not RC");
	if (dev)
		apm_device_put(dev);
	return ret;
}

static int on_order(struct sk_buff *skb, struct genl_info *info)
{
	struct apm_order order;
	struct apm_qp *q;
	int ret;

	if (!info->attrs[APM_A_QP_COOKIE]) {
		if (info->genlhdr->cmd == APM_CMD_QUERY)
			return adopt(info);
		return refuse(info, -EINVAL, "the order names no cookie");
	}
	ret = parse_order(info, &order);
	if (ret)
		return ret;
	q = apm_qp_get_by_cookie(nla_get_u64(info->attrs[APM_A_QP_COOKIE]));
	if (!q || !may_see(q->dev, genl_info_net(info)))
		ret = refuse(info, -ENOENT, "no queue pair has this cookie");
	else if (order.command != APM_CMD_QUERY && !may_order(q, genl_info_net(info)))
		ret = refuse(info, -EPERM, "the queue pair is of another network namespace");
	else
		ret = apm_order_queue(q, &order);
	if (ret == -ENOBUFS)
		refuse(info, ret, "too many orders wait for this queue pair");
	if (q)
		apm_qp_put(q);
	return ret;
}

/* Names a peer by device, and the primary path's port, dlid and ack-timeout. */
static int on_peer(struct sk_buff *skb, struct genl_info *info)
{
	struct nlattr *a[APM_A_PATH_MAX + 1];
	struct apm_path path = {};
	struct apm_device *dev;
	int ret;

	if (!info->attrs[APM_A_QP_DEV_INDEX] && !info->attrs[APM_A_QP_PRIMARY]) {
		apm_peer_forget_socket(genl_info_net(info), info->snd_portid);
		return 0;
	}
	if (!info->attrs[APM_A_QP_DEV_INDEX] || !info->attrs[APM_A_QP_PRIMARY])
		return refuse(info, -EINVAL, "a peer needs dev-index and primary");
	ret = nla_parse_nested(a, APM_A_PATH_MAX, info->attrs[APM_A_QP_PRIMARY], path_policy,
			       info->extack);
	if (ret)
		return ret;
	if (!a[APM_A_PATH_PORT] || !a[APM_A_PATH_DLID])
		return refuse(info, -EINVAL, "a peer's path needs port and dlid");
	path.port = nla_get_u8(a[APM_A_PATH_PORT]);
	path.dlid = nla_get_u16(a[APM_A_PATH_DLID]);
	if (a[APM_A_PATH_ACK_TIMEOUT])
		path.ack_timeout = nla_get_u8(a[APM_A_PATH_ACK_TIMEOUT]);
	dev = apm_device_by_index(nla_get_u32(info->attrs[APM_A_QP_DEV_INDEX]));
	if (!dev || !may_see(dev, genl_info_net(info)))
		ret = refuse(info, -ENODEV, "there is no such InfiniBand device here");
	else if (!is_owned(dev, genl_info_net(info)))
		ret = refuse(info, -EPERM, "the device is of another network namespace");
	else
		ret = apm_peer_set(dev, &path, genl_info_net(info), info->snd_portid);
	if (ret == -ENOENT)
		refuse(info, ret, "there is no such peer");
	else if (ret == -ENOSPC)
		refuse(info, ret, "too many peers");
	if (dev)
		apm_device_put(dev);
	return ret;
}

static int dump_one(struct sk_buff *skb, struct netlink_callback *cb, struct apm_qp *q)
{
	void *head;
	int ret;

	if (!test_bit(APM_QP_ANNOUNCED, &q->flags))
		return 0;
	head = genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq, &apm_family,
			   NLM_F_MULTI, APM_CMD_NEW);
	ret = head ? apm_message_qp(skb, q) : -EMSGSIZE;
	if (!ret)
		genlmsg_end(skb, head);
	else if (head)
		genlmsg_cancel(skb, head);
	return ret;
}

/* The position: bucket, and the last cookie told. */
static int on_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	unsigned int bucket = cb->args[0];
	u64 after = cb->args[1];
	struct apm_qp *q;
	int ret = 0;

	BUILD_BUG_ON(sizeof(cb->args[1]) != sizeof(after));
	while (!ret && (q = apm_qp_walk(&bucket, &after))) {
		if (may_see(q->dev, sock_net(skb->sk)))
			ret = dump_one(skb, cb, q);
		apm_qp_put(q);
		if (!ret) {
			cb->args[0] = bucket;
			cb->args[1] = after;
		}
	}
	/* No room left: the next message goes on with the one that did not fit. */
	return skb->len ?: ret;
}

/* A path below the root, as cgroup_path has it. */
static bool is_cgroup(const char *path)
{
	return path[0] == '/' && path[1] && path[strlen(path) - 1] != '/';
}

static int parse_rule(struct nlattr *from, struct apm_rule *rule, struct genl_info *info)
{
	struct nlattr *a[APM_A_RULE_MAX + 1];
	int ret = nla_parse_nested(a, APM_A_RULE_MAX, from, rule_policy, info->extack);

	if (ret)
		return ret;
	if (!a[APM_A_RULE_NAME] && !a[APM_A_RULE_UID] && !a[APM_A_RULE_CGROUP])
		return refuse(info, -EINVAL, "a rule needs a name, a uid or a cgroup");
	if (a[APM_A_RULE_NAME])
		nla_strscpy(rule->name, a[APM_A_RULE_NAME], sizeof(rule->name));
	if (a[APM_A_RULE_UID]) {
		rule->has_uid = true;
		rule->uid = make_kuid(&init_user_ns, nla_get_u32(a[APM_A_RULE_UID]));
		if (!uid_valid(rule->uid))
			return refuse(info, -EINVAL, "a rule's uid is not valid");
	}
	if (a[APM_A_RULE_CGROUP]) {
		nla_strscpy(rule->cgroup, a[APM_A_RULE_CGROUP], sizeof(rule->cgroup));
		if (!is_cgroup(rule->cgroup))
			return refuse(info, -EINVAL,
				      "a rule's cgroup is not a path below the root");
	}
	return 0;
}

static int parse_rules(struct genl_info *info, struct apm_config *config)
{
	struct nlattr *a;
	int rest, ret;

	memset(config->rule, 0, sizeof(config->rule));
	config->rules = 0;
	nla_for_each_nested(a, info->attrs[APM_A_QP_RULES], rest) {
		if (config->rules == APM_RULES)
			return refuse(info, -ENOSPC, "more than 16 rules");
		ret = parse_rule(a, &config->rule[config->rules++], info);
		if (ret)
			return ret;
	}
	return 0;
}

static int put_rules(struct sk_buff *skb, const struct apm_config *config)
{
	struct nlattr *list = nla_nest_start(skb, APM_A_QP_RULES);
	struct nlattr *one;
	unsigned int i;

	if (!list)
		return -EMSGSIZE;
	for (i = 0; i < config->rules; i++) {
		const struct apm_rule *rule = &config->rule[i];

		one = nla_nest_start(skb, APM_A_RULE_LIST_RULE);
		if (!one ||
		    (rule->name[0] && nla_put_string(skb, APM_A_RULE_NAME, rule->name)) ||
		    (rule->cgroup[0] && nla_put_string(skb, APM_A_RULE_CGROUP, rule->cgroup)) ||
		    (rule->has_uid &&
		     nla_put_u32(skb, APM_A_RULE_UID, from_kuid_munged(&init_user_ns, rule->uid))))
			return -EMSGSIZE;
		nla_nest_end(skb, one);
	}
	nla_nest_end(skb, list);
	return 0;
}

static int answer_config(struct genl_info *info, const struct apm_config *config)
{
	struct sk_buff *skb = genlmsg_new(NLMSG_GOODSIZE, GFP_KERNEL);
	void *head;

	if (!skb)
		return -ENOMEM;
	head = genlmsg_put_reply(skb, info, &apm_family, 0, APM_CMD_CONFIG);
	if (!head || nla_put_u32(skb, APM_A_QP_PROTECT, config->protect) ||
	    nla_put_u8(skb, APM_A_QP_SWALLOW, config->swallow) || put_rules(skb, config)) {
		nlmsg_free(skb);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, head);
	return genlmsg_reply(skb, info);
}

/* Has all queue pairs read again. */
static void look_at_all(void)
{
	unsigned int bucket = 0;
	struct apm_qp *q;
	u64 after = 0;

	while ((q = apm_qp_walk(&bucket, &after))) {
		apm_look_in_turn(q);
		apm_qp_put(q);
	}
}

static int answer_get(struct genl_info *info, bool work)
{
	struct sk_buff *skb = genlmsg_new(NLMSG_DEFAULT_SIZE, GFP_KERNEL);
	void *head;

	if (!skb)
		return -ENOMEM;
	head = genlmsg_put_reply(skb, info, &apm_family, 0, APM_CMD_GET);
	if (!head ||
	    nla_put_u32(skb, APM_A_QP_PROBES, work ? APM_PROBES_WORKING : APM_PROBES_BLIND) ||
	    nla_put_u64_64bit(skb, APM_A_QP_MISSED_HITS, apm_probes_missed(), APM_A_QP_PAD) ||
	    nla_put_u64_64bit(skb, APM_A_QP_LOST_MESSAGES, apm_messages_lost(), APM_A_QP_PAD) ||
	    nla_put_flag(skb, APM_A_QP_MOVES_IDLE)) {
		nlmsg_free(skb);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, head);
	return genlmsg_reply(skb, info);
}

/* Who has seen nothing for a while knows queue pairs that are gone: reading them finds that out. */
static int on_get(struct sk_buff *skb, struct genl_info *info)
{
	static bool was_blind;
	bool work = apm_probes_work();

	if (!work || READ_ONCE(was_blind))
		look_at_all();
	WRITE_ONCE(was_blind, !work);
	return answer_get(info, work);
}

static int on_config(struct sk_buff *skb, struct genl_info *info)
{
	static DEFINE_MUTEX(one_at_a_time);
	struct apm_config *config;
	int ret = 0;

	config = kmalloc(sizeof(*config), GFP_KERNEL);
	if (!config)
		return -ENOMEM;
	mutex_lock(&one_at_a_time);
	apm_config_get(config);
	if (info->attrs[APM_A_QP_PROTECT])
		config->protect = nla_get_u32(info->attrs[APM_A_QP_PROTECT]);
	if (info->attrs[APM_A_QP_SWALLOW])
		config->swallow = nla_get_u8(info->attrs[APM_A_QP_SWALLOW]);
	if (info->attrs[APM_A_QP_RULES])
		ret = parse_rules(info, config);
	if (!ret && !net_eq(genl_info_net(info), &init_net) && !apm_config_is(config))
		ret = refuse(info, -EPERM,
			     "settings are changed from the initial network namespace only");
	if (!ret) {
		apm_config_set(config);
		ret = answer_config(info, config);
	}
	mutex_unlock(&one_at_a_time);
	kfree(config);
	look_at_all();
	return ret;
}

static const struct genl_ops ops[] = {
	{ .cmd = APM_CMD_GET, .doit = on_get, .dumpit = on_dump, .flags = GENL_ADMIN_PERM },
	{ .cmd = APM_CMD_LOAD, .doit = on_order, .flags = GENL_ADMIN_PERM },
	{ .cmd = APM_CMD_MIGRATE, .doit = on_order, .flags = GENL_ADMIN_PERM },
	{ .cmd = APM_CMD_QUERY, .doit = on_order, .flags = GENL_ADMIN_PERM },
	{ .cmd = APM_CMD_STANDING, .doit = on_order, .flags = GENL_ADMIN_PERM },
	{ .cmd = APM_CMD_CONFIG, .doit = on_config, .flags = GENL_ADMIN_PERM },
	{ .cmd = APM_CMD_PEER, .doit = on_peer, .flags = GENL_ADMIN_PERM },
	{ .cmd = APM_CMD_MOVE_IDLE, .doit = on_order, .flags = GENL_ADMIN_PERM },
};

/*
 * A group's flags, which are not an operation's since cd4d7263d58a ("genetlink: Use internal flags
 * for multicast groups"): there GENL_UNS_ADMIN_PERM asks for nothing.
 */
#ifdef GENL_MCAST_CAP_NET_ADMIN
#define EVENTS_FLAGS GENL_MCAST_CAP_NET_ADMIN
#else
#define EVENTS_FLAGS GENL_UNS_ADMIN_PERM
#endif

static const struct genl_multicast_group groups[] = {
	/* Owners and paths are not for everybody: message.c says which namespaces are told. */
	{ .name = APM_MCGRP_EVENTS, .flags = EVENTS_FLAGS },
};

struct genl_family apm_family = {
	.name = APM_FAMILY_NAME,
	.version = APM_FAMILY_VERSION,
	.maxattr = APM_A_QP_MAX,
	.policy = policy,
	.netnsok = true,
	/* A firmware's command must not hold up other families. */
	.parallel_ops = true,
	.module = THIS_MODULE,
	.ops = ops,
	.n_ops = ARRAY_SIZE(ops),
	.mcgrps = groups,
	.n_mcgrps = ARRAY_SIZE(groups),
};

int apm_netlink_init(void)
{
	return genl_register_family(&apm_family);
}

void apm_netlink_exit(void)
{
	genl_unregister_family(&apm_family);
}
