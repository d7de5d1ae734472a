// SPDX-License-Identifier: MIT OR Apache-2.0
//! What drills act on: cables, ports, and both hosts' daemons.

use std::time::Duration;

use crate::clock::Moment;
use crate::command;
use crate::daemon::{self, Daemon, Policy};
use crate::failure::Failure;
use crate::host::Host;
use crate::link::Link;
use crate::observe::{self, Pair};
use crate::port::Port;
use crate::program::Line;
use crate::subnet_manager;
use crate::subnets::Numbering;
use crate::timeline::Timeline;
use crate::wait::{self, Seen};

/// Bound for what daemons do, such as arming a connection.
pub const LIMIT: Duration = Duration::from_secs(120);

/// How the hosts of the VM are kept apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Both HCAs in one network namespace: for AF_IB (GIDs).
    Flat,
    /// Each host has a namespace, with its HCA and IPoIB: for IP.
    Netns,
    /// The fabric `leaf-spine`, one network namespace, and the two hosts that have one port.
    LeafSpine,
    /// The same fabric and hosts, and a namespace for each host as in `Netns`.
    LeafSpineNetns,
    /// The fabric `two-subnets`: rails that nothing joins, each with its own subnet manager. One network
    /// namespace.
    TwoSubnets,
}

impl Kind {
    /// All, in the order in which they are least often changed.
    pub const ALL: [Self; 5] = [
        Self::Flat,
        Self::Netns,
        Self::LeafSpine,
        Self::LeafSpineNetns,
        Self::TwoSubnets,
    ];

    /// Its name in the list of drills.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::Netns => "netns",
            Self::LeafSpine => "leaf-spine",
            Self::LeafSpineNetns => "leaf-spine-netns",
            Self::TwoSubnets => "two-subnets",
        }
    }

    /// Its name on the command line of `world`.
    fn namespaces(self) -> &'static str {
        match self {
            Self::Flat | Self::LeafSpine | Self::TwoSubnets => "flat",
            Self::Netns | Self::LeafSpineNetns => "netns",
        }
    }

    /// The hosts on which its programs run.
    pub fn hosts(self) -> [Host; 2] {
        match self {
            Self::Flat | Self::Netns | Self::TwoSubnets => Host::ALL,
            Self::LeafSpine | Self::LeafSpineNetns => Host::ONE_PORT,
        }
    }
}

/// The VM as one drill has it.
pub struct World {
    hosts: [Host; 2],
    timeline: Timeline,
    daemons: [Option<Daemon>; 2],
    /// Which connections are looked at: a filter of `apmctl conn show`.
    filter: &'static [&'static str],
}

impl World {
    /// Puts the VM into `kind`: no daemon runs, all cables are plugged, all ports are active.
    ///
    /// # Errors
    /// If it does not come to that.
    pub fn prepare(kind: Kind, timeline: &Timeline) -> Result<Self, Failure> {
        // The daemons of the VM's start; from here on each drill has its own.
        command::run(&["daemons", "stop"])?;
        command::run(&["rm", "-f", "/run/daemons-wanted"])?;
        // Hosts are moved between namespaces by ports that are active; a drill may have left a cable pulled.
        command::run(&["cable", "mend"])?;
        command::run(&["world", kind.namespaces()])?;
        command::run(&["subnet-manager", "start"])?;
        let world = Self {
            hosts: kind.hosts(),
            timeline: timeline.clone(),
            daemons: [None, None],
            filter: &[],
        };
        world.mend()?;
        // A drill that failed may have left the ports with more LIDs, or fewer.
        let lmc = lmc_of_fabric()?;
        if world.hosts[0].port(1).lmc()? != lmc {
            world.set_lmc(lmc)?;
        }
        Ok(world)
    }

    /// The drill's timeline.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// The hosts on which programs run: the one that connects, and the one that listens.
    pub fn hosts(&self) -> [Host; 2] {
        self.hosts
    }

    /// Other hosts than usual: no daemon runs yet.
    ///
    /// # Errors
    /// If their ports are not active.
    pub fn move_to(&mut self, hosts: [Host; 2]) -> Result<(), Failure> {
        self.hosts = hosts;
        self.mend()
    }

