// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's own path requests, which it multicasts to user space before it asks the SA
//! (RDMA netlink, client LS; `drivers/infiniband/core/sa_query.c`). Everything but path records and
//! GIDs is in host order.
//!
//! A request is a netlink message of type `4 << 10` with a header of 68 bytes (device name 64, port 1,
//! use of the path 1, padding) and attributes; the answer has the request's type and
//! number, no request flag, and either one attribute with flags and a record, or the error flag,
//! upon which the kernel asks the SA at once.

use cm_msgs::acm::Flags;
use cm_msgs::sa::PathRecord;
use cm_msgs::{Gid, PKey};

/// Type of the requests that are answered: client LS, operation RESOLVE.
const RESOLVE: u16 = 4 << 10;
const FLAG_REQUEST: u16 = 0x1;
const FLAG_ACK: u16 = 0x4;
const FLAG_ERROR: u16 = 0x100;
/// Type of the kernel's acknowledgements.
const ACKNOWLEDGEMENT: u16 = 2;

const HEADER_LEN: usize = 16;
const DEVICE_LEN: usize = 64;
const RESOLVE_HEADER_LEN: usize = 68;
const RECORD_LEN: usize = 72;

const ATTR_RECORD: u16 = 1;
const ATTR_SERVICE_ID: u16 = 3;
const ATTR_DGID: u16 = 4;
const ATTR_SGID: u16 = 5;
const ATTR_TRAFFIC_CLASS: u16 = 6;
const ATTR_PKEY: u16 = 7;
const ATTR_QOS_CLASS: u16 = 8;
const ATTR_MANDATORY: u16 = 1 << 13;
const ATTR_TYPE_MASK: u16 = 0x1fff;

/// One way only: `LS_RESOLVE_PATH_USE_UNIDIRECTIONAL`.
const USE_ONE_WAY: u8 = 1;

/// A path request of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The kernel's number for it.
    pub sequence: u32,
    /// The path need not lead back.
    pub one_way: bool,
    /// What is known of the path.
    pub path: PathRecord,
}

/// A message of the kernel's that is no path request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// Not a request for a path: another operation, or an answer.
    #[error("netlink message of type {0:#06x}, want {RESOLVE:#06x}")]
    Type(u16),
    /// It ends early.
    #[error("path request of the kernel is cut at byte {0}")]
    Cut(usize),
    /// An attribute that is unknown and must be heeded, or has the wrong length.
    #[error("attribute {kind} of {len} bytes in a path request of the kernel is not understood")]
    Attribute {
        /// Its type.
        kind: u16,
        /// Its length.
        len: usize,
    },
}

impl Request {
    /// Reads a netlink message. With the number of one that is a request, but cannot be read: it
    /// is to be refused.
    ///
    /// # Errors
    /// Something else, or something that cannot be read.
    pub fn decode(message: &[u8]) -> Result<Self, (Option<u32>, KernelError)> {
        let cut = (None, KernelError::Cut(message.len()));
        let (header, _) = message.split_first_chunk::<HEADER_LEN>().ok_or(cut)?;
        let [l0, l1, l2, l3, t0, t1, f0, f1, s0, s1, s2, s3, ..] = *header;
        let kind = u16::from_ne_bytes([t0, t1]);
        let flags = u16::from_ne_bytes([f0, f1]);
        if kind != RESOLVE || flags & FLAG_REQUEST == 0 {
            return Err((None, KernelError::Type(kind)));
        }
        let sequence = u32::from_ne_bytes([s0, s1, s2, s3]);
        let len = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
        let refuse = |error| (Some(sequence), error);
        let body = message
            .get(HEADER_LEN..len)
            .ok_or_else(|| refuse(KernelError::Cut(message.len())))?;
        Self::read(sequence, body).map_err(refuse)
    }

    fn read(sequence: u32, body: &[u8]) -> Result<Self, KernelError> {
        let (head, mut rest) = body
            .split_first_chunk::<RESOLVE_HEADER_LEN>()
            .ok_or(KernelError::Cut(HEADER_LEN + body.len()))?;
        let one_way = head[DEVICE_LEN + 1] == USE_ONE_WAY;
        let mut path = PathRecord {
            reversible: !one_way,
            numb_path: 1,
            ..PathRecord::default()
        };
        while let Some(([l0, l1, t0, t1], _)) = rest.split_first_chunk() {
            let len = usize::from(u16::from_ne_bytes([*l0, *l1]));
            let kind = u16::from_ne_bytes([*t0, *t1]);
            let value = rest
                .get(4..len)
                .ok_or(KernelError::Cut(HEADER_LEN + body.len()))?;
            attribute(&mut path, kind, value)?;
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        }
        Ok(Self {
            sequence,
            one_way,
            path,
        })
    }

