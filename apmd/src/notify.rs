// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tells systemd how the service is (`sd_notify(3)`). Without systemd, nothing.

use sd_notify::NotifyState;

/// What there is to tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// The sockets are open.
    Ready,
    /// The configuration is being read again; `Ready` follows.
    Reloading,
    /// The end has begun.
    Stopping,
}

/// Tells it. A service manager that does not listen is no reason to stop.
pub(crate) fn notify(state: State) {
    let told = match state {
        State::Ready => sd_notify::notify(&[NotifyState::Ready]),
        State::Reloading => NotifyState::monotonic_usec_now()
            .and_then(|now| sd_notify::notify(&[NotifyState::Reloading, now])),
        State::Stopping => sd_notify::notify(&[NotifyState::Stopping]),
    };
    if let Err(error) = told {
        tracing::warn!(%error, "service manager not told");
    }
}
