// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tells systemd how the service is (`sd_notify(3)`). Without systemd, nothing.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// What there is to tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The sockets are open.
    Ready,
    /// The configuration is being read again; `Ready` follows.
    Reloading,
    /// The end has begun.
    Stopping,
}

/// Tells it. A service manager that does not listen is no reason to stop.
pub fn notify(state: State) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let text = match state {
        State::Ready => "READY=1\n".to_owned(),
        State::Reloading => format!("RELOADING=1\nMONOTONIC_USEC={}\n", monotonic_usec()),
        State::Stopping => "STOPPING=1\n".to_owned(),
    };
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let sent = address
        .and_then(|address| UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!(%error, "service manager not told");
    }
}

fn monotonic_usec() -> u128 {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
        .map_or(0, |now| std::time::Duration::from(now).as_micros())
}
