// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a connection's requests are charged to, and in which order it acts.

use cm_msgs::path::Path;

use super::Core;
use crate::candidate::Shared;
use crate::context::Context;
use crate::members::Member;
use crate::questions::Urgency;
use crate::schedule::{Claim, Class, Waiter};

impl Core {
    /// How urgent its path queries are. A QP that was armed while the peer never answered was armed by its owner: any
    /// user can do that, as often as they like, so it does not count.
    pub(super) fn urgency(&self) -> Urgency {
        if self.counters.rearms > 0 && self.peer.has_answered() {
            Urgency::Rearm
        } else {
            Urgency::Initial
        }
    }

    /// The class of its next request.
    fn class(&self, cx: &Context) -> Class {
        match self.urgency() {
            _ if self.is_armed() && self.has_good_alternate(cx) => {
                match self.peer.has_answered() && self.ends_with_one_port(cx) {
                    true => Class::SamePort,
                    false => Class::Improve,
                }
            }
            Urgency::Rearm => Class::Rearm,
            Urgency::Initial => Class::Initial,
        }
    }

    /// Whether the loss of one port would end both of its paths.
    pub(super) fn ends_with_one_port(&self, cx: &Context) -> bool {
        let shared = |path: &Path| self.candidate_pool(cx).shared(path);
        self.loaded()
            .is_some_and(|path| shared(path) != Shared::Neither)
    }

    /// Its owner and far port, by which connections take turns to look at an event.
    pub(super) fn member(&self) -> Member {
        Member {
            payer: self.payer,
            far: self.far,
            id: self.id,
        }
    }

    /// What its next request is charged to.
    pub(super) fn claim(&self, cx: &Context) -> Claim {
        Claim {
            class: self.class(cx),
            payer: self.payer,
            far: self.far_end(cx, &self.qp.primary),
        }
    }

    /// What its unanswered requests are charged to; if there are none, what its next request will be charged to.
    pub(super) fn charged(&self, cx: &Context) -> Claim {
        self.flight
            .as_ref()
            .map_or_else(|| self.claim(cx), |flight| flight.claim)
    }

    /// Updates its place among those that wait to send a request: its class may have changed.
    pub(super) fn keep_waiting(&self, cx: &mut Context) {
        let claim = self.claim(cx);
        cx.schedule.wait(claim, Waiter::Conn(self.id));
    }

    /// Whether a request may leave now; if not, the connection is told when one may.
    pub(super) fn has_room(&self, cx: &mut Context) -> bool {
        let claim = self.claim(cx);
        let room = cx.schedule.has_room(&claim);
        if !room {
            cx.schedule.wait(claim, Waiter::Conn(self.id));
        }
        room
    }

    /// Records how many of its requests are unanswered. They stay charged to what the latest was charged to when it left.
    /// If they were charged again whenever the class changes, the room that they give up would be used a second time.
    pub(super) fn note_in_flight(&mut self, cx: &mut Context, requests: u8) {
        let claim = match &self.flight {
            None if requests == 0 => return,
            Some(before) if requests <= before.requests => before.claim,
            _ => self.claim(cx),
        };
        cx.schedule.in_flight(&mut self.flight, claim, requests);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::conn::sample;
    use crate::random::Random;

    /// Its second request leaves when there is room in the class that it is in by then, and takes that room.
    #[test]
    fn unanswered_requests_are_charged_to_the_class_that_the_latest_left_in() {
        let mut cx = Context::new(Config::default(), Random::new([1; 32]));
        let mut core = sample::core(&mut cx);
        let charged = |core: &Core, cx: &Context| core.charged(cx).class;
        core.note_in_flight(&mut cx, 1);
        assert_eq!(charged(&core, &cx), Class::Initial);
        // It has been armed meanwhile, and is not any more.
        core.peer.proven(&core.own.state());
        core.counters.rearms = 1;
        assert_eq!(core.claim(&cx).class, Class::Rearm);
        core.note_in_flight(&mut cx, 1);
        assert_eq!(charged(&core, &cx), Class::Initial, "the same request");
        core.note_in_flight(&mut cx, 2);
        assert_eq!(charged(&core, &cx), Class::Rearm);
        core.counters.rearms = 0;
        core.note_in_flight(&mut cx, 1);
        assert_eq!(charged(&core, &cx), Class::Rearm, "one is answered");
        core.note_in_flight(&mut cx, 0);
        assert_eq!(charged(&core, &cx), Class::Initial, "the next one");
    }
}
