// SPDX-License-Identifier: MIT OR Apache-2.0
//! The SA, and who tells what paths share.

use cm_msgs::sa::PathRecord;
use cm_msgs::{Gid, Lid};
use statemachine::{Assess, Input, Origin, Overlap, PathQuery, Query, QueryError};

use super::{Cable, LOCAL, MS, Pair, Pending, Weather, network};

/// An SA's answer.
const SA: u64 = 2 * MS;

impl Pair {
    pub(super) fn query(&mut self, host: usize, query: Query) {
        match query {
            Query::Paths(query) => {
                if !self.sa_dead {
                    let delay = self.sa_delay();
                    self.sa_open += 1;
                    self.push(delay, Pending::Answer(host, query));
                } else {
                    let client = self.hosts[host].client;
                    let answer = Input::Paths {
                        query: query.query,
                        result: Err(QueryError::Timeout),
                        origin: None,
                    };
                    self.push(SA, Pending::Input(host, client, answer));
                }
            }
            Query::Assess(assess) => self.assess(host, &assess),
            Query::Withdraw(number) => self.withdraw(host, number),
        }
    }

    /// Nobody waits for what was asked under this number.
    fn withdraw(&mut self, host: usize, number: u32) {
        let is_it = |pending: &Pending| matches!(pending, Pending::Answer(of, query) if *of == host && query.query == number);
        let before = self.queue.len();
        self.queue.retain(|_, pending| !is_it(pending));
        self.sa_open -= before - self.queue.len();
    }

    pub(super) fn sa_delay(&mut self) -> u64 {
        let Some(takes) = self.sa_takes else {
            return SA;
        };
        self.sa_free_at = self.sa_free_at.max(self.now) + takes;
        self.sa_free_at - self.now
    }

    pub(super) fn answer(&mut self, host: usize, query: &PathQuery) {
        self.sa_open -= 1;
        // Under another prefix a port has an alias, which is also another of its LIDs.
        let alias = query.dgid.subnet_prefix() ^ self.net.prefix;
        let offset = (alias & ((1 << self.net.lmc) - 1)) as u16;
        let known = |gid: Gid| {
            network::port_of(gid)
                .filter(|_| !self.net.is_outdated(gid))
                .filter(|&(host, port)| {
                    (self.sa_names_dead_ports
                        || self.net.cables[host][usize::from(port) - 1] != Cable::Pulled)
                        && !self.net.outside.contains(&(host, port))
                })
        };
        let knows = |from, to| {
            self.sa_knows
                .as_ref()
                .is_none_or(|pairs| pairs.contains(&(from, to)))
        };
        let asked = |lid: Option<Lid>, port| {
            let old = self.sa_old_lid.filter(|old| old.0 == port);
            let own = || old.map_or_else(|| self.net.lid(port), |(_, lid)| lid);
            lid.filter(|_| !self.base_lids_only).unwrap_or_else(own)
        };
        let result = match (known(query.sgid), known(query.dgid)) {
            _ if self.sa_busy => Err(QueryError::Busy),
            (Some(from), Some(to)) if knows(from, to) && self.net.is_connected(from, to) => {
                Ok(vec![PathRecord {
                    dgid: query.dgid,
                    sgid: query.sgid,
                    dlid: Lid(asked(query.dlid, to).0 | offset),
                    slid: asked(query.slid, from),
                    pkey: query.pkey,
                    reversible: true,
                    mtu: 4,
                    rate: 7,
                    packet_life_time: 13,
                    ..PathRecord::default()
                }])
            }
            _ => Err(QueryError::NoPath),
        };
        self.input(
            host,
            Input::Paths {
                query: query.query,
                result,
                origin: Some(Origin::Sa),
            },
        );
    }

    /// Of GIDs with the prefix of before nothing is known.
    fn assessed(&self, assess: &Assess) -> Vec<Option<Overlap>> {
        let known = |gid: Gid| !self.net.is_outdated(gid);
        let paths = assess.paths.iter().zip(self.fabric.answer(assess));
        paths
            .map(|(path, overlap)| overlap.filter(|_| known(path.sgid) && known(path.dgid)))
            .collect()
    }

    /// The fabric as it is now is what the answer tells, however long that takes. As everything
    /// else, it can be lost, and come twice.
    pub(super) fn assess(&mut self, host: usize, assess: &Assess) {
        self.fabric.asked.push((self.now, assess.query));
        let Weather {
            loss, duplication, ..
        } = self.net.weather;
        let answer = Input::Assessed {
            query: assess.query,
            overlaps: self.assessed(assess),
        };
        let copies = 1 + u64::from(self.net.random(1000) < duplication);
        for copy in 0..copies {
            if self.net.random(1000) >= loss && !self.fabric.silent {
                let delay = LOCAL + self.fabric.takes * MS + copy * 7 * MS;
                self.push(delay, Pending::Assessed(host, answer.clone()));
            }
        }
    }
}
