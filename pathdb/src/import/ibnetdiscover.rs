// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `ibnetdiscover` prints: a section for each node, with its links as that node's end sees them. Without link
//! states: what it shows is taken for up.
//!
//! ```text
//! sysimgguid=0x2c5eab0300b87b40
//! switchguid=0x2c5eab0300b87b40(2c5eab0300b87b40)
//! Switch  65 "S-2c5eab0300b87b40"  # "leaf" enhanced port 0 lid 73 lmc 0
//! [1]     "H-e09d7303007a4bd8"[1](e09d7303007a4bd8)  # "host mlx5_0" lid 647 4xNDR
//!
//! caguid=0xe09d7303007a4bd8
//! Ca      1 "H-e09d7303007a4bd8"  # "host mlx5_0"
//! [1](e09d7303007a4bd8)  "S-2c5eab0300b87b40"[1]  # lid 647 lmc 0 "leaf" lid 73 4xNDR
//! ```

use std::ops::ControlFlow;
use std::path::Path;

use cm_msgs::{Guid, Lid};

use super::collected::{Collected, LinkLine, PortKey, PortLine};
use super::warnings::Bad;
use super::{Lost, Problem, ReadError, Warnings, port_report, syntax};
use crate::capability::Capability;
use crate::fabric::{NodeKind, NodeSpec};
use crate::lines::{Lines, Progress, Records, guid};

/// What begins lines that say nothing of nodes and links; the last three are what the tool complains about, if its
/// standard error was written to the same file.
const OF_NO_USE: [&str; 10] = [
    "#",
    "vendid=",
    "devid=",
    "Chassis ",
    "Non-Chassis ",
    "Hostname: ",
    "DR path ",
    "ibwarn:",
    "ibnetdiscover:",
    "src/",
];

/// A line that names a node, or a link, has its description in quotation marks at its end; that may have line breaks in
/// it.
const LINES: Records = Records {
    begins: |line| {
        let line = line.trim_start();
        line.is_empty()
            || line.starts_with('[')
            || OF_NO_USE.iter().any(|word| line.starts_with(word))
            || guid_line(line).is_some()
            || kind_of(line).is_some()
            || port_report::begins(line)
    },
    is_whole: |record| match port_report::begins(record) {
        true => port_report::is_whole(record),
        false => match record.split_once('#') {
            Some((head, tail)) if !head.is_empty() => tail.matches('"').count() >= 2,
            _ => true,
        },
    },
};

/// Reads nodes, ports and links.
pub(super) fn read(
    path: &Path,
    progress: Progress<'_>,
    warnings: &mut Warnings,
) -> Result<Collected, ReadError> {
    let mut reading = Reading::default();
    let mut lines = Lines::open(path)?;
    let size = lines.size();
    lines.records(LINES, size, progress, |line, number| {
        warnings.take(path, number, reading.take(line, number))?;
        Ok(ControlFlow::Continue(()))
    })?;
    if reading.collected.is_empty() {
        return Err(lines.error(Problem::Empty));
    }
    if reading.is_port_report {
        warnings.push(path, 0, Bad::new(Problem::NoDevices, Lost::Devices));
    }
    Ok(reading.collected)
}

/// What has been read so far, and the node of the current section.
#[derive(Default)]
struct Reading {
    collected: Collected,
    /// NodeInfo:SystemImageGUID of the next node, where it has one.
    system: Option<Guid>,
    /// NodeInfo:PortGUID of the next node, if it is a switch.
    port: Option<Guid>,
    node: Option<(Guid, NodeKind)>,
    /// The GUID of the next node; its line must follow.
    next: Option<Guid>,
    /// The current section's node could not be read: its links are nobody's, which has been said.
    is_lost: bool,
    is_port_report: bool,
}

