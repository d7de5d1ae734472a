// SPDX-License-Identifier: MIT OR Apache-2.0
//! A peer that answers each proposal with another port of its own, and shows that port in its state: all of it is what
//! a proven peer may say, and none of these ports is one. It loads nothing of what it declines: what a peer has loaded
//! and denies, no protocol can find out, and the two ends would be armed with different alternates.

use cm_msgs::association::{PeerPort, Ports, State};
use cm_msgs::cm::{self, ApStatus, PathFields};
use cm_msgs::{Gid, Guid, Lid, PrivateData};

use super::World;
use crate::sim::host::Host;

impl World<'_> {
    /// What the daemon of a host that redirects sees of a message: a LAP without its alternate.
    pub(super) fn heard(
        &mut self,
        host: usize,
        transaction: u32,
        mut message: cm::Message,
    ) -> cm::Message {
        if let cm::Message::Lap(lap) = &mut message {
            let Host {
                declines,
                redirects,
                ..
            } = &mut self.hosts[host];
            let state = State::decode(&lap.private_data).ok();
            let number = state.map(|state| state.sequence);
            if declines.of_lap(lap.local_comm_id, transaction, number, *redirects > 0) {
                lap.alternate = PathFields::default();
            }
        }
        message
    }

    /// What a host sends, where it redirects or has done so.
    pub(super) fn redirected(
        &mut self,
        host: usize,
        transaction: u32,
        mut message: cm::Message,
    ) -> cm::Message {
        let declines = &self.hosts[host].declines;
        let is_declined = |apr: &cm::Apr| declines.of_answer(apr.remote_comm_id, transaction);
        let invented = match &message {
            cm::Message::Apr(apr) if is_declined(apr) == Some(true) => {
                Some(self.invented_port(host))
            }
            _ => None,
        };
        let ahead = self.hosts[host].sequence_ahead;
        match &mut message {
            cm::Message::Apr(apr) => {
                if let Some(port) = invented {
                    apr.ar_status = ApStatus::InvalidGid.into();
                    apr.set_better_gid(port.gid);
                }
                shown(&mut apr.private_data, ahead, invented);
            }
            cm::Message::Lap(lap) => shown(&mut lap.private_data, ahead, None),
            cm::Message::Sap(sap) => shown(&mut sap.private_data, ahead, None),
            cm::Message::Spr(spr) => shown(&mut spr.private_data, ahead, None),
            _ => {}
        }
        message
    }

    fn invented_port(&mut self, host: usize) -> PeerPort {
        // Each state is later than the one before, or its ports would not count.
        self.hosts[host].sequence_ahead += 1;
        let prefix = self.addresses.gid((host, 1)).subnet_prefix();
        let number = self.dice.below(u32::MAX);
        PeerPort {
            gid: Gid::new(prefix, Guid(u64::from(number))),
            lid: Lid(0x2000 + number as u16 % 0x1000),
            up: true,
            ..PeerPort::default()
        }
    }
}

/// Changes the state in a message's private data.
fn shown<const N: usize>(data: &mut PrivateData<N>, ahead: u32, invented: Option<PeerPort>) {
    if ahead == 0 {
        return;
    }
    if let Ok(mut state) = State::decode(data) {
        state.sequence = state.sequence.wrapping_add(ahead);
        let ports = state.ports.as_slice().iter().copied();
        state.ports = Ports::new(ports.chain(invented));
        *data = state.encode();
    }
}
