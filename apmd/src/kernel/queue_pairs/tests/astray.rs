// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue pairs that lead to where no port is.

use super::*;

const NOWHERE: [Lid; 3] = [Lid(0), Lid(0xc000), Lid(0xffff)];

fn to(dlid: Lid) -> Path {
    Path {
        dlid,
        ..snapshot(1).primary
    }
}

/// With this primary and this alternate, in this state.
fn report_of(qp_state: QpState, primary: Path, alternate: Option<Path>) -> KernelReport {
    KernelReport {
        snapshot: Some(Snapshot {
            qp_state,
            migration: MigrationState::Rearm,
            primary,
            alternate,
        }),
        ..report(1, Cause::PathMigrated, None)
    }
}

fn care(all: &QueuePairs) -> Care {
    all.after(None).next().expect("a queue pair").care
}

#[test]
fn one_that_leads_to_no_port_is_left_alone_until_it_does() {
    for nowhere in NOWHERE {
        let mut all = known();
        let mut qp = queue_pair(1, None);
        qp.snapshot = report_of(QpState::Rts, to(nowhere), None).snapshot;
        all.handle_new(NOW, qp);
        assert!(outputs(&mut all).is_empty());
        assert_eq!(care(&all), Care::Astray(nowhere));
        all.handle_new(NOW, queue_pair(1, None));
        assert_eq!(outputs(&mut all), ["register 1 passive"]);
        assert_eq!(care(&all), Care::Connection(FIRST));
    }
}

#[test]
fn one_that_goes_astray_is_closed_and_the_engine_not_told_where_it_is() {
    for nowhere in NOWHERE {
        for (primary, alternate) in [(to(nowhere), None), (to(Lid(9)), Some(to(nowhere)))] {
            let mut all = known();
            all.handle_new(NOW, queue_pair(1, None));
            outputs(&mut all);
            all.handle_report(NOW, &report_of(QpState::Rts, primary, alternate));
            assert_eq!(outputs(&mut all), ["close 1"]);
            assert_eq!(care(&all), Care::Astray(nowhere));
        }
    }
}

#[test]
fn one_whose_paths_are_forgotten_is_broken_and_not_astray() {
    let mut all = known();
    all.handle_new(NOW, queue_pair(1, None));
    outputs(&mut all);
    all.handle_report(NOW, &report_of(QpState::Error, Path::default(), None));
    assert_eq!(outputs(&mut all), ["report 1 PathMigrated"]);
    assert_eq!(care(&all), Care::Connection(FIRST));
}

#[test]
fn where_a_librarys_queue_pair_has_gone_astray_its_report_is_ignored() {
    let mut all = known();
    all.handle_new(NOW, queue_pair(1, Some(7)));
    all.claim(NOW, NUMBER, LIBRARY);
    outputs(&mut all);
    let lie = said(control::Cause::Changed, 1);
    assert!(!all.believes(LIBRARY, lie));
    assert_eq!(outputs(&mut all), ["query 1"]);
    let truth = KernelReport {
        cause: Cause::Done,
        token: Some(1),
        ..report_of(QpState::Rts, to(Lid(0xffff)), None)
    };
    all.handle_report(NOW, &truth);
    assert!(outputs(&mut all).is_empty());
}
