// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device at which no connection can end, or none that could be protected, in the host of an ordinary one: apmd names it
//! with the reason, brings the ports of the other one up, and `apmctl status` exits with 0.

use std::time::Duration;

use crate::command;
use crate::daemon::Policy;
use crate::failure::Failure;
use crate::host::Host;
use crate::wait::{self, Seen};
use crate::world::Kind;

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "odd-devices",
    about: "devices with known faults: named with the reason, and status exits with 0",
    parts: &[Part {
        world: Kind::Flat,
        run,
    }],
};

/// The device with the fault, in host A beside its own.
const ODD: &str = "shca1";

/// A fault (`testbed/soft-hca/quirks.c`), and what `apmctl status` shows then.
struct Case {
    quirk: &'static str,
    line: &'static str,
    ports: &'static str,
}

const CASES: [Case; 4] = [
    Case {
        quirk: "no-cm+no-gid",
        line: "ignored      shca1: its ports have neither a GID nor communication management",
        ports: "2 of 2 up",
    },
    Case {
        quirk: "no-node-guid",
        line: "ignored      shca1: its node GUID is 0",
        ports: "2 of 2 up",
    },
    Case {
        quirk: "einval",
        line: "ignored      shca1: the kernel does not tell how its ports are: \
               /sys/class/infiniband/shca1/ports/1/state: Invalid argument",
        ports: "2 of 2 up",
    },
    Case {
        quirk: "grh",
        line: "warning      shca1/1 requires a GRH in every packet",
        ports: "2 of 4 up, 2 down",
    },
];

/// Bound for the subnet to come up, and for apmd to find what there is.
const LIMIT: Duration = Duration::from_secs(60);

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    let shown = CASES.iter().try_for_each(|case| with(context, case));
    context.world.stop_daemons()?;
    reload(context, None)?;
    shown
}

fn with(context: &mut Context<'_>, case: &Case) -> Result<(), Failure> {
    let Case { quirk, line, ports } = case;
    context.world.stop_daemons()?;
    reload(context, Some(quirk))?;
    let policy = Policy {
        devices: &[ODD],
        ..Policy::default()
    };
    context.world.start_daemon(Host::A, policy)?;
    let what = format!("apmctl status names {ODD} ({quirk}), has {ports}, and exits with 0");
    wait::until(&what, LIMIT, || {
        let output = command::attempt(&[Host::A.name(), "apmctl", "status"])?;
        let text = String::from_utf8_lossy(&output.stdout);
        let is_shown = output.status.success() && text.contains(line) && text.contains(ports);
        Ok(Seen::when(is_shown, || text.into_owned()))
    })?;
    context.timeline.note(Host::A, format!("{quirk}: {line}"));
    Ok(())
}

/// The same fabric, with a fault of one device.
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
