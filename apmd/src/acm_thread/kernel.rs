// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's path requests.

use acm::kernel::{Request, refusal};
use mio::Registry;

use super::opened::Opened;
use super::token::Token;
use crate::io::ls::Ls;
use crate::io::watched;

/// Without it ACM serves its other clients.
#[derive(Debug)]
pub(super) struct Kernel {
    registry: Registry,
    socket: Opened<Ls>,
}

impl Kernel {
    pub(super) fn open(wanted: bool, registry: Registry) -> Self {
        let mut kernel = Self {
            registry,
            socket: Opened::Unwanted,
        };
        if wanted {
            kernel.listen();
        }
        kernel
    }

    fn listen(&mut self) {
        let opened = Ls::open().and_then(|ls| watched(ls, &self.registry, Token::Kernel));
        if let Err(error) = &opened {
            tracing::warn!(%error, "the kernel's path requests cannot be heard");
        }
        self.socket = Opened::from(Some(opened));
    }

    /// Listens again where that failed.
    pub(super) fn listen_again(&mut self) {
        if self.socket.failure().is_some() {
            self.listen();
        }
    }

    pub(super) fn is_heard(&self) -> bool {
        self.socket.get().is_some()
    }

    pub(super) fn failure(&self) -> Option<&str> {
        self.socket.failure()
    }

    /// The next path request. Whether the kernel is still heard is to be asked after the last.
    pub(super) fn receive(&mut self) -> Option<Request> {
        loop {
            let ls = self.socket.get()?;
            let message = match ls.receive() {
                Ok(message) => message?,
                Err(error) => {
                    tracing::error!(%error, "the kernel's path requests are no longer heard");
                    self.socket = Opened::Failed(error.to_string());
                    return None;
                }
            };
            match Request::decode(&message) {
                Ok(request) => return Some(request),
                Err((sequence, error)) => {
                    tracing::debug!(%error, "message of the kernel not understood");
                    if let Some(sequence) = sequence {
                        self.send(&refusal(sequence));
                    }
                }
            }
        }
    }

    pub(super) fn send(&self, answer: &[u8]) {
        if let Some(Err(error)) = self.socket.get().map(|ls| ls.send(answer)) {
            tracing::debug!(%error, "answer to the kernel not sent");
        }
    }
}
