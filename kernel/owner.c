// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Whose a queue pair is, and whether it is to be under care. */
#include <linux/cgroup.h>
#include <linux/cred.h>
#include <linux/nsproxy.h>
#include <linux/sched/task.h>
#include <linux/user_namespace.h>
#include <net/net_namespace.h>

#include "apm.h"

/* IPoIB's connections are bound to their port, and it flushes them when that has an event. */
static struct apm_config config = {
	.protect = APM_PROTECT_ALL,
	.swallow = true,
	.rules = 1,
	.rule = { { .name = "ib_ipoib" } },
};

static DEFINE_SPINLOCK(config_lock);

/* Queue pairs of rdma_cm bear its name; the protection domain has the user's of rdma_cm. */
static const char *kernel_name(const struct ib_qp *qp)
{
	const char *name = qp->res.kern_name;

	if ((!name || !strcmp(name, "rdma_cm")) && qp->pd && qp->pd->res.kern_name)
		name = qp->pd->res.kern_name;
	return name ?: "kernel";
}

/* The path from the root of its hierarchy (v2), or as much of it as there is room for. */
static void cgroup_of(struct task_struct *task, struct apm_owner *owner)
{
#ifdef CONFIG_CGROUPS
	cgroup_path(task_dfl_cgroup(task), owner->cgroup, sizeof(owner->cgroup));
#endif
}

/*
 * Whoever makes a user namespace has all the users that were given to it (subuid): they take his
 * share, and he is the owner of the outermost one below the host's. One that root has made is for
 * others: its users count as they are. Under RCU.
 */
static kuid_t charged_user(const struct cred *cred)
{
	const struct user_namespace *ns = cred->user_ns;

	if (ns == &init_user_ns)
		return cred->uid;
	while (ns->parent != &init_user_ns)
		ns = ns->parent;
	return uid_eq(ns->owner, GLOBAL_ROOT_UID) ? cred->uid : ns->owner;
}

/*
 * The network namespace of its creator, or 0. Sleeps nowhere, and is not for probes: the lock is
 * taken with interrupts on elsewhere.
 */
u64 apm_owner_net(struct ib_qp *qp)
{
	struct task_struct *task = rdma_is_kernel_res(&qp->res) ? NULL : qp->res.task;
	u64 cookie = 0;

	if (!task)
		return 0;
	task_lock(task);
	if (task->nsproxy)
		cookie = task->nsproxy->net_ns->net_cookie;
	task_unlock(task);
	return cookie;
}

/* The queue pair must be there. Its res.task holds its task as long as it is. */
void apm_owner_of(struct ib_qp *qp, struct apm_owner *owner)
{
	struct task_struct *task = qp->res.task;
	struct task_struct *leader;

	memset(owner, 0, sizeof(*owner));
	owner->user = !rdma_is_kernel_res(&qp->res);
	owner->uid = GLOBAL_ROOT_UID;
	owner->charged = GLOBAL_ROOT_UID;
	if (!owner->user) {
		strscpy(owner->name, kernel_name(qp), sizeof(owner->name));
		return;
	}
	if (!task)
		return;
	rcu_read_lock();
	/* A thread that has ended leads to no process any more: its start is not known. */
	leader = pid_alive(task) ? task->group_leader : NULL;
	owner->start_ns = leader ? leader->start_boottime : 0;
	owner->pid = task->tgid;
	task = leader ?: task;
	/* Its lock may not be taken here; torn between two names it still ends. */
	strscpy(owner->name, task->comm, TASK_COMM_LEN);
	owner->uid = task_uid(task);
	owner->charged = charged_user(__task_cred(task));
	cgroup_of(task, owner);
	rcu_read_unlock();
}

/* Whether the queue pair is its. A program may change its name and its user. */
bool apm_owner_has(const struct apm_owner *owner, struct ib_qp *qp)
{
	struct apm_owner now;

	apm_owner_of(qp, &now);
	if (now.user != owner->user)
		return false;
	if (!now.user)
		return !strcmp(now.name, owner->name);
	/* When the thread that made it has ended, its process's start is not known any more. */
	return now.pid == owner->pid &&
	       (!now.start_ns || !owner->start_ns || now.start_ns == owner->start_ns);
}

/* Of a command's name the kernel keeps the beginning. */
static bool is_named(const struct apm_owner *owner, const char *name)
{
	return !strncmp(owner->name, name, owner->user ? TASK_COMM_LEN - 1 : APM_OWNER_NAME_LEN);
}

/* In this cgroup, or in one below it. */
static bool is_within(const struct apm_owner *owner, const char *cgroup)
{
	size_t length = strlen(cgroup);

	return owner->user && !strncmp(owner->cgroup, cgroup, length) &&
	       (!owner->cgroup[length] || owner->cgroup[length] == '/');
}

static bool rule_fits(const struct apm_rule *rule, const struct apm_owner *owner)
{
	if (rule->name[0] && !is_named(owner, rule->name))
		return false;
	if (rule->cgroup[0] && !is_within(owner, rule->cgroup))
		return false;
	return !rule->has_uid || (owner->user && uid_eq(rule->uid, owner->uid));
}

bool apm_owner_is_protected(const struct apm_owner *owner)
{
	unsigned long flags;
	bool yes;
	unsigned int i;

	spin_lock_irqsave(&config_lock, flags);
	yes = config.protect == APM_PROTECT_ALL ||
	      (config.protect == APM_PROTECT_ULPS && !owner->user);
	for (i = 0; yes && i < config.rules; i++)
		yes = !rule_fits(&config.rule[i], owner);
	spin_unlock_irqrestore(&config_lock, flags);
	return yes;
}

/* Called from event handlers: no lock. */
bool apm_config_swallows(void)
{
	return READ_ONCE(config.swallow);
}

void apm_config_get(struct apm_config *to)
{
	unsigned long flags;

	spin_lock_irqsave(&config_lock, flags);
	*to = config;
	spin_unlock_irqrestore(&config_lock, flags);
}

/* Whether it would change nothing. What a rule does not say is zero in it. */
bool apm_config_is(const struct apm_config *other)
{
	unsigned long flags;
	bool same;

	spin_lock_irqsave(&config_lock, flags);
	same = config.protect == other->protect && config.swallow == other->swallow &&
	       config.rules == other->rules &&
	       !memcmp(config.rule, other->rule, config.rules * sizeof(config.rule[0]));
	spin_unlock_irqrestore(&config_lock, flags);
	return same;
}

void apm_config_set(const struct apm_config *from)
{
	unsigned long flags;

	spin_lock_irqsave(&config_lock, flags);
	config = *from;
	spin_unlock_irqrestore(&config_lock, flags);
}
