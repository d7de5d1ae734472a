/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The tracepoints of the group apm. A path is printed as PORT:SLID:DLID, as the daemon's commands
 * have it. The device's name is copied without __string, which takes other arguments since 6.10.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM apm

#if !defined(APM_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define APM_TRACE_H

#include <linux/tracepoint.h>

#include "apm.h"

/* For perf and trace-cmd, which know no enumeration of the kernel. */
TRACE_DEFINE_ENUM(APM_CMD_LOAD);
TRACE_DEFINE_ENUM(APM_CMD_MIGRATE);
TRACE_DEFINE_ENUM(APM_CMD_QUERY);
TRACE_DEFINE_ENUM(APM_CMD_STANDING);
TRACE_DEFINE_ENUM(APM_CMD_MOVE_IDLE);
TRACE_DEFINE_ENUM(APM_CAUSE_DONE);
TRACE_DEFINE_ENUM(APM_CAUSE_STALE);
TRACE_DEFINE_ENUM(APM_CAUSE_FAILED);
TRACE_DEFINE_ENUM(IB_MIG_MIGRATED);
TRACE_DEFINE_ENUM(IB_MIG_REARM);
TRACE_DEFINE_ENUM(IB_MIG_ARMED);
TRACE_DEFINE_ENUM(APM_STAND_MIGRATED);
TRACE_DEFINE_ENUM(APM_STAND_FAILED);
TRACE_DEFINE_ENUM(APM_STAND_UNREADABLE);
TRACE_DEFINE_ENUM(APM_STAND_NOT_ARMED);
TRACE_DEFINE_ENUM(APM_STAND_MOVED);
TRACE_DEFINE_ENUM(APM_STAND_SAME_PORT);

#define apm_show_command(command) \
	__print_symbolic(command, \
			 { APM_CMD_LOAD, "load" }, \
			 { APM_CMD_MIGRATE, "migrate" }, \
			 { APM_CMD_QUERY, "query" }, \
			 { APM_CMD_STANDING, "standing" }, \
			 { APM_CMD_MOVE_IDLE, "move-idle" })

#define apm_show_cause(cause) \
	__print_symbolic(cause, \
			 { APM_CAUSE_DONE, "done" }, \
			 { APM_CAUSE_STALE, "stale" }, \
			 { APM_CAUSE_FAILED, "failed" })

#define apm_show_migration(migration) \
	__print_symbolic(migration, \
			 { IB_MIG_MIGRATED, "migrated" }, \
			 { IB_MIG_REARM, "rearm" }, \
			 { IB_MIG_ARMED, "armed" })

#define apm_show_stand(outcome) \
	__print_symbolic(outcome, \
			 { APM_STAND_MIGRATED, "migrated" }, \
			 { APM_STAND_FAILED, "failed" }, \
			 { APM_STAND_UNREADABLE, "unreadable" }, \
			 { APM_STAND_NOT_ARMED, "not-armed" }, \
			 { APM_STAND_MOVED, "moved" }, \
			 { APM_STAND_SAME_PORT, "same-port" })

/* An order was carried out, or refused: the outcome and the error are those of its report. */
TRACE_EVENT(apm_order,
	TP_PROTO(struct apm_qp *q, const struct apm_order *order, const struct apm_news *news),
	TP_ARGS(q, order, news),
	TP_STRUCT__entry(
		__array(char, device, IB_DEVICE_NAME_MAX)
		__field(u32, qpn)
		__field(u32, token)
		__field(u8, command)
		__field(u8, standing)
		__field(u8, port)
		__field(u16, slid)
		__field(u16, dlid)
		__field(u8, alternate_port)
		__field(u16, alternate_slid)
		__field(u16, alternate_dlid)
		__field(u32, waited_ms)
		__field(u32, outcome)
		__field(int, error)
	),
	TP_fast_assign(
		apm_device_name(q->dev, __entry->device);
		__entry->qpn = q->qpn;
		__entry->token = order->token;
		__entry->command = order->command;
		__entry->standing = order->standing;
		__entry->port = order->primary.port;
		__entry->slid = order->primary.slid;
		__entry->dlid = order->primary.dlid;
		__entry->alternate_port = order->alternate.port;
		__entry->alternate_slid = order->alternate.slid;
		__entry->alternate_dlid = order->alternate.dlid;
		__entry->waited_ms = jiffies_to_msecs(jiffies - order->queued);
		__entry->outcome = news->cause;
		__entry->error = news->error;
	),
	TP_printk("dev=%s qpn=%u %s token=%u primary=%u:%u:%u alternate=%u:%u:%u standing=%u ms=%u outcome=%s error=%d",
		  __entry->device, __entry->qpn, apm_show_command(__entry->command),
		  __entry->token, __entry->port, __entry->slid, __entry->dlid,
		  __entry->alternate_port, __entry->alternate_slid, __entry->alternate_dlid,
		  __entry->standing, __entry->waited_ms, apm_show_cause(__entry->outcome),
		  __entry->error)
);

