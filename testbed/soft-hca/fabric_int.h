/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The fabric's own data: nodes, ports, links. Private to the fabric half.
 *
 * Everything here is guarded by fabric.lock, which is held neither across
 * upcalls nor across anything that sleeps.
 */
#ifndef SHCA_FABRIC_INT_H
#define SHCA_FABRIC_INT_H

#include <linux/prandom.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_smi.h>
#include "fabric.h"

#define FABRIC_NAME_LEN		16
#define FABRIC_MAX_HCAS		16
#define FABRIC_MAX_SWITCHES	32
#define FABRIC_MAX_LINKS	128
#define FABRIC_MAX_PORTS	36		/* external ports of a switch */
#define FABRIC_LFT_ENTRIES	0xc000		/* every unicast LID */
#define FABRIC_MFT_ENTRIES	1024
#define FABRIC_VLS		4		/* PortInfo encoding of VL0-VL7 */
#define FABRIC_VLARB_ENTRIES	32		/* each of low and high priority */
#define FABRIC_NO_PORT		255		/* "drop" in a forwarding table */
#define FABRIC_SLS		16

/* QDR 4X on every link; 1X and the slower speeds are supported, never used. */
#define FABRIC_WIDTHS		(IB_WIDTH_1X | IB_WIDTH_4X)
#define FABRIC_SPEEDS		7

/* PortCounters and PortCountersExtended, IBA 16.1.3.5 and 16.1.4.11 */
enum fabric_counter {
	CNT_SYMBOL_ERRORS,
	CNT_LINK_RECOVERIES,
	CNT_LINK_DOWNED,
	CNT_RCV_ERRORS,
	CNT_RCV_REMPHYS_ERRORS,
	CNT_RCV_SWITCH_RELAY_ERRORS,
	CNT_XMIT_DISCARDS,
	CNT_XMIT_CONSTRAINT_ERRORS,
	CNT_RCV_CONSTRAINT_ERRORS,
	CNT_INTEGRITY_ERRORS,
	CNT_BUFFER_OVERRUNS,
	CNT_VL15_DROPPED,
	CNT_XMIT_DATA,
	CNT_RCV_DATA,
	CNT_XMIT_PKTS,
	CNT_RCV_PKTS,
	CNT_XMIT_WAIT,
	CNT_UNICAST_XMIT_PKTS,
	CNT_UNICAST_RCV_PKTS,
	CNT_MULTICAST_XMIT_PKTS,
	CNT_MULTICAST_RCV_PKTS,
	CNT_COUNT
};

struct fabric_counters {
	u64 total[CNT_COUNT];
	/* What a PMA Set() has taken off either view. */
	u64 base[CNT_COUNT];
	u64 base_ext[CNT_COUNT];
};

/* One trap at a time is on its way to the SM; a newer one takes its place. */
struct fabric_trap {
	struct delayed_work work;
	bool pending;
	u16 issued;
	u64 tid;
	struct ib_mad_notice_attr notice;
};

struct fabric_rx_queue {
	struct list_head packets;
	unsigned int len;
	struct work_struct work;
};

#define FABRIC_EVENTS 64

/* Events for the transport, in order. */
struct fabric_event_queue {
	enum ib_event_type event[FABRIC_EVENTS];
	unsigned int head, len;
	bool overrun;
	struct work_struct work;
};

struct fabric_link {
	struct fabric_port *end[2];	/* NULL: not there (yet, or any more) */
	bool unplugged;
	u32 loss_ppm;
};

struct fabric_port {
	struct fabric_node *node;
	struct fabric_link *link;	/* NULL: no cable, and switch port 0 */
	u8 end;				/* of the link */
	u8 num;
	__be64 guid;
	__be64 more_guids[SHCA_GUIDS - 1];	/* from the subnet manager; 0: none */
	bool silent;			/* fault: what it sends vanishes */

	/* Link and PortInfo, IBA 7.2.7 and 14.2.5.6 */
	u8 phys;			/* enum ib_port_phys_state */
	u8 state;			/* enum ib_port_state */
	u8 link_down_default;
	u8 width_enabled;
	u8 speed_enabled;
	u32 cap_mask;
	__be64 gid_prefix;
	u16 lid;
	u16 sm_lid;
	u8 lmc;
	u8 sm_sl;
	u8 neighbor_mtu;		/* enum ib_mtu */
	u8 op_vls;
	u8 vl_high_limit;
	u8 hoq_life;
	u8 vl_stall;
	u8 enforce;			/* PEI, PEO, FPI, FPO */
	u8 subnet_timeout;
	u8 error_thresholds;
	u8 init_type, init_type_reply;
	u8 led;
	__be64 mkey;
	u8 mkey_protect;
	u16 mkey_lease;			/* seconds; 0 never expires */
	unsigned long mkey_expires;
	bool mkey_expiring;
	u16 mkey_violations;
	u16 pkey_violations;
	u16 qkey_violations;

	u16 pkeys[SHCA_PKEYS];
	u8 sl_to_vl[FABRIC_MAX_PORTS + 1][FABRIC_SLS / 2];	/* by input port */
	struct ib_vl_weight_elem vl_arb[2][FABRIC_VLARB_ENTRIES];

	struct fabric_counters counters;
	struct fabric_rx_queue rx;
	struct fabric_trap trap;	/* of an HCA port, and of switch port 0 */

	struct shca_dev *dev;		/* HCA ports only */
	struct fabric_event_queue events;
};

