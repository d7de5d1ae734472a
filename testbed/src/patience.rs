// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many times longer than on Debian's kernels everything may take. The VM says so; elsewhere it is once.

use std::fs;
use std::sync::OnceLock;
use std::time::Duration;

/// Written by `cargo xtask vm`.
const SETTINGS: &str = "/etc/vm/settings";

/// Returns the factor for every limit: more than 1 where the kernel checks itself.
pub fn factor() -> u32 {
    static FACTOR: OnceLock<u32> = OnceLock::new();
    *FACTOR.get_or_init(|| factor_in(&fs::read_to_string(SETTINGS).unwrap_or_default()))
}

/// Returns a limit as it is on this kernel.
pub fn limit(usual: Duration) -> Duration {
    usual * factor()
}

fn factor_in(settings: &str) -> u32 {
    let value = settings
        .lines()
        .find_map(|line| line.strip_prefix("patience="));
    value.and_then(|value| value.parse().ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vm_says_how_slow_its_kernel_is() {
        assert_eq!(factor_in("mode=script\npatience=6\nlmc=0\n"), 6);
        assert_eq!(factor_in(""), 1);
    }
}
