// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes become a value or a typed error, and what became a value stays the same from then on.

use cm_msgs::acm::{self, Counters, Endpoint, Entry, Resolve};
use cm_msgs::association::{RepData, ReqData, State};
use cm_msgs::cm::Message;
use cm_msgs::pretty::Pretty;
use cm_msgs::sa::{
    ClassPortInfo, InformInfo, LinearForwardingTableRecord, LinkRecord, McMemberRecord, NodeRecord,
    Notice, PKeyTableRecord, PathRecord, PortInfoRecord, SaMad, SaMessage, ServiceRecord,
    SlToVlMappingTableRecord, SwitchInfoRecord,
};
use cm_msgs::smp::{PortInfo, Smp};
use cm_msgs::{DecodeError, Gid, Presence, PrivateData, control};
use proptest::collection::vec;
use proptest::prelude::*;

/// 256 bytes that are a CM MAD, whatever they say.
fn cm_mad() -> impl Strategy<Value = Vec<u8>> {
    (0x10..=0x1cu8, vec(any::<u8>(), 256)).prop_map(|(id, mut mad)| {
        mad[0] = 1;
        mad[2..4].copy_from_slice(&[2, 3]);
        mad[16..18].copy_from_slice(&[0, id]);
        mad
    })
}

/// 256 bytes that are a MAD of the class and version.
fn mad_of(class: u8, version: u8) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 256).prop_map(move |mut mad| {
        mad[..3].copy_from_slice(&[1, class, version]);
        mad
    })
}

/// decode, encode, decode again: the same, and `encode` does not change any more.
macro_rules! settles {
    ($type:ty, $bytes:expr) => {
        let value = <$type>::decode(&$bytes);
        let bytes = value.encode();
        let again = <$type>::decode(&bytes);
        prop_assert_eq!(&again, &value);
        prop_assert_eq!(again.encode(), bytes);
    };
}

