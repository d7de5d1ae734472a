// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel consumers of RC connections, under the care of the module `apm` and the daemons.
//!
//! - [`crate::kernel_ulp`]: the four, and their streams.
//! - [`faults`]: what happens to them, one after the other; [`complaints`]: what the kernel says to it.
//! - [`traps`]: what would undo their protection.

mod complaints;
mod faults;
mod traps;

use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::kernel_module::KernelModule;
use crate::kernel_ulp::stream::Stream;
use crate::kernel_ulp::{self, Ulp};
use crate::observe::Pair;
use crate::world::Kind;

use self::faults::Fault;
use super::{Context, Drill, Part};

/// SCSI disks.
pub(super) const SRP: Drill = Drill {
    name: "kernel-srp",
    about: "a disk by SRP, with the module apm: cables, a black hole, daemons killed",
    parts: &[Part {
        world: kernel_ulp::SRP.world,
        run: |context| run(context, &kernel_ulp::SRP),
    }],
};

/// NVMe disks.
pub(super) const NVME: Drill = Drill {
    name: "kernel-nvme",
    about: "a disk by NVMe, with the module apm: cables, a black hole, daemons killed",
    parts: &[Part {
        world: kernel_ulp::NVME.world,
        run: |context| run(context, &kernel_ulp::NVME),
    }],
};

/// Files.
pub(super) const NFS: Drill = Drill {
    name: "kernel-nfs",
    about: "a file by NFS/RDMA, with the module apm: cables, a black hole, daemons killed",
    parts: &[Part {
        world: kernel_ulp::NFS.world,
        run: |context| run(context, &kernel_ulp::NFS),
    }],
};

/// Messages.
pub(super) const RDS: Drill = Drill {
    name: "kernel-rds",
    about: "messages by RDS, with the module apm: cables, a black hole, daemons killed",
    parts: &[Part {
        world: kernel_ulp::RDS.world,
        run: |context| run(context, &kernel_ulp::RDS),
    }],
};

/// Over the spines of a larger fabric.
pub(super) const SPINE: Drill = Drill {
    name: "kernel-spine",
    about: "SRP, NVMe, RDS, NFS, with the module apm: a spine is a black hole",
    parts: &[
        Part {
            world: Kind::LeafSpine,
            run: |context| {
                let mut all = kernel_ulp::FLAT.into_iter();
                all.try_for_each(|ulp| over_spine(context, ulp))
            },
        },
        Part {
            world: Kind::LeafSpineNetns,
            run: |context| over_spine(context, &kernel_ulp::NFS),
        },
    ],
};

/// An NVMe disk over a bond.
pub(super) const TRAPS: Drill = Drill {
    name: "traps",
    about: "a bond under NVMe, a short keep-alive, an old kernel: apmd warns of each",
    parts: &[Part {
        world: kernel_ulp::NVME.world,
        run: traps::run,
    }],
};

fn run(context: &mut Context<'_>, ulp: &'static Ulp) -> Result<(), Failure> {
    under_care(context, Policy::NORMAL, |context, module| {
        protected(context, ulp, module)
    })?;
    if !context.options.short {
        faults::plain(context, ulp)?;
        faults::judge(context.report)?;
    }
    Ok(())
}

fn over_spine(context: &mut Context<'_>, ulp: &'static Ulp) -> Result<(), Failure> {
    under_care(context, Policy::LIVE, |context, module| {
        verified(context, ulp, |context, stream| {
            stream.wait_for(context.world, Pair::shares_nothing)?;
            faults::spine(context, stream)
        })?;
        Ok(module)
    })
}

/// Does what is to be done with the module loaded and the daemons there; in the end there is neither.
fn under_care(
    context: &mut Context<'_>,
    policy: Policy,
    work: impl FnOnce(&mut Context<'_>, KernelModule) -> Result<KernelModule, Failure>,
) -> Result<(), Failure> {
    let module = KernelModule::load()?;
    context.world.start_daemons(policy)?;
    let worked = work(context, module);
    context.world.stop_daemons()?;
    context.world.mend()?;
    worked?.unload()
}

fn protected(
    context: &mut Context<'_>,
    ulp: &'static Ulp,
    module: KernelModule,
) -> Result<KernelModule, Failure> {
    let suffer = |all: &'static [Fault]| {
        move |context: &mut Context<'_>, stream: &mut Stream| {
            all.iter()
                .try_for_each(|fault| faults::protected(context, stream, *fault))
        }
    };
    let short = context.options.short;
    verified(context, ulp, suffer(Fault::of_run(short)))?;
    if short {
        return Ok(module);
    }
    // Under the running daemons.
    module.unload()?;
    let module = KernelModule::load()?;
    verified(context, ulp, suffer(&[Fault::Local]))?;
    Ok(module)
}

/// A stream that suffers: in the end its data are right, its queue pairs are the same, and the kernel has
/// said nothing. That is judged while the stream still runs, and again when the client has compared all blocks and
/// logged out; then the messages of a logout are no fault.
fn verified(
    context: &mut Context<'_>,
    ulp: &'static Ulp,
    suffer: impl FnOnce(&mut Context<'_>, &mut Stream) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let complaints = complaints::of(ulp)?;
    context.world.wait_acquainted()?;
    let mut stream = Stream::start(ulp, context.world.hosts())?;
    stream.wait_for(context.world, Pair::is_armed)?;
    let before = numbers(&context.world.pairs()?);
    context.report.connections += ulp.connections as u64;
    suffer(context, &mut stream)?;
    let after = numbers(&context.world.pairs()?);
    ensure(before == after, || {
        "other queue pairs than at the beginning".to_owned()
    })?;
    let running = complaints::of(ulp)?;
    ensure_silent(running.iter().skip(complaints.len()))?;
    let said = stream.finish()?;
    context
        .timeline
        .note("drill", format!("{}: {said}", ulp.name));
    let ended = complaints::of(ulp)?;
    let since = ended.iter().skip(running.len());
    ensure_silent(since.filter(|line| !complaints::is_of_logout(line)))
}

fn ensure_silent<'a>(complaints: impl Iterator<Item = &'a String>) -> Result<(), Failure> {
    let complaints: Vec<_> = complaints.map(String::as_str).collect();
    ensure(complaints.is_empty(), || {
        format!("the kernel says: {}", complaints.join("; "))
    })
}

/// The queue pairs at both ends.
fn numbers(pairs: &[Pair]) -> Vec<u32> {
    let ends = pairs.iter().flat_map(|pair| &pair.ends);
    let mut numbers: Vec<_> = ends.map(|end| end.qpn).collect();
    numbers.sort_unstable();
    numbers
}
