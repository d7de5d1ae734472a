// SPDX-License-Identifier: MIT OR Apache-2.0
//! apmd with no more rights than its systemd unit and the drop-in for ACM give it.

use std::fs;
use std::thread;
use std::time::Duration;

use crate::command;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::ib_acme;
use crate::observe::{self, acm_counter};
use crate::program::Program;
use crate::stream::{Options, Streams};
use crate::unit::{self, Rights};
use crate::world::Kind;

use super::{Context, Drill, Part, acm_multicast};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "acm-rights",
    about: "apmd with the user and capabilities of its unit: bonds, and with the drop-in ACM",
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

fn policy(rights: Rights) -> Policy {
    Policy {
        rights,
        sections: unit::acm_section(),
        ..Policy::default()
    }
}

fn run_flat(context: &mut Context<'_>) -> Result<(), Failure> {
    bonds(context).and_then(|()| acm(context))
}

/// The unit alone is enough to keep a connection armed, and ACM does without what it does not allow.
fn bonds(context: &mut Context<'_>) -> Result<(), Failure> {
    context.world.start_daemon(Host::A, policy(Rights::Unit))?;
    // Both would serve ACM at the same place.
    let without_acm = Policy {
        rights: Rights::Unit,
        ..Policy::default()
    };
    context.world.start_daemon(Host::B, without_acm)?;
    for host in Host::ALL {
        ensure_rights(context, host)?;
    }
    let streams = Streams::start(&context.timeline, Options::default())?;
    let port = context.world.wait_disjoint(1)?[0].active_port(Host::A);
    context.world.pull(port)?;
    context.world.wait_moved(1, port)?;
    context.report.migrations += 1;
    context.world.plug(port)?;
    context.world.wait_disjoint(1)?;
    context.report.rearmed += 1;
    context.finish(streams)?;
    let acm = observe::acm(Host::A)?;
    ensure(acm["kernel"] == false, || {
        format!("the unit alone lets apmd hear the kernel: {acm}")
    })?;
    context
        .world
        .wait_logged(Host::A, &["acm: no queue pair"])?;
    context.world.stop_daemons()
}

/// The process of a host's daemon has the rights of its unit, all of them and no other.
fn ensure_rights(context: &Context<'_>, host: Host) -> Result<(), Failure> {
    let (pid, wanted) = context.world.rights(host)?;
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).map_err(|source| Failure::File { path, source })?;
    for line in &wanted {
        ensure(status.lines().any(|found| found == line), || {
            format!("{host}'s daemon: no {line:?} in {status}")
        })?;
    }
    context
        .timeline
        .note(host, wanted.join(", ").replace('\t', " "));
    Ok(())
}

/// With the drop-in it serves ib_acme over both transports and the kernel, and may talk to others.
fn acm(context: &mut Context<'_>) -> Result<(), Failure> {
    context
        .world
        .start_daemon(Host::A, policy(Rights::UnitForAcm))?;
    ensure_rights(context, Host::A)?;
    let [a, b] = [Host::A.port(1).gid()?, Host::B.port(1).gid()?];
    ib_acme::wait_path(&format!("-f g -s {a} -d {b} -v"))?;
    ib_acme::wait_path(&format!("-f g -s {a} -d {b} -v -S localhost"))?;
    context
        .timeline
        .note("drill", "ib_acme was answered by Unix and TCP");
    kernel_is_served(&a, &b)?;
    context.timeline.note("drill", "the kernel was answered");
    context
        .world
        .wait_logged(Host::A, &["acm: queue pair made"])?;
    context.world.stop_daemons()
}

/// Debian's ucmatose connects by a path that its kernel has from apmd: the program itself does not
/// find the service, for its `/run` is empty.
fn kernel_is_served(a: &str, b: &str) -> Result<(), Failure> {
    let apart = "mount -t tmpfs none /run && exec ucmatose -f gid \"$@\"";
    let words = ["unshare", "--mount", "bash", "-c", apart, "ucmatose"];
    let before = acm_counter(Host::A, "kernel")?;
    let server = [&words[..], &["-b", b]].concat();
    let mut server = Program::start("ucmatose", Host::B, &server)?;
    thread::sleep(Duration::from_secs(1));
    server.ensure_running()?;
    let client = [&words[..], &["-b", a, "-s", b]].concat();
    let text = command::run_as(Host::A, &client)?;
    ensure(text.contains("return status 0"), || text)?;
    let after = acm_counter(Host::A, "kernel")?;
    ensure(after > before, || "the kernel did not ask apmd".to_owned())
}

/// It asks stock ibacm on another host, and answers it.
fn run_netns(context: &mut Context<'_>) -> Result<(), Failure> {
    let resolved = acm_multicast::resolve_with_ibacm(context, policy(Rights::UnitForAcm))?;
    context.report.set("resolved_with_ibacm", resolved);
    Ok(())
}
