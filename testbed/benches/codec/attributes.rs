// SPDX-License-Identifier: MIT OR Apache-2.0
//! The attributes as libibmad writes and reads them: every field of cm-msgs' tables, once.
//!
//! Where libibmad's table has no field of a place and width, a wider one takes it, with its neighbours
//! if it has any: one call, never more than fields. Private data is copied in both.

use cm_msgs::cm::{Lap, Req};
use cm_msgs::sa::{Notice, PathRecord};

use crate::libibmad::*;

/// An attribute of `N` bytes, by both.
pub(crate) trait Attribute<const N: usize>: PartialEq + Sized {
    const NAME: &str;
    /// Calls of libibmad for all fields.
    const CALLS: usize;

    fn encode(&self) -> [u8; N];
    fn decode(bytes: &[u8; N]) -> Self;
    /// How many fields there are.
    fn shown(&self) -> usize;

    fn encode_by_libibmad(&self) -> [u8; N];
    /// Into a value that was there before, as in C: every field is overwritten.
    fn decode_by_libibmad(bytes: &[u8; N], into: &mut Self);
}

/// What fits a word.
trait Bits: Copy {
    fn bits(self) -> u32;
    fn of(bits: u32) -> Self;
}

macro_rules! bits {
    ($($type:ty: $of:expr;)+) => {$(
        impl Bits for $type {
            fn bits(self) -> u32 {
                self.into()
            }

            fn of(bits: u32) -> Self {
                $of(bits)
            }
        }
    )+};
}

bits! {
    bool: |bits| bits != 0;
    u8: |bits| bits as Self;
    u16: |bits| bits as Self;
    u32: |bits| bits;
}

/// A row is one call: `word BYTE FIELD { field }`, or `{ field: WIDTH << SHIFT, ... }` for parts of
/// the call's value; `long BYTE { field }`; `array BYTE FIELD { field }`. `copy` is none.
macro_rules! attribute {
    ($type:ident: $len:literal { $($kind:ident $byte:literal $($field:ident)? { $($what:tt)+ })+ }) => {
        impl Attribute<$len> for $type {
            const NAME: &str = stringify!($type);
            const CALLS: usize = 0 $(+ attribute!(@calls $kind))+;

            // As where they are used: the caller's own code, into the caller's own memory.
            #[inline]
            fn encode(&self) -> [u8; $len] {
                self.encode()
            }

            #[inline]
            fn decode(bytes: &[u8; $len]) -> Self {
                Self::decode(bytes)
            }

            fn shown(&self) -> usize {
                self.fields().count()
            }

            fn encode_by_libibmad(&self) -> [u8; $len] {
                let mut bytes = [0; $len];
                $(attribute!(@set $kind $len, self, bytes, $byte $($field)? { $($what)+ });)+
                bytes
            }

            fn decode_by_libibmad(bytes: &[u8; $len], into: &mut Self) {
                $(attribute!(@get $kind $len, into, bytes, $byte $($field)? { $($what)+ });)+
            }
        }
    };

    (@calls copy) => { 0 };
    (@calls $kind:ident) => { 1 };

    (@set word $len:literal, $from:ident, $bytes:ident, $byte:literal $field:ident { $($part:tt).+ }) => {
        const { Word::<$len>::new($field, $byte) }.set(&mut $bytes, $from.$($part).+.bits())
    };
    (@set word $len:literal, $from:ident, $bytes:ident, $byte:literal $field:ident {
        $($($part:tt).+: $width:literal << $shift:literal),+
    }) => {
        const { Word::<$len>::new($field, $byte) }.set(
            &mut $bytes,
            0 $(| ($from.$($part).+.bits() & ((1 << $width) - 1)) << $shift)+,
        )
    };
    (@set long $len:literal, $from:ident, $bytes:ident, $byte:literal { $($part:tt).+ }) => {
        const { Long::<$len>::new($byte) }.set(&mut $bytes, $from.$($part).+)
    };
    (@set array $len:literal, $from:ident, $bytes:ident, $byte:literal $field:ident { $($part:tt).+ }) => {
        const { Array::<$len, _>::new($field, $byte) }.set(&mut $bytes, &$from.$($part).+)
    };
    (@set copy $len:literal, $from:ident, $bytes:ident, $byte:literal { $($part:tt).+ }) => {
        $bytes[$byte..].copy_from_slice(&$from.$($part).+)
    };

    (@get word $len:literal, $into:ident, $bytes:ident, $byte:literal $field:ident { $($part:tt).+ }) => {
        $into.$($part).+ = Bits::of(const { Word::<$len>::new($field, $byte) }.get($bytes))
    };
    (@get word $len:literal, $into:ident, $bytes:ident, $byte:literal $field:ident {
        $($($part:tt).+: $width:literal << $shift:literal),+
    }) => {
        let bits = const { Word::<$len>::new($field, $byte) }.get($bytes);
        $($into.$($part).+ = Bits::of(bits >> $shift & ((1 << $width) - 1));)+
    };
    (@get long $len:literal, $into:ident, $bytes:ident, $byte:literal { $($part:tt).+ }) => {
        $into.$($part).+ = const { Long::<$len>::new($byte) }.get($bytes)
    };
    (@get array $len:literal, $into:ident, $bytes:ident, $byte:literal $field:ident { $($part:tt).+ }) => {
        const { Array::<$len, _>::new($field, $byte) }.get($bytes, &mut $into.$($part).+)
    };
    (@get copy $len:literal, $into:ident, $bytes:ident, $byte:literal { $($part:tt).+ }) => {
        $into.$($part).+.copy_from_slice(&$bytes[$byte..])
    };
}

