// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask vm`: prepares an image, boots it, and judges how it ended.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;

use crate::error::{Error, InFile};
use crate::fabric::{self, Fabric};
use crate::image::{self, Content};
use crate::kernel::{self, Kernel};
use crate::qemu::{self, End, Machine};
use crate::{attach, dmesg, emulator, packages, shell, terminal, workspace};

/// Exit status for a VM that ran out of time, as timeout(1) has it.
const TIMED_OUT: u8 = 124;

/// How long the check may take, on a very busy machine, before the VM counts as hung.
const CHECK_LIMIT: Duration = Duration::from_secs(1200);

/// What the command line says.
#[derive(Args)]
pub(crate) struct Options {
    /// Host files and directories to be found in /host
    #[arg(long, value_name = "PATH", num_args = 1..)]
    copy: Vec<PathBuf>,
    /// Run this script with everything up, and end with its exit status
    #[arg(long, value_name = "SCRIPT", conflicts_with = "check")]
    run: Option<PathBuf>,
    /// Prove the world with programs that nobody here wrote (implies --stock and --slab-debug)
    #[arg(long)]
    check: bool,
    /// With --check: without the long rows that do not depend on the fabric
    #[arg(long, requires = "check")]
    short: bool,
    /// Kill the VM if the script runs longer
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Bring the files that the script leaves in /out to this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Memory in MiB
    #[arg(long, value_name = "MIB", default_value_t = 2048)]
    memory: u32,
    /// Switches, HCAs and cables: two-rails, two-subnets, leaf-spine, rails-of-trees, ring, or a
    /// file as ibnetdiscover prints it and ibsim reads it. The last HCA carries the subnet manager
    #[arg(long, value_name = "NAME|FILE", default_value = fabric::DEFAULT)]
    fabric: String,
    /// Number of HCAs of two-rails
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = clap::value_parser!(u32).range(3..=8))]
    ndev: u32,
    /// Ports have 2^LMC LIDs; leaf-spine has LMC 2, the others 0
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=7))]
    lmc: Option<u8>,
    /// Show each port of an HCA as a device of its own (shca0_p1, shca0_p2), as newer adapters do
    #[arg(long)]
    port_devices: bool,
    /// Which of Debian's kernels to boot
    #[arg(long, value_name = "KERNEL", value_enum, default_value_t)]
    kernel: kernel::Choice,
    /// Let the kernel watch its heap: red zones, poison, who allocated what
    #[arg(long)]
    slab_debug: bool,
    /// Do not start the daemons
    #[arg(long)]
    no_daemons: bool,
    /// Leave this project's programs out: the software HCA and Debian's programs only
    #[arg(long)]
    stock: bool,
    /// Open a second shell in the VM that is running, or in that of the xtask process PID
    #[arg(long, value_name = "PID", num_args = 0..=1, exclusive = true)]
    attach: Option<Option<u32>>,
    /// Count time in instructions (8 ns each), whatever else this machine does: for measurements. The VM has one
    /// processor
    #[arg(long)]
    counted: bool,
    /// Go on even if the software HCA does not compile or the fabric does not come up
    #[arg(long)]
    force: bool,
}

impl Options {
    fn fabric(&self) -> Result<Fabric, Error> {
        let mut fabric = Fabric::find(&self.fabric, self.ndev)?;
        if let Some(lmc) = self.lmc {
            fabric = fabric.with_lmc(lmc);
        }
        Ok(match self.port_devices {
            true => fabric.with_port_devices(),
            false => fabric,
        })
    }
}

/// A VM to be run.
pub(crate) struct Run {
    /// What is in its image.
    pub(crate) content: Content,
    /// The script; without one there is a shell on the terminal.
    pub(crate) script: Option<String>,
    /// Host files for /host.
    pub(crate) copy: Vec<PathBuf>,
    /// Where /out goes.
    pub(crate) out: Option<PathBuf>,
    /// How long the script may take.
    pub(crate) limit: Option<Duration>,
    /// Memory in MiB.
    pub(crate) memory: u32,
    /// Switches, HCAs and cables.
    pub(crate) fabric: Fabric,
    /// Which kernel.
    pub(crate) kernel: kernel::Choice,
    /// Whether the kernel watches its heap.
    pub(crate) slab_debug: bool,
    /// Whether init starts the daemons.
    pub(crate) daemons: bool,
    /// Whether the script runs even if the fabric does not come up.
    pub(crate) force: bool,
    /// Whether its time is counted in instructions.
    pub(crate) counted: bool,
}

