// SPDX-License-Identifier: MIT OR Apache-2.0
//! What comes from the module's socket, and what is asked because of it.

use std::io;

use cm_msgs::Guid;
use cm_msgs::path::Path;
use statemachine::{FarPort, PortId, Time};

use crate::io::apm_module::{
    ApmModule, Cookie, Heard, KernelQp, KernelReport, Message, ModuleState, Request,
};
use crate::kernel::{ASKED_EVERY, Presence, Reports, TOKENS, Unusable};

use super::{Kernel, UNANSWERED};

/// Datagrams read before others have their turn.
const READ: usize = 1_024;
/// Reports taken in before others have their turn: each may have the engine do something.
const TAKEN_IN: usize = 64;
/// Reports that may wait. More wait in the socket.
const WAITING: usize = 8_192;

/// What the module has said and is not taken in yet.
#[derive(Debug, Default)]
pub(super) struct Unheard {
    pub(super) reports: Reports,
    /// There may be more in the socket, or in `reports`, than one turn took.
    pub(super) is_left: bool,
}

impl Kernel {
    /// The socket is ready, or not all was read or taken in.
    pub(crate) fn handle_ready(&mut self, now: Time) {
        let is_drained = self.read(now);
        for _ in 0..TAKEN_IN {
            let Some(report) = self.unheard.reports.next() else {
                break;
            };
            self.queue_pairs.handle_report(now, &report);
        }
        if is_drained && self.unheard.reports.is_empty() {
            self.handle_drained(now);
        } else {
            // Edge-triggered: the socket does not become ready again for what is left.
            self.unheard.is_left = self.module.is_some();
        }
    }

    /// Reads what there is, or a part of it. Whether all was read.
    fn read(&mut self, now: Time) -> bool {
        for _ in 0..READ {
            if self.unheard.reports.len() >= WAITING {
                return false;
            }
            let Some(module) = &mut self.module else {
                return false;
            };
            match module.receive() {
                Ok(Some(heard)) => {
                    for heard in heard {
                        self.hear(now, heard);
                    }
                }
                Ok(None) => return true,
                Err(error) => {
                    tracing::error!(%error, "the kernel module is not listened to any more: restart apmd");
                    self.module = None;
                    self.vanish(now, Presence::Unusable(Unusable::from(&error)));
                    return false;
                }
            }
        }
        false
    }

    /// What a queue pair has reported is taken in before anything else that is said of it.
    fn take_in(&mut self, now: Time, cookie: Cookie) {
        for report in self.unheard.reports.take(cookie) {
            self.queue_pairs.handle_report(now, &report);
        }
    }

    /// A report waits for its turn.
    fn handle_report(&mut self, now: Time, report: KernelReport) {
        match self.queue_pairs.place(report.cookie) {
            Some(place) => self.unheard.reports.push(place, report),
            None => self.queue_pairs.handle_report(now, &report),
        }
    }

    /// All has been read: what the kernel says from now on is heard.
    fn handle_drained(&mut self, now: Time) {
        if self.resync.handle_drained(now) {
            tracing::debug!("the kernel module said more than there was room for");
            // Answers to orders, maybe.
            self.queue_pairs.forget_orders();
        }
        while let Some(request) = self.resync.poll(now) {
            match request {
                Request::Dump => self.queue_pairs.begin_dump(),
                // Whether it is answered or not.
                Request::State => self.resync.want(now + ASKED_EVERY, Request::State),
                Request::Family | Request::Settings => {}
            }
            if let Err(error) = self.request(request) {
                self.handle_not_answered(now, request, &error);
            }
        }
    }

    fn request(&self, request: Request) -> io::Result<()> {
        let Some(module) = &self.module else {
            return Ok(());
        };
        match request {
            Request::Family => module.ask_family(),
            Request::Dump => module.dump(),
            Request::Settings => module.configure(self.settings.protect, self.settings.rules()),
            Request::State => module.ask_state(),
        }
    }

