// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian's `ib_acme`, which asks the ACM service of this machine.

use std::time::Duration;

use crate::command;
use crate::failure::Failure;
use crate::wait::{self, Seen};

/// Bound for a service to come up, and to find a path.
const LIMIT: Duration = Duration::from_secs(90);

/// What it prints for these arguments, and how it ends.
///
/// # Errors
/// If it does not start.
pub fn ask(arguments: &str) -> Result<String, Failure> {
    let mut words = vec!["ib_acme"];
    words.extend(arguments.split(' '));
    let output = command::attempt(&words)?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(format!("{text}{}", output.status))
}

/// Whether that is a path.
pub fn is_path(told: &str) -> bool {
    told.contains("dlid: ") && told.ends_with("exit status: 0")
}

/// Asks until it is told a path, which is what it prints.
///
/// # Errors
/// [`Failure::Timeout`] if there is none.
pub fn wait_path(arguments: &str) -> Result<String, Failure> {
    wait::until(&format!("ib_acme {arguments}"), LIMIT, || {
        let told = ask(arguments)?;
        Ok(match is_path(&told) {
            true => Seen::Ready(told),
            false => Seen::NotYet(told),
        })
    })
}
