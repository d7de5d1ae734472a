// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `apmctl -j conn show` says.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::command;
use crate::failure::Failure;
use crate::host::Host;
use crate::port::Port;

/// A connection as a daemon shows it; what the drills look at.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Connection {
    /// Its name in its daemon.
    pub id: String,
    /// `active` or `passive`.
    pub role: String,
    /// Who changes its QP: `library` or `kernel`.
    pub by: String,
    /// Its QP.
    pub qpn: u32,
    /// The peer's QP.
    pub peer_qpn: u32,
    /// `armed`, or how it is on the way to that.
    pub protection: String,
    /// Why it is not armed.
    pub reason: Option<String>,
    /// The path it is on.
    pub primary: Path,
    /// The path that is loaded.
    pub alternate: Option<Path>,
    /// Its library may migrate it by itself when the primary's local port fails.
    pub standing_order: bool,
    /// What happened to it, since its daemon started.
    pub counters: Counters,
}

/// Numbers of connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct Sums {
    /// All that the daemon manages.
    pub total: usize,
    /// Those that would survive the loss of their path.
    pub armed: usize,
}

/// What happened to a connection, as its daemon counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct Counters {
    /// Migrations, by hardware or ordered.
    pub migrations: u64,
    /// Of these, ordered by this daemon.
    pub ordered_migrations: u64,
}

/// A path of a connection, from the end that shows it.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Path {
    /// Local port number.
    pub port: u8,
    /// Local LID.
    pub slid: u16,
    /// Remote LID.
    pub dlid: u16,
    /// P_Key of the partition that it is in.
    pub pkey: u16,
    /// Exponent of the QP's ACK timeout, as its process reads it (`ibv_query_qp`).
    pub ack_timeout: u8,
    /// The source whose path it is, where it is an alternate that this end asked for.
    pub origin: Option<String>,
    /// Of an alternate: what it shares with the primary though it need not, if that is known.
    pub overlap: Option<Overlap>,
}

/// What two paths share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct Overlap {
    /// Switches.
    pub switches: u16,
    /// Links.
    pub links: u16,
}

impl Overlap {
    const NONE: Self = Self {
        switches: 0,
        links: 0,
    };
}

/// A path source as a daemon shows it.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Source {
    /// `sa`, `acm`, `ssa` or `static`.
    pub source: String,
    /// `healthy`, `failing` or `unproven`.
    pub state: String,
    /// Questions answered with a path.
    pub answered: u64,
    /// Paths in these answers.
    pub paths: u64,
}

impl Path {
    /// Whether this is the other one, seen from the other end.
    pub fn reverses(&self, other: &Self) -> bool {
        self.slid == other.dlid && self.dlid == other.slid
    }
}

impl Connection {
    /// Whether it would survive the loss of its path.
    pub fn is_armed(&self) -> bool {
        self.protection == "armed"
    }

    /// Its state, with the reason if it is not armed.
    pub fn state(&self) -> String {
        match &self.reason {
            Some(reason) => format!("{}: {reason}", self.protection),
            None => self.protection.clone(),
        }
    }
}

/// Reads the output of `apmctl -j conn show`.
///
/// # Errors
/// [`Failure::Output`] if it is not what is documented.
pub fn parse_connections(json: &str) -> Result<Vec<Connection>, Failure> {
    serde_json::from_str(json).map_err(|error| Failure::Output {
        source_name: "apmctl -j conn show".to_owned(),
        problem: error.to_string(),
    })
}

/// The connections that the host's daemon manages.
///
/// # Errors
/// If the daemon does not answer.
pub fn connections(host: Host) -> Result<Vec<Connection>, Failure> {
    connections_of(host, &[])
}

/// Those of them that the filter names, in the words of docs/apmctl.md; all if it is empty.
///
/// # Errors
/// If the daemon does not answer.
pub fn connections_of(host: Host, filter: &[&str]) -> Result<Vec<Connection>, Failure> {
    let words = [&["apmctl", "-j", "conn", "show"], filter].concat();
    parse_connections(&command::run_as(host, &words)?)
}

/// How many connections the host's daemon manages, and how many of these are armed: much less to print than
/// all of them.
///
/// # Errors
/// If the daemon does not answer.
pub fn sums(host: Host) -> Result<Sums, Failure> {
    // Whatever its exit status: it tells that a connection is unprotected.
    let shown = command::attempt(&[host.name(), "apmctl", "-j", "status"])?;
    if shown.stdout.is_empty() {
        return Err(Failure::Command {
            command: format!("apmctl status of {host}"),
            status: shown.status.to_string(),
            stderr: String::from_utf8_lossy(&shown.stderr).trim().to_owned(),
        });
    }
    parse_sums(&String::from_utf8_lossy(&shown.stdout))
}