/* A switch's forwarding, IBA 14.2.5.4 and 18.2.4.3 */
struct fabric_tables {
	u16 lft_top;
	u16 mft_top;
	u8 default_port;
	u8 mcast_primary;
	u8 mcast_secondary;
	u8 life_time;
	bool state_change;
	u8 lft[FABRIC_LFT_ENTRIES];
	u64 mft[FABRIC_MFT_ENTRIES];	/* by port number */
};

struct fabric_node {
	char name[FABRIC_NAME_LEN];
	char desc[IB_DEVICE_NODE_DESC_MAX];
	__be64 guid;
	__be64 system_guid;
	unsigned int system;		/* of an HCA: see topology.c */
	u8 num_ports;
	bool blackhole;			/* fault: nothing passes, links stay up */
	struct fabric_tables *tables;	/* NULL: an HCA */
	struct fabric_port *port[FABRIC_MAX_PORTS + 1];
	struct {
		struct fabric_link *link;	/* NULL: no cable */
		u8 end;
	} socket[FABRIC_MAX_PORTS + 1];
};

struct fabric {
	spinlock_t lock;
	bool ready;
	struct workqueue_struct *wq;
	struct rnd_state loss_dice;

	/* packets on wires, and how many were since wires_run() began */
	struct list_head wires;
	bool wires_running;
	unsigned int crossings;

	unsigned int hcas, switches, links;
	struct fabric_node hca[FABRIC_MAX_HCAS];
	struct fabric_node sw[FABRIC_MAX_SWITCHES];
	struct fabric_link link[FABRIC_MAX_LINKS];
};

extern struct fabric fabric;

static inline bool node_is_switch(const struct fabric_node *node)
{
	return node->tables;
}

/* The port whose M_Key, LID and traps stand for @port: itself, or switch port 0. */
static inline struct fabric_port *management_port(struct fabric_port *port)
{
	return node_is_switch(port->node) ? port->node->port[0] : port;
}

static inline struct fabric_port *port_peer(const struct fabric_port *port)
{
	return port->link ? port->link->end[!port->end] : NULL;
}

/* SMPs travel on VL15, which link states and P_Keys do not stop. */
static inline bool packet_is_smp(const struct shca_packet *pkt)
{
	return pkt->dest_qpn == 0;
}

static inline bool lid_is_multicast(u16 lid)
{
	return lid >= be16_to_cpu(IB_MULTICAST_LID_BASE) &&
	       lid != be16_to_cpu(IB_LID_PERMISSIVE);
}

static inline bool port_has_lid(const struct fabric_port *port, u16 lid)
{
	return port->lid && (lid >> port->lmc) == (port->lid >> port->lmc);
}

static inline void port_count(struct fabric_port *port, enum fabric_counter counter)
{
	port->counters.total[counter]++;
}

/* Ports of any node; these sleep and take the lock themselves. */
struct fabric_port *port_create(struct fabric_node *node, u8 num, __be64 guid);
void port_destroy(struct fabric_port *port);
void port_attach(struct fabric_port *port);

/* topology.c: fills in nodes and links, before anything else is there */
int topology_build(void);
struct fabric_node *fabric_find_node(const char *name);

/* All below are called with fabric.lock held, if they do not say otherwise. */

/* link.c: link training and port states */
void link_train(struct fabric_link *link);
void link_set_plugged(struct fabric_link *link, bool plugged);
void port_retrain(struct fabric_port *port, u8 phys);
void port_set_state(struct fabric_port *port, u8 state);
void port_init_attributes(struct fabric_port *port);
const char *port_state_name(u8 state);
const char *port_phys_name(u8 phys);

/* fabric.c: ports, packets and events */
void port_send(struct fabric_port *from, struct shca_packet *pkt);
void port_enqueue(struct fabric_port *port, struct shca_packet *pkt);
void port_originate(struct fabric_port *port, struct shca_packet *pkt);
void port_event(struct fabric_port *port, enum ib_event_type event);

/* cable.c; sleep, and take no lock */
void cable_init(void);
void cable_exit(void);

/* switch.c */
/* May sleep; take the lock themselves. */
int switch_create(struct fabric_node *sw, unsigned int index);
void switch_destroy(struct fabric_node *sw);

void switch_receive(struct fabric_port *in, struct shca_packet *pkt);
void switch_route(struct fabric_port *in, struct shca_packet *pkt);
/* Takes the lock itself. */
void switch_manage(struct fabric_port *in, struct shca_packet *pkt);

/*
 * sma.c, pma.c: answers a MAD that has come to @port (an HCA port or switch port
 * 0) through link port @local_port; returns IB_MAD_RESULT_*.
 */
int sma_process(struct fabric_port *port, u8 local_port, int flags,
		const struct ib_smp *in, struct ib_smp *out);
int pma_process(struct fabric_port *port, const struct ib_mad *in, struct ib_mad *out);

/* portinfo.c */
struct sma_request {
	struct fabric_port *port;	/* HCA port, or switch port 0 */
	u8 local_port;
	bool set;
	bool ignore_mkey;
	__be64 mkey;
	u32 modifier;
	u8 *data;			/* the attribute: in for Set(), always out */
};

u16 sma_port_info(struct sma_request *rq);
bool sma_mkey_valid(struct fabric_port *port, __be64 mkey, bool set);
/* The port that @num selects for @rq, NULL if there is none. */
struct fabric_port *sma_select_port(struct sma_request *rq, u8 num);

/* trap.c */
void trap_prepare(struct fabric_port *port);
void trap_link_state(struct fabric_node *sw);
void trap_local_change(struct fabric_port *port, u8 change_flags);
void trap_repress(struct fabric_port *port, __be64 tid);
/* May sleep; takes the lock itself. */
void trap_stop(struct fabric_port *port);

#endif
