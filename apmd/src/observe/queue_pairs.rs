// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's RC queue pairs as the kernel module tells of them, in the operators' form.

use std::ops::ControlFlow;

use cm_msgs::{Guid, Qpn};
use serde::{Deserialize, Serialize};
use statemachine::{ConnId, Engine, Time};

use super::connections::name;
use super::model::{KernelModule, ModuleState};
use super::request::Refused;
use crate::config;
use crate::devices::Devices;
use crate::kernel::{Care, Presence, QueuePairs, Seen};

/// In one page.
const SHOWN_MAX: usize = 256;

/// Some of the queue pairs.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct QueuePairPage {
    pub(crate) queue_pairs: Vec<HostQueuePair>,
    /// There may be more: ask for those after this one.
    pub(crate) next: Option<String>,
}

/// A queue pair of the host, managed or not.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct HostQueuePair {
    pub(crate) device: String,
    pub(crate) node_guid: String,
    pub(crate) qpn: u32,
    pub(crate) peer_qpn: u32,
    /// Null: the kernel has told no path of it.
    pub(crate) qp_state: Option<String>,
    /// A kernel module's name, or a command.
    pub(crate) owner: String,
    /// 0: the kernel's.
    pub(crate) pid: i32,
    pub(crate) uid: u32,
    /// The connection that it is managed as.
    pub(crate) connection: Option<String>,
    /// As a connection's; `left alone`, or `waiting`.
    pub(crate) protection: String,
    /// Why it is not armed.
    pub(crate) reason: Option<String>,
}

/// # Errors
/// The module is not there, or `after` names none.
pub(crate) fn page(
    now: Time,
    presence: &Presence,
    all: &QueuePairs,
    engine: &Engine,
    devices: &Devices,
    after: Option<&str>,
) -> Result<QueuePairPage, Refused> {
    let refused = |error: String| Refused { error };
    match presence {
        Presence::Present => {}
        Presence::Absent => {
            let error =
                "the kernel module apm is not loaded, so queue pairs of programs without the \
                         library are not known: `modprobe apm`, see kernel.md; `apmctl conn` shows \
                         what libraries have registered"
                    .to_owned();
            return Err(refused(error));
        }
        Presence::Unusable(why) => {
            return Err(refused(format!(
                "the kernel module apm cannot be used: {why}"
            )));
        }
    }
    let after =
        after.map(|text| position(text).ok_or_else(|| refused(format!("{text}: no queue pair"))));
    let mut page = QueuePairPage::default();
    let walked = all.after(after.transpose()?).try_for_each(|seen| {
        let at = (seen.qp.node_guid, seen.qp.qpn);
        page.queue_pairs.push(show(now, &seen, engine, devices));
        match page.queue_pairs.len() {
            SHOWN_MAX => ControlFlow::Break(at),
            _ => ControlFlow::Continue(()),
        }
    });
    page.next = walked
        .break_value()
        .map(|(guid, qpn)| format!("{:x}/{}", guid.0, qpn.0));
    Ok(page)
}

fn position(text: &str) -> Option<(Guid, Qpn)> {
    let (guid, qpn) = text.split_once('/')?;
    Some((
        Guid(u64::from_str_radix(guid, 16).ok()?),
        Qpn(qpn.parse().ok()?),
    ))
}

fn show(now: Time, seen: &Seen<'_>, engine: &Engine, devices: &Devices) -> HostQueuePair {
    let Seen { qp, client, .. } = seen;
    let (connection, protection, reason) = care(now, seen, engine);
    let device = devices.by_guid(qp.node_guid);
    HostQueuePair {
        device: device.map_or_else(|| qp.node_guid.to_string(), |device| device.name.clone()),
        node_guid: qp.node_guid.to_string(),
        qpn: qp.qpn.0,
        peer_qpn: qp.peer_qpn.0,
        qp_state: qp.snapshot.map(|snapshot| snapshot.qp_state.to_string()),
        owner: client.command.clone().unwrap_or_default(),
        pid: client.peer.pid,
        uid: client.peer.uid,
        connection: connection.map(name),
        protection,
        reason,
    }
}

/// The connection that it is, its protection, and why it has none.
fn care(now: Time, seen: &Seen<'_>, engine: &Engine) -> (Option<ConnId>, String, Option<String>) {
    let waiting = |reason: &str| (None, "waiting".to_owned(), Some(reason.to_owned()));
    if let (Some(why), false) = (seen.qp.left_alone, matches!(seen.care, Care::Connection(_))) {
        return (None, "left alone".to_owned(), Some(why.to_string()));
    }
    match seen.care {
        Care::Connection(id) => match engine.connections_in(now, id..=id).next() {
            Some(view) => {
                let reason = view.reason.map(|reason| reason.to_string());
                (Some(id), view.protection.to_string(), reason)
            }
            None => waiting("it is about to be registered"),
        },
        Care::Astray(lid) => {
            let reason = format!("it leads to LID {lid}, which is not unicast: no port has it");
            (None, "left alone".to_owned(), Some(reason))
        }
        Care::Refused(refusal) => (None, "refused".to_owned(), Some(refusal.to_string())),
        Care::NoPort => waiting("apmd does not manage its device, or does not know its port yet"),
        Care::Turnover => {
            waiting("connections of its user, or of its kernel ULP's peer, come and go too fast")
        }
        Care::NoRoom => waiting(
            "the share of max_connections that its user, or its kernel ULP or peer, has is used up",
        ),
        Care::Awaited => waiting("its program has the library, which may register it"),
        Care::NotConnected => waiting("it is not connected"),
    }
}

/// The module at a glance.
pub(crate) fn module(
    presence: &Presence,
    all: &QueuePairs,
    peers: usize,
    settings: &config::Kernel,
) -> KernelModule {
    let (state, reason) = match presence {
        Presence::Present => (ModuleState::Loaded, None),
        Presence::Absent => (ModuleState::Absent, None),
        Presence::Unusable(why) => (ModuleState::Unusable, Some(why.to_string())),
    };
    let (queue_pairs, left_alone) = all.count();
    KernelModule {
        state,
        reason,
        protect: settings.protect.to_string(),
        except: settings.except.clone(),
        connections: all.connections(),
        queue_pairs,
        left_alone,
        peers,
    }
}
