// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running `apmd` with a directory of its own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use apmd::io::seqpacket::{Packets, Receive};
use cm_msgs::control::FromDaemon;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde_json::Value;

use crate::apmctl::apmctl;
use crate::directory::Directory;

/// A user and group who are nobody here.
const STRANGER: u32 = 64_123;

/// A daemon that manages no device; killed when dropped.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    directory: PathBuf,
    _owned: Option<Directory>,
}

impl Daemon {
    /// Starts one with this configuration, in a directory of its own.
    pub(crate) fn start(config: &str) -> Self {
        let directory = Directory::new();
        let mut daemon = Self::try_start(directory.path(), config).expect("apmd starts");
        daemon._owned = Some(directory);
        daemon
    }

    /// Starts one in `directory` and waits until it is ready. If it ends instead: what it said. It
    /// tells the socket `notify` there how it is.
    pub(crate) fn try_start(directory: &Path, config: &str) -> Result<Self, String> {
        let program = Command::new(env!("CARGO_BIN_EXE_apmd"));
        Self::try_start_by(program, directory, config)
    }

    /// Starts one that may have so many descriptors.
    pub(crate) fn start_with_descriptors(count: u32, directory: &Path, config: &str) -> Self {
        let mut shell = Command::new("sh");
        let limited = format!("ulimit -n {count} && exec \"$0\" \"$@\"");
        shell.args(["-c", &limited, env!("CARGO_BIN_EXE_apmd")]);
        Self::try_start_by(shell, directory, config).expect("apmd starts")
    }

    /// Starts one for which the shell variable `JOURNAL_STREAM` is what this command prints.
    pub(crate) fn start_with_journal(stream: &str, directory: &Path) -> Self {
        let mut shell = Command::new("sh");
        let script =
            format!("JOURNAL_STREAM=$({stream}); export JOURNAL_STREAM; exec \"$0\" \"$@\"");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_apmd")]);
        Self::try_start_by(shell, directory, "").expect("apmd starts")
    }

    /// Starts one that may have so many descriptors, and for which this is `/etc/subuid`. Needs root.
    pub(crate) fn start_with_subordinates(
        count: u32,
        directory: &Path,
        subordinates: &str,
        config: &str,
    ) -> Self {
        let file = directory.join("subuid");
        fs::write(&file, subordinates).expect("writable");
        let mut shell = Command::new("unshare");
        let mounted = format!(
            "ulimit -n {count} && mount --bind {} /etc/subuid && exec \"$0\" \"$@\"",
            file.display()
        );
        shell.args(["-m", "sh", "-c", &mounted, env!("CARGO_BIN_EXE_apmd")]);
        Self::try_start_by(shell, directory, config).expect("apmd starts")
    }

    /// Starts one in `directory` that is not root: as a user who is nobody here, if root runs the test.
    pub(crate) fn start_as_stranger(directory: &Directory, config: &str) -> Self {
        // Where everybody may run it.
        let mut program = Command::new(directory.copy(env!("CARGO_BIN_EXE_apmd"), "apmd"));
        if geteuid().is_root() {
            let stranger = Some(STRANGER);
            chown(directory.path(), stranger, stranger).expect("root may");
            program.uid(STRANGER).gid(STRANGER);
        }
        Self::try_start_by(program, directory.path(), config).expect("apmd starts")
    }

    /// `program` becomes the daemon.
    fn try_start_by(mut program: Command, directory: &Path, config: &str) -> Result<Self, String> {
        write_config(directory, config);
        let mut child = program
            .arg("--config")
            .arg(directory.join("apmd.toml"))
            .env_remove("RUST_LOG")
            .env("NOTIFY_SOCKET", directory.join("notify"))
            .stderr(Stdio::piped())
            .spawn()
            .expect("apmd starts");
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut said = String::new();
        let mut lines = stderr.lines().map_while(Result::ok);
        for line in lines.by_ref() {
            said.push_str(&line);
            if line.contains("ready") {
                // Whatever it says from now on is read, or it would wait for the pipe one day.
                let log = Arc::new(Mutex::new(Vec::new()));
                let keep = Arc::clone(&log);
                std::thread::spawn(move || {
                    lines.for_each(|line| keep.lock().expect("no panic").push(line));
                });
                return Ok(Self {
                    child,
                    log,
                    directory: directory.to_owned(),
                    _owned: None,
                });
            }
        }
        child.wait().expect("it has ended");
        Err(said)
    }

    /// What it has logged since it was ready.
    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().expect("no panic").clone()
    }

    /// Waits until it has logged something.
    pub(crate) fn await_log(&self, what: &str) {
        for _ in 0..6000 {
            if self.log().iter().any(|line| line.contains(what)) {
                return;
            }
            sleep(Duration::from_millis(10));
        }
        panic!("{what:?} is not in the log");
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn write_config(&self, config: &str) {
        write_config(&self.directory, config);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).expect("a pid"));
        kill(pid, signal).expect("it is our child");
    }

    /// Waits for its end: its exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.child.wait().expect("it is our child").code()
    }

    pub(crate) fn apmctl(&self, arguments: &[&str]) -> Output {
        let directory = self.directory.to_str().expect("text");
        let arguments = [&["-s", directory], arguments].concat();
        apmctl(&arguments).output().expect("apmctl starts")
    }

    pub(crate) fn status(&self) -> Value {
        self.json("status")
    }

    pub(crate) fn counters(&self) -> Value {
        self.json("counters")["daemon"].take()
    }

    fn json(&self, object: &str) -> Value {
        let output = self.apmctl(&["-j", object]);
        serde_json::from_slice(&output.stdout).expect("json")
    }

    /// Waits until a counter of the daemon has this value.
    pub(crate) fn await_counter(&self, name: &str, want: &Value) {
        for _ in 0..1000 {
            if self.counters()[name] == *want {
                return;
            }
            sleep(Duration::from_millis(10));
        }
        panic!("{name} is {}, want {want}", self.counters()[name]);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write_config(directory: &Path, config: &str) {
    // A device that is nowhere: the test is the same on a machine with HCAs.
    let text = format!(
        "runtime_dir = {:?}\ndevices = [\"none0\"]\n{config}",
        directory.to_str().expect("text")
    );
    fs::write(directory.join("apmd.toml"), text).expect("writable");
}

/// A socket to a daemon.
pub(crate) struct Socket(Packets);

pub(crate) fn connect(path: &Path) -> Socket {
    let packets = Packets::connect(path, Duration::from_secs(60));
    Socket(packets.expect("the daemon listens"))
}

impl Socket {
    pub(crate) fn send(&self, packet: &[u8]) -> std::io::Result<bool> {
        self.0.send(packet)
    }

    /// The next packet; nothing when the daemon has closed the socket.
    pub(crate) fn receive(&self) -> Vec<u8> {
        let mut buffer = vec![0; 64 * 1024];
        match self.0.receive(&mut buffer).expect("a working socket") {
            Receive::Packet(len) => {
                buffer.truncate(len);
                buffer
            }
            Receive::End => Vec::new(),
            Receive::Nothing => panic!("the daemon says nothing"),
        }
    }
}

/// A library that has said hello is told what the daemon understands, and is welcome.
pub(crate) fn assert_welcome(library: &Socket) {
    for want in [
        FromDaemon::MovesIdle,
        FromDaemon::CountsLateAnswers,
        FromDaemon::AsksPartitions,
        FromDaemon::AsksPeers,
        FromDaemon::Welcome,
    ] {
        assert_eq!(FromDaemon::decode(&library.receive()), Ok(want));
    }
}
