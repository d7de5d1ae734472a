// SPDX-License-Identifier: MIT OR Apache-2.0
//! When operators' traps are looked for, and where they are told. The kernel is asked on a thread: it may
//! have thousands of rdma_cm ids.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cm_msgs::Guid;
use mio::Waker;
use statemachine::{ConnId, Time};

use crate::io::background::Background;
use crate::io::host_kernel::host_kernel;
use crate::io::nldev::Nldev;
use crate::io::nvme;
use crate::kernel::{self, Health, HostKernel, QueuePairs, Surroundings, Trap};

/// From a new connection to the look at what is around it: several come at once.
const PAUSE: Duration = Duration::from_secs(1);

/// The thread, and what came of it.
#[derive(Debug)]
pub(crate) struct Traps {
    host: HostKernel,
    look: Background<Surroundings>,
    at: Option<Time>,
    known: kernel::Traps,
    health: Health,
}

impl Traps {
    pub(crate) fn new(waker: Arc<Waker>) -> Self {
        let running = host_kernel();
        Self {
            host: HostKernel::new(&running.release, &running.version, running.has_begin_del)
                .with_foreign_ib_core(running.foreign_ib_core, running.has_begin_del),
            look: Background::new("traps", waker),
            at: None,
            known: kernel::Traps::default(),
            health: Health::default(),
        }
    }

    /// Another kernel than this host's.
    #[cfg(test)]
    pub(crate) fn set_host(&mut self, host: HostKernel) {
        self.host = host;
    }

    /// What the module says of itself.
    pub(crate) fn health(&self) -> &Health {
        &self.health
    }

    pub(crate) fn health_mut(&mut self) -> &mut Health {
        &mut self.health
    }

    /// A kernel ULP has a new connection.
    pub(crate) fn look_soon(&mut self, now: Time) {
        self.at.get_or_insert(now + PAUSE);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.at
    }

    pub(crate) fn handle_time(&mut self, now: Time, devices: impl FnOnce() -> BTreeSet<Guid>) {
        if self.at.is_some_and(|at| at <= now) {
            self.at = None;
            let devices = devices();
            self.look.start(move || look(&devices));
        }
    }

    /// The thread may be done.
    pub(crate) fn handle_thread(&mut self, queue_pairs: &QueuePairs) {
        if let Some(around) = self.look.poll() {
            self.known.set_surroundings(around);
            self.log(queue_pairs);
        }
    }

    pub(crate) fn handle_bonds(
        &mut self,
        bonds: BTreeMap<IpAddr, String>,
        queue_pairs: &QueuePairs,
    ) {
        if self.known.set_bonds(bonds) {
            self.log(queue_pairs);
        }
    }

    fn log(&mut self, queue_pairs: &QueuePairs) {
        for (owner, trap) in self.known.news(queue_pairs.of_kernel()) {
            match &trap {
                Trap::Bond(bond) => tracing::warn!(bond, owner, "{trap}"),
                Trap::KeepAlive { controller, .. } => tracing::warn!(controller, owner, "{trap}"),
            }
        }
    }

    /// Why the module is used only with `[kernel] allow_unfixed`.
    pub(crate) fn unsafe_kernel(&self) -> Option<String> {
        let host = &self.host;
        host.destroys_late().then(|| {
            format!(
                "kernel {host} lets a queue pair be found while its driver destroys it: an order or a look of the \
                 module, or `rdma resource show qp`, may then touch freed memory and crash the host; fixed in \
                 6.1.190, 6.12.111 and mainline after 7.2"
            )
        })
    }

    /// Why the module is not used with `[kernel] strict`.
    pub(crate) fn foreign_ib_core(&self) -> Option<String> {
        self.host.foreign_ib_core().map(|ib_core| {
            format!(
                "ib_core {ib_core} was not built with this kernel: module apm reads and modifies queue pairs by way \
                 of it, and must have been built with its headers and symbols"
            )
        })
    }

    /// Of a connection.
    pub(crate) fn of(&self, queue_pairs: &QueuePairs, id: ConnId) -> Vec<String> {
        let queue_pair = queue_pairs.queue_pair(id);
        let traps = queue_pair.map(|it| self.known.of(it)).unwrap_or_default();
        traps.iter().map(ToString::to_string).collect()
    }

    /// Of all, in words.
    pub(crate) fn warnings(&self, queue_pairs: &QueuePairs) -> Vec<String> {
        let counts = self.known.count(queue_pairs.of_kernel()).into_iter();
        let words = counts.map(|((owner, trap), count)| {
            let connections = if count == 1 { "" } else { "s" };
            format!("{owner}, {count} connection{connections}: {trap}")
        });
        words.collect()
    }
}

fn look(devices: &BTreeSet<Guid>) -> Surroundings {
    let mut around = Surroundings {
        controllers: nvme::controllers(Path::new(nvme::CLASS)),
        ..Surroundings::default()
    };
    let Ok(mut nldev) = Nldev::open() else {
        // Who has no netlink was told when the libraries' socket was opened.
        return around;
    };
    for device in devices {
        match nldev.cm_ids(*device) {
            Ok(found) => {
                let found = found.into_iter().map(|id| ((*device, id.qpn), id));
                around.cm_ids.extend(found);
            }
            Err(error) => tracing::debug!(node_guid = %device, %error, "rdma_cm ids not read"),
        }
    }
    around
}
