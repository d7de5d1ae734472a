// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stock programs under `apmctl run` survive pulled cables; without it they do not.

use std::process::ExitStatus;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::clock::{Millis, Moment};
use crate::command;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::port::Port;
use crate::program::Program;
use crate::wait::{self, Seen};
use crate::world::Kind;

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "unmodified",
    about: "stock rstream, ucmatose, rping survive under apmctl run, and only there",
    parts: &[
        Part {
            world: Kind::Flat,
            run: run_flat,
        },
        Part {
            world: Kind::Netns,
            run: run_netns,
        },
    ],
};

/// How long what [`measure`] finds should take to transfer.
pub(super) const TRANSFER: Duration = Duration::from_secs(60);

/// How long a program transfers here at first: both pulls have to happen meanwhile.
const BOTH_PULLS: Duration = Duration::from_secs(18);

/// Bound for the end of a transfer that goes on.
pub(super) const END: Duration = Duration::from_secs(300);

/// What protects a program.
const PROTECTED: &[&str] = &["apmctl", "run", "--"];

/// Bound for traffic to flow, and for an unprotected connection to break after its cable was pulled:
/// the CM's ACK timeout of 2.1 s and seven retries take 17 s.
const WATCH: Duration = Duration::from_secs(60);

/// Bound for a program to connect. Under valgrind its start alone takes 15 s of a processor.
const CONNECTS: Duration = Duration::from_secs(120);

/// What a program whose connection broke is given to end.
const GRACE: Duration = Duration::from_secs(3);

/// Packets by which a transfer is told from management traffic.
const TRAFFIC: u64 = 50;

