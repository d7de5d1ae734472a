// SPDX-License-Identifier: MIT OR Apache-2.0
//! How candidates are ranked, and what their ends are.

use core::time::Duration;

use super::*;
use crate::input::PortStatus;

const HOST: Guid = Guid(0x10);
const PREFIX: u64 = 0xfe80 << 48;

#[test]
fn a_lid_that_two_far_ports_have_names_neither() {
    let mut ports = Ports::default();
    for number in [1, 2] {
        let status = PortStatus {
            active: true,
            lid: Lid(3 + u16::from(number)),
            gid: Gid::new(PREFIX, Guid(HOST.0 + u64::from(number))),
            ..PortStatus::default()
        };
        ports.update(PortId::new(HOST, number), Some(status), Duration::ZERO);
    }
    let far = |guid, lid| PortAddress {
        gid: Gid::new(PREFIX, Guid(guid)),
        lid: Lid(lid),
    };
    let far_port = |second: PortAddress, dgid: Gid| {
        let primary = Path {
            port: 1,
            slid: Lid(4),
            dlid: Lid(9),
            dgid,
            ..Path::default()
        };
        let pool = CandidatePool {
            ports: &ports,
            node_guid: HOST,
            primary: &primary,
            peer_ports: &[far(0x21, 9), second],
            salt: 0,
        };
        pool.far_port(&primary)
    };
    assert_eq!(far_port(far(0x22, 10), Gid::default()), Some(0));
    assert_eq!(far_port(far(0x22, 9), Gid::default()), None);
    // Its GUID tells, also with the prefix of before.
    let before = Gid::new(7, Guid(0x22));
    assert_eq!(far_port(far(0x22, 9), before), Some(1));
}

/// Two ports of one subnet.
fn local(lmc: u8) -> Ports {
    let mut ports = Ports::default();
    for number in [1, 2] {
        let status = PortStatus {
            active: true,
            lid: Lid(0x20 * u16::from(number)),
            lmc,
            gid: Gid::new(PREFIX, Guid(HOST.0 + u64::from(number))),
            ..PortStatus::default()
        };
        ports.update(PortId::new(HOST, number), Some(status), Duration::ZERO);
    }
    ports
}

fn far(guid: u64, lid: u16) -> PortAddress {
    PortAddress {
        gid: Gid::new(PREFIX, Guid(guid)),
        lid: Lid(lid),
    }
}

/// A path from a local port to a far one.
fn path(port: u8, to: PortAddress) -> Path {
    Path {
        port,
        slid: Lid(0x20 * u16::from(port)),
        dlid: to.lid,
        dgid: to.gid,
        ..Path::default()
    }
}

/// The far port with this LID; its GID is not known.
fn unknown(lid: u16) -> PortAddress {
    PortAddress {
        gid: Gid::default(),
        lid: Lid(lid),
    }
}