impl Reading {
    fn take(&mut self, line: &str, number: usize) -> Result<(), Bad> {
        let line = line.trim_start();
        if line.is_empty() || OF_NO_USE.iter().any(|word| line.starts_with(word)) {
            return Ok(());
        }
        if port_report::begins(line) {
            self.is_port_report = true;
            return port_report::take(line, number, &mut self.collected);
        }
        if let Some((key, value)) = guid_line(line) {
            return self.guid(key, value, line);
        }
        if let Some(rest) = line.strip_prefix('[') {
            return self.link(rest, number, line);
        }
        match kind_of(line) {
            Some(kind) => self.node(kind, number, line),
            None => {
                let lost = match self.next {
                    Some(_) => self.lose_node(),
                    None => Lost::Nothing,
                };
                Err(Bad::new(syntax("a line of ibnetdiscover's", line), lost))
            }
        }
    }

    /// `sysimgguid=0xGUID` is the first line of a node that has one, `switchguid=0xGUID(PORT)` or such the next.
    fn guid(&mut self, key: &str, value: &str, line: &str) -> Result<(), Bad> {
        let end = value.find(|c: char| !c.is_ascii_alphanumeric());
        let (value, rest) = value.split_at(end.unwrap_or(value.len()));
        let value =
            guid(value).ok_or_else(|| Bad::new(syntax("KINDguid=0xGUID", line), Lost::Node))?;
        (self.node, self.is_lost) = (None, false);
        if key == "sysimg" {
            self.system = Some(value);
            return Ok(());
        }
        self.next = Some(value);
        let port = rest
            .strip_prefix('(')
            .and_then(|rest| rest.split(')').next());
        self.port = port.and_then(guid);
        Ok(())
    }

    /// The next node cannot be read. What others' lines say of it is of no use, and not worth a warning each.
    fn lose_node(&mut self) -> Lost {
        (self.system, self.port, self.node) = (None, None, None);
        self.is_lost = true;
        self.collected.lost.extend(self.next.take());
        Lost::Node
    }

    /// `KIND PORTS "K-GUID" # "NAME"`, with port 0's LIDs if it is a switch.
    fn node(&mut self, kind: NodeKind, number: usize, line: &str) -> Result<(), Bad> {
        let Some((mut spec, lids)) = node(kind, line) else {
            let wanted = "KIND PORTS \"K-GUID\" # \"NAME\"";
            return Err(Bad::new(syntax(wanted, line), self.lose_node()));
        };
        let (system, port) = (self.system.take(), self.port.take());
        (self.next, self.is_lost) = (None, false);
        spec.system = system.unwrap_or(spec.guid);
        let (guid, kind) = (spec.guid, spec.kind);
        self.collected.node(spec)?;
        self.node = Some((guid, kind));
        match lids {
            None if kind == NodeKind::Adapter => Ok(()),
            None => Err(Bad::new(syntax("lid LID lmc LMC", line), Lost::Lids)),
            Some((lid, lmc)) => self.collected.port(
                number,
                PortLine {
                    key: (guid, 0),
                    guid: port.unwrap_or(guid),
                    lid,
                    lmc: Some(lmc),
                },
            ),
        }
    }

    /// `[PORT]..  "K-GUID"[PORT]..  # .. lid LID WIDTHxSPEED`, of the node whose section it is.
    fn link(&mut self, rest: &str, number: usize, line: &str) -> Result<(), Bad> {
        let wanted = || {
            let wanted =
                "[PORT] \"K-GUID\"[PORT] # \"NAME\" lid LID WIDTHSPEED after a node's line";
            Bad::new(syntax(wanted, line), Lost::Link)
        };
        if self.is_lost {
            return Ok(());
        }
        let (node, kind) = self.node.ok_or_else(wanted)?;
        let link = Link::parse(rest).ok_or_else(wanted)?;
        let linked = LinkLine {
            ends: [(node, link.number), link.peer],
            carries: link.carries,
            up: true,
        };
        self.collected.link(number, linked)?;
        match (kind, link.own) {
            (NodeKind::Switch, _) => Ok(()),
            (NodeKind::Adapter, Some((guid, lid, lmc))) => self.collected.port(
                number,
                PortLine {
                    key: (node, link.number),
                    guid,
                    lid,
                    lmc: Some(lmc),
                },
            ),
            (NodeKind::Adapter, None) => {
                let wanted = "[PORT](GUID) .. # lid LID lmc LMC ..";
                Err(Bad::new(syntax(wanted, line), Lost::Lids))
            }
        }
    }
}

