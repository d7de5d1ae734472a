// SPDX-License-Identifier: MIT OR Apache-2.0
//! With any one of these checks left out, the search finds what it was for.

use super::settings::Setting;
use super::{say, search};
use crate::guard::Guard;

/// A check, and the setting in which it is missed.
const GUARDS: [(Guard, &str); 12] = [
    (Guard::WhereTheQpLeads, "stranger"),
    (Guard::HandshakeFirst, "stranger"),
    (Guard::OneOrder, "opening, slow library"),
    (Guard::OverdueOrder, "slow library"),
    (Guard::OldState, "ports"),
    (Guard::AnswerToThisLap, "ports"),
    (Guard::AlternateUp, "ports"),
    (Guard::OnlyArmed, "opening, a port goes"),
    (Guard::AlternatePortUp, "opening, a port goes"),
    (Guard::OneSap, "opening"),
    (Guard::IdlePeer, "idle, one end only"),
    (Guard::IdleDevice, "idle, one end only"),
];

#[test]
fn every_check_that_is_left_out_is_missed() {
    for (guard, name) in GUARDS {
        let mut settings = Setting::all().into_iter();
        let setting = settings
            .find(|setting| setting.name == name)
            .expect("a setting");
        let outcome = search(&setting, Some(guard));
        let (rule, actions, _) = outcome.broken.expect("left out and not missed");
        say(&std::format!(
            "model: without {guard:?}, after {} states: {rule}, by {actions:?}",
            outcome.states
        ));
    }
}