proptest! {
    #[test]
    fn bytes_of_any_length(bytes in vec(any::<u8>(), 0..600)) {
        let long = bytes.len() != 256;
        let cm = Message::decode(&bytes).map(|_| ());
        let sa = SaMad::decode(&bytes).map(|_| ());
        let smp = Smp::decode(&bytes).map(|_| ());
        let presence = Presence::decode(&bytes).map(|_| ());
        for result in [cm, sa, smp, presence] {
            prop_assert_eq!(result == Err(DecodeError::Length(bytes.len())), long);
        }
    }

    #[test]
    fn any_header(mad in vec(any::<u8>(), 256)) {
        if let Ok((header, message)) = Message::decode(&mad) {
            prop_assert_eq!(header.attribute_id, message.attribute_id());
        }
        if let Ok(sa) = SaMad::decode(&mad) {
            prop_assert_eq!(sa.header.mgmt_class, 3);
        }
    }

    #[test]
    fn any_cm_message(mad in cm_mad()) {
        let (header, message) = Message::decode(&mad).unwrap();
        let bytes = message.encode(header.mgmt_class, header.transaction_id);
        let (again_header, again) = Message::decode(&bytes).unwrap();
        prop_assert_eq!(&again, &message);
        prop_assert_eq!(again_header.transaction_id, header.transaction_id);
        prop_assert_eq!(again.encode(header.mgmt_class, header.transaction_id), bytes);

        let text = Pretty { header: &header, message: &message }.to_string();
        prop_assert!(text.lines().count() > message.fields().count());
    }

    #[test]
    fn any_presence(mut mad in mad_of(0x2d, 2), answer: bool, status: bool) {
        mad[3] = if answer { 0x81 } else { 1 };
        mad[16..18].copy_from_slice(&[0, 1]);
        if !status {
            mad[4..6].copy_from_slice(&[0, 0]);
        }
        let (header, message) = Presence::decode(&mad).unwrap();
        let again = Presence::decode(&message.encode(0x2d, header.transaction_id)).unwrap();
        prop_assert_eq!(again.1, message);
        prop_assert_eq!(again.0.transaction_id, header.transaction_id);
        let good = answer && mad[4..6] == [0, 0] && mad[25] == 2;
        prop_assert_eq!(message.is_here(), good);
    }

    #[test]
    fn any_control_message(kind: u8, conn: u64, body in vec(any::<u8>(), 0..240), fits: bool) {
        let mut packet = [&[0x41, 0x50, control::VERSION, kind, 0, 0, 0, 0][..], &conn.to_be_bytes(), &body].concat();
        if fits {
            let len = packet.len() as u32;
            packet[4..8].copy_from_slice(&len.to_be_bytes());
        }
        let library = control::FromLibrary::decode(&packet);
        let daemon = control::FromDaemon::decode(&packet);
        prop_assert!(library.is_err() || daemon.is_err(), "one direction at most");
        if let Ok(message) = library {
            prop_assert_eq!(control::FromLibrary::decode(message.encode().as_ref()), Ok(message));
        }
        if let Ok(message) = daemon {
            prop_assert_eq!(control::FromDaemon::decode(message.encode().as_ref()), Ok(message));
        }
    }

    #[test]
    fn any_question_about_a_peer(bytes: [u8; 11], question: u64) {
        let front = [0x41, 0x50, control::VERSION, 0x05, 0, 0, 0, 27];
        let packet = [&front[..], &question.to_be_bytes(), &bytes].concat();
        let message = control::FromLibrary::decode(&packet).unwrap();
        let encoded = message.encode();
        prop_assert_eq!(encoded.as_ref(), &packet[..]);
    }

    #[test]
    fn any_standing_order(mut path: [u8; 50], allowed in 0..3u8, conn: u64) {
        path[5] &= 1;
        let front = [0x41, 0x50, control::VERSION, 0x89, 0, 0, 0, 67];
        let packet = [&front[..], &conn.to_be_bytes(), &path, &[allowed]].concat();
        let message = control::FromDaemon::decode(&packet);
        prop_assert_eq!(message.is_ok(), allowed < 2);
        if let Ok(message) = message {
            let encoded = message.encode();
            prop_assert_eq!(encoded.as_ref(), &packet[..]);
        }
    }

    #[test]
    fn any_sa_mad(mad in mad_of(3, 2)) {
        let sa = SaMad::decode(&mad).unwrap();
        prop_assert_eq!(SaMad::decode(&sa.encode()).unwrap(), sa.clone());
        let answers = [
            sa.path_record().is_ok(),
            sa.notice().is_ok(),
        ];
        prop_assert!(answers.iter().filter(|ok| **ok).count() <= 1);
    }

    #[test]
    fn any_sa_message(mut message in vec(any::<u8>(), 0..600), method in prop::sample::select(vec![0x81u8, 0x92])) {
        if let Some(front) = message.first_chunk_mut() {
            *front = [1, 3, 2, method];
        }
        let decoded = SaMessage::decode(&message);
        prop_assert_eq!(decoded.is_ok(), message.len() >= 56);
        if let Ok(decoded) = decoded
            && let Ok(record_len) = decoded.record_len()
            && !decoded.data.is_empty()
        {
            prop_assert_eq!(decoded.data.len() % record_len, 0);
        }
    }

    #[test]
    fn any_smp(class in prop::sample::select(vec![0x01u8, 0x81]), mut mad in mad_of(0, 1)) {
        mad[1] = class;
        let smp = Smp::decode(&mad).unwrap();
        prop_assert_eq!(Smp::decode(&smp.encode()).unwrap(), smp.clone());
        prop_assert_eq!(smp.port_info().is_ok(), mad[3] == 0x81
            && mad[16..18] == [0, 0x15]
            && mad[4] & 0x7f == 0
            && mad[5] == 0);
    }

    #[test]
    fn any_attribute(bytes in any::<[[u8; 32]; 6]>()) {
        let bytes = bytes.concat();
        settles!(PathRecord, bytes[..64].try_into().unwrap());
        settles!(PortInfo, bytes[..64].try_into().unwrap());
        settles!(InformInfo, bytes[..36].try_into().unwrap());
        settles!(Notice, bytes[..80].try_into().unwrap());
        settles!(ClassPortInfo, bytes[..72].try_into().unwrap());
        settles!(NodeRecord, bytes[..108].try_into().unwrap());
        settles!(PortInfoRecord, bytes[..68].try_into().unwrap());
        settles!(LinkRecord, bytes[..6].try_into().unwrap());
        settles!(SwitchInfoRecord, bytes[..24].try_into().unwrap());
        settles!(LinearForwardingTableRecord, bytes[..72].try_into().unwrap());
        settles!(SlToVlMappingTableRecord, bytes[..16].try_into().unwrap());
        settles!(PKeyTableRecord, bytes[..72].try_into().unwrap());
        settles!(McMemberRecord, bytes[..52].try_into().unwrap());
        settles!(ServiceRecord, bytes[..176].try_into().unwrap());
    }

    #[test]
    fn any_association_data(
        start in 0..3u8,
        ports in 0..6u8,
        migration in 0..4u8,
        data in vec(any::<u8>(), 224),
    ) {
        let mut data = data;
        if start > 0 {
            data[..5].copy_from_slice(b"apmd\x02");
            data[5] = migration << 5 | ports;
        }
        let good = start > 0 && ports <= 4 && migration < 3;
        let req = PrivateData::from_slice(&data[..92]).unwrap();
        if let Ok(value) = ReqData::decode(&req) {
            prop_assert_eq!(ReqData::decode(&value.encode()), Ok(value));
            prop_assert!(value.state.ports.as_slice().len() <= 4);
        }
        let rep = PrivateData::from_slice(&data[..196]).unwrap();
        if let Ok(value) = RepData::decode(&rep) {
            prop_assert_eq!(RepData::decode(&value.encode()), Ok(value));
        }
        prop_assert_eq!(ReqData::decode(&req).is_ok(), good);
        prop_assert_eq!(RepData::decode(&rep).is_ok(), good);
        let lap: PrivateData<168> = PrivateData::from_slice(&data[..168]).unwrap();
        prop_assert_eq!(State::decode(&lap).is_ok(), good);
        if let Ok(value) = State::decode(&lap) {
            prop_assert_eq!(State::decode(&value.encode::<168>()), Ok(value));
        }
    }

    #[test]
    fn any_gid_reads_back(bytes in any::<[u8; 16]>()) {
        prop_assert_eq!(Gid(bytes).to_string().parse(), Ok(Gid(bytes)));
    }

    #[test]
    fn any_acm_entry(bytes: [u8; 72]) {
        settles!(Entry, bytes);
    }

    #[test]
    fn any_acm_header(bytes: [u8; 16]) {
        let header = acm::Header::decode(&bytes);
        prop_assert_eq!(header.encode(), bytes);
    }

    #[test]
    fn any_acm_message(mut bytes in vec(any::<u8>(), 0..700), fits: bool) {
        if fits && bytes.len() >= 16 {
            bytes.truncate(16 + (bytes.len() - 16) / 72 * 72);
            bytes[..2].copy_from_slice(&[1, 1]);
            let length = bytes.len() as u16;
            bytes[6..8].copy_from_slice(&length.to_ne_bytes());
        }
        let read = Resolve::decode(&bytes);
        if fits && (16..=592).contains(&bytes.len()) {
            prop_assert!(read.is_ok());
        }
        if let Ok(message) = read {
            let mut buffer = [0; acm::MAX_LEN];
            let again = Resolve::decode(message.encode(&mut buffer));
            prop_assert_eq!(again, Ok(message));
        }
    }

    #[test]
    fn any_acm_endpoint(bytes in vec(any::<u8>(), 80), counters: [[u8; 8]; 7]) {
        settles!(Endpoint, bytes.first_chunk().unwrap());
        let bytes: [u8; 56] = counters.concat().try_into().unwrap();
        settles!(Counters, bytes);
    }

    #[test]
    fn any_acm_datagram(mut mad in mad_of(0x2c, 1), answer: bool, known: bool) {
        mad[3] = if answer { 0x81 } else { 1 };
        mad[6..8].copy_from_slice(&[0, 1]);
        if known {
            mad[16] = mad[16] % 5 + 1;
            mad[18] = mad[18] % 5 + 1;
        }
        let read = acm::resolve::Message::decode(&mad);
        prop_assert!(read.is_ok() || !known && !answer);
        if let Ok(message) = read {
            prop_assert_eq!(acm::resolve::Message::decode(&message.encode()), Ok(message));
        }
    }
}
