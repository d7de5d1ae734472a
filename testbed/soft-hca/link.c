// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Link training and port states (IBA vol. 1, 7.2.7), and what they set off:
 * events on an HCA, PortStateChange and trap 128 on a switch.
 */
#include "fabric_int.h"

const char *port_state_name(u8 state)
{
	switch (state) {
	case IB_PORT_DOWN:
		return "Down";
	case IB_PORT_INIT:
		return "Init";
	case IB_PORT_ARMED:
		return "Armed";
	case IB_PORT_ACTIVE:
		return "Active";
	default:
		return "?";
	}
}

const char *port_phys_name(u8 phys)
{
	switch (phys) {
	case IB_PORT_PHYS_STATE_SLEEP:
		return "Sleep";
	case IB_PORT_PHYS_STATE_POLLING:
		return "Polling";
	case IB_PORT_PHYS_STATE_DISABLED:
		return "Disabled";
	case IB_PORT_PHYS_STATE_LINK_UP:
		return "LinkUp";
	default:
		return "?";
	}
}

void port_set_state(struct fabric_port *port, u8 state)
{
	u8 old = port->state;

	if (state == old)
		return;
	port->state = state;

	if (port->dev) {
		if (state == IB_PORT_ACTIVE)
			port_event(port, IB_EVENT_PORT_ACTIVE);
		else if (old == IB_PORT_ACTIVE || state == IB_PORT_DOWN)
			port_event(port, IB_EVENT_PORT_ERR);
	} else if (state == IB_PORT_DOWN || old == IB_PORT_DOWN) {
		trap_link_state(port->node);
	}
}

/* A disabled end never trains; two sleeping ends do not wake each other. */
static bool link_can_train(const struct fabric_link *link)
{
	const struct fabric_port *a = link->end[0], *b = link->end[1];

	if (link->unplugged || !a || !b)
		return false;
	if (a->phys == IB_PORT_PHYS_STATE_DISABLED || b->phys == IB_PORT_PHYS_STATE_DISABLED)
		return false;
	return a->phys != IB_PORT_PHYS_STATE_SLEEP || b->phys != IB_PORT_PHYS_STATE_SLEEP;
}

void link_train(struct fabric_link *link)
{
	bool up = link_can_train(link);
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(link->end); i++) {
		struct fabric_port *port = link->end[i];

		if (!port)
			continue;
		if (up && port->phys != IB_PORT_PHYS_STATE_LINK_UP) {
			port->phys = IB_PORT_PHYS_STATE_LINK_UP;
			port_set_state(port, IB_PORT_INIT);
		} else if (!up && port->phys == IB_PORT_PHYS_STATE_LINK_UP) {
			port->phys = port->link_down_default;
			port_count(port, CNT_LINK_DOWNED);
			port_set_state(port, IB_PORT_DOWN);
		}
	}
}

void link_set_plugged(struct fabric_link *link, bool plugged)
{
	link->unplugged = !plugged;
	link_train(link);
}

/*
 * Set(PortInfo) with PortState Down or a PortPhysicalState: the link falls, and
 * comes back to Init at once if both ends may train.
 */
void port_retrain(struct fabric_port *port, u8 phys)
{
	struct fabric_port *peer = port_peer(port);

	port->phys = phys;
	port_set_state(port, IB_PORT_DOWN);
	if (peer && peer->phys == IB_PORT_PHYS_STATE_LINK_UP) {
		peer->phys = peer->link_down_default;
		port_count(peer, CNT_LINK_DOWNED);
		port_set_state(peer, IB_PORT_DOWN);
	}
	if (port->link)
		link_train(port->link);
}

/* What an HCA or switch reports before a subnet manager has touched it. */
void port_init_attributes(struct fabric_port *port)
{
	unsigned int in, sl, i;

	port->phys = IB_PORT_PHYS_STATE_POLLING;
	port->state = IB_PORT_DOWN;
	port->link_down_default = IB_PORT_PHYS_STATE_POLLING;
	port->width_enabled = FABRIC_WIDTHS;
	port->speed_enabled = FABRIC_SPEEDS;
	port->gid_prefix = cpu_to_be64(0xfe80000000000000ULL);
	port->neighbor_mtu = IB_MTU_4096;
	port->op_vls = FABRIC_VLS;
	port->subnet_timeout = 18;
	port->error_thresholds = 0x88;
	port->pkeys[0] = IB_DEFAULT_PKEY_FULL;

	for (in = 0; in <= FABRIC_MAX_PORTS; in++)
		for (sl = 0; sl < FABRIC_SLS; sl += 2)
			port->sl_to_vl[in][sl / 2] = (sl % 8) << 4 | (sl + 1) % 8;
	for (i = 0; i < FABRIC_VLARB_ENTRIES; i++) {
		port->vl_arb[0][i].vl = i % 8;
		port->vl_arb[0][i].weight = i < 8 ? 1 : 0;
	}
}
