// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients of ACM that ask one thing after the other, and the real daemon.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use cm_msgs::acm::{Address, Flags, Header, MAX_LEN, Resolve, Status};
use nix::sys::signal::Signal;

use crate::daemon::Daemon;
use crate::directory::Directory;

const NOBODY: Address = Address::Ip(Ipv4Addr::new(192, 0, 2, 1));

/// One request after the other until `stop`, and then a last one, or until the daemon is gone. How
/// many were answered.
fn ask_and_ask(socket: &Path, stop: Arc<AtomicBool>) -> JoinHandle<u64> {
    let mut stream = UnixStream::connect(socket).expect("acm is served");
    std::thread::spawn(move || {
        let mut asked = 0;
        let mut last = false;
        while !last {
            last = stop.load(Ordering::Relaxed);
            let mut buffer = [0; MAX_LEN];
            let request = Resolve::request(asked, Some(NOBODY), NOBODY, Flags::default());
            let mut answer = [0; Header::LEN];
            let mut sent = stream.write_all(request.encode(&mut buffer));
            if last {
                sent = sent.and_then(|()| stream.shutdown(Shutdown::Write));
            }
            if sent.and_then(|()| stream.read_exact(&mut answer)).is_err() {
                return asked;
            }
            let answer = Header::decode(&answer);
            assert_eq!((answer.tid, answer.status), (asked, Status::SourceAddress));
            asked += 1;
        }
        assert_eq!(stream.read(&mut [0; 1]).expect("the end"), 0);
        asked
    })
}

fn serving() -> (Daemon, PathBuf, Directory) {
    let directory = Directory::new();
    let socket = directory.path().join("ibacm-unix.sock");
    let config = format!(
        "[acm]\nserve = true\nkernel = false\ndirectory = {:?}\n",
        directory.path().to_str().expect("text")
    );
    let daemon = Daemon::try_start(directory.path(), &config).expect("apmd starts");
    (daemon, socket, directory)
}

#[test]
fn clients_that_ask_without_a_pause_keep_nobody_else_waiting() {
    let (mut daemon, socket, _directory) = serving();
    let stop = Arc::new(AtomicBool::new(false));
    let clients = [0, 1].map(|_| ask_and_ask(&socket, Arc::clone(&stop)));
    for _ in 0..5 {
        assert_eq!(daemon.status()["pid"], daemon.pid());
    }
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(), Some(0));
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(client.join().expect("right answers") > 0);
    }
}

/// Others are heard all the same, and so is its end.
#[test]
fn neither_does_one_client_alone() {
    let (mut daemon, socket, _directory) = serving();
    let stop = Arc::new(AtomicBool::new(false));
    let first = ask_and_ask(&socket, Arc::clone(&stop));
    for _ in 0..5 {
        assert_eq!(daemon.status()["pid"], daemon.pid());
    }
    let stop_second = Arc::new(AtomicBool::new(true));
    let second = ask_and_ask(&socket, stop_second);
    assert_eq!(second.join().expect("right answers"), 1);
    stop.store(true, Ordering::Relaxed);
    assert!(first.join().expect("right answers") > 1);
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(), Some(0));
}

/// Who calls while the daemon does not run is told of once, however many they are: fewer than a listener
/// lets wait, and more than one turn takes in.
#[test]
fn who_is_not_taken_in_with_the_first_is_taken_in_all_the_same() {
    let (daemon, socket, _directory) = serving();
    daemon.signal(Signal::SIGSTOP);
    let calling: Vec<_> = (0..100)
        .map(|_| UnixStream::connect(&socket).expect("acm is served"))
        .collect();
    daemon.signal(Signal::SIGCONT);
    for (tid, mut stream) in calling.into_iter().enumerate() {
        let patience = Some(Duration::from_secs(60));
        stream.set_read_timeout(patience).expect("a socket");
        let tid = tid as u64;
        let mut buffer = [0; MAX_LEN];
        let request = Resolve::request(tid, Some(NOBODY), NOBODY, Flags::default());
        stream.write_all(request.encode(&mut buffer)).expect("room");
        let mut answer = [0; Header::LEN];
        stream.read_exact(&mut answer).expect("it is taken in");
        assert_eq!(Header::decode(&answer).tid, tid);
    }
}
