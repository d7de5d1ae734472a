// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals as events.

use std::io;

use mio::{Interest, Registry};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::token::Token;

/// What a signal asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Request {
    /// End.
    Stop,
    /// Read the configuration again.
    Reload,
}

/// The signals that the daemon listens to.
pub(super) struct Signals {
    signals: signal_hook_mio::v1_0::Signals,
}

impl Signals {
    /// Starts to listen.
    ///
    /// # Errors
    /// The system says no.
    pub(super) fn listen(registry: &Registry) -> io::Result<Self> {
        let mut signals = signal_hook_mio::v1_0::Signals::new([SIGTERM, SIGINT, SIGHUP])?;
        registry.register(&mut signals, Token::Signals.into(), Interest::READABLE)?;
        Ok(Self { signals })
    }

    /// What came since the last time.
    pub(super) fn take(&mut self) -> Vec<Request> {
        let request = |signal| {
            if signal == SIGHUP {
                Request::Reload
            } else {
                Request::Stop
            }
        };
        self.signals.pending().map(request).collect()
    }
}
