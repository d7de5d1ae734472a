// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many descriptors the process may have, and whether they are enough.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::config::Acm;

/// What is to be left for devices, libraries and operators.
const OTHERS: u64 = 256;

/// A descriptor for each library and each client of ACM: as many as the administrator allows.
pub(super) fn raise_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(%error, "descriptor limit not raised");
    }
}

/// What is wrong if ACM's clients may be so many that they leave none for others.
pub(super) fn too_few(acm: &Acm) -> Option<String> {
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let clients = u64::try_from(acm.max_clients).unwrap_or(u64::MAX);
    let enough = clients.saturating_add(OTHERS) <= limit;
    (acm.serve && !enough).then(|| {
        format!(
            "max_clients of [acm] is {clients}, but the process may have {limit} descriptors, \
             {OTHERS} of them for others: raise LimitNOFILE"
        )
    })
}

/// Says so in the log.
pub(super) fn warn_of_too_few(acm: &Acm) {
    if let Some(problem) = too_few(acm) {
        tracing::warn!("{problem}");
    }
}
