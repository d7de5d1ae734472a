// SPDX-License-Identifier: MIT OR Apache-2.0
//! Between what is known of addresses and the kernel's neighbour tables.

use std::path::Path;

use mio::Registry;
use pathdb::{Address, Addresses};
use statemachine::Time;

use crate::config::Neigh as Config;
use crate::io::neigh::NeighTable;
use crate::io::watched;
use crate::neigh::{self, Census, Event, Record};
use crate::token::Token;

/// Requests that are sent when the daemon ends wait for nothing; their answers have no number.
const FAREWELL: u32 = 0;

/// The neighbours, and the socket once it is needed.
pub(crate) struct Neighbours {
    registry: Registry,
    core: neigh::Neighbours,
    table: Option<NeighTable>,
    /// What was last said of them.
    told: Census,
}

impl Neighbours {
    /// Opens what the configuration wants.
    pub(crate) fn new(config: &Config, registry: Registry) -> Self {
        let mut this = Self {
            registry,
            core: neigh::Neighbours::default(),
            table: None,
            told: Census::default(),
        };
        this.configure(Time(0), config);
        this
    }

    pub(crate) fn configure(&mut self, now: Time, config: &Config) {
        let Some(file) = config.file() else {
            return self.core.set_records(now, Vec::new());
        };
        self.open_table();
        match read(file) {
            Ok(records) => self.core.set_records(now, records),
            // What was read before stays: hosts are not to lose each other by a slip of the
            // pen.
            Err(error) => tracing::error!(%error, "neighbours: file not taken"),
        }
    }

    fn open_table(&mut self) {
        if self.table.is_some() {
            return;
        }
        let table =
            NeighTable::open().and_then(|table| watched(table, &self.registry, Token::Neigh));
        self.table = table
            .inspect_err(|error| tracing::error!(%error, "no neighbour tables"))
            .ok();
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.table.as_ref()?;
        self.core.poll_timeout()
    }

    /// The kernel tells of interfaces, addresses and neighbours.
    pub(crate) fn handle_ready(&mut self, now: Time) {
        let Some(table) = self.table.as_mut() else {
            return;
        };
        match table.read() {
            Ok(events) => {
                for event in events {
                    self.core.handle(now, event);
                }
            }
            Err(error) => {
                tracing::error!(%error, "neighbour tables lost");
                self.core.handle(now, Event::Lost);
                self.table = None;
            }
        }
        self.change(now);
    }

    pub(crate) fn handle_time(&mut self, now: Time) {
        let looked = self.core.handle_time(now);
        self.change(now);
        if looked {
            self.tell();
        }
    }

    /// The entries are not managed any more.
    pub(crate) fn end(&mut self) {
        let Some(table) = &self.table else { return };
        for change in self.core.end() {
            if let Err(error) = table.request(FAREWELL, change) {
                tracing::debug!(%error, "neighbour entry not removed");
            }
        }
    }

    /// Asks the kernel for the changes that are wanted.
    fn change(&mut self, now: Time) {
        let Some(table) = &self.table else { return };
        while let Some((number, change)) = self.core.poll_change() {
            if let Err(error) = table.request(number, change) {
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                self.core.handle(now, Event::Done(number, Err(errno)));
            }
        }
        if let Some(errno) = self.core.take_refusal() {
            let error = std::io::Error::from_raw_os_error(errno);
            tracing::warn!(%error, "the kernel refuses a neighbour entry");
        }
    }

    /// Says how things stand, if they stand otherwise than before.
    fn tell(&mut self) {
        let census = self.core.census();
        if census == self.told {
            return;
        }
        let Census {
            wanted,
            ours,
            kernels,
            without_qpn,
            off_link,
            ..
        } = census;
        tracing::info!(wanted, ours, kernels, without_qpn, off_link, "neighbours");
        if without_qpn > self.told.without_qpn {
            tracing::warn!(
                without_qpn,
                "no entries for addresses without a queue pair number in the file"
            );
        }
        for (family, wanted) in [
            ("ipv4", census.wanted_v4),
            ("ipv6", wanted - census.wanted_v4),
        ] {
            if let Some(advice) = neigh::overflow(family, wanted, threshold(family)) {
                tracing::warn!("{advice}");
            }
        }
        self.told = census;
    }
}

/// `gc_thresh3` of a family's table.
fn threshold(family: &str) -> Option<usize> {
    let path = format!("/proc/sys/net/{family}/neigh/default/gc_thresh3");
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The addresses of the file that are IP addresses.
fn read(file: &Path) -> Result<Vec<Record>, impl std::error::Error> {
    let addresses = Addresses::read(file)?;
    let records = addresses.iter().filter_map(|entry| {
        let Address::Ip(ip) = entry.address else {
            return None;
        };
        let remote = entry.remote.map(|remote| (remote.qpn(), remote.flags()));
        Some(Record {
            ip,
            gid: entry.gid,
            pkey: entry.pkey,
            remote,
        })
    });
    Ok::<_, pathdb::ReadError<_>>(records.collect())
}
