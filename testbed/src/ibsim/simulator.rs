// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process ibsim and its console.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, ChildStdin};
use std::time::Duration;

use super::child::{bound_to_us, ended, spawn};
use super::net::{Cable, Net};
use super::place::{Place, in_file};
use crate::failure::Failure;
use crate::wait::{self, Seen};

/// How long it may take to read its file, and to do what its console is told.
const LIMIT: Duration = Duration::from_secs(60);
const PERIOD: Duration = Duration::from_millis(2);

/// What it prints when it waits for the next command.
const PROMPT: &str = "sim> ";

/// A running ibsim. Killed when dropped.
#[derive(Debug)]
pub struct Simulator {
    child: Child,
    /// Never closed while it runs: at the console's end it would spin.
    console: ChildStdin,
    log: PathBuf,
    prompts: usize,
}

impl Simulator {
    /// Starts it on a net and waits until it is ready.
    ///
    /// # Errors
    /// [`Failure::Start`] without the Debian package ibsim-utils, [`Failure::Output`] with what it
    /// complains of.
    pub fn start(place: &Place, net: &Net) -> Result<Self, Failure> {
        let file = place.write("fabric.net", &net.text())?;
        let nodes = net.switch_count() + net.host_count();
        let log = place.path().join("ibsim.log");
        let mut command = bound_to_us("ibsim");
        command
            .arg("-s")
            .args(["-N", &(nodes + 1).to_string()])
            .args(["-S", &(net.switch_count() + 1).to_string()])
            .args(["-P", &(net.port_count() + 1).to_string()])
            .arg(file)
            .current_dir(place.path())
            .env("IBSIM_SOCKNAME", place.socket_name());
        let mut child = spawn(command, "ibsim", &log)?;
        let Some(console) = child.stdin.take() else {
            return Err(Failure::not_shown("ibsim has no console"));
        };
        let mut simulator = Self {
            child,
            console,
            log,
            prompts: 0,
        };
        simulator.wait_for_prompt("ibsim is ready")?;
        Ok(simulator)
    }

    /// Pulls a cable.
    ///
    /// # Errors
    /// [`Failure::Output`] if the console refuses.
    pub fn unplug(&mut self, cable: &Cable) -> Result<(), Failure> {
        self.command(&format!("Unlink {}", cable.ends[0]))
    }

    /// Plugs a cable in again that was pulled.
    ///
    /// # Errors
    /// [`Failure::Output`] if the console refuses.
    pub fn replug(&mut self, cable: &Cable) -> Result<(), Failure> {
        self.command(&format!("ReLink {}", cable.ends[0]))
    }

    fn command(&mut self, line: &str) -> Result<(), Failure> {
        let before = self.text()?.len();
        let sent = self.console.write_all(format!("{line}\n").as_bytes());
        sent.map_err(|source| in_file(&self.log, source))?;
        self.wait_for_prompt(line)?;
        let text = self.text()?;
        // It complains in lines that begin so, and says nothing else.
        match text[before..].lines().find(|line| line.starts_with('#')) {
            None => Ok(()),
            Some(complaint) => Err(Failure::Output {
                source_name: format!("ibsim's console, told '{line}'"),
                problem: complaint.to_owned(),
            }),
        }
    }

    /// Waits until what it was told is done.
    fn wait_for_prompt(&mut self, what: &str) -> Result<(), Failure> {
        let wanted = self.prompts + 1;
        self.prompts = wait::until_often(what, LIMIT, PERIOD, || {
            let text = self.text()?;
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(ended("ibsim", &status.to_string(), &text));
            }
            let prompts = text.matches(PROMPT).count();
            Ok(match prompts >= wanted {
                true => Seen::Ready(prompts),
                false => Seen::NotYet(text.lines().last().unwrap_or_default().to_owned()),
            })
        })?;
        Ok(())
    }

    fn text(&self) -> Result<String, Failure> {
        let bytes = fs::read(&self.log).map_err(|source| in_file(&self.log, source))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        // It keeps nothing that would have to be written.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
