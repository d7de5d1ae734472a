// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is asked, and what has to be answered.

use clap::ValueEnum;
use cm_msgs::acm::{Address, Entry, Flags, MAX_LEN, Resolve};
use cm_msgs::sa::PathRecord;

use super::preload::End;

/// How the two ends are named.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Kind {
    /// Source and destination by IP address, as ib_acme asks.
    Ip,
    /// The destination by IP address; the server finds the source, as for `rdma_getaddrinfo`.
    IpAlone,
    /// A path with the GIDs of both ends, as for `rdma_getaddrinfo` with `AF_IB`.
    Gid,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::IpAlone => "ip, no source",
            Self::Gid => "gid",
        }
    }

    fn request(self, here: &End, there: &End) -> Resolve {
        let ip = |source| {
            let destination = Address::Ip(there.ip);
            Resolve::request(0, source, destination, Flags::default())
        };
        match self {
            Self::Ip => ip(Some(Address::Ip(here.ip))),
            Self::IpAlone => ip(None),
            Self::Gid => {
                let mut message = Resolve::empty(0);
                let path = PathRecord {
                    sgid: here.gid,
                    dgid: there.gid,
                    ..PathRecord::default()
                };
                message.push(Entry::path(Flags::default(), path));
                message
            }
        }
    }
}

/// Where a message has its number.
pub(super) const TID: std::ops::Range<usize> = 8..16;

/// A request and its one right answer, both with number 0.
pub(super) struct Question {
    pub(super) request: Vec<u8>,
    pub(super) answer: Vec<u8>,
}

impl Question {
    pub(super) fn new(kind: Kind, here: &End, there: &End) -> Self {
        let encode = |message: &Resolve| message.encode(&mut [0; MAX_LEN]).to_vec();
        let mut answer = Resolve::empty(0);
        answer.ack = true;
        answer.push(Entry::path(Flags::WHOLE_PATH, PathRecord::default()));
        if kind == Kind::IpAlone {
            answer.push(Entry::address(Flags::SOURCE, Address::Ip(here.ip)));
        }
        Self {
            request: encode(&kind.request(here, there)),
            answer: encode(&answer),
        }
    }
}
