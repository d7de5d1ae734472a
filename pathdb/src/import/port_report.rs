// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `ibnetdiscover -p` prints: a line for each port of a node. It tells no node's GUID, so each port of an adapter
//! counts as an adapter of its own, and no LID mask count.
//!
//! ```text
//! CA   134  1 0x7cfe9003003b4bde 4x EDR - SW  1719 10 0x7cfe9003009ce5b0 ( 'host HCA-1' - 'leaf' )
//! SW  2052 37 0x506b4b03005c2740 4x ???                                    'leaf2'
//! ```

use cm_msgs::rate::{Rate, Speed, Width};
use cm_msgs::{Guid, Lid};

use super::collected::{Collected, LinkLine, PortKey, PortLine};
use super::warnings::Bad;
use super::{Lost, syntax};
use crate::capability::Capability;
use crate::fabric::{NodeKind, NodeSpec};
use crate::lines::guid;

/// Whether a line is one of these.
pub(super) fn begins(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    let kind = words.next().and_then(kind);
    kind.is_some() && words.next().is_some_and(|lid| lid.parse::<u16>().is_ok())
}

/// Whether a line has all its names: they may have line breaks in them.
pub(super) fn is_whole(line: &str) -> bool {
    match line.contains(" - ") && line.contains('(') {
        true => line.ends_with("' )"),
        // Nothing is plugged in.
        false => line.matches('\'').count() != 1,
    }
}

/// Takes a line's ports and their link.
pub(super) fn take(line: &str, number: usize, collected: &mut Collected) -> Result<(), Bad> {
    let wanted = || {
        let wanted = "KIND LID PORT 0xGUID WIDTH SPEED - KIND LID PORT 0xGUID ( 'NAME' - 'NAME' )";
        Bad::new(syntax(wanted, line), Lost::Link)
    };
    let (own, rest) = End::parse(line).ok_or_else(wanted)?;
    let (width, rest) = word(rest).ok_or_else(wanted)?;
    let (speed, rest) = word(rest).ok_or_else(wanted)?;
    let Some(peer) = rest
        .strip_prefix('-')
        .filter(|peer| peer.starts_with(char::is_whitespace))
    else {
        // Nothing is plugged in.
        return own.add(rest.trim_matches('\''), number, collected);
    };
    let (peer, names) = End::parse(peer).ok_or_else(wanted)?;
    let (name, peer_name) = names
        .strip_prefix("( '")
        .and_then(|names| names.strip_suffix("' )")?.split_once("' - '"))
        .ok_or_else(wanted)?;
    own.add(name, number, collected)?;
    peer.add(peer_name, number, collected)?;
    let link = LinkLine {
        ends: [own.key(), peer.key()],
        carries: Capability {
            mtu: None,
            rate: rate(width, speed),
        },
        up: true,
    };
    collected.link(number, link)
}

/// A port.
struct End {
    kind: NodeKind,
    lid: Lid,
    number: u8,
    guid: Guid,
}

impl End {
    /// A port, and what follows it.
    fn parse(text: &str) -> Option<(Self, &str)> {
        let (kind_word, rest) = word(text)?;
        let (lid, rest) = word(rest)?;
        let (number, rest) = word(rest)?;
        let (guid_word, rest) = word(rest)?;
        let end = Self {
            kind: kind(kind_word)?,
            lid: Lid(lid.parse().ok()?),
            number: number.parse().ok()?,
            guid: guid(guid_word)?,
        };
        Some((end, rest))
    }

    fn key(&self) -> PortKey {
        (self.guid, self.number)
    }

    fn add(&self, name: &str, line: usize, collected: &mut Collected) -> Result<(), Bad> {
        if collected.find(self.guid).is_none() {
            collected.node(NodeSpec {
                kind: self.kind,
                guid: self.guid,
                system: self.guid,
                name: name.into(),
                ports: self.number,
            })?;
        }
        collected.raise_ports(self.guid, self.number);
        let number = match self.kind {
            NodeKind::Switch => 0,
            NodeKind::Adapter => self.number,
        };
        let port = PortLine {
            key: (self.guid, number),
            guid: self.guid,
            lid: self.lid,
            lmc: None,
        };
        collected.port(line, port)
    }
}

fn kind(word: &str) -> Option<NodeKind> {
    match word {
        "SW" => Some(NodeKind::Switch),
        "CA" | "RT" | "??" => Some(NodeKind::Adapter),
        _ => None,
    }
}

/// `None` for what ibnetdiscover does not know either, and writes as question marks.
pub(super) fn rate(width: &str, speed: &str) -> Option<Rate> {
    let mut widths = Width::ALL.iter().copied();
    let width = widths.find(|lanes| lanes.text() == width)?;
    let speed = match speed {
        "SDR" => Speed::Sdr,
        "DDR" => Speed::Ddr,
        "QDR" => Speed::Qdr,
        "FDR10" => Speed::Fdr10,
        "FDR" => Speed::Fdr,
        "EDR" => Speed::Edr,
        "HDR" => Speed::Hdr,
        "NDR" => Speed::Ndr,
        "XDR" => Speed::Xdr,
        _ => return None,
    };
    Some(Rate::of(width, speed))
}

/// The first word and what follows it.
fn word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    (!word.is_empty()).then_some((word, rest.trim_start()))
}
