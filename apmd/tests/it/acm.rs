// SPDX-License-Identifier: MIT OR Apache-2.0
//! The real daemon as a client of ACM meets it, without any device.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;

use cm_msgs::acm::{Address, Counters, Flags, Header, MAX_LEN, Op, Resolve, Status};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::apmctl::{apmctl, outcome};
use crate::daemon::Daemon;
use crate::directory::Directory;

const HEADER: usize = Header::LEN;

fn start(directory: &Directory, further: &str) -> Daemon {
    let config = config(directory, further);
    Daemon::try_start(directory.path(), &config).expect("apmd starts")
}

/// Starts one that takes in so many clients at a time: half of the descriptors that are not kept for
/// others.
fn start_with_clients(count: u32, directory: &Directory) -> Daemon {
    let config = config(directory, "");
    Daemon::start_with_descriptors(256 + 2 * count, directory.path(), &config)
}

/// Of a daemon that serves ACM in this directory.
fn config(directory: &Directory, further: &str) -> String {
    let dir = directory.path().to_str().expect("text");
    format!(
        "[acm]\nserve = true\nkernel = false\ndirectory = \"{dir}\"\ndata_dir = \"{dir}\"\n{further}"
    )
}

fn call(directory: &Directory) -> UnixStream {
    UnixStream::connect(directory.path().join("ibacm.sock")).expect("acm is served")
}

fn request(tid: u64) -> Vec<u8> {
    let to = Address::Ip([10, 0, 0, 9].into());
    let from = Address::Ip([10, 0, 0, 1].into());
    let mut buffer = [0; MAX_LEN];
    Resolve::request(tid, Some(from), to, Flags::default())
        .encode(&mut buffer)
        .to_vec()
}

fn answer(stream: &mut impl Read) -> Header {
    let mut header = [0; HEADER];
    stream.read_exact(&mut header).expect("an answer");
    Header::decode(&header)
}

fn state(daemon: &Daemon) -> Value {
    let output = daemon.apmctl(&["-j", "acm", "show"]);
    serde_json::from_slice(&output.stdout).expect("json")
}

#[test]
fn requests_in_pieces_and_many_at_once() {
    let directory = Directory::new();
    let daemon = start(&directory, "");
    let mut client = call(&directory);
    let mut bytes: Vec<u8> = (0..1000).flat_map(request).collect();
    bytes.extend(Header::request(Op::Perf, 1000, 16).encode());
    let mut reader = client.try_clone().expect("a second descriptor");
    let writer = std::thread::spawn(move || {
        for piece in bytes.chunks(333) {
            client.write_all(piece).expect("the daemon reads");
        }
    });
    for tid in 0..1000 {
        let header = answer(&mut reader);
        assert_eq!((header.tid, header.status), (tid, Status::SourceAddress));
    }
    let perf = answer(&mut reader);
    assert_eq!(
        (perf.op, usize::from(perf.length)),
        (Op::Perf, HEADER + Counters::LEN)
    );
    let mut counters = [0; Counters::LEN];
    reader.read_exact(&mut counters).expect("the counters");
    let counters = Counters::decode(&counters);
    assert_eq!((counters.resolve, counters.error), (1000, 1000));
    writer.join().expect("all was written");
    assert_eq!(state(&daemon)["counters"]["resolve"], json!(1000));
    assert_eq!(state(&daemon)["clients"], json!(1));
}

