// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is reported and known already costs nothing, however often it comes.

// An allocator is unsafe to write.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use cm_msgs::Gid;
use cm_msgs::control::{Cause, NO_TOKEN, Report};
use statemachine::{Input, Time};

use crate::pair::{ACTIVE, PASSIVE, Pair};

/// The system's allocator, counted for each thread: tests run beside each other.
struct Counted;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: both calls go to the system's allocator as they are.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends has no count any more.
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the same contract, and the place is of `System.alloc`.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// What a host's engine allocates while its library reports how the queue pair is.
fn allocations_of_a_report(pair: &mut Pair, host: usize, cause: Cause) -> u64 {
    let (id, now) = (pair.id(host, 0), Time(pair.now));
    let mut snapshot = pair.hosts[host].qps[0].snapshot();
    // A QP's attributes do not show it without a GRH.
    snapshot.primary.dgid = Gid::default();
    let engine = pair.hosts[host].engine.as_mut().expect("it runs");
    // What is due anyway is none of the report's.
    engine.handle(now, Input::Timeout);
    while engine.poll_order().is_some() {}
    let before = COUNT.get();
    engine.handle(now, Input::Report(id, Report { cause, snapshot }));
    assert!(engine.poll_order().is_none());
    COUNT.get() - before
}

#[test]
fn a_report_that_changes_nothing_allocates_nothing() {
    let mut pair = Pair::armed(1);
    for host in [ACTIVE, PASSIVE] {
        for cause in [
            Cause::Armed,
            Cause::Changed,
            Cause::Query { token: NO_TOKEN },
        ] {
            let count = allocations_of_a_report(&mut pair, host, cause);
            assert_eq!(count, 0, "host {host}, {cause:?}");
        }
    }
}
