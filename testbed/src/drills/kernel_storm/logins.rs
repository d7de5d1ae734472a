// SPDX-License-Identifier: MIT OR Apache-2.0
//! SRP: log in, write and read back, log out; some are logged out under their I/O, or their writer is killed.

use std::fs;
use std::time::Duration;

use crate::clock::Moment;
use crate::command;
use crate::failure::Failure;
use crate::host::Host;
use crate::ibsim::Dice;
use crate::program::Program;

use super::killed::verify;

const LIMIT: Duration = Duration::from_secs(60);

/// Seconds of I/O between login and logout.
const SECONDS: &str = "2";

/// Whoever has lost a connection gives up soon: what is asked here is that nothing hangs, and not that a disk
/// outlives what is ordered at its queue pairs.
const IMPATIENT: [&str; 3] = ["reconnect_delay=1", "fast_io_fail_tmo=2", "dev_loss_tmo=4"];

/// A target on host B, and host A's logins.
pub(super) struct Logins {
    _target: Program,
    login: Option<Program>,
    logout: Option<Program>,
    next: Moment,
    count: u64,
}

impl Logins {
    /// Loads what they need, and starts the target.
    pub(super) fn prepare() -> Result<Self, Failure> {
        command::run(&[&["modprobe", "ib_srp"], &IMPATIENT[..]].concat())?;
        let mut target = Program::start("srp target", Host::B, &["srp", "target"])?;
        target.wait_for_line("ready", LIMIT, |line| line.contains("ready"))?;
        Ok(Self {
            _target: target,
            login: None,
            logout: None,
            next: Moment::now(),
            count: 0,
        })
    }

    /// Logins that had their first block back.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// What is due now.
    pub(super) fn go_on(&mut self, dice: &mut Dice) -> Result<(), Failure> {
        self.look()?;
        if self.login.is_some() {
            match dice.below(120) {
                0 => kill_writer()?,
                1 => self.log_out()?,
                _ => {}
            }
        } else if self.logout.is_none() && Moment::now() > self.next {
            self.login = Some(log_in(SECONDS)?);
        }
        Ok(())
    }

    /// The one of now ends. Others follow, as ever: a target that has lost its initiator unheard (ib_cm says goodbye
    /// over the port on which it said hello) goes on until that logs in again.
    pub(super) fn interrupt(&mut self) -> Result<(), Failure> {
        kill_writer()?;
        self.log_out()
    }

    /// Whether nobody is logged in, where no more logins follow.
    pub(super) fn are_gone(&mut self) -> Result<bool, Failure> {
        self.look()?;
        let ports = fs::read_dir("/sys/class/srp_remote_ports");
        let none = ports.map_or(0, Iterator::count) == 0;
        if !none && self.login.is_none() {
            self.log_out()?;
        }
        Ok(none && self.login.is_none() && self.logout.is_none())
    }

    /// Begins the last login: no fault is left, and the target hears of its end.
    pub(super) fn begin_last(&mut self) -> Result<(), Failure> {
        self.login = Some(log_in("1")?);
        Ok(())
    }

    fn look(&mut self) -> Result<(), Failure> {
        be_impatient();
        if let Some(login) = &mut self.login
            && login.ended()?.is_some()
        {
            verify(login)?;
            self.count += u64::from(login.lines().iter().any(|line| line.text == "begun"));
            self.login = None;
            self.log_out()?;
        }
        if let Some(logout) = &mut self.logout
            && logout.ended()?.is_some()
        {
            self.logout = None;
            self.next = Moment::now() + Duration::from_millis(300);
        }
        Ok(())
    }

    fn log_out(&mut self) -> Result<(), Failure> {
        if self.logout.is_none() {
            self.logout = Some(Program::start("srp forget", Host::A, &["srp", "forget"])?);
        }
        Ok(())
    }
}

fn log_in(seconds: &str) -> Result<Program, Failure> {
    Program::start("srp initiator", Host::A, &["srp", "initiator", seconds])
}

/// A command whose answer was lost is given up sooner than in SCSI's 30 s.
fn be_impatient() {
    let devices = fs::read_dir("/sys/class/scsi_device");
    for device in devices.into_iter().flatten().flatten() {
        // It may be on its way out.
        drop(fs::write(device.path().join("device/timeout"), "3"));
    }
}

fn kill_writer() -> Result<(), Failure> {
    // There may be none at the moment.
    command::attempt(&["killall", "-q", "-KILL", "block_writer"]).map(drop)
}
