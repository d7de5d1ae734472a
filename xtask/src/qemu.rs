// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a VM under QEMU's own processor emulation (never KVM, so that every machine shows the same)
//! and listens to what its init reports.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::{Error, InFile};

/// How long the VM may take until its world is up.
const BOOT_LIMIT: Duration = Duration::from_secs(240);
/// How long it may take to power off after the script has ended.
const POWER_OFF_LIMIT: Duration = Duration::from_secs(30);

/// Checks of consistency, red zones, poison and the callers of each allocation, in the caches from
/// which the software HCA, rdmavt and ib_core take their objects.
const SLAB_DEBUG: &str = "FZPU,shca_*,kmalloc-*";

/// What to boot and where its channels lead.
pub(crate) struct Machine<'a> {
    /// The program that runs it.
    pub(crate) emulator: &'a Path,
    /// The kernel's bootable image.
    pub(crate) kernel: &'a Path,
    /// The initial root file system.
    pub(crate) initrd: &'a Path,
    /// Memory in MiB.
    pub(crate) memory: u32,
    /// Whether the kernel watches its heap.
    pub(crate) slab_debug: bool,
    /// What the kernel's command line has besides.
    pub(crate) kernel_arguments: &'a str,
    /// How many times longer it may take until the world is up, and to power off.
    pub(crate) patience: u32,
    /// Where the kernel's log goes.
    pub(crate) console: &'a Path,
    /// Whether this process's terminal becomes the VM's.
    pub(crate) interactive: bool,
    /// Where the files that the script left in `/out` go.
    pub(crate) out: Option<&'a Path>,
    /// How long the script may run.
    pub(crate) limit: Option<Duration>,
    /// Whether time in the VM is what it has done, and not the clock's (see [`COUNTED`]), on one processor.
    pub(crate) counted: bool,
}

/// An instruction takes 8 ns; while the processor waits for a timer its time goes on and nobody waits. So what
/// a program takes does not depend on what else this machine does. With two processors the kernel does not
/// come up like this (QEMU 7.2).
const COUNTED: &str = "shift=3,sleep=off";

/// What the VM's init says on its control channel.
#[derive(Debug, PartialEq, Eq)]
enum Report {
    /// A stage of the boot.
    Stage(String),
    /// Something that should not be.
    Warning(String),
    /// The script, or the shell, begins.
    Ready,
    /// The script's exit status.
    Exit(u8),
}

impl Report {
    fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "stage" => Some(Self::Stage(rest.to_owned())),
            "warning" => Some(Self::Warning(rest.to_owned())),
            "ready" => Some(Self::Ready),
            "exit" => rest.parse().ok().map(Self::Exit),
            _ => None,
        }
    }
}

/// How a VM ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The script ended with this status.
    Exit(u8),
    /// It ran out of time.
    TimedOut,
    /// It went down without a word: the kernel crashed, or the shell powered it off.
    Gone {
        /// Whether the boot had been completed.
        was_up: bool,
    },
}

/// How the names of socket directories begin; the process's number follows.
pub(crate) const SOCKET_DIR: &str = "apm-vm-";
/// The socket at which QEMU offers the second shell's console.
pub(crate) const SECOND_SHELL: &str = "shell";

/// A directory for sockets, whose names must be short; removed when dropped.
struct SocketDir(PathBuf);

impl SocketDir {
    fn create() -> Result<Self, Error> {
        remove_abandoned();
        let dir = std::env::temp_dir().join(format!("{SOCKET_DIR}{}", std::process::id()));
        fs::create_dir(&dir).in_file(&dir)?;
        Ok(Self(dir))
    }

    fn listen(&self, name: &str) -> Result<UnixListener, Error> {
        let path = self.0.join(name);
        UnixListener::bind(&path).in_file(&path)
    }
}

