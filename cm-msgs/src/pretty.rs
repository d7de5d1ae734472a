// SPDX-License-Identifier: MIT OR Apache-2.0
//! CM messages for people.

use core::fmt::{self, Display};

use crate::association::{Movement, PeerPort, PrimaryPath, RepData, ReqData, State};
use crate::cm::{ApStatus, FailoverAccepted, Message, RejReason, Rejected, SpStatus};
use crate::fields::FieldValue;
use crate::mad::Header;
use crate::rate::Rate;
use crate::{Gid, Guid, PKey, Qpn};

/// Shows a message, one field a line, with names and units for what has them.
///
/// ```text
/// APR  class 0x2d  transaction 0x0000000000000007
///   local_comm_id                   0x00000001
///   ar_status                       8 (invalid gid)
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Pretty<'a> {
    /// The header that came with the message.
    pub header: &'a Header,
    /// The message.
    pub message: &'a Message,
}

impl Display for Pretty<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Header {
            mgmt_class,
            transaction_id,
            ..
        } = self.header;
        let name = self.message.name();
        write!(
            f,
            "{name}  class {mgmt_class:#04x}  transaction 0x{transaction_id:016x}"
        )?;
        for (name, value) in self.message.fields() {
            write!(f, "\n  {name:<31} ")?;
            match value {
                FieldValue::Int(value) => integer(f, name, value)?,
                FieldValue::Bytes(bytes) => long(f, name, bytes)?,
            }
        }
        association(f, self.message)
    }
}

/// An integer by what its field means.
fn integer(f: &mut fmt::Formatter<'_>, name: &str, value: u64) -> fmt::Result {
    match strip_path(name) {
        "local_comm_id" | "remote_comm_id" | "requestid" | "local_q_key" | "q_key" => {
            write!(f, "0x{value:08x}")
        }
        "service_id" | "serviceid" => write!(f, "0x{value:016x}"),
        "local_ca_guid" => Guid(value).fmt(f),
        "local_qpn" | "remote_qpn_eecn" | "qpn" => Qpn(value as u32).fmt(f),
        "starting_psn" | "vendor_id" | "flow_label" => write!(f, "0x{value:06x}"),
        "partition_key" => PKey(value as u16).fmt(f),
        "ar_status" => write!(f, "{value} ({})", ApStatus::from(value as u8)),
        "sp_status" => write!(f, "{value} ({})", SpStatus::from(value as u8)),
        "failover_accepted" => write!(f, "{value} ({})", FailoverAccepted::from(value as u8)),
        "reason" => write!(f, "{value} ({})", RejReason::from(value as u16)),
        "message_rejected" => write!(f, "{value} ({})", Rejected::from(value as u8)),
        "message_mraed" => write!(f, "{value} ({})", mraed(value)),
        "transport_service_type" => write!(f, "{value} ({})", transport(value)),
        "path_packet_payload_mtu" => match value {
            1..=5 => write!(f, "{value} ({} bytes)", 128 << value),
            _ => value.fmt(f),
        },
        "packet_rate" => match Rate::from_code(value as u8) {
            Some(rate) => write!(f, "{value} ({rate})"),
            None => value.fmt(f),
        },
        "remote_cm_response_timeout"
        | "local_cm_response_timeout"
        | "service_timeout"
        | "local_ack_timeout"
        | "target_ack_delay" => duration(f, value),
        _ => value.fmt(f),
    }
}

fn strip_path(name: &str) -> &str {
    name.strip_prefix("primary_")
        .or_else(|| name.strip_prefix("alternate_"))
        .unwrap_or(name)
}

fn mraed(value: u64) -> &'static str {
    match value {
        0 => "REQ",
        1 => "REP",
        2 => "LAP",
        _ => "reserved",
    }
}

fn transport(value: u64) -> &'static str {
    match value {
        0 => "RC",
        1 => "UC",
        2 => "RD",
        _ => "by extended_transport_type",
    }
}

/// A timeout of 4.096 us * 2^`exponent`, 5 bits.
fn duration(f: &mut fmt::Formatter<'_>, exponent: u64) -> fmt::Result {
    let nanoseconds = 4096 << (exponent & 0x1f);
    let (number, unit) = match nanoseconds {
        0..1_000_000u64 => (nanoseconds / 1000, "us"),
        1_000_000..10_000_000_000 => (nanoseconds / 1_000_000, "ms"),
        10_000_000_000.. => (nanoseconds / 1_000_000_000, "s"),
    };
    write!(f, "{exponent} ({number} {unit})")
}

/// A GID, or bytes without their trailing zeros.
fn long(f: &mut fmt::Formatter<'_>, name: &str, bytes: &[u8]) -> fmt::Result {
    if let (true, Ok(gid)) = (name.ends_with("_gid"), bytes.try_into()) {
        return Gid(gid).fmt(f);
    }
    let used = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    let (used, zeros) = bytes.split_at(used);
    FieldValue::Bytes(used).fmt(f)?;
    match (used.len(), zeros.len()) {
        (_, 0) => Ok(()),
        (0, zeros) => write!(f, "{zeros} zero bytes"),
        (_, zeros) => write!(f, " and {zeros} zero bytes"),
    }
}

/// What apmd laid into the private data, if it did.
fn association(f: &mut fmt::Formatter<'_>, message: &Message) -> fmt::Result {
    let said = match message {
        Message::Req(req) => ReqData::decode(&req.private_data).map(|data| {
            let ReqData { peer_qpn, state } = data;
            write!(f, "\n  apmd: recipient's queue pair {peer_qpn}")?;
            sender(f, &state)
        }),
        Message::Rep(rep) => RepData::decode(&rep.private_data).map(|data| {
            if let Some(refusal) = data.refusal {
                write!(f, "\n  apmd: refused, {refusal}")?;
            }
            sender(f, &data.state)
        }),
        Message::Lap(lap) => State::decode(&lap.private_data).map(|state| sender(f, &state)),
        Message::Apr(apr) => State::decode(&apr.private_data).map(|state| sender(f, &state)),
        Message::Sap(sap) => State::decode(&sap.private_data).map(|state| sender(f, &state)),
        Message::Spr(spr) => State::decode(&spr.private_data).map(|state| sender(f, &state)),
        _ => return Ok(()),
    };
    said.unwrap_or(Ok(()))
}

fn sender(f: &mut fmt::Formatter<'_>, state: &State) -> fmt::Result {
    let PrimaryPath {
        port,
        local,
        remote,
    } = state.primary;
    write!(
        f,
        "\n  apmd: state {}: {} on port {port}, lid {local} to lid {remote}",
        state.sequence, state.migration
    )?;
    match state.movement {
        Movement::None => {}
        Movement::Leaves => f.write_str(", which it is about to leave")?,
        Movement::Left => f.write_str(", to which it has moved by order")?,
    }
    for PeerPort {
        gid,
        lid,
        lmc,
        up,
        drained,
    } in state.ports.as_slice()
    {
        let up = if *up { "up" } else { "down" };
        let drained = if *drained { ", drained" } else { "" };
        write!(
            f,
            "\n  apmd: sender's port {gid} lid {lid} lmc {lmc} {up}{drained}"
        )?;
    }
    if state.ports.more() {
        f.write_str("\n  apmd: the sender has more ports")?;
    }
    Ok(())
}
