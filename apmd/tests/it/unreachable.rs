// SPDX-License-Identifier: MIT OR Apache-2.0
//! A daemon that cannot be reached: `apmctl` says so, why, and what to do.

use std::fs::{self, Permissions};
use std::iter;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use apmd::io::seqpacket::{Listener, Packets};
use nix::sys::socket::{self, AddressFamily, Backlog, SockFlag, SockType, UnixAddr};
use nix::unistd::{Gid, Group, geteuid};

use crate::apmctl::{apmctl, outcome};
use crate::daemon::{Daemon, connect};
use crate::directory::Directory;
use crate::script;

#[test]
fn a_daemon_that_does_not_answer_is_not_waited_for_without_end() {
    let deaf = Directory::new();
    let _deaf = Listener::bind(&deaf.path().join("observe.sock"), 0o600, "").expect("a new socket");

    let full = Directory::new();
    let path = full.path().join("observe.sock");
    let flags = SockFlag::SOCK_CLOEXEC;
    let fd = socket::socket(AddressFamily::Unix, SockType::SeqPacket, flags, None);
    let fd = fd.expect("a socket");
    let address = UnixAddr::new(&path).expect("short");
    socket::bind(fd.as_raw_fd(), &address).expect("a new socket");
    socket::listen(&fd, Backlog::new(0).expect("none")).expect("bound");
    let _first = Packets::connect(&path, Duration::from_secs(1)).expect("room for one");

    let (of_environment, of_command_line) = (Some("1.5"), ["--answer-timeout", "2"]);
    let cases: [(&Directory, Option<&str>, &[&str], &str); 4] = [
        (&deaf, None, &[], "5 s"),
        (&full, None, &[], "5 s"),
        (&deaf, of_environment, &[], "1.5 s"),
        (&deaf, of_environment, &of_command_line, "2 s"),
    ];
    let children = cases.map(|(directory, variable, option, limit)| {
        let socket = directory.file("");
        let mut command = apmctl(&[&["-s", &socket, "status"], option].concat());
        command.envs(variable.map(|value| ("APMCTL_ANSWER_TIMEOUT", value)));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        (command.spawn().expect("apmctl starts"), limit)
    });
    for (child, limit) in children {
        let (code, text, error) = outcome(&child.wait_with_output().expect("apmctl ends"));
        assert_eq!((code, text.as_str()), (3, ""), "{error}");
        let want = format!("observe.sock: apmd has not answered for {limit}");
        assert!(error.contains(&want), "{error}");
    }
}

#[test]
fn an_answer_that_ends_before_it_is_complete_is_none() {
    for answer in ["", r#"{"version":"0.1","pid":7,"#, r#"{"error":"devi"#] {
        for arguments in [&["status"][..], &["conn", "set", "3.1", "mode", "lid"]] {
            let (code, text, error) = script::run(&[answer], arguments);
            assert_eq!((code, text.as_str()), (3, ""), "{arguments:?}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
            let want = "observe.sock: apmd closed the connection before it had answered in full";
            assert!(error.contains(want), "{error}");
        }
    }
}

#[test]
fn a_user_whose_share_of_callers_is_used_up_is_told_so() {
    let daemon = Daemon::start("");
    let socket = daemon.directory().join("observe.sock");
    // Who watches keeps its place.
    let watch = || {
        let caller = connect(&socket);
        let sent = caller.send(br#"{"show":"transitions"}"#);
        (sent.is_ok() && !caller.receive().is_empty()).then_some(caller)
    };
    let watching: Vec<_> = iter::from_fn(watch).take(1000).collect();
    assert!(watching.len() < 1000, "there is no limit");
    let (code, text, error) = outcome(&daemon.apmctl(&["status"]));
    assert_eq!((code, text.as_str()), (3, ""), "{error}");
    assert!(
        error.contains("this user's share of its callers is used up"),
        "{error}"
    );
    drop(watching);
}

#[test]
fn permission_denied_says_whose_the_socket_is_and_what_to_do() {
    let directory = Directory::new();
    let program = directory.copy(env!("CARGO_BIN_EXE_apmctl"), "apmctl");
    let run = directory.path().join("run");
    fs::create_dir(&run).expect("a new directory");
    let socket = run.join("observe.sock");
    let _listener = Listener::bind(&socket, 0o060, "").expect("a new socket");
    let status = || {
        let mut command = Command::new(&program);
        command.args(["-s", run.to_str().expect("text"), "status"]);
        if geteuid().is_root() {
            command.uid(65534).gid(65534);
        }
        let (code, _, error) = outcome(&command.output().expect("apmctl starts"));
        assert_eq!((code, error.lines().count()), (3, 1), "{error}");
        error
    };
    let allow = |path: &Path, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
    };
    let gid = Gid::from_raw(fs::metadata(&socket).expect("it is there").gid());
    let group = Group::from_gid(gid).expect("readable").expect("known");
    let group = format!(
        "belongs to group {0}: ask to be added to group {0}",
        group.name
    );

    let error = status();
    let want = format!("observe.sock: permission denied: it {group}");
    assert!(error.contains(&want), "{error}");
    allow(&socket, 0);
    let error = status();
    assert!(error.contains("it is for user "), "{error}");
    allow(&run, 0o070);
    let error = status();
    let want = format!("{} {group}", run.display());
    assert!(error.contains(&want), "{error}");
    allow(&run, 0o700);
}
