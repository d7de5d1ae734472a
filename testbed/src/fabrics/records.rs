// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every PathRecord of a fabric: pathdb's held against what OpenSM's SA answers.

use std::fmt;

use cm_msgs::Lid;
use cm_msgs::mad::MAD_LEN;
use cm_msgs::sa::{PathRecord, Record, ResponseError, SaMad, SaStatus};
use pathdb::{Capability, Fabric, Fault, PortId, World};

use super::dumped::Dumped;
use super::hardware::Ports0;
use super::tally::Tally;
use crate::failure::Failure;
use crate::ibsim::{Client, Reply, Request, Target};

/// Queries under way at a time.
pub const WINDOW: usize = 64;

/// The default partition, full member (IBA 10.9.1.2).
const DEFAULT_PKEY: u16 = 0xffff;

/// What pathdb says of a path, or the SA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// GUIDs of the ports at its ends.
    pub guids: [u64; 2],
    /// Code of the MTU.
    pub mtu: u8,
    /// Code of the rate.
    pub rate: u8,
    /// Whether the way back arrives.
    pub reversible: bool,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [from, to] = self.guids;
        let mtu = pathdb::Mtu::from_code(self.mtu).map_or(0, pathdb::Mtu::bytes);
        let rate = pathdb::Rate::from_code(self.rate).map_or("?", pathdb::Rate::text);
        let back = if self.reversible { "" } else { ", no way back" };
        write!(f, "{from:#x} to {to:#x}, mtu {mtu}, {rate} Gb/s{back}")
    }
}

/// A pair of LIDs and what pathdb says of it.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// Source and destination.
    pub lids: (u16, u16),
    /// pathdb's answer.
    pub answer: Option<Answer>,
}

/// Every pair from one of `from` to one of `to`, which ascends; LIDs that no port has any more may
/// be among them.
pub fn pairs(fabric: &Fabric, ports0: &Ports0, from: &[u16], to: &[u16]) -> Vec<Pair> {
    let world = World::new(fabric);
    let mut pairs = Vec::with_capacity(from.len() * to.len());
    for &slid in from {
        let source = fabric.port_by_lid(Lid(slid));
        let records = source.map_or_else(Vec::new, |port| world.half_world(port));
        // They are ordered by source LID and then by destination LID.
        let first = records.partition_point(|record| record.slid.0 < slid);
        let mut records = records[first..].iter().peekable();
        for &dlid in to {
            while records.next_if(|record| record.dlid.0 < dlid).is_some() {}
            let record = records.peek().filter(|record| record.dlid.0 == dlid);
            let answer = record.and_then(|record| {
                let leg = record.forward().ok()?;
                answer(fabric, ports0, record, leg.carries)
            });
            let lids = (slid, dlid);
            pairs.push(Pair { lids, answer });
        }
    }
    pairs
}

fn answer(
    fabric: &Fabric,
    ports0: &Ports0,
    record: &pathdb::PathRecord,
    mut carries: Capability,
) -> Option<Answer> {
    let ends = [record.slid, record.dlid].map(|lid| fabric.port_by_lid(lid));
    let [Some(from), Some(to)] = ends else {
        return None;
    };
    for port0 in [from, to].iter().filter_map(|port| ports0.get(port)) {
        carries = carries.min(*port0);
    }
    let guid = |port: PortId| fabric.port(port).guid.map_or(0, |guid| guid.0);
    Some(Answer {
        guids: [guid(from), guid(to)],
        mtu: carries.mtu.map_or(0, pathdb::Mtu::code),
        rate: carries.rate.map_or(0, pathdb::Rate::code),
        reversible: record.reverse().is_ok(),
    })
}

/// Asks the SA for the path from one LID to another, and nothing else.
pub fn query(manager: u16, (slid, dlid): (u16, u16)) -> Request {
    let path = PathRecord::any().slid(Lid(slid)).dlid(Lid(dlid));
    Request {
        dlid: manager,
        target: Target::Gsi,
        mad: SaMad::get(0, &path).encode(),
    }
}

