// SPDX-License-Identifier: MIT OR Apache-2.0
//! What may happen to cables, ports and partitions, and what a stranger may say.

use cm_msgs::association::State;
use cm_msgs::cm;
use cm_msgs::{Lid, PKey};
use statemachine::{Input, MadSource, Overlap};

use super::library::PACKET;
use super::network::gid_in;
use super::{ACTIVE, Cable, Fabric, MS, PASSIVE, Pair, Pending, PortOf, Twist};

impl Pair {
    pub(crate) fn set_traffic(&mut self, on: bool) {
        if on && !self.traffic {
            for conn in 0..self.hosts[0].qps.len() {
                self.push(PACKET, Pending::Packet(0, conn));
                self.push(PACKET + PACKET / 2, Pending::Packet(1, conn));
            }
        }
        self.traffic = on;
    }

    pub(crate) fn pull(&mut self, host: usize, port: u8) {
        *self.net.cable((host, port)) = Cable::Pulled;
        self.hosts[host].ports[usize::from(port) - 1].active = false;
        self.push(MS, Pending::Port(host, port));
    }

    pub(crate) fn plug(&mut self, host: usize, port: u8) {
        *self.net.cable((host, port)) = Cable::Plugged;
        self.hosts[host].ports[usize::from(port) - 1].active = true;
        self.push(50 * MS, Pending::Port(host, port));
    }

    pub(crate) fn black_hole(&mut self, host: usize, port: u8) {
        *self.net.cable((host, port)) = Cable::BlackHole;
    }

    /// The subnet manager gives a port another LID. Packets to and from the old one are lost.
    pub(crate) fn relabel(&mut self, host: usize, port: u8, lid: Lid) {
        self.net.relabelled.push(((host, port), lid));
        self.hosts[host].ports[usize::from(port) - 1].lid = lid;
        self.push(MS, Pending::Port(host, port));
    }

    /// The subnet manager gives the ports of both hosts GIDs with another prefix. QPs keep their paths.
    pub(crate) fn change_prefix(&mut self, prefix: u64) {
        self.net.prefix = prefix;
        for host in [ACTIVE, PASSIVE] {
            for port in [1, 2] {
                let here = &mut self.hosts[host].ports[usize::from(port) - 1];
                here.gid = gid_in(prefix, (host, port));
                self.push(MS, Pending::Port(host, port));
            }
        }
    }

    /// What the passive host sends is changed by this on its way.
    pub(crate) fn twist(&mut self, twist: impl FnMut(&mut cm::Message) + 'static) {
        self.twist = Some(Twist(Box::new(twist)));
    }

    /// The subnet manager takes a port out of a partition, that of the connections. The SA knows.
    pub(crate) fn leave_partition(&mut self, host: usize, port: u8, pkey: PKey) {
        self.net.outside.push((host, port));
        let here = &mut self.hosts[host].ports[usize::from(port) - 1];
        here.pkeys.retain(|&key| key != pkey);
        self.push(MS, Pending::Port(host, port));
    }

    /// And into it again.
    pub(crate) fn join_partition(&mut self, host: usize, port: u8, pkey: PKey) {
        self.net.outside.retain(|&outside| outside != (host, port));
        let here = &mut self.hosts[host].ports[usize::from(port) - 1];
        here.pkeys.push(pkey);
        self.push(MS, Pending::Port(host, port));
    }

    /// A port's send queue is full, or has room again.
    pub(crate) fn set_full(&mut self, host: usize, port: u8, full: bool) {
        self.hosts[host].full[usize::from(port) - 1] = full;
        self.drain(host);
    }

    pub(crate) fn sa_knows_only(&mut self, pairs: Vec<(PortOf, PortOf)>) {
        self.sa_knows = Some(pairs);
    }

    /// Paths take other switches from now on; both daemons hear of it.
    pub(crate) fn reroute(&mut self, fabric: Fabric) {
        self.fabric.reroute(fabric);
        for host in [ACTIVE, PASSIVE] {
            self.input(host, Input::FabricChanged);
        }
    }

    /// Tells a host's engine what a port is like now.
    pub(crate) fn port_input(&mut self, host: usize, port: u8) {
        let here = &self.hosts[host];
        let status = here.ports[usize::from(port) - 1].clone();
        let id = here.port_id(port);
        self.input(host, Input::Port(id, Some(status)));
    }

    /// Anything at all happens to a host's engine.
    pub(crate) fn tell(&mut self, host: usize, input: Input) {
        self.input(host, input);
    }

    /// Hands a host's engine a MAD that nobody sent.
    pub(crate) fn forge(&mut self, host: usize, source: MadSource, message: cm::Message) {
        self.input(host, Input::Mad(source, message));
    }

    /// Hands a host's engine a LAP that nobody sent, with a state that is later by `by` than the LAP's.
    pub(crate) fn forge_later(&mut self, host: usize, source: MadSource, lap: &cm::Lap, by: u32) {
        let mut state = State::decode(&lap.private_data).expect("a state");
        state.sequence += by;
        let lap = cm::Lap {
            private_data: state.encode(),
            ..lap.clone()
        };
        self.forge(host, source, lap.into());
    }

    /// Hands a host's engine something else that nobody sent.
    pub(crate) fn hear(&mut self, host: usize, input: Input) {
        self.input(host, input);
    }

    /// Hands a host's engine an answer that may have nothing to do with what it asks.
    pub(crate) fn forge_assessed(
        &mut self,
        host: usize,
        query: u32,
        overlaps: Vec<Option<Overlap>>,
    ) {
        self.input(host, Input::Assessed { query, overlaps });
    }
}
