// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Faults by command. The module parameter "cmd" takes one command when written
 * and tells how it went when read: 0 done, 1 refused, 2 not understood, and why.
 * shca/links in debugfs lists every cable.
 *
 *	pull|plug|blackhole|blackhole-tx|heal TARGET
 *	loss TARGET PERCENT
 *	seed NUMBER
 *	mend
 *
 * TARGET is a cable, by the port at either end ("shca0 1", "switch0 9"), or a whole
 * switch ("switch0").
 */
#include <linux/ctype.h>
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>
#include "fabric_int.h"

#define PPM_MAX	1000000

/* What a command is about: all links of a switch, one link, or one end of it. */
struct cable_target {
	struct fabric_node *sw;
	struct fabric_link *link;
	struct fabric_port *port;
};

/* How the last command went: the exit status it deserves, and the reason. */
static int cable_status;
static char cable_reason[160] = "ok";

static __printf(2, 3) int cable_fail(int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vscnprintf(cable_reason, sizeof(cable_reason), format, args);
	va_end(args);
	cable_status = error == -EINVAL ? 2 : 1;
	return error;
}

/* ---- what a word means ---- */

static int find_port(struct cable_target *target, struct fabric_node *node, const char *word)
{
	unsigned int num;

	if (kstrtouint(word, 10, &num) || num < 1 || num > node->num_ports || !node->port[num])
		return cable_fail(-ENODEV, "no port %s on %s, it has ports 1 to %u", word,
				  node->name, node->num_ports);
	if (!node->port[num]->link)
		return cable_fail(-ENODEV, "port %u of %s has no cable", num, node->name);
	target->port = node->port[num];
	target->link = target->port->link;
	return 0;
}

/* Consumes one or two words; returns how many, or an error. */
static int find_target(struct cable_target *target, int argc, char **argv)
{
	struct fabric_node *node;
	int ret;

	if (argc < 1)
		return cable_fail(-EINVAL, "which link? say DEVICE PORT, or a switch");
	node = fabric_find_node(argv[0]);
	if (!node)
		return cable_fail(-ENODEV, "no device or switch %s", argv[0]);
	if (argc < 2) {
		if (!node_is_switch(node))
			return cable_fail(-EINVAL, "which port of %s?", argv[0]);
		target->sw = node;
		return 1;
	}
	ret = find_port(target, node, argv[1]);
	return ret ? ret : 2;
}

/* "12.5" to 125000 */
static int parse_percent(const char *word, u32 *ppm)
{
	u32 value = 0, unit = 0;
	const char *c;

	for (c = word; *c; c++) {
		if (*c == '.' && !unit && c != word) {
			unit = 10000;
		} else if (isdigit(*c) && !unit && value <= PPM_MAX) {
			value = value * 10 + (*c - '0') * 10000;
		} else if (isdigit(*c) && unit > 1) {
			unit /= 10;
			value += (*c - '0') * unit;
		} else {
			break;
		}
	}
	if (c == word || *c || value > PPM_MAX)
		return cable_fail(-EINVAL, "loss is a percentage from 0 to 100, not %s", word);
	*ppm = value;
	return 0;
}

/* ---- what a command does ---- */

static void link_silence(struct fabric_link *link, bool silent)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(link->end); i++)
		if (link->end[i])
			link->end[i]->silent = silent;
}

static void link_pull(struct fabric_link *link, u32 arg)
{
	link_set_plugged(link, false);
}

static void link_plug(struct fabric_link *link, u32 arg)
{
	link_set_plugged(link, true);
}

static void link_blackhole(struct fabric_link *link, u32 arg)
{
	link_silence(link, true);
}

static void link_heal(struct fabric_link *link, u32 arg)
{
	link_silence(link, false);
	link->loss_ppm = 0;
}

static void link_lose(struct fabric_link *link, u32 ppm)
{
	link->loss_ppm = ppm;
}

static void apply_to_links(const struct cable_target *target,
			   void (*act)(struct fabric_link *link, u32 arg), u32 arg)
{
	unsigned int num;

	if (target->link)
		act(target->link, arg);
	for (num = 1; target->sw && num <= target->sw->num_ports; num++)
		if (target->sw->port[num]->link)
			act(target->sw->port[num]->link, arg);
}

static int blackhole(const struct cable_target *target)
{
	/* A switch that is dead inside takes nothing in either, not even from itself. */
	if (target->sw)
		target->sw->blackhole = true;
	else
		link_blackhole(target->link, 0);
	return 0;
}

static int blackhole_tx(const struct cable_target *target)
{
	if (!target->port)
		return cable_fail(-EINVAL, "blackhole-tx is for one end of a link, DEVICE PORT");
	target->port->silent = true;
	return 0;
}

static int heal(const struct cable_target *target)
{
	if (target->sw)
		target->sw->blackhole = false;
	apply_to_links(target, link_heal, 0);
	return 0;
}

static int pull(const struct cable_target *target)
{
	apply_to_links(target, link_pull, 0);
	return 0;
}

static int plug(const struct cable_target *target)
{
	apply_to_links(target, link_plug, 0);
	return 0;
}

static const struct {
	const char *name;
	int (*act)(const struct cable_target *target);
} cable_verbs[] = {
	{ "pull", pull },
	{ "plug", plug },
	{ "blackhole", blackhole },
	{ "blackhole-tx", blackhole_tx },
	{ "heal", heal },
};