fn parse_sums(json: &str) -> Result<Sums, Failure> {
    #[derive(Deserialize)]
    struct Status {
        connections: Sums,
    }
    let status: Result<Status, _> = serde_json::from_str(json);
    let sums = status.map(|status| status.connections);
    sums.map_err(|error| Failure::Output {
        source_name: "apmctl -j status".to_owned(),
        problem: error.to_string(),
    })
}

/// The path sources of the host's daemon, in the order in which it asks them.
///
/// # Errors
/// If the daemon does not answer.
pub fn sources(host: Host) -> Result<Vec<Source>, Failure> {
    show(host, "source")
}

/// The counters of the host's daemon: keys as in `docs/apmctl.md`.
///
/// # Errors
/// If the daemon does not answer.
pub fn counters(host: Host) -> Result<Value, Failure> {
    show(host, "counters")
}

/// What the host's daemon says of the ACM that it serves: keys as in `docs/apmctl.md`.
///
/// # Errors
/// If the daemon does not answer, or does not serve it.
pub fn acm(host: Host) -> Result<Value, Failure> {
    show(host, "acm")
}

/// One of the counters of that.
///
/// # Errors
/// As [`acm`], and if there is no such counter.
pub fn acm_counter(host: Host, name: &str) -> Result<u64, Failure> {
    let acm = acm(host)?;
    let count = acm["counters"][name].as_u64();
    count.ok_or_else(|| Failure::Output {
        source_name: "apmctl -j acm show".to_owned(),
        problem: format!("no counter {name}: {acm}"),
    })
}

fn show<T: DeserializeOwned>(host: Host, what: &str) -> Result<T, Failure> {
    let json = command::run_as(host, &["apmctl", "-j", what, "show"])?;
    serde_json::from_str(&json).map_err(|error| Failure::Output {
        source_name: format!("apmctl -j {what} show"),
        problem: error.to_string(),
    })
}

/// Both ends of a connection, as their daemons show them.
#[derive(Clone, PartialEq, Debug)]
pub struct Pair {
    /// Whose.
    pub hosts: [Host; 2],
    /// The ends, by host.
    pub ends: [Connection; 2],
}

impl Pair {
    /// Puts the ends that belong together side by side; ends without a peer are left out.
    pub fn join(hosts: [Host; 2], a: &[Connection], b: &[Connection]) -> Vec<Self> {
        let peer = |end: &Connection| {
            b.iter()
                .find(|peer| peer.qpn == end.peer_qpn && peer.peer_qpn == end.qpn)
                .cloned()
        };
        a.iter()
            .filter_map(|end| {
                Some(Self {
                    hosts,
                    ends: [end.clone(), peer(end)?],
                })
            })
            .collect()
    }

    /// The end at a host.
    pub fn end(&self, host: Host) -> &Connection {
        &self.ends[host.index()]
    }

    /// The port of a host that carries it.
    pub fn active_port(&self, host: Host) -> Port {
        host.port(self.end(host).primary.port)
    }

    /// Both ends see the connection on the same path.
    pub fn is_on_one_path(&self) -> bool {
        let [a, b] = &self.ends;
        a.primary.reverses(&b.primary)
    }

    /// Both ends are armed, and mean the same two paths.
    pub fn is_armed(&self) -> bool {
        let [a, b] = &self.ends;
        let same_alternate = match (&a.alternate, &b.alternate) {
            (Some(a), Some(b)) => a.reverses(b),
            _ => false,
        };
        a.is_armed() && b.is_armed() && self.is_on_one_path() && same_alternate
    }

    /// Armed, and the two paths have no port in common.
    pub fn is_disjoint(&self) -> bool {
        let other_port = |end: &Connection| {
            end.alternate
                .as_ref()
                .is_some_and(|alternate| alternate.port != end.primary.port)
        };
        self.is_armed() && self.ends.iter().all(other_port)
    }

    /// Armed, and the end that chose the alternate knows that it shares no switch and no link with the
    /// primary that it need not.
    pub fn shares_nothing(&self) -> bool {
        let known = |end: &Connection| {
            let overlap = end.alternate.as_ref().and_then(|path| path.overlap);
            overlap == Some(Overlap::NONE)
        };
        self.is_armed() && self.ends.iter().any(known)
    }

