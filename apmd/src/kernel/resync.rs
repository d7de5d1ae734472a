// SPDX-License-Identifier: MIT OR Apache-2.0
//! When the module is asked again, because something that it said was lost or a request was refused.
//!
//! The kernel says once that a socket has overrun, ahead of what waits there already, and drops what
//! comes until that has been read. Whoever asks at once loses the answer as well, and takes for new what
//! is old. So nothing is asked before all has been read. What was lost may also be that the module has
//! gone, or has come: that is asked first, then which queue pairs there are.

use std::time::Duration;

use statemachine::{Backoff, Time, Timers};

use crate::io::apm_module::Request;

/// After a first failure, doubling up to the other.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// What is to be asked, and what has been.
#[derive(Debug)]
pub(crate) struct Resync {
    lost: bool,
    /// One of those that have an end: the family or a dump.
    under_way: Option<Request>,
    /// Settings have been sent, and neither their answer nor their refusal has been read.
    unconfirmed: bool,
    next: Timers<Request>,
    /// Of those that something was lost of.
    losses: Backoff,
    refusals: Backoff,
}

impl Resync {
    /// The socket has been opened, which asks for the family.
    pub(crate) fn new() -> Self {
        Self {
            lost: false,
            under_way: Some(Request::Family),
            unconfirmed: false,
            next: Timers::default(),
            losses: Backoff::new(PAUSE, PAUSE_MAX),
            refusals: Backoff::new(PAUSE, PAUSE_MAX),
        }
    }

    /// The module is there, and knows nothing of us; what is known of it was another's.
    pub(crate) fn begin(&mut self, now: Time) {
        self.clear();
        self.want(now, Request::Dump);
        self.want(now, Request::Settings);
    }

    /// To be asked as soon as all has been read.
    pub(crate) fn want(&mut self, now: Time, request: Request) {
        self.next.set(request, now);
    }

    /// The module is gone, or is not used: there is nothing to be asked. It may have come again, if
    /// something was lost.
    pub(crate) fn clear(&mut self) {
        self.under_way = None;
        self.unconfirmed = false;
        self.next = Timers::default();
        self.losses.reset();
        self.refusals.reset();
    }

    /// Something was lost.
    pub(crate) fn handle_loss(&mut self) {
        self.lost = true;
    }

    /// All has been read. Whether something was lost before.
    pub(crate) fn handle_drained(&mut self, now: Time) -> bool {
        if !std::mem::take(&mut self.lost) {
            return false;
        }
        // The same may happen again: others have their turn meanwhile.
        let at = match self.under_way.take() {
            Some(_) => now + self.losses.next_delay(),
            None => now,
        };
        // A dump comes after it.
        self.next.cancel(&Request::Dump);
        self.next.set(Request::Family, at);
        true
    }

    /// What is to be asked now that all has been read.
    pub(crate) fn poll(&mut self, now: Time) -> Option<Request> {
        let request = self.next.expired(now)?;
        match request {
            Request::Settings => self.unconfirmed = true,
            Request::Family | Request::Dump => self.under_way = Some(request),
            Request::State => {}
        }
        Some(request)
    }

    /// The module is there as before. Whether it is `used`: then it is asked for its queue pairs, and told again what
    /// it may have refused unheard: its answer would have come before this one.
    pub(crate) fn handle_still_there(&mut self, now: Time, used: bool) {
        if !self.end(Request::Family) || !used {
            return;
        }
        self.want(now, Request::Dump);
        if self.unconfirmed {
            self.want(now, Request::Settings);
        }
    }

    /// The module has taken the settings.
    pub(crate) fn handle_configured(&mut self) {
        self.unconfirmed = false;
    }

    /// A dump has ended. Whether it is the one that counts, and nothing was lost meanwhile.
    pub(crate) fn handle_dumped(&mut self) -> bool {
        // One with a loss stays under way until that is seen to.
        let counts = !self.lost && self.end(Request::Dump);
        if counts {
            self.losses.reset();
            self.refusals.reset();
        }
        counts
    }

    /// The kernel could not answer, and may another time.
    pub(crate) fn ask_again(&mut self, now: Time, request: Request) {
        self.end(request);
        if request == Request::Settings {
            self.unconfirmed = false;
        }
        let at = now + self.refusals.next_delay();
        self.next.set(request, at);
    }

    fn end(&mut self, request: Request) -> bool {
        self.under_way.take_if(|it| *it == request).is_some()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.next.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000_000);

