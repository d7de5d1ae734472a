// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration in effect, and how it is read again.

use std::path::PathBuf;

use crate::config::Config;
use crate::counters::ConfigurationCounters;
use crate::logging::LogHandle;
use crate::reload::Reload;

pub(super) struct Configuration {
    pub(super) config: Config,
    /// Where it came from, as named on the command line.
    path: Option<PathBuf>,
    pub(super) log: LogHandle,
    pub(super) reload: Reload,
    pub(super) counters: ConfigurationCounters,
}

impl Configuration {
    pub(super) fn new(config: Config, path: Option<PathBuf>, log: LogHandle) -> Self {
        Self {
            config,
            path,
            log,
            reload: Reload::default(),
            counters: ConfigurationCounters::default(),
        }
    }

    /// Takes over the files as they are now, or keeps what is in effect if they are no good. Whether
    /// there is something new.
    pub(super) fn read_again(&mut self) -> bool {
        let config = match Config::load(self.path.as_deref()) {
            Ok(config) => config,
            Err(error) => {
                self.counters.failed_reloads += 1;
                self.reload.refuse(&error);
                tracing::error!(%error, "configuration refused, the one before stays in effect");
                return false;
            }
        };
        self.counters.reloads += 1;
        self.log.reload(&config.log);
        let running = config.clone().with_fixed_of(&self.config);
        self.reload.take(&config, &running);
        self.config = running;
        tracing::info!("configuration read again");
        if let Some(keys) = self.reload.needs_restart() {
            tracing::warn!(keys, "takes effect with the next restart only");
        }
        true
    }
}
