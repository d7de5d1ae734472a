// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel module `apm`, loaded for as long as a drill wants it.

use std::time::Duration;

use crate::command;
use crate::failure::Failure;
use crate::wait::{self, Seen};

/// The last queue pairs under its care end a moment after their owners.
const LIMIT: Duration = Duration::from_secs(20);

/// The module, loaded. It goes with this, if nothing keeps it.
#[derive(Debug)]
pub struct KernelModule(());

impl KernelModule {
    /// Loads it.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn load() -> Result<Self, Failure> {
        command::run(&["modprobe", "apm"])?;
        Ok(Self(()))
    }

    /// Unloads it, unless something keeps it: then it comes back, with what rmmod says.
    ///
    /// # Errors
    /// rmmod does not start.
    pub fn try_unload(self) -> Result<Option<(Self, String)>, Failure> {
        let tried = command::attempt(&["rmmod", "apm"])?;
        if tried.status.success() {
            std::mem::forget(self);
            return Ok(None);
        }
        let why = String::from_utf8_lossy(&tried.stderr).trim().to_owned();
        Ok(Some((self, why)))
    }

    /// Unloads it; it stays as long as queue pairs are under its care.
    ///
    /// # Errors
    /// They do not end.
    pub fn unload(self) -> Result<(), Failure> {
        wait::until("the module apm goes", LIMIT, || {
            let tried = command::attempt(&["rmmod", "apm"])?;
            let why = || String::from_utf8_lossy(&tried.stderr).into_owned();
            Ok(Seen::when(tried.status.success(), why))
        })?;
        std::mem::forget(self);
        Ok(())
    }
}

impl Drop for KernelModule {
    fn drop(&mut self) {
        // On the way out of a drill that has failed: what comes next finds it there, at worst.
        drop(command::attempt(&["rmmod", "apm"]));
    }
}
