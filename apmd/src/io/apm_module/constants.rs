// SPDX-License-Identifier: MIT OR Apache-2.0
//! Made from kernel/apm.yaml by cargo xtask kernel-header: change that.
#![allow(dead_code, reason = "it specifies more than the daemon uses")]

pub(super) const FAMILY: &str = "apm";
pub(super) const VERSION: u8 = 1;
pub(super) const GROUP_EVENTS: &str = "events";

pub(super) mod role {
    pub(in crate::io::apm_module) const UNKNOWN: u32 = 0;
    pub(in crate::io::apm_module) const ACTIVE: u32 = 1;
    pub(in crate::io::apm_module) const PASSIVE: u32 = 2;
}

pub(super) mod cause {
    pub(in crate::io::apm_module) const DONE: u32 = 0;
    pub(in crate::io::apm_module) const STALE: u32 = 1;
    pub(in crate::io::apm_module) const FAILED: u32 = 2;
    pub(in crate::io::apm_module) const ARMED: u32 = 3;
    pub(in crate::io::apm_module) const PATH_MIGRATED: u32 = 4;
    pub(in crate::io::apm_module) const PATH_MIG_ERR: u32 = 5;
    pub(in crate::io::apm_module) const CHANGED: u32 = 6;
    pub(in crate::io::apm_module) const BROKEN: u32 = 7;
}

pub(super) mod refusal {
    pub(in crate::io::apm_module) const NONE: u32 = 0;
    pub(in crate::io::apm_module) const OWNER: u32 = 1;
    pub(in crate::io::apm_module) const OWN_APM: u32 = 2;
    pub(in crate::io::apm_module) const RESPONDER_ONLY: u32 = 3;
    pub(in crate::io::apm_module) const LOOPBACK: u32 = 4;
    pub(in crate::io::apm_module) const NO_APM: u32 = 5;
}

pub(super) mod protect {
    pub(in crate::io::apm_module) const NONE: u32 = 0;
    pub(in crate::io::apm_module) const ULPS: u32 = 1;
    pub(in crate::io::apm_module) const ALL: u32 = 2;
}

pub(super) mod probes {
    pub(in crate::io::apm_module) const BLIND: u32 = 0;
    pub(in crate::io::apm_module) const WORKING: u32 = 1;
}

pub(super) mod a_path {
    pub(in crate::io::apm_module) const PORT: u16 = 1;
    pub(in crate::io::apm_module) const SL: u16 = 2;
    pub(in crate::io::apm_module) const MTU: u16 = 3;
    pub(in crate::io::apm_module) const RATE: u16 = 4;
    pub(in crate::io::apm_module) const ACK_TIMEOUT: u16 = 5;
    pub(in crate::io::apm_module) const SLID: u16 = 6;
    pub(in crate::io::apm_module) const DLID: u16 = 7;
    pub(in crate::io::apm_module) const PKEY: u16 = 8;
    pub(in crate::io::apm_module) const SGID: u16 = 9;
    pub(in crate::io::apm_module) const DGID: u16 = 10;
    pub(in crate::io::apm_module) const GLOBAL: u16 = 11;
}

pub(super) mod a_rule {
    pub(in crate::io::apm_module) const NAME: u16 = 1;
    pub(in crate::io::apm_module) const UID: u16 = 2;
    pub(in crate::io::apm_module) const CGROUP: u16 = 3;
}

pub(super) mod a_qp {
    pub(in crate::io::apm_module) const PAD: u16 = 1;
    pub(in crate::io::apm_module) const COOKIE: u16 = 2;
    pub(in crate::io::apm_module) const TOKEN: u16 = 3;
    pub(in crate::io::apm_module) const CAUSE: u16 = 4;
    pub(in crate::io::apm_module) const ERRNO: u16 = 5;
    pub(in crate::io::apm_module) const DEV_INDEX: u16 = 6;
    pub(in crate::io::apm_module) const DEV_NAME: u16 = 7;
    pub(in crate::io::apm_module) const NODE_GUID: u16 = 8;
    pub(in crate::io::apm_module) const QPN: u16 = 9;
    pub(in crate::io::apm_module) const PEER_QPN: u16 = 10;
    pub(in crate::io::apm_module) const QP_STATE: u16 = 11;
    pub(in crate::io::apm_module) const MIGRATION: u16 = 12;
    pub(in crate::io::apm_module) const PRIMARY: u16 = 13;
    pub(in crate::io::apm_module) const ALTERNATE: u16 = 14;
    pub(in crate::io::apm_module) const ROLE: u16 = 15;
    pub(in crate::io::apm_module) const REFUSAL: u16 = 16;
    pub(in crate::io::apm_module) const OWNER_NAME: u16 = 17;
    pub(in crate::io::apm_module) const OWNER_PID: u16 = 18;
    pub(in crate::io::apm_module) const OWNER_UID: u16 = 19;
    pub(in crate::io::apm_module) const OWNER_START: u16 = 20;
    pub(in crate::io::apm_module) const STANDING: u16 = 21;
    pub(in crate::io::apm_module) const PROTECT: u16 = 22;
    pub(in crate::io::apm_module) const SWALLOW: u16 = 23;
    pub(in crate::io::apm_module) const RULES: u16 = 24;
    pub(in crate::io::apm_module) const RETRIES: u16 = 25;
    pub(in crate::io::apm_module) const CHARGED_UID: u16 = 26;
    pub(in crate::io::apm_module) const PROBES: u16 = 27;
    pub(in crate::io::apm_module) const MISSED_HITS: u16 = 28;
    pub(in crate::io::apm_module) const LOST_MESSAGES: u16 = 29;
    pub(in crate::io::apm_module) const MOVES_IDLE: u16 = 30;
}

pub(super) mod a_rule_list {
    pub(in crate::io::apm_module) const RULE: u16 = 1;
}

pub(super) mod cmd {
    pub(in crate::io::apm_module) const GET: u8 = 1;
    pub(in crate::io::apm_module) const LOAD: u8 = 2;
    pub(in crate::io::apm_module) const MIGRATE: u8 = 3;
    pub(in crate::io::apm_module) const QUERY: u8 = 4;
    pub(in crate::io::apm_module) const STANDING: u8 = 5;
    pub(in crate::io::apm_module) const CONFIG: u8 = 6;
    pub(in crate::io::apm_module) const NEW: u8 = 7;
    pub(in crate::io::apm_module) const DEL: u8 = 8;
    pub(in crate::io::apm_module) const REPORT: u8 = 9;
    pub(in crate::io::apm_module) const PEER: u8 = 10;
    pub(in crate::io::apm_module) const CONNECTING: u8 = 11;
    pub(in crate::io::apm_module) const MOVE_IDLE: u8 = 12;
}
