// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's neighbours on IPoIB interfaces, made from what is known of addresses, GIDs and queue
//! pairs, so that hosts of a large fabric need not be found by broadcast. Sans-IO.
//!
//! An entry is made where the kernel has none of its own, as `reachable` and externally learned,
//! with a protocol number by which it is told from others'. So packets go at once and nothing is
//! collected as garbage, but the kernel still verifies what is in use, by the progress of
//! connections or by asking that one host, and finds a host whose queue pair is not what the file
//! says. Permanent entries would be cut off from such a host until somebody mends the file.

mod link_address;
#[cfg(test)]
mod tests;
mod wanted;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use cm_msgs::{Gid, PKey};
use statemachine::Time;

pub use link_address::LinkAddress;
pub use wanted::Record;

/// Requests to the kernel under way at the same time.
const DEPTH: usize = 64;
/// Changes are looked at together, this long after the first.
const SETTLE: Duration = Duration::from_millis(200);

/// Which of the kernel's tables are filled: `neigh_mode` of ibacm's successor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mode {
    /// IPv4 (ARP).
    pub v4: bool,
    /// IPv6 (neighbour discovery).
    pub v6: bool,
}

impl Mode {
    /// 0 none, 1 IPv4, 2 IPv6, 3 both.
    pub fn from_number(number: u8) -> Option<Self> {
        let (v4, v6) = (number & 1 != 0, number & 2 != 0);
        (number <= 3).then_some(Self { v4, v6 })
    }

    fn includes(self, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(_) => self.v4,
            IpAddr::V6(_) => self.v6,
        }
    }
}

/// An IPoIB interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// GID of its port.
    pub gid: Gid,
    /// Its partition.
    pub pkey: PKey,
    /// It is up and has a carrier.
    pub up: bool,
}

/// Where an entry of a table stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// Index of the interface.
    pub interface: u32,
    /// The neighbour's address.
    pub ip: IpAddr,
}

/// An entry of the kernel's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Where packets go; `None` while that is not known.
    pub address: Option<LinkAddress>,
    /// It bears our protocol number.
    pub ours: bool,
}

/// What the kernel tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// An IPoIB interface is there, and like this.
    Interface(u32, Interface),
    /// An interface is gone.
    InterfaceGone(u32),
    /// An interface has an address and a subnet.
    Address(Subnet),
    /// It has it no longer.
    AddressGone(Subnet),
    /// An entry is there, and like this.
    Entry(Key, Entry),
    /// An entry is gone.
    EntryGone(Key),
    /// What is told from here on is news: everything that there was has been told.
    Complete,
    /// Something was not told: forget all, it is told again.
    Lost,
    /// A request was done, or refused with this errno.
    Done(u32, Result<(), i32>),
}

/// An interface's own address and the length of its subnet's prefix.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Subnet {
    /// Index of the interface.
    pub interface: u32,
    /// The interface's address.
    pub ip: IpAddr,
    /// Bits that all addresses of the subnet have in common.
    pub prefix_len: u8,
}

/// A request to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Make the entry.
    Set(Key, LinkAddress),
    /// Remove the entry.
    Remove(Key),
}

/// How many addresses of the files became entries, and why others did not.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Census {
    /// Addresses in the subnet of an IPoIB interface.
    pub wanted: usize,
    /// Of these, IPv4 addresses.
    pub wanted_v4: usize,
    /// Entries that we made and that are there.
    pub ours: usize,
    /// Addresses for which the kernel has an entry of its own.
    pub kernels: usize,
    /// Addresses whose queue pair is neither in the files nor known to the kernel.
    pub without_qpn: usize,
    /// Addresses in no IPoIB interface's subnet.
    pub off_link: usize,
    /// Requests that the kernel refused.
    pub refused: u64,
}

/// The neighbours.
#[derive(Debug, Default)]
pub struct Neighbours {
    mode: Mode,
    records: Vec<Record>,
    interfaces: BTreeMap<u32, Interface>,
    subnets: Vec<Subnet>,
    entries: HashMap<Key, Entry>,
    /// What we last set each entry to.
    set: HashMap<Key, LinkAddress>,
    complete: bool,
    look_at: Option<Time>,
    queue: VecDeque<Change>,
    in_flight: HashMap<u32, Change>,
    next_request: u32,
    census: Census,
    refusal: Option<i32>,
}

