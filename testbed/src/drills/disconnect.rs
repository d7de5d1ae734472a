// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CM sends its DREQ where the connection was made, and that port is dead: the other application
//! hears of the end all the same.

use std::process::ExitStatus;
use std::time::Duration;

use serde_json::json;

use crate::clock::{Millis, Moment};
use crate::command;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::observe;
use crate::program::Program;
use crate::wait::{self, Seen};
use crate::world::Kind;

use super::unmodified::{self, END, Running, Subject, TRANSFER};
use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "disconnect",
    about: "the old port stays dead, and rdma_disconnect reaches the other application",
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

/// So that the library says when the application disconnects.
const STARTER: &[&str] = &["env", "RDMA_APM_DEBUG=1", "apmctl", "run", "--"];

/// What the library says then.
const DISCONNECTS: &str = "disconnected by the application";

/// How long a program should transfer: its connection is armed and moved meanwhile.
const END_AFTER: Duration = Duration::from_secs(20);

/// Bound for both sides to end. The CM alone repeats its DREQ for minutes, and a peer whose DREQ is lost
/// waits for ever.
const BOUND: Duration = Duration::from_secs(20);

/// ucmatose's server disconnects, and its client waits for that; then the server waits for the client.
fn run_flat(context: &mut Context<'_>) -> Result<(), Failure> {
    let gids = [Host::A.port(1).gid()?, Host::B.port(1).gid()?];
    context.world.start_daemons(Policy::default())?;
    disconnected(context, &unmodified::ucmatose(&gids), End::Server)
}

/// rping's client disconnects and goes; its server waits for that.
fn run_netns(context: &mut Context<'_>) -> Result<(), Failure> {
    context.world.start_daemons(Policy::default())?;
    disconnected(context, &unmodified::rping(), End::Client)
}

/// Who disconnects.
#[derive(Clone, Copy)]
enum End {
    Client,
    Server,
}

impl End {
    const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }

    fn of(self, running: &Running) -> &Program {
        match self {
            Self::Client => &running.client,
            Self::Server => &running.server,
        }
    }
}

/// Lets a program's connection leave a port that stays dead, and end there.
fn disconnected(context: &mut Context<'_>, subject: &Subject, first: End) -> Result<(), Failure> {
    let before = resources()?;
    let whole = unmodified::measure(context, subject)?;
    let mut count = (whole * END_AFTER.as_secs() / TRANSFER.as_secs()).max(1);
    let mut tries = 3;
    let took = loop {
        if let Some(took) = one_end(context, subject, count, first)? {
            break took;
        }
        tries -= 1;
        ensure(tries > 0, || {
            format!("{} ended before its cable was pulled", subject.name)
        })?;
        count *= 2;
    };
    nothing_is_left(&before)?;
    let text = format!(
        "{}: the {} disconnected, and both had ended after {took}",
        subject.name,
        first.name()
    );
    context.timeline.note("drill", text);
    let row = json!({
        "program": subject.name, "disconnects": first.name(), "ended_ms": took.rounded(),
    });
    context.report.set(subject.name, row);
    Ok(())
}

/// `None` if the program ended before its connection had moved. Else how long after the one side's
/// `rdma_disconnect` both had ended.
fn one_end(
    context: &mut Context<'_>,
    subject: &Subject,
    count: u64,
    first: End,
) -> Result<Option<Millis>, Failure> {
    let mut running = unmodified::start_by(STARTER, subject, count)?;
    let Some(port) = unmodified::armed_port(context, &mut running)? else {
        return Ok(None);
    };
    let before_pull = context.world.pull(port)?;
    let moved = unmodified::flows(port.other(), &mut running)?;
    let took = moved.then(|| ended(&mut running, first, before_pull));
    let took = took.transpose()?.flatten();
    if took.is_some() {
        context.report.connections += 1;
        context.report.migrations += 1;
    }
    // Dead until here: both have ended.
    context.world.plug(port)?;
    Ok(took)
}

/// Waits until both have ended well.
fn ended(running: &mut Running, first: End, pulled: Moment) -> Result<Option<Millis>, Failure> {
    let disconnects = wait::until("one side disconnects", END, || {
        let line = first.of(running).lines();
        let line = line
            .into_iter()
            .find(|line| line.text.contains(DISCONNECTS));
        Ok(match line {
            Some(line) => Seen::Ready(line.at),
            None => Seen::NotYet(first.of(running).last_line()),
        })
    })?;
    // It may have been on its way before the cable was pulled.
    if disconnects < pulled {
        return Ok(None);
    }
    let bound = |name: &str| format!("{name} ends, which the other's disconnect is to bring about");
    let looks = Duration::from_millis(10);
    let [client, server]: [ExitStatus; 2] =
        wait::until_often(&bound("each side"), BOUND, looks, || {
            Ok(match (running.client.ended()?, running.server.ended()?) {
                (Some(client), Some(server)) => Seen::Ready([client, server]),
                (client, server) => {
                    Seen::NotYet(format!("client ended: {client:?}, server: {server:?}"))
                }
            })
        })?;
    let took = Moment::now().since(disconnects);
    ensure(client.success() && server.success(), || {
        format!(
            "client {client} ({}), server {server} ({})",
            running.client.last_line(),
            running.server.last_line()
        )
    })?;
    Ok(Some(Millis::from(took)))
}

/// What the kernel keeps for programs: ids of the CM and reliable QPs, on either host.
fn resources() -> Result<[usize; 2], Failure> {
    let mut counts = [0, 0];
    for host in Host::ALL {
        let ids = command::run_as(host, &["rdma", "resource", "show", "cm_id"])?;
        let qps = command::run_as(host, &["rdma", "resource", "show", "qp"])?;
        counts[0] += ids.lines().count();
        counts[1] += qps.lines().filter(|line| line.contains("type RC")).count();
    }
    Ok(counts)
}

/// Nothing stays behind, in the daemons or in the kernel.
fn nothing_is_left(before: &[usize; 2]) -> Result<(), Failure> {
    wait::until("nothing left of the connection", END, || {
        let mut known = 0;
        for host in Host::ALL {
            known += observe::connections(host)?.len();
        }
        let now = resources()?;
        Ok(Seen::when(known == 0 && now == *before, || {
            format!("{known} connections at the daemons; ids and QPs {now:?}, before {before:?}")
        }))
    })
}
