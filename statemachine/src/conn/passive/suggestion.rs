// SPDX-License-Identifier: MIT OR Apache-2.0
//! SAP until SPR: the passive side says how it is, and which port the alternate should end at.

use alloc::boxed::Box;
use core::time::Duration;

use cm_msgs::cm::{Sap, SpStatus, Spr};
use cm_msgs::control::Mode;
use cm_msgs::path::Path;

use super::Passive;
use crate::backoff::Backoff;
use crate::conn::Core;
use crate::conn::announcement::Announcement;
use crate::conn::association::CommIds;
use crate::conn::peer::News;
use crate::context::{ConnAlarm, Context};
use crate::guard::guard;
use crate::input::MadSource;
use crate::port::Port;
use crate::trace::{Drop, What};
use cm_msgs::association::State;

/// Pauses after SPRs that said busy.
const BUSY: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

/// What became of the last SAP.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
enum Step {
    /// Nothing is outstanding.
    #[default]
    Idle,
    /// It has no SPR yet.
    Sent(Box<Announcement>),
    /// The next one goes out when the timer says.
    Pausing,
}

/// How the passive side makes itself heard.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Suggestion {
    step: Step,
    /// SAPs in a row without success.
    failures: u32,
    /// The policy is another than the peer may have found out.
    policy: bool,
}

impl Suggestion {
    /// Sends a SAP, if there is something to say and none is outstanding.
    pub(super) fn drive(&mut self, core: &mut Core, cx: &mut Context, open: Option<CommIds>) {
        if guard!(OneSap, matches!(self.step, Step::Idle))
            && open.is_some()
            && (core.has_news() || self.policy || core.asks_state(cx))
            && core.has_room(cx)
        {
            core.state_asked(cx);
            let transaction = cx.transaction();
            let announcement = Box::new(Announcement::new(core, transaction));
            self.send(core, cx, open, announcement);
        }
    }

    /// Whether a SAP has no answer.
    pub(super) fn is_in_flight(&self) -> bool {
        matches!(&self.step, Step::Sent(announcement) if announcement.is_in_flight())
    }

    pub(super) fn timeout(&mut self, core: &mut Core, cx: &mut Context, open: Option<CommIds>) {
        if let Step::Sent(announcement) = core::mem::take(&mut self.step) {
            self.send(core, cx, open, announcement);
        }
    }

    fn send(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        open: Option<CommIds>,
        mut announcement: Box<Announcement>,
    ) {
        let Some(ids) = open else {
            return;
        };
        let sap = sap(core, cx, ids);
        cx.trace(
            core.id,
            What::SapSent {
                suggests: !sap.alternate_local_port_gid.is_unspecified(),
            },
        );
        match announcement.send(core, cx, || sap.into()) {
            Some(wait) => {
                cx.set(core.id, ConnAlarm::Announcement, wait);
                self.step = Step::Sent(announcement);
            }
            None => {
                core.round_trip.unanswered(cx);
                let wait = cx.backoff_delay(self.failures);
                self.pause(core, cx, wait);
            }
        }
    }

    fn pause(&mut self, core: &Core, cx: &mut Context, wait: Duration) {
        self.failures += 1;
        self.step = Step::Pausing;
        cx.set(core.id, ConnAlarm::Announcement, wait);
    }

    /// Something changed: a pause is over.
    pub(super) fn trigger(&mut self, core: &Core, cx: &mut Context) {
        self.failures = 0;
        if let Step::Pausing = self.step {
            self.stop(core, cx);
        }
    }

    /// The peer is to look again for an alternate that the policy allows.
    fn policy_changed(&mut self, core: &Core, cx: &mut Context) {
        self.policy = true;
        self.trigger(core, cx);
    }

    /// Nothing is outstanding any more.
    pub(super) fn stop(&mut self, core: &Core, cx: &mut Context) {
        if let Step::Sent(announcement) = core::mem::take(&mut self.step) {
            announcement.take_back(cx);
        }
        cx.stop(core.id, ConnAlarm::Announcement);
    }