    /// Whether the path depends on what only the SA knows.
    pub fn needs_sa(&self) -> bool {
        self.path.qos_class != 0
    }

    /// The answer: the path, but with what the kernel asked for where it is the kernel's to say.
    pub fn answer(&self, path: &PathRecord) -> Vec<u8> {
        let path = PathRecord {
            service_id: self.path.service_id,
            traffic_class: self.path.traffic_class,
            ..*path
        };
        let flags = match self.one_way {
            true => Flags::PRIMARY | Flags::OUTBOUND,
            false => Flags::WHOLE_PATH,
        };
        let attribute_len = 4 + RECORD_LEN;
        let mut message = header(HEADER_LEN + attribute_len, 0, self.sequence);
        message.extend((attribute_len as u16).to_ne_bytes());
        message.extend(ATTR_RECORD.to_ne_bytes());
        message.extend(flags.0.to_ne_bytes());
        message.extend([0; 4]);
        message.extend(path.encode());
        message
    }
}

/// The answer that sends the kernel to the SA.
pub fn refusal(sequence: u32) -> Vec<u8> {
    header(HEADER_LEN, FLAG_ERROR, sequence)
}

/// An answer to no request (the kernel's numbers begin with 1), to be acknowledged. It changes nothing, and the
/// acknowledgement tells whether the kernel takes answers from this process at all: `rdma_nl_rcv_msg` looks at the right
/// first.
pub fn trial() -> Vec<u8> {
    header(HEADER_LEN, FLAG_ERROR | FLAG_ACK, 0)
}

/// What the kernel says of the [`trial`]: 0, or the negative error number; `None`: this is no acknowledgement.
pub fn acknowledged(message: &[u8]) -> Option<i32> {
    let (header, rest) = message.split_first_chunk::<HEADER_LEN>()?;
    let (error, _) = rest.split_first_chunk()?;
    let is_it = u16::from_ne_bytes([header[4], header[5]]) == ACKNOWLEDGEMENT;
    is_it.then(|| i32::from_ne_bytes(*error))
}

