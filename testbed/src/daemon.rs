// SPDX-License-Identifier: MIT OR Apache-2.0
//! A host's `apmd`, with a configuration and a log of the drill's own.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use statemachine::PortDown;

use crate::command;
use crate::failure::Failure;
use crate::file::{self, DIRECTORY};
use crate::host::Host;
use crate::program::{Line, Program};
use crate::timeline::Timeline;
use crate::unit::{Prepared, Rights};
use crate::wait::{self, Seen};

/// Bound for a daemon's start and end.
const LIMIT: Duration = Duration::from_secs(30);

/// What a drill may want of the daemons.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// What is done for connections whose local port goes down.
    pub port_down: PortDown,
    /// Which of their lines are kept.
    pub log: &'static str,
    /// What they may do.
    pub rights: Rights,
    /// Devices that they manage besides the host's own.
    pub devices: &'static [&'static str],
    /// Sections of the configuration besides `policy` and `log`: TOML.
    pub sections: &'static str,
}

impl Policy {
    /// What most drills want.
    pub const NORMAL: Self = Self {
        port_down: PortDown::Migrate,
        log: "info,apmd::engine=debug",
        rights: Rights::Root,
        devices: &[],
        sections: "",
    };

    /// The same, and the daemons read from the fabric which way each LID is routed.
    pub const LIVE: Self = Self {
        sections: "[ssa]\nlive = true\n",
        ..Self::NORMAL
    };
}

impl Default for Policy {
    fn default() -> Self {
        Self::NORMAL
    }
}

/// The VM's kernels may lack a fix without which the module is not used: drills use it all the same, unless they say.
fn with_module_allowed(sections: &str) -> String {
    const KERNEL: &str = "[kernel]\n";
    const ALLOWED: &str = "[kernel]\nallow_unfixed = true\n";
    if sections.contains("allow_unfixed") {
        sections.to_owned()
    } else if sections.contains(KERNEL) {
        sections.replacen(KERNEL, ALLOWED, 1)
    } else {
        format!("{sections}\n{ALLOWED}")
    }
}

/// The configuration file of a host's daemon.
fn config(host: Host, policy: Policy) -> String {
    let mut devices = vec![host.device()];
    devices.extend(policy.devices);
    format!(
        "devices = {devices:?}\nruntime_dir = \"{}\"\n\
         [policy]\ndefault = \"port-down {}\"\n\
         [log]\nlevel = \"{}\"\nformat = \"json\"\n{}",
        host.runtime_dir(),
        policy.port_down,
        policy.log,
        with_module_allowed(policy.sections)
    )
}

/// A running `apmd`; killed when dropped.
pub struct Daemon {
    host: Host,
    program: Program,
    rights: Prepared,
}

impl Daemon {
    /// Starts it and waits until it answers.
    ///
    /// # Errors
    /// If it does not.
    pub fn start(host: Host, policy: Policy, timeline: &Timeline) -> Result<Self, Failure> {
        let path = write_config(host, policy)?;
        let shared = timeline.clone();
        let on_line = move |line: &Line| {
            if let Some(what) = news(&line.text) {
                shared.note_at(line.at, host, what);
            }
        };
        let name = format!("apmd on {host}");
        let rights = Prepared::new(policy.rights, host)?;
        let words = rights.launch().iter().map(String::as_str);
        let words: Vec<_> = words.chain(["apmd", "--config", path.as_str()]).collect();
        let program = Program::start_watched(&name, host, &words, on_line)?;
        let mut daemon = Self {
            host,
            program,
            rights,
        };
        daemon.wait_until_it_answers()?;
        Ok(daemon)
    }

    fn wait_until_it_answers(&mut self) -> Result<(), Failure> {
        let what = format!("{} answers", self.program.name());
        wait::until(&what, LIMIT, || {
            self.program.ensure_running()?;
            let answer = command::attempt(&[self.host.name(), "apmctl", "-j", "conn", "show"])?;
            let complaint = String::from_utf8_lossy(&answer.stderr).trim().to_owned();
            Ok(Seen::when(answer.status.success(), || complaint))
        })
    }

    /// Makes it read its configuration again.
    ///
    /// # Errors
    /// If it has ended.
    pub fn reload(&mut self) -> Result<(), Failure> {
        self.program.ensure_running()?;
        self.program.signal(Signal::SIGHUP)
    }