    fn hear(&mut self, now: Time, heard: Heard) {
        let is_present = self.presence == Presence::Present;
        match heard {
            Heard::Appeared => self.appear(now),
            Heard::StillThere => self.resync.handle_still_there(now, is_present),
            // Asked for at the start, it need not be there.
            Heard::Vanished if self.presence == Presence::Absent => self.resync.clear(),
            Heard::Vanished => {
                tracing::info!("kernel module apm unloaded: queue pairs keep what was loaded");
                self.vanish(now, Presence::Absent);
            }
            // Of one that is not used nothing counts.
            Heard::Said(message) if is_present => self.handle_said(now, message),
            Heard::Said(_) => {}
            Heard::Dumped => {
                if self.resync.handle_dumped() {
                    self.queue_pairs.end_dump(now);
                    self.search(now, self.queue_pairs.known_devices());
                }
            }
            Heard::Configured => {
                self.traps.health_mut().handle_settings(false);
                self.resync.handle_configured();
            }
            Heard::NotAnswered(request, error) => self.handle_not_answered(now, request, &error),
            Heard::Refused(UNANSWERED, error) => {
                tracing::debug!(%error, "queue pair not taken up by the kernel module");
            }
            Heard::Refused(token @ TOKENS.., error) => {
                if let Some((port, lid)) = self.peers.handle_refused(token) {
                    let port = port.port;
                    tracing::warn!(port, %lid, %error, "ACK timeouts towards a peer are not bounded: the kernel module refuses it");
                }
            }
            Heard::Refused(token, error) => {
                tracing::debug!(token, %error, "order refused by the kernel module");
                if let Some(cookie) = self.queue_pairs.with_token(token) {
                    self.take_in(now, cookie);
                }
                let errno = error.raw_os_error().unwrap_or_default();
                self.queue_pairs.handle_refused(token, errno.unsigned_abs());
            }
            Heard::Overrun => self.resync.handle_loss(),
        }
    }

    fn handle_said(&mut self, now: Time, message: Message) {
        match message {
            Message::New(queue_pair) => self.handle_new(now, *queue_pair),
            Message::Connecting {
                node_guid,
                payer,
                primary,
            } => self.peers.expect(far_port(node_guid, &primary), payer),
            Message::Gone(cookie) => {
                self.take_in(now, cookie);
                self.queue_pairs.handle_gone(now, cookie);
            }
            Message::Report(report) => self.handle_report(now, *report),
            Message::State(state) => self.handle_state(now, state),
            _ => {}
        }
    }

    fn handle_state(&mut self, now: Time, state: ModuleState) {
        if state.moves_idle {
            self.queue_pairs.handle_moves_idle();
        }
        if self.traps.health_mut().handle_state(state) {
            self.search(now, self.queue_pairs.known_devices());
        }
    }

    fn handle_new(&mut self, now: Time, queue_pair: KernelQp) {
        self.take_in(now, queue_pair.cookie);
        self.patrol.begin(now);
        if let (Some(snapshot), None) = (&queue_pair.snapshot, queue_pair.left_alone) {
            let far = far_port(queue_pair.node_guid, &snapshot.primary);
            self.peers.expect(far, queue_pair.owner.payer);
        }
        if queue_pair.owner.pid.is_none() && queue_pair.left_alone.is_none() {
            self.traps.look_soon(now);
        }
        self.queue_pairs.handle_new(now, queue_pair);
    }

    /// What was asked cannot be done, now or ever.
    fn handle_not_answered(&mut self, now: Time, request: Request, error: &io::Error) {
        let is_wanted = request == Request::Family || self.presence == Presence::Present;
        match error.raw_os_error() {
            _ if !is_wanted => {}
            // An earlier version has none to tell of.
            _ if request == Request::State => {
                tracing::debug!(%error, "the kernel module does not say whether its probes work");
            }
            // If it is the right to all that lacks, the dump says so.
            Some(libc::EPERM) if request == Request::Settings => {
                tracing::warn!(
                    "kernel module apm keeps its settings: they can be changed from the initial network namespace only"
                );
                self.traps.health_mut().handle_settings(true);
                self.resync.handle_configured();
            }
            // The module has gone, and that is yet to be heard or was lost.
            Some(libc::ENOENT) => self.resync.handle_loss(),
            // It may not even be there: that is no reason to call it unusable.
            Some(errno) if may_pass(errno) || request == Request::Family => {
                tracing::warn!(?request, %error, "request to the kernel module refused: it is asked again");
                self.resync.ask_again(now, request);
            }
            _ => self.fail(now, error),
        }
    }

