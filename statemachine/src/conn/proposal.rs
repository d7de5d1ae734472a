// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths as path records, messages and QPs have them.

use cm_msgs::cm::PathFields;
use cm_msgs::path::Path;
use cm_msgs::rate::Rate;
use cm_msgs::sa::PathRecord;

use crate::candidate::Candidate;
use crate::port::Port;

/// A GRH is needed where a path record allows for a router (IBA 8.3, `ib_init_ah_attr_from_path`).
const LOCAL_HOP_LIMIT: u8 = 1;

/// The longest ACK timeout that comes from elsewhere than the application: 4.3 s.
const MAX_ACK_TIMEOUT: u8 = 20;

/// The alternate that a path record describes, if it fits this connection.
///
/// The alternate has the primary's MTU, because a QP has only one, and its ACK timeout, because
/// that is what the application chose for noticing a loss.
pub(super) fn fit(
    primary: &Path,
    port: &Port,
    candidate: &Candidate,
    record: &PathRecord,
) -> Option<Path> {
    let path = Path {
        port: candidate.port.port,
        sl: record.sl,
        mtu: primary.mtu,
        rate: record.rate,
        ack_timeout: ack_timeout(primary, record.packet_life_time + 1),
        global: record.hop_limit > LOCAL_HOP_LIMIT,
        traffic_class: record.traffic_class,
        hop_limit: record.hop_limit,
        flow_label: record.flow_label,
        slid: record.slid,
        dlid: record.dlid,
        pkey: primary.pkey,
        sgid: candidate.sgid,
        dgid: candidate.dgid,
    };
    let fits = record.mtu >= primary.mtu
        && record.dlid.is_unicast()
        && port.has_lid(record.slid)
        && !path.same_way(primary);
    fits.then_some(path)
}

/// The path that the peer describes, from this end: what could be too much for the QP is clamped.
pub(super) fn reversed(primary: &Path, port: &Port, fields: &PathFields) -> Path {
    Path {
        port: port.id.port,
        sl: fields.sl,
        mtu: primary.mtu,
        rate: rate(primary, port, fields.packet_rate),
        ack_timeout: ack_timeout(primary, fields.local_ack_timeout),
        global: !fields.subnet_local,
        traffic_class: fields.traffic_class,
        hop_limit: fields.hop_limit,
        flow_label: fields.flow_label,
        slid: fields.remote_port_lid,
        dlid: fields.local_port_lid,
        pkey: primary.pkey,
        sgid: fields.remote_port_gid,
        dgid: fields.local_port_gid,
    }
}

/// The primary's ACK timeout, which the application chose. Where it chose to wait for ever, `other`: a lost packet
/// of the alternate is to be noticed.
fn ack_timeout(primary: &Path, other: u8) -> u8 {
    match primary.ack_timeout {
        0 => other.clamp(1, MAX_ACK_TIMEOUT),
        chosen => chosen,
    }
}

/// What the peer says of the path, but no more than the local port carries.
fn rate(primary: &Path, port: &Port, theirs: u8) -> u8 {
    let codes = [theirs, port.status.rate].map(Rate::from_code);
    let least = codes.into_iter().flatten().min();
    least.map_or(primary.rate, Rate::code)
}

