// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands that may mount: nothing of it is seen outside, and nothing is left when they, or this program, are killed.

use std::process::Command;

/// A command line to which a program and its arguments are added. It runs in mount and process namespaces of its own,
/// and is killed with all that it started when this process ends, however that ends.
pub(super) fn command() -> Command {
    let mut command = Command::new("setpriv");
    // unshare ignores SIGINT and SIGTERM while it waits.
    command.args(["--pdeathsig", "KILL", "unshare"]);
    command.args(["--mount", "--propagation", "private", "--ipc", "--pid"]);
    command.args(["--fork", "--kill-child", "--"]);
    command
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{BufRead, BufReader};
    use std::path::Path;
    use std::process::Stdio;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::elsewhere::may_mount;

    #[test]
    fn mounts_and_processes_go_when_it_is_killed() {
        if !may_mount() {
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path().to_str().expect("UTF-8");
        let script =
            "mount -t tmpfs none \"$1\" && touch \"$1/inside\"; setsid sleep 1000 & echo up; wait";
        let mut inside = command();
        inside.args(["sh", "-c", script, "sh", place]);
        let mut child = inside.stdout(Stdio::piped()).spawn().expect("it starts");
        let pid = child.id();
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it has one");
        let mut stdout = BufReader::new(stdout);
        stdout.read_line(&mut line).expect("it speaks");
        assert_eq!(line, "up\n");
        let mounts = || fs::read_to_string("/proc/self/mountinfo").expect("readable");
        let inside = Path::new("/proc")
            .join(format!("{pid}/root{place}"))
            .join("inside");
        assert!(inside.exists());
        assert!(!mounts().contains(place), "it is seen outside");
        child.kill().expect("it can be");
        child.wait().expect("it ends");
        // The pipe ends when the last process that could write to it has.
        let mut rest = String::new();
        let ended = thread::spawn(move || stdout.read_line(&mut rest).map(|_| rest));
        for _ in 0..6000 {
            if ended.is_finished() {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        assert!(ended.is_finished(), "a process goes on");
        assert_eq!(ended.join().expect("no panic").expect("readable"), "");
        assert!(!mounts().contains(place));
    }
}
