// SPDX-License-Identifier: MIT OR Apache-2.0
//! ibacm's data files, read as they are for the served ACM. None need exist.

use std::io;
use std::path::{Path, PathBuf};

use acm::Naming;
use acm::files::{self, Parsed};
use cm_msgs::Gid;
use cm_msgs::sa::PathRecord;

use crate::config;
use crate::io::text_file;

/// A line for each of a million paths.
const SIZE_LIMIT: u64 = 256 << 20;

/// What the ports are called; `None`: there is no file of names.
pub(super) fn names(config: &config::Acm) -> Option<Vec<Naming>> {
    let path = config.data_file("ibacm_addr.cfg")?;
    let text = text(&path)?;
    Some(understood(&path, files::names(&text)))
}

/// Where addresses are.
pub(super) fn addresses(config: &config::Acm) -> pathdb::Addresses {
    let path = config.data_file("ibacm_hosts.data");
    let there = path.filter(|path: &PathBuf| path.exists());
    let read = there.map(|path| {
        tracing::info!(path = %path.display(), "file of ibacm's read");
        pathdb::Addresses::read(&path)
    });
    read.transpose()
        .inspect_err(|error| tracing::error!(%error, "addresses not taken"))
        .unwrap_or_default()
        .unwrap_or_default()
}

/// The paths that start from these ports.
pub(super) fn routes(config: &config::Acm, from: &[Gid]) -> Vec<PathRecord> {
    let path = config.data_file("ibacm_route.data");
    let path = path.filter(|_| !from.is_empty());
    let said = path.and_then(|path| Some((text(&path)?, path)));
    said.map_or_else(Vec::new, |(text, path)| {
        understood(&path, files::routes(&text, from))
    })
}

/// The text of a file that there need not be.
fn text(path: &Path) -> Option<String> {
    match text_file::read_any(path, SIZE_LIMIT) {
        Ok(text) => {
            tracing::info!(path = %path.display(), "file of ibacm's read");
            Some(text)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::error!(path = %path.display(), %error, "file of ibacm's not read");
            None
        }
    }
}

/// Lines of a file that are told of, when they are skipped.
const TOLD: usize = 8;

/// What the file says; what was skipped is told, up to a limit.
fn understood<T>(path: &Path, parsed: Parsed<T>) -> T {
    let (path, lines) = (path.display(), parsed.skipped.len());
    for (line, what) in parsed.skipped.iter().take(TOLD) {
        tracing::warn!(%path, line, what, lines, "not understood: skipped");
    }
    parsed.value
}
