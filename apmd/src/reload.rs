// SPDX-License-Identifier: MIT OR Apache-2.0
//! What became of the last attempt to read the configuration again.

use serde_json::{Map, Value};

use crate::config::{Config, ConfigError};

/// Until the next attempt, operators see what it left undone.
#[derive(Debug, Default)]
pub(crate) struct Reload {
    refused: Option<String>,
    needs_restart: Vec<String>,
}

impl Reload {
    pub(crate) fn refuse(&mut self, error: &ConfigError) {
        self.refused = Some(error.to_string());
    }

    /// The file now says `new`, and `running` is what of it is in effect.
    pub(crate) fn take(&mut self, new: &Config, running: &Config) {
        self.refused = None;
        self.needs_restart = differing_keys(new, running);
    }

    /// Why the file was refused.
    pub(crate) fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Keys whose values take effect with a restart only.
    pub(crate) fn needs_restart(&self) -> Option<String> {
        (!self.needs_restart.is_empty()).then(|| self.needs_restart.join(", "))
    }
}

/// The keys in which two configurations differ, such as `acm.serve`.
fn differing_keys(one: &Config, other: &Config) -> Vec<String> {
    let table = |config| match serde_json::to_value(config) {
        Ok(Value::Object(table)) => table,
        Ok(_) | Err(_) => Map::new(),
    };
    let mut keys = Vec::new();
    compare("", &table(one), &table(other), &mut keys);
    keys
}

fn compare(
    section: &str,
    one: &Map<String, Value>,
    other: &Map<String, Value>,
    keys: &mut Vec<String>,
) {
    for (key, value) in one {
        let key = format!("{section}{key}");
        match (value, other.get(&key[section.len()..])) {
            (Value::Object(one), Some(Value::Object(other))) => {
                compare(&format!("{key}."), one, other, keys);
            }
            (value, other) if other != Some(value) => keys.push(key),
            _ => {}
        }
    }
}
