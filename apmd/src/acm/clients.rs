// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clients' bytes: requests that come in pieces or many at once, and answers for which there is
//! no room yet. Whoever reads and writes the streams does it through these buffers.

use std::collections::HashMap;

use super::request::{Breach, frame};
use cm_msgs::acm::Header;

/// Answers kept for a client that does not read; then its requests are no longer read either.
const BACKLOG_MAX: usize = 256 * 1024;

/// What has ended of a client's stream, as far as the system has told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Ended {
    /// Nothing.
    #[default]
    Nothing,
    /// It says no more, and may still hear.
    Speaking,
    /// It does not hear either.
    Everything,
}

/// What is kept between a client's calls. Mostly nothing: a request comes whole and is answered at
/// once.
#[derive(Debug, Default)]
pub struct Buffers {
    /// The beginning of a request.
    partial: Vec<u8>,
    /// What could not be sent.
    backlog: Vec<u8>,
    /// How much of it could be, by now.
    sent: usize,
    /// The rest is read when others have had their turn.
    put_off: bool,
    /// Requests whose answers take a while.
    owed: usize,
    ended: Ended,
    /// Everything that it said has been read.
    read_out: bool,
}

impl Buffers {
    /// Others have their turn first. Whether that is new.
    pub fn put_off(&mut self) -> bool {
        !std::mem::replace(&mut self.put_off, true)
    }

    /// It is this client's turn again.
    pub fn resume(&mut self) {
        self.put_off = false;
    }

    /// The system told that so much has ended.
    pub fn end(&mut self, ended: Ended) {
        self.ended = self.ended.max(ended);
    }

    /// Whether what follows is all that it says.
    pub fn is_ending(&self) -> bool {
        self.ended != Ended::Nothing
    }

    /// Everything that it said has been read.
    pub fn read_out(&mut self) {
        self.read_out = true;
    }

    /// So many of its requests are answered later.
    pub fn owe(&mut self, requests: usize) {
        self.owed += requests;
    }

    /// One of these is.
    pub fn pay(&mut self) {
        self.owed = self.owed.saturating_sub(1);
    }

    /// Whether nothing more is to be read, and there is nothing, or nobody, to be told.
    pub fn is_done(&self) -> bool {
        let told = self.owed == 0 && self.unsent().is_empty();
        self.read_out && (told || self.ended == Ended::Everything)
    }

    /// Whether there is more than enough to be sent.
    pub fn is_stuffed(&self) -> bool {
        self.unsent().len() > BACKLOG_MAX
    }

    /// What is to be sent.
    pub fn unsent(&self) -> &[u8] {
        self.backlog.get(self.sent..).unwrap_or(&[])
    }

    /// Keeps what could not be sent.
    pub fn keep(&mut self, bytes: &[u8]) {
        self.backlog.drain(..self.sent);
        self.sent = 0;
        self.backlog.extend_from_slice(bytes);
    }

    /// This much of it has been sent.
    pub fn sent(&mut self, len: usize) {
        self.sent += len;
        if self.unsent().is_empty() {
            self.backlog = Vec::new();
            self.sent = 0;
        }
    }

    /// Shows `each` every whole request in what was kept and `bytes`, which came in after it.
    ///
    /// # Errors
    /// What follows is no request: nothing more of this client can be understood.
    pub fn requests(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(&Header, &[u8]),
    ) -> Result<(), Breach> {
        if self.partial.is_empty() {
            let left = requests(bytes, &mut each)?;
            self.partial.extend_from_slice(left);
            return Ok(());
        }
        let mut all = std::mem::take(&mut self.partial);
        all.extend_from_slice(bytes);
        let left = requests(&all, &mut each)?.len();
        all.drain(..all.len() - left);
        self.partial = all;
        Ok(())
    }
}

/// Shows `each` every whole request; what is left over.
fn requests<'a>(
    mut bytes: &'a [u8],
    each: &mut impl FnMut(&Header, &[u8]),
) -> Result<&'a [u8], Breach> {
    while let Some((header, len)) = frame(bytes)? {
        let (message, rest) = bytes.split_at(len);
        each(&header, message);
        bytes = rest;
    }
    Ok(bytes)
}

