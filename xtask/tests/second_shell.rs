// SPDX-License-Identifier: MIT OR Apache-2.0
//! A second shell in a running VM, by the real programs. It boots one: cargo xtask test runs it.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

/// `cargo xtask vm`, where no other VM of this machine is seen.
fn vm(temporary: &Path, arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("vm")
        .args(arguments)
        .env("TMPDIR", temporary)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts")
}

/// Types all that is ever typed; a program that has ended before says so by its status.
fn type_in(child: &mut Child, text: &str) {
    let mut keyboard = child.stdin.take().expect("a pipe");
    let _ = keyboard.write_all(text.as_bytes());
}

/// A VM that does not outlive a failed test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn attach(temporary: &Path, text: &str) -> Output {
    let mut child = vm(temporary, &["--attach"]);
    type_in(&mut child, text);
    child.wait_with_output().expect("it ends")
}

#[test]
#[ignore = "boots a VM"]
fn another_shell_opens_in_a_running_vm_and_leaves_it_running() {
    let temporary = std::env::temp_dir().join(format!("apm-second-shell-{}", std::process::id()));
    std::fs::create_dir_all(&temporary).expect("a directory");
    // A shell that does not answer is a failure, too: with its VM every other ends.
    let mut first = Running(vm(&temporary, &["--stock", "--timeout", "300"]));
    let second = loop {
        let output = attach(&temporary, "echo $((6 * 7)) by $(tty) >/tmp/note; exit\n");
        if output.status.success() {
            break output;
        }
        let running = first.0.try_wait().expect("it can be asked").is_none();
        assert!(running, "the VM ended first: {output:?}");
        thread::sleep(Duration::from_millis(200));
    };
    let third = attach(&temporary, "cat /tmp/note; exit\n");
    type_in(&mut first.0, "cat /tmp/note; exit\n");
    let mut shown = String::new();
    let mut screen = first.0.stdout.take().expect("a pipe");
    screen.read_to_string(&mut shown).expect("text");
    let status = first.0.wait().expect("it ends");
    std::fs::remove_dir_all(&temporary).expect("nothing is left open in it");

    assert!(status.success(), "{shown}");
    let second = String::from_utf8_lossy(&second.stdout);
    for (what, screen) in [("first", shown.as_str()), ("second", &second)] {
        for told in ["host-a has the HCA shca0", "cable pull", "--attach"] {
            assert!(screen.contains(told), "{what} shell, {told}: {screen}");
        }
    }
    let third = String::from_utf8_lossy(&third.stdout);
    for screen in [shown.as_str(), &third] {
        assert!(screen.contains("42 by /dev/hvc1"), "{screen}");
    }
}