    /// Whether a SPR with this transaction ID was waited for.
    fn answered(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        transaction: u32,
        spr: SpStatus,
    ) -> bool {
        match core::mem::take(&mut self.step) {
            Step::Sent(announcement) if announcement.is_answered_by(transaction) => {
                cx.stop(core.id, ConnAlarm::Announcement);
                if spr == SpStatus::Busy {
                    let wait = cx.jitter(BUSY.after(self.failures));
                    self.pause(core, cx, wait);
                } else {
                    // Whatever it thinks of the suggestion, it has the state.
                    self.failures = 0;
                    self.policy = false;
                    announcement.answered(core, cx);
                }
                true
            }
            other => {
                self.step = other;
                false
            }
        }
    }
}

impl Passive {
    /// It is time to say where the connection belongs.
    pub(in crate::conn) fn ask_again(&mut self, core: &Core, cx: &mut Context) {
        self.suggestion.trigger(core, cx);
    }

    /// What may be an alternate is another thing than before.
    pub(in crate::conn) fn policy_changed(&mut self, core: &Core, cx: &mut Context) {
        self.suggestion.policy_changed(core, cx);
    }

    pub(super) fn spr(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        source: &MadSource,
        spr: &Spr,
    ) -> bool {
        let ids = CommIds::from_peer(spr.local_comm_id, spr.remote_comm_id);
        if self.open != Some(ids) {
            return false;
        }
        let Ok(state) = State::decode(&spr.private_data) else {
            cx.drop_mad(source, "SPR", Drop::Malformed);
            return true;
        };
        self.peer_says(core, cx, source, &state);
        let status = SpStatus::from(spr.sp_status);
        let taken = self
            .suggestion
            .answered(core, cx, source.transaction_id, status);
        if taken {
            cx.trace(core.id, What::SprReceived(status));
        }
        taken
    }

    /// The peer's daemon says how its end is.
    pub(super) fn peer_says(
        &mut self,
        core: &mut Core,
        cx: &mut Context,
        source: &MadSource,
        state: &State,
    ) {
        let news = core.peer.update(state);
        core.note_sender(cx, source);
        if news == News::Ports {
            core.complete_paths(cx);
        }
    }
}

/// A SAP. It names a port where the connection has no alternate that would work from here, and that
/// its policy allows, and where it belongs on another port than it is on.
fn sap(core: &Core, cx: &Context, ids: CommIds) -> Sap {
    let is_good = |path: &&Path| !core.distrusted && core.is_up(cx, path) && core.allows(cx, path);
    let alternate = core.loaded().filter(is_good);
    let suspect = alternate.filter(|path| core.is_suspect(cx, path));
    let port = match (alternate, suspect, core.policy(cx).mode) {
        (Some(_), None, _) => None,
        (_, _, Mode::Lid) => core.port_of(cx, &core.qp.primary),
        (_, suspect, Mode::Any | Mode::Port) => {
            better_port(core, cx, suspect.map(|path| path.port))
        }
    };
    let destination = core.destination(cx);
    let destination = destination.and_then(|port| cx.ports.of_path(core.node_guid, port));
    let port = destination.or(port);
    let status = port.map(|port| &port.status);
    Sap {
        local_comm_id: ids.local,
        remote_comm_id: ids.remote,
        remote_qpn_eecn: core.peer_qpn,
        alternate_local_port_lid: status.map(|status| status.lid).unwrap_or_default(),
        alternate_local_port_gid: status.map(|status| status.gid).unwrap_or_default(),
        private_data: core.own.state().encode(),
    }
}

/// A port that an alternate could end at, apart from the primary's and from `other`.
fn better_port<'a>(core: &Core, cx: &'a Context, other: Option<u8>) -> Option<&'a Port> {
    let primary = &core.qp.primary;
    let fits = |port: &&Port| {
        port.is_settled()
            && port.id.port != primary.port
            && Some(port.id.port) != other
            && port.has_pkey(primary.pkey)
            && port.status.mtu >= primary.mtu
    };
    let ports = cx.ports.of_device(core.node_guid).filter(fits);
    ports.min_by_key(|port| cx.ports.is_drained(port.id))
}
