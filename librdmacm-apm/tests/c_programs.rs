// SPDX-License-Identifier: MIT OR Apache-2.0
//! C programs with the real shared object, linked and preloaded; needs a C compiler, binutils and
//! rdma-core's headers, but no device.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The shared object of this build; cargo puts it beside the test's own executable.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("own path");
    test.parent().expect("a directory").join("librdmacm_apm.so")
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/c")
        .join(name)
}

fn run(command: &mut Command) -> Output {
    command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn text(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

/// Compiles a program against librdmacm, and against the library if asked.
fn compile(name: &str, linked: bool) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{linked}"));
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o"]);
    cc.arg(&program).arg("-I").arg(include).arg(source(name));
    if linked {
        cc.arg(library());
    }
    cc.args(["-lrdmacm", "-libverbs"]);
    text(&run(&mut cc));
    program
}

/// The dynamic symbols of an object that it defines, with their versions.
fn exports(object: &Path) -> BTreeSet<String> {
    let table = text(&run(Command::new("readelf")
        .args(["-W", "--dyn-syms"])
        .arg(object)));
    let defined = |line: &&str| line.split_whitespace().nth(6).is_some_and(|n| n != "UND");
    let names = table
        .lines()
        .filter(defined)
        .filter_map(|line| line.split_whitespace().nth(7));
    names
        .filter(|name| name.contains('@'))
        .map(str::to_owned)
        .collect()
}

/// Where the dynamic linker finds a library that ours needs.
fn needed(name: &str) -> PathBuf {
    let list = text(&run(Command::new("ldd").arg(library())));
    let line = list
        .lines()
        .find(|line| line.trim_start().starts_with(name));
    let path = line.and_then(|line| line.split_whitespace().nth(2));
    path.unwrap_or_else(|| panic!("{name} is not needed:\n{list}"))
        .into()
}

#[test]
fn exports_are_those_of_the_map() {
    let map = include_str!("../librdmacm-apm.map");
    let mut expected = BTreeSet::new();
    let mut version = "";
    for line in map.lines().map(str::trim) {
        if let Some(name) = line.strip_suffix(" {") {
            version = name;
        } else if let Some(symbol) = line.strip_suffix(';').filter(|symbol| *symbol != "}") {
            expected.insert(format!("{symbol}@@{version}"));
        }
    }
    assert!(expected.len() > 20, "{expected:?}");
    let found = exports(&library());
    let found = found
        .into_iter()
        .filter(|name| !name.contains("rust"))
        .collect::<BTreeSet<_>>();
    assert_eq!(found, expected);
}

#[test]
fn every_caught_function_has_the_version_that_rdma_core_gives_it() {
    let mut theirs = exports(&needed("librdmacm.so.1"));
    let verbs = needed("libibverbs.so.1");
    theirs.extend(exports(&verbs));
    // Not every program has it, so the library does not need it.
    theirs.extend(exports(&verbs.with_file_name("libmlx5.so.1")));
    let ours = exports(&library());
    let caught: Vec<_> = ours
        .iter()
        .filter(|name| !name.contains("RDMACM_APM"))
        .collect();
    assert!(caught.len() >= 20, "{caught:?}");
    for name in caught {
        assert!(theirs.contains(name), "rdma-core has no {name}");
    }
}

const INTERFACE: &str = "\
on: ok
off: ok
value 2: EINVAL
four bytes: EINVAL
no bytes: EINVAL
null: EINVAL
no id: EINVAL
datagram id: EINVAL
option 3 of level 1: EBADF
option 2 of level 0: EBADF
option 2 of level 7: EBADF
ack timeout: EBADF
options: ok
newer options: ok
unknown options: EINVAL
options of a datagram id: EINVAL
half of the options: EINVAL
older options: ok
no port to prefer: EINVAL
spread: ok
mode 4: EINVAL
alternates of type 0: ok, errno 0
alternates of type 1: ok, errno 0
alternates of type 2: ok, errno 0
alternates of type 3: ok, errno 0
alternates of type 4: EINVAL, errno 0
alternates of a datagram id: EINVAL
alternates of no id: EINVAL
0x1000: RDMA_CM_EVENT_ALT_ROUTE_RESOLVED
0x1001: RDMA_CM_EVENT_ALT_ROUTE_ERROR
0x1002: RDMA_CM_EVENT_LOAD_ALT_PATH
0x1003: RDMA_CM_EVENT_ALT_PATH_LOADED
0x1004: RDMA_CM_EVENT_PATH_MIGRATED
0x1005: UNKNOWN EVENT
9: RDMA_CM_EVENT_ESTABLISHED
attach nothing: EINVAL
attach datagram: EINVAL
attach as 3: EINVAL
detach: ENOENT
state: ENOENT
";

#[test]
fn a_linked_program_has_the_interface() {
    let program = compile("interface.c", true);
    assert_eq!(text(&run(&mut Command::new(program))), INTERFACE);
}

#[test]
fn a_preloaded_program_behaves_as_without() {
    let program = compile("plain.c", false);
    let plain = run(&mut Command::new(&program));
    assert!(String::from_utf8_lossy(&plain.stdout).contains("thread: cancelled"));
    for all in [false, true] {
        let mut preloaded = Command::new(&program);
        preloaded
            .env("LD_PRELOAD", library())
            .env("APMD_SOCKET", "/nonexistent/apmd.sock");
        if all {
            preloaded.env("RDMA_APM", "all");
        }
        let preloaded = run(&mut preloaded);
        assert_eq!(
            String::from_utf8_lossy(&preloaded.stdout),
            String::from_utf8_lossy(&plain.stdout)
        );
        assert_eq!(String::from_utf8_lossy(&preloaded.stderr), "");
        assert_eq!(
            (preloaded.status.code(), plain.status.code()),
            (Some(3), Some(3))
        );
    }
}

#[test]
fn a_program_without_rdma_can_be_preloaded() {
    let output = run(Command::new("true")
        .env("LD_PRELOAD", library())
        .env("RDMA_APM", "all"));
    assert!(output.status.success() && output.stderr.is_empty());
}