/// A path as this end names it in a message.
pub(super) fn fields(path: &Path) -> PathFields {
    PathFields {
        local_port_lid: path.slid,
        remote_port_lid: path.dlid,
        local_port_gid: path.sgid,
        remote_port_gid: path.dgid,
        flow_label: path.flow_label,
        packet_rate: path.rate,
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
        sl: path.sl,
        subnet_local: !path.global,
        local_ack_timeout: path.ack_timeout,
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use cm_msgs::{Gid, Lid};

    use super::*;
    use crate::candidate::Score;
    use crate::id::PortId;
    use crate::input::PortStatus;
    use crate::port::Ports;

    #[test]
    fn what_the_peer_says_is_clamped_before_it_reaches_the_qp() {
        let id = PortId::new(Default::default(), 2);
        let loaded = |ack_timeout, port_rate, theirs: PathFields| {
            let mut ports = Ports::default();
            let status = PortStatus {
                rate: port_rate,
                ..PortStatus::default()
            };
            ports.update(id, Some(status), Duration::ZERO);
            let primary = Path {
                rate: Rate::G10.code(),
                ack_timeout,
                ..Path::default()
            };
            let path = reversed(&primary, ports.get(id).expect("added"), &theirs);
            (path.ack_timeout, path.rate)
        };
        let theirs = |local_ack_timeout, packet_rate: u8| PathFields {
            local_ack_timeout,
            packet_rate,
            ..PathFields::default()
        };
        let (g40, g100) = (Rate::G40.code(), Rate::G100.code());
        assert_eq!(loaded(14, g40, theirs(31, g100)), (14, g40));
        assert_eq!(loaded(14, g100, theirs(0, g40)), (14, g40));
        assert_eq!(loaded(0, g40, theirs(0, 63)), (1, g40));
        assert_eq!(loaded(0, 0, theirs(31, g100)), (20, g100));
        assert_eq!(loaded(31, 0, theirs(14, 63)), (31, Rate::G10.code()));
    }

    /// A path record from local port 2 to a far one, and the alternate that it is for a primary.
    fn fitted(change: impl FnOnce(&mut PathRecord, &mut Path)) -> Option<Path> {
        let id = PortId::new(Default::default(), 2);
        let mut ports = Ports::default();
        let status = PortStatus {
            lid: Lid(0x20),
            ..PortStatus::default()
        };
        ports.update(id, Some(status), Duration::ZERO);
        let mut record = PathRecord {
            slid: Lid(0x20),
            dlid: Lid(0x40),
            mtu: 4,
            hop_limit: 1,
            packet_life_time: 16,
            ..PathRecord::default()
        };
        let mut primary = Path {
            port: 1,
            slid: Lid(0x10),
            dlid: Lid(0x30),
            mtu: 4,
            ..Path::default()
        };
        change(&mut record, &mut primary);
        let candidate = Candidate {
            port: id,
            sgid: Gid::default(),
            dgid: Gid::default(),
            slid: None,
            dlid: None,
            score: Score::BEST,
            origin: None,
        };
        fit(&primary, ports.get(id)?, &candidate, &record)
    }

    #[test]
    fn a_path_record_is_an_alternate_only_if_the_qp_can_have_it() {
        assert!(fitted(|_, _| {}).is_some_and(|path| (path.port, path.mtu) == (2, 4)));
        assert!(fitted(|record, _| record.mtu = 5).is_some_and(|path| path.mtu == 4));
        assert_eq!(fitted(|record, _| record.mtu = 3), None);
        assert_eq!(fitted(|record, _| record.dlid = Lid(0xc001)), None);
        assert_eq!(fitted(|record, _| record.slid = Lid(0x21)), None);
        let is_primary = |record: &mut PathRecord, primary: &mut Path| {
            (primary.port, primary.slid, primary.dlid) = (2, record.slid, record.dlid);
        };
        assert_eq!(fitted(is_primary), None);
    }

    #[test]
    fn a_path_through_a_router_has_a_grh_and_a_wait_that_was_not_chosen_is_the_paths() {
        let global = |hops| fitted(|record, _| record.hop_limit = hops).map(|path| path.global);
        let globals = [0, 1, 2].map(global);
        assert_eq!(globals, [Some(false), Some(false), Some(true)]);
        // There and back: twice the packet lifetime, which is coded as a power of two.
        let wait = |chosen| fitted(|_, primary| primary.ack_timeout = chosen);
        assert_eq!(wait(0).map(|path| path.ack_timeout), Some(17));
        assert_eq!(wait(14).map(|path| path.ack_timeout), Some(14));
    }
}