/// Clients by key.
#[derive(Debug)]
pub struct Clients<T> {
    clients: HashMap<u32, (T, Buffers)>,
    next_key: u32,
}

impl<T> Default for Clients<T> {
    fn default() -> Self {
        Self {
            clients: HashMap::new(),
            next_key: 0,
        }
    }
}

impl<T> Clients<T> {
    /// A new client's key.
    pub fn add(&mut self, stream: T) -> u32 {
        self.next_key = self.next_key.wrapping_add(1);
        let client = (stream, Buffers::default());
        self.clients.insert(self.next_key, client);
        self.next_key
    }

    /// A client.
    pub fn get(&mut self, key: u32) -> Option<(&mut T, &mut Buffers)> {
        let (stream, buffers) = self.clients.get_mut(&key)?;
        Some((stream, buffers))
    }

    /// A client has gone.
    pub fn remove(&mut self, key: u32) -> Option<T> {
        self.clients.remove(&key).map(|(stream, _)| stream)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cm_msgs::acm::{Address, Flags, MAX_LEN, Op, Resolve};

    fn request(tid: u64, last: u8) -> Vec<u8> {
        let to = Address::Ip([10, 0, 0, last].into());
        let mut buffer = [0; MAX_LEN];
        Resolve::request(tid, None, to, Flags::default())
            .encode(&mut buffer)
            .to_vec()
    }

    #[test]
    fn requests_in_pieces_of_any_size() {
        let mut stream: Vec<_> = (0..20).flat_map(|n| request(n, n as u8)).collect();
        stream.extend(Header::request(Op::Perf, 20, 16).encode());
        for size in 1..200 {
            let mut buffers = Buffers::default();
            let mut tids = Vec::new();
            for piece in stream.chunks(size) {
                let each = |header: &Header, message: &[u8]| {
                    assert_eq!(message.len(), usize::from(header.length));
                    tids.push(header.tid);
                };
                buffers.requests(piece, each).unwrap();
            }
            assert_eq!(tids, (0..=20).collect::<Vec<_>>(), "pieces of {size}");
            assert!(buffers.partial.is_empty());
        }
    }

    #[test]
    fn nonsense_ends_it_after_the_good_requests() {
        let mut bytes = request(7, 1);
        bytes.extend([9; 16]);
        let mut tids = Vec::new();
        let broken = Buffers::default().requests(&bytes, |header, _| tids.push(header.tid));
        assert_eq!((broken, tids), (Err(Breach::Version(9)), vec![7]));
        for length in [0, 15, 593, u16::MAX] {
            let header = Header::request(Op::Resolve, 1, length).encode();
            let broken = Buffers::default().requests(&header, |_, _| {});
            assert_eq!(broken, Err(Breach::Length(length)));
        }
    }

    #[test]
    fn who_says_no_more_is_told_what_is_owed() {
        let mut buffers = Buffers::default();
        buffers.owe(2);
        buffers.end(Ended::Speaking);
        buffers.pay();
        buffers.pay();
        assert!(!buffers.is_done(), "something may be left to be read");
        buffers.owe(1);
        buffers.read_out();
        assert!(!buffers.is_done());
        buffers.pay();
        buffers.keep(&[1]);
        assert!(!buffers.is_done());
        buffers.sent(1);
        assert!(buffers.is_done());
        buffers.owe(1);
        assert!(!buffers.is_done());
        buffers.end(Ended::Everything);
        buffers.end(Ended::Speaking);
        assert!(buffers.is_done(), "nobody hears it");
    }

    #[test]
    fn answers_that_have_to_wait() {
        let mut buffers = Buffers::default();
        buffers.keep(&[1, 2, 3]);
        buffers.sent(1);
        buffers.keep(&[4]);
        assert_eq!(buffers.unsent(), [2, 3, 4]);
        buffers.sent(3);
        assert!(buffers.unsent().is_empty());
        assert!(!buffers.is_stuffed());
        buffers.keep(&vec![0; BACKLOG_MAX + 1]);
        assert!(buffers.is_stuffed());
    }
}
