// SPDX-License-Identifier: MIT OR Apache-2.0
//! The codecs against tables, hand-made vectors, arbitrary bytes and Wireshark.

mod acm;
mod any_bytes;
mod cm_layout;
mod sa_tables;
mod table;
mod tshark;
mod vectors;
