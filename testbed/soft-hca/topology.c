// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Which switches, HCAs and cables there are: three lists, read when the module is
 * loaded. Without them there are two rails of one switch each, and three HCAs.
 *
 *	switches=NAME:PORTS,...		hcas=NAME:PORTS[:SYSTEM],...
 *	cables=NAME.PORT-NAME.PORT,...
 *
 * SYSTEM is the position in the list of the HCA whose system image GUID is also
 * this one's: its own, unless one adapter shows each of its ports as a device.
 */
#include <linux/module.h>
#include <linux/string.h>
#include "fabric_int.h"

static char *switches[FABRIC_MAX_SWITCHES] = { "switch0:9", "switch1:9" };
static unsigned int switch_count = 2;
module_param_array(switches, charp, &switch_count, 0444);
MODULE_PARM_DESC(switches, "Switches, NAME:PORTS each");

static char *hcas[FABRIC_MAX_HCAS] = { "shca0:2", "shca1:2", "shca2:2" };
static unsigned int hca_count = 3;
module_param_array(hcas, charp, &hca_count, 0444);
MODULE_PARM_DESC(hcas, "HCAs, NAME:PORTS[:SYSTEM] each");

static char *cables[FABRIC_MAX_LINKS] = {
	"switch0.1-shca0.1", "switch0.2-shca1.1", "switch0.3-shca2.1",
	"switch1.1-shca0.2", "switch1.2-shca1.2", "switch1.3-shca2.2",
	"switch0.9-switch1.9",
};

static unsigned int cable_count = 7;
module_param_array(cables, charp, &cable_count, 0444);
MODULE_PARM_DESC(cables, "Cables, NAME.PORT-NAME.PORT each");

/* FABRIC_NAME_LEN with its terminating zero */
#define NAME_UNTIL(delimiter) "%15[^" delimiter "]"

struct fabric_node *fabric_find_node(const char *name)
{
	unsigned int i;

	for (i = 0; i < fabric.switches; i++)
		if (!strcmp(name, fabric.sw[i].name))
			return &fabric.sw[i];
	for (i = 0; i < fabric.hcas; i++)
		if (!strcmp(name, fabric.hca[i].name))
			return &fabric.hca[i];
	return NULL;
}

static int node_init(struct fabric_node *node, const char *name, unsigned int ports,
		     unsigned int limit)
{
	if (fabric_find_node(name)) {
		pr_err("shca: two nodes are called %s\n", name);
		return -EINVAL;
	}
	if (ports < 1 || ports > limit) {
		pr_err("shca: %s has %u ports, it may have 1 to %u\n", name, ports, limit);
		return -EINVAL;
	}
	strscpy(node->name, name, sizeof(node->name));
	strscpy(node->desc, name, sizeof(node->desc));
	node->num_ports = ports;
	return 0;
}

static int add_switch(const char *text)
{
	char name[FABRIC_NAME_LEN];
	unsigned int ports;
	int err;

	if (sscanf(text, NAME_UNTIL(":") ":%u", name, &ports) != 2) {
		pr_err("shca: switches: not NAME:PORTS: %s\n", text);
		return -EINVAL;
	}
	err = node_init(&fabric.sw[fabric.switches], name, ports, FABRIC_MAX_PORTS);
	if (!err)
		fabric.switches++;
	return err;
}

static int add_hca(const char *text)
{
	struct fabric_node *node = &fabric.hca[fabric.hcas];
	unsigned int ports, system = fabric.hcas;
	char name[FABRIC_NAME_LEN];
	int err;

	if (sscanf(text, NAME_UNTIL(":") ":%u:%u", name, &ports, &system) < 2 ||
	    system > fabric.hcas) {
		pr_err("shca: hcas: not NAME:PORTS[:SYSTEM]: %s\n", text);
		return -EINVAL;
	}
	err = node_init(node, name, ports, SHCA_PORTS);
	if (err)
		return err;
	node->system = system;
	fabric.hcas++;
	return 0;
}

static int plug_in(struct fabric_link *link, unsigned int end, const char *name,
		   unsigned int port)
{
	struct fabric_node *node = fabric_find_node(name);

	if (!node || port < 1 || port > node->num_ports || node->socket[port].link) {
		pr_err("shca: cables: %s has no free port %u\n", name, port);
		return -EINVAL;
	}
	node->socket[port].link = link;
	node->socket[port].end = end;
	return 0;
}

static int add_cable(const char *text)
{
	struct fabric_link *link = &fabric.link[fabric.links];
	char from[FABRIC_NAME_LEN], to[FABRIC_NAME_LEN];
	unsigned int out, in;
	int err;

	if (sscanf(text, NAME_UNTIL(".") ".%u-" NAME_UNTIL(".") ".%u", from, &out, to, &in) != 4) {
		pr_err("shca: cables: not NAME.PORT-NAME.PORT: %s\n", text);
		return -EINVAL;
	}
	fabric.links++;
	err = plug_in(link, 0, from, out);
	return err ? err : plug_in(link, 1, to, in);
}

static int each(char **list, unsigned int count, int (*add)(const char *text))
{
	unsigned int i;
	int err = 0;

	for (i = 0; i < count && !err; i++)
		err = add(list[i]);
	return err;
}

int topology_build(void)
{
	int err = each(switches, switch_count, add_switch);

	if (!err)
		err = each(hcas, hca_count, add_hca);
	return err ? err : each(cables, cable_count, add_cable);
}
