// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* KUnit: owners of queue pairs, and the rules for them. The settings are this module's own copy. */
#include <kunit/test.h>
#include <linux/module.h>

#include "owner.c"

MODULE_DESCRIPTION("KUnit tests of the module apm");
MODULE_LICENSE("Dual BSD/GPL");

static const struct apm_owner ulp = { .name = "ib_srp" };
static const struct apm_owner program = {
	.name = "fifteen-letters", .cgroup = "/machine.slice/vm1", .user = true, .pid = 7,
	.uid = KUIDT_INIT(1000), .charged = KUIDT_INIT(1000), .start_ns = 5,
};

static void a_command_is_known_by_its_first_15_bytes(struct kunit *test)
{
	struct apm_rule rule = { .name = "fifteen-letters-and-more" };
	struct apm_owner kernel = program;

	KUNIT_EXPECT_TRUE(test, rule_fits(&rule, &program));
	kernel.user = false;
	KUNIT_EXPECT_FALSE(test, rule_fits(&rule, &kernel));
	strscpy(rule.name, "fifteen-letter", sizeof(rule.name));
	KUNIT_EXPECT_FALSE(test, rule_fits(&rule, &program));
	strscpy(rule.name, "ib_srp", sizeof(rule.name));
	KUNIT_EXPECT_TRUE(test, rule_fits(&rule, &ulp));
	strscpy(rule.name, "ib_srpt", sizeof(rule.name));
	KUNIT_EXPECT_FALSE(test, rule_fits(&rule, &ulp));
}

static void a_cgroup_has_those_below_it(struct kunit *test)
{
	static const struct {
		const char *cgroup;
		bool fits;
	} cases[] = {
		{ "/machine.slice", true },
		{ "/machine.slice/vm1", true },
		{ "/machine.slice/vm", false },
		{ "/machine.slice/vm1/app", false },
		{ "/machine", false },
		{ "/user.slice", false },
	};
	struct apm_owner kernel = program;
	unsigned int i;

	kernel.user = false;
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct apm_rule rule = {};

		strscpy(rule.cgroup, cases[i].cgroup, sizeof(rule.cgroup));
		KUNIT_EXPECT_EQ_MSG(test, rule_fits(&rule, &program), cases[i].fits, "%s",
				    rule.cgroup);
		KUNIT_EXPECT_FALSE_MSG(test, rule_fits(&rule, &kernel), "%s", rule.cgroup);
	}
}

static void all_that_is_in_a_rule_must_fit(struct kunit *test)
{
	struct apm_rule rule = {
		.name = "fifteen-letters", .cgroup = "/machine.slice",
		.has_uid = true, .uid = KUIDT_INIT(1000),
	};

	KUNIT_EXPECT_TRUE(test, rule_fits(&rule, &program));
	rule.uid = KUIDT_INIT(1001);
	KUNIT_EXPECT_FALSE(test, rule_fits(&rule, &program));
	rule = (struct apm_rule){ .has_uid = true, .uid = GLOBAL_ROOT_UID };
	/* The kernel's own have no user. */
	KUNIT_EXPECT_FALSE(test, rule_fits(&rule, &ulp));
}

/* A copy of the settings, which are too large for the stack. */
static struct apm_config *settings_of_now(struct kunit *test)
{
	struct apm_config *settings = kunit_kzalloc(test, sizeof(*settings), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, settings);
	apm_config_get(settings);
	return settings;
}

static void settings_say_which_owners_are_protected(struct kunit *test)
{
	struct apm_config *before = settings_of_now(test);
	struct apm_config *settings = settings_of_now(test);

	settings->protect = APM_PROTECT_ALL;
	settings->rules = 1;
	strscpy(settings->rule[0].name, "ib_srp", sizeof(settings->rule[0].name));
	apm_config_set(settings);
	KUNIT_EXPECT_TRUE(test, apm_owner_is_protected(&program));
	KUNIT_EXPECT_FALSE(test, apm_owner_is_protected(&ulp));
	settings->rules = 0;
	apm_config_set(settings);
	KUNIT_EXPECT_TRUE(test, apm_owner_is_protected(&ulp));
	settings->protect = APM_PROTECT_ULPS;
	apm_config_set(settings);
	KUNIT_EXPECT_FALSE(test, apm_owner_is_protected(&program));
	KUNIT_EXPECT_TRUE(test, apm_owner_is_protected(&ulp));
	settings->protect = APM_PROTECT_NONE;
	apm_config_set(settings);
	KUNIT_EXPECT_FALSE(test, apm_owner_is_protected(&program));
	KUNIT_EXPECT_FALSE(test, apm_owner_is_protected(&ulp));
	apm_config_set(before);
}

