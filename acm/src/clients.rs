// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clients' bytes: requests that come in pieces or many at once, and answers for which there is
//! no room yet. Whoever reads and writes the streams does it through these buffers.

use std::collections::BTreeMap;
use std::time::Duration;

use cm_msgs::acm::Header;
use statemachine::{FairShare, Time, Timers};

use super::request::{Breach, frame};
use super::requester::User;

/// Answers kept for a client that does not read; then its requests are no longer read either.
const BACKLOG_MAX: usize = 64 * 1024;
/// Requests of a client whose answers take a while; then no further ones are read.
const UNANSWERED_MAX: usize = 64;
/// Bytes kept for all clients: half requests and answers that are not read.
const BYTES: usize = 32 << 20;
/// How long the rest of a request may take, and how long a client may leave its answers unread.
const IDLE: Duration = Duration::from_secs(30);

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
    unanswered: usize,
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
    pub fn expect_answers(&mut self, requests: usize) {
        self.unanswered += requests;
    }

    /// One of these is.
    pub fn answered(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    /// Whether nothing more is to be read, and there is nothing, or nobody, to be told.
    pub fn is_done(&self) -> bool {
        let told = self.unanswered == 0 && self.unsent().is_empty();
        self.read_out && (told || self.ended == Ended::Everything)
    }

    /// Whether it is owed no answer, and may ask at any time.
    pub fn is_quiet(&self) -> bool {
        self.unanswered == 0 && self.unsent().is_empty() && !self.is_ending() && !self.read_out
    }

    /// Whether the client has to take answers, or wait for some, before it is read again.
    pub fn is_full(&self) -> bool {
        self.unsent().len() > BACKLOG_MAX || self.unanswered >= UNANSWERED_MAX
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

/// Clients by key: users have fair shares of the connections, and of the bytes kept for clients.
#[derive(Debug)]
pub struct Clients<T> {
    /// Not hashed: a key is looked for at every request, and its hash would take longer.
    clients: BTreeMap<u32, Served<T>>,
    next_key: u32,
    connections: FairShare<User>,
    bytes: FairShare<User>,
    idle: Timers<u32>,
}

/// A client that is served; [`Clients::settle`] is to be called when its buffers have changed.
#[derive(Debug)]
pub struct Served<T> {
    /// Its connection.
    pub stream: T,
    /// What is kept for it.
    pub buffers: Buffers,
    user: User,
    /// What is kept for it, as far as it was taken from its user's share.
    bytes: usize,
}

impl<T> Served<T> {
    /// Whose connection it is.
    pub fn user(&self) -> User {
        self.user
    }

    /// Whether nothing is kept for it, and nothing was.
    pub fn is_settled(&self) -> bool {
        self.bytes == 0 && self.buffers.partial.is_empty() && self.buffers.unsent().is_empty()
    }
}

impl<T> Clients<T> {
    /// No clients, and so many at most.
    pub fn new(limit: usize) -> Self {
        Self {
            clients: BTreeMap::new(),
            next_key: 0,
            connections: FairShare::new(limit, 0),
            bytes: FairShare::new(BYTES, 0),
            idle: Timers::default(),
        }
    }

    /// A new client's key, unless there are too many, of all users or of this one.
    pub fn add(&mut self, user: User, stream: T) -> Option<u32> {
        if !self.connections.take(user, 1, false) {
            return None;
        }
        self.next_key = self.next_key.wrapping_add(1);
        let served = Served {
            stream,
            buffers: Buffers::default(),
            user,
            bytes: 0,
        };
        self.clients.insert(self.next_key, served);
        Some(self.next_key)
    }

    /// A client.
    pub fn get(&mut self, key: u32) -> Option<&mut Served<T>> {
        self.clients.get_mut(&key)
    }

    /// Takes what is kept for a client from its user's share, and watches that it does not stay
    /// forever. Whether the user's share is enough; if not, the client has to go.
    #[must_use]
    pub fn settle(&mut self, now: Time, key: u32) -> bool {
        let Some(served) = self.clients.get_mut(&key) else {
            return true;
        };
        if served.is_settled() {
            return true;
        }
        let (partial, unsent) = (served.buffers.partial.len(), served.buffers.unsent().len());
        let (before, bytes) = (served.bytes, partial + unsent);
        let enough = match bytes.checked_sub(before) {
            Some(more) => self.bytes.take(served.user, more, false),
            None => {
                self.bytes.give_back(served.user, before - bytes);
                true
            }
        };
        if enough {
            served.bytes = bytes;
        }
        // A client that takes its answers has more time; the rest of a request does not get any.
        if bytes == 0 {
            self.idle.cancel(&key);
        } else if !self.idle.is_set(&key) || (partial == 0 && bytes < before) {
            self.idle.set(key, now + IDLE);
        }
        enough
    }

    /// A client that has left half a request, or its answers, for too long: it has to go.
    pub fn expired(&mut self, now: Time) -> Option<u32> {
        self.idle.expired(now)
    }

    /// When [`Clients::expired`] has something to say.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.idle.next()
    }

    /// A client has gone.
    pub fn remove(&mut self, key: u32) -> Option<T> {
        let served = self.clients.remove(&key)?;
        self.connections.give_back(served.user, 1);
        self.bytes.give_back(served.user, served.bytes);
        self.idle.cancel(&key);
        Some(served.stream)
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

    /// Such a client may have something readable for long: whoever waited for it would spin.
    #[test]
    fn who_is_owed_something_or_has_ended_is_not_quiet() {
        let after = |change: fn(&mut Buffers)| {
            let mut buffers = Buffers::default();
            change(&mut buffers);
            buffers.is_quiet()
        };
        assert!(after(|_| {}));
        assert!(!after(|buffers| buffers.expect_answers(1)));
        assert!(!after(|buffers| buffers.keep(&[1])));
        assert!(!after(|buffers| buffers.end(Ended::Speaking)));
        assert!(!after(Buffers::read_out));
    }

    #[test]
    fn who_says_no_more_is_told_what_is_owed() {
        let mut buffers = Buffers::default();
        buffers.expect_answers(2);
        buffers.end(Ended::Speaking);
        buffers.answered();
        buffers.answered();
        assert!(!buffers.is_done(), "something may be left to be read");
        buffers.expect_answers(1);
        buffers.read_out();
        assert!(!buffers.is_done());
        buffers.answered();
        buffers.keep(&[1]);
        assert!(!buffers.is_done());
        buffers.sent(1);
        assert!(buffers.is_done());
        buffers.expect_answers(1);
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
        assert!(!buffers.is_full());
        buffers.keep(&vec![0; BACKLOG_MAX + 1]);
        assert!(buffers.is_full());
    }

    fn clients() -> Clients<()> {
        Clients::new(100)
    }

    fn keep(clients: &mut Clients<()>, now: Time, key: u32, bytes: &[u8]) -> bool {
        let buffers = &mut clients.get(key).unwrap().buffers;
        buffers.keep(bytes);
        clients.settle(now, key)
    }

    #[test]
    fn a_user_with_many_connections_leaves_some_to_others() {
        let mut clients = clients();
        let flood = std::iter::from_fn(|| clients.add(User::Local(1), ()));
        let keys: Vec<_> = flood.take(1000).collect();
        assert_eq!(keys.len(), 75);
        assert!(clients.add(User::Local(2), ()).is_some());
        clients.remove(keys[0]);
        clients.remove(keys[1]);
        assert!(clients.add(User::Local(1), ()).is_some());
    }

    #[test]
    fn half_a_request_has_its_time_and_answers_may_be_read_slowly() {
        let mut clients = clients();
        let key = clients.add(User::Local(1), ()).unwrap();
        let begin = Time(1_000_000);
        let buffers = &mut clients.get(key).unwrap().buffers;
        buffers.requests(&[1], |_, _| {}).unwrap();
        assert!(clients.settle(begin, key));
        let end = clients.poll_timeout().unwrap();
        let buffers = &mut clients.get(key).unwrap().buffers;
        buffers.requests(&[1], |_, _| {}).unwrap();
        assert!(clients.settle(end, key));
        assert_eq!(
            clients.expired(end),
            Some(key),
            "a byte now and then is no request"
        );
        clients.remove(key);
        let key = clients.add(User::Local(1), ()).unwrap();
        assert!(keep(&mut clients, begin, key, &[0; 100]));
        for second in 2..200 {
            let now = Time(second * 1_000_000);
            assert_eq!(clients.expired(now), None);
            let buffers = &mut clients.get(key).unwrap().buffers;
            buffers.sent(usize::from(second % 20 == 0));
            assert!(clients.settle(now, key));
        }
        let never_read = Time(250 * 1_000_000);
        assert_eq!(clients.expired(never_read), Some(key));
    }

    #[test]
    fn users_that_do_not_read_do_not_fill_the_memory() {
        let mut clients = clients();
        let answers = vec![0; BACKLOG_MAX];
        let keys: Vec<_> = (1..=8)
            .filter_map(|user| clients.add(User::Local(user), ()))
            .collect();
        let mut kept = 0;
        for key in keys {
            while keep(&mut clients, Time(0), key, &answers) {
                kept += answers.len();
            }
            let buffers = &mut clients.get(key).unwrap().buffers;
            buffers.sent(answers.len());
        }
        assert!(clients.bytes.total() <= BYTES && kept > BYTES / 2);
    }

    #[test]
    fn a_client_with_many_open_requests_is_not_read() {
        let mut buffers = Buffers::default();
        buffers.expect_answers(UNANSWERED_MAX);
        assert!(buffers.is_full());
        buffers.answered();
        assert!(!buffers.is_full());
    }

    /// bind(2) lets any local user call from 127.0.0.1, 127.0.0.2 and so on, and a host of `tcp_networks` from all
    /// addresses of its /64.
    #[test]
    fn a_user_with_many_addresses_leaves_some_to_others() {
        let own = |n: u32| (std::net::Ipv4Addr::from(0x7f00_0001 + n).into(), false);
        let of_this_host = |n: u32| (std::net::Ipv4Addr::from(0x0a00_0001 + n).into(), true);
        let of_a_network = |n: u32| {
            let address = (0xfd00 << 112) | u128::from(n);
            (std::net::Ipv6Addr::from(address).into(), false)
        };
        let addresses: [fn(u32) -> (std::net::IpAddr, bool); 3] = [own, of_this_host, of_a_network];
        for address in addresses {
            let mut clients = Clients::new(4096);
            let mut taken = 0;
            for n in 0..1000 {
                let (address, is_own) = address(n);
                let user = User::by_tcp(address, is_own);
                while clients.add(user, ()).is_some() {
                    taken += 1;
                }
            }
            assert_eq!(taken, 3072, "three quarters");
            assert!(clients.add(User::Local(1001), ()).is_some());
            let other = User::by_tcp([10, 0, 0, 9].into(), false);
            assert!(clients.add(other, ()).is_some());
        }
    }
}