impl Neighbours {
    /// Fills nothing yet.
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            ..Self::default()
        }
    }

    /// Other tables are to be filled. Entries of those that no longer are get removed.
    pub fn set_mode(&mut self, now: Time, mode: Mode) {
        if self.mode != mode {
            self.mode = mode;
            self.look_soon(now);
        }
    }

    /// These addresses are known. Entries for what is not among them get removed.
    pub fn set_records(&mut self, now: Time, records: Vec<Record>) {
        if self.records != records {
            self.records = records;
            self.look_soon(now);
        }
    }

    fn look_soon(&mut self, now: Time) {
        self.look_at = self.look_at.or(Some(now + SETTLE));
    }

    /// The kernel tells something.
    pub fn handle(&mut self, now: Time, event: Event) {
        match event {
            Event::Interface(index, interface) => {
                self.interfaces.insert(index, interface);
            }
            Event::InterfaceGone(index) => self.forget_interface(index),
            Event::Address(subnet) if !self.subnets.contains(&subnet) => self.subnets.push(subnet),
            Event::Address(_) => return,
            Event::AddressGone(gone) => self.subnets.retain(|subnet| *subnet != gone),
            Event::Entry(key, entry) => {
                if self.entries.insert(key, entry) == Some(entry) {
                    return;
                }
            }
            Event::EntryGone(key) => {
                self.entries.remove(&key);
            }
            Event::Complete => self.complete = true,
            Event::Lost => {
                self.complete = false;
                self.interfaces.clear();
                self.subnets.clear();
                self.entries.clear();
            }
            Event::Done(request, result) => return self.done(request, result),
        }
        self.look_soon(now);
    }

    fn forget_interface(&mut self, index: u32) {
        self.interfaces.remove(&index);
        self.subnets.retain(|subnet| subnet.interface != index);
        self.entries.retain(|key, _| key.interface != index);
        self.set.retain(|key, _| key.interface != index);
    }

    fn done(&mut self, request: u32, result: Result<(), i32>) {
        let Some(change) = self.in_flight.remove(&request) else {
            return;
        };
        let Err(errno) = result else { return };
        let key = match change {
            Change::Set(key, _) => key,
            // It was gone before: by the kernel, with its interface.
            Change::Remove(_) if errno == libc::ENOENT => return,
            Change::Remove(key) => key,
        };
        self.set.remove(&key);
        self.census.refused += 1;
        self.refusal = Some(errno);
    }

    /// The errno of a request that was refused since this was asked last.
    pub fn take_refusal(&mut self) -> Option<i32> {
        self.refusal.take()
    }

    /// Time has passed. Whether everything was looked at again.
    pub fn handle_time(&mut self, now: Time) -> bool {
        let due = self.complete && self.look_at.is_some_and(|at| at <= now);
        if due {
            self.look_at = None;
            self.look();
        }
        due
    }

    /// When [`Neighbours::handle_time`] has something to do.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.look_at.filter(|_| self.complete)
    }

    /// Compares what is with what should be.
    fn look(&mut self) {
        let wanted = wanted::wanted(
            &self.records,
            &self.interfaces,
            &self.subnets,
            &self.entries,
            self.mode,
        );
        self.census = Census {
            refused: self.census.refused,
            ..wanted.census
        };
        self.queue.clear();
        for (key, address) in &wanted.entries {
            if self.is_to_be_set(key, *address) {
                self.queue.push_back(Change::Set(*key, *address));
            }
        }
        let unwanted = |key: &&Key| !wanted.all.contains(*key);
        let ours = self.entries.iter().filter(|(_, entry)| entry.ours);
        let stale: Vec<_> = ours.map(|(key, _)| key).filter(unwanted).copied().collect();
        self.queue.extend(stale.into_iter().map(Change::Remove));
        self.set.retain(|key, _| wanted.all.contains(key));
    }

    /// Whether an entry is missing, or the file says something else than when we made it. If the
    /// kernel has found something else, that is the truth.
    fn is_to_be_set(&self, key: &Key, address: LinkAddress) -> bool {
        let news = self.set.get(key) != Some(&address);
        match self.entries.get(key) {
            Some(Entry { address: None, .. }) => news,
            Some(Entry {
                address: Some(present),
                ours,
            }) => *ours && news && *present != address,
            None => true,
        }
    }

    /// The next request, with a number of its own.
    pub fn poll_change(&mut self) -> Option<(u32, Change)> {
        if self.in_flight.len() >= DEPTH {
            return None;
        }
        let change = self.queue.pop_front()?;
        match change {
            Change::Set(key, address) => self.set.insert(key, address),
            Change::Remove(key) => self.set.remove(&key),
        };
        self.next_request = self.next_request.wrapping_add(1);
        self.in_flight.insert(self.next_request, change);
        Some((self.next_request, change))
    }

    /// Removes all entries that we made: nobody will look after them any more.
    pub fn end(&mut self) -> Vec<Change> {
        let ours = self.entries.iter().filter(|(_, entry)| entry.ours);
        ours.map(|(key, _)| Change::Remove(*key)).collect()
    }

    /// How many addresses became entries, as of the last look.
    pub fn census(&self) -> Census {
        let ours = self.entries.values().filter(|entry| entry.ours).count();
        Census {
            ours,
            ..self.census
        }
    }
}

/// What an administrator should know of a table with room for `threshold` entries (`gc_thresh3`)
/// when `wanted` hosts are neighbours. Ours are not counted by kernels from 5.0 on; those are that
/// the kernel makes where we cannot, and all of them after this daemon has ended.
pub fn overflow(family: &str, wanted: usize, threshold: Option<usize>) -> Option<String> {
    let threshold = threshold.filter(|threshold| wanted > *threshold)?;
    let enough = wanted.saturating_mul(5).div_ceil(4).next_multiple_of(1024);
    Some(format!(
        "{wanted} {family} neighbours are more than the kernel keeps by itself ({threshold}): \
         sysctl -w net.{family}.neigh.default.gc_thresh3={enough}"
    ))
}
