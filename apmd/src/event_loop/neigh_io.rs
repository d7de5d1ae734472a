// SPDX-License-Identifier: MIT OR Apache-2.0
//! Between what is known of addresses and the kernel's neighbour tables.

use std::os::fd::AsRawFd;
use std::path::Path;

use cm_msgs::{Gid, PKey, Qpn};
use mio::unix::SourceFd;
use mio::{Interest, Registry};
use pathdb::{Address, Addresses};
use statemachine::Time;

use super::Daemon;
use super::token::Token;
use crate::config::Neigh as Config;
use crate::io::neigh::NeighTable;
use crate::neigh::{self, Census, Event, Neighbours, Record};

/// Requests that are sent when the daemon ends wait for nothing; their answers have no number.
const FAREWELL: u32 = 0;

/// The neighbours, and the socket once it is needed.
#[derive(Debug, Default)]
pub(super) struct Neigh {
    neighbours: Neighbours,
    table: Option<NeighTable>,
    /// What was last said of them.
    told: Census,
}

impl Neigh {
    /// Opens what the configuration wants.
    pub(super) fn open(config: &Config, registry: &Registry) -> Self {
        let mut this = Self::default();
        this.configure(Time(0), config, registry);
        this
    }

    fn configure(&mut self, now: Time, config: &Config, registry: &Registry) {
        let mode = config.mode();
        if mode != neigh::Mode::default() {
            self.open_table(registry);
            match read(&config.file) {
                Ok(records) => self.neighbours.set_records(now, records),
                Err(error) => tracing::error!(%error, "neighbours: file not taken"),
            }
        }
        self.neighbours.set_mode(now, mode);
    }

    fn open_table(&mut self, registry: &Registry) {
        if self.table.is_some() {
            return;
        }
        let table = NeighTable::open().and_then(|table| {
            let fd = table.as_raw_fd();
            registry.register(&mut SourceFd(&fd), Token::Neigh.into(), Interest::READABLE)?;
            Ok(table)
        });
        self.table = table
            .inspect_err(|error| tracing::error!(%error, "no neighbour tables"))
            .ok();
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.table.as_ref()?;
        self.neighbours.poll_timeout()
    }

    fn drain(&mut self, now: Time) {
        let Some(table) = &self.table else { return };
        while let Some((number, change)) = self.neighbours.poll_change() {
            if let Err(error) = table.request(number, change) {
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                self.neighbours.handle(now, Event::Done(number, Err(errno)));
            }
        }
        if let Some(errno) = self.neighbours.take_refusal() {
            let error = std::io::Error::from_raw_os_error(errno);
            tracing::warn!(%error, "the kernel refuses a neighbour entry");
        }
    }

    /// Says how things stand, if they stand otherwise than before.
    fn tell(&mut self) {
        let census = self.neighbours.census();
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
        let remote = entry
            .remote
            .map(|remote| (Qpn(remote.qpn()), remote.flags()));
        Some(Record {
            ip,
            gid: Gid(entry.gid.0),
            pkey: PKey(entry.pkey.0),
            remote,
        })
    });
    Ok::<_, pathdb::ReadError<_>>(records.collect())
}

impl Daemon {
    /// The kernel tells of interfaces, addresses and neighbours.
    pub(super) fn neighbours_changed(&mut self) {
        let now = self.clock.now();
        let Some(table) = self.neigh.table.as_mut() else {
            return;
        };
        match table.read() {
            Ok(events) => {
                for event in events {
                    self.neigh.neighbours.handle(now, event);
                }
            }
            Err(error) => {
                tracing::error!(%error, "neighbour tables lost");
                self.neigh.neighbours.handle(now, Event::Lost);
                self.neigh.table = None;
            }
        }
        self.neigh.drain(now);
    }

    /// Time has passed.
    pub(super) fn neighbours_time(&mut self, now: Time) {
        let looked = self.neigh.neighbours.handle_time(now);
        self.neigh.drain(now);
        if looked {
            self.neigh.tell();
        }
    }

    /// Takes over what the configuration, which was read again, says of neighbours.
    pub(super) fn reload_neighbours(&mut self) {
        let now = self.clock.now();
        self.neigh
            .configure(now, &self.config.neigh, self.poll.registry());
    }

    /// Nobody looks after the entries any more.
    pub(super) fn end_neighbours(&mut self) {
        let Some(table) = &self.neigh.table else {
            return;
        };
        for change in self.neigh.neighbours.end() {
            if let Err(error) = table.request(FAREWELL, change) {
                tracing::debug!(%error, "neighbour entry not removed");
            }
        }
    }
}
