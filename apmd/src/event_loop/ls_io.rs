// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's path requests.

use std::io;
use std::os::fd::AsRawFd;

use mio::unix::SourceFd;
use mio::{Interest, Registry};

use super::Daemon;
use super::opened::Opened;
use super::token::Token;
use crate::acm::kernel;
use crate::io::ls::Ls;

/// Hears them. If that cannot be, it is logged, and the daemon does without.
pub(super) fn open(registry: &Registry) -> io::Result<Ls> {
    let ls = Ls::open().and_then(|ls| {
        let fd = ls.as_raw_fd();
        registry.register(&mut SourceFd(&fd), Token::Ls.into(), Interest::READABLE)?;
        Ok(ls)
    });
    ls.inspect_err(|error| tracing::warn!(%error, "the kernel's path requests cannot be heard"))
}

impl Daemon {
    /// The kernel wants paths.
    pub(super) fn kernel_requests(&mut self) {
        let now = self.clock.now();
        let Some(acm) = self.acm.as_mut() else { return };
        let Some(ls) = acm.ls.get() else { return };
        loop {
            let message = match ls.receive() {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(%error, "the kernel's path requests are no longer heard");
                    acm.ls = Opened::Failed(error.to_string());
                    break;
                }
            };
            match kernel::Request::decode(&message) {
                Ok(request) => acm.service.handle_kernel(now, request),
                Err((sequence, error)) => {
                    tracing::debug!(%error, "message of the kernel not understood");
                    if let Some(sequence) = sequence {
                        let _ = ls.send(&kernel::refusal(sequence));
                    }
                }
            }
        }
        self.drain_acm();
    }
}
