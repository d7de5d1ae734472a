// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an operator does before and after maintenance, with `apmctl` alone, and a device that is renamed.

mod rename;

use std::time::Duration;

use serde_json::Value;

use crate::clock::Moment;
use crate::command;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::observe::Pair;
use crate::port::Port;
use crate::program::Program;
use crate::stream::{Options, Streams};
use crate::wait::{self, Seen};
use crate::world::Kind;

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "operate",
    about: "apmctl migrates, re-arms, drains ports whose cables then go, waits, monitors",
    parts: &[Part {
        world: Kind::Flat,
        run,
    }],
};

/// Bound for a line of `apmctl monitor`.
const LIMIT: Duration = Duration::from_secs(30);

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    context.world.start_daemons(Policy::default())?;
    let mut monitor = Program::start("monitor", Host::A, &["apmctl", "-j", "monitor"])?;
    let mut lines = Program::start(
        "monitor",
        Host::B,
        &["apmctl", "monitor", "command", STREAM],
    )?;
    let mut streams = Streams::start(&context.timeline, Options::default())?;
    context.world.wait_disjoint(1)?;

    waits_by_program(context)?;
    migrates(context, &mut monitor, &mut lines)?;
    rearms(context)?;
    for host in Host::ALL {
        drains(context, &mut streams, host)?;
    }
    explains(context)?;
    rename::renames(context)?;
    monitor.ensure_running()?;
    context.finish(streams)
}

const STREAM: &str = "apm_stream";

/// Runs `apmctl` on a host; what it says, and its exit status.
fn apmctl(host: Host, words: &[&str]) -> Result<(String, Option<i32>), Failure> {
    let words = [&[host.name(), "apmctl"], words].concat();
    let output = command::attempt(&words)?;
    let said = [output.stdout, output.stderr].concat();
    Ok((
        String::from_utf8_lossy(&said).into_owned(),
        output.status.code(),
    ))
}

/// Runs it and notes what it says on the timeline; fails unless its exit status is `want`.
fn operate(
    context: &Context<'_>,
    host: Host,
    words: &[&str],
    want: i32,
) -> Result<String, Failure> {
    let (said, status) = apmctl(host, words)?;
    let words = words.join(" ");
    let line = said.lines().next().unwrap_or_default();
    context
        .timeline
        .note(host, format!("apmctl {words}: {line}"));
    ensure(status == Some(want), || {
        format!("apmctl {words}: exit status {status:?}, not {want}: {said}")
    })?;
    Ok(said)
}