static void settings_are_equal_if_what_counts_is(struct kunit *test)
{
	struct apm_config *other = settings_of_now(test);

	KUNIT_EXPECT_TRUE(test, apm_config_is(other));
	/* Beyond the rules there are. */
	strscpy(other->rule[other->rules].name, "x", 2);
	KUNIT_EXPECT_TRUE(test, apm_config_is(other));
	other->rules++;
	KUNIT_EXPECT_FALSE(test, apm_config_is(other));
	other = settings_of_now(test);
	other->swallow = !other->swallow;
	KUNIT_EXPECT_FALSE(test, apm_config_is(other));
	other = settings_of_now(test);
	strscpy(other->rule[0].name, "x", 2);
	KUNIT_EXPECT_FALSE(test, apm_config_is(other));
}

static struct user_namespace *make_ns(struct kunit *test, struct user_namespace *parent,
				      unsigned int owner)
{
	struct user_namespace *ns = kunit_kzalloc(test, sizeof(*ns), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, ns);
	ns->parent = parent;
	ns->owner = KUIDT_INIT(owner);
	return ns;
}

static void expect_charged(struct kunit *test, struct user_namespace *ns, unsigned int user)
{
	struct cred *cred = kunit_kzalloc(test, sizeof(*cred), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, cred);
	cred->uid = KUIDT_INIT(100005);
	cred->user_ns = ns;
	KUNIT_EXPECT_EQ(test, __kuid_val(charged_user(cred)), user);
}

static void the_owner_of_the_outermost_namespace_is_charged(struct kunit *test)
{
	struct user_namespace *of_user = make_ns(test, &init_user_ns, 1000);
	struct user_namespace *of_root = make_ns(test, &init_user_ns, 0);

	expect_charged(test, &init_user_ns, 100005);
	expect_charged(test, of_user, 1000);
	expect_charged(test, make_ns(test, of_user, 100001), 1000);
	/* Root's are for others. */
	expect_charged(test, of_root, 100005);
	expect_charged(test, make_ns(test, of_root, 1000), 100005);
}

static void a_kernel_owner_is_named_by_its_protection_domain(struct kunit *test)
{
	struct ib_qp *qp = kunit_kzalloc(test, sizeof(*qp), GFP_KERNEL);
	struct ib_pd *pd = kunit_kzalloc(test, sizeof(*pd), GFP_KERNEL);
	struct apm_owner owner;

	KUNIT_ASSERT_NOT_NULL(test, qp);
	KUNIT_ASSERT_NOT_NULL(test, pd);
	KUNIT_EXPECT_STREQ(test, kernel_name(qp), "kernel");
	qp->pd = pd;
	qp->res.kern_name = "rdma_cm";
	KUNIT_EXPECT_STREQ(test, kernel_name(qp), "rdma_cm");
	pd->res.kern_name = "nvme_rdma";
	KUNIT_EXPECT_STREQ(test, kernel_name(qp), "nvme_rdma");
	qp->res.kern_name = "ib_srp";
	KUNIT_EXPECT_STREQ(test, kernel_name(qp), "ib_srp");

	apm_owner_of(qp, &owner);
	KUNIT_EXPECT_FALSE(test, owner.user);
	KUNIT_EXPECT_STREQ(test, owner.name, "ib_srp");
	KUNIT_EXPECT_TRUE(test, apm_owner_has(&ulp, qp));
	KUNIT_EXPECT_FALSE(test, apm_owner_has(&program, qp));
	qp->res.kern_name = "ib_srpt";
	KUNIT_EXPECT_FALSE(test, apm_owner_has(&ulp, qp));
}

static void a_program_is_its_process_and_its_start(struct kunit *test)
{
	struct ib_qp *qp = kunit_kzalloc(test, sizeof(*qp), GFP_KERNEL);
	struct apm_owner owner;

	KUNIT_ASSERT_NOT_NULL(test, qp);
	qp->res.user = true;
	qp->res.task = current;
	apm_owner_of(qp, &owner);
	KUNIT_EXPECT_TRUE(test, owner.user);
	KUNIT_EXPECT_EQ(test, owner.pid, current->tgid);
	KUNIT_EXPECT_TRUE(test, apm_owner_has(&owner, qp));
	owner.start_ns++;
	KUNIT_EXPECT_FALSE(test, apm_owner_has(&owner, qp));
	/* Not known any more. */
	owner.start_ns = 0;
	KUNIT_EXPECT_TRUE(test, apm_owner_has(&owner, qp));
	owner.pid++;
	KUNIT_EXPECT_FALSE(test, apm_owner_has(&owner, qp));
}

static struct kunit_case cases[] = {
	KUNIT_CASE(a_command_is_known_by_its_first_15_bytes),
	KUNIT_CASE(a_cgroup_has_those_below_it),
	KUNIT_CASE(all_that_is_in_a_rule_must_fit),
	KUNIT_CASE(settings_say_which_owners_are_protected),
	KUNIT_CASE(settings_are_equal_if_what_counts_is),
	KUNIT_CASE(the_owner_of_the_outermost_namespace_is_charged),
	KUNIT_CASE(a_kernel_owner_is_named_by_its_protection_domain),
	KUNIT_CASE(a_program_is_its_process_and_its_start),
	{}
};

static struct kunit_suite suite = { .name = "apm_owner", .test_cases = cases };

kunit_test_suite(suite);
