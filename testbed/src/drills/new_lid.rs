// SPDX-License-Identifier: MIT OR Apache-2.0
//! The subnet manager gives ports other LIDs under an open connection: a part of the drill `sa-source`.

use crate::daemon::Policy;
use crate::failure::Failure;
use crate::host::Host;
use crate::stream::{Options, Streams};

use super::Context;

/// The alternate's port first: it is loaded anew at both ends, and good for something. Then the primary's:
/// what the queue pairs send there is lost, so they leave it for the alternate.
pub(super) fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    context.world.start_daemons(Policy::default())?;
    let mut streams = Streams::start(&context.timeline, Options::default())?;
    let pairs = context.world.wait_disjoint(1)?;
    let [near, far] = Host::ALL.map(|host| pairs[0].active_port(host));
    wait_loaded(context, far.other().number)?;
    context.world.pull(near)?;
    context.world.wait_moved(1, near)?;
    context.report.migrations += 1;
    streams.wait_flowing()?;
    context.world.plug(near)?;

    let pairs = context.world.wait_disjoint(1)?;
    context.report.rearmed += 1;
    let left = pairs[0].active_port(Host::B);
    wait_loaded(context, left.number)?;
    context.world.wait_moved(1, left)?;
    context.report.migrations += 1;
    context.report.rearmed += 1;
    streams.wait_flowing()?;
    context.finish(streams)?;
    context.world.stop_daemons()
}

/// Gives a port of host B another LID, and waits until both ends are armed with it in their alternate.
fn wait_loaded(context: &mut Context<'_>, number: u8) -> Result<(), Failure> {
    let port = Host::B.port(number);
    let lid = context.world.give_new_lid(port)?;
    let what = format!("armed over {port} by LID {lid}");
    context.world.wait_for(&what, 1, |pair| {
        let [a, b] = Host::ALL.map(|host| pair.end(host).alternate.as_ref());
        let has_lid = a.is_some_and(|path| path.dlid == lid)
            && b.is_some_and(|path| (path.port, path.slid) == (number, lid));
        pair.is_disjoint() && has_lid
    })?;
    context.timeline.note("drill", what);
    Ok(())
}
