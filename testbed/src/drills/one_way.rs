// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue pair that only receives stays in RTR, where IBA lets nobody load an alternate path: its host shows it with that
//! reason, and so does the sender's. By the library, and by the kernel module.

use std::time::Duration;

use crate::command;
use crate::daemon::Policy;
use crate::failure::Failure;
use crate::host::Host;
use crate::kernel_module::KernelModule;
use crate::observe::{self, Connection};
use crate::program::Program;
use crate::wait::{self, Seen};
use crate::world::Kind;

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "one-way",
    about: "a stock ib_send_bw: both hosts state that its server's queue pair only receives",
    parts: &[Part {
        world: Kind::Netns,
        run,
    }],
};

/// For the three seconds in RTR, and the peer's next REQ after that.
const LIMIT: Duration = Duration::from_secs(60);

/// Wired up over the management Ethernet. Host A has the lower LID, so its end is the active one.
const SERVER: &[&str] = &["ib_send_bw", "-F", "-d", "shca1", "-D", "600"];
const CLIENT: &[&str] = &["ib_send_bw", "-F", "-d", "shca0", "-D", "600", "10.0.0.2"];

/// perftest's own, by which it is wired up.
const PORT: &str = "sport = :18515";

/// What each host states.
const EXPECTED: [(Host, &str, &str); 2] = [
    (
        Host::B,
        "refused",
        "its queue pair only receives (RTR): no alternate path can be loaded before RTS",
    ),
    (
        Host::A,
        "unprotected",
        "the peer's apmd refuses: its queue pair only receives (RTR), and no alternate path can be loaded before RTS",
    ),
];

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    stated(context, &["apmctl", "run", "--"])?;
    let module = KernelModule::load()?;
    let shown = stated(context, &[]);
    context.world.stop_daemons()?;
    shown?;
    module.unload()
}

fn stated(context: &mut Context<'_>, starter: &[&str]) -> Result<(), Failure> {
    context.world.start_daemons(Policy::default())?;
    let words = |line: &[&'static str]| [starter, line].concat();
    let server = Program::start("server", Host::B, &words(SERVER))?;
    wait::until("the server listens", LIMIT, || {
        let listening = command::run_as(Host::B, &["ss", "-Htln", PORT])?;
        Ok(Seen::when(listening.contains("LISTEN"), || {
            server.last_line()
        }))
    })?;
    let client = Program::start("client", Host::A, &words(CLIENT))?;
    for (host, protection, why) in EXPECTED {
        wait::until(&format!("{host} states: {why}"), LIMIT, || {
            let conns = observe::connections(host)?;
            let states_it = |conn: &Connection| {
                conn.protection == protection && conn.reason.as_deref() == Some(why)
            };
            let states: Vec<_> = conns.iter().map(Connection::state).collect();
            let shown = conns.len() == 1 && conns.iter().all(states_it);
            Ok(Seen::when(shown, || states.join(" | ")))
        })?;
        context.timeline.note(host, why);
    }
    drop((client, server));
    context.world.stop_daemons()
}
