// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration file: TOML, every key optional, unknown keys refused. Each section has a file
//! of its own here: its keys, their defaults and their limits.

mod acm;
mod acm_client;
mod acm_multicast;
mod association;
mod control;
mod fixed;
mod log;
mod neigh;
mod policy;
mod ports;
mod sa;
mod source;
mod ssa;
#[cfg(test)]
mod tests;
mod timers;

pub use acm::{Acm, Tcp};
pub use acm_client::AcmClient;
pub use acm_multicast::{AcmMulticast, Prot};
pub use association::Association;
pub use control::Control;
pub use fixed::Static;
pub use log::{Log, LogFormat};
pub use neigh::Neigh;
pub use policy::Policy;
pub use ports::{PortSource, Ports};
pub use sa::{AllPaths, Sa};
pub use source::{Source, SourceName};
pub use ssa::Ssa;
pub use timers::Timers;

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toml::de::DeTable;

/// Where the configuration is looked for unless the command line says otherwise.
pub const DEFAULT_PATH: &str = "/etc/rdma/apmd.toml";

/// Where the sockets are unless the configuration says otherwise.
pub const DEFAULT_RUNTIME_DIR: &str = "/run/apmd";

/// All settings. The default is what `dist/apmd.toml` says.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Directory of `apmd.sock` and `observe.sock`. Takes effect at start.
    pub runtime_dir: PathBuf,
    /// Devices to look after; empty: all that have an InfiniBand port. Takes effect at start.
    pub devices: Vec<String>,
    /// The daemons' talk with each other.
    pub association: Association,
    /// Retries and limits of the engine.
    pub timers: Timers,
    /// Local ports.
    pub ports: Ports,
    /// What to do by itself.
    pub policy: Policy,
    /// The list of path sources.
    pub source: Source,
    /// Questions to subnet administration.
    pub sa: Sa,
    /// The ACM service that is asked for paths.
    pub acm_client: AcmClient,
    /// Paths from a file.
    #[serde(rename = "static")]
    pub fixed: Static,
    /// The fabric as data.
    pub ssa: Ssa,
    /// ACM, served.
    pub acm: Acm,
    /// Addresses resolved between the ACM services of hosts.
    pub acm_multicast: AcmMulticast,
    /// The kernel's neighbours on IPoIB interfaces.
    pub neigh: Neigh,
    /// The sockets.
    pub control: Control,
    /// The log.
    pub log: Log,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            runtime_dir: PathBuf::from(DEFAULT_RUNTIME_DIR),
            devices: Vec::new(),
            association: Association::default(),
            timers: Timers::default(),
            ports: Ports::default(),
            policy: Policy::default(),
            source: Source::default(),
            sa: Sa::default(),
            acm_client: AcmClient::default(),
            fixed: Static::default(),
            ssa: Ssa::default(),
            acm: Acm::default(),
            acm_multicast: AcmMulticast::default(),
            neigh: Neigh::default(),
            control: Control::default(),
            log: Log::default(),
        }
    }
}

/// What a section's check finds.
pub(crate) type Check = Result<(), Wrong>;

/// A value that is of the right type and still no good.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wrong {
    /// The key in its section.
    key: &'static str,
    /// The value, if it is a number.
    value: Option<String>,
    /// What would be good.
    pub(crate) what: Cow<'static, str>,
}

impl Display for Wrong {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(value) = &self.value {
            write!(f, "is {value}, ")?;
        }
        f.write_str(&self.what)
    }
}

/// Refuses the value of `key` unless it is `good`; `what` says what would be.
fn want(good: bool, key: &'static str, what: &'static str) -> Check {
    if good {
        return Ok(());
    }
    Err(Wrong {
        key,
        value: None,
        what: what.into(),
    })
}

