// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* PortInfo (IBA vol. 1, 14.2.5.6) and the M_Key that guards a port (14.2.4). */
#include <linux/jiffies.h>
#include "fabric_int.h"

#define SPEED_ACTIVE		4	/* QDR */
#define RESP_TIME		16	/* 4.096 us * 2^16 = 268 ms */
#define CLIENT_REREGISTER	0x80
#define INVALID			IB_MGMT_MAD_STATUS_INVALID_ATTRIB_VALUE

bool sma_mkey_valid(struct fabric_port *port, __be64 mkey, bool set)
{
	if (port->mkey_expiring && time_after_eq(jiffies, port->mkey_expires)) {
		port->mkey_expiring = false;
		port->mkey_protect = 0;
	}
	if (!port->mkey || port->mkey == mkey) {
		port->mkey_expiring = false;
		return true;
	}
	if (!set && port->mkey_protect < 2)
		return true;

	if (port->mkey_violations != U16_MAX)
		port->mkey_violations++;
	if (port->mkey_lease && !port->mkey_expiring) {
		port->mkey_expiring = true;
		port->mkey_expires = jiffies + port->mkey_lease * HZ;
	}
	return false;
}

/* M_Key, LID, SM: HCA ports and switch port 0 have them, a switch's links do not. */
static bool has_lid(const struct fabric_port *port)
{
	return !node_is_switch(port->node) || port->num == 0;
}

static void get_port_info(const struct sma_request *rq, const struct fabric_port *port,
			  struct ib_port_info *pi)
{
	memset(pi, 0, sizeof(*pi));
	if (has_lid(port)) {
		/* Whoever may Set() has shown the M_Key that was valid until then. */
		if (!port->mkey_protect || port->mkey == rq->mkey || rq->set || rq->ignore_mkey)
			pi->mkey = port->mkey;
		pi->gid_prefix = port->gid_prefix;
		pi->lid = cpu_to_be16(port->lid);
		pi->sm_lid = cpu_to_be16(port->sm_lid);
		pi->cap_mask = cpu_to_be32(port->cap_mask);
		pi->mkey_lease_period = cpu_to_be16(port->mkey_lease);
		pi->mkey_violations = cpu_to_be16(port->mkey_violations);
		pi->guid_cap = node_is_switch(port->node) ? 1 : SHCA_GUIDS;
		pi->resv_resptimevalue = RESP_TIME;
	}
	pi->local_port_num = rq->local_port;
	pi->link_width_enabled = port->width_enabled;
	pi->link_width_supported = FABRIC_WIDTHS;
	pi->link_width_active = IB_WIDTH_4X;
	pi->linkspeed_portstate = FABRIC_SPEEDS << 4 | port->state;
	pi->portphysstate_linkdown = port->phys << 4 | port->link_down_default;
	pi->mkeyprot_resv_lmc = port->mkey_protect << 6 | port->lmc;
	pi->linkspeedactive_enabled = SPEED_ACTIVE << 4 | port->speed_enabled;
	pi->neighbormtu_mastersmsl = port->neighbor_mtu << 4 | port->sm_sl;
	pi->vlcap_inittype = FABRIC_VLS << 4 | port->init_type;
	pi->vl_high_limit = port->vl_high_limit;
	pi->vl_arb_high_cap = FABRIC_VLARB_ENTRIES;
	pi->vl_arb_low_cap = FABRIC_VLARB_ENTRIES;
	pi->inittypereply_mtucap = port->init_type_reply << 4 | IB_MTU_4096;
	pi->vlstallcnt_hoqlife = port->vl_stall << 5 | port->hoq_life;
	pi->operationalvl_pei_peo_fpi_fpo = port->op_vls << 4 | port->enforce;
	pi->pkey_violations = cpu_to_be16(port->pkey_violations);
	pi->qkey_violations = cpu_to_be16(port->qkey_violations);
	pi->clientrereg_resv_subnetto = port->subnet_timeout;
	pi->localphyerrors_overrunerrors = port->error_thresholds;
}

/* ---- Set() ---- */

/* 0 means no change, all ones mean whatever is supported. */
static bool enable_valid(u8 value, u8 supported, u8 all)
{
	return value == 0 || value == all || !(value & ~supported);
}

static u8 enable_chosen(u8 value, u8 supported, u8 all, u8 now)
{
	if (value == 0)
		return now;
	return value == all ? supported : value;
}

static bool lid_field_valid(__be16 field, u16 now)
{
	u16 lid = be16_to_cpu(field);

	return lid == now || (lid && lid < be16_to_cpu(IB_MULTICAST_LID_BASE));
}

/* A repeated Set() is the same request again, not an illegal transition. */
static bool transition_valid(const struct fabric_port *port, u8 state, u8 phys)
{
	if (phys > IB_PORT_PHYS_STATE_DISABLED)
		return false;
	switch (state) {
	case IB_PORT_NOP:
	case IB_PORT_DOWN:
		return true;
	case IB_PORT_ARMED:
		return !phys && (port->state == IB_PORT_INIT || port->state == IB_PORT_ARMED);
	case IB_PORT_ACTIVE:
		return !phys && (port->state == IB_PORT_ARMED || port->state == IB_PORT_ACTIVE);
	default:
		return false;
	}
}

