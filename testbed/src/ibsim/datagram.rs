// SPDX-License-Identifier: MIT OR Apache-2.0
//! ibsim's datagrams (its `include/ibsim.h`), by which clients attach and send MADs. Integers are
//! the machine's own but where it says otherwise.

use cm_msgs::Lid;
use cm_msgs::mad::MAD_LEN;

/// Bytes of a control datagram: magic, client, kind, length, data.
pub(super) const CONTROL_LEN: usize = 16 + DATA_LEN;

/// Bytes of a packet: destination LID, source LID, destination QP, source QP, status, 4 unused,
/// length, MAD. LIDs are 16 bits in network order at the lower address, QPs and status 32 bits in
/// network order, the length 64.
pub(super) const PACKET_LEN: usize = MAD_AT + MAD_LEN;

const MAGIC: u32 = 0xdead_beef;
const DATA_LEN: usize = 64;
const MAD_AT: usize = 32;
/// Client number, QP, whether it takes requests; then the node's name.
const NODE_AT: usize = 12;
const NODE_LEN: usize = 32;

/// Kinds of control datagrams.
const ERROR: u32 = 0;
const CONNECT: u32 = 1;
const DISCONNECT: u32 = 2;

/// Asks to attach the client whose input socket is `number` to a node's first port.
pub(super) fn connect(number: u32, node: &str) -> [u8; CONTROL_LEN] {
    let mut data = [0; DATA_LEN];
    data[..4].copy_from_slice(&number.to_ne_bytes());
    // One less, for the name ends with a zero.
    let length = node.len().min(NODE_LEN - 1);
    data[NODE_AT..NODE_AT + length].copy_from_slice(&node.as_bytes()[..length]);
    control(0, CONNECT, &data)
}

/// Detaches a client.
pub(super) fn disconnect(client: u32) -> [u8; CONTROL_LEN] {
    control(client, DISCONNECT, &[0; DATA_LEN])
}

fn control(client: u32, kind: u32, data: &[u8; DATA_LEN]) -> [u8; CONTROL_LEN] {
    let mut bytes = [0; CONTROL_LEN];
    let numbers = [MAGIC, client, kind, DATA_LEN as u32];
    for (at, number) in numbers.into_iter().enumerate() {
        bytes[4 * at..4 * at + 4].copy_from_slice(&number.to_ne_bytes());
    }
    bytes[16..].copy_from_slice(data);
    bytes
}

/// The client number in the answer to [`connect`]; `None` if it was refused.
pub(super) fn connected(answer: &[u8; CONTROL_LEN]) -> Option<u32> {
    let number = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    if number(0)? != MAGIC || number(8)? == ERROR {
        return None;
    }
    number(16)
}

/// A MAD on its way to a LID and QP. The source LID 0 is filled in by ibsim; by directed route, both
/// are the permissive one.
pub(super) fn packet(dlid: u16, qp: u32, mad: &[u8; MAD_LEN]) -> [u8; PACKET_LEN] {
    let mut bytes = [0; PACKET_LEN];
    bytes[..2].copy_from_slice(&dlid.to_be_bytes());
    if dlid == Lid::PERMISSIVE.0 {
        bytes[4..6].copy_from_slice(&dlid.to_be_bytes());
    }
    bytes[8..12].copy_from_slice(&qp.to_be_bytes());
    bytes[12..16].copy_from_slice(&qp.to_be_bytes());
    bytes[24..32].copy_from_slice(&(MAD_LEN as u64).to_be_bytes());
    bytes[MAD_AT..].copy_from_slice(mad);
    bytes
}

/// Status (0, or an errno, if the packet came back undelivered) and MAD of a packet.
pub(super) fn unpack(bytes: &[u8; PACKET_LEN]) -> (u32, [u8; MAD_LEN]) {
    let [status, mad] = [16..20, MAD_AT..PACKET_LEN].map(|range| &bytes[range]);
    let mut number = [0; 4];
    number.copy_from_slice(status);
    let mut data = [0; MAD_LEN];
    data.copy_from_slice(mad);
    (u32::from_be_bytes(number), data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_laid_out_as_ibsim_reads_it() {
        let mut mad = [0; MAD_LEN];
        mad[255] = 9;
        let bytes = packet(0x0102, 1, &mad);
        assert_eq!(bytes[..8], [1, 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[8..16], [0, 0, 0, 1, 0, 0, 0, 1]);
        assert_eq!(bytes[24..32], [0, 0, 0, 0, 0, 0, 1, 0]);
        assert_eq!(unpack(&bytes), (0, mad));
        let mut back = bytes;
        back[19] = 110;
        assert_eq!(unpack(&back).0, 110);
    }

    #[test]
    fn names_are_cut_and_end_with_zero() {
        let bytes = connect(7, &"n".repeat(40));
        assert_eq!(bytes[16..20], 7u32.to_ne_bytes());
        assert_eq!(&bytes[28..59], "n".repeat(31).as_bytes());
        assert_eq!(bytes[59], 0);
    }

    #[test]
    fn a_refusal_is_told_from_a_number() {
        let mut answer = control(0, CONNECT, &[0; DATA_LEN]);
        answer[16] = 3;
        assert_eq!(connected(&answer), Some(3));
        answer[8..12].copy_from_slice(&ERROR.to_ne_bytes());
        assert_eq!(connected(&answer), None);
    }
}
