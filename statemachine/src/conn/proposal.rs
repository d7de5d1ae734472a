// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths as path records, messages and QPs have them.

use cm_msgs::cm::PathFields;
use cm_msgs::path::Path;
use cm_msgs::sa::PathRecord;

use crate::candidate::Candidate;
use crate::port::Port;

/// A GRH is needed where a path record allows for a router (IBA 8.3, `ib_init_ah_attr_from_path`).
const LOCAL_HOP_LIMIT: u8 = 1;

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
        ack_timeout: match primary.ack_timeout {
            0 => (record.packet_life_time + 1).min(31),
            chosen => chosen,
        },
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

/// The path that the peer describes, from this end.
pub(super) fn reversed(primary: &Path, port: &Port, fields: &PathFields) -> Path {
    Path {
        port: port.id.port,
        sl: fields.sl,
        mtu: primary.mtu,
        rate: fields.packet_rate,
        ack_timeout: fields.local_ack_timeout,
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
