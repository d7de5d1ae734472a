// SPDX-License-Identifier: MIT OR Apache-2.0
//! A daemon that says what it is told to: what `apmctl` makes of answers that apmd seldom gives.

use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use apmd::io::seqpacket::{Listener, Packets, Receive};

use crate::apmctl::{apmctl, outcome};
use crate::directory::Directory;

/// Runs `apmctl` beside a daemon that gives these answers, one to each caller, and closes the connection
/// then: [`outcome`]. The socket is there until `apmctl` has ended.
pub(crate) fn run(answers: &[&str], arguments: &[&str]) -> (i32, String, String) {
    let directory = Directory::new();
    let listener = Listener::bind(&directory.path().join("observe.sock"), 0o600, "");
    let listener = listener.expect("a new socket");
    let mut apmctl = apmctl(&[&["-s", &directory.file("")], arguments].concat());
    let apmctl = apmctl.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = apmctl.spawn().expect("apmctl starts");
    for answer in answers {
        let caller = next(&listener);
        await_request(&caller);
        if !answer.is_empty() {
            assert!(caller.send(answer.as_bytes()).expect("it reads"), "room");
        }
    }
    outcome(&child.wait_with_output().expect("apmctl ends"))
}

fn next(listener: &Listener) -> Packets {
    let caller = until(|| listener.accept().expect("it works"));
    let (packets, _) = caller.expect("apmctl asks");
    packets
}

fn await_request(caller: &Packets) {
    let asked = || match caller.receive(&mut [0; 1024]).expect("it works") {
        Receive::Nothing => None,
        received => Some(received),
    };
    assert!(matches!(until(asked), Some(Receive::Packet(_))));
}

/// What comes, after so long that it must have come.
fn until<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..6000 {
        let found = look();
        if found.is_some() {
            return found;
        }
        sleep(Duration::from_millis(10));
    }
    None
}