    /// Ends it by SIGTERM.
    ///
    /// # Errors
    /// If it does not end, or not with success.
    pub fn stop(mut self) -> Result<(), Failure> {
        self.program.signal(Signal::SIGTERM)?;
        let status = self.program.wait(LIMIT)?;
        if status.success() {
            return Ok(());
        }
        Err(Failure::Command {
            command: self.program.name().to_owned(),
            status: status.to_string(),
            stderr: self.program.last_line(),
        })
    }

    /// Kills it as `kill -9` does.
    ///
    /// # Errors
    /// If it had ended before.
    pub fn kill(mut self) -> Result<(), Failure> {
        self.program.ensure_running()?;
        self.program.signal(Signal::SIGKILL)?;
        self.program.wait(LIMIT).map(drop)
    }

    /// Stops it where it stands: it answers nothing until [`Self::resume`].
    ///
    /// # Errors
    /// If it has ended.
    pub fn pause(&mut self) -> Result<(), Failure> {
        self.program.ensure_running()?;
        self.program.signal(Signal::SIGSTOP)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// If it has ended.
    pub fn resume(&mut self) -> Result<(), Failure> {
        self.program.ensure_running()?;
        self.program.signal(Signal::SIGCONT)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// What it may do, as it was prepared.
    pub fn rights(&self) -> &Prepared {
        &self.rights
    }

    /// Its log so far.
    pub fn log(&self) -> Vec<Line> {
        self.program.lines()
    }
}

fn write_config(host: Host, policy: Policy) -> Result<String, Failure> {
    let directory = host.runtime_dir();
    fs::create_dir_all(directory).map_err(|source| Failure::File {
        path: directory.to_owned(),
        source,
    })?;
    let path = format!("{DIRECTORY}/{host}.toml");
    file::write(&path, &config(host, policy))?;
    Ok(path)
}

/// Whether a line of the log stands in an operator's, whose level is INFO.
pub fn is_told(line: &Line) -> bool {
    let event: Result<Value, _> = serde_json::from_str(&line.text);
    let level = event
        .ok()
        .and_then(|event| Some(event["level"].as_str()?.to_owned()));
    level.is_none_or(|level| ["INFO", "WARN", "ERROR"].contains(&level.as_str()))
}

/// A log line in words: the message and its fields.
fn news(line: &str) -> Option<String> {
    let Ok(Value::Object(event)) = serde_json::from_str::<Value>(line) else {
        return (!line.trim().is_empty()).then(|| line.to_owned());
    };
    let fields = event.get("fields")?.as_object()?;
    let mut words = vec![fields.get("message")?.as_str()?.to_owned()];
    for (key, value) in fields.iter().filter(|(key, _)| *key != "message") {
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        words.push(format!("{key}={value}"));
    }
    Some(words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Moment;

    #[test]
    fn an_operator_is_not_told_of_debugging() {
        let line = |text: &str| Line {
            at: Moment::now(),
            text: text.to_owned(),
        };
        assert!(is_told(&line(r#"{"level":"WARN","fields":{}}"#)));
        assert!(is_told(&line("thread 'main' panicked")));
        assert!(!is_told(&line(
            r#"{"level":"DEBUG","fields":{"level":"INFO"}}"#
        )));
    }

    #[test]
    fn log_lines_become_words() {
        let line = r#"{"timestamp":"2026","level":"INFO","fields":{"message":"armed","conn":"1.1","port":2},"target":"apmd::engine"}"#;
        assert_eq!(news(line).as_deref(), Some("armed conn=1.1 port=2"));
        assert_eq!(news("thread panicked").as_deref(), Some("thread panicked"));
        assert_eq!(news(" "), None);
    }

    #[test]
    fn the_configuration_is_for_the_host() {
        let text = config(
            Host::B,
            Policy {
                port_down: PortDown::Wait,
                sections: "[acm]\nserve = true\n",
                ..Policy::default()
            },
        );
        assert!(text.starts_with("devices = [\"shca1\"]\nruntime_dir = \"/run/host-b/apmd\"\n"));
        assert!(text.contains("default = \"port-down wait\"\n"));
        assert!(text.contains("\n[acm]\nserve = true\n"));
    }
}