fn with_pool<T>(
    lmc: u8,
    primary: &Path,
    peer_ports: &[PortAddress],
    ask: impl FnOnce(CandidatePool<'_>) -> T,
) -> T {
    ask(CandidatePool {
        ports: &local(lmc),
        node_guid: HOST,
        primary,
        peer_ports,
        salt: 0,
    })
}

#[test]
fn a_path_ends_at_the_port_of_its_guid_unless_that_port_is_known_to_have_another_lid() {
    let ends_at = |second_prefix: u64, named: PortAddress| {
        let mut ports = Ports::default();
        for (number, prefix) in [(1, PREFIX), (2, second_prefix)] {
            let status = PortStatus {
                active: true,
                lid: Lid(0x20 * u16::from(number)),
                gid: Gid::new(prefix, Guid(HOST.0 + u64::from(number))),
                ..PortStatus::default()
            };
            ports.update(PortId::new(HOST, number), Some(status), Duration::ZERO);
        }
        let primary = path(1, far(0x21, 9));
        let pool = CandidatePool {
            ports: &ports,
            node_guid: HOST,
            primary: &primary,
            peer_ports: &[named, far(0x22, 9)],
            salt: 0,
        };
        pool.far_port(&primary)
    };
    assert_eq!(
        ends_at(PREFIX, far(0x21, 10)),
        Some(1),
        "the LID's new port"
    );
    assert_eq!(ends_at(PREFIX, far(0x21, 0)), Some(0), "out of service");
    assert_eq!(ends_at(PREFIX + 1, far(0x21, 10)), Some(0), "two subnets");
}

#[test]
fn the_primarys_far_port_is_an_end_though_the_peer_has_not_named_it() {
    let (first, second) = (far(0x21, 9), far(0x22, 10));
    let remote = |primary: PortAddress, told: &[PortAddress]| {
        with_pool(0, &path(1, primary), told, |pool| pool.remote())
    };
    assert_eq!(remote(first, &[]), [first]);
    assert_eq!(remote(first, &[second]), [second, first]);
    assert_eq!(remote(first, &[first, second]), [first, second]);
    assert_eq!(remote(unknown(9), &[second]), [second], "which one?");
}

#[test]
fn a_path_whose_far_port_is_not_known_may_end_where_its_lid_is() {
    // Two ports with one LID: nothing tells which is meant.
    let told = [far(0x21, 0x44), far(0x22, 0x44), far(0x23, 0x48)];
    let elsewhere = PortAddress {
        gid: Gid::new(PREFIX + 1, Guid(0x24)),
        lid: Lid(0x44),
    };
    let may = |lmc, primary: PortAddress, end| {
        let path = path(1, primary);
        with_pool(lmc, &path, &told, |pool| pool.may_end_at(&path, end))
    };
    assert!(may(0, unknown(0x44), told[0]) && may(0, unknown(0x44), told[1]));
    assert!(!may(0, unknown(0x44), told[2]) && !may(0, unknown(0x44), elsewhere));
    assert!(may(2, unknown(0x45), told[0]), "path bits");
    assert!(!may(0, unknown(0x45), told[0]) && !may(2, unknown(0x45), told[2]));
    // A GID that the peer has not named is its own.
    let unnamed = far(0x29, 0x50);
    assert!(may(0, unnamed, unnamed) && !may(0, unnamed, told[0]));
    assert!(may(0, told[2], told[2]) && !may(0, told[2], told[0]));
}

#[test]
fn what_a_path_shares_with_the_primary_is_told_by_guid_or_by_lid() {
    let shared = |primary: PortAddress, path_to: Path| {
        with_pool(0, &path(1, primary), &[], |pool| pool.shared(&path_to))
    };
    let (first, second) = (far(0x21, 9), far(0x22, 10));
    assert_eq!(shared(first, path(2, second)), Shared::Neither);
    assert_eq!(shared(first, path(1, second)), Shared::OnePort);
    assert_eq!(shared(first, path(2, far(0x21, 11))), Shared::OnePort);
    assert_eq!(shared(first, path(1, far(0x21, 11))), Shared::BothPorts);
    assert_eq!(shared(unknown(9), path(2, far(0x22, 9))), Shared::OnePort);
    assert_eq!(shared(unknown(9), path(2, unknown(9))), Shared::OnePort);
    assert_eq!(shared(unknown(9), path(2, unknown(10))), Shared::Neither);
    let both = [first, second];
    let told = |to| {
        let primary = path(1, first);
        with_pool(0, &primary, &both, |pool| pool.shared(&path(2, to)))
    };
    assert_eq!(told(unknown(10)), Shared::Neither);
    assert_eq!(told(unknown(9)), Shared::OnePort);
    // The path was made while the subnet had another prefix, to another of the port's LIDs.
    let before = PortAddress {
        gid: Gid::new(7, first.gid.interface_id()),
        lid: Lid(11),
    };
    assert_eq!(told(before), Shared::OnePort);
}

#[test]
fn a_candidates_lids_are_known_before_its_path_where_its_ports_have_one_each() {
    let ends = |lmc, slid: Option<u16>, far_lid| {
        let end = far(0x22, far_lid);
        let candidate = Candidate {
            port: PortId::new(HOST, 2),
            sgid: Gid::new(PREFIX, Guid(HOST.0 + 2)),
            dgid: end.gid,
            slid: slid.map(Lid),
            dlid: None,
            score: PLAIN,
            origin: None,
        };
        let ends = with_pool(lmc, &path(1, far(0x21, 9)), &[end], |pool| {
            pool.ends(&candidate)
        });
        (ends.slid, ends.dlid)
    };
    let lids = |slid: u16, dlid: u16| (Some(Lid(slid)), Some(Lid(dlid)));
    assert_eq!(ends(0, None, 10), lids(0x40, 10));
    assert_eq!(ends(0, None, 0), (Some(Lid(0x40)), None), "out of service");
    assert_eq!(ends(2, None, 12), (None, None), "which of them?");
    assert_eq!(ends(2, Some(0x41), 12), (Some(Lid(0x41)), None));
}

/// Nothing speaks against it, and what it shares with the primary inside the fabric is not known.
const PLAIN: Score = Score {
    doubt: Doubt::None,
    astray: false,
    shared: Shared::Neither,
    overlap: None,
    dead_end: false,
    tie: 7,
};

fn with_overlap(switches: u8) -> Score {
    Score {
        overlap: Some(Overlap { switches, links: 0 }),
        ..PLAIN
    }
}

#[test]
fn of_two_candidates_the_doubt_counts_first_then_where_it_leads_then_what_it_shares() {
    let doubtful = Score {
        doubt: Doubt::RemoteDown,
        tie: 0,
        ..PLAIN
    };
    let astray = Score {
        astray: true,
        tie: 0,
        ..with_overlap(0)
    };
    let one_port = Score {
        shared: Shared::OnePort,
        tie: 0,
        ..with_overlap(0)
    };
    let dead_end = Score {
        dead_end: true,
        tie: 0,
        ..PLAIN
    };
    let order = [
        with_overlap(0),
        PLAIN,
        dead_end,
        with_overlap(1),
        with_overlap(2),
        one_port,
        astray,
        doubtful,
    ];
    let mut sorted = order;
    sorted.reverse();
    sorted.sort();
    assert_eq!(sorted, order);
    for (at, better) in order.iter().enumerate() {
        for worse in &order[at + 1..] {
            assert!(!worse.beats(*better), "{worse:?} {better:?}");
        }
        assert!(!better.beats(*better), "{better:?}");
    }
}

/// A loaded alternate is given up only for what is surely better: not for the tie-break, and not for knowledge that
/// comes and goes.
#[test]
fn only_what_is_surely_better_takes_an_alternates_place() {
    let tied = Score { tie: 0, ..PLAIN };
    assert!(tied < PLAIN && !tied.beats(PLAIN));
    assert!(with_overlap(0).beats(PLAIN));
    assert!(!with_overlap(1).beats(PLAIN) && !PLAIN.beats(with_overlap(1)));
    assert!(with_overlap(1).beats(with_overlap(2)));
    let one_port = Score {
        shared: Shared::OnePort,
        ..with_overlap(0)
    };
    assert!(with_overlap(9).beats(one_port));
    let astray = Score {
        astray: true,
        ..with_overlap(0)
    };
    assert!(one_port.beats(astray) && one_port.leads_better(astray));
    assert!(!astray.leads_better(one_port));
    let drained = Score {
        doubt: Doubt::Drained,
        ..with_overlap(0)
    };
    assert!(astray.beats(drained) && !drained.beats(astray));
}

#[test]
fn a_candidate_without_lids_may_be_any_between_its_ports() {
    let candidate = |port, guid, slid: Option<u16>, dlid: Option<u16>| Candidate {
        port: PortId::new(HOST, port),
        sgid: Gid::default(),
        dgid: far(guid, 0).gid,
        slid: slid.map(Lid),
        dlid: dlid.map(Lid),
        score: PLAIN,
        origin: None,
    };
    let whole = candidate(1, 0x21, Some(0x20), Some(0x44));
    assert!(whole.may_be(&whole));
    for other in [
        candidate(1, 0x21, None, None),
        candidate(1, 0x21, Some(0x20), None),
        candidate(1, 0x21, None, Some(0x44)),
    ] {
        assert!(whole.may_be(&other) && other.may_be(&whole), "{other}");
    }
    for other in [
        candidate(2, 0x21, Some(0x20), Some(0x44)),
        candidate(1, 0x22, Some(0x20), Some(0x44)),
        candidate(1, 0x21, Some(0x21), Some(0x44)),
        candidate(1, 0x21, Some(0x20), Some(0x45)),
    ] {
        assert!(!whole.may_be(&other) && !other.may_be(&whole), "{other}");
    }
}

/// The first outputs of splitmix64 with seed 0, whose state advances by the golden ratio's 64 bits.
#[test]
fn the_hash_is_splitmix64s() {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let outputs = [1, 2, 3].map(|step: u64| mix(STEP.wrapping_mul(step)));
    assert_eq!(
        outputs,
        [
            0xe220_a839_7b1d_cdaf,
            0x6e78_9e6a_a1b9_65f4,
            0x06c4_5d18_8009_454f
        ]
    );
}

/// Two candidates that are equally good: about half of the connections prefer each.
#[test]
fn connections_divide_over_candidates_that_differ_in_anything() {
    let all = Guid(u64::MAX);
    let pairs = [
        [
            (1, Gid::new(PREFIX, Guid(4)), 0),
            (2, Gid::new(PREFIX, Guid(4)), 0),
        ],
        [
            (1, Gid::new(PREFIX, Guid(4)), 0),
            (1, Gid::new(PREFIX, Guid(5)), 0),
        ],
        [
            (1, Gid::new(PREFIX, all), 0),
            (1, Gid::new(PREFIX + 1, all), 0),
        ],
        [
            (1, Gid::new(PREFIX, Guid(4)), 1),
            (1, Gid::new(PREFIX, Guid(4)), 2),
        ],
    ];
    for (number, [one, other]) in pairs.into_iter().enumerate() {
        let tie_of = |salt, (port, gid, offsets)| tie(salt, port, gid, offsets);
        let ties = (0..256).map(|salt| [one, other].map(|candidate| tie_of(salt, candidate)));
        let ties: Vec<[u32; 2]> = ties.collect();
        assert!(ties.iter().all(|[one, other]| one != other), "{number}");
        let first = ties.iter().filter(|[one, other]| one < other).count();
        assert!((96..=160).contains(&first), "{number}: {first} of 256");
    }
}

#[test]
fn no_two_pairs_of_lids_have_the_same_tie() {
    let primary = path(1, far(0x21, 0x40));
    let second = far(0x22, 0x80);
    let mut ties: Vec<u32> = with_pool(3, &primary, &[second], |pool| {
        let here = pool.ports.of_device(HOST);
        let all = here.flat_map(|port| pool.between(port, second));
        all.map(|candidate| candidate.score.tie).collect()
    });
    let count = ties.len();
    assert_eq!(count, 2 * MAX_OFFSETS);
    ties.sort_unstable();
    ties.dedup();
    assert_eq!(ties.len(), count);
}
