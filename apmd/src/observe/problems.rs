// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an operator should look at, in words, and what to do about it.

use std::collections::BTreeMap;

use super::impossible;
use super::model::{ConnSums, Port, Unregistered};
use crate::config::{self, Config};
use crate::devices::Unopened;
use crate::io::apm_module::Protect;
use crate::io::seqpacket::NotGiven;
use crate::kernel::{LeftOut, Presence};
use crate::peer_daemons::SILENT_AFTER;
use crate::redundancy::LOST_AFTER;
use crate::reload::Reload;

/// What is wrong. Only what is `degraded` fails `apmctl status`.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    pub(crate) degraded: Vec<String>,
    pub(crate) others: Vec<String>,
}

impl Problems {
    pub(crate) fn find(
        config: &Config,
        reload: &Reload,
        devices: &[String],
        unopened: &BTreeMap<String, Unopened>,
        ports: &[Port],
        conns: &ConnSums,
    ) -> Self {
        let mut problems = Self::default();
        let counting = unopened.iter().filter(|(_, device)| device.infiniband);
        problems.degraded.extend(counting.map(|(name, device)| {
            let why = &device.why;
            format!("device {name} is there, but its connections are not protected: {why}")
        }));
        let is_absent = |name: &&String| !(devices.contains(name) || unopened.contains_key(*name));
        let absent = config.devices.iter().filter(is_absent);
        problems.degraded.extend(absent.map(|name| {
            format!(
                "device {name} is configured but absent: see `rdma link`, and devices in apmd.toml"
            )
        }));
        // Of a host on which none is open, what keeps one from it says enough.
        if !devices.is_empty() || !unopened.values().any(|device| device.infiniband) {
            problems
                .degraded
                .extend(no_second_path(devices, ports, conns));
        }
        problems.degraded.extend(reload.refused().map(|error| {
            format!("the configuration was refused, the one before stays in effect: {error}")
        }));
        problems.degraded.extend(not_armed(conns));
        problems.others.extend(without_redundancy(conns));
        problems.others.extend(reload.needs_restart().map(|keys| {
            format!("takes effect with the next restart of apmd (connections stay armed): {keys}")
        }));
        let policy = &config.policy.default.policy;
        problems
            .others
            .extend(impossible::of_default(policy, ports));
        let infiniband = ports
            .iter()
            .filter(|port| port.link.link_layer == "infiniband");
        for port in infiniband {
            let name = format!("{}/{}", port.device, port.port);
            if port.link.grh_required {
                problems.others.push(format!(
                    "{name} requires a GRH in every packet, which apmd's MADs do not have: connections on it are not protected"
                ));
                continue;
            }
            if !port.mads {
                problems.others.push(format!(
                    "{name} cannot exchange MADs with other hosts: is ib_umad loaded? The log says why"
                ));
            }
            if port.drained {
                problems.others.push(format!(
                    "{name} is drained: `apmctl port undrain {name}` when its maintenance is over"
                ));
            }
            if port.state == "down" {
                problems.others.push(format!(
                    "{name} is down: check its cable, and the subnet manager"
                ));
            }
        }
        problems
    }
}

/// Why there is no device on which a connection could have an alternate path, or one over another port of this host: a
/// peer with two ports gives a connection two paths from one.
fn no_second_path(devices: &[String], ports: &[Port], conns: &ConnSums) -> Option<String> {
    let obstacle = |device: &String| {
        let ports: Vec<_> = ports.iter().filter(|port| port.device == *device).collect();
        obstacle(&ports).map(|why| format!("{device}: {why}"))
    };
    let obstacles: Option<Vec<_>> = devices.iter().map(obstacle).collect();
    let why = match obstacles? {
        none if none.is_empty() => "no RDMA device: see `rdma link`".to_owned(),
        obstacles => obstacles.join("; "),
    };
    let loaded = conns.armed + conns.waiting.rearming;
    Some(match loaded {
        0 => format!("no connection can be protected: {why}"),
        _ => format!(
            "connections cannot move to another local port ({loaded} of {} have an alternate over the same one): {why}",
            conns.total
        ),
    })
}

