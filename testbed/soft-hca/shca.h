/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The transport half of the software HCA: device, queue pairs, protocol.
 *
 * Locks: a queue pair is worked on with both r_lock and s_lock held, in this
 * order, which is rdmavt's (shca_qp_lock()). Sending, receiving and timers are
 * thereby serialised for each QP; the fabric never calls up while one of its
 * own locks is held, so shca_packet_free() and fabric_transmit() are the only
 * things called outwards from under them, besides completions.
 */
#ifndef SHCA_H
#define SHCA_H

#include <linux/kfifo.h>
#include <linux/pci.h>
#include <linux/platform_device.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <rdma/ib_hdrs.h>
#include <rdma/rdma_vt.h>
#include <rdma/rdmavt_qp.h>
#include "fabric.h"
#include "packet.h"

#define SHCA_PSN_MASK 0xffffff
#define SHCA_MAX_RD_ATOMIC 16
#define SHCA_MAX_SGE 16
#define SHCA_MAX_WR 16384
#define SHCA_DEVICES 16		/* at most */
#define SHCA_QP_EVENTS 16	/* waiting at one QP; a power of two */

struct shca_port {
	struct rvt_ibport rvp;
	struct fabric_port *fabric;
	u16 rvt_pkeys[SHCA_PKEYS];	/* for rdmavt's own bookkeeping; never read */

	/* Copies of sent multicasts, on their way to other QPs of this port. */
	struct shca_dev *dev;
	u32 num;
	spinlock_t copies_lock;		/* of copies */
	struct list_head copies;
	struct work_struct copies_work;
};

/* Faults of a device (quirks.c) */
enum shca_quirk {
	SHCA_NO_CM,		/* no port has communication management in its capability mask */
	SHCA_NO_GID,		/* no port has a GID */
	SHCA_NO_NODE_GUID,
	SHCA_GRH,		/* ports require a GRH, by their flags only: packets go without */
	SHCA_EINVAL,		/* querying a port fails, and so do most of its files in sysfs */
};

struct shca_dev {
	struct rvt_dev_info rdi;	/* first: rdmavt allocates the device */
	struct list_head list;
	struct shca_port port[SHCA_PORTS];
	struct platform_device *parent;	/* where IPoIB links are found from the HCA */
	struct pci_dev *pci;		/* for rdmavt's messages: nothing but a name */
	char name[16];
	struct workqueue_struct *wq;
	struct xarray qpns;
	u32 next_qpn;
	bool hears;			/* takes packets: its QP table exists */
	bool tells;			/* ib_core wants to know of port events */
	unsigned long quirks;

	/* firmware */
	unsigned int number;
	struct {
		int (*query_qp)(struct ib_qp *qp, struct ib_qp_attr *attr, int mask,
				struct ib_qp_init_attr *init);
		int (*modify_qp)(struct ib_qp *qp, struct ib_qp_attr *attr, int mask,
				 struct ib_udata *udata);
	} done_at_once;			/* rdmavt's verbs */
};

static inline struct shca_dev *to_shca(struct ib_device *ibdev)
{
	return container_of(ibdev, struct shca_dev, rdi.ibdev);
}

static inline struct shca_port *shca_port(struct shca_dev *dev, u32 port_num)
{
	return &dev->port[port_num - 1];
}

/* A place in the scatter/gather list of a send WQE, kept from packet to packet. */
struct shca_cursor {
	struct rvt_sge_state ss;
	struct rvt_swqe *wqe;
	u32 psn;
};

/* An atomic that was executed: a repeated request is answered from here. */
struct shca_saved_atomic {
	bool valid;
	u8 opcode;
	u32 psn;
	u64 result;
};

enum shca_message { SHCA_NO_MESSAGE, SHCA_SEND, SHCA_WRITE };

struct shca_qp {
	struct rvt_qp *qp;
	struct shca_dev *dev;
	struct work_struct send_work;

	/* asynchronous events, told by a worker since their handlers may use the QP */
	DECLARE_KFIFO(events, u8, SHCA_QP_EVENTS);
	struct work_struct events_work;

	/* requester: qp->s_psn is the next PSN to send, within or before WQE s_cur */
	u32 una;			/* lowest PSN not acknowledged */
	u32 snd_max;			/* one above the highest PSN ever sent */
	u32 reads_out;			/* READ and atomic requests not yet answered */
	bool cautious;			/* nothing was heard since a timeout */
	bool implied_nak;		/* has gone back for the gap at una already */
	unsigned long ack_deadline;
	bool tell_drained;		/* SQ_DRAINED is still to be raised */
	struct shca_cursor tx;
	struct shca_cursor rx;

	/* responder */
	enum shca_message message;	/* the one in progress */
	bool reuse_rwqe;		/* a receive WQE is held, unused, from a broken message */
	struct rvt_sge_state scatter;
	u64 write_addr;
	u32 write_rkey;
	u32 write_left;
	struct shca_saved_atomic atomics[2 * SHCA_MAX_RD_ATOMIC];
	u32 next_atomic;
	u64 answered[SHCA_MAX_RD_ATOMIC];	/* when the last READs and atomics were */
	u32 next_answered;

