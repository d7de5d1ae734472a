// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process OpenSM on a simulated fabric. It sweeps only when told to, so that its files are of
//! one sweep and nobody writes while they are read.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::child::{bound_to_us, ended, spawn};
use super::net::Net;
use super::place::{Place, in_file};
use crate::failure::Failure;
use crate::memory::resident_kib;
use crate::wait::{self, Seen};

/// How long a sweep may take.
const SWEEP_LIMIT: Duration = Duration::from_secs(300);

/// How long it may take to end by itself.
const END_LIMIT: Duration = Duration::from_secs(10);

const PERIOD: Duration = Duration::from_millis(5);

/// The message at the end of a sweep, when all files are written.
const UP: &str = "SUBNET UP";

/// What goes before the name of the routing engine that was used after all.
const ENGINE: &str = "osm_ucast_mgr_process: ";
const ENGINE_END: &str = " tables configured on all switches";

/// How it routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Engine {
    /// By the fewest hops.
    Minhop,
    /// Fat trees.
    Ftree,
    /// Up, then down.
    Updn,
    /// Dimension by dimension.
    Dor,
    /// Layered shortest paths.
    Lash,
    /// Shortest paths, weighted by load, in layers.
    Dfsssp,
}

impl Engine {
    /// OpenSM's word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Minhop => "minhop",
            Self::Ftree => "ftree",
            Self::Updn => "updn",
            Self::Dor => "dor",
            Self::Lash => "lash",
            Self::Dfsssp => "dfsssp",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Where forwarding tables come from.
#[derive(Clone, Debug)]
pub enum Routing {
    /// From a routing engine. If that cannot route such a fabric, OpenSM takes minhop.
    Engine(Engine),
    /// From this text, in the format of `opensm-lfts.dump`.
    Tables(String),
}

/// What it is told to do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How it routes.
    pub routing: Routing,
    /// 2 to the power of this many LIDs a port of a host.
    pub lmc: u8,
    /// Roots, by position among the switches, for the engines that want them.
    pub roots: Vec<usize>,
}

/// A running OpenSM. Ended when dropped.
#[derive(Debug)]
pub struct OpenSm {
    child: Child,
    directory: PathBuf,
    log: PathBuf,
    sweeps: usize,
}

impl OpenSm {
    /// Starts it on a node of the simulator and waits until the subnet is up.
    ///
    /// # Errors
    /// [`Failure::Start`] without the Debian packages opensm and libumad2sim0; otherwise that it
    /// ended or does not come up.
    pub fn start(place: &Place, settings: &Settings, node: &str) -> Result<Self, Failure> {
        let directory = place.path().to_path_buf();
        let roots: String = settings
            .roots
            .iter()
            .map(|&root| format!("{:#018x}\n", Net::switch_guid(root)))
            .collect();
        place.write("roots", &roots)?;
        let engine = match &settings.routing {
            Routing::Engine(engine) => engine.name(),
            Routing::Tables(text) => {
                place.write("tables", text)?;
                "file"
            }
        };
        let configuration = configuration(engine, settings.lmc, &directory);
        let configuration = place.write("opensm.conf", &configuration)?;
        let mut command = bound_to_us("opensm");
        command
            .arg("-F")
            .arg(configuration)
            .current_dir(&directory)
            .env("LD_PRELOAD", preload()?)
            .env("IBSIM_SOCKNAME", place.socket_name())
            .env("SIM_HOST", node)
            .env("OSM_TMP_DIR", &directory)
            .env("OSM_CACHE_DIR", &directory);
        // Made empty, for one that ran here before may have left its own.
        let log = place.write("opensm.log", "")?;
        let child = spawn(command, "opensm", &directory.join("opensm.out"))?;
        let mut opensm = Self {
            child,
            directory,
            log,
            sweeps: 0,
        };
        opensm.wait_until_up()?;
        Ok(opensm)
    }

    /// Where `opensm-subnet.lst`, `opensm-lfts.dump`, `guid2lid` and the others are.
    pub fn files(&self) -> &Path {
        &self.directory
    }

    /// Looks at the whole fabric and routes anew; returns when its files are written. Not while a
    /// request is under way.
    ///
    /// # Errors
    /// As [`OpenSm::start`].
    pub fn sweep(&mut self) -> Result<Duration, Failure> {
        let started = Instant::now();
        self.signal(Signal::SIGHUP);
        self.wait_until_up()?;
        Ok(started.elapsed())
    }

