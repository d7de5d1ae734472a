// SPDX-License-Identifier: MIT OR Apache-2.0
//! The libraries that are connected, by their keys and by their processes.

use std::collections::BTreeMap;

use crate::client::Client;
use crate::io::person::Person;
use crate::io::process::Process;

#[derive(Debug)]
pub(super) struct Connected {
    pub(super) client: Client,
    pub(super) process: Process,
    /// The user who is charged for what it takes, from when it connected: what is given back is of the same share.
    pub(super) payer: Person,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Clients {
    by_key: BTreeMap<u32, Connected>,
    /// How many are of a process: the kernel module asks with each queue pair of a program.
    processes: BTreeMap<i32, usize>,
}

impl Clients {
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn get(&self, key: u32) -> Option<&Connected> {
        self.by_key.get(&key)
    }

    pub(super) fn get_mut(&mut self, key: u32) -> Option<&mut Connected> {
        self.by_key.get_mut(&key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Client)> {
        let all = self.by_key.iter();
        all.map(|(&key, connected)| (key, &connected.client))
    }

    /// Keys are never used twice.
    pub(super) fn insert(&mut self, key: u32, connected: Connected) {
        let pid = connected.client.peer.pid;
        *self.processes.entry(pid).or_default() += 1;
        self.by_key.insert(key, connected);
    }

    pub(super) fn remove(&mut self, key: u32) -> Option<Connected> {
        let connected = self.by_key.remove(&key)?;
        let pid = connected.client.peer.pid;
        if let Some(count) = self.processes.get_mut(&pid) {
            *count -= 1;
            if *count == 0 {
                self.processes.remove(&pid);
            }
        }
        Some(connected)
    }

    pub(super) fn has_process(&self, pid: i32) -> bool {
        self.processes.contains_key(&pid)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::io::seqpacket::Peer;

    #[test]
    fn a_process_is_connected_until_its_last_library_is_gone() {
        let own = std::process::id().cast_signed();
        let connected = || {
            let (one, _other) = UnixStream::pair().unwrap();
            Connected {
                client: Client::new(Peer { pid: own, uid: 0 }),
                process: Process::of_peer(one.as_fd(), own).unwrap(),
                payer: Person::of(0),
            }
        };
        let mut clients = Clients::default();
        assert!(!clients.has_process(own));
        clients.insert(1, connected());
        clients.insert(2, connected());
        assert!(clients.has_process(own) && !clients.has_process(own + 1));
        assert!(clients.remove(1).is_some() && clients.remove(1).is_none());
        assert!(clients.has_process(own) && clients.len() == 1);
        assert!(clients.remove(2).is_some());
        assert!(!clients.has_process(own) && clients.processes.is_empty());
    }
}
