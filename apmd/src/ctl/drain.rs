// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl port drain` and `undrain`: connections leave a port before its maintenance.

mod preview;

use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use super::ask::ask;
use super::order::seconds;
use super::terminal::Bar;
use super::{Failure, Options, Outcome, which};
use crate::observe::change::{Change, Drained};
use crate::observe::filter::{self, ConnectionFilter};
use crate::observe::model::{self, Port};
use crate::observe::request::Show;

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(200);

/// An alternate that has not left the port for so long is one that can go nowhere else: a path source
/// and the peer have answered long before.
const SETTLED: Duration = Duration::from_secs(3);

/// Connections of which it is said why they have not moved.
const NAMED: usize = 20;

#[derive(Args)]
pub(super) struct Drain {
    /// DEVICE/PORT
    port: String,
    /// Seconds to wait at most; exit status 4 after that
    #[arg(short, long, default_value_t = 30.0, value_name = "SECS")]
    timeout: f64,
    /// Change nothing: say which connections would leave the port, and which could not and why; exit status 4 if
    /// there are any of the latter
    #[arg(long, conflicts_with = "timeout")]
    dry_run: bool,
}

#[derive(Args)]
pub(super) struct Undrain {
    /// DEVICE/PORT
    port: String,
}

/// How far it came.
#[derive(Serialize)]
struct Report {
    port: String,
    drained: bool,
    /// Connections whose primary has left it.
    moved: usize,
    /// Connections whose alternate stays on it.
    alternates: usize,
    /// Connections whose primary stays on it.
    stuck: Vec<Stuck>,
}

#[derive(Serialize)]
struct Stuck {
    id: String,
    pid: i32,
    command: String,
    reason: String,
}

/// Connections that have paths over the port.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Left {
    primaries: usize,
    alternates: usize,
}

impl Drain {
    /// The mark stays, whatever comes of it: what could not move yet moves as soon as it can.
    pub(super) fn run(self, options: &Options) -> Result<Outcome, Failure> {
        let timeout = seconds(self.timeout)?;
        let port = checked(self.port)?;
        if self.dry_run {
            return preview::run(options, &port);
        }
        let before = left(options, &port)?;
        let _: Drained = ask(options, Change::Drain { port: port.clone() })?;
        let after = wait(options, &port, before, timeout)?;
        let stuck = match after.primaries {
            0 => Vec::new(),
            _ => stuck(options, &port)?,
        };
        let report = Report {
            drained: true,
            moved: before.primaries.saturating_sub(after.primaries),
            alternates: after.alternates,
            stuck,
            port,
        };
        options.show(&report, || text(&report))?;
        match report.stuck.len() {
            0 => Ok(Outcome::Ok),
            stuck => Err(Failure::TimedOut(format!(
                "{}: {stuck} connections could not leave it; it stays drained, and they leave when \
                 they can",
                report.port
            ))),
        }
    }
}

impl Undrain {
    pub(super) fn run(self, options: &Options) -> Result<Outcome, Failure> {
        let port = checked(self.port)?;
        let done: Drained = ask(options, Change::Undrain { port })?;
        options.show(&done, || format!("{} is used again", done.port))?;
        Ok(Outcome::Ok)
    }
}

fn checked(port: String) -> Result<String, Failure> {
    match port.split_once('/') {
        Some((device, number)) if !device.is_empty() && number.parse::<u8>().is_ok() => Ok(port),
        _ => Err(Failure::Usage(format!(
            "\"{port}\" is no port, such as mlx5_0/1"
        ))),
    }
}

/// Until no more can be expected to move.
fn wait(options: &Options, port: &str, before: Left, timeout: Duration) -> Result<Left, Failure> {
    let bar = Bar::new();
    let start = Instant::now();
    let (mut last, mut since) = (before, start);
    loop {
        let now = left(options, port)?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
        let all = before.primaries.max(now.primaries) + before.alternates.max(now.alternates);
        let done = all - now.primaries - now.alternates;
        bar.show(&format!("{port} is drained"), done as u64, all as u64);
        let settled = now.alternates == 0 || since.elapsed() >= SETTLED;
        if (now.primaries == 0 && settled) || start.elapsed() >= timeout {
            return Ok(now);
        }
        sleep(PAUSE);
    }
}

fn left(options: &Options, name: &str) -> Result<Left, Failure> {
    let ports: Vec<Port> = ask(options, Show::Port)?;
    let port = find(&ports, name)?;
    Ok(Left {
        primaries: port.primaries,
        alternates: port.alternates,
    })
}

/// The port of this name among those of the host.
fn find<'p>(ports: &'p [Port], name: &str) -> Result<&'p Port, Failure> {
    let port = ports.iter().find(|port| port.label() == name);
    port.ok_or_else(|| {
        Failure::Failed(format!(
            "{name}: not a port that apmd manages (see `apmctl port`)"
        ))
    })
}

fn stuck(options: &Options, port: &str) -> Result<Vec<Stuck>, Failure> {
    let (device, number) = port.split_once('/').unwrap_or((port, ""));
    let filter = ConnectionFilter {
        device: Some(device.to_owned()),
        ..ConnectionFilter::default()
    };
    let conns = which::all(options, filter, options.answer_timeout)?;
    let on_it = |conn: &model::Conn| conn.primary.port.to_string() == number;
    let conns = conns.into_iter().filter(on_it);
    let stuck = conns.map(|conn| Stuck {
        reason: which::why_held(&conn),
        id: conn.id,
        pid: conn.program.pid,
        command: conn.program.command,
    });
    Ok(stuck.collect())
}

fn text(report: &Report) -> String {
    let Report {
        port,
        moved,
        alternates,
        stuck,
        ..
    } = report;
    let mut lines = vec![format!(
        "{port} is drained: {moved} connections have left it, {} have not",
        stuck.len()
    )];
    lines.extend(stuck.iter().take(NAMED).map(|stuck| {
        let Stuck {
            id,
            pid,
            command,
            reason,
        } = stuck;
        format!("conn {id} {}: {reason}", filter::owner(command, *pid))
    }));
    if stuck.len() > NAMED {
        lines.push(format!("and {} more", stuck.len() - NAMED));
    }
    if *alternates > 0 {
        lines.push(format!(
            "{alternates} connections keep their alternate on it, for want of another: when it goes \
             down they go on, unprotected"
        ));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_is_said() {
        let stuck = |number: usize| Stuck {
            id: format!("1.{number}"),
            pid: 77,
            command: "rping".to_owned(),
            reason: "unprotected: peer: no apmd".to_owned(),
        };
        let mut report = Report {
            port: "mlx5_0/1".to_owned(),
            drained: true,
            moved: 3,
            alternates: 0,
            stuck: Vec::new(),
        };
        let all = "mlx5_0/1 is drained: 3 connections have left it, 0 have not";
        assert_eq!(text(&report), all);
        report.alternates = 2;
        report.stuck = (0..NAMED + 2).map(stuck).collect();
        let text = text(&report);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 1 + NAMED + 1 + 1);
        assert_eq!(lines[1], "conn 1.0 rping[77]: unprotected: peer: no apmd");
        assert_eq!(lines[NAMED + 1], "and 2 more");
        assert!(lines[NAMED + 2].starts_with("2 connections keep their alternate"));
    }

    #[test]
    fn ports_are_devices_and_numbers() {
        assert!(checked("mlx5_0/1".to_owned()).is_ok());
        for wrong in ["mlx5_0", "/1", "mlx5_0/x", "mlx5_0/256", ""] {
            assert!(checked(wrong.to_owned()).is_err(), "{wrong}");
        }
    }
}