    fn appear(&mut self, now: Time) {
        if self.presence == Presence::Present {
            // It was unloaded and loaded again while nothing was heard of it.
            self.vanish(now, Presence::Absent);
        }
        if let Some(why) = self.distrust() {
            tracing::warn!("kernel module apm is not used: {why}");
            self.resync.clear();
            self.presence = Presence::Unusable(why);
            return;
        }
        match self.module.as_ref().map(ApmModule::listen) {
            None => {}
            Some(Ok(())) => {
                let (protect, except) = (self.settings.protect, &self.settings.except);
                tracing::info!(%protect, ?except, "kernel module apm is there");
                self.presence = Presence::Present;
                self.resync.begin(now);
                self.resync.want(now, Request::State);
            }
            Some(Err(error)) => self.fail(now, &error),
        }
    }

    /// Why the module is not used on this kernel, by the settings; what they accept is logged.
    fn distrust(&self) -> Option<Unusable> {
        if let Some(why) = self.traps.foreign_ib_core() {
            if self.settings.strict {
                return Some(Unusable::Foreign(why));
            }
            tracing::warn!("{why}");
        }
        if let Some(why) = self.traps.unsafe_kernel() {
            if !self.settings.allow_unfixed {
                return Some(Unusable::Unfixed(why));
            }
            tracing::warn!("{why}");
        }
        None
    }

    /// The module is there, and does not do what is asked.
    fn fail(&mut self, now: Time, error: &io::Error) {
        tracing::warn!(%error, "kernel module apm is loaded, but cannot be used");
        // Nothing is to be told of while it is not used.
        if let Some(Err(error)) = self.module.as_ref().map(ApmModule::leave) {
            tracing::debug!(%error, "the kernel module's events are still told");
        }
        self.vanish(now, Presence::Unusable(Unusable::from(error)));
    }

    fn vanish(&mut self, now: Time, presence: Presence) {
        self.presence = presence;
        self.unheard.reports.clear();
        self.resync.clear();
        self.traps.health_mut().clear();
        self.queue_pairs.handle_vanished(now);
        self.peers.clear();
        self.older.end();
    }
}

/// Whether the kernel may do another time what it refuses with this: it lacks memory, or is still about
/// an earlier dump.
const fn may_pass(errno: i32) -> bool {
    matches!(
        errno,
        libc::ENOMEM | libc::ENOBUFS | libc::EAGAIN | libc::EINTR | libc::EBUSY
    )
}

fn far_port(node_guid: Guid, primary: &Path) -> FarPort {
    FarPort {
        port: PortId::new(node_guid, primary.port),
        lid: primary.dlid,
        partition: primary.pkey.partition(),
    }
}

#[cfg(test)]
mod tests {
    use std::iter;
    use std::sync::Arc;

    use mio::{Poll, Waker};
    use statemachine::Input;

    use super::*;
    use crate::config::Config;
    use crate::io::apm_module::{Cause, Owner};
    use crate::kernel::HostKernel;
    use crate::parts::kernel::Note;
    use crate::registrations::Room;

    const NOW: Time = Time(1_000_000);

    /// Without a socket: nothing is sent.
    fn kernel(presence: Presence) -> Kernel {
        let poll = Poll::new().expect("epoll");
        let waker = Waker::new(poll.registry(), mio::Token(0)).expect("eventfd");
        let room = Room::new(100);
        let mut kernel = Kernel::new(&Config::default(), room, poll.registry(), Arc::new(waker));
        kernel.module = None;
        kernel.presence = presence;
        kernel.resync.clear();
        kernel
    }

    fn queue_pair(cookie: u64) -> Heard {
        Heard::Said(Message::New(Box::new(KernelQp {
            cookie: Cookie(cookie),
            node_guid: Guid(0x11),
            qpn: cm_msgs::Qpn(0x100),
            peer_qpn: cm_msgs::Qpn(0x22),
            role: None,
            left_alone: None,
            owner: Owner::default(),
            retries: None,
            snapshot: None,
        })))
    }