#[test]
fn a_client_that_does_not_read_is_not_read() {
    let directory = Directory::new();
    let daemon = start(&directory, "");
    let mut client = call(&directory);
    client.set_nonblocking(true).expect("a socket");
    let many: Vec<u8> = (0..1000).flat_map(request).collect();
    let mut written = 0;
    // Full for the first time, it may only be slower than we are.
    let mut full = 0;
    while full < 20 {
        match client.write(&many[written % many.len()..]) {
            Ok(len) => {
                written += len;
                full = 0;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                full += 1;
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            Err(error) => panic!("{error}"),
        }
        assert!(written < 1 << 28, "the daemon takes everything");
    }
    // Others are served, and when the client reads, it is as well.
    let mut other = call(&directory);
    other.write_all(&request(7)).expect("room");
    assert_eq!(answer(&mut other).tid, 7);
    client.set_nonblocking(false).expect("a socket");
    for tid in 0..written / request(0).len() {
        assert_eq!(answer(&mut client).tid, tid as u64 % 1000);
    }
    assert_eq!(state(&daemon)["clients"], json!(2));
}

#[test]
fn a_client_that_says_no_more_gets_its_answers() {
    let directory = Directory::new();
    let daemon = start(&directory, "");
    let mut client = call(&directory);
    let mut reader = client.try_clone().expect("a second descriptor");
    // More answers than the socket takes, and less than makes the daemon stop reading.
    let many: u64 = 14_000;
    let requests: Vec<u8> = (0..many).flat_map(request).collect();
    client.write_all(&requests).expect("the daemon reads");
    client.shutdown(Shutdown::Write).expect("a socket");
    for _ in 0..1000 {
        if state(&daemon)["counters"]["resolve"] == json!(many) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    for tid in 0..many {
        assert_eq!(answer(&mut reader).tid, tid);
    }
    assert_eq!(reader.read(&mut [0; 8]).expect("an end"), 0);
    assert_eq!(state(&daemon)["clients"], json!(0));
}

#[test]
fn what_cannot_be_listened_on_is_a_problem_until_a_reload_mends_it() {
    let directory = Directory::new();
    let path = directory.path().join("ibacm-unix.sock");
    fs::write(&path, "in the way").expect("writable");
    let daemon = start(&directory, "tcp_port = 0\n");
    let problems = || daemon.status()["problems"].to_string();
    assert!(
        problems().contains("acm is not served at"),
        "{}",
        problems()
    );
    assert!(problems().contains("ibacm-unix.sock"), "{}", problems());
    fs::remove_file(&path).expect("it is there");
    daemon.signal(Signal::SIGHUP);
    for _ in 0..1000 {
        if !problems().contains("acm is not served") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(!problems().contains("acm is not served"), "{}", problems());
    let mut client = call(&directory);
    client.write_all(&request(7)).expect("room");
    assert_eq!(answer(&mut client).tid, 7);
}

#[test]
fn the_kernel_is_heard_or_that_is_a_problem() {
    let directory = Directory::new();
    let config = config(&directory, "").replace("kernel = false", "kernel = true");
    let daemon = Daemon::try_start(directory.path(), &config).expect("apmd starts");
    let problems = daemon.status()["problems"].to_string();
    let missing = problems.contains("the kernel's path requests are not heard");
    assert_eq!(json!(!missing), state(&daemon)["kernel"], "{problems}");
}

#[test]
fn nonsense_ends_only_its_own_connection() {
    let directory = Directory::new();
    let daemon = start_with_clients(2, &directory);
    let mut broken = call(&directory);
    let mut good = call(&directory);
    broken.write_all(&[7; 64]).expect("room");
    assert_eq!(broken.read(&mut [0; 8]).expect("an end"), 0);
    daemon.await_counter("malformed_acm", &json!(1));
    let uid = nix::unistd::getuid();
    daemon.await_log(&format!("protocol violation client=1 uid={uid} "));
    good.write_all(&request(7)).expect("room");
    assert_eq!(answer(&mut good).tid, 7);
    let _second = call(&directory);
    let mut third = call(&directory);
    assert_eq!(third.read(&mut [0; 8]).expect("an end"), 0, "too many");
    daemon.await_counter("acm_clients_refused", &json!(1));
}

/// More than the descriptors of a process that does not raise its limit, which are 1024.
#[test]
fn thousands_of_clients_are_served_at_the_same_time() {
    const CLIENTS: u64 = 3000;
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    let needed = 2 * CLIENTS + 500;
    assert!(most > needed, "needs ulimit -Hn {needed}");
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("up to the hard limit");
    let directory = Directory::new();
    let daemon = start(&directory, "");
    let ask = |tid| {
        let mut client = call(&directory);
        client.write_all(&request(tid)).expect("room");
        client
    };
    let mut clients: Vec<_> = (0..CLIENTS).map(ask).collect();
    for (tid, client) in (0..).zip(&mut clients) {
        assert_eq!(answer(client).tid, tid);
        client.write_all(&request(tid + CLIENTS)).expect("room");
    }
    assert_eq!(state(&daemon)["clients"], json!(CLIENTS));
    for (tid, client) in (CLIENTS..).zip(&mut clients) {
        assert_eq!(answer(client).tid, tid);
    }
}

/// Whoever comes by TCP is another user than whoever comes by the Unix socket.
#[test]
fn a_user_with_many_connections_leaves_some_to_others() {
    let directory = Directory::new();
    let unused = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = unused.local_addr().expect("its number").port();
    drop(unused);
    let further = format!("tcp_port = {port}\n");
    let config = config(&directory, &further);
    let daemon = Daemon::start_with_descriptors(256 + 2 * 20, directory.path(), &config);
    let _many: Vec<_> = (0..100).map(|_| call(&directory)).collect();
    daemon.await_counter("acm_clients_refused", &json!(85));
    let mut other = TcpStream::connect(("127.0.0.1", port)).expect("acm is served");
    other.write_all(&request(7)).expect("room");
    assert_eq!(answer(&mut other).tid, 7);
}

#[test]
fn clients_that_end_in_the_middle_of_a_request_leave_nothing() {
    let directory = Directory::new();
    let daemon = start_with_clients(100, &directory);
    let mut early = call(&directory);
    early.write_all(&request(6)).expect("room");
    assert_eq!(answer(&mut early).tid, 6);
    // The daemon learns of the beginnings and of the ends at the same time.
    daemon.signal(Signal::SIGSTOP);
    early.write_all(&[1]).expect("room");
    drop(early);
    for _ in 0..49 {
        call(&directory).write_all(&[1]).expect("room");
    }
    daemon.signal(Signal::SIGCONT);
    daemon.await_counter("acm_clients", &json!(50));
    for _ in 0..1000 {
        if state(&daemon)["clients"] == json!(0) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(state(&daemon)["clients"], json!(0));
    let mut next = call(&directory);
    next.write_all(&request(7)).expect("room");
    assert_eq!(answer(&mut next).tid, 7);
}

/// Nothing else wakes the daemon meanwhile: it is its own timer that ends the client, after 30 s.
#[test]
fn half_a_request_is_ended_and_who_only_listens_is_not() {
    let directory = Directory::new();
    let config = config(&directory, "[log]\nlevel = \"debug\"\n");
    let daemon = Daemon::try_start(directory.path(), &config).expect("apmd starts");
    let mut half = call(&directory);
    half.write_all(&request(6)[..HEADER]).expect("room");
    let mut quiet = call(&directory);
    assert_eq!(half.read(&mut [0; 8]).expect("an end"), 0);
    daemon.await_log("left half a request");
    quiet.write_all(&request(7)).expect("room");
    assert_eq!(answer(&mut quiet).tid, 7);
    assert_eq!(state(&daemon)["clients"], json!(1));
}

#[test]
fn ibacms_options_are_imported_and_tcp_is_found_by_its_file() {
    let directory = Directory::new();
    let path = |name: &str| directory.path().join(name);
    let unused = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = unused.local_addr().expect("its number").port();
    drop(unused);
    let options = format!("server_mode loop\nserver_port {port}\ncolour red\n");
    let options = directory.write("ibacm_opts.cfg", &options);
    let imported = apmctl(&["acm", "import", &options])
        .output()
        .expect("apmctl starts");
    assert_eq!(imported.status.code(), Some(0), "{imported:?}");
    let section = String::from_utf8(imported.stdout).expect("text");
    assert!(
        section.contains("\n# line 3: colour red: not understood\n"),
        "{section}"
    );
    let dir = directory.path().to_str().expect("text");
    let further = format!("kernel = false\ndirectory = \"{dir}\"\ndata_dir = \"{dir}\"\n");
    let config = format!("{section}{further}");
    let daemon = Daemon::try_start(directory.path(), &config).expect("apmd starts");
    let written = fs::read_to_string(path("ibacm-tcp.port")).expect("the port's file");
    assert_eq!(written, format!("{port}\n"));
    let mut client = TcpStream::connect(("127.0.0.1", port)).expect("acm is served");
    client.write_all(&request(7)).expect("room");
    assert_eq!(answer(&mut client).tid, 7);
    let served = state(&daemon)["served_at"].to_string();
    assert!(
        served.contains("ibacm-tcp.port") && served.contains("ibacm-unix.sock"),
        "{served}"
    );
    daemon.signal(Signal::SIGTERM);
    let mut daemon = daemon;
    daemon.wait();
    assert!(!path("ibacm-tcp.port").exists() && !path("ibacm-unix.sock").exists());
    assert!(fs::symlink_metadata(path("ibacm.sock")).is_err());
}

/// ibacm reads bytes: a comment in another encoding is a comment.
#[test]
fn ibacms_options_may_be_in_any_encoding() {
    let directory = Directory::new();
    let options = directory.path().join("ibacm_opts.cfg");
    let text = b"# Erl\xe4uterung\nroute_prot acm\ncolour r\xf6t\n";
    fs::write(&options, text).expect("room");
    let options = options.to_str().expect("text");
    let (code, section, error) = outcome(
        &apmctl(&["acm", "import", options])
            .output()
            .expect("it starts"),
    );
    assert_eq!((code, error.as_str()), (0, ""));
    assert!(section.contains("\nmulticast = \"paths\"\n"), "{section}");
    assert!(section.contains("# line 3: colour"), "{section}");
}

#[test]
fn a_filter_reaches_the_daemon() {
    let directory = Directory::new();
    let daemon = start(&directory, "");
    let shown = daemon.apmctl(&["-j", "acm", "show", "10.0.0.9", "state", "known"]);
    assert_eq!(shown.status.code(), Some(0), "{shown:?}");
    let state: Value = serde_json::from_slice(&shown.stdout).expect("json");
    let destinations = (&state["destinations"], &state["destinations_total"]);
    assert_eq!(destinations, (&json!([]), &json!(0)));
    let shown = daemon.apmctl(&["acm", "show", "state"]);
    assert_eq!(shown.status.code(), Some(2), "{shown:?}");
}

#[test]
fn not_served_unless_it_is_wanted() {
    let daemon = Daemon::start("");
    let shown = daemon.apmctl(&["acm", "show"]);
    assert_eq!(shown.status.code(), Some(1));
    let said = String::from_utf8_lossy(&shown.stderr).into_owned();
    assert!(said.contains("acm is not served"), "{said}");
}

#[test]
fn what_cannot_be_imported_or_written_is_an_error() {
    let directory = Directory::new();
    let missing = directory.file("nothing");
    for words in [
        ["acm", "import", missing.as_str()],
        ["acm", "config", "-D/nonexistent"],
    ] {
        let output = apmctl(&words).output().expect("apmctl starts");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
    }
}
