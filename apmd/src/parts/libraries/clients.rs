// SPDX-License-Identifier: MIT OR Apache-2.0
//! The libraries that are connected, by their keys and by their processes.

use std::collections::BTreeMap;

use super::unregistered::Owners;
use crate::client::Client;
use crate::io::person::Person;
use crate::io::process::{self, Process};

#[derive(Debug)]
pub(super) struct Connected {
    pub(super) client: Client,
    pub(super) process: Process,
    /// The user who is charged for what it takes, from when it connected: what is given back is of the same share.
    pub(super) payer: Person,
}

/// What is known of a process.
#[derive(Debug, Default)]
struct OfProcess {
    libraries: usize,
    protects_all: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Clients {
    by_key: BTreeMap<u32, Connected>,
    /// The kernel module asks with each queue pair of a program whether its process is here.
    processes: BTreeMap<i32, OfProcess>,
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
        self.processes.entry(pid).or_default().libraries += 1;
        self.by_key.insert(key, connected);
    }

    pub(super) fn remove(&mut self, key: u32) -> Option<Connected> {
        let connected = self.by_key.remove(&key)?;
        let pid = connected.client.peer.pid;
        if let Some(process) = self.processes.get_mut(&pid) {
            process.libraries -= 1;
            if process.libraries == 0 {
                self.processes.remove(&pid);
            }
        }
        Some(connected)
    }

    pub(super) fn has_process(&self, pid: i32) -> bool {
        self.processes.contains_key(&pid)
    }

    /// A library has registered a connection that did not opt in: so it registers all that it sees (`RDMA_APM=all`).
    pub(super) fn set_protects_all(&mut self, key: u32) {
        let connected = self.by_key.get(&key);
        let pid = connected.map(|connected| connected.client.peer.pid);
        if let Some(process) = pid.and_then(|pid| self.processes.get_mut(&pid)) {
            process.protects_all = true;
        }
    }

    /// Whether one does.
    pub(super) fn any_protects_all(&self) -> bool {
        let mut all = self.processes.values();
        all.any(|process| process.protects_all)
    }

    /// The name of a process.
    pub(super) fn command(&self, pid: i32) -> Option<&str> {
        let mut all = self.by_key.values();
        all.find_map(|connected| {
            let Client { peer, command } = &connected.client;
            command.as_deref().filter(|_| peer.pid == pid)
        })
    }
}

impl Owners for Clients {
    fn protects_all(&self, pid: i32) -> bool {
        let process = self.processes.get(&pid);
        process.is_some_and(|process| process.protects_all)
    }

    fn process_of(&self, tid: i32) -> Option<i32> {
        process::process_of(tid)
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
        assert!(!clients.protects_all(own) && !clients.any_protects_all());
        clients.set_protects_all(2);
        clients.set_protects_all(3);
        assert!(clients.protects_all(own) && clients.any_protects_all());
        assert!(clients.has_process(own) && !clients.has_process(own + 1));
        assert!(clients.remove(1).is_some() && clients.remove(1).is_none());
        assert!(clients.has_process(own) && clients.len() == 1);
        assert!(clients.remove(2).is_some());
        assert!(!clients.has_process(own) && clients.processes.is_empty());
    }
}
