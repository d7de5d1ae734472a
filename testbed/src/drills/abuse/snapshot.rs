// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a daemon writes the fabric's snapshot, another user has planted symbolic links.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use super::Context;
use super::attacker::Attacker;
use super::scene::Scene;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::file::write;
use crate::host::Host;
use crate::link::Link;
use crate::wait::{self, Seen};

/// A directory in which everybody may make files. Without the sticky bit: with it, the kernel itself
/// follows nobody's links.
const DIRECTORY: &str = "/run/drill/everybodys";
const SNAPSHOT: &str = "/run/drill/everybodys/fabric";
const VICTIM: &str = "/run/drill/victim";
const CONTENT: &str = "not to be written to\n";

/// Bound for the fabric to be read.
const LIMIT: Duration = Duration::from_secs(60);

const SECTIONS: &str = "[ssa]\nlive = true\nsnapshot = \"/run/drill/everybodys/fabric\"\n";

/// A link in place of the file that becomes the snapshot is not followed, and one in the snapshot's
/// own place is replaced.
pub(super) fn symlink(context: &mut Context<'_>, scene: &mut Scene) -> Result<(), Failure> {
    prepare().map_err(|source| Failure::File {
        path: DIRECTORY.to_owned(),
        source,
    })?;
    write(VICTIM, CONTENT)?;
    context.world.kill_daemon(Host::B)?;
    let policy = Policy {
        sections: SECTIONS,
        ..Policy::default()
    };
    context.world.start_daemon(Host::B, policy)?;
    let (pid, _) = context.world.rights(Host::B)?;
    plant(&format!("{SNAPSHOT}.{pid}"))?;
    wait_written(context)?;
    plant(SNAPSHOT)?;
    // What changes in the fabric makes it be written again.
    context.world.pull(Link::InterSwitch)?;
    let written = wait_written(context);
    context.world.restore(Link::InterSwitch)?;
    written?;
    context.report.set("symlink_followed", is_touched());
    ensure(!is_touched(), || "a planted link was followed".to_owned())?;
    scene.rearm(context).map(drop)
}

/// Waits until the snapshot is a file, or the victim one.
fn wait_written(context: &Context<'_>) -> Result<(), Failure> {
    wait::until("the snapshot is written", LIMIT, || {
        let written = fs::symlink_metadata(SNAPSHOT).is_ok_and(|found| found.is_file());
        let logged = || context.world.log_tail(Host::B, 1).concat();
        Ok(Seen::when(written || is_touched(), logged))
    })
}

fn prepare() -> std::io::Result<()> {
    if fs::exists(DIRECTORY)? {
        fs::remove_dir_all(DIRECTORY)?;
    }
    fs::create_dir_all(DIRECTORY)?;
    fs::set_permissions(DIRECTORY, fs::Permissions::from_mode(0o777))
}

/// A user links this name to a file that is not theirs.
fn plant(name: &str) -> Result<(), Failure> {
    let script = format!("ln -sf {VICTIM} {name} && echo PLANTED && exec sleep 60");
    Attacker::start(0, &["bash", "-c", &script])?
        .wait_for(&["PLANTED"])
        .map(drop)
}

fn is_touched() -> bool {
    fs::read(VICTIM).map_or(true, |bytes| bytes != CONTENT.as_bytes())
}
