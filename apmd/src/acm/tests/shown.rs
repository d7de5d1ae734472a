// SPDX-License-Identifier: MIT OR Apache-2.0
//! Destinations as operators are shown them.

use super::*;
use crate::observe::destinations::{self, MOST, Wanted};

#[test]
fn destinations_are_shown_by_what_is_wanted_and_not_all_at_once() {
    let mut service = service();
    service.set_settings(Settings {
        max_destinations: 5000,
        max_waiting: 5000,
        ..settings()
    });
    for lid in 0..3000 {
        let lid = Address::Lid(Lid(lid + 100));
        assert_eq!(resolve(&mut service, NOW, &to(lid)), None);
    }
    while service.poll_question().is_some() {}
    learn(&mut service, NOW, 9);
    let shown = |address: &str, from: &str, state: &str| {
        let said = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let wanted = Wanted {
            address: said(address),
            from: said(from),
            state: said(state),
        };
        let (shown, total) = destinations::show(NOW, &service, &wanted);
        (shown.len(), total)
    };
    assert_eq!(shown("", "", ""), (MOST, 3001));
    assert_eq!(shown("", "hca0", "ask"), (MOST, 3000));
    assert_eq!(shown("", "hca0/1", "known"), (1, 1));
    assert_eq!(shown("", "hca0/2", ""), (0, 0));
    assert_eq!(shown("1234", "", ""), (1, 1));
    assert_eq!(shown("fe80::9", "", ""), (1, 1));
    assert_eq!(shown("fe80::9", "", "absent"), (0, 0));
    assert_eq!(shown("node-9", "", ""), (0, 0));
}
