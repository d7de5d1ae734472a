// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registrations of queue pairs that are somebody else's, nobody's or not as is said, and far too
//! many of one's own.

use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::Context;
use super::attacker::{self, Attacker, SOCKET};
use super::scene::Scene;
use crate::clock::Moment;
use crate::command;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::kernel_module::KernelModule;
use crate::port::Port;
use crate::stream::{Options, Streams};

/// How long it is counted what a loop of registrations makes the daemon do.
const TIME: Duration = Duration::from_secs(10);

/// How much that may be: lines of level INFO and above, since whoever asks for debugging asks for more.
const MADS_A_SECOND: f64 = 150.0;
const LINES_A_SECOND: f64 = 20.0;

/// What is said of a queue pair.
struct Claim {
    node_guid: String,
    slid: u16,
    dlid: u16,
    sgid: String,
    dgid: String,
    /// `None`: one's own, made for this.
    qpn: Option<u32>,
}

impl Claim {
    /// What is true of a queue pair from port 1 to port 1.
    fn truth() -> Result<Self, Failure> {
        let [here, there]: [Port; 2] = Host::ALL.map(|host| host.port(1));
        let path = format!("/sys/class/infiniband/{}/node_guid", Host::A.device());
        Ok(Self {
            node_guid: command::run_as(Host::A, &["cat", &path])?.trim().to_owned(),
            slid: here.lid()?,
            dlid: there.lid()?,
            sgid: here.gid()?,
            dgid: there.gid()?,
            qpn: None,
        })
    }

    /// Starts `how` with this claim.
    fn attack(&self, how: &str) -> Result<Attacker, Failure> {
        let (slid, dlid) = (self.slid.to_string(), self.dlid.to_string());
        let qpn = self.qpn.map(|qpn| qpn.to_string());
        let real = Host::B.port(1).lid()?.to_string();
        let mut words = Vec::new();
        if qpn.is_none() {
            words.extend(["hold_qp", Host::A.device(), "1", &real]);
        }
        words.extend(["apm-abuse", how, SOCKET, "--node-guid", &self.node_guid]);
        words.extend(["--slid", &slid, "--dlid", &dlid]);
        words.extend(["--sgid", &self.sgid, "--dgid", &self.dgid]);
        words.extend(qpn.iter().flat_map(|qpn| ["--qpn", qpn]));
        Attacker::start(0, &words)
    }
}

/// Claims that are not true, by what is wrong with them.
fn lies(somebodys: u32) -> Result<Vec<(&'static str, Claim)>, Failure> {
    let truth = Claim::truth;
    let other = Host::A.port(2);
    Ok(vec![
        (
            "somebody else's queue pair",
            Claim {
                qpn: Some(somebodys),
                ..truth()?
            },
        ),
        (
            "no queue pair",
            Claim {
                qpn: Some(0xf0_0001),
                ..truth()?
            },
        ),
        (
            "no such device",
            Claim {
                node_guid: "0:0:0:1".to_owned(),
                ..truth()?
            },
        ),
        (
            "another port's LID",
            Claim {
                slid: other.lid()?,
                ..truth()?
            },
        ),
        (
            "another port's GID",
            Claim {
                sgid: other.gid()?,
                ..truth()?
            },
        ),
        (
            "to a multicast LID",
            Claim {
                dlid: 0xc001,
                ..truth()?
            },
        ),
    ])
}

/// What is not true is refused, and what is true is not.
pub(super) fn forged(context: &mut Context<'_>, scene: &mut Scene) -> Result<(), Failure> {
    let lies = lies(scene.qpn)?;
    judged(context, "forged", lies)?;
    context.world.wait_disjoint(1).map(drop)
}

/// With the kernel module loaded, which knows where a queue pair leads; and a library that is there already
/// goes on with what the module says.
pub(super) fn forged_by_module(
    context: &mut Context<'_>,
    scene: &mut Scene,
) -> Result<(), Failure> {
    let module = KernelModule::load()?;
    context
        .world
        .wait_logged(Host::A, &["kernel module apm is there"])?;
    let mut lies = lies(scene.qpn)?;
    let elsewhere = Claim {
        dlid: Host::B.port(2).lid()?,
        ..Claim::truth()?
    };
    lies.push(("to where it does not lead", elsewhere));
    judged(context, "forged_by_module", lies)?;
    scene.rearm(context)?;
    module.unload()
}

