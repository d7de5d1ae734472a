// SPDX-License-Identifier: MIT OR Apache-2.0
//! One person who takes what there is for all: queue pairs to where nobody is, which need no socket where the kernel
//! module is loaded (`uverbs` devices are open to all unless a rule of udev's says otherwise), and sockets as many users.

use std::thread;
use std::time::Duration;

use super::Context;
use super::attacker::{self, Attacker, SOCKET};
use super::scene::Scene;
use crate::command;
use crate::failure::{Failure, ensure};
use crate::file;
use crate::host::Host;
use crate::kernel_module::KernelModule;
use crate::unit;

/// Queue pairs that lead to where nobody is.
const QUEUE_PAIRS: &str = "600";
/// The first LID that no port has, by far.
const DEAD: &str = "16384";

/// User IDs that are subordinate to the first.
const UIDS: [u32; 7] = [3000, 300_000, 300_001, 300_002, 300_003, 300_004, 300_005];
const SUBORDINATES: &str = "/etc/subuid";

/// How long a crowd is let grow.
const TIME: Duration = Duration::from_secs(10);

/// A user without any group has queue pairs to one LID that no port has.
pub(super) fn dead_lid(context: &mut Context<'_>, scene: &mut Scene) -> Result<(), Failure> {
    dead(context, scene, "dead_lid", "1")
}

/// The same, to a LID each.
pub(super) fn dead_lids(context: &mut Context<'_>, scene: &mut Scene) -> Result<(), Failure> {
    dead(context, scene, "dead_lids", QUEUE_PAIRS)
}

fn dead(
    context: &mut Context<'_>,
    scene: &mut Scene,
    attack: &str,
    lids: &str,
) -> Result<(), Failure> {
    let module = KernelModule::load()?;
    let words = [
        "hold_qp",
        "-n",
        QUEUE_PAIRS,
        lids,
        Host::A.device(),
        "1",
        DEAD,
    ];
    let mut holder = None;
    let shown = scene.compare(context, attack, |on| {
        holder = None;
        if on {
            let mut started = Attacker::start_without_groups(&words)?;
            started.wait_for(&["STATS"])?;
            holder = Some(started);
        }
        Ok(())
    });
    drop(holder);
    shown?;
    module.unload()
}

/// One person with seven user IDs wants all places at the libraries' socket, each ID as many as it gets. Others have
/// theirs.
pub(super) fn seven_uids(context: &mut Context<'_>, scene: &mut Scene) -> Result<(), Failure> {
    let subordinates = format!("{}:{}:65536\n", UIDS[0], UIDS[1]);
    file::write(SUBORDINATES, &subordinates)?;
    let group = unit::group_id("rdma")?;
    let words = ["apm-abuse", "silent", SOCKET, "4096", "--hello"];
    let start = |uid: &u32| Attacker::start_as(*uid, group, &words);
    let mut attackers = UIDS.iter().map(start).collect::<Result<Vec<_>, _>>()?;
    for attacker in &mut attackers {
        attacker.wait_for(&["STATS"])?;
    }
    thread::sleep(TIME);
    let mut innocent = Attacker::start(0, &["apm-abuse", "silent", SOCKET, "5", "--hello"])?;
    innocent.wait_for(&["STATS"])?;
    let (held, has) = (attacker::sum(&attackers, "held"), innocent.count("held"));
    context.report.set("seven_uids_held", held);
    context.report.set("seven_uids_innocent", has);
    let text =
        format!("one person with seven user IDs holds {held} connections, another user {has} of 5");
    context.timeline.note("drill", text.clone());
    ensure(has == 5, || text)?;
    command::run_as(Host::A, &["apmctl", "conn", "show"])?;
    let shown = scene.rearm_under(context, "seven_uids", &mut attackers);
    file::write(SUBORDINATES, "")?;
    shown
}
