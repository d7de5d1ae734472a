// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asks the daemon.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::{DeserializeOwned, IgnoredAny};

use super::socket::{self, Unreachable};
use super::{Failure, Options};
use crate::io::seqpacket::{Packets, Receive};
use crate::observe::CHUNK;
use crate::observe::request::{Asked, Refused, Request};

/// The daemon's answer.
///
/// # Errors
/// It cannot be reached, refuses the request, or answers something else.
pub(super) fn ask<T: DeserializeOwned>(
    options: &Options,
    request: impl Into<Asked>,
) -> Result<T, Failure> {
    ask_within(options, request, options.answer_timeout)
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
        let path = path.to_owned();
        match serde_json::from_slice(answer) {
            Ok(Refused { error }) => Failure::Failed(error),
            Err(_) if is_cut_off(answer) => Unreachable::Unfinished { path }.into(),
            Err(_) => Failure::Failed(format!(
                "{}: answer not understood: {error}",
                path.display()
            )),
        }
    })
}

/// Whether all of it would be JSON if there were more; of nothing as well. The end of an answer is
/// the end of its connection, which may come too early.
fn is_cut_off(answer: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(answer).is_err_and(|error| error.is_eof())
}

/// An answer that goes on: each packet is a value. The first one has to arrive within `--answer-timeout`.
pub(super) struct Stream {
    path: PathBuf,
    packets: Packets,
    answer_timeout: Duration,
    /// Whether the first value has arrived. The others may take any time.
    has_begun: bool,
    buffer: Vec<u8>,
}

impl Stream {
    pub(super) fn open(options: &Options, request: Request) -> Result<Self, Failure> {
        let answer_timeout = options.answer_timeout;
        let (path, packets) = send(options, request.into(), answer_timeout)?;
        Ok(Self {
            path,
            packets,
            answer_timeout,
            has_begun: false,
            buffer: vec![0; CHUNK],
        })
    }

    /// The next value, however long it takes.
    pub(super) fn next<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        loop {
            let received = self.packets.receive(&mut self.buffer);
            let received = received
                .map_err(|error| Unreachable::new(&self.path, self.answer_timeout, error))?;
            let path = self.path.clone();
            match received {
                Receive::Packet(len) => {
                    self.has_begun = true;
                    return read(&path, &self.buffer[..len.min(CHUNK)]);
                }
                Receive::Nothing if self.has_begun => {}
                Receive::Nothing => {
                    let patience = self.answer_timeout;
                    Err(Unreachable::Silent { path, patience })?;
                }
                Receive::End => Err(Unreachable::Ended { path })?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_cut_off_anywhere_is_none_and_another_is_not_understood() {
        let path = Path::new("/run/apmd/observe.sock");
        let whole = br#"{"error":"device mlx5_9: \u00e4 [1.5, null, true]"}"#;
        let failure = |answer: &[u8]| read::<Vec<u32>>(path, answer).expect_err("no list");
        for len in 0..whole.len() {
            let failure = failure(&whole[..len]);
            let is_unfinished = matches!(
                failure,
                Failure::Unreachable(Unreachable::Unfinished { .. })
            );
            assert!(is_unfinished, "{len}: {failure}");
        }
        assert_eq!(failure(whole).exit_code(), 1);
        for nonsense in [&b"nonsense"[..], b"{}", b"[1,]", b"[true]"] {
            let failure = failure(nonsense);
            assert_eq!(failure.exit_code(), 1);
            let failure = failure.to_string();
            assert!(failure.contains("answer not understood"), "{failure}");
        }
        assert_eq!(read::<Vec<u32>>(path, b"[7]").expect("a list"), [7]);
    }
}
