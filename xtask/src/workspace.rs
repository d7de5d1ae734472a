// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the sources are, where results go, and cargo there.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, InFile};

/// The workspace's root directory.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Cargo's target directory.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// The cargo that runs this program, with other arguments.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(arguments);
    command
}

/// The directory of everything that belongs to the VM, made if missing.
pub(crate) fn vm_dir() -> Result<PathBuf, Error> {
    let dir = target().join("vm");
    fs::create_dir_all(&dir).in_file(&dir)?;
    Ok(dir)
}

/// Holds off other `cargo xtask` processes while files below `target/vm` are built.
pub(crate) fn lock() -> Result<File, Error> {
    let path = vm_dir()?.join("lock");
    let file = File::create(&path).in_file(&path)?;
    file.lock().in_file(&path)?;
    Ok(file)
}
