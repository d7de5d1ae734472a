// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Traps (IBA vol. 1, 13.4.9 and 14.2.5.1): 128 from a switch whose links have
 * changed, 144 from an HCA whose attributes have. Each is repeated to the SM's
 * LID until TrapRepress.
 */
#include <linux/jiffies.h>
#include "fabric_int.h"
#include "unaligned.h"

#define TRAP_LINK_STATE	cpu_to_be16(128)

/* The longest a trap and its TrapRepress may be on their way, within reason. */
static unsigned long repeat_delay(const struct fabric_port *port)
{
	u64 ns = 4096ULL << min_t(u8, port->subnet_timeout, 19);

	return max(nsecs_to_jiffies(ns), msecs_to_jiffies(100));
}

static struct shca_packet *trap_packet(const struct fabric_port *port)
{
	struct shca_packet *pkt = shca_packet_alloc(IB_MGMT_MAD_SIZE, GFP_ATOMIC);
	struct ib_smp *smp;

	if (!pkt)
		return NULL;
	pkt->slid = port->lid;
	pkt->dlid = port->sm_lid;
	pkt->sl = port->sm_sl;
	pkt->vl = 15;
	pkt->opcode = IB_OPCODE_UD_SEND_ONLY;
	pkt->pkey = IB_DEFAULT_PKEY_FULL;

	smp = (struct ib_smp *)pkt->payload;
	smp->base_version = IB_MGMT_BASE_VERSION;
	smp->mgmt_class = IB_MGMT_CLASS_SUBN_LID_ROUTED;
	smp->class_version = 1;
	smp->method = IB_MGMT_METHOD_TRAP;
	smp->tid = cpu_to_be64(port->trap.tid);
	smp->attr_id = IB_SMP_ATTR_NOTICE;
	BUILD_BUG_ON(sizeof(port->trap.notice) != IB_SMP_DATA_SIZE);
	memcpy(smp->data, &port->trap.notice, IB_SMP_DATA_SIZE);
	return pkt;
}

static void trap_run(struct work_struct *work)
{
	struct fabric_port *port = container_of(to_delayed_work(work), struct fabric_port,
						trap.work);
	struct shca_packet *pkt;

	spin_lock_irq(&fabric.lock);
	if (port->trap.pending) {
		pkt = trap_packet(port);
		if (pkt)
			port_originate(port, pkt);
		queue_delayed_work(fabric.wq, &port->trap.work, repeat_delay(port));
	}
	spin_unlock_irq(&fabric.lock);
}

/* A fresh notice for the SM; where none is known yet, it will look for itself. */
static struct ib_mad_notice_attr *trap_compose(struct fabric_port *port, u8 type, __be16 producer,
					       __be16 number)
{
	struct ib_mad_notice_attr *notice = &port->trap.notice;

	if (!port->lid || !port->sm_lid)
		return NULL;
	memset(notice, 0, sizeof(*notice));
	notice->generic_type = type;
	notice->prod_type_lsb = producer;
	notice->trap_num = number;
	notice->issuer_lid = cpu_to_be16(port->lid);
	/* NoticeToggle and NoticeCount: no two notices in a row are alike. */
	port->trap.issued++;
	notice->toggle_count = cpu_to_be16((port->trap.issued & 1) << 15 |
					   (port->trap.issued & 0x7fff));
	return notice;
}

static void trap_issue(struct fabric_port *port)
{
	port->trap.tid++;
	port->trap.pending = true;
	mod_delayed_work(fabric.wq, &port->trap.work, 0);
}

void trap_link_state(struct fabric_node *sw)
{
	struct fabric_port *port0 = sw->port[0];
	struct ib_mad_notice_attr *notice;

	sw->tables->state_change = true;
	notice = trap_compose(port0, IB_NOTICE_TYPE_URGENT, IB_NOTICE_PROD_SWITCH,
			      TRAP_LINK_STATE);
	if (!notice)
		return;
	/* LIDADDR, the only detail of trap 128 */
	put_unaligned_be16(port0->lid, notice->details.raw_data.details);
	trap_issue(port0);
}

void trap_local_change(struct fabric_port *port, u8 change_flags)
{
	struct ib_mad_notice_attr *notice;

	if (port->state < IB_PORT_ARMED)
		return;
	notice = trap_compose(port, IB_NOTICE_TYPE_INFO, IB_NOTICE_PROD_CA,
			      IB_NOTICE_TRAP_CAP_MASK_CHG);
	if (!notice)
		return;
	notice->details.ntc_144.lid = cpu_to_be16(port->lid);
	notice->details.ntc_144.new_cap_mask = cpu_to_be32(port->cap_mask);
	if (change_flags) {
		notice->details.ntc_144.local_changes = 1;
		notice->details.ntc_144.change_flags = change_flags;
	}
	trap_issue(port);
}

void trap_repress(struct fabric_port *port, __be64 tid)
{
	if (port->trap.pending && be64_to_cpu(tid) == port->trap.tid) {
		port->trap.pending = false;
		cancel_delayed_work(&port->trap.work);
	}
}

void trap_prepare(struct fabric_port *port)
{
	INIT_DELAYED_WORK(&port->trap.work, trap_run);
}

void trap_stop(struct fabric_port *port)
{
	spin_lock_irq(&fabric.lock);
	port->trap.pending = false;
	spin_unlock_irq(&fabric.lock);
	cancel_delayed_work_sync(&port->trap.work);
}