    /// All has been read: whether something was lost, and what is asked.
    fn drained(resync: &mut Resync, now: Time) -> (bool, Vec<Request>) {
        let lost = resync.handle_drained(now);
        (lost, std::iter::from_fn(|| resync.poll(now)).collect())
    }

    /// One whose module is there, and all is known.
    fn current() -> Resync {
        let mut resync = Resync::new();
        resync.begin(NOW);
        let first = vec![Request::Dump, Request::Settings];
        assert_eq!(drained(&mut resync, NOW), (false, first));
        assert!(resync.handle_dumped());
        resync.handle_configured();
        resync
    }

    #[test]
    fn after_a_loss_the_family_is_asked_for_and_then_its_queue_pairs() {
        let mut resync = current();
        resync.handle_loss();
        resync.handle_loss();
        assert_eq!(resync.poll_timeout(), None, "not all has been read");
        assert_eq!(drained(&mut resync, NOW), (true, vec![Request::Family]));
        assert_eq!(drained(&mut resync, NOW), (false, vec![]));
        resync.handle_still_there(NOW, true);
        assert_eq!(drained(&mut resync, NOW), (false, vec![Request::Dump]));
        assert!(resync.handle_dumped());
        assert!(!resync.handle_dumped(), "it was none of ours");
        assert_eq!(resync.poll_timeout(), None);
    }

    #[test]
    fn settings_of_which_no_answer_was_read_are_sent_again_after_a_loss() {
        let mut resync = current();
        resync.want(NOW, Request::Settings);
        assert_eq!(drained(&mut resync, NOW), (false, vec![Request::Settings]));
        let again = |resync: &mut Resync| {
            resync.handle_loss();
            assert_eq!(drained(resync, NOW), (true, vec![Request::Family]));
            resync.handle_still_there(NOW, true);
            let (_, asked) = drained(resync, NOW);
            assert!(resync.handle_dumped());
            asked
        };
        let both = vec![Request::Dump, Request::Settings];
        assert_eq!(again(&mut resync), both);
        assert_eq!(again(&mut resync), both, "this answer is lost as well");
        resync.handle_configured();
        assert_eq!(again(&mut resync), [Request::Dump]);
    }

    #[test]
    fn a_dump_with_a_loss_counts_for_nothing_and_the_next_waits() {
        let mut resync = current();
        resync.want(NOW, Request::Dump);
        drained(&mut resync, NOW);
        resync.handle_loss();
        assert!(!resync.handle_dumped());
        assert_eq!(drained(&mut resync, NOW), (true, vec![]));
        let later = NOW + PAUSE;
        assert_eq!(resync.poll_timeout(), Some(later));
        assert_eq!(drained(&mut resync, later), (false, vec![Request::Family]));
        // The answer is lost as well.
        resync.handle_loss();
        assert_eq!(drained(&mut resync, later), (true, vec![]));
        assert_eq!(resync.poll_timeout(), Some(later + PAUSE * 2));
    }

    #[test]
    fn what_is_refused_is_asked_again_and_again_more_seldom() {
        let mut resync = current();
        resync.ask_again(NOW, Request::Settings);
        assert_eq!(drained(&mut resync, NOW), (false, vec![]));
        let later = NOW + PAUSE;
        assert_eq!(
            drained(&mut resync, later),
            (false, vec![Request::Settings])
        );
        resync.ask_again(later, Request::Settings);
        assert_eq!(resync.poll_timeout(), Some(later + PAUSE * 2));
        resync.clear();
        assert_eq!(resync.poll_timeout(), None, "it is gone");
    }

    #[test]
    fn a_module_that_is_not_used_is_not_asked_for_its_queue_pairs() {
        let mut resync = current();
        resync.clear();
        resync.handle_loss();
        assert_eq!(drained(&mut resync, NOW), (true, vec![Request::Family]));
        resync.handle_still_there(NOW, false);
        assert_eq!(drained(&mut resync, NOW), (false, vec![]));
    }

    /// Told of and answered, when it comes just then.
    #[test]
    fn an_answer_that_nobody_waits_for_begins_no_second_dump() {
        let mut resync = Resync::new();
        resync.begin(NOW);
        drained(&mut resync, NOW);
        resync.handle_still_there(NOW, true);
        assert_eq!(drained(&mut resync, NOW), (false, vec![]));
    }

    #[test]
    fn a_loss_before_the_end_of_the_module_is_not_forgotten() {
        let mut resync = current();
        resync.handle_loss();
        resync.clear();
        assert_eq!(drained(&mut resync, NOW), (true, vec![Request::Family]));
    }
}