/// The connection of a host, as `apmctl -j conn show` has it, with all that explains it.
fn shown(host: Host) -> Result<Value, Failure> {
    let json = command::run_as(host, &["apmctl", "-j", "-d", "conn", "show"])?;
    let shown: Value = serde_json::from_str(&json).map_err(|error| Failure::Output {
        source_name: "apmctl -j -d conn show".to_owned(),
        problem: error.to_string(),
    })?;
    Ok(shown[0].clone())
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// What happened to a host's connection, the latest first.
fn history(host: Host) -> Result<String, Failure> {
    let shown = shown(host)?;
    let past = shown["history"].as_array().cloned().unwrap_or_default();
    let texts = past.iter().map(|past| text(&past["text"]));
    Ok(texts.collect::<Vec<_>>().join("; "))
}

fn waits_by_program(context: &Context<'_>) -> Result<(), Failure> {
    let pid = text(&shown(Host::A)?["pid"]);
    operate(context, Host::A, &["wait", "armed", "pid", &pid], 0)?;
    operate(context, Host::B, &["wait", "armed", "command", STREAM], 0)?;
    let nobody = ["wait", "armed", "-t", "0.5", "command", "nobody"];
    operate(context, Host::A, &nobody, 4)?;
    Ok(())
}

/// By its ID at the active end, then by its process at the passive end.
fn migrates(
    context: &mut Context<'_>,
    monitor: &mut Program,
    lines: &mut Program,
) -> Result<(), Failure> {
    for host in Host::ALL {
        let pairs = context.world.wait_disjoint(1)?;
        let port = pairs[0].active_port(host);
        let shown = shown(host)?;
        let (id, pid) = (text(&shown["id"]), text(&shown["pid"]));
        let words = match host {
            Host::A => vec!["conn", "migrate", &id],
            _ => vec!["conn", "migrate", "pid", &pid],
        };
        let said = operate(context, host, &words, 0)?;
        ensure(said.contains("migrated: "), || said.clone())?;
        context.world.wait_moved(1, port)?;
        context.report.migrations += 1;
        context.world.wait_disjoint(1)?;
        context.report.rearmed += 1;
        for (end, cause) in [
            (host, "an operator ordered it"),
            (host.other(), "the peer's operator wanted it"),
        ] {
            let history = history(end)?;
            ensure(history.contains(cause), || {
                format!("{end} does not say {cause:?}: {history}")
            })?;
        }
    }
    // Twice moved: at the host that it was ordered on first, and as the other end of the second.
    let migrated = |line: &str| {
        let told: Option<Value> = serde_json::from_str(line).ok();
        told.is_some_and(|told| told["event"] == "migrated" && told["command"] == STREAM)
    };
    monitor.wait_for_line("that it migrated", LIMIT, migrated)?;
    let armed = |line: &str| line.contains(STREAM) && line.contains("-> armed)");
    lines.wait_for_line("that it is armed", LIMIT, armed)?;
    Ok(())
}

fn rearms(context: &mut Context<'_>) -> Result<(), Failure> {
    for host in Host::ALL {
        let id = text(&shown(host)?["id"]);
        let said = operate(context, host, &["conn", "rearm", &id], 0)?;
        ensure(said.contains("armed, alternate port "), || said.clone())?;
    }
    context.world.wait_armed(1).map(drop)
}

/// The port that carries the connection is drained, its cable pulled, and nobody notices.
fn drains(context: &mut Context<'_>, streams: &mut Streams, host: Host) -> Result<(), Failure> {
    let pairs = context.world.wait_disjoint(1)?;
    let port = pairs[0].active_port(host);
    let name = port.to_string();
    let said = operate(context, host, &["port", "drain", &name], 0)?;
    ensure(
        said.contains("1 connections have left it, 0 have not"),
        || said.clone(),
    )?;
    context.world.wait_moved(1, port)?;
    context.report.migrations += 1;
    let pairs = context.world.wait_armed(1)?;
    context.report.rearmed += 1;
    for words in [&["status"][..], &["port", "show", &name]] {
        let (said, _) = apmctl(host, words)?;
        ensure(said.contains("drained"), || format!("{words:?}: {said}"))?;
    }
    pull_drained(context, streams, port, &pairs[0])?;
    operate(context, host, &["port", "undrain", &name], 0)?;
    let pairs = context.world.wait_disjoint(1)?;
    ensure(pairs[0].active_port(host) != port, || {
        "it moved back by itself".to_owned()
    })
}

/// Long enough for a daemon to hear of a lost port, and for hardware to give a path up.
const NOTHING: Duration = Duration::from_secs(2);

fn pull_drained(
    context: &mut Context<'_>,
    streams: &mut Streams,
    port: Port,
    before: &Pair,
) -> Result<(), Failure> {
    let pulled = context.world.pull(port)?;
    wait::until("nothing happens", NOTHING * 10, || {
        let passed = Moment::now().since(pulled) >= NOTHING;
        Ok(Seen::when(passed, || "it is early yet".to_owned()))
    })?;
    streams.ensure_healthy()?;
    streams.wait_flowing()?;
    let stall = streams.longest_stall(pulled, Moment::now());
    let stall = stall.map_or(0.0, |stall| stall.length.rounded());
    let key = format!("drained_pull_stall_ms_{}", port.host);
    context.report.set(&key, stall);
    let pairs = context.world.wait_armed(1)?;
    let migrations = |pair: &Pair| Host::ALL.map(|host| pair.end(host).counters.migrations);
    ensure(migrations(&pairs[0]) == migrations(before), || {
        format!("the pull of a drained {port} made the connection migrate")
    })?;
    context.world.plug(port)
}

/// What `conn show` of one connection says, plain and as JSON.
fn explains(context: &Context<'_>) -> Result<(), Failure> {
    let shown = shown(Host::A)?;
    let id = text(&shown["id"]);
    let history = shown["history"].as_array().map_or(0, Vec::len);
    let score = text(&shown["chosen"]["score"]);
    let complete = shown["protection"] == "armed"
        && shown["reason"].is_null()
        && shown["held"].is_null()
        && shown["changed_seconds"].is_number()
        && shown["runner_up"].is_object()
        && !score.is_empty();
    ensure(complete && history == 10, || {
        format!("{history} transitions: {shown}")
    })?;
    let plain = operate(context, Host::A, &["conn", "show", &id], 0)?;
    let words = [
        "state        armed for ",
        "primary      port ",
        "alternate    port ",
        "chosen       port ",
        "runner-up    port ",
        " s ago: ",
        "the local port is drained",
    ];
    for word in words {
        // Of ten transitions the drain of the other host's port may have been the last that is kept.
        let either = word.contains("drained") && plain.contains("the peer's operator wanted it");
        ensure(plain.contains(word) || either, || {
            format!("no {word:?} in {plain}")
        })?;
    }
    Ok(())
}
