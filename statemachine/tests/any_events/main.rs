// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine under any events in any order: programs that lie, peers that mean harm, sources that
//! answer what nobody asked. Events know what the engine said before, so that some of them fit.
//! More cases: `PROPTEST_CASES`, or `cargo xtask fuzz`.

mod event;
mod world;

use proptest::collection::vec;
use proptest::prelude::*;

use event::{Event, event};
use world::World;

/// `PROPTEST_CASES` asks for more.
fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok();
    let cases = cases.and_then(|cases| cases.parse().ok()).unwrap_or(64);
    ProptestConfig {
        cases,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_events(events in vec(event(), 1..120)) {
        let mut world = World::default();
        for event in events {
            world.happen(event);
        }
        world.end();
    }

    /// Less by chance: an active and a passive connection that were open before anything happens.
    #[test]
    fn any_events_after_two_associations(events in vec(event(), 1..120)) {
        let mut world = World::default();
        Event::two_associations().into_iter().for_each(|event| world.happen(event));
        assert_eq!(world.established(), 2, "the events before fit no more");
        for event in events {
            world.happen(event);
        }
        world.end();
    }
}
