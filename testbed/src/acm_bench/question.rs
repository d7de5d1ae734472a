// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is asked, and what has to be answered.

use clap::ValueEnum;
use cm_msgs::acm::{Address, Entry, Flags, Info, MAX_LEN, Resolve, Status};
use cm_msgs::sa::PathRecord;

use super::preload::{End, MTU, Preload, RATE};
use super::server::Server;
use crate::failure::{Failure, ensure};

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

/// The questions about all destinations, for either server with its own answers. These say the same,
/// and ibacm's say what it was given.
pub(super) fn learn(
    kind: Kind,
    preload: &Preload,
    servers: [&Server; 2],
) -> Result<[Vec<Question>; 2], Failure> {
    let [ibacm, apmd] = servers;
    let (mut ibacm, mut apmd) = (ibacm.client(1, 1)?, apmd.client(1, 1)?);
    let mut questions = [Vec::new(), Vec::new()];
    for there in &preload.destinations {
        let question = Question::new(kind, &preload.here, there);
        let (theirs, ours) = (ibacm.ask(&question)?, apmd.ask(&question)?);
        check(&theirs, &preload.here, there)?;
        ensure(contents(&ours)? == contents(&theirs)?, || {
            let (ours, theirs) = (words(&ours), words(&theirs));
            format!(
                "{} {}: apmd answers {ours}, ibacm {theirs}",
                kind.name(),
                there.gid
            )
        })?;
        for (questions, answer) in questions.iter_mut().zip([theirs, ours]) {
            questions.push(Question {
                request: question.request.clone(),
                answer,
            });
        }
    }
    Ok(questions)
}

/// What an answer says. Selectors do not count: in an answer there is nothing to select from, and
/// ibacm has zeros there where the SA's records have "exactly".
fn contents(answer: &[u8]) -> Result<(Status, Vec<Entry>), Failure> {
    let message = Resolve::decode(answer).map_err(|error| Failure::Output {
        source_name: "answer".to_owned(),
        problem: error.to_string(),
    })?;
    let without_selectors = |entry: &Entry| match entry.info {
        Info::Path(path) => Entry::path(
            entry.flags,
            PathRecord {
                numb_path: 0,
                mtu_selector: 0,
                rate_selector: 0,
                packet_life_time_selector: 0,
                ..path
            },
        ),
        Info::Address(_) | Info::Other(_) => *entry,
    };
    let entries = message.entries().iter().map(without_selectors);
    Ok((message.status, entries.collect()))
}

fn words(answer: &[u8]) -> String {
    Resolve::decode(answer).map_or_else(
        |error| error.to_string(),
        |message| format!("{:?} {:?}", message.status, message.entries()),
    )
}

/// An answer says what the files say.
fn check(answer: &[u8], here: &End, there: &End) -> Result<(), Failure> {
    let message = Resolve::decode(answer).map_err(|error| Failure::Output {
        source_name: "ibacm".to_owned(),
        problem: error.to_string(),
    })?;
    let right = match message.entries().first().map(|entry| entry.info) {
        Some(Info::Path(path)) => {
            (path.sgid, path.slid, path.dgid, path.dlid)
                == (here.gid, here.lid, there.gid, there.lid)
                && (path.mtu, path.rate, path.sl) == (MTU, RATE, 0)
        }
        _ => false,
    };
    ensure(right, || {
        let (answer, lid) = (words(answer), there.lid);
        format!("ibacm answers {answer} about {} with lid {lid}", there.gid)
    })
}
