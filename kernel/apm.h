/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * apm: sees the RC queue pairs of the host, and loads and uses their alternate paths by order.
 *
 * A queue pair is known by an entry (struct apm_qp), which holds no pointer to it. Whoever needs
 * the queue pair takes it by its number for one order (apm_qp_hold) and lets it go again.
 */
#ifndef APM_H
#define APM_H

#include <linux/completion.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

#include "apm_nl.h"

/* Probes run with preemption disabled, and take spinlocks. */
#ifdef CONFIG_PREEMPT_RT
#error "apm is not for kernels with PREEMPT_RT"
#endif

#define APM_OWNER_NAME_LEN 32

/* Queues for what users bring about themselves, see queues.c. */
#define APM_USER_WQ_BITS 3
#define APM_USER_WQS BIT(APM_USER_WQ_BITS)

/* The work of one device: a firmware that hangs stops that of no other. */
struct apm_queues {
	struct workqueue_struct *looks;
	struct workqueue_struct *user[APM_USER_WQS];
	struct workqueue_struct *ends;
	struct workqueue_struct *orders;
};

/* A device that can have paths migrated. */
struct apm_device {
	struct ib_device *ib;	/* to be had by apm_device_hold only */
	bool leaving;		/* takes no new entries */
	bool gone;		/* ib is not to be touched any more */
	refcount_t refs;
	struct rcu_head rcu;
	struct work_struct release;	/* when the last reference is gone */
	struct list_head all;
	struct apm_queues queues;
	struct ib_event_handler events;
	DECLARE_BITMAP(failed_ports, 256);
	struct work_struct standing;
};

/* One path of a queue pair, as netlink tells it. */
struct apm_path {
	u8 port;
	u8 path_bits;
	u8 sl;
	u8 mtu;
	u8 rate;
	u8 ack_timeout;
	bool global;
	u16 slid;
	u16 dlid;
	u16 pkey;
	union ib_gid sgid;
	union ib_gid dgid;	/* zero: not known */
};

/* A queue pair as it was read. */
struct apm_snapshot {
	enum ib_qp_state state;
	enum ib_mig_state migration;
	bool loaded;		/* alternate is there */
	u32 peer_qpn;
	u8 retries;
	struct apm_path primary;
	struct apm_path alternate;
};

/* Of a queue pair what can be read by one call: a port that has failed may have no LID any more. */
struct apm_glance {
	enum ib_qp_state state;
	enum ib_mig_state migration;
	u8 port;
	u8 alternate_port;
	u16 dlid;
	bool draining;	/* in SQD, with something outstanding */
};

/* What has become of a standing order when its port has failed, for the trace. */
enum apm_stand {
	APM_STAND_MIGRATED,
	APM_STAND_FAILED,	/* the device refused */
	APM_STAND_UNREADABLE,
	APM_STAND_NOT_ARMED,	/* or not in RTS */
	APM_STAND_MOVED,	/* it has left the port already */
	APM_STAND_SAME_PORT,	/* as has its alternate */
};

/* Rules are two bytes shorter: what is left of a longer path tells whether one fits. */
#define APM_CGROUP_LEN 128

struct apm_owner {
	char name[APM_OWNER_NAME_LEN];
	char cgroup[APM_CGROUP_LEN];	/* when it was first seen */
	bool user;
	pid_t pid;
	kuid_t uid;
	kuid_t charged;		/* whose share it takes */
	u64 start_ns;
};

enum apm_qp_flag {
	APM_QP_DYING,		/* is being destroyed, or was reset: takes no orders */
	APM_QP_ANNOUNCED,
	APM_QP_OWN_APM,		/* its owner loads alternates */
	APM_QP_TAKEN_UP,	/* older than its entry, and not read yet */
	APM_QP_HANDLER,		/* its event handler is ours; the module is pinned for it */
	APM_QP_TO_RTS,
	APM_QP_MOVING,		/* goes to SQD by order, is there, or comes back */
	APM_QP_MIG,		/* the event, not told yet */
	APM_QP_MIG_ERR,
};

/* Of a queue pair what clients may know. */
struct apm_known {
	struct apm_snapshot last;
	enum apm_refusal refusal;
	bool standing;
};

