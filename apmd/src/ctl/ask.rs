// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asks the daemon.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::{Failure, Options};
use crate::config::DEFAULT_RUNTIME_DIR;
use crate::io::seqpacket::{Packets, Receive};
use crate::observe::model::{Refused, Request};
use crate::observe::{CHUNK, SOCKET};

/// Name of the variable that names the libraries' socket.
pub(super) const SOCKET_VARIABLE: &str = "APMD_SOCKET";

/// The operators' socket: beside that of the libraries.
pub(super) fn socket(options: &Options) -> PathBuf {
    let of_library = || {
        let path = PathBuf::from(std::env::var_os(SOCKET_VARIABLE)?);
        path.parent().map(Path::to_owned)
    };
    let dir = options.socket.clone().or_else(of_library);
    dir.unwrap_or_else(|| DEFAULT_RUNTIME_DIR.into())
        .join(SOCKET)
}

/// The daemon's answer.
///
/// # Errors
/// It cannot be reached, or answers something else.
pub(super) fn ask<T: DeserializeOwned>(
    options: &Options,
    request: impl Into<Request>,
) -> Result<T, Failure> {
    let path = socket(options);
    let unreachable = |error| Failure::Unreachable {
        path: path.clone(),
        error,
    };
    let packets = Packets::connect(&path).map_err(unreachable)?;
    let request = serde_json::to_vec(&request.into());
    let request = request.map_err(|error| Failure::Failed(error.to_string()))?;
    packets.send(&request).map_err(unreachable)?;
    let mut answer = Vec::new();
    let mut buffer = vec![0; CHUNK];
    while let Receive::Packet(len) = packets.receive(&mut buffer).map_err(unreachable)? {
        answer.extend_from_slice(&buffer[..len.min(CHUNK)]);
    }
    serde_json::from_slice(&answer).map_err(|error| {
        let refused = serde_json::from_slice::<Refused>(&answer);
        let why = refused.map_or_else(|_| error.to_string(), |refused| refused.error);
        Failure::Failed(format!("{}: answer not understood: {why}", path.display()))
    })
}
