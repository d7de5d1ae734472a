// SPDX-License-Identifier: MIT OR Apache-2.0
//! Root of two other hosts asks a daemon's ports whether it is present, far more often than is answered, from eight LIDs of
//! a port each.

use super::Context;
use super::attacker::{self, Attacker};
use super::scene::Scene;
use crate::command;
use crate::failure::Failure;
use crate::file;
use crate::host::Host;
use crate::port::Port;
use cm_msgs::Presence;
use cm_msgs::mad::CLASS_APM;

/// The hosts that ask, by one port each.
const ASKERS: [Host; 2] = Host::ONE_PORT;

/// LMC 3: a port has eight LIDs.
const LMC: u8 = 3;
const LIDS: u32 = 8;

/// Questions a second from each at most, half of them to each port of host A.
const RATE: u32 = 720;

/// Gives all ports their LIDs, before anybody connects.
pub(super) fn prepare(context: &mut Context<'_>) -> Result<(), Failure> {
    context.world.move_to(Host::ALL)?;
    context.world.set_lmc(LMC)?;
    let mut ports = ASKERS.into_iter().map(|host| host.port(1));
    ports.try_for_each(|port| port.wait_lmc(LMC))
}

/// Questions of other hosts delay no re-arming.
///
/// The hosts share this machine's processors, and in reality would not: what it costs to ask so often is not the daemon's
/// doing. So the same questions go to hosts without a daemon while the attack is paused.
pub(super) fn questions(context: &mut Context<'_>, scene: &mut Scene) -> Result<(), Failure> {
    let [one, other] = ASKERS;
    let (at_daemon, elsewhere) = ("/tmp/questions", "/tmp/questions-elsewhere");
    write_questions(at_daemon, Host::A.ports())?;
    write_questions(elsewhere, [one.port(1), other.port(1)])?;
    let mut attackers = start_all(at_daemon)?;
    let mut bystanders = start_all(elsewhere)?;
    let shown = scene.compare(context, "presence", |on| {
        let (stop, go) = match on {
            true => (&mut bystanders, &mut attackers),
            false => (&mut attackers, &mut bystanders),
        };
        stop.iter_mut().try_for_each(Attacker::pause)?;
        go.iter_mut().try_for_each(Attacker::resume)
    });
    command::run_as(Host::A, &["apmctl", "conn", "show"])?;
    let asked = attacker::sum(&attackers, "sent");
    context.report.set("presence_questions", asked);
    let text = format!("16 LIDs of two ports have asked {asked} times");
    context.timeline.note("drill", text);
    shown
}

/// A file with a question to each of these ports.
fn write_questions(path: &str, ports: impl IntoIterator<Item = Port>) -> Result<(), Failure> {
    let mut records = Vec::new();
    for port in ports {
        records.extend(port.lid()?.to_be_bytes());
        records.extend(Presence::Get.encode(CLASS_APM, u64::from(port.number)));
    }
    file::write(path, &records)
}

/// Every asker asks what is in the file, until it is paused.
fn start_all(questions: &str) -> Result<Vec<Attacker>, Failure> {
    let start = |host: Host| {
        let device = host.device();
        let command = format!("exec send_mads {device} 1 {RATE} {LIDS} < {questions}");
        Attacker::start_elsewhere(host, &command)
    };
    let mut attackers: Vec<_> = ASKERS.into_iter().map(start).collect::<Result<_, _>>()?;
    for attacker in &mut attackers {
        attacker.wait_for(&["STATS"])?;
        attacker.pause()?;
    }
    Ok(attackers)
}