/* What is known of one queue pair. Lists and numbers are under apm_lock. */
struct apm_qp {
	struct hlist_node by_number;
	struct hlist_node by_cookie;
	struct apm_device *dev;
	struct rcu_head rcu;
	refcount_t refs;
	unsigned long flags;
	u32 qpn;
	const void *object;	/* to be compared only */
	u64 cookie;
	struct apm_owner owner;
	u64 net_cookie;		/* its owner's network namespace; 0: not known */
	enum apm_role role;
	u8 peer_port;		/* of a REQ: it leaves from this port, */
	u16 peer_lid;		/* and peer_gid is at this LID of its subnet */
	u16 peer_pkey;
	union ib_gid peer_gid;
	struct work_struct connecting;
	enum ib_qp_state owner_state;	/* that its owner has set last */
	unsigned int entered;	/* modifies of its owner's that have begun since the first load */
	unsigned int returned;	/* and ended */
	unsigned int moved_at;	/* entered, when the last idle move began */
	u8 primary_port;	/* as its owner set it on the way to INIT */
	u16 primary_lid;	/* and to RTR */
	unsigned long rtr_since;
	unsigned long rts_since;
	void (*chained)(struct ib_event *event, void *context);

	struct mutex mutex;	/* for what follows, and for each order as a whole */
	struct apm_snapshot last;
	enum apm_refusal refusal;
	bool standing;
	u32 pause_ms;		/* until the next look, if it has to be looked at again */
	u8 failed_looks;	/* in a row: it could not be read */
	u8 failed_resumes;	/* the same: it could not be taken from SQD */
	struct delayed_work look;

	spinlock_t known_lock;		/* for what follows: who asks waits for no firmware */
	struct apm_known known;

	spinlock_t look_lock;		/* for what follows */
	bool look_waits;
	unsigned long look_at;		/* the next */
	unsigned long look_until;	/* what was heard is not to be seen before */

	struct list_head orders;
	struct work_struct carry_out;
	struct list_head leaving;
};

struct apm_order {
	struct list_head all;
	u8 command;		/* enum apm_cmd */
	bool standing;
	u32 token;
	unsigned long queued;	/* jiffies */
	struct apm_path primary;
	struct apm_path alternate;
};

/* What a report tells beside the snapshot. */
struct apm_news {
	enum apm_cause cause;
	bool has_token;
	u32 token;
	int error;
};

extern struct workqueue_struct *apm_urgent_wq;
extern spinlock_t apm_lock;

/* queues.c */
int apm_queues_init(struct apm_queues *queues, unsigned int device);
void apm_queues_flush(const struct apm_queues *queues);
void apm_queues_exit(struct apm_queues *queues);
struct workqueue_struct *apm_queue_of_owner(const struct apm_qp *q);

/* device.c */
int apm_devices_init(void);
void apm_devices_exit(void);
struct apm_device *apm_device_of(struct ib_device *ib);
struct apm_device *apm_device_by_index(u32 index);
struct ib_device *apm_device_hold(struct apm_device *dev);
void apm_device_put(struct apm_device *dev);
void apm_device_name(struct apm_device *dev, char *name);

/* track.c */
struct apm_qp *apm_qp_find(struct ib_device *ib, u32 qpn);
struct apm_qp *apm_qp_find_handler(struct ib_device *ib, u32 qpn);
struct apm_qp *apm_qp_get_by_cookie(u64 cookie);
struct apm_qp *apm_qp_add(struct apm_device *dev, struct ib_qp *qp);
struct apm_qp *apm_qp_walk(unsigned int *bucket, u64 *after);
void apm_qp_retire(struct apm_qp *q);
void apm_qp_forget(struct apm_qp *q);
void apm_qp_forget_device(struct apm_device *dev);
void apm_qp_get(struct apm_qp *q);
bool apm_qp_try_get(struct apm_qp *q);
void apm_qp_put(struct apm_qp *q);
void apm_qp_wait_for_last(void);
void apm_qp_collect(struct apm_device *dev, u8 port, struct list_head *leaving);

/* probes.c */
int apm_probes_init(void);
void apm_probes_exit(void);
unsigned long apm_probes_missed(void);

/* witness.c */
void apm_witness(void);
int apm_witness_init(void);
void apm_witness_exit(void);
bool apm_probes_work(void);

/* owner.c */
struct apm_rule {
	char name[APM_OWNER_NAME_LEN];	/* empty: any */
	char cgroup[APM_CGROUP_LEN];	/* empty: any */
	bool has_uid;
	kuid_t uid;
};

#define APM_RULES 16

struct apm_config {
	enum apm_protect protect;
	bool swallow;
	unsigned int rules;
	struct apm_rule rule[APM_RULES];
};