/// Refuses the number of `key` out of `range`, which `dist/apmd.toml` says as well.
fn want_within<N>(number: N, range: RangeInclusive<N>, key: &'static str) -> Check
where
    N: PartialOrd + Display,
{
    let what = || format!("want {} to {}", range.start(), range.end()).into();
    want_number(range.contains(&number), &number, key, what)
}

/// Refuses the number of `key` unless it is `good`.
fn want_number(
    good: bool,
    number: impl Display,
    key: &'static str,
    what: impl FnOnce() -> Cow<'static, str>,
) -> Check {
    if good {
        return Ok(());
    }
    Err(Wrong {
        key,
        value: Some(number.to_string()),
        what: what(),
    })
}

/// The access mode of a socket.
fn want_mode(mode: u32, key: &'static str) -> Check {
    let good = mode <= 0o777;
    want_number(good, format_args!("{mode:#o}"), key, || {
        "want 0 to 0o777".into()
    })
}

/// The path of a file that there need not be.
fn want_absolute_or_none(path: &Path, key: &'static str) -> Check {
    want(
        path.as_os_str().is_empty() || path.is_absolute(),
        key,
        "want a path that begins with a slash, or nothing",
    )
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("{}:{line}: {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The key and what is wrong with it.
        what: String,
    },
}

impl Config {
    /// Reads `path`, or the file of the usual place, which need not exist.
    ///
    /// # Errors
    /// A named file that is missing; a file that cannot be read or says what it must not.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        let (file, named) = match path {
            Some(path) => (path, true),
            None => (Path::new(DEFAULT_PATH), false),
        };
        match std::fs::read_to_string(file) {
            Ok(text) => Self::parse(file, &text),
            Err(error) if !named && error.kind() == std::io::ErrorKind::NotFound => {
                Ok(Self::default())
            }
            Err(error) => Err(ConfigError::Read {
                path: file.to_owned(),
                error,
            }),
        }
    }

    /// Reads the text of `path`.
    ///
    /// # Errors
    /// The text says what it must not.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            content(path, text, at, error.message())
        })?;
        config.check().map_err(|(section, wrong)| {
            let at = place(text, section, wrong.key);
            content(path, text, at, &wrong.to_string())
        })?;
        Ok(config)
    }

    /// What types alone cannot say.
    fn check(&self) -> Result<(), (&'static str, Wrong)> {
        self.association.check().map_err(|e| ("association", e))?;
        self.timers.check().map_err(|e| ("timers", e))?;
        self.ports.check().map_err(|e| ("ports", e))?;
        self.source.check().map_err(|e| ("source", e))?;
        self.sa.check().map_err(|e| ("sa", e))?;
        self.acm_client.check().map_err(|e| ("acm_client", e))?;
        self.fixed.check().map_err(|e| ("static", e))?;
        self.ssa.check().map_err(|e| ("ssa", e))?;
        self.acm.check().map_err(|e| ("acm", e))?;
        self.acm_multicast
            .check()
            .map_err(|e| ("acm_multicast", e))?;
        self.neigh.check().map_err(|e| ("neigh", e))?;
        self.control.check().map_err(|e| ("control", e))?;
        self.log.check().map_err(|e| ("log", e))
    }

    /// The engine's part.
    pub fn engine(&self) -> statemachine::Config {
        let Timers {
            retry_ms,
            jitter_percent,
            tries,
            backoff_ms,
            backoff_max_ms,
            suspect_ms,
            order_ms,
        } = self.timers;
        statemachine::Config {
            retry_first: Duration::from_millis(retry_ms),
            jitter_percent,
            tries,
            backoff_first: Duration::from_millis(backoff_ms),
            backoff_max: Duration::from_millis(backoff_max_ms),
            parked_limit: self.association.parked_limit,
            parked_for: Duration::from_millis(self.association.parked_ms),
            port_hold_off: Duration::from_millis(self.ports.hold_off_ms),
            suspect_hold_off: Duration::from_millis(suspect_ms),
            order_timeout: Duration::from_millis(order_ms),
            connection_limit: self.control.max_connections,
            migrate_on_port_down: self.policy.migrate_on_port_down,
            ..statemachine::Config::default()
        }
    }

    /// This configuration, with what takes effect at start only as `running` has it.
    #[must_use]
    pub fn with_fixed_of(mut self, running: &Self) -> Self {
        self.runtime_dir.clone_from(&running.runtime_dir);
        self.devices.clone_from(&running.devices);
        self.association.class = running.association.class;
        self.acm = self.acm.with_fixed_of(&running.acm);
        self.control.group.clone_from(&running.control.group);
        self.control.mode = running.control.mode;
        self.log.format = running.log.format;
        self
    }

    /// Whether `name` is one of the devices to look after.
    pub fn wants_device(&self, name: &str) -> bool {
        self.devices.is_empty() || self.devices.iter().any(|device| device == name)
    }

    /// Whether ports are watched by `source`.
    pub fn watches_by(&self, source: PortSource) -> bool {
        self.ports.sources.contains(&source)
    }
}

/// Where the key of a section is in the text, which is good TOML.
fn place(text: &str, section: &str, key: &str) -> usize {
    let document = DeTable::parse(text).ok();
    let section = document.as_ref().and_then(|document| {
        let section = document.get_ref().get(section)?;
        section.get_ref().as_table()
    });
    section
        .and_then(|section| section.keys().find(|name| name.get_ref() == key))
        .map_or(0, |name| name.span().start)
}

/// An error at a place in the text, in one line: file, line, key, what.
fn content(path: &Path, text: &str, at: usize, what: &str) -> ConfigError {
    let before = text.get(..at).unwrap_or("");
    let line = before.matches('\n').count() + 1;
    let here = text.lines().nth(line - 1).unwrap_or("");
    let what = what.trim().replace('\n', " ");
    let what = match here.split_once('=') {
        Some((key, _)) => format!("{}: {what}", key.trim()),
        None => what,
    };
    ConfigError::Content {
        path: path.to_owned(),
        line,
        what,
    }
}