    /// The paths, as `shca0/1-shca1/1, alternate shca0/2-shca1/2`.
    pub fn paths(&self) -> String {
        let [a, b] = &self.ends;
        let [of_a, of_b] = self.hosts;
        let path = |a: &Path, b: &Path| format!("{}-{}", of_a.port(a.port), of_b.port(b.port));
        match (&a.alternate, &b.alternate) {
            (Some(alternate_a), Some(alternate_b)) => format!(
                "{}, alternate {}",
                path(&a.primary, &b.primary),
                path(alternate_a, alternate_b)
            ),
            _ => path(&a.primary, &b.primary),
        }
    }

    /// The paths, and the state of each end.
    pub fn state(&self) -> String {
        let [a, b] = &self.ends;
        format!(
            "{}; {} {}; {} {}",
            self.paths(),
            self.hosts[0],
            a.state(),
            self.hosts[1],
            b.state()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list as apmctl prints it, of one connection; keys that the drills do not look at shortened.
    fn shown(
        role: &str,
        qpn: u32,
        peer_qpn: u32,
        protection: &str,
        slid: u16,
        dlid: u16,
    ) -> String {
        let reason = if protection == "armed" {
            "null"
        } else {
            "\"no second port is up\""
        };
        format!(
            r#"[{{"id":"1.1","device":"shca0","qpn":{qpn},"peer_qpn":{peer_qpn},"role":"{role}","by":"library",
            "opted_in":true,"standing_order":true,"migration":"armed","protection":"{protection}","reason":{reason},
            "primary":{{"port":1,"slid":{slid},"dlid":{dlid},"pkey":65535,"ack_timeout":14,
                "sgid":"fe80::1","dgid":"fe80::2"}},
            "alternate":{{"port":2,"slid":{},"dlid":{},"pkey":65535,"ack_timeout":14,
                "sgid":"fe80::3","dgid":"fe80::4"}},
            "counters":{{"migrations":3,"ordered_migrations":1}}}}]"#,
            slid + 10,
            dlid + 10,
        )
    }

    fn pair(protection_b: &str, dlid_b: u16) -> Pair {
        let a = parse_connections(&shown("active", 17, 18, "armed", 1, 2)).expect("well formed");
        let b = parse_connections(&shown("passive", 18, 17, protection_b, 2, dlid_b));
        Pair::join(Host::ALL, &a, &b.expect("well formed"))
            .pop()
            .expect("they belong together")
    }

    #[test]
    fn a_pair_is_armed_when_both_ends_are_over_the_same_paths() {
        assert!(pair("armed", 1).is_armed());
        assert!(pair("armed", 1).is_disjoint());
        assert!(!pair("armed", 3).is_armed());
        assert!(!pair("rearming", 1).is_armed());
        assert_eq!(
            pair("rearming", 1).state(),
            "shca0/1-shca1/1, alternate shca0/2-shca1/2; host-a armed; \
             host-b rearming: no second port is up"
        );
    }

    #[test]
    fn a_shared_port_is_not_disjoint() {
        let mut pair = pair("armed", 1);
        for end in &mut pair.ends {
            let alternate = end.alternate.as_mut().expect("it has one");
            alternate.port = 1;
        }
        assert!(pair.is_armed());
        assert!(!pair.is_disjoint());
    }

    #[test]
    fn what_is_shared_must_be_known_to_be_nothing() {
        let mut pair = pair("armed", 1);
        assert!(!pair.shares_nothing(), "nobody knows");
        let mut of_alternate = |overlap| {
            let alternate = pair.ends[1].alternate.as_mut().expect("it has one");
            alternate.overlap = Some(overlap);
            pair.shares_nothing()
        };
        assert!(of_alternate(Overlap::NONE));
        let spine = Overlap {
            switches: 1,
            ..Overlap::NONE
        };
        assert!(!of_alternate(spine));
    }

    #[test]
    fn strangers_are_not_paired_and_nonsense_is_refused() {
        let a = parse_connections(&shown("active", 17, 18, "armed", 1, 2)).expect("well formed");
        let b = parse_connections(&shown("passive", 19, 17, "armed", 2, 1)).expect("well formed");
        assert!(Pair::join(Host::ALL, &a, &b).is_empty());
        assert!(parse_connections("{}").is_err());
        assert!(parse_connections(r#"[{"role":"active"}]"#).is_err());
        let sums =
            parse_sums(r#"{"pid":7,"connections":{"total":3,"armed":2,"armed_same_port":1}}"#);
        assert_eq!(sums.ok(), Some(Sums { total: 3, armed: 2 }));
        assert!(parse_sums("{}").is_err());
    }
}