void apm_owner_of(struct ib_qp *qp, struct apm_owner *owner);
bool apm_owner_has(const struct apm_owner *owner, struct ib_qp *qp);
u64 apm_owner_net(struct ib_qp *qp);
bool apm_owner_is_protected(const struct apm_owner *owner);
bool apm_config_swallows(void);
void apm_config_get(struct apm_config *config);
bool apm_config_is(const struct apm_config *config);
void apm_config_set(const struct apm_config *config);

/* path.c */
int apm_path_read(struct ib_device *ib, const struct rdma_ah_attr *ah, u16 pkey_index,
		  struct apm_path *path);
int apm_path_write(struct ib_device *ib, const struct apm_path *path, struct rdma_ah_attr *ah);
bool apm_path_same_way(const struct apm_path *a, const struct apm_path *b);
bool apm_path_leads_back(struct ib_device *ib, const struct apm_path *path);

/* qp.c */
struct ib_qp *apm_qp_hold(struct apm_qp *q);
void apm_qp_release(struct ib_qp *qp);
int apm_qp_adopt(struct apm_device *dev, u32 qpn);
int apm_qp_catch_up(struct apm_qp *q, struct ib_qp *qp);
int apm_qp_read(struct apm_qp *q, struct ib_qp *qp, struct apm_snapshot *now);
int apm_qp_reread(struct apm_qp *q, struct ib_qp *qp, struct apm_snapshot *now);
int apm_qp_glance(struct ib_qp *qp, struct apm_glance *now);
int apm_qp_load(struct apm_qp *q, struct ib_qp *qp, const struct apm_path *alternate, bool rearm);
int apm_qp_migrate(struct apm_qp *q, struct ib_qp *qp);
int apm_qp_suspend(struct apm_qp *q, struct ib_qp *qp);
int apm_qp_set_primary(struct apm_qp *q, struct ib_qp *qp, const struct apm_path *primary);
int apm_qp_set_state(struct apm_qp *q, struct ib_qp *qp, enum ib_qp_state state);
bool apm_qp_is_under_care(struct apm_qp *q);
bool apm_qp_is_by_order(void);
void apm_qp_destroyed(struct ib_qp *qp);

/* look.c */
void apm_look_init(struct apm_qp *q);
void apm_look_soon(struct apm_qp *q, unsigned int ms);
void apm_look_in_turn(struct apm_qp *q);
void apm_look_after(struct apm_qp *q, unsigned int ms);
void apm_look_in_rtr(struct apm_qp *q);
void apm_look_connected(struct apm_qp *q);
void apm_saw(struct apm_qp *q, const struct apm_snapshot *now);
void apm_get_known(struct apm_qp *q, struct apm_known *known);

/* order.c */
void apm_order_init(struct apm_qp *q);
int apm_order_queue(struct apm_qp *q, const struct apm_order *order);

/* idle_move.c */
int apm_idle_move(struct apm_qp *q, struct ib_qp *qp, const struct apm_path *to);
int apm_idle_resume(struct apm_qp *q, struct ib_qp *qp);
bool apm_idle_is_undisturbed(const struct apm_qp *q);

/* standing.c */
void apm_standing_work(struct work_struct *work);

/* event.c */
int apm_event_take(struct apm_qp *q, struct ib_qp *qp);
void apm_event_handler(struct ib_event *event, void *context);

/* peer.c */
struct net;
int apm_peers_init(void);
void apm_peers_exit(void);
int apm_peer_set(struct apm_device *dev, const struct apm_path *path, struct net *net, u32 portid);
void apm_peer_forget_device(const struct apm_device *dev);
void apm_peer_forget_socket(const struct net *net, u32 portid);
bool apm_peer_is_named(const struct apm_device *dev, u32 port, u16 dlid);
u8 apm_peer_timeout(const struct apm_device *dev, u32 port, u16 dlid, u8 timeout);

/* connecting.c */
void apm_connecting_init(struct apm_qp *q);
void apm_connecting(struct apm_qp *q, const struct ib_device *ib);

/* message.c */
struct sk_buff;
int apm_message_qp(struct sk_buff *skb, struct apm_qp *q);
void apm_tell_new(struct apm_qp *q);
void apm_tell_connecting(struct apm_qp *q, const struct apm_path *path);
void apm_tell_del(struct apm_qp *q);
void apm_tell(struct apm_qp *q, const struct apm_news *news);
u64 apm_messages_lost(void);

/* netlink.c */
extern struct genl_family apm_family;
int apm_netlink_init(void);
void apm_netlink_exit(void);

#endif