    fn not_answered(request: Request, errno: i32) -> Heard {
        Heard::NotAnswered(request, io::Error::from_raw_os_error(errno))
    }

    #[test]
    fn a_module_that_is_not_used_is_not_listened_to() {
        for presence in [
            Presence::Absent,
            Presence::Unusable(Unusable::Failed(String::new())),
        ] {
            let mut kernel = kernel(presence);
            kernel.hear(NOW, queue_pair(1));
            assert_eq!(kernel.queue_pairs.count(), (0, 0));
            kernel.hear(NOW, not_answered(Request::Dump, libc::EPERM));
            kernel.hear(NOW, not_answered(Request::Settings, libc::ENOMEM));
            assert_eq!(kernel.resync.poll_timeout(), None);
        }
        let mut kernel = kernel(Presence::Present);
        kernel.hear(NOW, queue_pair(1));
        assert_eq!(kernel.queue_pairs.count(), (1, 0));
    }

    #[test]
    fn on_a_kernel_without_the_fix_the_module_is_used_only_if_that_is_allowed() {
        for (has_fix, allow_unfixed, is_used) in [
            (false, false, false),
            (false, true, true),
            (true, false, true),
        ] {
            let mut kernel = kernel(Presence::Absent);
            let host = HostKernel::new("6.1.0-48-amd64", "#1 SMP", Some(has_fix));
            kernel.traps.set_host(host);
            kernel.settings.allow_unfixed = allow_unfixed;
            kernel.hear(NOW, Heard::Appeared);
            let is_refused = matches!(kernel.presence, Presence::Unusable(Unusable::Unfixed(_)));
            assert_eq!(
                is_refused, !is_used,
                "fix: {has_fix}, allowed: {allow_unfixed}"
            );
        }
    }

    #[test]
    fn an_ib_core_that_is_not_the_kernels_own_is_a_warning_and_distrusted_if_strict() {
        for (is_foreign, strict, is_used) in [
            (true, true, false),
            (true, false, true),
            (false, true, true),
        ] {
            let mut kernel = kernel(Presence::Absent);
            let ofed = is_foreign.then(|| "24.10-1.1.4 (taint OE)".to_owned());
            let host = HostKernel::new("6.8.0", "#1 SMP", Some(true));
            kernel
                .traps
                .set_host(host.with_foreign_ib_core(ofed, Some(true)));
            kernel.settings.strict = strict;
            kernel.hear(NOW, Heard::Appeared);
            let is_distrusted = matches!(
                &kernel.presence,
                Presence::Unusable(Unusable::Foreign(why)) if why.contains("ib_core 24.10-1.1.4")
            );
            assert_eq!(
                is_distrusted, !is_used,
                "foreign: {is_foreign}, strict: {strict}"
            );
            kernel.presence = Presence::Present;
            let warnings = kernel.warnings().concat();
            assert_eq!(warnings.contains("ib_core 24.10-1.1.4"), is_foreign);
        }
    }

    fn report(cookie: u64) -> Heard {
        Heard::Said(Message::Report(Box::new(KernelReport {
            cookie: Cookie(cookie),
            cause: Cause::Changed,
            token: None,
            errno: 0,
            snapshot: None,
        })))
    }

    #[test]
    fn reports_wait_for_their_turn_and_are_taken_in_before_what_is_said_later() {
        let mut kernel = kernel(Presence::Present);
        kernel.hear(NOW, report(1));
        assert!(
            kernel.unheard.reports.is_empty(),
            "an unknown one's tells nothing"
        );
        for cookie in 1..=3 {
            kernel.hear(NOW, queue_pair(cookie));
            kernel.hear(NOW, report(cookie));
        }
        assert_eq!(kernel.unheard.reports.len(), 3);
        kernel.hear(NOW, queue_pair(1));
        kernel.hear(NOW, Heard::Said(Message::Gone(Cookie(2))));
        assert_eq!(kernel.unheard.reports.len(), 1);
        kernel.handle_ready(NOW);
        assert!(kernel.unheard.reports.is_empty());
        kernel.hear(NOW, report(1));
        kernel.hear(NOW, Heard::Vanished);
        assert!(kernel.unheard.reports.is_empty(), "nothing is known of any");
    }

