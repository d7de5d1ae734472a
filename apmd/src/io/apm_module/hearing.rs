// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel's messages to the socket say, of the module and of the family that it is.

use std::io;

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_generic::ctrl::nlas::{GenlCtrlAttrs, McastGrpAttrs};
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlMessage};

use super::constants::GROUP_EVENTS;
use super::message::Message;
use crate::io::netlink::HEADER_LEN;

/// `GENL_ID_CTRL`: also the number of the group `notify`, to which families that come and go are told
/// (`net/netlink/genetlink.c`).
pub(super) const CONTROL: u16 = 0x10;

const TYPE_ERROR: u16 = 2;
const TYPE_DONE: u16 = 3;

/// What the kernel is asked besides orders.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Request {
    /// Whether the module is there.
    Family,
    /// Which queue pairs there are.
    Dump,
    /// To care for these queue pairs.
    Settings,
    /// Whether the module sees what happens.
    State,
}

impl Request {
    const ALL: [Self; 4] = [Self::Family, Self::Dump, Self::Settings, Self::State];

    /// By which its answer is known: behind all tokens but the last.
    pub(super) const fn sequence(self) -> u32 {
        u32::MAX - 1 - self as u32
    }

    fn with_sequence(sequence: u32) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|request| request.sequence() == sequence)
    }
}

/// What was received.
#[derive(Debug)]
pub(crate) enum Heard {
    /// The module is there, or another in its place.
    Appeared,
    /// It was asked for, and is the one that was there before.
    StillThere,
    /// It is no more, or not there.
    Vanished,
    /// It says something.
    Said(Message),
    /// All that is known has been said, in answer to a dump.
    Dumped,
    /// It has taken the settings, and cares for queue pairs by them.
    Configured,
    /// What was asked cannot be done.
    NotAnswered(Request, io::Error),
    /// The order with this token cannot be carried out.
    Refused(u32, io::Error),
    /// More was said than there was room for: what is known is out of date. The kernel says so before
    /// what it had said until then, and keeps silent until that has been read.
    Overrun,
}

/// The family, while it is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Family {
    pub(super) id: u16,
    pub(super) events: u32,
}

/// Reads messages, in their order.
#[derive(Debug, Default)]
pub(super) struct Hearing {
    pub(super) family: Option<Family>,
}

impl Hearing {
    pub(super) fn read(&mut self, message: &[u8]) -> Option<Heard> {
        let number = |at: usize| message.get(at..).and_then(|rest| rest.first_chunk());
        let kind = u16::from_ne_bytes(*message.get(4..)?.first_chunk()?);
        let sequence = u32::from_ne_bytes(*number(8)?);
        let error = || {
            let code = i32::from_ne_bytes(*number(HEADER_LEN)?);
            (code < 0).then(|| io::Error::from_raw_os_error(code.saturating_neg()))
        };
        match kind {
            // It may have ended early.
            TYPE_DONE => Some(match error() {
                Some(error) => Heard::NotAnswered(Request::Dump, error),
                None => Heard::Dumped,
            }),
            TYPE_ERROR => Some(self.refused(sequence, error()?)),
            CONTROL => self.heard_of_family(sequence, message),
            _ if self.family.is_none_or(|family| family.id != kind) => None,
            // Its answer has the settings that it was sent.
            _ if sequence == Request::Settings.sequence() => Some(Heard::Configured),
            _ => said(message),
        }
    }

    fn refused(&mut self, sequence: u32, error: io::Error) -> Heard {
        match Request::with_sequence(sequence) {
            Some(Request::Family) if error.raw_os_error() == Some(libc::ENOENT) => {
                self.family = None;
                Heard::Vanished
            }
            Some(request) => Heard::NotAnswered(request, error),
            None => Heard::Refused(sequence, error),
        }
    }

    fn heard_of_family(&mut self, sequence: u32, message: &[u8]) -> Option<Heard> {
        let read = NetlinkMessage::<GenlMessage<GenlCtrl>>::deserialize(message).ok()?;
        let NetlinkPayload::InnerMessage(message) = read.payload else {
            return None;
        };
        let GenlCtrl { cmd, nlas } = message.payload;
        let is_ours = |nla: &GenlCtrlAttrs| matches!(nla, GenlCtrlAttrs::FamilyName(name) if name == Message::family_name());
        if !nlas.iter().any(is_ours) {
            return None;
        }
        match cmd {
            GenlCtrlCmd::NewFamily => {
                let family = family(&nlas)?;
                if self.family.replace(family) != Some(family) {
                    return Some(Heard::Appeared);
                }
                // Both told and answered, where it comes just then.
                (sequence == Request::Family.sequence()).then_some(Heard::StillThere)
            }
            GenlCtrlCmd::DelFamily => self.family.take().map(|_| Heard::Vanished),
            _ => None,
        }
    }
}

/// What the module says.
fn said(message: &[u8]) -> Option<Heard> {
    let read = NetlinkMessage::<GenlMessage<Message>>::deserialize(message);
    match read.map(|message| message.payload) {
        Ok(NetlinkPayload::InnerMessage(message)) => Some(Heard::Said(message.payload)),
        Ok(_) => None,
        Err(error) => {
            tracing::debug!(%error, "message of the kernel module skipped");
            None
        }
    }
}

