// SPDX-License-Identifier: MIT OR Apache-2.0
//! One line of `opensm-subnet.lst`: a link, seen from one end.
//!
//! `{ CA Ports:02 SystemGUID:.. NodeGUID:.. PortGUID:.. VenID:.. DevID:.. Rev:.. {NAME} LID:0004
//! PN:01 } { SW ... } PHY=4x LOG=ACT SPD=2.5`, numbers in hexadecimal.

use cm_msgs::{Guid, Lid};

use super::{Problem, lid, port_number, syntax};
use crate::capability::Capability;
use crate::fabric::{NodeKind, NodeSpec};
use crate::lines::guid;
use cm_msgs::rate::{Rate, Speed, Width};

/// A link.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) ends: [End; 2],
    pub(super) carries: Capability,
    pub(super) up: bool,
}

/// One of its ends. The port's GUID and LID are those of port 0 if the node is a switch.
#[derive(Debug)]
pub(super) struct End {
    pub(super) node: NodeSpec,
    pub(super) port_guid: Guid,
    pub(super) lid: Lid,
    pub(super) number: u8,
}

impl Link {
    /// Whether a line can only be the first of a link: the description of a node is too short to have one in it.
    pub(super) fn begins(line: &str) -> bool {
        let head = line.trim_start().strip_prefix('{').map(str::trim_start);
        let head = head.and_then(|head| head.split_once(char::is_whitespace));
        head.is_some_and(|(kind, rest)| {
            let is_node = rest.trim_start().starts_with("Ports:") && rest.contains("SystemGUID:");
            kind.len() <= KIND && is_node
        })
    }

    /// Whether a link is told to its end.
    pub(super) fn is_whole(record: &str) -> bool {
        let tail = record.rsplit_once("PHY=");
        tail.is_some_and(|(ends, state)| ends.trim_end().ends_with('}') && state.contains("SPD="))
    }

    pub(super) fn parse(line: &str) -> Result<Self, Problem> {
        let (first, rest) = end(line)?;
        let (second, rest) = end(rest)?;
        let (carries, up) =
            state(rest).ok_or_else(|| syntax("PHY=, LOG= and SPD= of the link", rest))?;
        Ok(Self {
            ends: [first, second],
            carries,
            up,
        })
    }
}

/// One end and what follows it.
fn end(text: &str) -> Result<(End, &str), Problem> {
    split_end(text).ok_or_else(|| {
        syntax(
            "{ KIND Ports: SystemGUID: NodeGUID: PortGUID: .. {NAME} LID: PN: }",
            text,
        )
    })
}

fn split_end(text: &str) -> Option<(End, &str)> {
    let text = text.trim_start().strip_prefix('{')?;
    let (head, rest) = text.split_once('{')?;
    let (name, rest) = split_name(rest)?;
    let (tail, rest) = rest.split_once('}')?;
    let mut words = head.split_ascii_whitespace();
    let kind = kind(words.next()?)?;
    let field = |key: &str| {
        let mut words = head.split_ascii_whitespace();
        words.find_map(|word| word.strip_prefix(key)?.strip_prefix(':'))
    };
    let (lid_text, number) = tail.trim().split_once("PN:")?;
    let node = NodeSpec {
        kind,
        guid: guid(field("NodeGUID")?)?,
        system: guid(field("SystemGUID")?)?,
        name: name.into(),
        ports: port_number(field("Ports")?)?,
    };
    let end = End {
        node,
        port_guid: guid(field("PortGUID")?)?,
        lid: lid(lid_text.trim())?,
        number: port_number(number.trim())?,
    };
    Some((end, rest))
}

/// A node's description, and what follows `LID:`. It may contain anything, but hardly that.
fn split_name(text: &str) -> Option<(&str, &str)> {
    text.match_indices('}').find_map(|(at, _)| {
        let rest = text[at + 1..].trim_start().strip_prefix("LID:")?;
        Some((&text[..at], rest))
    })
}

/// The longest word for what a node is: `CA-SM`.
const KIND: usize = 5;

/// `-SM` marks the node on which OpenSM saw a subnet manager. A router's port is an end port, and so is one of which
/// OpenSM does not know what it is: nothing goes through it.
fn kind(word: &str) -> Option<NodeKind> {
    match word.strip_suffix("-SM").unwrap_or(word) {
        "SW" => Some(NodeKind::Switch),
        "CA" | "RT" | "Rt" | "**" | "??" => Some(NodeKind::Adapter),
        _ => None,
    }
}

