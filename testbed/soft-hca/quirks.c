// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Faults that real devices have and that keep apmd from protecting connections, given by
 * device when the module is loaded:
 *
 *	quirks=NAME:QUIRK[+QUIRK...],...
 */
#include <linux/module.h>
#include <linux/string.h>
#include "shca.h"

static const char *const quirk_names[] = {
	[SHCA_NO_CM] = "no-cm",
	[SHCA_NO_GID] = "no-gid",
	[SHCA_NO_NODE_GUID] = "no-node-guid",
	[SHCA_EINVAL] = "einval",
	[SHCA_GRH] = "grh",
};

static char *quirks[SHCA_DEVICES];
static unsigned int quirk_count;
module_param_array(quirks, charp, &quirk_count, 0444);
MODULE_PARM_DESC(quirks, "NAME:QUIRK[+QUIRK...] each: no-cm, no-gid, no-node-guid, einval, grh");

/* Takes the quirks of one device from a list. Negative for a word that is none. */
static int parse(const char *words, unsigned long *found)
{
	char text[64], *rest = text, *word;
	int quirk;

	if (strscpy(text, words, sizeof(text)) < 0)
		return -EINVAL;
	while ((word = strsep(&rest, "+"))) {
		quirk = match_string(quirk_names, ARRAY_SIZE(quirk_names), word);
		if (quirk < 0) {
			pr_err("shca: no such quirk: %s\n", word);
			return quirk;
		}
		__set_bit(quirk, found);
	}
	return 0;
}

int shca_quirks_init(struct shca_dev *dev)
{
	size_t len = strlen(dev->name);
	unsigned int i;
	int err;

	for (i = 0; i < quirk_count; i++) {
		if (strncmp(quirks[i], dev->name, len) || quirks[i][len] != ':')
			continue;
		err = parse(quirks[i] + len + 1, &dev->quirks);
		if (err)
			return err;
	}
	if (test_bit(SHCA_NO_NODE_GUID, &dev->quirks))
		dev->rdi.ibdev.node_guid = 0;
	if (test_bit(SHCA_GRH, &dev->quirks))
		dev->rdi.dparms.core_cap_flags |= RDMA_CORE_PORT_IB_GRH_REQUIRED;
	return 0;
}

/* The device has its ports. */
void shca_quirks_ports(struct shca_dev *dev)
{
	struct ib_port_modify modify = { .clr_port_cap_mask = IB_PORT_CM_SUP };
	u32 port;

	if (!test_bit(SHCA_NO_CM, &dev->quirks))
		return;
	for (port = 1; port <= dev->rdi.ibdev.phys_port_cnt; port++)
		fabric_modify_port(shca_port(dev, port)->fabric, 0, &modify);
}

bool shca_has_quirk(struct shca_dev *dev, enum shca_quirk quirk)
{
	return test_bit(quirk, &dev->quirks);
}
