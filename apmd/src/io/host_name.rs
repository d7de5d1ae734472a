// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this host is called.

use cm_msgs::acm::Name;

/// The host's name up to the first dot; `None` for one that ACM has no room for.
pub(crate) fn host_name() -> Option<Name> {
    let name = nix::unistd::gethostname().ok()?.into_string().ok()?;
    Name::new(name.split('.').next()?).ok()
}
