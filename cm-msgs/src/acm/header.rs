// SPDX-License-Identifier: MIT OR Apache-2.0
//! The 16 bytes before every message between ACM and its clients (`struct acm_hdr`).

use crate::codes::codes;

codes! {
    /// What a message is about, 7 bits; the top bit of the byte marks answers.
    pub enum Op: u8 {
        Resolve = 1, "resolve";
        Perf = 2, "performance query";
        Endpoint = 3, "endpoint query";
    }
}

codes! {
    /// How a request ended. A service that passes a status of the SA on puts the upper byte of the
    /// MAD's status here, which has other meanings (`acmp_dest_sa_resp` in `acmp.c`).
    pub enum Status: u8 {
        Success = 0, "success";
        NoMemory = 1, "no memory";
        Invalid = 2, "invalid request";
        NoData = 3, "no data";
        NotConnected = 5, "not connected";
        TimedOut = 6, "timed out";
        SourceAddress = 7, "unknown source address";
        SourceType = 8, "unsupported source address type";
        DestinationAddress = 9, "invalid destination address";
        DestinationType = 10, "unsupported destination address type";
    }
}

const ACK: u8 = 0x80;

/// The header of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Protocol version, 1.
    pub version: u8,
    /// What the message is about.
    pub op: Op,
    /// It is an answer.
    pub ack: bool,
    /// How the request ended; in requests 0.
    pub status: Status,
    /// The operation's own: in PERF `[_, endpoint counted from 1 or 0 for all, _]` and in its
    /// answer `[count of counters, _, _]`, in EP `[endpoint counted from 1, port or 0 for any, _]`.
    pub data: [u8; 3],
    /// Bytes of the whole message, header included.
    pub length: u16,
    /// The client's own number for the request, echoed.
    pub tid: u64,
}

impl Header {
    /// Bytes on the stream.
    pub const LEN: usize = 16;

    /// Reads a header. Lengths of RESOLVE are in host order, all others are big-endian.
    pub fn decode(bytes: &[u8; Self::LEN]) -> Self {
        let [version, opcode, status, d0, d1, d2, l0, l1, tid @ ..] = *bytes;
        let op = Op::from(opcode & !ACK);
        let length = [l0, l1];
        Self {
            version,
            op,
            ack: opcode & ACK != 0,
            status: status.into(),
            data: [d0, d1, d2],
            length: match op {
                Op::Resolve => u16::from_ne_bytes(length),
                _ => u16::from_be_bytes(length),
            },
            tid: u64::from_ne_bytes(tid),
        }
    }

    /// The bytes. An operation wider than 7 bits is cut.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let op = u8::from(self.op) & !ACK;
        let [l0, l1] = match Op::from(op) {
            Op::Resolve => self.length.to_ne_bytes(),
            _ => self.length.to_be_bytes(),
        };
        let [d0, d1, d2] = self.data;
        let status = self.status.into();
        let opcode = if self.ack { op | ACK } else { op };
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&[self.version, opcode, status, d0, d1, d2, l0, l1]);
        bytes[8..].copy_from_slice(&self.tid.to_ne_bytes());
        bytes
    }

    /// A request of `length` bytes in all.
    pub fn request(op: Op, tid: u64, length: u16) -> Self {
        Self {
            version: super::VERSION,
            op,
            ack: false,
            status: Status::Success,
            data: [0; 3],
            length,
            tid,
        }
    }

    /// The header of the answer to this request, without a body.
    pub fn answer(&self, status: Status) -> Self {
        Self {
            ack: true,
            status,
            data: [0; 3],
            length: Self::LEN as u16,
            ..*self
        }
    }
}
