// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl status`: the daemon at a glance.

use std::fmt::Write;

use clap::{Args, Subcommand};

use super::ask::ask;
use super::{Failure, Options, Outcome};
use crate::observe::model::{self, ModuleState};
use crate::observe::problems;
use crate::observe::request::Show;

#[derive(Args)]
pub(super) struct Status {
    /// Count lost redundancy as degraded: connections that have had both paths on one port for 60 s
    #[arg(long, global = true)]
    strict: bool,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
#[command(infer_subcommands = true)]
enum Verb {
    /// Show it (the default); exit status 4 when it is degraded
    Show,
}

impl Status {
    pub(super) fn run(self, options: &Options) -> Result<Outcome, Failure> {
        let (Some(Verb::Show) | None) = self.verb;
        let mut status: model::Status = ask(options, Show::Status)?;
        let lost = problems::without_redundancy(&status.connections).filter(|_| self.strict);
        status.degraded.extend(lost);
        options.show(&status, || text(&status))?;
        Ok(match status.degraded.is_empty() {
            true => Outcome::Ok,
            false => Outcome::Degraded,
        })
    }
}

fn text(status: &model::Status) -> String {
    let model::Status {
        ports, connections, ..
    } = status;
    let mut text = format!(
        "apmd {}, process {}, up {}\n",
        status.daemon.version,
        status.daemon.pid,
        duration(status.daemon.uptime_seconds)
    );
    let devices = match status.devices.join(" ") {
        none if none.is_empty() => "none".to_owned(),
        devices => devices,
    };
    let _ = writeln!(text, "devices      {devices}");
    for model::IgnoredDevice { device, reason } in &status.ignored {
        let _ = writeln!(text, "ignored      {device}: {reason}");
    }
    let _ = write!(text, "ports        {} of {} up", ports.up, ports.total);
    for (count, state) in [
        (ports.settling, "settling"),
        (ports.down, "down"),
        (ports.drained, "drained"),
    ] {
        if count > 0 {
            let _ = write!(text, ", {count} {state}");
        }
    }
    let _ = write!(
        text,
        "\nconnections  {} of {} armed",
        connections.armed, connections.total
    );
    let halves = [
        (connections.armed_same_switch, "same switch"),
        (connections.armed_same_port, "same port"),
        (connections.armed_unverified, "unverified"),
    ];
    let halves = halves.into_iter().filter(|(count, _)| *count > 0);
    let halves: Vec<_> = halves
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if !halves.is_empty() {
        let _ = write!(text, " (of these {})", halves.join(", "));
    }
    let waiting = &connections.waiting;
    let rest = [
        (
            waiting.rearming.saturating_sub(waiting.rearming_idle),
            "rearming",
        ),
        (waiting.idle_movable, "idle (movable)"),
        (
            waiting.rearming_idle.saturating_sub(waiting.idle_movable),
            "rearming (idle)",
        ),
        (connections.working, "negotiating or loading"),
        (connections.unprotected, "unprotected"),
        (connections.refused, "refused"),
        (connections.broken, "broken"),
    ];
    for (count, state) in rest {
        if count > 0 {
            let _ = write!(text, ", {count} {state}");
        }
    }
    let by_library = connections.total.saturating_sub(status.kernel.connections);
    let _ = writeln!(
        text,
        "\nprograms     {} with the library, which protects {by_library} of the connections",
        status.libraries
    );
    let _ = writeln!(text, "kernel       {}", kernel(&status.kernel));
    for problem in &status.problems {
        let heading = match status.degraded.contains(problem) {
            true => "degraded",
            false => "warning",
        };
        let _ = writeln!(text, "{heading:<12} {problem}");
    }
    text
}

/// The kernel module, and what it sees.
fn kernel(module: &model::KernelModule) -> String {
    match module.state {
        ModuleState::Absent => {
            "module apm not loaded: connections without the library are not protected".to_owned()
        }
        ModuleState::Unusable => {
            let why = module.reason.as_deref().unwrap_or_default();
            format!("module apm is loaded, but not used: {why} (see kernel.md)")
        }
        ModuleState::Loaded => format!(
            "module apm protects {}{}: {} of the connections; of {} RC queue pairs, {} left alone (see `apmctl qp`); {} peers named",
            module.protect,
            except(&module.except),
            module.connections,
            module.queue_pairs,
            module.left_alone,
            module.peers
        ),
    }
}

fn except(owners: &[String]) -> String {
    match owners {
        [] => String::new(),
        owners => format!(" except {}", owners.join(", ")),
    }
}

/// Two units at most.
pub(super) fn duration(seconds: u64) -> String {
    let (minutes, seconds) = (seconds / 60, seconds % 60);
    let (hours, minutes) = (minutes / 60, minutes % 60);
    match (hours / 24, hours % 24) {
        (0, 0) if minutes == 0 => format!("{seconds} s"),
        (0, 0) => format!("{minutes} min {seconds} s"),
        (0, hours) => format!("{hours} h {minutes} min"),
        (days, hours) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_stand_beside_what_is_protected() {
        let says = |except: &[&str]| {
            kernel(&model::KernelModule {
                state: ModuleState::Loaded,
                protect: "all".to_owned(),
                except: except.iter().map(|owner| (*owner).to_owned()).collect(),
                ..model::KernelModule::default()
            })
        };
        assert!(says(&[]).starts_with("module apm protects all: 0 of"));
        let some = says(&["ib_ipoib", "uid:7"]);
        assert!(some.starts_with("module apm protects all except ib_ipoib, uid:7: 0 of"));
    }

    #[test]
    fn durations_have_two_units() {
        let texts = [59, 61, 3600, 90_000].map(duration);
        assert_eq!(texts, ["59 s", "1 min 1 s", "1 h 0 min", "1 d 1 h"]);
    }
}
