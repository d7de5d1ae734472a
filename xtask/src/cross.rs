// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask cross`: compiles the kernel module apm for other architectures. Nothing of it is run.

use std::fs;

use crate::error::{Error, InFile};
use crate::kernel::{ARM64, ForeignHeaders, PPC64EL};
use crate::own_modules::APM;
use crate::{packages, workspace};

/// `cargo xtask cross`. The software HCA is not compiled: it is made of rdmavt, which Debian builds for amd64 only.
pub(crate) fn run() -> Result<u8, Error> {
    packages::install(packages::CROSS)?;
    let dir = workspace::vm_dir()?;
    let scratch = dir.join(format!("cross-{}", std::process::id()));
    let mut status = 0;
    for architecture in [&ARM64, &PPC64EL] {
        let lock = workspace::lock()?;
        let headers = ForeignHeaders::provide(architecture, &dir)?;
        drop(lock);
        match APM.compile(&headers, &scratch) {
            Ok(()) => println!("{} for {}: compiled", APM.name, headers.release),
            Err(error) => {
                println!("{error}");
                status = 1;
            }
        }
    }
    fs::remove_dir_all(&scratch).in_file(&scratch)?;
    Ok(status)
}
