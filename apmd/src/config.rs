// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration file: TOML, every key optional, unknown keys refused.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

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
    /// Path queries to subnet administration.
    pub sa: Sa,
    /// The sockets.
    pub control: Control,
    /// The log.
    pub log: Log,
}

/// `[association]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Association {
    /// Management class of the association MADs; the same on all hosts. Takes effect at start.
    pub class: u8,
    /// REQs kept for applications that have not registered yet.
    pub parked_limit: usize,
    /// How long such a REQ is kept.
    pub parked_ms: u64,
}

/// `[timers]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timers {
    /// Wait for an answer to the first copy of a MAD; doubles with every further copy.
    pub retry_ms: u64,
    /// Every wait is spread by up to this many percent both ways.
    pub jitter_percent: u8,
    /// Copies of a MAD before it is given up.
    pub tries: u8,
    /// First pause after giving up; doubles with every failure in a row.
    pub backoff_ms: u64,
    /// The longest pause.
    pub backoff_max_ms: u64,
    /// How long a path that hardware left without a visible cause is chosen last.
    pub suspect_ms: u64,
    /// How long a library may take over an order.
    pub order_ms: u64,
}

/// `[ports]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ports {
    /// What is listened to for the loss of a port.
    pub sources: Vec<PortSource>,
    /// How long a port must stay up before paths over it are loaded.
    pub hold_off_ms: u64,
}

/// A way to notice that a port is lost. Each is sufficient.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortSource {
    /// Asynchronous events of the verbs device.
    Verbs,
    /// PortInfo read now and then.
    Umad,
    /// Carrier of the port's IPoIB interface.
    Netlink,
}

/// `[policy]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Migrate armed connections when their local port goes down, without waiting for the
    /// hardware's retries.
    pub migrate_on_port_down: bool,
}

/// `[sa]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sa {
    /// Path queries under way at the same time.
    pub in_flight: usize,
    /// Wait for the answer to the first copy of a query; doubles with every further copy.
    pub timeout_ms: u32,
    /// Copies of a query before it is given up.
    pub tries: u8,
}

/// `[control]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Control {
    /// Group that may use the sockets, if it exists. Takes effect at start.
    pub group: String,
    /// Access mode of the sockets. Takes effect at start.
    pub mode: u32,
    /// A library may register only queue pairs that the kernel says its process owns.
    pub verify_owner: bool,
    /// Connections looked after at the same time.
    pub max_connections: usize,
}

/// `[log]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// A level, or a filter in the form of `RUST_LOG`, which overrides it.
    pub level: String,
    /// One line of text or one JSON object an event. Takes effect at start.
    pub format: LogFormat,
}

/// The form of a log line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people and journals.
    Text,
    /// For machines.
    Json,
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
            sa: Sa::default(),
            control: Control::default(),
            log: Log::default(),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Default for Association {
    fn default() -> Self {
        let engine = statemachine::Config::default();
        Self {
            class: cm_msgs::mad::CLASS_APM,
            parked_limit: engine.parked_limit,
            parked_ms: millis(engine.parked_for),
        }
    }
}

impl Default for Timers {
    fn default() -> Self {
        let engine = statemachine::Config::default();
        Self {
            retry_ms: millis(engine.retry_first),
            jitter_percent: engine.jitter_percent,
            tries: engine.tries,
            backoff_ms: millis(engine.backoff_first),
            backoff_max_ms: millis(engine.backoff_max),
            suspect_ms: millis(engine.suspect_hold_off),
            order_ms: millis(engine.order_timeout),
        }
    }
}

impl Default for Ports {
    fn default() -> Self {
        Self {
            sources: vec![PortSource::Verbs, PortSource::Umad, PortSource::Netlink],
            hold_off_ms: millis(statemachine::Config::default().port_hold_off),
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            migrate_on_port_down: statemachine::Config::default().migrate_on_port_down,
        }
    }
}

impl Default for Sa {
    fn default() -> Self {
        Self {
            in_flight: 32,
            timeout_ms: 200,
            tries: 5,
        }
    }
}