static bool port_info_valid(const struct fabric_port *port, const struct ib_port_info *pi)
{
	u8 mtu = pi->neighbormtu_mastersmsl >> 4;

	if (has_lid(port) && (!lid_field_valid(pi->lid, port->lid) ||
			      !lid_field_valid(pi->sm_lid, port->sm_lid)))
		return false;
	if (mtu < IB_MTU_256 || mtu > IB_MTU_4096 ||
	    pi->operationalvl_pei_peo_fpi_fpo >> 4 > FABRIC_VLS ||
	    (pi->portphysstate_linkdown & 0xf) > IB_PORT_PHYS_STATE_POLLING ||
	    !enable_valid(pi->link_width_enabled, FABRIC_WIDTHS, 0xff) ||
	    !enable_valid(pi->linkspeedactive_enabled & 0xf, FABRIC_SPEEDS, 0xf))
		return false;
	return port->num == 0 || transition_valid(port, pi->linkspeed_portstate & 0xf,
						  pi->portphysstate_linkdown >> 4);
}

static void set_identity(struct fabric_port *port, const struct ib_port_info *pi)
{
	u16 lid = be16_to_cpu(pi->lid), sm_lid = be16_to_cpu(pi->sm_lid);
	u8 sm_sl = pi->neighbormtu_mastersmsl & 0xf;
	u8 lmc = pi->mkeyprot_resv_lmc & 7;

	port->mkey = pi->mkey;
	port->mkey_protect = pi->mkeyprot_resv_lmc >> 6;
	port->mkey_lease = be16_to_cpu(pi->mkey_lease_period);
	port->mkey_expiring = false;
	if (!pi->mkey_violations)
		port->mkey_violations = 0;
	port->subnet_timeout = pi->clientrereg_resv_subnetto & 0x1f;
	port->init_type_reply = pi->inittypereply_mtucap >> 4;

	if (port->gid_prefix != pi->gid_prefix) {
		port->gid_prefix = pi->gid_prefix;
		port_event(port, IB_EVENT_GID_CHANGE);
	}
	if (port->lid != lid || port->lmc != lmc) {
		port->lid = lid;
		port->lmc = lmc;
		port_event(port, IB_EVENT_LID_CHANGE);
	}
	if (port->sm_lid != sm_lid || port->sm_sl != sm_sl) {
		port->sm_lid = sm_lid;
		port->sm_sl = sm_sl;
		port_event(port, IB_EVENT_SM_CHANGE);
	}
	if (pi->clientrereg_resv_subnetto & CLIENT_REREGISTER)
		port_event(port, IB_EVENT_CLIENT_REREGISTER);
}

static void set_link(struct fabric_port *port, const struct ib_port_info *pi)
{
	port->width_enabled = enable_chosen(pi->link_width_enabled, FABRIC_WIDTHS, 0xff,
					    port->width_enabled);
	port->speed_enabled = enable_chosen(pi->linkspeedactive_enabled & 0xf, FABRIC_SPEEDS,
					    0xf, port->speed_enabled);
	if (pi->portphysstate_linkdown & 0xf)
		port->link_down_default = pi->portphysstate_linkdown & 0xf;
	if (pi->operationalvl_pei_peo_fpi_fpo >> 4)
		port->op_vls = pi->operationalvl_pei_peo_fpi_fpo >> 4;
	port->neighbor_mtu = pi->neighbormtu_mastersmsl >> 4;
	port->vl_high_limit = pi->vl_high_limit;
	port->error_thresholds = pi->localphyerrors_overrunerrors;
	if (!pi->pkey_violations)
		port->pkey_violations = 0;
	if (!pi->qkey_violations)
		port->qkey_violations = 0;
	if (node_is_switch(port->node)) {
		port->hoq_life = pi->vlstallcnt_hoqlife & 0x1f;
		port->vl_stall = pi->vlstallcnt_hoqlife >> 5;
		port->enforce = pi->operationalvl_pei_peo_fpi_fpo & 0xf;
	}
}

static void set_state(struct fabric_port *port, u8 state, u8 phys)
{
	if (phys)
		port_retrain(port, phys);
	else if (state == IB_PORT_DOWN)
		port_retrain(port, port->link_down_default);
	else if (state != IB_PORT_NOP)
		port_set_state(port, state);
}

u16 sma_port_info(struct sma_request *rq)
{
	struct ib_port_info *pi = (struct ib_port_info *)rq->data;
	struct fabric_port *port = sma_select_port(rq, rq->modifier & 0xff);
	u8 reregister = 0;

	if (!port || rq->modifier > 0xff)
		return INVALID;
	if (rq->set) {
		struct ib_port_info wanted = *pi;

		if (!port_info_valid(port, &wanted))
			return INVALID;
		reregister = wanted.clientrereg_resv_subnetto & CLIENT_REREGISTER;
		set_link(port, &wanted);
		if (has_lid(port))
			set_identity(port, &wanted);
		if (port->num)
			set_state(port, wanted.linkspeed_portstate & 0xf,
				  wanted.portphysstate_linkdown >> 4);
	}
	get_port_info(rq, port, pi);
	pi->clientrereg_resv_subnetto |= reregister;
	return IB_MGMT_MAD_STATUS_SUCCESS;
}