/// `sysimgguid=0xGUID` and such: what it is of, and the rest.
fn guid_line(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once("guid=")?;
    key.bytes()
        .all(|c| c.is_ascii_lowercase())
        .then_some((key, value))
}

/// The kind of the node that a line is about.
fn kind_of(line: &str) -> Option<NodeKind> {
    let mut words = line.split_ascii_whitespace();
    let kind = match words.next()? {
        "Switch" => NodeKind::Switch,
        "Ca" | "Rt" | "???" => NodeKind::Adapter,
        _ => return None,
    };
    // With -l it prints a colon here, and no links.
    words.next().filter(|&word| word != ":").map(|_| kind)
}

fn node(kind: NodeKind, line: &str) -> Option<(NodeSpec, Option<(Lid, u8)>)> {
    let (head, tail) = line.split_once('#')?;
    let mut words = head.split_ascii_whitespace().skip(1);
    let ports = words.next()?.parse().ok()?;
    let guid = quoted_guid(words.next()?)?;
    let (name, tail) = quoted(tail)?;
    let lids = match kind {
        NodeKind::Adapter => None,
        NodeKind::Switch => lids(tail),
    };
    let spec = NodeSpec {
        kind,
        guid,
        system: guid,
        name: name.into(),
        ports,
    };
    Some((spec, lids))
}

/// What a line says of a link.
struct Link {
    number: u8,
    peer: PortKey,
    /// An adapter's own port: GUID, LID, LID mask count.
    own: Option<(Guid, Lid, u8)>,
    carries: Capability,
}

impl Link {
    /// The line after its first bracket.
    fn parse(rest: &str) -> Option<Self> {
        let (head, tail) = rest.split_once('#')?;
        let (own, peer) = head.split_once('"')?;
        let number = own.split(']').next()?.parse().ok()?;
        let (peer, port) = peer.split_once("\"[")?;
        let peer = (
            quoted_guid(&format!("\"{peer}\""))?,
            port.split(']').next()?.parse().ok()?,
        );
        let (_, after) = quoted(tail)?;
        let own_guid = own
            .split_once('(')
            .and_then(|(_, rest)| guid(rest.split(')').next()?));
        let before = tail.split('"').next()?;
        let own = own_guid.and_then(|guid| {
            let (lid, lmc) = lids(before)?;
            Some((guid, lid, lmc))
        });
        Some(Self {
            number,
            peer,
            own,
            carries: carries(after),
        })
    }
}

/// `.. lid LID lmc LMC ..`
fn lids(text: &str) -> Option<(Lid, u8)> {
    let mut words = text.split_ascii_whitespace();
    words.find(|&word| word == "lid")?;
    let lid = words.next()?.parse().ok()?;
    let lmc = words.find(|&word| word == "lmc").and(words.next());
    Some((Lid(lid), lmc.unwrap_or("0").parse().ok()?))
}

/// `lid LID WIDTHSPEED ..`; early versions print no width and speed.
fn carries(text: &str) -> Capability {
    let mut words = text.split_ascii_whitespace();
    let rate = words.find_map(|word| {
        let at = word.find('x')? + 1;
        port_report::rate(&word[..at], &word[at..])
    });
    Capability { mtu: None, rate }
}

/// `"K-GUID"`.
fn quoted_guid(text: &str) -> Option<Guid> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    let (_, digits) = inner.split_once('-')?;
    guid(digits)
}

/// What is between the first quotation mark and the last, and what follows: a description may have others.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let (_, rest) = text.split_once('"')?;
    rest.rsplit_once('"')
}
