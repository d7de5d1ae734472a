// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many connections to the libraries' socket.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use cm_msgs::Guid;
use cm_msgs::control::FromLibrary;

use super::EachSecond;
use super::claim;
use super::library::Library;

/// Between two looks at connections that do nothing.
const NAP: Duration = Duration::from_millis(100);

/// Connects until `count` connections are there or one is refused, and holds them; those that the
/// daemon ends are replaced.
pub(super) fn silent(socket: &Path, count: usize, hello: bool) -> io::Result<Infallible> {
    let mut each_second = EachSecond::new();
    let mut held: Vec<Library> = Vec::new();
    let (mut ended, mut refused) = (0_u64, 0_u64);
    loop {
        while held.len() < count {
            match Library::connect(socket) {
                Ok(library) => held.push(library),
                Err(_) => {
                    refused += 1;
                    break;
                }
            }
            if hello && let Some(library) = held.last() {
                // One that is ended already is found out below.
                let _ = library.hello();
            }
        }
        let before = held.len();
        held.retain(|library| library.receive().is_ok());
        ended += (before - held.len()) as u64;
        if each_second.is_over() {
            println!("STATS held={} ended={ended} refused={refused}", held.len());
        }
        thread::sleep(NAP);
    }
}

/// Connects as often as it is let in, and registers over each connection what is answered, without
/// reading the answers.
pub(super) fn deaf(socket: &Path, count: usize) -> io::Result<Infallible> {
    let mut each_second = EachSecond::new();
    let mut held: Vec<Library> = Vec::new();
    let (mut ended, mut sent) = (0_u64, 0_u64);
    loop {
        if held.len() < count
            && let Ok(library) = Library::connect(socket)
            && library.hello().is_ok()
        {
            held.push(library);
        }
        let before = held.len();
        // No device has this GUID, so the answer is known: a refusal.
        held.retain(|library| {
            let message = FromLibrary::Register {
                conn: sent,
                register: claim::register(Guid(1), sent as u32, Default::default()),
            };
            let room = library.send(&message);
            sent += u64::from(matches!(room, Ok(true)));
            room.is_ok()
        });
        ended += (before - held.len()) as u64;
        if each_second.is_over() {
            println!("STATS held={} ended={ended} sent={sent}", held.len());
        }
        if held.len() == count || held.is_empty() {
            thread::sleep(Duration::from_millis(1));
        }
    }
}
