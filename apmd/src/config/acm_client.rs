// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[acm_client]`: the ACM service that is asked for paths.

use super::check::Wrongs;
use super::section::section;
use crate::io::acm_stream::Place;

section! {
    /// `[acm_client]`
    AcmClient {
        /// Where the service listens: the path of a Unix socket, or `tcp:PORT` of this host; empty:
        /// where ibacm does.
        socket: String = String::new(),
    }
}

impl AcmClient {
    pub(super) fn check(&self, wrongs: &mut Wrongs) {
        wrongs.want(
            self.socket.is_empty() || self.place().is_some(),
            "socket",
            "want a path that begins with a slash, or tcp:PORT, or nothing",
        );
    }

    fn place(&self) -> Option<Place> {
        if let Some(port) = self.socket.strip_prefix("tcp:") {
            return port.parse().ok().filter(|port| *port != 0).map(Place::Tcp);
        }
        let absolute = self.socket.starts_with('/');
        absolute.then(|| Place::Unix(self.socket.clone().into()))
    }

    /// Where the service may listen, in the order in which to try.
    pub(crate) fn places(&self) -> Vec<Place> {
        self.place().map_or_else(Place::usual, |place| vec![place])
    }
}