impl Run {
    /// A VM of this fabric with everything in it that runs `script`.
    pub(crate) fn script(script: String, fabric: &str) -> Result<Self, Error> {
        Ok(Self {
            content: Content::Everything,
            script: Some(script),
            copy: Vec::new(),
            out: None,
            limit: None,
            memory: 2048,
            fabric: Fabric::find(fabric, 3)?,
            kernel: kernel::Choice::Stock,
            slab_debug: false,
            daemons: true,
            force: false,
            counted: false,
        })
    }
}

/// `cargo xtask vm`.
pub(crate) fn run(options: &Options) -> Result<u8, Error> {
    if let Some(process) = options.attach {
        return attach::run(process);
    }
    let script = match &options.run {
        Some(path) => Some(fs::read_to_string(path).in_file(path)?),
        None if options.check && options.short => Some("exec vm-check --short\n".to_owned()),
        None if options.check => Some("exec vm-check\n".to_owned()),
        None => None,
    };
    start(&Run {
        content: if options.stock || options.check {
            Content::Stock
        } else {
            Content::Everything
        },
        script,
        copy: options.copy.clone(),
        out: options.out.clone(),
        limit: match options.timeout {
            None if options.check => Some(CHECK_LIMIT),
            seconds => seconds.map(Duration::from_secs),
        },
        memory: options.memory,
        fabric: options.fabric()?,
        kernel: options.kernel,
        slab_debug: options.slab_debug || options.check,
        daemons: !options.no_daemons,
        force: options.force,
        counted: options.counted,
    })
}

/// Runs a VM and returns the status to end with.
pub(crate) fn start(run: &Run) -> Result<u8, Error> {
    let mut needed = packages::VM.to_vec();
    if run.content == Content::Everything {
        needed.extend(packages::BUILD);
    }
    packages::install(&needed)?;
    let dir = workspace::vm_dir()?;
    let lock = workspace::lock()?;
    remove_leftovers(&dir)?;
    let emulator = emulator::provide(&dir)?;
    let kernel = Kernel::provide(run.kernel, &dir)?;
    let image = image::build(&kernel, &dir, run.content, run.force)?;
    let files = RunFiles::create(&dir)?;
    files.write_initrd(&image, run)?;
    drop(lock);
    boot(run, &emulator, &kernel, &files)
}

fn boot(run: &Run, emulator: &Path, kernel: &Kernel, files: &RunFiles) -> Result<u8, Error> {
    let started = Instant::now();
    let machine = Machine {
        emulator,
        kernel: &kernel.image(),
        initrd: &files.initrd(),
        memory: run.memory.max(run.kernel.least_memory()),
        slab_debug: run.slab_debug,
        kernel_arguments: run.kernel.arguments(),
        patience: run.kernel.patience(),
        console: &files.console,
        interactive: run.script.is_none(),
        out: run.out.as_deref(),
        limit: run.limit.map(|limit| limit * run.kernel.patience()),
        counted: run.counted,
    };
    let end = qemu::run(&machine, |stage| {
        shell::progress(&format!(
            "{:5.1} s  {stage}",
            started.elapsed().as_secs_f32()
        ));
    })?;
    let log = fs::read(&files.console).in_file(&files.console)?;
    let log = String::from_utf8_lossy(&log);
    let faults = dmesg::faults(&log);
    for fault in &faults {
        eprintln!("xtask: kernel fault: {fault}");
    }
    if !faults.is_empty() {
        eprintln!("xtask: the kernel's log is {}", files.console.display());
    }
    let status = judge(run, &end, &log, &files.console)?;
    Ok(if faults.is_empty() {
        status
    } else {
        status.max(1)
    })
}

