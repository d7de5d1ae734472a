// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration: TOML files, every key optional, unknown keys refused. Each section has a file
//! of its own here: its keys, their defaults and their limits. Reading them is `read`, and holding
//! names against this host `host`.

mod acm;
mod acm_client;
#[cfg(test)]
mod any_text;
mod association;
mod check;
mod control;
mod finding;
mod fixed;
mod host;
mod kernel;
pub(crate) mod log;
mod neigh;
mod policy;
mod read;
mod section;
mod source;
mod ssa;
#[cfg(test)]
mod tests;

pub(crate) use acm::{Acm, Multicast};
pub(crate) use acm_client::AcmClient;
pub(crate) use association::Association;
pub(crate) use control::Control;
pub(crate) use finding::{ConfigError, Finding};
pub(crate) use fixed::Static;
pub(crate) use kernel::Kernel;
pub(crate) use log::{Log, LogFormat};
pub(crate) use neigh::Neigh;
pub(crate) use policy::Policy;
pub(crate) use source::Source;
pub(crate) use ssa::Ssa;

use std::path::{Path, PathBuf};
use std::time::Duration;

use check::Wrong;
use check::Wrongs;
use read::{Files, Reading};
use section::section;

/// Where the configuration is looked for unless the command line says otherwise.
pub(crate) const DEFAULT_PATH: &str = "/etc/rdma/apmd.toml";

/// Where the sockets are unless the configuration says otherwise.
pub(crate) const DEFAULT_RUNTIME_DIR: &str = "/run/apmd";

section! {
    /// All settings. The default is what `dist/apmd.toml` says.
    Config {
        /// Directory of `apmd.sock` and `observe.sock`. Takes effect at start.
        runtime_dir: PathBuf = PathBuf::from(DEFAULT_RUNTIME_DIR),
        /// Devices to manage; empty: all that have an InfiniBand port. Takes effect at start.
        devices: Vec<String> = Vec::new(),
        /// The daemons' talk with each other.
        association: Association = Association::default(),
        /// When paths are used and left.
        policy: Policy = Policy::default(),
        /// The list of path sources.
        source: Source = Source::default(),
        /// The ACM service that is asked for paths.
        acm_client: AcmClient = AcmClient::default(),
        /// Paths from a file.
        #[serde(rename = "static")]
        fixed: Static = Static::default(),
        /// The fabric as data.
        ssa: Ssa = Ssa::default(),
        /// ACM, served.
        acm: Acm = Acm::default(),
        /// The kernel's neighbours on IPoIB interfaces.
        neigh: Neigh = Neigh::default(),
        /// The kernel module.
        kernel: Kernel = Kernel::default(),
        /// The sockets.
        control: Control = Control::default(),
        /// The log.
        log: Log = Log::default(),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A configuration that is good, and what it was made of.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    /// The settings.
    pub(crate) config: Config,
    /// The files that were read, in this order.
    pub(crate) files: Vec<PathBuf>,
    /// What is good, but may not be what was meant.
    pub(crate) warnings: Vec<Finding>,
}

impl Loaded {
    /// Reads `path`, or the file of the usual place, which need not exist, and then the files of the
    /// directory called after it, in the order of their names. Keys of later files count.
    ///
    /// # Errors
    /// All that is wrong with these files.
    pub(crate) fn read(path: Option<&Path>) -> Result<Self, ConfigError> {
        let files = Files::of(path);
        let Reading { config, warnings } = Reading::of(&files)?;
        Ok(Self {
            config,
            files: files.read.into_iter().map(|file| file.path).collect(),
            warnings,
        })
    }
}

impl Config {
    /// Reads the files as [`Loaded::read`] does.
    ///
    /// # Errors
    /// All that is wrong with them.
    pub(crate) fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        Loaded::read(path).map(|loaded| loaded.config)
    }

    /// What is wrong with values by themselves, beyond their types.
    fn check(&self) -> Vec<Wrong> {
        let mut wrongs = Wrongs::default();
        self.association.check(wrongs.of("association"));
        self.policy.check(wrongs.of("policy"));
        self.source.check(wrongs.of("source"));
        self.acm_client.check(wrongs.of("acm_client"));
        self.fixed.check(wrongs.of("static"));
        self.ssa.check(wrongs.of("ssa"));
        self.acm.check(wrongs.of("acm"));
        self.neigh.check(wrongs.of("neigh"));
        self.kernel.check(wrongs.of("kernel"));
        self.control.check(wrongs.of("control"));
        self.log.check(wrongs.of("log"));
        wrongs.into_found()
    }

    /// What is wrong with values that are good by themselves.
    fn check_together(&self) -> Vec<Wrong> {
        let mut wrongs = Wrongs::default();
        self.acm.check_together(wrongs.of("acm"));
        wrongs.into_found()
    }

    /// The engine's part.
    pub(crate) fn engine(&self) -> statemachine::Config {
        statemachine::Config {
            port_hold_off: Duration::from_millis(self.policy.hold_off_ms),
            connection_limit: self.control.max_connections,
            port_down: self.policy.default.port_down,
            policy: self.policy.default.policy,
            ..statemachine::Config::default()
        }
    }

    /// This configuration, with what takes effect at start only as `running` has it.
    #[must_use]
    pub(crate) fn with_fixed_of(mut self, running: &Self) -> Self {
        self.runtime_dir.clone_from(&running.runtime_dir);
        self.devices.clone_from(&running.devices);
        self.association.class = running.association.class;
        self.acm = self.acm.with_fixed_of(&running.acm);
        self.kernel.allow_unfixed = running.kernel.allow_unfixed;
        self.kernel.strict = running.kernel.strict;
        self.control.group.clone_from(&running.control.group);
        self.log.format = running.log.format;
        self
    }
}