    /// The routing engine of the last sweep, which is not the one wished for where that failed.
    ///
    /// # Errors
    /// [`Failure::File`], or [`Failure::Output`] if the log does not say.
    pub fn engine_used(&self) -> Result<String, Failure> {
        let text = self.text()?;
        let line = text.lines().rev().find_map(|line| {
            let (_, rest) = line.split_once(ENGINE)?;
            rest.split_once(ENGINE_END)
        });
        line.map(|(engine, _)| engine.to_owned())
            .ok_or_else(|| Failure::Output {
                source_name: "opensm.log".to_owned(),
                problem: "does not name the routing engine".to_owned(),
            })
    }

    /// How much memory it has, from the kernel's account of the process.
    ///
    /// # Errors
    /// [`Failure::File`], or [`Failure::Output`] if the kernel does not say.
    pub fn resident_bytes(&self) -> Result<u64, Failure> {
        Ok(resident_kib(self.child.id())? * 1024)
    }

    /// How long its threads have run, from the kernel's scheduler statistics (nanoseconds, the first
    /// field of each).
    ///
    /// # Errors
    /// [`Failure::File`].
    pub fn cpu_seconds(&self) -> Result<f64, Failure> {
        let tasks = PathBuf::from(format!("/proc/{}/task", self.child.id()));
        let entries = fs::read_dir(&tasks).map_err(|source| in_file(&tasks, source))?;
        let mut nanoseconds = 0.0;
        for entry in entries.flatten() {
            // A thread that has just ended has no more to say.
            let text = fs::read_to_string(entry.path().join("schedstat")).unwrap_or_default();
            let first = text
                .split(' ')
                .next()
                .and_then(|word| word.parse::<f64>().ok());
            nanoseconds += first.unwrap_or_default();
        }
        Ok(nanoseconds / 1e9)
    }

    fn wait_until_up(&mut self) -> Result<(), Failure> {
        let wanted = self.sweeps + 1;
        let what = format!("sweep {wanted} of opensm");
        self.sweeps = wait::until_often(&what, SWEEP_LIMIT, PERIOD, || {
            let text = self.text().unwrap_or_default();
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(ended("opensm", &status.to_string(), &text));
            }
            let sweeps = text.lines().filter(|line| line.ends_with(UP)).count();
            Ok(match sweeps >= wanted {
                true => Seen::Ready(sweeps),
                false => Seen::NotYet(text.lines().last().unwrap_or_default().to_owned()),
            })
        })?;
        Ok(())
    }

    fn text(&self) -> Result<String, Failure> {
        let bytes = fs::read(&self.log).map_err(|source| in_file(&self.log, source))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn signal(&self, signal: Signal) {
        // It is our child and not waited for, so the number is nobody else's.
        let _ = kill(Pid::from_raw(self.child.id() as i32), signal);
    }
}

impl Drop for OpenSm {
    fn drop(&mut self) {
        self.signal(Signal::SIGTERM);
        let ended = wait::until_often("opensm ends", END_LIMIT, PERIOD, || {
            let ended = matches!(self.child.try_wait(), Ok(Some(_)));
            Ok(Seen::when(ended, || "it runs".to_owned()))
        });
        if ended.is_err() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Everything that it would write goes to the directory. `log_flags` are errors, messages and
/// routing, the last of which makes it write forwarding tables.
fn configuration(engine: &str, lmc: u8, directory: &Path) -> String {
    let directory = directory.display();
    format!(
        "routing_engine {engine}\nlmc {lmc}\nroot_guid_file {directory}/roots\n\
         lfts_file {directory}/tables\nsweep_interval 0\nsweep_on_trap FALSE\nmax_wire_smps 16\n\
         log_file {directory}/opensm.log\nlog_flags 0x43\nforce_log_flush TRUE\n\
         dump_files_dir {directory}\nbabbling_port_policy FALSE\n",
    )
}

/// ibsim's replacement of libibumad, in the system's directory of libraries.
fn preload() -> Result<PathBuf, Failure> {
    let libraries = Path::new("/usr/lib");
    let entries = fs::read_dir(libraries).map_err(|source| in_file(libraries, source))?;
    let places = entries.flatten().map(|entry| entry.path());
    let mut found = places.map(|path| path.join("umad2sim/libumad2sim.so"));
    found
        .find(|path| path.exists())
        .ok_or_else(|| Failure::Start {
            command: "opensm on libumad2sim.so (debian package libumad2sim0)".to_owned(),
            source: std::io::ErrorKind::NotFound.into(),
        })
}
