// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests for paths to ports that do not exist, each another one, so that no cache answers.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use cm_msgs::Gid;
use cm_msgs::acm::{Entry, Flags, MAX_LEN, Resolve};
use cm_msgs::sa::PathRecord;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::EachSecond;

/// Requests written in one go.
const AT_ONCE: u64 = 256;

/// After a connection is refused or cut.
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Default)]
struct Tally {
    asked: u64,
    bytes_answered: u64,
    connections: u64,
}

/// Floods until it is killed.
pub(super) fn run(socket: &Path, gid: Gid) -> io::Result<Infallible> {
    let mut tally = Tally::default();
    let mut each_second = EachSecond::new();
    loop {
        // A connection that is cut is replaced: a service has to withstand that as well.
        let ended = UnixStream::connect(socket)
            .and_then(|stream| flood(stream, gid, &mut tally, &mut each_second));
        if let Err(error) = ended
            && tally.connections == 0
        {
            return Err(error);
        }
        thread::sleep(PAUSE);
    }
}

fn flood(
    mut stream: UnixStream,
    gid: Gid,
    tally: &mut Tally,
    each_second: &mut EachSecond,
) -> io::Result<()> {
    tally.connections += 1;
    stream.set_nonblocking(true)?;
    let mut output = Vec::new();
    let mut input = [0; 1 << 16];
    loop {
        if output.is_empty() {
            output = requests(gid, tally.asked);
            tally.asked += AT_ONCE;
        }
        wait(&stream)?;
        match stream.write(&output) {
            Ok(written) => drop(output.drain(..written)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        match stream.read(&mut input) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => tally.bytes_answered += read as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if each_second.is_over() {
            let Tally {
                asked,
                bytes_answered,
                connections,
            } = tally;
            println!(
                "STATS asked={asked} bytes_answered={bytes_answered} connections={connections}"
            );
        }
    }
}

/// Until there is something to read, or room, or a second has gone.
fn wait(stream: &UnixStream) -> io::Result<()> {
    let events = PollFlags::POLLIN | PollFlags::POLLOUT;
    let mut fds = [PollFd::new(stream.as_fd(), events)];
    poll(&mut fds, PollTimeout::from(1000_u16)).map(drop)?;
    Ok(())
}

/// Requests for the destinations from number `first` on. Different processes ask for different ones.
fn requests(gid: Gid, first: u64) -> Vec<u8> {
    let mut requests = Vec::new();
    let process = u64::from(std::process::id());
    for number in first..first + AT_ONCE {
        let mut dgid = gid;
        dgid.0[8..].copy_from_slice(&(process << 40 | number).to_be_bytes());
        let path = PathRecord {
            sgid: gid,
            dgid,
            ..PathRecord::default()
        };
        let mut request = Resolve::empty(number);
        request.push(Entry::path(Flags::default(), path));
        requests.extend_from_slice(request.encode(&mut [0; MAX_LEN]));
    }
    requests
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use cm_msgs::acm::Info;

    use super::*;

    #[test]
    fn no_two_requests_are_for_one_port() {
        let mut seen = BTreeSet::new();
        for first in [0, AT_ONCE] {
            let bytes = requests(Gid([0xfe; 16]), first);
            for request in bytes.chunks(bytes.len() / AT_ONCE as usize) {
                let request = Resolve::decode(request).expect("it was encoded");
                let [entry] = request.entries() else {
                    panic!("one entry");
                };
                let Info::Path(path) = entry.info else {
                    panic!("a path");
                };
                assert!(seen.insert(path.dgid));
            }
        }
        assert_eq!(seen.len() as u64, 2 * AT_ONCE);
    }
}
