// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables beside the tests, read, and bits by their columns.

use std::ops::Range;

/// A row of `cm_fields.csv`.
pub(crate) struct Row {
    pub(crate) message: &'static str,
    pub(crate) attribute_id: u16,
    pub(crate) field: &'static str,
    /// The field's bits, counted from the most significant one of the message's first byte.
    pub(crate) bits: Range<usize>,
}

/// Bytes of a MAD before and of the message itself.
pub(crate) const HEADER_LEN: usize = 24;
pub(crate) const MESSAGE_LEN: usize = 232;

/// Lines of a table, without comments and heading.
pub(crate) fn lines(table: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    let rows = table.lines().filter(|line| !line.starts_with('#'));
    rows.skip(1).map(|line| line.split(',').collect())
}

/// All rows of `cm_fields.csv`.
pub(crate) fn cm_rows() -> Vec<Row> {
    lines(include_str!("../cm_fields.csv"))
        .map(|columns| {
            let [message, id, field, byte, bit, width] = columns[..] else {
                panic!("not six columns: {columns:?}");
            };
            let number = |text: &str| text.parse::<usize>().unwrap();
            let first = number(byte) * 8 + number(bit);
            Row {
                message,
                attribute_id: u16::from_str_radix(id.trim_start_matches("0x"), 16).unwrap(),
                field,
                bits: first..first + number(width),
            }
        })
        .collect()
}

/// The rows, message by message.
pub(crate) fn cm_messages(rows: &[Row]) -> impl Iterator<Item = &[Row]> {
    rows.chunk_by(|row, next| row.message == next.message)
}

/// A CM MAD in class 0x07 of zeros, but for the bits given.
pub(crate) fn cm_mad(attribute_id: u16, set: impl IntoIterator<Item = usize>) -> [u8; 256] {
    let mut mad = [0; 256];
    mad[..4].copy_from_slice(&[1, 7, 2, 3]);
    mad[16..18].copy_from_slice(&attribute_id.to_be_bytes());
    for bit in set {
        mad[HEADER_LEN + bit / 8] |= 0x80 >> (bit % 8);
    }
    mad
}
