// SPDX-License-Identifier: MIT OR Apache-2.0
//! Half a request to ACM, whose other half never comes.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use cm_msgs::acm::{MAX_LEN, Resolve};

/// Sends it, and prints after how long the connection was ended.
pub(super) fn run(socket: &Path) -> io::Result<Infallible> {
    let mut stream = UnixStream::connect(socket)?;
    let started = Instant::now();
    let request = Resolve::empty(1);
    let mut buffer = [0; MAX_LEN];
    let request = request.encode(&mut buffer);
    stream.write_all(&request[..request.len() / 2])?;
    println!("WAITING");
    // The end is a reset as well, since the half was never read.
    let ended = stream.read(&mut [0]);
    println!("ENDED ms={} by={ended:?}", started.elapsed().as_millis());
    loop {
        thread::sleep(Duration::MAX);
    }
}
