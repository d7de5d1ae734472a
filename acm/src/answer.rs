// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers, byte for byte those of ibacm (`ibacm/src/acm.c`), its omissions included: a RESOLVE
//! answer that the provider gives does not carry the mark of an answer, one that is refused before
//! does.

use cm_msgs::acm::{Entry, Flags, Header, Info, Status};
use cm_msgs::sa::PathRecord;

use super::kernel;
use super::requester::{Extra, Requester};

/// An answer that took a while.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Who gets it.
    pub requester: Requester,
    /// The path, or why there is none.
    pub result: Result<PathRecord, Status>,
}

impl Answer {
    /// The key of the client that asked, and the answer for it.
    pub fn for_client(&self, out: &mut Vec<u8>) -> Option<u32> {
        let Requester::Client {
            client,
            header,
            extra,
        } = self.requester
        else {
            return None;
        };
        match self.result {
            Ok(path) => {
                let flags = match extra {
                    Extra::Verification => Flags::QUERY_SA,
                    Extra::Nothing | Extra::Source(_) => Flags::WHOLE_PATH,
                };
                write_path(&header, &Entry::path(flags, path).encode(), extra, out);
            }
            Err(status) => out.extend(refused(&header, status).encode()),
        }
        Some(client.key)
    }

    /// The answer for the kernel, if it asked.
    pub fn for_kernel(&self) -> Option<Vec<u8>> {
        let Requester::Kernel(request) = &self.requester else {
            return None;
        };
        Some(match &self.result {
            Ok(path) => request.answer(path),
            Err(_) => kernel::refusal(request.sequence),
        })
    }
}

pub(crate) fn path_of(entry: &[u8; Entry::LEN]) -> PathRecord {
    match Entry::decode(entry).info {
        Info::Path(path) => path,
        Info::Address(_) | Info::Other(_) => PathRecord::default(),
    }
}

/// The path first, then the source, in one piece: clients read it with one call.
pub(crate) fn write_path(
    header: &Header,
    path: &[u8; Entry::LEN],
    extra: Extra,
    out: &mut Vec<u8>,
) {
    let source = match extra {
        Extra::Source(source) => Some(Entry::address(Flags::SOURCE, source)),
        Extra::Nothing | Extra::Verification => None,
    };
    let entries = 1 + usize::from(source.is_some());
    let answer = Header {
        ack: extra == Extra::Verification,
        length: (Header::LEN + entries * Entry::LEN) as u16,
        ..header.answer(Status::Success)
    };
    out.extend(answer.encode());
    out.extend(path);
    if let Some(source) = source {
        out.extend(source.encode());
    }
}

pub(crate) fn refused(header: &Header, status: Status) -> Header {
    Header {
        ack: false,
        ..header.answer(status)
    }
}