static int cable_loss(int argc, char **argv)
{
	struct cable_target target = {};
	int used;
	u32 ppm;

	if (argc < 2)
		return cable_fail(-EINVAL, "loss needs a link and a percentage");
	used = find_target(&target, argc - 1, argv);
	if (used < 0)
		return used;
	if (used != argc - 1)
		return cable_fail(-EINVAL, "too many words at %s", argv[used + 1]);
	if (parse_percent(argv[used], &ppm))
		return -EINVAL;
	apply_to_links(&target, link_lose, ppm);
	return 0;
}

static int cable_seed(int argc, char **argv)
{
	u64 seed;

	if (argc != 1 || kstrtou64(argv[0], 0, &seed))
		return cable_fail(-EINVAL, "seed needs one number");
	prandom_seed_state(&fabric.loss_dice, seed);
	return 0;
}

/* Ends all faults. */
static int cable_mend(int argc, char **argv)
{
	unsigned int i;

	if (argc)
		return cable_fail(-EINVAL, "mend is about all links, not %s", argv[0]);
	for (i = 0; i < fabric.switches; i++)
		fabric.sw[i].blackhole = false;
	for (i = 0; i < fabric.links; i++) {
		link_heal(&fabric.link[i], 0);
		link_plug(&fabric.link[i], 0);
	}
	return 0;
}

static int cable_verb(const char *verb, int argc, char **argv)
{
	struct cable_target target = {};
	unsigned int i;
	int used;

	if (!strcmp(verb, "loss"))
		return cable_loss(argc, argv);
	if (!strcmp(verb, "seed"))
		return cable_seed(argc, argv);
	if (!strcmp(verb, "mend"))
		return cable_mend(argc, argv);
	for (i = 0; i < ARRAY_SIZE(cable_verbs); i++) {
		if (strcmp(verb, cable_verbs[i].name))
			continue;
		used = find_target(&target, argc, argv);
		if (used < 0)
			return used;
		if (used != argc)
			return cable_fail(-EINVAL, "too many words at %s", argv[used]);
		return cable_verbs[i].act(&target);
	}
	return cable_fail(-EINVAL, "unknown command %s", verb);
}

static int cable_command(const char *text, const struct kernel_param *kp)
{
	int argc, ret;
	char **argv;

	argv = argv_split(GFP_KERNEL, text, &argc);
	if (!argv)
		return -ENOMEM;
	spin_lock_irq(&fabric.lock);
	strscpy(cable_reason, "ok", sizeof(cable_reason));
	cable_status = 0;
	if (!fabric.ready)
		ret = cable_fail(-ENODEV, "the fabric is not up");
	else if (!argc)
		ret = cable_fail(-EINVAL, "no command");
	else
		ret = cable_verb(argv[0], argc - 1, argv + 1);
	spin_unlock_irq(&fabric.lock);
	argv_free(argv);
	return ret;
}

static int cable_show_result(char *page, const struct kernel_param *kp)
{
	unsigned long flags;
	int len;

	spin_lock_irqsave(&fabric.lock, flags);
	len = scnprintf(page, PAGE_SIZE, "%d %s\n", cable_status, cable_reason);
	spin_unlock_irqrestore(&fabric.lock, flags);
	return len;
}

/* ---- the list of links ---- */

static void show_end(struct seq_file *to, const struct fabric_port *port)
{
	const struct fabric_node *node = port->node;

	seq_printf(to, "%-10s %2u  %-8s  %-6s  %5u  ", node->name, port->num,
		   port_phys_name(port->phys), port_state_name(port->state),
		   node_is_switch(node) ? node->port[0]->lid : port->lid);
}

static void show_faults(struct seq_file *to, const struct fabric_link *link)
{
	const struct fabric_port *a = link->end[0], *b = link->end[1];

	if (!link->unplugged && !a->node->blackhole && !b->node->blackhole && !a->silent &&
	    !b->silent && !link->loss_ppm)
		seq_puts(to, "-");
	if (link->unplugged)
		seq_puts(to, "pulled ");
	if (a->node->blackhole)
		seq_printf(to, "blackhole(%s) ", a->node->name);
	if (b->node->blackhole)
		seq_printf(to, "blackhole(%s) ", b->node->name);
	if (a->silent && b->silent)
		seq_puts(to, "blackhole ");
	else if (a->silent || b->silent)
		seq_printf(to, "blackhole-tx(%s) ", a->silent ? a->node->name : b->node->name);
	if (link->loss_ppm)
		seq_printf(to, "loss(%u.%04u%%) ", link->loss_ppm / 10000, link->loss_ppm % 10000);
	seq_puts(to, "\n");
}

static int links_show(struct seq_file *to, void *unused)
{
	unsigned int i;

	spin_lock_irq(&fabric.lock);
	for (i = 0; i < fabric.links; i++) {
		const struct fabric_link *link = &fabric.link[i];

		if (!link->end[0] || !link->end[1])
			continue;
		show_end(to, link->end[0]);
		show_end(to, link->end[1]);
		show_faults(to, link);
	}
	spin_unlock_irq(&fabric.lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(links);

static struct dentry *links_dir;

/* What debugfs has no room for is not shown. */
void cable_init(void)
{
	links_dir = debugfs_create_dir("shca", NULL);
	debugfs_create_file("links", 0444, links_dir, NULL, &links_fops);
}

void cable_exit(void)
{
	debugfs_remove(links_dir);
	links_dir = NULL;
}

static const struct kernel_param_ops cable_command_ops = {
	.set = cable_command,
	.get = cable_show_result,
};

module_param_cb(cmd, &cable_command_ops, NULL, 0600);
MODULE_PARM_DESC(cmd, "Fault command (pull, plug, blackhole, blackhole-tx, heal, loss, seed, mend)");
