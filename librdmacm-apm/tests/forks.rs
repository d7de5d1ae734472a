// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that fork while their threads use RDMA, with the real shared object. The device is a few lines of C.

mod session;

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use cm_msgs::control::FromLibrary;

use session::{Session, compile, fake, library, preloaded};

#[test]
fn a_child_that_uses_rdma_in_a_handler_of_the_programs_does_not_hang() {
    let program = compile("handler", "forks", &[], &["-libverbs", "-lpthread"]);
    let device = fake("forks", "fake_verbs");
    let mut command = preloaded(&program, &[&library(), &device]);
    // Nobody is to be spoken to.
    let command = command
        .env("RDMA_APM", "all")
        .env("APMD_SOCKET", "/nonexistent");
    let output = command.output().expect("it starts");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0 hung\n");
}

/// The program that loses something, where LeakSanitizer looks.
fn leaking(test: &str) -> Command {
    let sanitized = ["-fsanitize=address", "-g"];
    let program = compile(test, "forks", &sanitized, &["-libverbs", "-lpthread"]);
    let device = fake(test, "fake_verbs");
    let mut command = preloaded(&program, &[&library(), &device]);
    command
        .arg("leaks")
        .env("ASAN_OPTIONS", "detect_leaks=1:verify_asan_link_order=0")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Lets it go on and end: LeakSanitizer finds what a child has lost, and its child, and nothing of ours.
fn only_its_own_is_lost(mut program: Child) {
    let mut stdin = program.stdin.take().expect("a pipe");
    stdin.write_all(b"\n").expect("it reads");
    let mut said = String::new();
    let mut stderr = program.stderr.take().expect("a pipe");
    stderr.read_to_string(&mut said).expect("text");
    program.wait().expect("it ends");
    // The grandchild has two: its own, and its parent's.
    for found in ["77 byte(s) in 1 object(s)", "154 byte(s) in 2 object(s)"] {
        assert!(said.contains(&format!("Direct leak of {found}")), "{said}");
    }
    assert_eq!(said.matches("Direct leak of ").count(), 2, "{said}");
}

#[test]
fn leak_sanitizer_finds_nothing_of_ours_in_forked_children() {
    let mut command = leaking("leaks");
    command.env("RDMA_APM", "all");
    let session = Session::start("leaks", command);
    assert!(matches!(session.next(), FromLibrary::Register { .. }));
    only_its_own_is_lost(session.program);
}

#[test]
fn nor_where_there_is_no_thread_of_ours() {
    only_its_own_is_lost(leaking("threadless").spawn().expect("it starts"));
}