    /// From now on only connections that this filter of `apmctl conn show` names are looked at.
    pub fn look_only_at(&mut self, filter: &'static [&'static str]) {
        self.filter = filter;
    }

    fn connections(&self) -> Result<[Vec<observe::Connection>; 2], Failure> {
        let [a, b] = self
            .hosts
            .map(|host| observe::connections_of(host, self.filter));
        Ok([a?, b?])
    }

    fn ports(&self) -> impl Iterator<Item = Port> {
        self.hosts.into_iter().flat_map(Host::ports)
    }

    /// Ends every fault and waits until all ports are active.
    ///
    /// # Errors
    /// If they do not become active.
    pub fn mend(&self) -> Result<(), Failure> {
        command::run(&["cable", "mend"])?;
        self.ports().try_for_each(Port::wait_active)
    }

    /// Pulls a cable; returns when.
    ///
    /// # Errors
    /// If `cable` refuses.
    pub fn pull(&self, link: impl Into<Link>) -> Result<Moment, Failure> {
        self.act("pull", "pulled", link.into())
    }

    /// Plugs a cable that is no host's.
    ///
    /// # Errors
    /// If `cable` refuses.
    pub fn restore(&self, link: Link) -> Result<(), Failure> {
        self.act("plug", "plugged", link).map(drop)
    }

    /// Plugs a cable and waits until the port is active again.
    ///
    /// # Errors
    /// If `cable` refuses, or the subnet manager does not bring the port up.
    pub fn plug(&self, port: Port) -> Result<(), Failure> {
        self.act("plug", "plugged", port.into())?;
        port.wait_active()
    }

    /// Lets nothing pass while the link stays up; returns when.
    ///
    /// # Errors
    /// If `cable` refuses.
    pub fn blackhole(&self, link: impl Into<Link>) -> Result<Moment, Failure> {
        self.act("blackhole", "black hole at", link.into())
    }

    /// Ends that.
    ///
    /// # Errors
    /// If `cable` refuses.
    pub fn heal(&self, link: impl Into<Link>) -> Result<(), Failure> {
        self.act("heal", "healed", link.into()).map(drop)
    }

    fn act(&self, verb: &str, done: &str, link: Link) -> Result<Moment, Failure> {
        let at = Moment::now();
        cable(verb, link)?;
        self.timeline.note_at(at, "cable", format!("{done} {link}"));
        Ok(at)
    }

    /// Ends the subnet manager, and with it subnet administration.
    ///
    /// # Errors
    /// If it cannot be ended.
    pub fn stop_subnet_manager(&self) -> Result<(), Failure> {
        self.timeline.note("drill", "subnet manager killed");
        command::run(&["subnet-manager", "stop"]).map(drop)
    }

    /// Starts the subnet manager again, if it does not run.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start_subnet_manager(&self) -> Result<(), Failure> {
        self.timeline.note("drill", "subnet manager started");
        command::run(&["subnet-manager", "start"]).map(drop)
    }

    /// Starts the subnet manager anew with this LMC, and waits until all ports have their LIDs.
    ///
    /// # Errors
    /// If they do not get them.
    pub fn set_lmc(&self, lmc: u8) -> Result<(), Failure> {
        let text = format!("subnet manager started anew with LMC {lmc}");
        self.timeline.note("drill", text);
        command::run(&["subnet-manager", "stop"])?;
        command::run(&["subnet-manager", "start", &lmc.to_string()])?;
        self.ports().try_for_each(|port| port.wait_lmc(lmc))
    }

    /// Starts the subnet manager anew, and has it give the port another LID; which.
    ///
    /// # Errors
    /// If the port does not get it.
    pub fn give_new_lid(&self, port: Port) -> Result<u16, Failure> {
        command::run(&["subnet-manager", "stop"])?;
        let lid = subnet_manager::assign_new_lid(port)?;
        command::run(&["subnet-manager", "start"])?;
        let text = format!("subnet manager started anew: {port} gets LID {lid}");
        self.timeline.note("drill", text);
        let what = format!("{port} has LID {lid}");
        wait::until(&what, LIMIT, || {
            let now = port.lid()?;
            Ok(Seen::when(now == lid, || format!("LID {now}")))
        })?;
        port.wait_active()?;
        Ok(lid)
    }

    /// Restarts both subnet managers of `two-subnets` with other LIDs and prefixes, and waits until every
    /// port has its own.
    ///
    /// # Errors
    /// If a port does not get them.
    pub fn number_subnets(&self, numbering: Numbering) -> Result<(), Failure> {
        command::run(&["subnet-manager", "stop"])?;
        numbering.write()?;
        command::run(&["subnet-manager", "start"])?;
        let text = format!("both subnet managers restarted: {numbering}");
        self.timeline.note("drill", text);
        self.ports().try_for_each(|port| numbering.wait(port))
    }

    /// Starts the daemons that do not run.
    ///
    /// # Errors
    /// If one does not come up.
    pub fn start_daemons(&mut self, policy: Policy) -> Result<(), Failure> {
        for host in self.hosts {
            if self.daemons[host.index()].is_none() {
                self.start_daemon(host, policy)?;
            }
        }
        Ok(())
    }

    /// Starts a host's daemon.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_daemon(&mut self, host: Host, policy: Policy) -> Result<(), Failure> {
        self.timeline.note(host, "apmd started");
        self.daemons[host.index()] = Some(Daemon::start(host, policy, &self.timeline)?);
        Ok(())
    }

    /// Makes a host's daemon read its configuration again.
    ///
    /// # Errors
    /// If it is not alive.
    pub fn reload_daemon(&mut self, host: Host) -> Result<(), Failure> {
        match &mut self.daemons[host.index()] {
            Some(daemon) => daemon.reload(),
            None => Err(Failure::not_shown(format!("no daemon to reload on {host}"))),
        }
    }

    /// Ends both daemons by SIGTERM.
    ///
    /// # Errors
    /// If one does not end with success.
    pub fn stop_daemons(&mut self) -> Result<(), Failure> {
        for host in self.hosts {
            if let Some(daemon) = self.daemons[host.index()].take() {
                daemon.stop()?;
                self.timeline.note(host, "apmd ended");
            }
        }
        Ok(())
    }

    /// Kills a host's daemon as `kill -9` does.
    ///
    /// # Errors
    /// If it was not alive.
    pub fn kill_daemon(&mut self, host: Host) -> Result<(), Failure> {
        let Some(daemon) = self.daemons[host.index()].take() else {
            return Err(Failure::not_shown(format!("no daemon to kill on {host}")));
        };
        daemon.kill()?;
        self.timeline.note(host, "apmd killed with -9");
        Ok(())
    }

    /// The process of a host's daemon, and the lines that `/proc/PID/status` has if it has exactly
    /// the rights that it was to be started with.
    ///
    /// # Errors
    /// If there is no daemon.
    pub fn rights(&self, host: Host) -> Result<(u32, Vec<String>), Failure> {
        match &self.daemons[host.index()] {
            Some(daemon) => Ok((daemon.pid(), daemon.rights().status().to_vec())),
            None => Err(Failure::not_shown(format!("no daemon on {host}"))),
        }
    }

    /// A host's daemon's log.
    pub fn log(&self, host: Host) -> Vec<Line> {
        self.daemons[host.index()]
            .as_ref()
            .map(Daemon::log)
            .unwrap_or_default()
    }

    /// What an operator's log has of a host's daemon since a moment: level INFO and above.
    pub fn told_since(&self, host: Host, since: Moment) -> Vec<Line> {
        let mut log = self.log(host);
        log.retain(|line| line.at >= since && daemon::is_told(line));
        log
    }

    /// The last lines of a host's daemon's log.
    pub fn log_tail(&self, host: Host, lines: usize) -> Vec<String> {
        self.log(host)
            .into_iter()
            .rev()
            .take(lines)
            .map(|line| line.text)
            .rev()
            .collect()
    }

    /// Waits until a host's daemon has logged a line with all of these words.
    ///
    /// # Errors
    /// [`Failure::Timeout`] with the end of the log.
    pub fn wait_logged(&self, host: Host, words: &[&str]) -> Result<(), Failure> {
        let what = format!("the log of {host} says {}", words.join(", "));
        wait::until(&what, LIMIT, || {
            let said = |line: &Line| words.iter().all(|word| line.text.contains(word));
            let said = self.log(host).iter().any(said);
            Ok(Seen::when(said, || self.log_tail(host, 1).concat()))
        })
    }

    /// The connections that both daemons know.
    ///
    /// # Errors
    /// If one does not answer.
    pub fn pairs(&self) -> Result<Vec<Pair>, Failure> {
        let [a, b] = self.connections()?;
        Ok(Pair::join(self.hosts, &a, &b))
    }

    /// Waits until `count` connections have on both ends what `wanted` wants.
    ///
    /// # Errors
    /// [`Failure::Timeout`] with what they have instead.
    pub fn wait_for(
        &self,
        what: &str,
        count: usize,
        wanted: impl Fn(&Pair) -> bool,
    ) -> Result<Vec<Pair>, Failure> {
        wait::until(what, LIMIT, || {
            let [a, b] = self.connections()?;
            let pairs = Pair::join(self.hosts, &a, &b);
            if pairs.len() == count && pairs.iter().all(&wanted) {
                return Ok(Seen::Ready(pairs));
            }
            Ok(Seen::NotYet(what_is_seen(&a, &b, &pairs)))
        })
    }

    /// Waits until a host's daemon has named so many peers' ports to the kernel module.
    ///
    /// # Errors
    /// If it does not come to that.
    pub fn wait_named(&self, host: Host, wanted: usize) -> Result<(), Failure> {
        let what = format!("{host} names {wanted} peers");
        wait::until(&what, LIMIT, || {
            // Whatever its exit status: a connection that an earlier drill has left may be unprotected.
            let shown = command::attempt(&[host.name(), "apmctl", "-j", "status"])?;
            let status: serde_json::Value =
                serde_json::from_slice(&shown.stdout).unwrap_or_default();
            let peers = &status["kernel"]["peers"];
            Ok(Seen::when(*peers == wanted, || format!("{peers} are")))
        })
    }

    /// Waits until each daemon has named the other's ports to the kernel module, as seen from each of its own:
    /// connections that begin from now on have a bounded ACK timeout.
    ///
    /// # Errors
    /// If it does not come to that.
    pub fn wait_acquainted(&self) -> Result<(), Failure> {
        let count: usize = self.hosts.map(|host| host.ports().count()).iter().product();
        let mut hosts = self.hosts.into_iter();
        hosts.try_for_each(|host| self.wait_named(host, count))
    }

    /// Waits until `count` connections are armed on both ends, over any two paths.
    ///
    /// # Errors
    /// As [`Self::wait_for`].
    pub fn wait_armed(&self, count: usize) -> Result<Vec<Pair>, Failure> {
        let pairs = self.wait_for("armed on both ends", count, Pair::is_armed)?;
        self.note_paths("armed", &pairs);
        Ok(pairs)
    }

    /// Waits until `count` connections are armed on both ends, over paths without a common port.
    ///
    /// # Errors
    /// As [`Self::wait_for`].
    pub fn wait_disjoint(&self, count: usize) -> Result<Vec<Pair>, Failure> {
        let what = "armed on both ends over paths without a common port";
        let pairs = self.wait_for(what, count, Pair::is_disjoint)?;
        self.note_paths("armed", &pairs);
        Ok(pairs)
    }

    /// Waits until `count` connections no longer use `port` on their primary path, seen from both
    /// ends.
    ///
    /// # Errors
    /// As [`Self::wait_for`].
    pub fn wait_moved(&self, count: usize, port: Port) -> Result<Vec<Pair>, Failure> {
        let what = format!("moved away from {port}");
        self.wait_for(&what, count, |pair| {
            pair.active_port(port.host) != port && pair.is_on_one_path()
        })
    }

    fn note_paths(&self, what: &str, pairs: &[Pair]) {
        match pairs {
            [pair] => self
                .timeline
                .note("drill", format!("{what}: {}", pair.paths())),
            _ => self
                .timeline
                .note("drill", format!("{what}: {} connections", pairs.len())),
        }
    }
}

fn what_is_seen(a: &[observe::Connection], b: &[observe::Connection], pairs: &[Pair]) -> String {
    let states: Vec<_> = pairs.iter().map(Pair::state).collect();
    format!(
        "{} connections here, {} there, {} on both ends: {}",
        a.len(),
        b.len(),
        pairs.len(),
        states.join(" | ")
    )
}

fn cable(verb: &str, link: Link) -> Result<(), Failure> {
    let words = link.words();
    let mut all = vec!["cable", verb];
    all.extend(words.iter().map(String::as_str));
    command::run(&all).map(drop)
}

/// The LMC that the subnet manager gives to ports if nobody wants another.
fn lmc_of_fabric() -> Result<u8, Failure> {
    let text = command::run(&["subnet-manager", "lmc"])?;
    text.trim().parse().map_err(|_| Failure::Output {
        source_name: "subnet-manager lmc".to_owned(),
        problem: format!("not a number: {text}"),
    })
}
