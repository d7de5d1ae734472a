// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library in the place of a program's libibverbs: a program that looks its calls up by the handle of the library that
//! a variable names. No device is needed.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output};

fn compile() -> PathBuf {
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("by_handle");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c/by_handle.c");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o"]);
    let status = cc.arg(&program).arg(source).arg("-ldl").status();
    assert!(status.expect("a C compiler").success());
    program
}

/// What the program prints with this library in the place of its own.
fn run(library: &OsStr) -> String {
    let own = std::env::current_exe().expect("own path");
    let mut command = Command::new(compile());
    command
        .env("VERBS_LIBRARY", library)
        .env("LD_LIBRARY_PATH", own.parent().expect("a directory"))
        .env("RDMA_APM", "all")
        .env("APMD_SOCKET", "/nonexistent/apmd.sock");
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("it starts");
    let error = String::from_utf8_lossy(&stderr);
    assert!(status.success() && error.is_empty(), "{status}: {error}");
    String::from_utf8(stdout).expect("UTF-8")
}

#[test]
fn all_that_a_program_looks_up_by_handle_is_found_and_what_is_caught_is_ours() {
    let own = std::env::current_exe().expect("own path");
    let plain = run(OsStr::new("librdmacm.so.1"));
    let (_, call) = plain.split_once("event channel: ").expect("it was called");
    let expected = format!("ibv_modify_qp is in librdmacm_apm.so\nevent channel: {call}");
    // By its path, and by a name that the dynamic linker looks for.
    let path = own.with_file_name("librdmacm_apm.so");
    assert_eq!(run(path.as_os_str()), expected);
    assert_eq!(run(OsStr::new("librdmacm_apm.so")), expected);
}
