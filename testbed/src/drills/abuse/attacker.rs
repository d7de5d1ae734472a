// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apm-abuse` in the hands of an unprivileged user of host A.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::failure::Failure;
use crate::host::Host;
use crate::program::Program;
use crate::stream::value;
use crate::unit;
use crate::wait::{self, Seen};

/// Bound for an attacker to begin.
const LIMIT: Duration = Duration::from_secs(60);

/// Host A's socket for libraries.
pub(super) const SOCKET: &str = "/run/apmd/apmd.sock";

/// ACM's socket, to which everybody may connect.
pub(super) const ACM_SOCKET: &str = "/run/ibacm.sock";

/// The first of the users.
const USER: u32 = 1000;

/// Whose users may open RDMA devices, and the libraries' socket.
const GROUP: &str = "rdma";

/// nogroup.
const NO_GROUP: u32 = 65_534;

/// A user's program; killed when dropped.
pub(super) struct Attacker(Program);

impl Attacker {
    /// Starts a command line as the user with this number.
    pub(super) fn start(number: u32, words: &[&str]) -> Result<Self, Failure> {
        Self::start_as(USER + number, unit::group_id(GROUP)?, words)
    }

    /// Starts one as a user who is in no group that counts.
    pub(super) fn start_without_groups(words: &[&str]) -> Result<Self, Failure> {
        Self::start_as(USER, NO_GROUP, words)
    }

    /// Starts one as root of another host.
    pub(super) fn start_elsewhere(host: Host, command: &str) -> Result<Self, Failure> {
        Program::start("attacker", host, &["sh", "-c", command]).map(Self)
    }

    /// Starts one as this user, in this group.
    pub(super) fn start_as(user: u32, group: u32, words: &[&str]) -> Result<Self, Failure> {
        let (user, group) = (format!("--reuid={user}"), format!("--regid={group}"));
        let as_user = [
            // What they make the daemon do is to count, not how much they themselves compute: the VM has
            // two emulated processors.
            "nice",
            "-n",
            "19",
            // Not busybox's shell, which would call its own setpriv.
            "bash",
            "-c",
            "ulimit -n 65536 && exec \"$@\"",
            "sh",
            "setpriv",
            "--no-new-privs",
            &user,
            &group,
            "--clear-groups",
            "--inh-caps=-all",
            "--bounding-set=-all",
        ];
        let words = [&as_user, words].concat();
        Program::start("attacker", Host::A, &words).map(Self)
    }

    /// Waits until it says one of these, and returns which.
    pub(super) fn wait_for(&mut self, starts: &[&str]) -> Result<String, Failure> {
        let wanted = |line: &str| starts.iter().any(|start| line.starts_with(start));
        let line = self.0.wait_for_line(&starts.join(" or "), LIMIT, wanted)?;
        Ok(line.text)
    }

    /// Stops it where it stands.
    pub(super) fn pause(&mut self) -> Result<(), Failure> {
        self.0.signal(Signal::SIGSTOP)
    }

    /// Lets it go on after [`Self::pause`], and waits until it does.
    pub(super) fn resume(&mut self) -> Result<(), Failure> {
        let before = self.0.lines().len();
        self.0.signal(Signal::SIGCONT)?;
        wait::until("an attacker goes on", LIMIT, || {
            self.0.ensure_running()?;
            let lines = self.0.lines();
            let more = lines[before..].iter();
            let goes_on = more.into_iter().any(|line| line.text.starts_with("STATS"));
            Ok(Seen::when(goes_on, || "it says nothing".to_owned()))
        })
    }

    /// What it counts, as of its last line of statistics.
    pub(super) fn count(&self, key: &str) -> u64 {
        let lines = self.0.lines();
        let mut counts = lines
            .iter()
            .rev()
            .filter_map(|line| value(&line.text, "STATS", key)?.parse().ok());
        counts.next().unwrap_or(0)
    }
}

/// What all of them count.
pub(super) fn sum(attackers: &[Attacker], key: &str) -> u64 {
    attackers.iter().map(|attacker| attacker.count(key)).sum()
}
