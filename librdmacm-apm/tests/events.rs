// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of the real shared object on an application's channel, which is not the kernel's here: what
//! that has to say to a doorbell, the VM's programs show.

mod session;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use cm_msgs::control::{AppEvent, FromDaemon, FromLibrary};

use session::{Session, compile, fake, library, preloaded};

#[test]
fn an_event_goes_with_its_id_and_the_id_stays_until_it_is_acknowledged() {
    let test = "events";
    let program = compile(test, "events", &[], &["-lrdmacm", "-libverbs"]);
    let (cm, verbs) = (fake(test, "fake_cm"), fake(test, "fake_verbs"));
    let mut command = preloaded(&program, &[&library(), &cm, &verbs]);
    command.stdout(Stdio::piped());
    let mut session = Session::start(test, command);
    let mut conns = BTreeMap::new();
    while conns.len() < 2 {
        match session.next() {
            FromLibrary::Register { conn, register } => conns.insert(register.qpn.0, conn),
            other => panic!("{other:?} where a registration was due"),
        };
    }
    let event = |conn| FromDaemon::Event {
        conn,
        event: AppEvent::AltPathLoaded,
        status: 0,
    };
    let mut lines = BufReader::new(session.program.stdout.take().expect("a pipe")).lines();
    let mut line = || lines.next().expect("it goes on").expect("text");
    session.say(event(conns[&7]));
    assert_eq!(line(), "readable without the first: 0");
    session.say(event(conns[&9]));
    assert_eq!(line(), "RDMA_CM_EVENT_ALT_PATH_LOADED of the second");
    assert_eq!(line(), "readable after that: 0");
    assert_eq!(line(), "destroyed when it is acknowledged");
    assert!(session.program.wait().expect("it ends").success());
}