impl Default for Control {
    fn default() -> Self {
        Self {
            group: "rdma".to_owned(),
            mode: 0o660,
            verify_owner: true,
            max_connections: statemachine::Config::default().connection_limit,
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
            format: LogFormat::Text,
        }
    }
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
        config.check().map_err(|(key, what)| {
            let at = text.find(key).unwrap_or(0);
            content(path, text, at, what)
        })?;
        Ok(config)
    }

    /// What types alone cannot say.
    fn check(&self) -> Result<(), (&'static str, &'static str)> {
        // IBA table 102: 0x09..=0x0f are vendors' and 0x10..=0x2f applications' classes. Vendors'
        // 0x30..=0x4f would need an OUI. The CM's own, 0x07, is for kernels that leave it free.
        if !matches!(self.association.class, 0x07 | 0x09..=0x2f) {
            return Err(("class", "want an application class, 0x09 to 0x2f, or 0x07"));
        }
        if self.timers.jitter_percent > 90 {
            return Err(("jitter_percent", "want at most 90"));
        }
        if self.timers.retry_ms == 0 {
            return Err(("retry_ms", "want at least 1"));
        }
        if self.timers.backoff_ms == 0 {
            return Err(("backoff_ms", "want at least 1"));
        }
        if self.timers.tries == 0 || self.sa.tries == 0 {
            return Err(("tries", "want at least 1"));
        }
        if self.sa.in_flight == 0 {
            return Err(("in_flight", "want at least 1"));
        }
        if self.sa.timeout_ms == 0 {
            return Err(("timeout_ms", "want at least 1"));
        }
        if self.ports.sources.is_empty() {
            return Err(("sources", "want at least one of verbs, umad, netlink"));
        }
        if self.control.mode > 0o777 {
            return Err(("mode", "want an access mode, such as 0o660"));
        }
        if crate::logging::filter(&self.log.level).is_err() {
            return Err((
                "level",
                "want error, warn, info, debug, trace, or target=level,...",
            ));
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("t.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn the_template_says_the_defaults() {
        let template = include_str!("../dist/apmd.toml");
        assert_eq!(parse(template).unwrap(), Config::default());
        // With every setting's comment sign taken away it still says the same.
        let spoken: String = template
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(setting) if !setting.starts_with(' ') => format!("{setting}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        assert_eq!(parse(&spoken).unwrap(), Config::default());
        let keys = toml::Table::try_from(Config::default()).unwrap();
        for (section, value) in &keys {
            let inner = value
                .as_table()
                .map(|table| table.keys().cloned().collect());
            for key in inner.unwrap_or_else(|| vec![section.clone()]) {
                let setting = format!("\n{key} = ");
                assert!(
                    spoken.contains(&setting),
                    "{section}.{key} is not in the template"
                );
            }
        }
    }

    #[test]
    fn nothing_means_the_defaults() {
        assert_eq!(parse(""), Ok(Config::default()));
    }

    #[test]
    fn errors_name_line_and_key() {
        assert_eq!(
            parse("\n[ports]\nholdoff_ms = 3\n").unwrap_err(),
            "t.toml:3: holdoff_ms: unknown field `holdoff_ms`, expected `sources` or `hold_off_ms`"
        );
        assert!(
            parse("devices = 4")
                .unwrap_err()
                .starts_with("t.toml:1: devices: invalid type")
        );
        assert_eq!(
            parse("[association]\nclass = 0x33").unwrap_err(),
            "t.toml:2: class: want an application class, 0x09 to 0x2f, or 0x07"
        );
        assert!(
            parse("[log]\nlevel = \"=nonsense=\"")
                .unwrap_err()
                .starts_with("t.toml:2: level")
        );
        assert!(
            parse("[ports]\nsources = [\"sysfs\"]")
                .unwrap_err()
                .starts_with("t.toml:2: sour")
        );
        assert!(parse("a = [").unwrap_err().starts_with("t.toml:1: "));
    }

    #[test]
    fn settings_reach_the_engine() {
        let text = "[policy]\nmigrate_on_port_down = false\n[ports]\nhold_off_ms = 20\n";
        let engine = parse(text).unwrap().engine();
        assert!(!engine.migrate_on_port_down);
        assert_eq!(engine.port_hold_off, Duration::from_millis(20));
        assert_eq!(Config::default().engine(), statemachine::Config::default());
    }
}
