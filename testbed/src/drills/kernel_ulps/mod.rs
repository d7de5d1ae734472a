// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel consumers of RC connections, under the care of the module `apm` and the daemons.
//!
//! - [`ulp`]: the four, as data; [`stream`]: a target and a client that verifies what it reads.
//! - [`faults`]: what happens to them, one after the other; [`complaints`]: what the kernel says to it.
//! - [`traps`]: what would undo their protection.

mod complaints;
mod faults;
mod stream;
mod traps;
mod ulp;

use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::kernel_module::KernelModule;
use crate::observe::Pair;

use self::faults::Fault;
use self::stream::Stream;
use self::ulp::Ulp;
use super::{Context, Drill, Part};

/// SCSI disks.
pub(super) const SRP: Drill = Drill {
    name: "kernel-srp",
    about: "a disk by SRP, with the module apm: cables, a black hole, daemons killed",
    parts: &[Part {
        world: ulp::SRP.world,
        run: |context| run(context, &ulp::SRP),
    }],
};

/// NVMe disks.
pub(super) const NVME: Drill = Drill {
    name: "kernel-nvme",
    about: "a disk by NVMe, with the module apm: cables, a black hole, daemons killed",
    parts: &[Part {
        world: ulp::NVME.world,
        run: |context| run(context, &ulp::NVME),
    }],
};

/// Files.
pub(super) const NFS: Drill = Drill {
    name: "kernel-nfs",
    about: "a file by NFS/RDMA, with the module apm: cables, a black hole, daemons killed",
    parts: &[Part {
        world: ulp::NFS.world,
        run: |context| run(context, &ulp::NFS),
    }],
};

/// Messages.
pub(super) const RDS: Drill = Drill {
    name: "kernel-rds",
    about: "messages by RDS, with the module apm: cables, a black hole, daemons killed",
    parts: &[Part {
        world: ulp::RDS.world,
        run: |context| run(context, &ulp::RDS),
    }],
};

/// An NVMe disk over a bond.
pub(super) const TRAPS: Drill = Drill {
    name: "traps",
    about: "a bond under NVMe, a short keep-alive, an old kernel: apmd warns, and is strict if told",
    parts: &[Part {
        world: ulp::NVME.world,
        run: traps::run,
    }],
};

fn run(context: &mut Context<'_>, ulp: &'static Ulp) -> Result<(), Failure> {
    let module = KernelModule::load()?;
    let protected = protected(context, ulp);
    context.world.stop_daemons()?;
    context.world.mend()?;
    let unloaded = module.unload();
    protected.and(unloaded)?;
    if !context.options.short {
        faults::plain(context, ulp)?;
    }
    Ok(())
}

fn protected(context: &mut Context<'_>, ulp: &'static Ulp) -> Result<(), Failure> {
    let complaints = complaints::all()?;
    context.world.start_daemons(Policy::NORMAL)?;
    let mut stream = Stream::start(ulp, context.world.hosts())?;
    faults::wait_armed(context.world, ulp)?;
    let before = numbers(&context.world.pairs()?);
    context.report.connections += ulp.connections as u64;
    for fault in Fault::of_run(context.options.short) {
        faults::protected(context, &mut stream, *fault)?;
    }
    let after = numbers(&context.world.pairs()?);
    ensure(before == after, || {
        "other queue pairs than at the beginning".to_owned()
    })?;
    let said = stream.finish()?;
    context
        .timeline
        .note("drill", format!("{}: {said}", ulp.name));
    let now = complaints::all()?;
    ensure(now.len() == complaints.len(), || {
        format!("the kernel says: {}", now[complaints.len()..].join("; "))
    })
}

/// The queue pairs at both ends.
fn numbers(pairs: &[Pair]) -> Vec<u32> {
    let ends = pairs.iter().flat_map(|pair| &pair.ends);
    let mut numbers: Vec<_> = ends.map(|end| end.qpn).collect();
    numbers.sort_unstable();
    numbers
}
