// SPDX-License-Identifier: MIT OR Apache-2.0
//! Root of a third host sends to both daemons what their peer would, with all that can be seen from
//! outside: QPNs, LIDs, GIDs, GUIDs. Only the names that the two gave their association are guesses.

mod messages;

use self::messages::Victim;
use super::{Context, Drill, Part};
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::file;
use crate::host::Host;
use crate::observe::{self, Pair};
use crate::program::Program;
use crate::stream::{Options, Streams};
use crate::world::{Kind, LIMIT};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "forgery",
    about: "a third host forges REQ, REP, LAP, SAP, DREQ: nothing moves, pulls are survived",
    parts: &[Part {
        world: Kind::LeafSpine,
        run,
    }],
};

/// The host that forges.
const FORGER: Host = Host::C;

/// Of each message, to each daemon.
const EACH: u32 = 1_000;

/// Where the MADs are kept until they are sent.
const RECORDS: &str = "/tmp/forged-mads";

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    context.world.move_to(Host::ALL)?;
    context.world.start_daemons(Policy::default())?;
    let mut streams = Streams::start(&context.timeline, Options::default())?;
    let before = one(context)?;

    let received = Host::ALL.map(mads_received);
    forge(context, &before)?.wait(LIMIT)?;
    let after = one(context)?;
    for (host, before) in Host::ALL.into_iter().zip(received) {
        let came = mads_received(host)? - before?;
        let text = format!("{came} MADs came to {host}'s daemon");
        context.timeline.note("drill", text.clone());
        // Its receive queue may overflow; but an attack that does not arrive shows nothing.
        ensure(came >= u64::from(EACH), || text)?;
    }
    ensure(before.paths() == after.paths(), || {
        format!("was {}, and is {}", before.paths(), after.paths())
    })?;
    ensure(migrations(&before) == migrations(&after), || {
        "the connection migrated, though nothing failed".to_owned()
    })?;
    streams.ensure_healthy()?;

    for host in Host::ALL {
        let pair = one(context)?;
        let mut forger = forge(context, &pair)?;
        let port = pair.active_port(host);
        context.world.pull(port)?;
        context.world.wait_moved(1, port)?;
        context.report.migrations += 1;
        streams.wait_flowing()?;
        forger.wait(LIMIT)?;
        context.world.plug(port)?;
        one(context)?;
        context.report.rearmed += 1;
    }
    context.finish(streams)
}

/// The connection, armed over separate ports.
fn one(context: &Context<'_>) -> Result<Pair, Failure> {
    let mut pairs = context.world.wait_disjoint(1)?;
    pairs
        .pop()
        .ok_or_else(|| Failure::not_shown("there is no connection"))
}

fn mads_received(host: Host) -> Result<u64, Failure> {
    let counters = observe::counters(host)?;
    let count = counters["engine"]["mads_received"].as_u64();
    count.ok_or_else(|| Failure::not_shown(format!("no count of MADs: {counters}")))
}

fn migrations(pair: &Pair) -> u64 {
    pair.ends.iter().map(|end| end.counters.migrations).sum()
}

/// Sends forged messages to both daemons.
fn forge(context: &mut Context<'_>, pair: &Pair) -> Result<Program, Failure> {
    let records = messages::forged(FORGER, &Host::ALL.map(|host| Victim { pair, host }), EACH)?;
    let count = records.len() / messages::RECORD;
    file::write(RECORDS, &records)?;
    let text = format!("{FORGER} sends {count} forged MADs");
    context.timeline.note("drill", text);
    context.report.set("forged_mads", count);
    let send = format!("send_mads {} 1 < {RECORDS}", FORGER.device());
    Program::start("send_mads", FORGER, &["sh", "-c", &send])
}
