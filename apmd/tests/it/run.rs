// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl run`: it becomes the program, and says when that will be unprotected and why.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use apmd::io::seqpacket::Listener;
use nix::unistd::geteuid;

use crate::apmctl::{apmctl, outcome};
use crate::daemon::Daemon;
use crate::directory::Directory;

#[test]
fn run_sets_the_environment_and_becomes_the_command() {
    let directory = Directory::new();
    let library = directory.path().join("lib.so");
    fs::write(&library, "").expect("writable");
    let library = library.to_str().expect("text");
    let sh = |script: &str| {
        let mut command = apmctl(&["run", "--", "/bin/sh", "-c", script]);
        command
            .env("APMD_PRELOAD", library)
            .env("APMD_SOCKET", "/run/x/apmd.sock");
        outcome(&command.output().expect("apmctl starts"))
    };
    let (code, text, _) = sh("echo $LD_PRELOAD $RDMA_APM $APMD_SOCKET; exit 7");
    assert_eq!(
        (code, text.trim()),
        (7, format!("{library} all /run/x/apmd.sock").as_str())
    );

    let mut absent = apmctl(&["run", "--", "/nonexistent/program"]);
    let (code, _, error) = outcome(
        &absent
            .env("APMD_PRELOAD", library)
            .output()
            .expect("starts"),
    );
    assert_eq!(code, 127, "{error}");
}

/// Compiles a line of C.
fn compile(directory: &Directory, name: &str, text: &str, flags: &[&str]) -> String {
    let source = directory.write(&format!("{name}.c"), text);
    let out = directory.path().join(name);
    let mut cc = Command::new("cc");
    let status = cc.args(flags).arg("-o").arg(&out).arg(source).status();
    assert!(status.expect("a C compiler").success());
    out.into_os_string().into_string().expect("text")
}

#[test]
fn what_the_user_preloads_and_a_sanitizer_that_the_program_needs_come_first() {
    let directory = Directory::new();
    let library = compile(&directory, "lib.so", "int ours;", &["-shared", "-fPIC"]);
    let users = compile(&directory, "users.so", "int users;", &["-shared", "-fPIC"]);
    let text = "#include <stdio.h>\n#include <stdlib.h>\n\
        int main(void) { puts(getenv(\"LD_PRELOAD\")); return 3; }\n";
    let program = compile(&directory, "program", text, &["-fsanitize=address"]);
    let mut command = apmctl(&["run", "--", &program]);
    command
        .env("APMD_PRELOAD", &library)
        .env("LD_PRELOAD", &users)
        // Of itself apmctl preloads nothing, and what it is run with has no leaks to look for.
        .env("ASAN_OPTIONS", "detect_leaks=0");
    let (code, text, error) = outcome(&command.output().expect("apmctl starts"));
    assert_eq!(code, 3, "{error}");
    let (sanitizer, others) = text.trim().split_once(':').expect("several");
    assert!(sanitizer.starts_with("libasan.so"), "{text}");
    assert_eq!(others, format!("{users}:{library}"));
}

/// Runs `apmctl run` with these arguments: its exit code, and its warnings. What the dynamic linker
/// says of the library, an empty file, is not of interest.
fn run(command: &mut Command) -> (i32, Vec<String>) {
    let (code, _, error) = outcome(&command.output().expect("apmctl starts"));
    let warnings = error.lines().filter(|line| line.starts_with("apmctl: "));
    (code, warnings.map(str::to_owned).collect())
}

#[test]
fn without_daemon_library_or_permission_it_warns_and_runs_or_not_as_told() {
    let daemon = Daemon::start("");
    let directory = Directory::new();
    let library = directory.write("lib.so", "");
    let with = |socket: &Path, library: &str, arguments: &[&str]| {
        let socket = socket.to_str().expect("text");
        let mut command = apmctl(&[&["-s", socket, "run"], arguments].concat());
        command.env("APMD_PRELOAD", library);
        run(&mut command)
    };
    assert_eq!(with(daemon.directory(), &library, &["true"]), (0, vec![]));
    let required = ["--require", "--", "sh", "-c", "exit 7"];
    assert_eq!(with(daemon.directory(), &library, &required), (7, vec![]));

    let (code, warnings) = with(directory.path(), &library, &["sh", "-c", "exit 7"]);
    let [warning] = &warnings[..] else {
        panic!("one warning: {warnings:?}");
    };
    assert_eq!(code, 7, "it is run all the same");
    assert!(
        warning.starts_with("apmctl: warning: sh is not protected: "),
        "{warning}"
    );
    assert!(
        warning.contains("apmd.sock: ") && warning.contains("is apmd running?"),
        "{warning}"
    );
    let (code, warnings) = with(directory.path(), &library, &required);
    assert_eq!(code, 125);
    assert_eq!(
        warnings.last().expect("an error"),
        "apmctl: sh: not run, because it would not be protected"
    );

    let (code, warnings) = with(daemon.directory(), "/nonexistent/lib.so", &["true"]);
    let want =
        "apmctl: warning: true is not protected: /nonexistent/lib.so: no such file ($APMD_PRELOAD)";
    assert_eq!((code, warnings), (0, vec![want.to_owned()]));
}

