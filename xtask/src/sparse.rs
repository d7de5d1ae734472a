// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask sparse`: holds the kernel modules against sparse, which knows the kernel's address spaces, byte orders
//! and locks, and the module apm against the kernel's own check of style where that is at hand.

use std::fs;

use crate::error::{Error, InFile};
use crate::kernel::{self, Choice, Kernel};
use crate::own_modules::{APM, APM_KUNIT, SOFT_HCA};
use crate::{packages, workspace};

/// Warnings are errors, but for one that headers of the kernel itself draw (rdma/rdmavt_qp.h).
const FLAGS: &str = "-Wsparse-error -Wno-flexible-array-array";

/// `cargo xtask sparse`.
pub(crate) fn run() -> Result<u8, Error> {
    packages::install(packages::VM)?;
    packages::install(packages::SPARSE)?;
    let dir = workspace::vm_dir()?;
    let scratch = dir.join(format!("sparse-{}", std::process::id()));
    let mut status = 0;
    for choice in Choice::FOR_SPARSE {
        let lock = workspace::lock()?;
        let kernel = Kernel::provide(choice, &dir)?;
        drop(lock);
        for module in [SOFT_HCA, APM, APM_KUNIT] {
            match module.check(&kernel, &scratch, FLAGS) {
                Ok(()) => println!("{} for {}: clean", module.name, kernel.release),
                Err(error) => {
                    println!("{error}");
                    status = 1;
                }
            }
        }
    }
    if let Some(checkpatch) = kernel::checkpatch(&dir) {
        match APM.check_style(&checkpatch) {
            Ok(()) => println!("{}: style clean", APM.name),
            Err(error) => {
                println!("{error}");
                status = 1;
            }
        }
    }
    fs::remove_dir_all(&scratch).in_file(&scratch)?;
    Ok(status)
}