impl Drop for SocketDir {
    fn drop(&mut self) {
        // Nothing depends on its absence.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes socket directories of processes that were killed, or that had this one's number before.
fn remove_abandoned() {
    for entry in fs::read_dir(std::env::temp_dir())
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(SOCKET_DIR));
        let Some(owner) = owner.and_then(|owner| owner.parse::<u32>().ok()) else {
            continue;
        };
        if owner == std::process::id() || !Path::new("/proc").join(owner.to_string()).exists() {
            // Somebody else's, if it stays.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A QEMU process; killed when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const CHANNELS: &[&str] = &["control", "stdout", "stderr", "out"];

fn command(machine: &Machine<'_>, sockets: &Path) -> Command {
    // If this process is killed, the VM must not live on.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(machine.emulator);
    command.args([
        "-machine",
        "pc",
        "-accel",
        if machine.counted {
            "tcg,thread=single"
        } else {
            "tcg,thread=multi"
        },
        "-cpu",
        // String moves by "rep movsb" (erms, fsrm) are very slow under TCG.
        "max,la57=off,-erms,-fsrm",
    ]);
    if machine.counted {
        command.args(["-icount", COUNTED]);
    }
    let processors = if machine.counted { "1" } else { "2" };
    command.args(["-smp", processors, "-m", &machine.memory.to_string()]);
    command.args([
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
    ]);
    command
        .arg("-kernel")
        .arg(machine.kernel)
        .arg("-initrd")
        .arg(machine.initrd);
    command.arg("-append").arg(kernel_arguments(machine));
    command
        .arg("-serial")
        .arg(format!("file:{}", machine.console.display()));
    command.args(["-device", "virtio-serial-pci"]);
    for name in CHANNELS {
        let socket = sockets.join(name);
        command
            .arg("-chardev")
            .arg(format!("socket,id={name},path={}", socket.display()));
        command
            .arg("-device")
            .arg(format!("virtserialport,chardev={name},name={name}"));
    }
    // Init feeds it; a kernel that stands still is made to say where, and ends.
    command.args(["-device", "i6300esb", "-action", "watchdog=inject-nmi"]);
    if machine.interactive {
        command.args(["-chardev", "stdio,id=terminal,signal=off"]);
        command.args(["-device", "virtconsole,chardev=terminal"]);
    } else {
        command.stdin(Stdio::null()).stdout(Stdio::null());
    }
    let shell = sockets.join(SECOND_SHELL);
    command.arg("-chardev").arg(format!(
        "socket,id=shell,path={},server=on,wait=off",
        shell.display()
    ));
    command.args(["-device", "virtconsole,chardev=shell"]);
    command
}

fn kernel_arguments(machine: &Machine<'_>) -> String {
    // TCG's time-stamp counter is one for all processors (`cpu_get_ticks`), which Linux does not take
    // for granted: without "tsc=reliable" every look at the clock is a system call that reads the
    // emulated HPET, and no real host is like that.
    let mut arguments = "console=ttyS0 rdinit=/init mitigations=off random.trust_cpu=on \
                         no_timer_check tsc=reliable panic=-1 oops=panic unknown_nmi_panic"
        .to_owned();
    if machine.slab_debug {
        arguments.push_str(" slub_debug=");
        arguments.push_str(SLAB_DEBUG);
    }
    arguments.push_str(machine.kernel_arguments);
    arguments
}

/// Passes one channel's bytes on until the VM closes it.
fn relay(listener: UnixListener, mut to: impl Write + Send + 'static) -> JoinHandle<()> {
    thread::spawn(move || {
        let Ok((mut stream, _)) = listener.accept() else {
            return;
        };
        let mut buffer = [0; 16 << 10];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            if to
                .write_all(&buffer[..count])
                .and_then(|()| to.flush())
                .is_err()
            {
                return;
            }
        }
    })
}

fn reports(listener: UnixListener, reports: Sender<Report>) -> JoinHandle<()> {
    thread::spawn(move || {
        let Ok((stream, _)) = listener.accept() else {
            return;
        };
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if let Some(report) = Report::parse(line.trim_end())
                && reports.send(report).is_err()
            {
                return;
            }
        }
    })
}

/// Unpacks the archive that the VM sends at its end.
fn unpacker(dir: Option<&Path>) -> Result<(Box<dyn Write + Send>, Option<Child>), Error> {
    let Some(dir) = dir else {
        return Ok((Box::new(io::sink()), None));
    };
    fs::create_dir_all(dir).in_file(dir)?;
    let mut child = Command::new("tar")
        .args(["-x", "--no-same-owner", "-C"])
        .arg(dir)
        .stdin(Stdio::piped())
        .spawn()
        .map_err(|source| Error::Start {
            program: "tar".to_owned(),
            source,
        })?;
    let input = child
        .stdin
        .take()
        .ok_or_else(|| Error::Other("tar has no input".to_owned()))?;
    Ok((Box::new(input), Some(child)))
}

/// Boots `machine` and stays until it is off; `stage` hears of the boot's progress.
pub(crate) fn run(machine: &Machine<'_>, mut stage: impl FnMut(&str)) -> Result<End, Error> {
    let sockets = SocketDir::create()?;
    let (sender, receiver) = mpsc::channel();
    let (out, tar) = unpacker(machine.out)?;
    let channels = [
        reports(sockets.listen("control")?, sender),
        relay(sockets.listen("stdout")?, io::stdout()),
        relay(sockets.listen("stderr")?, io::stderr()),
        relay(sockets.listen("out")?, out),
    ];
    File::create(machine.console).in_file(machine.console)?;
    let process = command(machine, &sockets.0)
        .spawn()
        .map_err(|source| Error::Start {
            program: format!("setpriv {}", machine.emulator.display()),
            source,
        })?;
    let mut process = Process(process);
    let end = follow(machine, &receiver, &mut process, &mut stage);
    drop(process);
    for channel in channels {
        // A channel that QEMU never opened would wait for ever: connect to it and hang up.
        for name in CHANNELS {
            let _ = std::os::unix::net::UnixStream::connect(sockets.0.join(name));
        }
        let _ = channel.join();
    }
    if let Some(mut tar) = tar {
        let status = tar.wait().map_err(|source| Error::Start {
            program: "tar".into(),
            source,
        })?;
        let end = end?;
        return match is_out_lost(&end, status.success()) {
            true => Err(Error::Other(format!(
                "unpacking the VM's /out failed ({status})"
            ))),
            false => Ok(end),
        };
    }
    end
}

/// Whether /out should have been unpacked and was not. A VM that was stopped, or crashed, sends none: how it ended says
/// more.
fn is_out_lost(end: &End, unpacked: bool) -> bool {
    matches!(end, End::Exit(_)) && !unpacked
}

/// Waits for the reports of the VM until it ends or its time is over.
fn follow(
    machine: &Machine<'_>,
    receiver: &Receiver<Report>,
    process: &mut Process,
    stage: &mut impl FnMut(&str),
) -> Result<End, Error> {
    let mut deadline = Some(Instant::now() + BOOT_LIMIT * machine.patience);
    let mut was_up = false;
    let mut end = None;
    loop {
        let wait = deadline.map_or(Duration::MAX, |at| {
            at.saturating_duration_since(Instant::now())
        });
        match receiver.recv_timeout(wait.min(Duration::from_millis(500))) {
            Ok(Report::Stage(text)) => stage(&text),
            Ok(Report::Warning(text)) => eprintln!("xtask: vm: {text}"),
            Ok(Report::Ready) => {
                was_up = true;
                stage("ready");
                deadline = machine.limit.map(|limit| Instant::now() + limit);
            }
            Ok(Report::Exit(status)) => {
                end = Some(End::Exit(status));
                deadline = Some(Instant::now() + POWER_OFF_LIMIT * machine.patience);
            }
            Err(RecvTimeoutError::Timeout) => {
                if deadline.is_some_and(|at| at <= Instant::now()) {
                    return Ok(end.unwrap_or(End::TimedOut));
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                let gone = process.0.wait().in_file(machine.kernel);
                return gone.map(|_| end.unwrap_or(End::Gone { was_up }));
            }
        }
        if process.0.try_wait().in_file(machine.kernel)?.is_some() {
            while let Ok(report) = receiver.recv_timeout(Duration::from_millis(200)) {
                if let Report::Exit(status) = report {
                    end = Some(End::Exit(status));
                }
            }
            return Ok(end.unwrap_or(End::Gone { was_up }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_script_that_ended_should_have_left_files() {
        assert!(is_out_lost(&End::Exit(0), false));
        assert!(!is_out_lost(&End::Exit(1), true));
        assert!(!is_out_lost(&End::TimedOut, false));
        assert!(!is_out_lost(&End::Gone { was_up: true }, false));
    }

    #[test]
    fn reports_are_understood() {
        assert_eq!(Report::parse("exit 3"), Some(Report::Exit(3)));
        assert_eq!(Report::parse("ready"), Some(Report::Ready));
        assert_eq!(
            Report::parse("stage loading"),
            Some(Report::Stage("loading".to_owned()))
        );
        assert_eq!(Report::parse("exit 300"), None);
        assert_eq!(Report::parse(""), None);
    }
}