fn header(len: usize, flags: u16, sequence: u32) -> Vec<u8> {
    let mut message = Vec::with_capacity(len);
    message.extend((len as u32).to_ne_bytes());
    message.extend(RESOLVE.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    message.extend([0; 4]);
    message
}

fn attribute(path: &mut PathRecord, kind: u16, value: &[u8]) -> Result<(), KernelError> {
    let mandatory = kind & ATTR_MANDATORY != 0;
    let kind = kind & ATTR_TYPE_MASK;
    let wrong = KernelError::Attribute {
        kind,
        len: value.len(),
    };
    match kind {
        ATTR_SERVICE_ID => path.service_id = u64::from_ne_bytes(exactly(value).ok_or(wrong)?),
        ATTR_DGID => path.dgid = Gid(exactly(value).ok_or(wrong)?),
        ATTR_SGID => path.sgid = Gid(exactly(value).ok_or(wrong)?),
        ATTR_TRAFFIC_CLASS => [path.traffic_class] = exactly(value).ok_or(wrong)?,
        ATTR_PKEY => path.pkey = PKey(u16::from_ne_bytes(exactly(value).ok_or(wrong)?)),
        ATTR_QOS_CLASS => {
            path.qos_class = u16::from_ne_bytes(exactly(value).ok_or(wrong)?);
        }
        _ if mandatory => return Err(wrong),
        _ => {}
    }
    Ok(())
}

fn exactly<const N: usize>(value: &[u8]) -> Option<[u8; N]> {
    value.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// As `ib_nl_make_request` writes it.
    fn message(attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = vec![0; RESOLVE_HEADER_LEN];
        body[..5].copy_from_slice(b"shca0");
        body[DEVICE_LEN] = 1;
        for (kind, value) in attributes {
            body.extend((4 + value.len() as u16).to_ne_bytes());
            body.extend((kind | ATTR_MANDATORY).to_ne_bytes());
            body.extend(*value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        let mut message = header(HEADER_LEN + body.len(), FLAG_REQUEST, 9);
        message.extend(body);
        message
    }

    #[test]
    fn a_request_of_rdma_cm() {
        let [dgid, sgid] = [[2; 16], [1; 16]];
        let request = message(&[
            (ATTR_SERVICE_ID, &0x0106_1b39_u64.to_ne_bytes()),
            (ATTR_DGID, &dgid),
            (ATTR_SGID, &sgid),
            (ATTR_TRAFFIC_CLASS, &[4]),
            (ATTR_PKEY, &0xffff_u16.to_ne_bytes()),
            (ATTR_QOS_CLASS, &0_u16.to_ne_bytes()),
        ]);
        let want = Request {
            sequence: 9,
            one_way: false,
            path: PathRecord {
                service_id: 0x0106_1b39,
                dgid: Gid(dgid),
                sgid: Gid(sgid),
                traffic_class: 4,
                pkey: PKey(0xffff),
                reversible: true,
                numb_path: 1,
                ..PathRecord::default()
            },
        };
        assert_eq!(Request::decode(&request), Ok(want));
        assert!(!want.needs_sa());
    }

    #[test]
    fn an_answer_has_one_primary_path() {
        let mut request = Request {
            sequence: 9,
            one_way: false,
            path: PathRecord {
                service_id: 5,
                ..PathRecord::default()
            },
        };
        let path = PathRecord {
            sl: 3,
            ..PathRecord::default()
        };
        let both = request.answer(&path);
        assert_eq!(
            (both.len(), both[16], both[18], both[20]),
            (92, 76, 1, 0x2b)
        );
        assert_eq!(both[8], 9);
        let record = PathRecord::decode(both[28..].try_into().unwrap());
        assert_eq!((record.sl, record.service_id), (3, 5));
        request.one_way = true;
        assert_eq!(request.answer(&path)[20], 0x0a);
        assert_eq!(refusal(9)[..8], [16, 0, 0, 0, 0, 0x10, 0, 1]);
    }

    #[test]
    fn a_trial_answers_nothing_and_its_acknowledgement_is_read() {
        let trial = trial();
        assert!(Request::decode(&trial).is_err());
        assert_eq!(trial[8..12], [0; 4], "no request's number");
        let acknowledgement = |kind: u16, error: i32| {
            let mut message = trial.clone();
            message[4..6].copy_from_slice(&kind.to_ne_bytes());
            message.extend(error.to_ne_bytes());
            message.extend(&trial);
            message
        };
        assert_eq!(acknowledged(&acknowledgement(2, 0)), Some(0));
        assert_eq!(acknowledged(&acknowledgement(2, -1)), Some(-1));
        assert_eq!(acknowledged(&acknowledgement(RESOLVE, -1)), None);
        assert_eq!(acknowledged(&acknowledgement(2, -1)[..19]), None);
    }

    #[test]
    fn what_cannot_be_read_is_refused_if_it_is_a_request() {
        let unknown = message(&[(99, &[1])]);
        let refused = KernelError::Attribute { kind: 99, len: 1 };
        assert_eq!(Request::decode(&unknown), Err((Some(9), refused)));
        let short = message(&[(ATTR_DGID, &[1; 15])]);
        let refused = KernelError::Attribute {
            kind: ATTR_DGID,
            len: 15,
        };
        assert_eq!(Request::decode(&short), Err((Some(9), refused)));
        let answer = refusal(9);
        assert_eq!(
            Request::decode(&answer),
            Err((None, KernelError::Type(RESOLVE)))
        );
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in vec(any::<u8>(), 0..300), is_request: bool) {
            let mut bytes = bytes;
            if is_request && bytes.len() >= HEADER_LEN {
                let len = bytes.len();
                bytes[..HEADER_LEN].copy_from_slice(&header(len, FLAG_REQUEST, 9));
            }
            let read = Request::decode(&bytes);
            let refused = read.is_err_and(|(sequence, _)| sequence.is_none());
            prop_assert!(!(refused && is_request && bytes.len() >= HEADER_LEN));
        }
    }
}