fn judge(run: &Run, end: &End, log: &str, console: &Path) -> Result<u8, Error> {
    match end {
        End::Exit(status) => Ok(*status),
        End::Gone { was_up: true } if run.script.is_none() => Ok(0),
        End::TimedOut => {
            let lost = match run.out {
                Some(_) => "; the files in its /out are lost",
                None => "",
            };
            eprintln!("xtask: the VM ran out of time and was stopped{lost}");
            Ok(TIMED_OUT)
        }
        End::Gone { .. } => Err(Error::Other(format!(
            "the VM went down before its script ended; {}:{}",
            console.display(),
            dmesg::decisive_part(log)
        ))),
    }
}

/// The files of one run: its initial root file system, removed at the end, and the kernel's log,
/// which stays.
struct RunFiles {
    dir: PathBuf,
    console: PathBuf,
}

impl RunFiles {
    fn create(vm_dir: &Path) -> Result<Self, Error> {
        let id = std::process::id();
        let dir = vm_dir.join(format!("run-{id}"));
        let logs = vm_dir.join("logs");
        for new in [&dir, &logs] {
            fs::create_dir_all(new).in_file(new)?;
        }
        Ok(Self {
            dir,
            console: logs.join(format!("console-{id}.log")),
        })
    }

    fn initrd(&self) -> PathBuf {
        self.dir.join("initrd")
    }

    /// The kernel unpacks concatenated archives one after the other.
    fn write_initrd(&self, image: &Path, run: &Run) -> Result<(), Error> {
        let second = self.dir.join("second");
        let settings = settings(run);
        let script = run.script.as_deref().unwrap_or_default();
        let (hosts, options) = (run.fabric.hosts(), run.fabric.module_options());
        let texts = [
            ("etc/vm/settings", 0o644, settings.as_str()),
            ("etc/vm/script", 0o755, script),
            ("etc/vm/hosts", 0o644, &hosts),
            ("etc/modprobe.d/shca.conf", 0o644, &options),
        ];
        image::second_archive(&second, &run.copy, &texts)?;
        let initrd = self.initrd();
        let mut to = File::create(&initrd).in_file(&initrd)?;
        for part in [image, &second] {
            let mut from = File::open(part).in_file(part)?;
            io::copy(&mut from, &mut to).in_file(&initrd)?;
        }
        Ok(())
    }
}

impl Drop for RunFiles {
    fn drop(&mut self) {
        // What is left is removed by the next run.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Shell variables for init.
fn settings(run: &Run) -> String {
    let flag = |on: bool| if on { "yes" } else { "no" };
    let mode = if run.script.is_some() {
        "script"
    } else {
        "shell"
    };
    let (rows, columns) = terminal::size();
    let term = terminal::kind();
    format!(
        "mode={mode}\npatience={}\nlmc={}\nmanager_ports=\"{}\"\ndaemons={}\nforce={}\none_stream={}\nbring_out={}\nrows={rows}\ncolumns={columns}\nterm={term}\n",
        run.kernel.patience(),
        run.fabric.lmc(),
        run.fabric.manager_ports().join(" "),
        flag(run.daemons),
        flag(run.force),
        flag(one_stream()),
        flag(run.out.is_some()),
    )
}

/// Whether stdout and stderr are the same file, so that the script's two streams must be one to
/// keep their order.
fn one_stream() -> bool {
    let identity = |fd: u32| {
        let metadata = fs::metadata(format!("/proc/self/fd/{fd}")).ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    identity(1).is_some() && identity(1) == identity(2)
}

/// Removes what killed runs left behind, and old logs.
fn remove_leftovers(vm_dir: &Path) -> Result<(), Error> {
    const LOGS_KEPT: usize = 20;
    for entry in fs::read_dir(vm_dir).in_file(vm_dir)? {
        let entry = entry.in_file(vm_dir)?;
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix("run-"));
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            fs::remove_dir_all(entry.path()).in_file(&entry.path())?;
        }
    }
    let dir = vm_dir.join("logs");
    let mut logs = Vec::new();
    for entry in fs::read_dir(&dir).into_iter().flatten() {
        let path = entry.in_file(&dir)?.path();
        logs.push((
            fs::metadata(&path)
                .and_then(|metadata| metadata.modified())
                .ok(),
            path,
        ));
    }
    logs.sort();
    logs.reverse();
    for (_, path) in logs.iter().skip(LOGS_KEPT) {
        fs::remove_file(path).in_file(path)?;
    }
    Ok(())
}