fn judged(
    context: &mut Context<'_>,
    attack: &str,
    lies: Vec<(&'static str, Claim)>,
) -> Result<(), Failure> {
    let mut honest = Claim::truth()?.attack("claim")?;
    let mut accepted = Vec::new();
    let mut attackers = Vec::new();
    for (what, claim) in lies {
        attackers.push((what, claim.attack("claim")?));
    }
    let total = attackers.len();
    for (what, attacker) in &mut attackers {
        let said = attacker.wait_for(&["REFUSED", "ACCEPTED"])?;
        let text = format!("{what}: {said}");
        context.timeline.note("drill", text);
        if said.starts_with("ACCEPTED") {
            accepted.push(*what);
        }
    }
    let said = honest.wait_for(&["REFUSED", "ACCEPTED"])?;
    let accepted_key = format!("{attack}_accepted");
    context.report.set(attack, total);
    context.report.set(&accepted_key, accepted.len());
    ensure(said == "ACCEPTED", || format!("an honest claim: {said}"))?;
    ensure(accepted.is_empty(), || {
        format!("accepted: {}", accepted.join(", "))
    })
}

/// Of a queue pair whose maker has ended, the kernel does not say whose it is; it stays with the one
/// who registered it.
pub(super) fn takeover(context: &mut Context<'_>, scene: &mut Scene) -> Result<(), Failure> {
    let options = Options {
        port: 7481,
        maker_ends: true,
        ..Options::default()
    };
    let streams = Streams::start(&context.timeline, options)?;
    let pairs = context.world.wait_disjoint(2)?;
    let qpns = pairs.iter().map(|pair| pair.end(Host::A).qpn);
    let victim = qpns.into_iter().find(|qpn| *qpn != scene.qpn);
    let claim = Claim {
        qpn: victim,
        ..Claim::truth()?
    };
    let said = claim.attack("claim")?.wait_for(&["REFUSED", "ACCEPTED"])?;
    context.report.set("takeover", said.clone());
    let text = format!("the queue pair of a thread that has ended: {said}");
    context.timeline.note("drill", text.clone());
    let stays = context.world.wait_disjoint(2);
    context.finish(streams)?;
    context.world.wait_disjoint(1)?;
    ensure(said.starts_with("REFUSED"), || text)?;
    stays.map(drop)
}

/// Loops of registrations make few MADs and few lines of the log, and others are armed in time.
pub(super) fn churn(context: &mut Context<'_>, scene: &mut Scene) -> Result<(), Failure> {
    let mut attackers = vec![Claim::truth()?.attack("churn")?];
    for (_, claim) in lies(scene.qpn)? {
        attackers.push(claim.attack("churn")?);
    }
    for attacker in &mut attackers {
        attacker.wait_for(&["STATS"])?;
    }
    let (since, mads) = (Moment::now(), mads_sent()?);
    thread::sleep(TIME);
    let seconds = Moment::now().since(since).as_secs_f64();
    let mads = (mads_sent()? - mads) as f64 / seconds;
    let lines = context.world.told_since(Host::A, since).len() as f64 / seconds;
    let registered = attacker::sum(&attackers, "registered");
    let report = &mut *context.report;
    report.set("churn_registrations", registered);
    report.set("churn_mads_per_second", mads.round());
    report.set("churn_log_lines_per_second", lines.round());
    let text = format!(
        "{registered} registrations in a loop: {mads:.0} MADs/s, {lines:.0} lines of the log a second"
    );
    context.timeline.note("drill", text.clone());
    scene.rearm_under(context, "churn", &mut attackers)?;
    ensure(mads <= MADS_A_SECOND && lines <= LINES_A_SECOND, || text)
}

/// MADs that host A's engine has sent.
fn mads_sent() -> Result<u64, Failure> {
    let json = command::run_as(Host::A, &["apmctl", "-j", "counters", "show"])?;
    let counters: Result<Value, _> = serde_json::from_str(&json);
    let sent = counters
        .ok()
        .and_then(|it| it["engine"]["mads_sent"].as_u64());
    sent.ok_or_else(|| Failure::Output {
        source_name: "apmctl -j counters show".to_owned(),
        problem: format!("no mads_sent: {json}"),
    })
}
