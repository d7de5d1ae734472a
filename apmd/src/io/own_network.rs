// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that change addresses and routes run in a network namespace of their own.

use std::process::Command;

/// Set where the test runs in its own namespace.
const MARK: &str = "APMD_TEST_OWN_NETWORK";

/// Runs the rest of a test, `body`, in a network namespace of its own: runs this very test again there.
pub(super) fn in_own_network(body: impl FnOnce()) {
    if std::env::var_os(MARK).is_some() {
        return body();
    }
    let name = std::thread::current().name().map(str::to_owned);
    let done = Command::new("unshare")
        .args(["--map-root-user", "--net", "--"])
        .arg(std::env::current_exe().expect("this test"))
        .args(["--exact", &name.expect("the name of this test")])
        .env(MARK, "yes")
        .output();
    let done = done.expect("unshare starts");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(
        done.status.success() && said.contains("1 passed"),
        "{done:?}"
    );
}

/// Runs `ip` with these words.
pub(super) fn ip(words: &str) {
    let done = Command::new("ip").args(words.split(' ')).status();
    assert!(done.expect("ip starts").success(), "ip {words}");
}