	/* automatic path migration */
	bool refusal_told;		/* PATH_MIG_ERR was raised in this APM state */
	bool forced;			/* being migrated by modify QP */
	const struct ib_gid_attr *lost_sgid;	/* see shca_apm_before_modify() */
};

static inline struct shca_qp *to_shca_qp(struct rvt_qp *qp)
{
	return qp->priv;
}

static inline unsigned long shca_qp_lock(struct rvt_qp *qp)
{
	unsigned long flags;

	spin_lock_irqsave(&qp->r_lock, flags);
	spin_lock(&qp->s_lock);
	return flags;
}

static inline void shca_qp_unlock(struct rvt_qp *qp, unsigned long flags)
{
	spin_unlock(&qp->s_lock);
	spin_unlock_irqrestore(&qp->r_lock, flags);
}

/* Signed distance of two 24-bit PSNs, scaled: only its sign says something. */
static inline int psn_cmp(u32 a, u32 b)
{
	return (int)((a - b) << 8);
}

static inline u32 psn_diff(u32 a, u32 b)
{
	return (a - b) & SHCA_PSN_MASK;
}

/* verbs.c */
extern const struct ib_device_ops shca_ops;
extern const struct rvt_operation_params shca_post_parms[RVT_OPERATION_MAX];
extern const enum ib_wc_opcode shca_wc_opcode[RVT_OPERATION_MAX];
void shca_set_limits(struct rvt_driver_params *dparms, __be64 guid);

/* qp.c */
extern const struct rvt_driver_provided shca_rvt_ops;
void shca_qp_event(struct rvt_qp *qp, enum ib_event_type type);
void shca_qp_fatal(struct rvt_qp *qp, enum ib_wc_status status);
bool shca_send_run(struct shca_qp *sq, unsigned int budget);
void shca_kick(struct shca_qp *sq);
bool shca_copy_out(struct rvt_sge_state *ss, void *to, u32 len);

/* path.c */
void shca_address(struct shca_dev *dev, u32 port_num, const struct rdma_ah_attr *ah,
		  struct shca_packet *pkt);
void shca_connected_address(struct rvt_qp *qp, struct shca_packet *pkt);
void shca_transmit(struct rvt_qp *qp, struct shca_packet *pkt);
u64 shca_packets_sent(void);
bool shca_path_matches(struct shca_dev *dev, const struct rdma_ah_attr *ah, u32 ah_port,
		       u32 port_num, const struct shca_packet *pkt);
u16 shca_pkey(struct shca_dev *dev, u32 port_num, u16 index);
bool shca_pkeys_match(u16 a, u16 b);
bool shca_own_gid(struct shca_dev *dev, u32 port_num, union ib_gid *gid);

/* apm.c */
bool shca_apm_admit(struct shca_qp *sq, u32 port_num, const struct shca_packet *pkt);
bool shca_apm_migrate_on_exhaustion(struct shca_qp *sq);
bool shca_apm_migreq(const struct rvt_qp *qp);
void shca_apm_before_modify(struct shca_qp *sq, const struct ib_qp_attr *attr, int mask);
void shca_apm_after_modify(struct shca_qp *sq, const struct ib_qp_attr *attr, int mask);

/* rc_req.c */
bool shca_rc_send_next(struct shca_qp *sq);
void shca_rc_response(struct shca_qp *sq, const struct shca_packet *pkt);
void shca_rc_restart(struct rvt_qp *qp, u32 psn, int wait);
void shca_req_reset(struct shca_qp *sq, u32 psn);
void shca_req_check_drained(struct shca_qp *sq);

/* rc_resp.c */
#define SHCA_READ_CHUNK 16	/* packets one RDMA READ request asks for; see rc_req.c */
void shca_rc_request(struct shca_qp *sq, const struct shca_packet *pkt);
void shca_uc_request(struct shca_qp *sq, const struct shca_packet *pkt);
void shca_resp_reset(struct shca_qp *sq);

/* receive.c */
bool shca_is_multicast(u16 dlid);
void shca_copy_multicast(struct shca_port *port, const struct shca_packet *pkt);
void shca_copies_init(struct shca_port *port);
void shca_copies_stop(struct shca_port *port);

/* firmware.c */
void shca_firmware_init(struct shca_dev *dev);

/* quirks.c; the device has its name */
int shca_quirks_init(struct shca_dev *dev);
void shca_quirks_ports(struct shca_dev *dev);
bool shca_has_quirk(struct shca_dev *dev, enum shca_quirk quirk);

/* ud.c */
bool shca_ud_send_next(struct shca_qp *sq);
void shca_ud_receive(struct shca_qp *sq, u32 port_num, const struct shca_packet *pkt);

#endif