/* The device was asked to load an alternate: its answer, and the state that was read then. */
TRACE_EVENT(apm_loaded,
	TP_PROTO(struct apm_qp *q, const struct apm_path *alternate, const struct apm_snapshot *now,
		 int error),
	TP_ARGS(q, alternate, now, error),
	TP_STRUCT__entry(
		__array(char, device, IB_DEVICE_NAME_MAX)
		__field(u32, qpn)
		__field(u8, port)
		__field(u16, slid)
		__field(u16, dlid)
		__field(u8, alternate_port)
		__field(u16, alternate_slid)
		__field(u16, alternate_dlid)
		__field(u32, migration)
		__field(int, error)
	),
	TP_fast_assign(
		apm_device_name(q->dev, __entry->device);
		__entry->qpn = q->qpn;
		__entry->port = now->primary.port;
		__entry->slid = now->primary.slid;
		__entry->dlid = now->primary.dlid;
		__entry->alternate_port = alternate->port;
		__entry->alternate_slid = alternate->slid;
		__entry->alternate_dlid = alternate->dlid;
		__entry->migration = now->migration;
		__entry->error = error;
	),
	TP_printk("dev=%s qpn=%u primary=%u:%u:%u alternate=%u:%u:%u migration=%s error=%d",
		  __entry->device, __entry->qpn, __entry->port, __entry->slid, __entry->dlid,
		  __entry->alternate_port, __entry->alternate_slid, __entry->alternate_dlid,
		  apm_show_migration(__entry->migration), __entry->error)
);

/* A queue pair was found on another path than before, whatever moved it. */
TRACE_EVENT(apm_migrated,
	TP_PROTO(struct apm_qp *q, const struct apm_path *from, const struct apm_snapshot *now),
	TP_ARGS(q, from, now),
	TP_STRUCT__entry(
		__array(char, device, IB_DEVICE_NAME_MAX)
		__field(u32, qpn)
		__field(u8, from_port)
		__field(u16, from_slid)
		__field(u16, from_dlid)
		__field(u8, port)
		__field(u16, slid)
		__field(u16, dlid)
		__field(u32, migration)
	),
	TP_fast_assign(
		apm_device_name(q->dev, __entry->device);
		__entry->qpn = q->qpn;
		__entry->from_port = from->port;
		__entry->from_slid = from->slid;
		__entry->from_dlid = from->dlid;
		__entry->port = now->primary.port;
		__entry->slid = now->primary.slid;
		__entry->dlid = now->primary.dlid;
		__entry->migration = now->migration;
	),
	TP_printk("dev=%s qpn=%u from=%u:%u:%u to=%u:%u:%u migration=%s",
		  __entry->device, __entry->qpn, __entry->from_port, __entry->from_slid,
		  __entry->from_dlid, __entry->port, __entry->slid, __entry->dlid,
		  apm_show_migration(__entry->migration))
);

/* A port has failed, and a standing order for it was carried out, or why it was not. */
TRACE_EVENT(apm_standing,
	TP_PROTO(struct apm_qp *q, u8 failed_port, const struct apm_glance *now,
		 enum apm_stand outcome, int error),
	TP_ARGS(q, failed_port, now, outcome, error),
	TP_STRUCT__entry(
		__array(char, device, IB_DEVICE_NAME_MAX)
		__field(u32, qpn)
		__field(u8, failed_port)
		__field(u8, port)
		__field(u16, dlid)
		__field(u8, alternate_port)
		__field(u32, migration)
		__field(u32, outcome)
		__field(int, error)
	),
	TP_fast_assign(
		apm_device_name(q->dev, __entry->device);
		__entry->qpn = q->qpn;
		__entry->failed_port = failed_port;
		__entry->port = now->port;
		__entry->dlid = now->dlid;
		__entry->alternate_port = now->alternate_port;
		__entry->migration = now->migration;
		__entry->outcome = outcome;
		__entry->error = error;
	),
	TP_printk("dev=%s qpn=%u failed-port=%u port=%u dlid=%u alternate-port=%u migration=%s outcome=%s error=%d",
		  __entry->device, __entry->qpn, __entry->failed_port, __entry->port,
		  __entry->dlid, __entry->alternate_port,
		  apm_show_migration(__entry->migration), apm_show_stand(__entry->outcome),
		  __entry->error)
);

#endif

/* Found by -I of Kbuild: define_trace.h reads this file again. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