attribute! {
    Lap: 232 {
        word 0 AT_0_WIDE_32 { local_comm_id }
        word 4 AT_0_WIDE_32 { remote_comm_id }
        word 12 AT_0_WIDE_24 { remote_qpn_eecn.0 }
        word 12 AT_24_WIDE_5 { remote_cm_response_timeout }
        word 20 AT_0_WIDE_16 { alternate.local_port_lid.0 }
        word 20 AT_16_WIDE_16 { alternate.remote_port_lid.0 }
        array 24 GID { alternate.local_port_gid.0 }
        array 40 GID { alternate.remote_port_gid.0 }
        word 56 AT_0_WIDE_24 { alternate.flow_label: 20 << 4 }
        word 56 AT_24_WIDE_8 { alternate.traffic_class }
        word 60 AT_0_WIDE_8 { alternate.hop_limit }
        word 60 AT_8_WIDE_8 { alternate.packet_rate: 6 << 0 }
        word 60 AT_16_WIDE_4 { alternate.sl }
        word 60 AT_20_WIDE_4 { alternate.subnet_local: 1 << 3 }
        word 60 AT_24_WIDE_5 { alternate.local_ack_timeout }
        copy 64 { private_data.0 }
    }
}

attribute! {
    Req: 232 {
        word 0 AT_0_WIDE_32 { local_comm_id }
        word 4 AT_8_WIDE_24 { vendor_id }
        long 8 { service_id }
        long 16 { local_ca_guid.0 }
        word 28 AT_0_WIDE_32 { local_q_key }
        word 32 AT_0_WIDE_24 { local_qpn.0 }
        word 32 AT_24_WIDE_8 { responder_resources }
        word 36 AT_0_WIDE_24 { local_eecn }
        word 36 AT_24_WIDE_8 { initiator_depth }
        word 40 AT_0_WIDE_24 { remote_eecn }
        word 40 AT_24_WIDE_5 { remote_cm_response_timeout }
        word 40 AT_29_WIDE_3 { transport_service_type: 2 << 1, end_to_end_flow_control: 1 << 0 }
        word 44 AT_0_WIDE_24 { starting_psn }
        word 44 AT_24_WIDE_5 { local_cm_response_timeout }
        word 44 AT_29_WIDE_3 { retry_count }
        word 48 AT_0_WIDE_16 { partition_key.0 }
        word 48 AT_16_WIDE_4 { path_packet_payload_mtu }
        word 48 AT_20_WIDE_4 { rdc_exists: 1 << 3, rnr_retry_count: 3 << 0 }
        word 48 AT_24_WIDE_4 { max_cm_retries }
        word 48 AT_28_WIDE_1 { srq }
        word 48 AT_29_WIDE_3 { extended_transport_type }
        word 52 AT_0_WIDE_16 { primary.local_port_lid.0 }
        word 52 AT_16_WIDE_16 { primary.remote_port_lid.0 }
        array 56 GID { primary.local_port_gid.0 }
        array 72 GID { primary.remote_port_gid.0 }
        word 88 AT_0_WIDE_24 { primary.flow_label: 20 << 4 }
        word 88 AT_24_WIDE_8 { primary.packet_rate: 6 << 0 }
        word 92 AT_0_WIDE_8 { primary.traffic_class }
        word 92 AT_8_WIDE_8 { primary.hop_limit }
        word 92 AT_16_WIDE_4 { primary.sl }
        word 92 AT_20_WIDE_4 { primary.subnet_local: 1 << 3 }
        word 92 AT_24_WIDE_5 { primary.local_ack_timeout }
        word 96 AT_0_WIDE_16 { alternate.local_port_lid.0 }
        word 96 AT_16_WIDE_16 { alternate.remote_port_lid.0 }
        array 100 GID { alternate.local_port_gid.0 }
        array 116 GID { alternate.remote_port_gid.0 }
        word 132 AT_0_WIDE_24 { alternate.flow_label: 20 << 4 }
        word 132 AT_24_WIDE_8 { alternate.packet_rate: 6 << 0 }
        word 136 AT_0_WIDE_8 { alternate.traffic_class }
        word 136 AT_8_WIDE_8 { alternate.hop_limit }
        word 136 AT_16_WIDE_4 { alternate.sl }
        word 136 AT_20_WIDE_4 { alternate.subnet_local: 1 << 3 }
        word 136 AT_24_WIDE_5 { alternate.local_ack_timeout }
        word 136 AT_29_WIDE_1 { sap_supported }
        copy 140 { private_data.0 }
    }
}

