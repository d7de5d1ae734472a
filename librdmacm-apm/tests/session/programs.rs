// SPDX-License-Identifier: MIT OR Apache-2.0
//! C programs and shared objects for the tests.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a file of `tests/c` for a test.
pub(crate) fn compile(test: &str, name: &str, flags: &[&str], libraries: &[&str]) -> PathBuf {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{test}"));
    let status = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&out)
        .args(flags)
        .arg("-I")
        .arg(crate_dir.join("include"))
        .arg(crate_dir.join("tests/c").join(format!("{name}.c")))
        .args(libraries)
        .status();
    assert!(status.expect("a C compiler").success());
    out
}

/// Compiles a shared object that stands in for a part of rdma-core.
pub(crate) fn fake(test: &str, name: &str) -> PathBuf {
    let map = format!(
        "-Wl,--version-script={}/tests/c/{name}.map",
        env!("CARGO_MANIFEST_DIR")
    );
    compile(test, name, &["-shared", "-fPIC", &map], &[])
}

/// The shared object of this build; cargo puts it beside the test's own executable.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().expect("own path");
    test.with_file_name("librdmacm_apm.so")
}
