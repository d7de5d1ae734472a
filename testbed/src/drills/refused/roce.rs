// SPDX-License-Identifier: MIT OR Apache-2.0
//! A software RoCE device over one end of a virtual Ethernet cable. Both ends of a connection are on it:
//! packets between two of one network namespace's addresses would not go over the cable.

use std::path::Path;
use std::time::Duration;

use crate::command;
use crate::failure::Failure;
use crate::wait::{self, Seen};

/// Its name.
pub(super) const NAME: &str = "rxe0";
/// What programs connect to.
pub(super) const ADDRESS: &str = "10.9.0.1";

const CABLE: [&str; 2] = ["roce0", "roce1"];
const SYSFS: &str = "/sys/class/infiniband/rxe0";

/// By its whole name: busybox has a smaller one, which its timeout(1) prefers.
const IP: &str = "/usr/bin/ip";

/// Bound for the kernel to remove it.
const LIMIT: Duration = Duration::from_secs(60);

/// Lays the cable.
pub(super) fn prepare() -> Result<(), Failure> {
    let [near, far] = CABLE;
    // Older kernels have the checksum that RoCE asks for by name in a module of its own.
    if command::run(&["modprobe", "--dry-run", "crc32_generic"]).is_ok() {
        command::run(&["modprobe", "crc32_generic"])?;
    }
    command::run(&["modprobe", "rdma_rxe"])?;
    for line in [
        format!("{IP} link add {near} type veth peer name {far}"),
        format!("{IP} link set {far} up"),
        format!("{IP} address add {ADDRESS}/24 dev {near}"),
        format!("{IP} link set {near} up"),
    ] {
        run(&line)?;
    }
    Ok(())
}

/// Adds the device.
pub(super) fn add() -> Result<(), Failure> {
    run(&format!(
        "rdma link add {NAME} type rxe netdev {}",
        CABLE[0]
    ))
}

/// Removes it. Nothing interrupts whoever waits in the kernel until nobody has the device open, not even SIGKILL: so
/// nobody here waits for the command itself.
pub(super) fn remove() -> Result<(), Failure> {
    let line = format!("rdma link delete {NAME} >/dev/null 2>&1 &");
    command::run(&["sh", "-c", &line])?;
    wait::until(&format!("{NAME} can be removed"), LIMIT, || {
        Ok(Seen::when(!is_there(), || {
            "does a process have it open?".to_owned()
        }))
    })
}

/// Takes away what there is of it.
pub(super) fn clear() -> Result<(), Failure> {
    if is_there() {
        remove()?;
    }
    run(&format!("{IP} link delete {}", CABLE[0]))
}

fn is_there() -> bool {
    Path::new(SYSFS).exists()
}

fn run(line: &str) -> Result<(), Failure> {
    let words: Vec<_> = line.split(' ').collect();
    command::run(&words).map(drop)
}
