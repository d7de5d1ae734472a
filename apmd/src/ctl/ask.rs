// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asks the daemon.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::socket::{self, Unreachable};
use super::{Failure, Options};
use crate::io::seqpacket::{Packets, Receive};
use crate::observe::CHUNK;
use crate::observe::request::{Asked, Refused, Request};

/// For how long the daemon may be silent. It answers within milliseconds unless it is stuck.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The daemon's answer.
///
/// # Errors
/// It cannot be reached, refuses the request, or answers something else.
pub(super) fn ask<T: DeserializeOwned>(
    options: &Options,
    request: impl Into<Asked>,
) -> Result<T, Failure> {
    ask_within(options, request, PATIENCE)
}

/// The same with another patience.
pub(super) fn ask_within<T: DeserializeOwned>(
    options: &Options,
    request: impl Into<Asked>,
    patience: Duration,
) -> Result<T, Failure> {
    let (path, packets) = send(options, request.into(), patience)?;
    let unreachable = |error| Unreachable::new(&path, patience, error);
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
    read(&path, &answer)
}

/// Connects and asks.
fn send(
    options: &Options,
    request: Asked,
    patience: Duration,
) -> Result<(PathBuf, Packets), Failure> {
    let path = socket::of_operators(options);
    let packets = socket::connect(&path, patience)?;
    let request = serde_json::to_vec(&request);
    let request = request.map_err(|error| Failure::Failed(error.to_string()))?;
    let sent = packets.send(&request);
    sent.map_err(|error| Unreachable::new(&path, patience, error))?;
    Ok((path, packets))
}

fn read<T: DeserializeOwned>(path: &Path, answer: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(answer).map_err(|error| {
        let refused = serde_json::from_slice(answer);
        Failure::Failed(match refused {
            Ok(Refused { error }) => error,
            Err(_) => format!("{}: answer not understood: {error}", path.display()),
        })
    })
}

/// An answer that goes on: each packet is a value. For the first one the daemon has `patience`.
pub(super) struct Stream {
    path: PathBuf,
    packets: Packets,
    patience: Option<Duration>,
    buffer: Vec<u8>,
}

impl Stream {
    pub(super) fn open(
        options: &Options,
        request: Request,
        patience: Duration,
    ) -> Result<Self, Failure> {
        let (path, packets) = send(options, request.into(), patience)?;
        Ok(Self {
            path,
            packets,
            patience: Some(patience),
            buffer: vec![0; CHUNK],
        })
    }

    /// The next value, however long it takes.
    pub(super) fn next<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        loop {
            let received = self.packets.receive(&mut self.buffer);
            let received =
                received.map_err(|error| Unreachable::new(&self.path, PATIENCE, error))?;
            let path = self.path.clone();
            match (received, self.patience) {
                (Receive::Packet(len), _) => {
                    self.patience = None;
                    return read(&path, &self.buffer[..len.min(CHUNK)]);
                }
                (Receive::Nothing, Some(patience)) => {
                    Err(Unreachable::Silent { path, patience })?;
                }
                (Receive::Nothing, None) => {}
                (Receive::End, _) => Err(Unreachable::Ended { path })?,
            }
        }
    }
}