/// Its number, and that of its group.
fn family(nlas: &[GenlCtrlAttrs]) -> Option<Family> {
    let id = nlas.iter().find_map(|nla| match nla {
        GenlCtrlAttrs::FamilyId(id) => Some(*id),
        _ => None,
    });
    let groups = nlas.iter().find_map(|nla| match nla {
        GenlCtrlAttrs::McastGroups(groups) => Some(groups),
        _ => None,
    });
    let events = groups?.iter().find(|group| {
        let is_it = |attr: &McastGrpAttrs| matches!(attr, McastGrpAttrs::Name(name) if name == GROUP_EVENTS);
        group.iter().any(is_it)
    });
    let events = events?.iter().find_map(|attr| match attr {
        McastGrpAttrs::Id(id) => Some(*id),
        McastGrpAttrs::Name(_) => None,
    });
    Some(Family {
        id: id?,
        events: events?,
    })
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::NetlinkHeader;

    use super::*;

    /// As the kernel says that a family comes or goes.
    fn told(cmd: GenlCtrlCmd, sequence: u32, id: u16) -> Vec<u8> {
        let group = vec![
            McastGrpAttrs::Name(GROUP_EVENTS.to_owned()),
            McastGrpAttrs::Id(u32::from(id) + 1),
        ];
        let nlas = vec![
            GenlCtrlAttrs::FamilyName(Message::family_name().to_owned()),
            GenlCtrlAttrs::FamilyId(id),
            GenlCtrlAttrs::McastGroups(vec![group]),
        ];
        let message = GenlMessage::from_payload(GenlCtrl { cmd, nlas });
        let mut header = NetlinkHeader::default();
        header.message_type = CONTROL;
        header.sequence_number = sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }

    /// An error, or the end of a dump.
    fn ended(kind: u16, sequence: u32, code: i32) -> Vec<u8> {
        let mut bytes = vec![20, 0, 0, 0, 0, 0, 0, 0];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(code.to_ne_bytes());
        bytes
    }

    fn words(hearing: &mut Hearing, message: &[u8]) -> String {
        hearing
            .read(message)
            .map_or_else(String::new, |heard| match heard {
                Heard::NotAnswered(request, error) => {
                    format!("{request:?} {:?}", error.raw_os_error())
                }
                Heard::Refused(token, error) => format!("{token} {:?}", error.raw_os_error()),
                heard => format!("{heard:?}"),
            })
    }

    #[test]
    fn a_family_that_comes_and_goes_is_told_of_once() {
        let mut hearing = Hearing::default();
        let asked = Request::Family.sequence();
        let (new, del) = (GenlCtrlCmd::NewFamily, GenlCtrlCmd::DelFamily);
        assert_eq!(words(&mut hearing, &told(del, 0, 30)), "");
        assert_eq!(words(&mut hearing, &told(new, 0, 30)), "Appeared");
        assert_eq!(words(&mut hearing, &told(new, 0, 30)), "");
        assert_eq!(words(&mut hearing, &told(new, asked, 30)), "StillThere");
        // Unloaded and loaded again while nothing was heard.
        assert_eq!(words(&mut hearing, &told(new, asked, 31)), "Appeared");
        let events = hearing.family.map(|family| (family.id, family.events));
        assert_eq!(events, Some((31, 32)));
        assert_eq!(words(&mut hearing, &told(del, 0, 31)), "Vanished");
    }

    #[test]
    fn a_module_that_is_not_found_has_vanished() {
        let mut hearing = Hearing::default();
        let asked = Request::Family.sequence();
        words(&mut hearing, &told(GenlCtrlCmd::NewFamily, 0, 30));
        let without_memory = ended(TYPE_ERROR, asked, -libc::ENOMEM);
        assert_eq!(words(&mut hearing, &without_memory), "Family Some(12)");
        let not_there = ended(TYPE_ERROR, asked, -libc::ENOENT);
        assert_eq!(words(&mut hearing, &not_there), "Vanished");
        assert_eq!(hearing.family, None);
    }

    #[test]
    fn requests_and_orders_are_told_apart_when_they_are_refused() {
        let mut hearing = Hearing::default();
        for request in Request::ALL {
            let refused = ended(TYPE_ERROR, request.sequence(), -libc::ENOMEM);
            let want = format!("{request:?} Some(12)");
            assert_eq!(words(&mut hearing, &refused), want);
        }
        for token in [1, u32::MAX] {
            let refused = ended(TYPE_ERROR, token, -libc::ENOMEM);
            assert_eq!(words(&mut hearing, &refused), format!("{token} Some(12)"));
        }
        assert_eq!(words(&mut hearing, &ended(TYPE_ERROR, 1, 0)), "");
    }

    #[test]
    fn the_modules_answer_to_settings_is_told_from_an_answer_to_others() {
        let mut hearing = Hearing::default();
        let mut answer = ended(31, Request::Settings.sequence(), 0);
        assert_eq!(words(&mut hearing, &answer), "", "no family is known");
        words(&mut hearing, &told(GenlCtrlCmd::NewFamily, 0, 31));
        assert_eq!(words(&mut hearing, &answer), "Configured");
        answer[8..12].copy_from_slice(&7_u32.to_ne_bytes());
        assert_ne!(words(&mut hearing, &answer), "Configured");
        let others = ended(30, Request::Settings.sequence(), 0);
        assert_eq!(words(&mut hearing, &others), "");
    }

    #[test]
    fn a_dump_that_ends_early_has_not_told_all() {
        let mut hearing = Hearing::default();
        let done = |code| ended(TYPE_DONE, Request::Dump.sequence(), code);
        assert_eq!(words(&mut hearing, &done(0)), "Dumped");
        assert_eq!(words(&mut hearing, &done(-libc::EMSGSIZE)), "Dump Some(90)");
    }
}
