// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a row of the table is: a real program, and how it is run.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::world::Kind;

use super::way::Way;

/// What stands together in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Family {
    Perftest,
    RdmaCm,
    Libfabric,
    Ucx,
    Mpi,
    Kernel,
    Many,
}

impl Family {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Perftest => "perftest",
            Self::RdmaCm => "rdma_cm",
            Self::Libfabric => "libfabric",
            Self::Ucx => "ucx",
            Self::Mpi => "mpi",
            Self::Kernel => "kernel",
            Self::Many => "many",
        }
    }
}

/// How much a program has to do: what `{n}` in its command lines stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Amount {
    /// Seconds, as many as a run is to take.
    Seconds,
    /// Units of which so many take a moment; how many take long enough is measured. Never more than
    /// the second figure.
    Units(u64, u64),
}

/// Who checks that what arrives is what was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Data {
    /// Nobody: the program has no such option.
    Unchecked,
    /// The program itself, which fails otherwise.
    Checked,
    /// This command at the end, run on host B.
    Compared(&'static str),
}

impl Data {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Unchecked => "not checked",
            Self::Checked => "checked by the program",
            Self::Compared(_) => "compared at the end",
        }
    }
}

/// How a program comes to its end when all faults are over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// By itself, when it has done what it was told.
    OfItself,
    /// By SIGTERM to the client.
    Told,
    /// By SIGTERM to the program of this name, which the client has started.
    ToldTo(&'static str),
}

/// A program of the table. In its command lines `{run}` stands for what is put before a program that is to
/// be protected, `{n}` for how
/// much it has to do.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) family: Family,
    /// By which it is chosen and listed.
    pub(super) name: &'static str,
    pub(super) world: Kind,
    /// Run on host B before, where something has to be made.
    pub(super) before: Option<&'static str>,
    /// Run on host B after, where something is left.
    pub(super) after: Option<&'static str>,
    /// Run on host B; empty where there is none.
    pub(super) server: &'static str,
    /// What the server says when it listens, if it says that.
    pub(super) ready: Option<&'static str>,
    /// Whether the server ends when the client does; otherwise it is killed.
    pub(super) server_ends: bool,
    /// Run on host A.
    pub(super) client: &'static str,
    pub(super) amount: Amount,
    /// Connections that must be armed before anything is broken.
    pub(super) connections: usize,
    /// What can protect it.
    pub(super) ways: &'static [Way],
    pub(super) end: End,
    pub(super) data: Data,
    /// What the client says when all went well, where its exit status does not tell.
    pub(super) says: Option<&'static str>,
    /// For how long it may stand still: longer than that is no survival.
    pub(super) tolerates: Duration,
}

/// Programs wait as long as their connection does, which is 17 s with the CM's usual ACK timeout.
const TOLERATES: Duration = Duration::from_secs(60);

impl Row {
    /// A client and a server with one connection, for so many seconds, told by its exit status.
    pub(super) const fn new(
        family: Family,
        name: &'static str,
        server: &'static str,
        client: &'static str,
    ) -> Self {
        Self {
            family,
            name,
            world: Kind::Netns,
            before: None,
            after: None,
            server,
            ready: None,
            server_ends: true,
            client,
            amount: Amount::Seconds,
            connections: 1,
            ways: Way::ALL,
            end: End::OfItself,
            data: Data::Unchecked,
            says: None,
            tolerates: TOLERATES,
        }
    }

    /// Whether its connections are the kernel's, which makes new ones by itself.
    pub(super) fn is_of_the_kernel(&self) -> bool {
        self.family == Family::Kernel
    }
}

/// What is broken while a program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Fault {
    /// The cable of host A's port that carries the traffic is pulled.
    LocalCable,
    /// The same once more, when the traffic has moved to the other port.
    OtherCable,
    /// The cable of host B's port that carries the traffic is pulled.
    PeerCable,
    /// Nothing passes at host A's port that carries the traffic, whose link stays up.
    BlackHole,
    /// Nothing passes the spine that carries the traffic, whose links stay up, and no subnet manager
    /// routes around it.
    Spine,
}

