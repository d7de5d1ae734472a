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
mod plan;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use cm_msgs::{Gid, PKey};
use statemachine::Time;

pub(crate) use link_address::LinkAddress;
pub(crate) use plan::Record;

/// Requests to the kernel under way at the same time.
const DEPTH: usize = 64;
/// Changes are looked at together, this long after the first.
const SETTLE: Duration = Duration::from_millis(200);

/// An IPoIB interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Interface {
    /// Its name.
    pub(crate) name: String,
    /// GID of its port.
    pub(crate) gid: Gid,
    /// Its partition.
    pub(crate) pkey: PKey,
    /// It is up and has a carrier.
    pub(crate) up: bool,
}

/// Where an entry of a table stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Key {
    /// Index of the interface.
    pub(crate) interface: u32,
    /// The neighbour's address.
    pub(crate) ip: IpAddr,
}

/// An entry of the kernel's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    /// Where packets go; `None` while that is not known.
    pub(crate) address: Option<LinkAddress>,
    /// It bears our protocol number.
    pub(crate) ours: bool,
}

/// What the kernel tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Event {
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
pub(crate) struct Subnet {
    /// Index of the interface.
    pub(crate) interface: u32,
    /// The interface's address.
    pub(crate) ip: IpAddr,
    /// Bits that all addresses of the subnet have in common.
    pub(crate) prefix_len: u8,
}

/// A request to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// Make the entry.
    Set(Key, LinkAddress),
    /// Remove the entry.
    Remove(Key),
}

/// How many addresses of the files became entries, and why others did not.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Census {
    /// Addresses in the subnet of an IPoIB interface.
    pub(crate) wanted: usize,
    /// Of these, IPv4 addresses.
    pub(crate) wanted_v4: usize,
    /// Entries that we made and that are there.
    pub(crate) ours: usize,
    /// Addresses for which the kernel has an entry of its own.
    pub(crate) kernels: usize,
    /// Addresses whose queue pair is neither in the files nor known to the kernel.
    pub(crate) without_qpn: usize,
    /// Addresses in no IPoIB interface's subnet.
    pub(crate) off_link: usize,
    /// Requests that the kernel refused.
    pub(crate) refused: u64,
}

/// What the kernel told.
#[derive(Debug, Default)]
struct Kernel {
    interfaces: BTreeMap<u32, Interface>,
    subnets: Vec<Subnet>,
    entries: HashMap<Key, Entry>,
    /// It has told everything.
    complete: bool,
}

impl Kernel {
    fn forget_interface(&mut self, index: u32) {
        self.interfaces.remove(&index);
        self.subnets.retain(|subnet| subnet.interface != index);
        self.entries.retain(|key, _| key.interface != index);
    }

    fn ours(&self) -> impl Iterator<Item = &Key> {
        let ours = self.entries.iter().filter(|(_, entry)| entry.ours);
        ours.map(|(key, _)| key)
    }
}

/// The neighbours.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    records: Vec<Record>,
    kernel: Kernel,
    /// What we last set each entry to.
    set: HashMap<Key, LinkAddress>,
    look_at: Option<Time>,
    queue: VecDeque<Change>,
    in_flight: HashMap<u32, Change>,
    next_request: u32,
    census: Census,
    refusal: Option<i32>,
}

impl Neighbours {
    /// These addresses are known. Entries for what is not among them get removed.
    pub(crate) fn set_records(&mut self, now: Time, records: Vec<Record>) {
        if self.records != records {
            self.records = records;
            self.look_soon(now);
        }
    }

    fn look_soon(&mut self, now: Time) {
        self.look_at = self.look_at.or(Some(now + SETTLE));
    }

    /// The kernel tells something.
    pub(crate) fn handle(&mut self, now: Time, event: Event) {
        match event {
            Event::Interface(index, interface) => {
                self.kernel.interfaces.insert(index, interface);
            }
            Event::InterfaceGone(index) => {
                self.kernel.forget_interface(index);
                self.set.retain(|key, _| key.interface != index);
            }
            Event::Address(subnet) if !self.kernel.subnets.contains(&subnet) => {
                self.kernel.subnets.push(subnet);
            }
            Event::Address(_) => return,
            Event::AddressGone(gone) => self.kernel.subnets.retain(|subnet| *subnet != gone),
            Event::Entry(key, entry) => {
                if self.kernel.entries.insert(key, entry) == Some(entry) {
                    return;
                }
            }
            Event::EntryGone(key) => {
                self.kernel.entries.remove(&key);
            }
            Event::Complete => self.kernel.complete = true,
            Event::Lost => {
                self.kernel = Kernel::default();
            }
            Event::Done(request, result) => return self.done(request, result),
        }
        self.look_soon(now);
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
    pub(crate) fn take_refusal(&mut self) -> Option<i32> {
        self.refusal.take()
    }

    /// Time has passed. Whether everything was looked at again.
    pub(crate) fn handle_time(&mut self, now: Time) -> bool {
        let due = self.kernel.complete && self.look_at.is_some_and(|at| at <= now);
        if due {
            self.look_at = None;
            self.look();
        }
        due
    }

    /// When [`Neighbours::handle_time`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.look_at.filter(|_| self.kernel.complete)
    }

    /// Compares what is with what should be.
    fn look(&mut self) {
        let plan = plan::plan(
            &self.records,
            &self.kernel.interfaces,
            &self.kernel.subnets,
            &self.kernel.entries,
        );
        self.census = Census {
            refused: self.census.refused,
            ..plan.census
        };
        self.queue.clear();
        for (key, address) in &plan.entries {
            if self.is_to_be_set(key, *address) {
                self.queue.push_back(Change::Set(*key, *address));
            }
        }
        let unwanted = |key: &&Key| !plan.all.contains(*key);
        let stale = self.kernel.ours().filter(unwanted);
        self.queue.extend(stale.copied().map(Change::Remove));
        self.set.retain(|key, _| plan.all.contains(key));
    }

    /// Whether an entry is missing, or the file says something else than when we made it. If the
    /// kernel has found something else, that is the truth.
    fn is_to_be_set(&self, key: &Key, address: LinkAddress) -> bool {
        let news = self.set.get(key) != Some(&address);
        match self.kernel.entries.get(key) {
            Some(Entry { address: None, .. }) => news,
            Some(Entry {
                address: Some(present),
                ours,
            }) => *ours && news && *present != address,
            None => true,
        }
    }

    /// The next request, with a number of its own.
    pub(crate) fn poll_change(&mut self) -> Option<(u32, Change)> {
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

    /// Removes all entries that we made: nobody will manage them any more.
    pub(crate) fn end(&mut self) -> Vec<Change> {
        self.kernel.ours().copied().map(Change::Remove).collect()
    }

    /// How many addresses became entries, as of the last look.
    pub(crate) fn census(&self) -> Census {
        Census {
            ours: self.kernel.ours().count(),
            ..self.census
        }
    }
}

/// What an administrator should know of a table with room for `threshold` entries (`gc_thresh3`)
/// when `wanted` hosts are neighbours. Ours are not counted by kernels from 5.0 on; those are that
/// the kernel makes where we cannot, and all of them after this daemon has ended.
pub(crate) fn overflow(family: &str, wanted: usize, threshold: Option<usize>) -> Option<String> {
    let threshold = threshold.filter(|threshold| wanted > *threshold)?;
    let enough = wanted.saturating_mul(5).div_ceil(4).next_multiple_of(1024);
    Some(format!(
        "{wanted} {family} neighbours are more than the kernel keeps by itself ({threshold}): \
         sysctl -w net.{family}.neigh.default.gc_thresh3={enough}"
    ))
}
