// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every field of every CM message lies where `cm_fields.csv` says.

use crate::table::{MESSAGE_LEN, Row, cm_mad, cm_messages, cm_rows};
use cm_msgs::cm::Message;
use cm_msgs::fields::FieldValue;

/// What `fields()` must show for `row` when `set` are the message's only bits.
fn shown(row: &Row, set: &[usize]) -> String {
    let ones = set.iter().filter(|bit| row.bits.contains(bit));
    if row.bits.len() <= 64 {
        let value: u64 = ones.map(|bit| 1 << (row.bits.end - 1 - bit)).sum();
        return value.to_string();
    }
    let mut bytes = vec![0u8; row.bits.len() / 8];
    for bit in ones.map(|bit| bit - row.bits.start) {
        bytes[bit / 8] |= 0x80 >> (bit % 8);
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The message of `rows` with the bits `set`: decodes, shows exactly these, encodes to the same.
fn check(rows: &[Row], set: &[usize]) {
    let mad = cm_mad(rows[0].attribute_id, set.iter().copied());
    let (header, message) = Message::decode(&mad).unwrap();
    assert_eq!(message.name(), rows[0].message);
    assert_eq!(
        message.encode(header.mgmt_class, header.transaction_id),
        mad,
        "{message:?}"
    );

    let got: Vec<_> = message
        .fields()
        .map(|(name, value)| (name, value.to_string(), is_int(value)))
        .collect();
    let want: Vec<_> = rows
        .iter()
        .map(|row| (row.field, shown(row, set), row.bits.len() <= 64))
        .collect();
    assert_eq!(got, want, "{} with bits {set:?}", rows[0].message);
}

fn is_int(value: FieldValue<'_>) -> bool {
    matches!(value, FieldValue::Int(_))
}

#[test]
fn each_field_alone() {
    let rows = cm_rows();
    for rows in cm_messages(&rows) {
        check(rows, &[]);
        for row in rows {
            check(rows, &row.bits.clone().collect::<Vec<_>>());
        }
    }
}

#[test]
fn each_bit_alone() {
    let rows = cm_rows();
    for rows in cm_messages(&rows) {
        for bit in rows.iter().flat_map(|row| row.bits.clone()) {
            check(rows, &[bit]);
        }
    }
}

#[test]
fn reserved_bits_are_ignored_and_written_as_zero() {
    let rows = cm_rows();
    for rows in cm_messages(&rows) {
        let named: Vec<_> = rows.iter().flat_map(|row| row.bits.clone()).collect();
        let reserved = (0..MESSAGE_LEN * 8).filter(|bit| !named.contains(bit));
        let id = rows[0].attribute_id;
        let (_, message) = Message::decode(&cm_mad(id, reserved)).unwrap();
        let zero = cm_mad(id, []);
        assert_eq!(message, Message::decode(&zero).unwrap().1);
        assert_eq!(message.encode(7, 0), zero);
    }
}

#[test]
fn table_covers_every_message_once() {
    let rows = cm_rows();
    let ids: Vec<_> = cm_messages(&rows)
        .map(|rows| rows[0].attribute_id)
        .collect();
    assert_eq!(ids, (0x10..=0x1c).collect::<Vec<_>>());
    for rows in cm_messages(&rows) {
        let named: Vec<_> = rows.iter().flat_map(|row| row.bits.clone()).collect();
        assert!(
            named.is_sorted_by(|bit, next| bit < next),
            "{}: fields overlap",
            rows[0].message
        );
    }
}

#[test]
fn values_too_wide_are_cut_to_their_field() {
    use cm_msgs::cm::{Lap, Mra, Rep};
    use cm_msgs::{Qpn, cm::PathFields};

    let lap = Lap {
        remote_qpn_eecn: Qpn(0xff00_0001),
        remote_cm_response_timeout: 0xff,
        alternate: PathFields {
            flow_label: 0xffff_ffff,
            sl: 0x1f,
            ..PathFields::default()
        },
        ..Lap::default()
    };
    let cut = Lap::decode(&lap.encode());
    assert_eq!(cut.remote_qpn_eecn, Qpn(1));
    assert_eq!(cut.remote_cm_response_timeout, 0x1f);
    assert_eq!(cut.alternate.flow_label, 0xf_ffff);
    assert_eq!(cut.alternate.sl, 0xf);
    assert_eq!(
        cut.alternate.traffic_class, 0,
        "the flow label stays in its field"
    );

    let mra = Mra {
        message_mraed: 0xff,
        ..Mra::default()
    };
    assert_eq!(Mra::decode(&mra.encode()).message_mraed, 3);
    let rep = Rep {
        failover_accepted: 5,
        ..Rep::default()
    };
    assert_eq!(Rep::decode(&rep.encode()).failover_accepted, 1);
}