fn state(text: &str) -> Option<(Capability, bool)> {
    let field = |key| {
        text.split_ascii_whitespace()
            .find_map(|word| word.strip_prefix(key))
    };
    let (width, state, speed) = (field("PHY=")?, field("LOG=")?, field("SPD=")?);
    let lanes = Width::ALL
        .iter()
        .copied()
        .find(|lanes| lanes.text() == width);
    let rate = lanes
        .zip(lane_speed(speed))
        .map(|(width, speed)| Rate::of(width, speed));
    Some((Capability { mtu: None, rate }, state == "ACT"))
}

/// `None` for what OpenSM does not know either, and writes as question marks.
fn lane_speed(text: &str) -> Option<Speed> {
    match text {
        "2.5" => Some(Speed::Sdr),
        "5" => Some(Speed::Ddr),
        "10" => Some(Speed::Qdr),
        "FDR10" => Some(Speed::Fdr10),
        "14" => Some(Speed::Fdr),
        "25" => Some(Speed::Edr),
        "50" => Some(Speed::Hdr),
        "100" => Some(Speed::Ndr),
        "200" => Some(Speed::Xdr),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CA: &str = "{ CA-SM Ports:02 SystemGUID:0000000000100000 NodeGUID:0000000000100000 \
        PortGUID:0000000000100001 VenID:000000 DevID:0000 Rev:000000A1 {a } {b HCA-1} LID:000A PN:01 }";
    const SW: &str = "{ SW Ports:24 SystemGUID:0000000000200000 NodeGUID:0000000000200001 \
        PortGUID:0000000000200002 VenID:00000000 DevID:0000 Rev:000000A1 {Leaf} LID:0002 PN:1F }";

    #[test]
    fn a_line_is_two_ends_and_their_link() {
        let link = Link::parse(&format!("{CA} {SW} PHY=4x LOG=ACT SPD=25 ")).expect("a link");
        let [a, b] = link.ends;
        assert_eq!(&*a.node.name, "a } {b HCA-1");
        assert_eq!((a.node.kind, a.node.ports), (NodeKind::Adapter, 2));
        assert_eq!(
            (a.port_guid, a.lid, a.number),
            (Guid(0x10_0001), Lid(10), 1)
        );
        assert_eq!((b.node.kind, b.node.ports), (NodeKind::Switch, 36));
        assert_eq!(
            (b.node.system, b.node.guid),
            (Guid(0x20_0000), Guid(0x20_0001))
        );
        assert_eq!((b.lid, b.number), (Lid(2), 31));
        assert!(link.up);
        assert_eq!(link.carries.rate, Some(Rate::G100));
    }

    #[test]
    fn blanks_and_prefixes_of_numbers_make_no_difference() {
        let line = format!("{CA} {SW} PHY=4x LOG=ACT SPD=25");
        let as_it_is = format!("{:?}", Link::parse(&line).expect("a link"));
        let prefixed = line.replace("GUID:", "GUID:0x").replace("LID:", "LID:0x");
        for other in [
            format!("  {line}"),
            line.replace("Ports:", "\tPorts:").replace("A1 {", "A1  {"),
            line.replace(" LID:", "\tLID:").replace(" PN:", "\tPN:"),
            line.replace("{ ", "{").replace(" PHY", "\t PHY"),
            prefixed
                .replace("PN:", "PN:0x")
                .replace("Ports:", "Ports:0x"),
        ] {
            assert!(Link::begins(&other) && Link::is_whole(&other), "{other}");
            let link = Link::parse(&other).unwrap_or_else(|error| panic!("{other}: {error}"));
            assert_eq!(format!("{link:?}"), as_it_is, "{other}");
        }
    }

    #[test]
    fn what_opensm_does_not_know_is_not_known() {
        let link = Link::parse(&format!("{CA} {SW} PHY=??? LOG=INI SPD=????")).expect("a link");
        assert_eq!(link.carries, Capability::default());
        assert!(!link.up);
    }

    #[test]
    fn every_cut_of_a_line_is_refused() {
        let line = format!("{CA} {SW} PHY=4x LOG=ACT SPD=2.5");
        let end = line.rfind('=').expect("SPD=");
        for cut in 0..end {
            let cut = &line[..cut];
            assert!(
                matches!(Link::parse(cut), Err(Problem::Syntax { .. })),
                "{cut}"
            );
        }
    }
}
