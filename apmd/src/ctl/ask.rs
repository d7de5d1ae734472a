// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asks the daemon.

use std::time::Duration;

use serde::de::DeserializeOwned;

use super::socket::{self, Unreachable};
use super::{Failure, Options};
use crate::io::seqpacket::Receive;
use crate::observe::CHUNK;
use crate::observe::request::{Refused, Request};

/// For how long the daemon may be silent. It answers within milliseconds unless it is stuck.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The daemon's answer.
///
/// # Errors
/// It cannot be reached, refuses the request, or answers something else.
pub(super) fn ask<T: DeserializeOwned>(
    options: &Options,
    request: impl Into<Request>,
) -> Result<T, Failure> {
    ask_within(options, request, PATIENCE)
}

/// The same with another patience.
pub(super) fn ask_within<T: DeserializeOwned>(
    options: &Options,
    request: impl Into<Request>,
    patience: Duration,
) -> Result<T, Failure> {
    let path = socket::of_operators(options);
    let unreachable = |error| Unreachable::new(&path, patience, error);
    let packets = socket::connect(&path, patience)?;
    let request = serde_json::to_vec(&request.into());
    let request = request.map_err(|error| Failure::Failed(error.to_string()))?;
    packets.send(&request).map_err(unreachable)?;
    let mut answer = Vec::new();
    let mut buffer = vec![0; CHUNK];
    loop {
        match packets.receive(&mut buffer).map_err(unreachable)? {
            Receive::Packet(len) => answer.extend_from_slice(&buffer[..len.min(CHUNK)]),
            Receive::Nothing => Err(Unreachable::Silent {
                path: path.clone(),
                patience,
            })?,
            Receive::End => break,
        }
    }
    serde_json::from_slice(&answer).map_err(|error| {
        let refused = serde_json::from_slice(&answer);
        Failure::Failed(match refused {
            Ok(Refused { error }) => error,
            Err(_) => format!("{}: answer not understood: {error}", path.display()),
        })
    })
}
