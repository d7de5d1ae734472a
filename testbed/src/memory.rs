// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much memory a process has.

use std::fs;

use crate::failure::Failure;

/// Its resident memory in KiB.
///
/// # Errors
/// If there is no such process.
pub fn resident_kib(pid: u32) -> Result<u64, Failure> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).map_err(|source| Failure::File {
        path: path.clone(),
        source,
    })?;
    let value = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = value.and_then(|value| value.trim().strip_suffix(" kB")?.parse().ok());
    number.ok_or_else(|| Failure::Output {
        source_name: path,
        problem: "no VmRSS".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_some() {
        assert!(resident_kib(std::process::id()).expect("it runs") > 100);
        assert!(resident_kib(u32::MAX).is_err());
    }
}