/// A stock program with a client and a server.
pub(super) struct Subject {
    pub(super) name: &'static str,
    /// The server's command line, without what `amount` gives.
    server: Vec<String>,
    /// The client's.
    client: Vec<String>,
    /// Arguments that make it transfer so many units, for both.
    amount: fn(u64) -> Vec<String>,
    /// Units of a short run.
    few: u64,
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

pub(super) fn rstream(gids: &[String; 2]) -> Subject {
    let [a, b] = gids;
    Subject {
        name: "rstream",
        server: words(&format!("rstream -f gid -b {b} -T b -T v")),
        client: words(&format!("rstream -f gid -b {a} -s {b} -T b -T v")),
        amount: |count| words(&format!("-S 16384 -C 64 -I {count}")),
        few: 4,
    }
}

pub(super) fn ucmatose(gids: &[String; 2]) -> Subject {
    let [a, b] = gids;
    Subject {
        name: "ucmatose",
        // Not rstream's port: both run at once.
        server: words(&format!("ucmatose -f gid -b {b} -p 7472")),
        client: words(&format!("ucmatose -f gid -b {a} -s {b} -p 7472")),
        // All messages are posted at once, so their number is bounded by the queue's.
        amount: |count| words(&format!("-C 1000 -S {}", count * 1024)),
        few: 8,
    }
}

pub(super) fn rping() -> Subject {
    rping_between("10.0.1.1", "10.0.1.2")
}

pub(super) fn rping_between(from: &str, to: &str) -> Subject {
    Subject {
        name: "rping",
        server: words(&format!("rping -s -a {to} -V")),
        client: words(&format!("rping -c -I {from} -a {to} -V")),
        amount: |count| words(&format!("-S 4000 -C {count}")),
        few: 100,
    }
}

fn run_flat(context: &mut Context<'_>) -> Result<(), Failure> {
    let gids = [Host::A.port(1).gid()?, Host::B.port(1).gid()?];
    context.world.start_daemons(Policy::default())?;
    compare(context, &[rstream(&gids), ucmatose(&gids)])
}

fn run_netns(context: &mut Context<'_>) -> Result<(), Failure> {
    context.world.start_daemons(Policy::default())?;
    compare(context, &[rping()])?;
    context.timeline.say(table(context));
    Ok(())
}

/// Runs each program under `apmctl run`, and then all without it, on one cable.
fn compare(context: &mut Context<'_>, subjects: &[Subject]) -> Result<(), Failure> {
    let mut counts = Vec::new();
    for subject in subjects {
        counts.push(survives(context, subject)?);
    }
    unprotected(context, subjects.iter().zip(counts))
}

/// Returns how many units were enough for both pulls.
fn survives(context: &mut Context<'_>, subject: &Subject) -> Result<u64, Failure> {
    let whole = measure(context, subject)?;
    let mut count = (whole * BOTH_PULLS.as_secs()).div_ceil(TRANSFER.as_secs());
    // A guess of the speed may be wrong on a busy machine: then there was too little to transfer.
    let mut guesses = 3;
    while protected(context, PROTECTED, subject, count)? == Outcome::TooShort {
        guesses -= 1;
        count = longer(context, subject, count, guesses)?;
    }
    Ok(count)
}

/// How many units to transfer after too short a run, if there may be another.
pub(super) fn longer(
    context: &Context<'_>,
    subject: &Subject,
    count: u64,
    guesses: u32,
) -> Result<u64, Failure> {
    let name = subject.name;
    if guesses == 0 {
        let text = format!("{name} ended before both cables were pulled");
        return Err(Failure::not_shown(text));
    }
    let text = format!("{name}: too short a run");
    context.timeline.note("drill", text);
    Ok(count * 2)
}

/// A client and a server that run.
pub(super) struct Running {
    pub(super) client: Program,
    pub(super) server: Program,
}

pub(super) fn start(subject: &Subject, count: u64, protected: bool) -> Result<Running, Failure> {
    start_by(if protected { PROTECTED } else { &[] }, subject, count)
}

/// Starts both by another program, or by none.
pub(super) fn start_by(
    starter: &[&str],
    subject: &Subject,
    count: u64,
) -> Result<Running, Failure> {
    let one = |side: &str, host: Host, line: &[String]| {
        let mut all: Vec<String> = starter.iter().map(|&word| word.to_owned()).collect();
        all.extend_from_slice(line);
        all.extend((subject.amount)(count));
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        Program::start(&format!("{} {side}", subject.name), host, &all)
    };
    let mut server = one("server", Host::B, &subject.server)?;
    // Nothing shows that a stock server listens; before that its client is rejected.
    let client = wait::until(&format!("{} connects", subject.name), CONNECTS, || {
        server.ensure_running()?;
        let mut client = one("client", Host::A, &subject.client)?;
        wait_until_connected(subject, &mut client)?;
        Ok(match client.ended()? {
            Some(status) if !status.success() => Seen::NotYet(ended_badly(&client, status)),
            _ => Seen::Ready(client),
        })
    })?;
    Ok(Running { client, server })
}

/// Or until it has ended. How soon a rejection comes depends on what else the machine does.
fn wait_until_connected(subject: &Subject, client: &mut Program) -> Result<(), Failure> {
    let what = format!("{} connects or ends", subject.name);
    let ours = format!(" pid {} ", client.pid());
    wait::until(&what, CONNECTS, || {
        let qps = command::run_as(Host::A, &["rdma", "res", "show", "qp"])?;
        let open = |line: &str| line.contains(" state RTS ") && line.contains(&ours);
        let done = client.ended()?.is_some() || qps.lines().any(open);
        Ok(Seen::when(done, || qps.clone()))
    })
}

/// How many units take about as long as [`TRANSFER`].
pub(super) fn measure(context: &mut Context<'_>, subject: &Subject) -> Result<u64, Failure> {
    const LONG_ENOUGH: Duration = Duration::from_secs(3);
    let mut count = subject.few;
    loop {
        let began = Moment::now();
        let mut running = start(subject, count, false)?;
        let client = running.client.wait(END)?;
        let server = running.server.wait(END)?;
        ensure(client.success() && server.success(), || {
            format!(
                "{} undisturbed: client {client}, server {server}: {}",
                subject.name,
                running.client.last_line()
            )
        })?;
        let took = Moment::now().since(began);
        if took >= LONG_ENOUGH {
            let scaled = count as f64 * TRANSFER.as_secs_f64() / took.as_secs_f64();
            context
                .timeline
                .note("drill", format!("{}: undisturbed, ok", subject.name));
            return Ok(scaled.ceil() as u64);
        }
        count *= 4;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Survived,
    TooShort,
}

/// Started by `apmctl run`: both ports of the client's host are pulled in turn, and both sides end with
/// success.
pub(super) fn protected(
    context: &mut Context<'_>,
    starter: &[&str],
    subject: &Subject,
    count: u64,
) -> Result<Outcome, Failure> {
    let name = subject.name;
    context
        .timeline
        .note("drill", format!("{name} under apmctl run"));
    let mut running = start_by(starter, subject, count)?;
    let mut resumed = Vec::new();
    let mut pulled = Vec::new();
    for _ in 0..2 {
        let Some((port, time)) = pull_and_plug(context, &mut running)? else {
            context.world.mend()?;
            return Ok(Outcome::TooShort);
        };
        let text = format!("{name} goes on over {} after at most {time}", port.other());
        context.timeline.note("drill", text);
        resumed.push(time);
        pulled.push(port);
    }
    let client = running.client.wait(END)?;
    let server = running.server.wait(END)?;
    context.timeline.note(
        "client",
        format!("{name}: {client}: {}", running.client.last_line()),
    );
    ensure(client.success() && server.success(), || {
        format!(
            "{name} under apmctl run: client {client} ({}), server {server} ({})",
            running.client.last_line(),
            running.server.last_line()
        )
    })?;
    context.report.connections += 1;
    for time in &resumed {
        context.report.stalled(*time);
    }
    let text = format!("client {client}, server {server}");
    add_row(context, name, true, &pulled, &text);
    Ok(Outcome::Survived)
}

/// The port of host A that carries the connection, once it is armed over separate ports; `None` if
/// the program ended before.
pub(super) fn armed_port(
    context: &mut Context<'_>,
    running: &mut Running,
) -> Result<Option<Port>, Failure> {
    wait::until(
        "armed over separate ports, or the program's end",
        END,
        || {
            if let Some(status) = running.client.ended()? {
                ensure(status.success(), || ended_badly(&running.client, status))?;
                return Ok(Seen::Ready(None));
            }
            let pairs = context.world.pairs()?;
            Ok(match pairs.as_slice() {
                [pair] if pair.is_disjoint() => Seen::Ready(Some(pair.active_port(Host::A))),
                [pair] => Seen::NotYet(pair.state()),
                _ => Seen::NotYet(format!("{} connections on both hosts", pairs.len())),
            })
        },
    )
}

fn ended_badly(program: &Program, status: ExitStatus) -> String {
    format!("{}: {status}: {}", program.name(), program.last_line())
}

/// Pulls the cable of the port that carries traffic, waits until it flows over the other one, and
/// plugs it. Returns which, and how long that took at most; `None` if the program ended before.
fn pull_and_plug(
    context: &mut Context<'_>,
    running: &mut Running,
) -> Result<Option<(Port, Millis)>, Failure> {
    let Some(port) = armed_port(context, running)? else {
        return Ok(None);
    };
    if !flows(port, running)? {
        return Ok(None);
    }
    let pulled = context.world.pull(port)?;
    if !flows(port.other(), running)? {
        return Ok(None);
    }
    let resumed = Millis::from(Moment::now().since(pulled));
    context.report.migrations += 1;
    context.world.plug(port)?;
    if armed_port(context, running)?.is_some() {
        context.report.rearmed += 1;
    }
    Ok(Some((port, resumed)))
}

/// Waits until a port carries more than management traffic; false if the program ended before.
pub(super) fn flows(port: Port, running: &mut Running) -> Result<bool, Failure> {
    let pid = running.client.pid();
    let before = port.packets(pid).ok();
    wait::until_often(
        &format!("traffic over {port}"),
        WATCH,
        Duration::from_millis(10),
        || {
            if let Some(status) = running.client.ended()? {
                ensure(status.success(), || ended_badly(&running.client, status))?;
                return Ok(Seen::Ready(false));
            }
            // A process that ends just now has no files any more.
            let passed = port
                .packets(pid)
                .ok()
                .zip(before)
                .map(|(now, before)| now - before);
            Ok(match passed {
                Some(passed) if passed > TRAFFIC => Seen::Ready(true),
                _ => Seen::NotYet(format!("{passed:?} packets")),
            })
        },
    )
}

/// Without `apmctl run`: one pulled cable is the end of them.
fn unprotected<'a>(
    context: &mut Context<'_>,
    subjects: impl Iterator<Item = (&'a Subject, u64)>,
) -> Result<(), Failure> {
    let mut all = Vec::new();
    for (subject, count) in subjects {
        let text = format!("{} without apmctl run", subject.name);
        context.timeline.note("drill", text);
        all.push((subject, start(subject, count, false)?));
    }
    let port = Host::A.port(1);
    for (subject, running) in &mut all {
        ensure(flows(port, running)?, || {
            format!("{} ended before a cable was pulled", subject.name)
        })?;
    }
    context.world.pull(port)?;
    for (subject, mut running) in all {
        let name = subject.name;
        let ending = wait_for_failure(subject, &mut running)?;
        context.timeline.note("client", format!("{name}: {ending}"));
        add_row(context, name, false, &[port], &ending);
    }
    context.world.plug(port)?;
    Ok(())
}

/// How the program fails. The hardware's retries run out on the side that sends, and its QP is in
/// error; whether a stock program then ends or waits for ever depends on what it was about to do.
fn wait_for_failure(subject: &Subject, running: &mut Running) -> Result<String, Failure> {
    wait::until("the end of either side or of the connection", WATCH, || {
        if running.client.ended()?.is_some() || running.server.ended()?.is_some() {
            return Ok(Seen::Ready(()));
        }
        Ok(Seen::when(is_broken(subject)?, || {
            "no QP in error".to_owned()
        }))
    })?;
    thread::sleep(GRACE);
    let broken = is_broken(subject)?;
    let [client, server] = [running.client.ended()?, running.server.ended()?];
    let failed = |ended: Option<ExitStatus>| ended.is_some_and(|status| !status.success());
    let survived = [client, server]
        .iter()
        .all(|end| end.is_some_and(|status| status.success()));
    ensure(
        !survived && (broken || failed(client) || failed(server)),
        || format!("{} survived without apmctl run", subject.name),
    )?;
    let client = fate(&mut running.client)?;
    let server = fate(&mut running.server)?;
    let broken = if broken { ", QP in error" } else { "" };
    Ok(format!("client {client}, server {server}{broken}"))
}

/// Whether a QP of the program is in error, on either host.
fn is_broken(subject: &Subject) -> Result<bool, Failure> {
    for host in Host::ALL {
        let shown = command::run_as(host, &["rdma", "res", "show", "qp"])?;
        let ours = |line: &&str| line.contains("type RC") && line.contains(subject.name);
        if shown
            .lines()
            .filter(ours)
            .any(|line| line.contains("state ERR"))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn fate(program: &mut Program) -> Result<String, Failure> {
    Ok(match program.ended()? {
        Some(status) => format!("{status} ({})", program.last_line()),
        None => "hangs".to_owned(),
    })
}

fn add_row(context: &mut Context<'_>, name: &str, protected: bool, pulled: &[Port], end: &str) {
    let row = json!({
        "program": name, "apmctl_run": protected, "pulled": pulled, "survived": protected, "end": end,
    });
    let runs = context
        .report
        .more
        .entry("runs".to_owned())
        .or_insert_with(|| json!([]));
    if let Value::Array(rows) = runs {
        rows.push(row);
    }
}

fn table(context: &Context<'_>) -> String {
    let mut table = format!(
        "{:<10} {:<12} {:<16} {:<9} END",
        "PROGRAM", "APMCTL RUN", "PULLED", "SURVIVED"
    );
    let yes_no = |value: &Value| {
        if value.as_bool() == Some(true) {
            "yes"
        } else {
            "no"
        }
    };
    let rows = context.report.more.get("runs").and_then(Value::as_array);
    for row in rows.into_iter().flatten() {
        let pulled = row["pulled"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        table += &format!(
            "\n{:<10} {:<12} {:<16} {:<9} {}",
            row["program"].as_str().unwrap_or_default(),
            yes_no(&row["apmctl_run"]),
            pulled.collect::<Vec<_>>().join(" "),
            yes_no(&row["survived"]),
            row["end"].as_str().unwrap_or_default()
        );
    }
    table
}
