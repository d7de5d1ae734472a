// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device gets another name under its daemon, as from udev's rules for lasting names, and its own back.

use std::time::Duration;

use crate::command;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::program::Program;
use crate::wait::{self, Seen};

use super::super::Context;
use super::{apmctl, operate, shown, text};

const HOST: Host = Host::A;
const NAME: &str = "ibrenamed0";

/// Bound for a daemon to have read its configuration again, and for programs to connect.
const LIMIT: Duration = Duration::from_secs(30);

/// The connection from before is armed again after it has moved, and a new one gets armed.
pub(super) fn renames(context: &mut Context<'_>) -> Result<(), Failure> {
    // By names: the testbed knows the device by the one that it has by custom.
    let gids = [HOST.port(1).gid()?, HOST.other().port(1).gid()?];
    rename(context, HOST.device(), NAME)?;
    let is_used = is_used(context, &gids);
    rename(context, NAME, HOST.device())?;
    is_used?;
    context.world.wait_armed(1).map(drop)
}

/// Renames it, and waits until the daemon calls it so. It looks at once when it reads its configuration again,
/// and otherwise within a minute.
fn rename(context: &mut Context<'_>, from: &str, to: &str) -> Result<(), Failure> {
    command::run_as(HOST, &["rdma", "dev", "set", from, "name", to])?;
    context
        .timeline
        .note(HOST, format!("{from} is called {to}"));
    context.world.reload_daemon(HOST)?;
    wait::until(&format!("{from} is shown as {to}"), LIMIT, || {
        let (said, _) = apmctl(HOST, &["port"])?;
        let is_new = said.contains(&format!("{to}/1")) && said.contains(&format!("{to}/2"));
        Ok(Seen::when(is_new && !said.contains(from), || said))
    })?;
    // The configuration still has the old name, and that is all that is wrong.
    let (said, _) = apmctl(HOST, &["status"])?;
    ensure(
        !said.contains("libibverbs") && !said.contains("is there, but"),
        || said,
    )
}

fn is_used(context: &mut Context<'_>, [from, to]: &[String; 2]) -> Result<(), Failure> {
    // Its program, which knows the device by the old name, loads another alternate when it has moved.
    let before = context.world.wait_armed(1)?;
    let id = text(&shown(HOST)?["id"]);
    operate(context, HOST, &["conn", "migrate", &id], 0)?;
    let port = before[0].active_port(HOST);
    context.world.wait_moved(1, port)?;
    context.report.migrations += 1;
    context.world.wait_armed(1)?;
    context.report.rearmed += 1;

    let common = ["-n", "1", "-i", "1000", "-p", "7481"];
    let words = [&["apm_stream", "-s", "-b", to], &common[..]].concat();
    let mut server = Program::start("server", HOST.other(), &words)?;
    server.wait_for_line("LISTENING", LIMIT, |line| line.starts_with("LISTENING"))?;
    let words = [&["apm_stream", "-b", from], &common[..], &[to]].concat();
    let mut client = Program::start("client", HOST, &words)?;
    client.wait_for_line("STATS", LIMIT, |line| line.starts_with("STATS"))?;
    context.world.wait_armed(2).map(drop)
}