/// Connections that have no second port though they are armed. `apmctl status --strict` counts it as degraded.
pub(crate) fn without_redundancy(conns: &ConnSums) -> Option<String> {
    let count = conns.armed_same_port_60_seconds;
    (count > 0).then(|| {
        format!(
            "{count} of {} connections have had both paths on one port for {} s and would not survive its loss: see \
             `apmctl port` here and on the peers",
            conns.total,
            LOST_AFTER.as_secs()
        )
    })
}

/// Peers without an answering apmd: their connections survive one loss, and get no new alternate after it. `count`: paths
/// to them, from a local port to a LID each.
pub(crate) fn silent_peers(count: usize) -> Option<String> {
    (count > 0).then(|| {
        format!(
            "apmd of peers has not answered over {count} paths for {} s: armed connections to these peers survive one more \
             loss; start it there (`apmctl conn` names them: `apmd silent`)",
            SILENT_AFTER.as_secs()
        )
    })
}

/// The warning about queue pairs that the library of their program does not see.
pub(crate) fn unregistered(unregistered: &Unregistered) -> Option<String> {
    let Unregistered {
        queue_pairs,
        programs,
        largest,
    } = unregistered;
    if *programs == 0 {
        return None;
    }
    let names = largest.iter().map(|program| {
        let (command, pid, count) = (&program.command, program.pid, program.queue_pairs);
        format!("{command}[{pid}] {count}")
    });
    let mut names: Vec<_> = names.collect();
    let others = programs.saturating_sub(names.len());
    if others > 0 {
        names.push(format!("{others} other programs"));
    }
    Some(format!(
        "{queue_pairs} connected RC queue pairs of programs with the library are not registered and not protected ({}): \
         a program that looks up libibverbs by dlopen (NCCL) must open librdmacm-apm in its place, or load kernel module \
         apm (library.md, Queue pairs that the library does not see); the log names refused registrations",
        names.join(", ")
    ))
}

/// Why a device with these ports can have no alternate path.
fn obstacle(ports: &[&Port]) -> Option<&'static str> {
    let usable: Vec<_> = ports
        .iter()
        .filter(|port| matches!(port.state.as_str(), "up" | "settling"))
        .collect();
    let all = |is: fn(&Port) -> bool| ports.iter().all(|port| is(port));
    if all(|port| port.link.link_layer != "infiniband") {
        Some("no InfiniBand port, and others have no automatic path migration")
    } else if all(|port| !port.apm) {
        Some("the device has no automatic path migration")
    } else if all(|port| port.link.grh_required) {
        Some("its ports require a GRH in every packet, which apmd's MADs do not have")
    } else if all(|port| !port.mads) {
        Some("no port can exchange MADs with other hosts")
    } else if usable.is_empty() {
        Some("no port is up")
    } else if usable.len() > 1 || usable.iter().any(|port| port.link.lmc > 0) {
        None
    } else if ports.len() == 1 {
        Some("it has one port only, with one LID (LMC 0)")
    } else {
        Some("no second port is up")
    }
}

/// Connections that wait for nothing but traffic have their alternate loaded.
fn not_armed(conns: &ConnSums) -> Option<String> {
    let count = conns.total - conns.armed - conns.waiting.rearming_idle;
    (count > 0).then(|| {
        format!(
            "{count} of {} connections are not armed: `apmctl conn` says why",
            conns.total
        )
    })
}

/// What the kernel module should protect and does not. Whoever wants nothing protected by it misses nothing.
pub(crate) fn of_kernel(
    settings: &config::Kernel,
    presence: &Presence,
    left_out: LeftOut,
) -> Vec<String> {
    match presence {
        _ if settings.protect == Protect::None => Vec::new(),
        Presence::Absent => Vec::new(),
        Presence::Unusable(why) => vec![format!(
            "kernel module apm is loaded but not used, kernel connections are not protected: {why}; {}",
            why.remedy()
        )],
        Presence::Present => left_out_words(left_out),
    }
}