/// Asks the SA for each pair and compares.
///
/// # Errors
/// As [`Client::exchange`]. What the SA answers is never an error, only a difference.
pub fn compare(
    client: &mut Client,
    fabric: &Fabric,
    pairs: &[Pair],
    tally: &mut Tally,
) -> Result<(), Failure> {
    let manager = client.manager_lid()?;
    let queries = pairs.iter().map(|pair| query(manager, pair.lids));
    client.exchange(WINDOW, queries, |position, reply| {
        judge(fabric, &pairs[position], &reply, tally);
        Ok(())
    })
}

/// Compares what the SA says of a pair with what pathdb says.
pub fn judge(fabric: &Fabric, pair: &Pair, reply: &Reply, tally: &mut Tally) {
    let theirs = match reply {
        Ok(mad) => understand(mad, pair.lids, tally),
        Err(error) => Err(error.to_string()),
    };
    match theirs {
        Ok(theirs) if theirs == pair.answer => {
            tally.records += 1;
            tally.unreachable += usize::from(theirs.is_none());
            tally.irreversible += usize::from(theirs.is_some_and(|path| !path.reversible));
        }
        Ok(theirs) => tally.differ(|| {
            let [theirs, ours] = [theirs, pair.answer].map(|answer| {
                answer.map_or_else(|| "no path".to_owned(), |answer| answer.to_string())
            });
            format!(
                "{}: the sa says {theirs}; pathdb {ours}",
                words(fabric, pair.lids)
            )
        }),
        Err(problem) => {
            tally.differ(|| format!("{}: the sa: {problem}", words(fabric, pair.lids)));
        }
    }
}

/// What the SA says of a pair, or what is wrong with its answer.
fn understand(
    mad: &[u8; MAD_LEN],
    lids: (u16, u16),
    tally: &mut Tally,
) -> Result<Option<Answer>, String> {
    let mad = SaMad::decode(mad).map_err(|error| error.to_string())?;
    let record = match mad.path_record() {
        Ok(record) => record,
        Err(ResponseError::Status(SaStatus::NoRecords)) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    if (record.slid.0, record.dlid.0) != lids {
        return Err(format!(
            "answers for lids {} to {}",
            record.slid, record.dlid
        ));
    }
    if record.pkey.0 != DEFAULT_PKEY || record.hop_limit != 0 || record.raw_traffic {
        return Err(format!("another kind of path: {record:?}"));
    }
    tally.nonzero_sl += usize::from(record.sl != 0);
    Ok(Some(Answer {
        guids: [record.sgid, record.dgid].map(|gid| gid.interface_id().0),
        mtu: record.mtu,
        rate: record.rate,
        reversible: record.reversible,
    }))
}

/// Compares the length of each pair's way there with a walk by other code, and, if `counted`, with
/// what OpenSM counts, where it does.
pub fn compare_hops(
    fabric: &Fabric,
    dumped: &Dumped,
    pairs: &[Pair],
    counted: bool,
    tally: &mut Tally,
) {
    for pair in pairs {
        let (from, to) = pair.lids;
        let port = fabric.port_by_lid(Lid(from));
        let ours = port
            .ok_or(Fault::DeadEnd)
            .and_then(|port| fabric.leg(port, Lid(to)));
        let ours = ours.map(|leg| usize::from(leg.hops));
        let walked = dumped.follow(from, to).map(|way| way.hops);
        match ours == walked {
            true => tally.walks += 1,
            false => tally.differ(|| {
                let words = words(fabric, pair.lids);
                format!("{words}: hops: walked {walked:?}, pathdb {ours:?}")
            }),
        }
        tally.loops += usize::from(ours == Err(Fault::Loop));
        let far = counted && ours.is_ok_and(|hops| hops > 0);
        if let Some(counted) = dumped.counted_hops(from, to).filter(|_| far) {
            match ours == Ok(counted) {
                true => tally.hops += 1,
                false => tally.differ(|| {
                    let words = words(fabric, pair.lids);
                    format!("{words}: hops: opensm counts {counted}, pathdb {ours:?}")
                }),
            }
        }
    }
}

/// A pair for people.
pub fn words(fabric: &Fabric, (from, to): (u16, u16)) -> String {
    let name = |lid: u16| {
        let port = fabric.port_by_lid(Lid(lid));
        port.map_or_else(|| "nobody".to_owned(), |port| fabric.name(port).to_string())
    };
    format!("{} (lid {from}) to {} (lid {to})", name(from), name(to))
}