impl Fault {
    /// Those of hosts with two ports, in the order in which they come. The last is a cable, which may stay out.
    const ALL: [Self; 4] = [
        Self::BlackHole,
        Self::LocalCable,
        Self::OtherCable,
        Self::PeerCable,
    ];

    /// Those of the short form.
    const FEW: [Self; 2] = [Self::BlackHole, Self::LocalCable];

    /// Those of a run. Where the fabric has spines, hosts have one port, whose cable they need.
    pub(super) fn of_run(short: bool, spines: bool) -> &'static [Self] {
        match (short, spines) {
            (_, true) => &[Self::Spine],
            (true, false) => &Self::FEW,
            (false, false) => &Self::ALL,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::LocalCable => "local cable",
            Self::OtherCable => "other local cable",
            Self::PeerCable => "peer's cable",
            Self::BlackHole => "black hole",
            Self::Spine => "spine",
        }
    }
}

/// What a program is run with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Column {
    /// Nothing: no daemon runs.
    Plain,
    /// Daemons on both hosts, and this.
    Protected(Way),
}

impl Column {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Protected(Way::Kernel) => "by the kernel",
            Self::Protected(Way::Library) => "by the library",
        }
    }

    /// A command line of a row as this column has it on these hosts.
    pub(super) fn words(self, line: &str, amount: u64, hosts: [Host; 2]) -> Vec<String> {
        let run = match self {
            Self::Plain | Self::Protected(Way::Kernel) => "",
            Self::Protected(Way::Library) => "apmctl run --",
        };
        on_hosts(line, hosts)
            .replace("{run}", run)
            .replace("{n}", &amount.to_string())
            .split_whitespace()
            .map(str::to_owned)
            .collect()
    }
}

/// Rows are written for hosts A and B.
fn on_hosts(line: &str, hosts: [Host; 2]) -> String {
    let mut line = line.to_owned();
    for (written, host) in Host::ALL.into_iter().zip(hosts) {
        for network in ["10.0.0", "10.0.1"] {
            let address = |host: Host| format!("{network}.{}", host.number());
            line = line.replace(&address(written), &address(host));
        }
        line = line
            .replace(written.device(), host.device())
            .replace(written.name(), host.name());
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spine_is_lost_where_there_is_one() {
        assert_eq!(Fault::of_run(true, false), Fault::FEW);
        assert_eq!(Fault::of_run(false, false), Fault::ALL);
        for short in [false, true] {
            assert_eq!(Fault::of_run(short, true), [Fault::Spine]);
        }
    }

    #[test]
    fn rows_are_carried_over_to_other_hosts() {
        let line = "ib_send_bw -d shca0 -D {n} 10.0.0.2";
        let words = Column::Plain.words(line, 7, Host::ONE_PORT);
        assert_eq!(words.join(" "), "ib_send_bw -d shca2 -D 7 10.0.0.4");
        let line = "rping -I 10.0.1.1 -a 10.0.1.2 --host host-a,host-b";
        assert_eq!(
            on_hosts(line, Host::ONE_PORT),
            "rping -I 10.0.1.3 -a 10.0.1.4 --host host-c,host-d"
        );
        assert_eq!(on_hosts(line, Host::ALL), line);
    }

    #[test]
    fn command_lines_are_filled_in() {
        let line = "{run} rping -c -C {n}";
        for column in [Column::Plain, Column::Protected(Way::Kernel)] {
            let words = column.words(line, 7, Host::ALL);
            assert_eq!(words, ["rping", "-c", "-C", "7"]);
        }
        assert_eq!(
            Column::Protected(Way::Library).words(line, 7, Host::ALL),
            ["apmctl", "run", "--", "rping", "-c", "-C", "7"]
        );
    }
}
