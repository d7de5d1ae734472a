// SPDX-License-Identifier: MIT OR Apache-2.0
//! A daemon that is started again: no connection ID of before names another connection.

use std::fs;

use cm_msgs::control::FromLibrary;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::daemon::{Daemon, Socket, assert_welcome, connect};
use crate::directory::Directory;

const FILE: &str = "next-ids";

/// A program with the library.
fn program(daemon: &Daemon) -> Socket {
    let library = connect(&daemon.directory().join("apmd.sock"));
    let command = *b"rping\0\0\0\0\0\0\0\0\0\0\0";
    library
        .send(FromLibrary::Hello { command }.encode().as_ref())
        .expect("room");
    assert_welcome(&library);
    library
}

fn next_client(directory: &Directory) -> u64 {
    let text = fs::read(directory.path().join(FILE)).expect("it is there");
    let next: Value = serde_json::from_slice(&text).expect("JSON");
    next["client"].as_u64().expect("a number")
}

#[test]
fn ids_go_on_after_a_restart_and_after_a_crash() {
    let directory = Directory::new();
    let start = || Daemon::try_start(directory.path(), "").expect("apmd starts");
    let end = |mut daemon: Daemon, signal| {
        daemon.signal(signal);
        daemon.wait();
    };

    let daemon = start();
    let _programs = [program(&daemon), program(&daemon)];
    end(daemon, Signal::SIGTERM);
    assert_eq!(next_client(&directory), 3, "without a gap");

    let daemon = start();
    let _third = program(&daemon);
    end(daemon, Signal::SIGKILL);
    let after_crash = next_client(&directory);
    assert!(after_crash > 3, "3 was given: {after_crash}");

    let daemon = start();
    let _next = program(&daemon);
    end(daemon, Signal::SIGTERM);
    assert_eq!(next_client(&directory), after_crash + 1);
}

#[test]
fn a_damaged_file_of_ids_does_not_keep_it_from_starting() {
    let directory = Directory::new();
    directory.write(FILE, "{\"client\":2");
    let mut daemon = Daemon::try_start(directory.path(), "").expect("apmd starts");
    let _program = program(&daemon);
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    let next = next_client(&directory);
    assert!(next > 1_700_000_000, "from the clock: {next}");
}
