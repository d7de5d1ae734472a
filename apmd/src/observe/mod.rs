// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operators' socket: one packet asks, packets of JSON answer, and the socket is closed.

pub mod acm;
pub mod destinations;
pub mod fabric;
pub mod model;
pub mod show;
pub mod sources;

use std::io;

use mio::Registry;

use crate::io::seqpacket::Receive;
use crate::server::{Alive, Server};
use model::{Refused, Request};

/// Name of the socket in the runtime directory.
pub const SOCKET: &str = "observe.sock";

/// Longest piece of an answer in one packet.
pub const CHUNK: usize = 32 * 1024;

/// Operators at a time; who asks nothing makes room for the next.
const CALLERS_MAX: usize = 64;

/// A request is no longer than this.
const REQUEST_MAX: usize = 1024;

/// What reading an operator's socket gave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FromOperator {
    /// A request: answer it.
    Ask(Request),
    /// Nothing for now.
    Nothing,
    /// It is gone.
    Gone,
    /// It says nonsense; it was told so.
    Broken(String),
}

/// The operators' socket.
#[derive(Debug)]
pub struct Observe {
    server: Server,
}

impl Observe {
    /// Serves operators on `server`.
    pub fn new(server: Server) -> Self {
        Self { server }
    }

    /// Takes in the next operator; `None` when nobody waits.
    ///
    /// # Errors
    /// No resources: try again later.
    pub fn accept(&mut self, registry: &Registry) -> io::Result<Option<u32>> {
        let accepted = self.server.accept(registry)?;
        self.server.keep_last(CALLERS_MAX);
        Ok(accepted.map(|(key, _)| key))
    }

    /// The request of an operator.
    pub fn read(&mut self, key: u32) -> FromOperator {
        let mut buffer = [0; REQUEST_MAX];
        let len = match self.server.receive(key, &mut buffer) {
            Receive::Packet(len) => len,
            Receive::Nothing => return FromOperator::Nothing,
            Receive::End => return FromOperator::Gone,
        };
        let request = buffer
            .get(..len)
            .ok_or_else(|| "request is too long".to_owned());
        match request.and_then(|bytes| {
            serde_json::from_slice::<Request>(bytes).map_err(|error| error.to_string())
        }) {
            Ok(request) => FromOperator::Ask(request),
            Err(error) => {
                let refused = serde_json::to_vec(&Refused {
                    error: error.clone(),
                });
                let _ = self.answer(key, &refused.unwrap_or_default());
                FromOperator::Broken(error)
            }
        }
    }

    /// Answers and is done with the operator.
    pub fn answer(&mut self, key: u32, json: &[u8]) -> Alive {
        for piece in json.chunks(CHUNK) {
            if self.server.send(key, piece) == Alive::No {
                return Alive::No;
            }
        }
        self.server.finish(key)
    }

    /// Sends what there was no room for.
    pub fn flush(&mut self, key: u32) -> Alive {
        self.server.flush(key)
    }

    /// Closes an operator's socket.
    pub fn close(&mut self, key: u32) {
        self.server.close(key);
    }
}
