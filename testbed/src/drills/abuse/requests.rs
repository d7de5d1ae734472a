// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requests for an alternate path (LAP) that a host's daemon sends, in their order, by the kernel's trace.

use std::collections::BTreeSet;
use std::fmt;

use crate::clock::Moment;
use crate::command;
use crate::failure::Failure;
use crate::host::Host;
use crate::trace::Trace;

const EVENT: &str = "ib_umad/ib_umad_write";

/// LAP of the daemons' class. The trace has the attribute ID as it is on the wire.
const LAP: u16 = 0x0019_u16.to_be();

/// A trace that goes on.
pub(super) struct Requests(Trace);

/// A request that was sent, or sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sent {
    at: Moment,
    lid: u16,
    transaction: u64,
}

/// All that were sent.
pub(super) struct Log(Vec<Sent>);

/// Requests to the peer that left before the innocent's first request. One that is sent again counts once.
pub(super) struct Ahead {
    /// From the pulled cable on.
    pub(super) since_pull: usize,
    /// From when the innocent had something to ask.
    pub(super) since_told: usize,
}

impl fmt::Display for Ahead {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            since_pull,
            since_told,
        } = self;
        write!(
            formatter,
            "{since_pull} since the cable was pulled, {since_told} while another connection had one to send"
        )
    }
}

impl Requests {
    /// Begins with none.
    pub(super) fn begin(host: Host) -> Result<Self, Failure> {
        let device = host.device();
        let shown = command::run_as(host, &["rdma", "dev", "show", device])?;
        let index = shown.split(':').next().map(str::trim);
        let index = index.and_then(|index| index.parse::<u32>().ok());
        let index = index.ok_or_else(|| Failure::not_shown(format!("no device {device}")))?;
        let class = cm_msgs::mad::CLASS_APM;
        let filter = format!("mgmt_class == {class} && attr_id == {LAP} && dev_index == {index}");
        Trace::begin(&[(EVENT, &filter)]).map(Self)
    }

    pub(super) fn end(self) -> Result<Log, Failure> {
        let trace = self.0.end()?;
        Ok(Log(trace.lines().filter_map(sent).collect()))
    }
}

/// "apmd-346 [001] ..... 48.488678: ib_umad_write: 0:1 umad_hdr: ... lid 0x0016 ... tid 0x00000000d5f41f81 ...".
fn sent(line: &str) -> Option<Sent> {
    let (before, after) = line.split_once(": ib_umad_write: ")?;
    let seconds: f64 = before.split_whitespace().last()?.parse().ok()?;
    let number = |key: &str| {
        let mut words = after.split_whitespace().skip_while(|word| *word != key);
        u64::from_str_radix(words.nth(1)?.strip_prefix("0x")?, 16).ok()
    };
    Some(Sent {
        at: Moment::from_ms(seconds * 1000.0),
        lid: u16::try_from(number("lid")?).ok()?,
        transaction: number("tid")?,
    })
}

impl Log {
    /// Returns how many requests to `peer` left before the first one to `innocent` after `pulled`, which could leave from
    /// `told` on. Fails if there was none.
    pub(super) fn ahead(
        &self,
        pulled: Moment,
        told: Moment,
        innocent: Host,
        peer: Host,
    ) -> Result<Ahead, Failure> {
        let (innocents, peers) = (lids(innocent)?, lids(peer)?);
        let mut since = self.0.iter().filter(|sent| sent.at >= pulled);
        let first = since.find(|sent| innocents.contains(&sent.lid));
        let first = first.ok_or_else(|| Failure::not_shown("the innocent peer was not asked"))?;
        Ok(self.ahead_of(first.at, pulled, told, &peers))
    }

    fn ahead_of(
        &self,
        first: Moment,
        pulled: Moment,
        told: Moment,
        peers: &BTreeSet<u16>,
    ) -> Ahead {
        // What is sent again has its transaction ID.
        let from = |from: Moment| {
            let sent = self.0.iter().filter(|sent| peers.contains(&sent.lid));
            let sent = sent.filter(|sent| sent.at >= from && sent.at < first);
            sent.map(|sent| sent.transaction).collect::<BTreeSet<_>>()
        };
        Ahead {
            since_pull: from(pulled).len(),
            since_told: from(told).len(),
        }
    }
}

/// All LIDs of a host's ports.
fn lids(host: Host) -> Result<BTreeSet<u16>, Failure> {
    let mut lids = BTreeSet::new();
    for port in host.ports() {
        let (lid, lmc) = (port.lid()?, port.lmc()?);
        lids.extend(lid..lid + (1 << lmc));
    }
    Ok(lids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_once_and_from_a_moment_on() {
        let line = |seconds: &str, lid: &str, transaction: &str| {
            format!(
                "           <...>-346     [001] ..... {seconds}: ib_umad_write: 3:1 umad_hdr: id 0x00000001 status 0x00000000 \
                 ms 0 ret 0 len 256 QP1 qkey 0x80010000 lid {lid} sl 0 path_bits 0x0 grh 0x0 flow 0x00000000 pkeyi 0  \
                 MAD: base_ver 0x1 class 0x2d class_ver 0x1 method 0x3 status 0x0000 class_specific 0x0000 \
                 tid {transaction} attr_id 0x0019 attr_mod 0x00000000 "
            )
        };
        let trace = [
            "# tracer: nop".to_owned(),
            line("48.100000", "0x0014", "0x0000000000000001"),
            line("48.200000", "0x0014", "0x0000000000000002"),
            line("48.250000", "0x0015", "0x0000000000000001"),
            line("48.300000", "0x0024", "0x0000000000000003"),
            line("48.400000", "0x0014", "0x0000000000000004"),
        ];
        let log = Log(trace.iter().filter_map(|line| sent(line)).collect());
        assert_eq!(log.0.len(), 5);
        let ms = Moment::from_ms;
        let peers = BTreeSet::from([0x14, 0x15]);
        let ahead = log.ahead_of(ms(48_300.0), ms(48_000.0), ms(48_240.0), &peers);
        assert_eq!((ahead.since_pull, ahead.since_told), (2, 1));
        let ahead = log.ahead_of(ms(48_300.0), ms(48_000.0), ms(48_350.0), &peers);
        assert_eq!(ahead.since_told, 0);
    }
}
