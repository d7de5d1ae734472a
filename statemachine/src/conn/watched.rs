// SPDX-License-Identifier: MIT OR Apache-2.0
//! The paths of a connection that are probed.

use core::num::NonZeroU8;

use cm_msgs::path::Path;
use cm_msgs::{Guid, Lid, PKey};

use crate::id::PortId;
use crate::probe::ProbePath;

/// Paths of one connection that are probed at a time: primary, alternate, one that may become the next
/// alternate, and one to which it could return.
const WATCHED_MAX: usize = 4;

/// A path as probes take it, from some port of the connection's device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WatchedPath {
    /// No port is number 0, so a place without a path takes nothing more.
    port: NonZeroU8,
    sl: u8,
    slid: Lid,
    dlid: Lid,
    pkey: PKey,
}

impl WatchedPath {
    /// `None`: probes cannot take it, since their answers would need a GRH, or no port is named.
    pub(super) fn new(path: &Path) -> Option<Self> {
        let port = NonZeroU8::new(path.port).filter(|_| !path.global)?;
        Some(Self {
            port,
            sl: path.sl,
            slid: path.slid,
            dlid: path.dlid,
            pkey: path.pkey,
        })
    }

    pub(super) fn of_device(self, node_guid: Guid) -> ProbePath {
        let Self {
            port,
            sl,
            slid,
            dlid,
            pkey,
        } = self;
        ProbePath {
            port: PortId::new(node_guid, port.get()),
            slid,
            dlid,
            sl,
            pkey,
        }
    }
}

/// The paths of a connection that are probed.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Watched {
    paths: [Option<WatchedPath>; WATCHED_MAX],
    /// The alternate, if it was suspect when it was probed last: without an association nobody probes it, and a
    /// black hole does not end by that.
    pub(super) suspect: Option<WatchedPath>,
}

impl Watched {
    /// No path yet; the alternate, if it is suspect.
    pub(super) fn with_suspect(suspect: Option<WatchedPath>) -> Self {
        Self {
            suspect,
            ..Self::default()
        }
    }

    pub(super) fn has(&self, path: &WatchedPath) -> bool {
        self.iter().any(|watched| watched == path)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &WatchedPath> {
        self.paths.iter().flatten()
    }

    /// One more, if it is another and there is a place.
    pub(super) fn add(&mut self, path: Option<WatchedPath>) {
        let new = path.filter(|path| !self.has(path));
        if let (Some(new), Some(place)) = (new, self.paths.iter_mut().find(|place| place.is_none()))
        {
            *place = Some(new);
        }
    }
}