    #[test]
    fn what_is_lacking_now_is_asked_for_again_and_what_is_forbidden_is_not() {
        let mut kernel = kernel(Presence::Present);
        kernel.hear(NOW, queue_pair(1));
        kernel.hear(NOW, not_answered(Request::Settings, libc::ENOMEM));
        assert_eq!(kernel.presence, Presence::Present);
        assert!(kernel.resync.poll_timeout() > Some(NOW));
        kernel.hear(NOW, not_answered(Request::Dump, libc::EPERM));
        assert!(
            matches!(&kernel.presence, Presence::Unusable(why) if why.to_string().contains("CAP_NET_ADMIN"))
        );
        assert_eq!(kernel.queue_pairs.count(), (0, 0));
        assert_eq!(kernel.resync.poll_timeout(), None);
    }

    #[test]
    fn settings_that_another_namespace_keeps_are_a_problem_and_the_module_is_used() {
        let mut kernel = kernel(Presence::Present);
        kernel.hear(NOW, queue_pair(1));
        kernel.hear(NOW, not_answered(Request::Settings, libc::EPERM));
        assert_eq!(kernel.presence, Presence::Present);
        let problems = kernel.problems().concat();
        assert!(problems.contains("initial network namespace"), "{problems}");
        kernel.hear(NOW, Heard::Configured);
        assert!(kernel.problems().is_empty());
    }

    #[test]
    fn a_module_without_probes_to_tell_of_is_used() {
        let mut kernel = kernel(Presence::Present);
        kernel.hear(NOW, not_answered(Request::State, libc::EOPNOTSUPP));
        assert_eq!(kernel.presence, Presence::Present);
        let blind = ModuleState {
            working: false,
            missed: 0,
            lost_messages: 0,
            moves_idle: false,
        };
        kernel.hear(NOW, Heard::Said(Message::State(blind)));
        assert_eq!(kernel.problems().len(), 1);
        let moves = |note: &Note| matches!(note, Note::Engine(input) if matches!(**input, Input::MovesIdle(_)));
        let said =
            |kernel: &mut Kernel| iter::from_fn(|| kernel.poll_note()).any(|note| moves(&note));
        assert!(!said(&mut kernel), "nor does it move what is idle");
        let moves_idle = ModuleState {
            moves_idle: true,
            ..blind
        };
        kernel.hear(NOW, Heard::Said(Message::State(moves_idle)));
        assert!(said(&mut kernel));
    }

    #[test]
    fn settings_that_the_module_has_taken_are_not_sent_again_after_a_loss() {
        let mut kernel = kernel(Presence::Present);
        kernel.resync.want(NOW, Request::Settings);
        kernel.handle_drained(NOW);
        kernel.hear(NOW, Heard::Configured);
        kernel.hear(NOW, Heard::Overrun);
        kernel.handle_drained(NOW);
        kernel.hear(NOW, Heard::StillThere);
        assert_eq!(kernel.resync.poll(NOW), Some(Request::Dump));
        assert_eq!(kernel.resync.poll(NOW), None);
    }

    #[test]
    fn a_module_that_came_again_unheard_begins_anew() {
        let mut kernel = kernel(Presence::Present);
        kernel.hear(NOW, queue_pair(1));
        kernel.hear(NOW, Heard::Appeared);
        assert_eq!(kernel.queue_pairs.count(), (0, 0));
    }

    #[test]
    fn after_a_loss_nothing_is_asked_before_all_has_been_read() {
        let mut kernel = kernel(Presence::Present);
        kernel.hear(NOW, Heard::Overrun);
        // Said before the loss, and waiting since.
        kernel.hear(NOW, queue_pair(1));
        assert_eq!(kernel.resync.poll_timeout(), None);
        kernel.handle_drained(NOW);
        kernel.hear(NOW, Heard::StillThere);
        kernel.handle_drained(NOW);
        // Its end was lost: the dump does not tell of it.
        kernel.hear(NOW, Heard::Dumped);
        assert_eq!(kernel.queue_pairs.count(), (0, 0));
    }
}