/// A shell's trap, and systemd's IgnoreSIGPIPE=, which is its default.
#[test]
fn the_program_ignores_the_signals_that_its_caller_ignores() {
    let directory = Directory::new();
    let library = directory.write("lib.so", "");
    let ignored = |trap: &str, run: &str| {
        let script = format!("{trap} exec {run} grep SigIgn /proc/self/status");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_apmctl")]);
        shell.env("APMD_PRELOAD", &library);
        shell.env("APMD_SOCKET", directory.file("apmd.sock"));
        let (code, text, error) = outcome(&shell.output().expect("sh starts"));
        assert_eq!(code, 0, "{error}");
        text
    };
    let traps = ["", "trap '' PIPE;", "trap '' PIPE HUP;"];
    let plain = traps.map(|trap| ignored(trap, ""));
    assert_eq!(traps.map(|trap| ignored(trap, "\"$0\" run --")), plain);
    assert_ne!(plain[0], plain[1]);
}

#[test]
fn without_permission_it_names_the_group() {
    let directory = Directory::new();
    let socket = directory.path().join("apmd.sock");
    let _listener = Listener::bind(&socket, 0o060, "").expect("a new socket");
    let program = directory.copy(env!("CARGO_BIN_EXE_apmctl"), "apmctl");
    let mut command = Command::new(program);
    command.args(["run", "true"]).env("APMD_SOCKET", &socket);
    command.env("APMD_PRELOAD", directory.write("lib.so", ""));
    if geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    let (code, warnings) = run(&mut command);
    assert_eq!((code, warnings.len()), (0, 1), "{warnings:?}");
    assert!(
        warnings[0].contains("apmd.sock: permission denied: it belongs to group"),
        "{warnings:?}"
    );
}

#[test]
fn a_program_into_which_nothing_can_be_preloaded_is_warned_of() {
    let daemon = Daemon::start("");
    let directory = Directory::new();
    let library = directory.write("lib.so", "");
    let apmctl = directory.copy(env!("CARGO_BIN_EXE_apmctl"), "apmctl");
    let executable = |name: &str, mode| {
        let path = directory.file(name);
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
        path
    };
    let warnings = |program: &str| {
        let mut command = Command::new(&apmctl);
        command.args([
            "-s",
            daemon.directory().to_str().expect("text"),
            "run",
            program,
        ]);
        command.env("APMD_PRELOAD", &library);
        if geteuid().is_root() {
            command.uid(65534).gid(65534);
        }
        let (_, mut warnings) = run(&mut command);
        warnings.retain(|line| line.contains("the library cannot be preloaded"));
        warnings.join("; ")
    };
    let copy = |name: &str, mode| {
        directory.copy("/bin/true", name);
        executable(name, mode)
    };

    assert_eq!(warnings("true"), "");
    assert_eq!(warnings(&copy("plain", 0o755)), "");
    // The ELF header of a program of this machine alone: no sections, and no segments (64-bit
    // e_shoff, e_phnum, e_shnum), of which one would ask for a dynamic linker.
    let mut header = fs::read("/bin/true").expect("readable")[..64].to_vec();
    for field in [40..48, 56..58, 60..62] {
        header[field].fill(0);
    }
    fs::write(directory.path().join("static"), header).expect("room for it");
    let program = executable("static", 0o755);
    let want = format!("{program} is linked statically: ");
    assert!(warnings(&program).contains(&want), "{}", warnings(&program));
    directory.write("script", &format!("#! {program} -x\n"));
    let script = executable("script", 0o755);
    assert!(warnings(&script).contains(&want), "{}", warnings(&script));

    // Files with other rights than their caller's can be made by root only.
    if geteuid().is_root() {
        let program = copy("set-user-id", 0o4755);
        assert!(
            warnings(&program).contains("is set-user-ID: "),
            "{}",
            warnings(&program)
        );
        let program = copy("set-group-id", 0o2755);
        assert!(
            warnings(&program).contains("is set-group-ID: "),
            "{}",
            warnings(&program)
        );
        let program = copy("capable", 0o755);
        // CAP_NET_RAW, permitted and effective: struct vfs_cap_data of revision 2.
        let mut capabilities = [0; 20];
        capabilities[..8].copy_from_slice(&[1, 0, 0, 2, 0, 0x20, 0, 0]);
        if xattr::set(&program, "security.capability", &capabilities).is_ok() {
            assert!(
                warnings(&program).contains("has file capabilities: "),
                "{}",
                warnings(&program)
            );
        }
    }
}
