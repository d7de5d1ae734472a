// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices at which no connection can end, or none that could be protected, beside one that is an endpoint: apmd looks
//! after that one, names the others with the reason, and does not fail because of them.

use std::time::Duration;

use crate::command;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::wait::{self, Seen};
use crate::world::Kind;

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "odd-devices",
    about: "devices at which no connection ends: ignored by name, no reason to fail",
    parts: &[Part {
        world: Kind::Flat,
        run,
    }],
};

/// The odd one; the daemon of host A is to look after it beside its own.
const ODD: &str = "shca1";

/// What is odd about it (`testbed/soft-hca/quirks.c`), and the line of `apmctl status` that says so.
const CASES: [(&str, &str); 4] = [
    (
        "no-cm+no-gid",
        "ignored      shca1: its ports have neither a GID nor communication management",
    ),
    ("no-node-guid", "ignored      shca1: its node GUID is 0"),
    (
        "einval",
        "ignored      shca1: the kernel does not tell how its ports are: /sys/class/infiniband/shca1/ports/1/state: \
         Invalid argument",
    ),
    ("grh", "warning      shca1/1 requires a GRH in every packet"),
];

/// Bound for the subnet to come up, and for apmd to find what there is.
const LIMIT: Duration = Duration::from_secs(60);

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    let shown = CASES
        .iter()
        .try_for_each(|(quirk, line)| with(context, quirk, line));
    context.world.stop_daemons()?;
    reload(context, None)?;
    shown
}

fn with(context: &mut Context<'_>, quirk: &str, line: &str) -> Result<(), Failure> {
    context.world.stop_daemons()?;
    reload(context, Some(quirk))?;
    let policy = Policy {
        devices: &[ODD],
        ..Policy::default()
    };
    context.world.start_daemon(Host::A, policy)?;
    let what = format!("apmctl status names {ODD} ({quirk}), and ends with 0");
    wait::until(&what, LIMIT, || {
        let output = command::attempt(&[Host::A.name(), "apmctl", "status"])?;
        let text = String::from_utf8_lossy(&output.stdout);
        let is_shown = output.status.success() && text.contains(line);
        Ok(Seen::when(is_shown, || text.into_owned()))
    })?;
    let ports = command::run_as(Host::A, &["apmctl", "port", "show"])?;
    let own = format!("{}/1", Host::A.device());
    ensure(ports.contains(&own), || {
        format!("apmctl port does not show {own}: {ports}")
    })?;
    context.timeline.note(Host::A, format!("{quirk}: {line}"));
    Ok(())
}

/// The same fabric, with something odd about one device.
fn reload(context: &Context<'_>, quirk: Option<&str>) -> Result<(), Failure> {
    context.world.stop_subnet_manager()?;
    command::run(&["rmmod", "ib_ipoib"])?;
    command::run(&["rmmod", "shca"])?;
    let quirks = quirk.map(|quirk| format!("quirks={ODD}:{quirk}"));
    let words: Vec<&str> = ["modprobe", "shca"]
        .into_iter()
        .chain(quirks.as_deref())
        .collect();
    command::run(&words)?;
    command::run(&["modprobe", "ib_ipoib"])?;
    context.world.start_subnet_manager()
}