/// A group whose members find the daemon's sockets closed, though the configuration names it.
pub(crate) fn of_sockets(not_given: Option<&NotGiven>) -> Option<String> {
    let NotGiven { group, error } = not_given?;
    let error = error.desc();
    Some(format!(
        "group {group} ([control] group) cannot use apmd's sockets, which could not be given to it: {error}; name \
         it in SupplementaryGroups= of apmd's unit (`systemctl edit apmd`) and restart apmd"
    ))
}

fn left_out_words(left_out: LeftOut) -> Vec<String> {
    let reasons = [
        (left_out.no_room, "no room (control.max_connections)"),
        (
            left_out.overdue.turn,
            "too many come and go (for more than a minute)",
        ),
        (
            left_out.overdue.port,
            "their device or port is not managed, the log says why",
        ),
    ];
    let reasons = reasons.into_iter().filter(|(count, _)| *count > 0);
    let words = reasons.map(|(count, why)| {
        format!("{count} queue pairs are not protected: {why}: `apmctl qp` says which")
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Unusable;
    use crate::observe::model::{PortLink, UnregisteredProgram, WaitingSums};
    use crate::registrations::Overdue;

    fn port(device: &str, number: u8, state: &str) -> Port {
        Port {
            device: device.to_owned(),
            port: number,
            node_guid: String::new(),
            state: state.to_owned(),
            apm: true,
            moves_idle: true,
            mads: true,
            link: PortLink {
                link_layer: "infiniband".to_owned(),
                grh_required: false,
                lid: 1,
                lmc: 0,
                sm_lid: 1,
                gid: String::new(),
                mtu: 4096,
                rate_mbps: None,
                pkeys: Vec::new(),
            },
            interface: None,
            drained: false,
            primaries: 0,
            alternates: 0,
        }
    }

    fn degraded(ports: &[Port], conns: &ConnSums) -> Vec<String> {
        let mut devices: Vec<_> = ports.iter().map(|port| port.device.clone()).collect();
        devices.dedup();
        let (config, reload) = (Config::default(), Reload::default());
        let unopened = BTreeMap::new();
        Problems::find(&config, &reload, &devices, &unopened, ports, conns).degraded
    }

    #[test]
    fn a_device_that_could_not_be_opened_is_degraded_beside_one_that_could() {
        let config = Config {
            devices: vec!["a".to_owned(), "b".to_owned(), "c".to_owned()],
            ..Config::default()
        };
        let unopened = |infiniband| Unopened::new("cannot be opened: why", infiniband);
        let unopened = BTreeMap::from([
            ("b".to_owned(), unopened(true)),
            ("c".to_owned(), unopened(false)),
        ]);
        let ports = [port("a", 1, "up"), port("a", 2, "up")];
        let degraded = |devices: &[String], ports: &[Port]| {
            let (reload, conns) = (Reload::default(), ConnSums::default());
            Problems::find(&config, &reload, devices, &unopened, ports, &conns).degraded
        };
        let want =
            "device b is there, but its connections are not protected: cannot be opened: why";
        assert_eq!(degraded(&["a".to_owned()], &ports), [want]);
        let alone = degraded(&[], &[]);
        assert_eq!(alone.len(), 2, "a is absent: {alone:?}");
        assert_eq!(alone[0], want);
        // One that no connection can end at is none that lacks protection.
        let ignored = BTreeMap::from([
            ("a".to_owned(), Unopened::ignored("no endpoint")),
            ("b".to_owned(), Unopened::ignored("no endpoint")),
            ("c".to_owned(), Unopened::ignored("no endpoint")),
        ]);
        let (reload, conns) = (Reload::default(), ConnSums::default());
        let with_ignored = Problems::find(
            &config,
            &reload,
            &["d".to_owned()],
            &ignored,
            &[port("d", 1, "up"), port("d", 2, "up")],
            &conns,
        );
        assert!(
            with_ignored.degraded.is_empty(),
            "{:?}",
            with_ignored.degraded
        );
    }

    #[test]
    fn a_host_on_which_nothing_can_be_protected_says_why() {
        let of = |ports: &[Port]| degraded(ports, &ConnSums::default()).concat();
        let says = |ports: &[Port], want: &str| {
            let says = of(ports);
            assert!(says.ends_with(want), "{says}");
        };
        says(
            &[],
            "no connection can be protected: no RDMA device: see `rdma link`",
        );
        let (one, other) = (port("a", 1, "up"), port("a", 2, "up"));
        assert_eq!(of(&[one.clone(), other.clone()]), "");
        says(
            &[one.clone(), port("a", 2, "down")],
            "no connection can be protected: a: no second port is up",
        );
        says(
            &[
                port("a", 1, "down"),
                port("a", 2, "down"),
                port("b", 1, "up"),
            ],
            "a: no port is up; b: it has one port only, with one LID (LMC 0)",
        );
        let lmc = |mut port: Port| {
            port.link.lmc = 1;
            port
        };
        assert_eq!(of(&[lmc(port("a", 1, "up"))]), "");
        let ethernet = |mut port: Port| {
            port.link.link_layer = "other".to_owned();
            port
        };
        says(
            &[ethernet(one.clone()), ethernet(other.clone())],
            "a: no InfiniBand port, and others have no automatic path migration",
        );
        let no_apm = |mut port: Port| {
            port.apm = false;
            port
        };
        says(
            &[no_apm(one.clone()), no_apm(other.clone())],
            "a: the device has no automatic path migration",
        );
        let deaf = |mut port: Port| {
            port.mads = false;
            port
        };
        says(
            &[deaf(one), deaf(other)],
            "a: no port can exchange MADs with other hosts",
        );
    }

    #[test]
    fn idle_connections_are_no_problem_and_others_that_are_not_armed_are() {
        let ports = [port("a", 1, "up"), port("a", 2, "up")];
        let mut conns = ConnSums {
            total: 3,
            armed: 1,
            waiting: WaitingSums {
                rearming: 2,
                rearming_idle: 2,
                idle_movable: 0,
            },
            ..ConnSums::default()
        };
        assert_eq!(degraded(&ports, &conns), Vec::<String>::new());
        conns.total += 1;
        conns.unprotected += 1;
        let want = "1 of 4 connections are not armed: `apmctl conn` says why";
        assert_eq!(degraded(&ports, &conns), [want]);
    }

    #[test]
    fn what_is_armed_is_not_said_to_be_impossible() {
        let ports = [port("a", 1, "up"), port("a", 2, "down")];
        let conns = ConnSums {
            total: 1,
            armed: 1,
            armed_same_port: 1,
            ..ConnSums::default()
        };
        let want = "connections cannot move to another local port (1 of 1 have an alternate over the same one): \
                    a: no second port is up";
        assert_eq!(degraded(&ports, &conns), [want]);
    }

    #[test]
    fn a_default_that_no_port_can_meet_is_a_warning() {
        let others = |words: &str, ports: &[Port]| {
            let mut config = Config::default();
            config.policy.default = words.to_owned().try_into().expect("words");
            let (reload, conns) = (Reload::default(), ConnSums::default());
            let devices = ["a".to_owned()];
            let unopened = BTreeMap::new();
            Problems::find(&config, &reload, &devices, &unopened, ports, &conns).others
        };
        let ports = [port("a", 1, "up"), port("a", 2, "up")];
        let want =
            "[policy] default: failback prefer 7: no device of this host has a port 7".to_owned();
        assert_eq!(others("failback prefer 7", &ports), [want]);
        assert!(others("failback prefer 2", &ports).is_empty());
        assert!(others("failback prefer 7", &[]).is_empty(), "not known yet");
        let lid = others("mode lid", &ports).concat();
        assert!(
            lid.starts_with("[policy] default: mode lid: every port"),
            "{lid}"
        );
        let mut several = ports.clone();
        several[1].link.lmc = 1;
        assert!(others("mode lid", &several).is_empty());
    }

    #[test]
    fn redundancy_that_is_gone_for_a_minute_is_a_warning() {
        let ports = [port("a", 1, "up"), port("a", 2, "up")];
        let mut conns = ConnSums {
            total: 3,
            armed: 3,
            armed_same_port: 2,
            ..ConnSums::default()
        };
        let find = |conns: &ConnSums| {
            let (config, reload) = (Config::default(), Reload::default());
            let devices = ["a".to_owned()];
            Problems::find(&config, &reload, &devices, &BTreeMap::new(), &ports, conns)
        };
        assert!(find(&conns).others.is_empty(), "it has just begun");
        conns.armed_same_port_60_seconds = 2;
        let Problems { degraded, others } = find(&conns);
        assert_eq!(degraded, Vec::<String>::new());
        let want = "2 of 3 connections have had both paths on one port for 60 s and would not survive its loss: see \
                    `apmctl port` here and on the peers";
        assert_eq!(others, [want]);
    }

    #[test]
    fn programs_with_queue_pairs_that_their_library_does_not_see_are_named() {
        assert_eq!(unregistered(&Unregistered::default()), None);
        let program = |pid, queue_pairs| UnregisteredProgram {
            pid,
            command: "train".to_owned(),
            queue_pairs,
        };
        let warning = unregistered(&Unregistered {
            queue_pairs: 19,
            programs: 5,
            largest: vec![program(812, 16), program(7, 1)],
        });
        let warning = warning.expect("five programs");
        let want = "19 connected RC queue pairs of programs with the library are not registered and not protected \
                    (train[812] 16, train[7] 1, 3 other programs): ";
        assert!(warning.starts_with(want), "{warning}");
    }

    #[test]
    fn peers_without_an_answer_are_a_warning() {
        let warning = silent_peers(3);
        let warning = warning.expect("three");
        assert!(warning.starts_with("apmd of peers has not answered over 3 paths for 10 s: "));
        assert_eq!(silent_peers(0), None);
    }

    fn of_kernel(protect: Protect, presence: &Presence, left_out: LeftOut) -> Vec<String> {
        let settings = config::Kernel {
            protect,
            ..config::Kernel::default()
        };
        super::of_kernel(&settings, presence, left_out)
    }

    #[test]
    fn a_module_that_is_loaded_and_not_used_is_degraded_unless_nobody_wants_it() {
        let says = |protect, unusable| {
            let presence = Presence::Unusable(unusable);
            of_kernel(protect, &presence, LeftOut::default()).concat()
        };
        let not_permitted = || Unusable::from(&std::io::Error::from_raw_os_error(libc::EPERM));
        assert_eq!(
            says(Protect::All, not_permitted()),
            "kernel module apm is loaded but not used, kernel connections are not protected: Operation not \
             permitted (os error 1); apmd needs CAP_NET_ADMIN; install apmd-kernel.conf (docs/kernel.md) or \
             unload the module"
        );
        assert_eq!(says(Protect::None, not_permitted()), "");
        let unfixed = Unusable::Unfixed("kernel 6.1.0 lets a queue pair be found".to_owned());
        let unfixed = says(Protect::Ulps, unfixed);
        assert!(
            unfixed.contains(
                "not protected: kernel 6.1.0 lets a queue pair be found; install a fixed kernel"
            ) && unfixed.contains("allow_unfixed = true"),
            "{unfixed}"
        );
        let failed = Unusable::from(&std::io::Error::from_raw_os_error(libc::EIO));
        let failed = says(Protect::All, failed);
        assert!(
            failed.ends_with("; restart apmd or unload the module"),
            "{failed}"
        );
        let none = of_kernel(Protect::All, &Presence::Absent, LeftOut::default());
        assert!(none.is_empty(), "many do without");
    }

    #[test]
    fn queue_pairs_that_are_left_out_are_degraded() {
        let of = |protect, left_out| of_kernel(protect, &Presence::Present, left_out);
        assert!(of(Protect::All, LeftOut::default()).is_empty());
        let left_out = LeftOut {
            no_room: 3,
            overdue: Overdue { port: 2, turn: 1 },
        };
        let want = [
            "3 queue pairs are not protected: no room (control.max_connections): `apmctl qp` says which",
            "1 queue pairs are not protected: too many come and go (for more than a minute): `apmctl qp` says \
             which",
            "2 queue pairs are not protected: their device or port is not managed, the log says why: \
             `apmctl qp` says which",
        ];
        assert_eq!(of(Protect::All, left_out), want);
        assert!(of(Protect::None, left_out).is_empty());
    }
}