attribute! {
    PathRecord: 64 {
        long 0 { service_id }
        array 8 GID { dgid.0 }
        array 24 GID { sgid.0 }
        word 40 AT_0_WIDE_16 { dlid.0 }
        word 40 AT_16_WIDE_16 { slid.0 }
        word 44 AT_0_WIDE_24 { raw_traffic: 1 << 23, flow_label: 20 << 0 }
        word 44 AT_24_WIDE_8 { hop_limit }
        word 48 AT_0_WIDE_8 { traffic_class }
        word 48 AT_8_WIDE_1 { reversible }
        word 48 AT_9_WIDE_7 { numb_path }
        word 48 AT_16_WIDE_16 { pkey.0 }
        word 52 AT_0_WIDE_16 { qos_class: 12 << 4, sl: 4 << 0 }
        word 52 AT_16_WIDE_2 { mtu_selector }
        word 52 AT_18_WIDE_6 { mtu }
        word 52 AT_24_WIDE_8 { rate_selector: 2 << 6, rate: 6 << 0 }
        word 56 AT_0_WIDE_8 { packet_life_time_selector: 2 << 6, packet_life_time: 6 << 0 }
        word 56 AT_8_WIDE_8 { preference }
    }
}

attribute! {
    Notice: 80 {
        word 0 AT_0_WIDE_1 { is_generic }
        word 0 AT_1_WIDE_7 { notice_type }
        word 0 AT_8_WIDE_24 { producer_type }
        word 4 AT_0_WIDE_16 { trap_number }
        word 4 AT_16_WIDE_16 { issuer_lid.0 }
        word 8 AT_0_WIDE_16 { notice_toggle: 1 << 15, notice_count: 15 << 0 }
        array 10 DETAILS { data_details }
        array 64 GID { issuer_gid.0 }
    }
}
