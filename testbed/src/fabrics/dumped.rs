// SPDX-License-Identifier: MIT OR Apache-2.0
//! OpenSM's files read a second time, by other code than pathdb's and for another use: following one
//! packet at a time from node to node, by GUID.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::Path;

use pathdb::Fault;

use crate::failure::Failure;

/// A port, by its node's GUID and its number; 0 for a switch itself.
pub type Place = (u64, u8);

/// A link, by its ends, the lesser first.
pub type Link = (Place, Place);

/// What a packet meets on its way.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Way {
    /// The switches.
    pub switches: BTreeSet<u64>,
    /// The links.
    pub links: BTreeSet<Link>,
    /// How many links it crosses.
    pub hops: usize,
}

/// A fabric as the files have it.
#[derive(Clone, Debug, Default)]
pub struct Dumped {
    /// By switch and LID: the port.
    tables: HashMap<(u64, u16), u8>,
    /// Both ways.
    links: HashMap<Place, Place>,
    switches: HashSet<u64>,
    /// By LID: where it is.
    owners: HashMap<u16, Place>,
    /// By switch and LID: how many links are left, as OpenSM counts.
    hops: HashMap<(u64, u16), usize>,
}

impl Dumped {
    /// Reads the files of one sweep.
    ///
    /// # Errors
    /// [`Failure::File`]; [`Failure::Output`] if a line is not as expected.
    pub fn read(directory: &Path) -> Result<Self, Failure> {
        let text = |name: &str| {
            let path = directory.join(name);
            fs::read_to_string(&path).map_err(|source| Failure::File {
                path: path.display().to_string(),
                source,
            })
        };
        let mut dumped = Self::default();
        let ports = dumped.read_links(&text("opensm-subnet.lst")?)?;
        dumped.read_lids(&text("guid2lid")?, &ports)?;
        dumped.read_tables(&text("opensm-lfts.dump")?)?;
        dumped.read_hops(&text("opensm.fdbs")?)?;
        Ok(dumped)
    }

    /// Links that are up; returns where each port GUID is.
    fn read_links(&mut self, text: &str) -> Result<HashMap<u64, Place>, Failure> {
        let mut ports = HashMap::new();
        for line in text.lines() {
            let wrong = || garbled("opensm-subnet.lst", line);
            let (left, right) = line.split_once(" } { ").ok_or_else(wrong)?;
            let mut ends = [(0, 0); 2];
            for (end, text) in ends.iter_mut().zip([left, right]) {
                let field = |key: &str| {
                    let (_, rest) = text.split_once(key)?;
                    u64::from_str_radix(rest.split(' ').next()?, 16).ok()
                };
                let node = field(" NodeGUID:").ok_or_else(wrong)?;
                let number = field(" PN:").ok_or_else(wrong)? as u8;
                let guid = field(" PortGUID:").ok_or_else(wrong)?;
                let is_switch = text.trim_start_matches("{ ").starts_with("SW");
                if is_switch {
                    self.switches.insert(node);
                }
                ports.insert(guid, (node, if is_switch { 0 } else { number }));
                *end = (node, number);
            }
            if line.contains(" LOG=ACT ") {
                self.links.insert(ends[0], ends[1]);
            }
        }
        Ok(ports)
    }

    fn read_lids(&mut self, text: &str, ports: &HashMap<u64, Place>) -> Result<(), Failure> {
        for line in text.lines().filter(|line| !line.is_empty()) {
            let words: Vec<u64> = line.split(' ').filter_map(hexadecimal).collect();
            let [guid, first, last] = words[..] else {
                return Err(garbled("guid2lid", line));
            };
            // Ports that are gone keep their line.
            if let Some(&place) = ports.get(&guid) {
                self.owners
                    .extend((first..=last).map(|lid| (lid as u16, place)));
            }
        }
        Ok(())
    }

    fn read_tables(&mut self, text: &str) -> Result<(), Failure> {
        let mut switch = 0;
        for line in text.lines() {
            let wrong = || garbled("opensm-lfts.dump", line);
            if let Some((_, rest)) = line.split_once(" guid ") {
                let word = rest.split(' ').next().unwrap_or_default();
                switch = hexadecimal(word).ok_or_else(wrong)?;
            } else if line.starts_with("0x") {
                let mut words = line.split(' ');
                let lid = words.next().and_then(hexadecimal).ok_or_else(wrong)?;
                let port = words.next().and_then(|word| word.parse().ok());
                self.tables
                    .insert((switch, lid as u16), port.ok_or_else(wrong)?);
            }
        }
        Ok(())
    }

    /// Lines without a number of hops are those that OpenSM does not know.
    fn read_hops(&mut self, text: &str) -> Result<(), Failure> {
        let mut switch = 0;
        for line in text.lines() {
            let wrong = || garbled("opensm.fdbs", line);
            if let Some((_, guid)) = line.split_once(": Switch ") {
                switch = hexadecimal(guid).ok_or_else(wrong)?;
            } else if line.starts_with("0x") {
                let words: Vec<&str> = line.split(" : ").map(str::trim).collect();
                let lid = hexadecimal(words[0]).ok_or_else(wrong)?;
                if let Some(hops) = words.get(2).and_then(|hops| hops.parse().ok()) {
                    self.hops.insert((switch, lid as u16), hops);
                }
            }
        }
        Ok(())
    }

    /// Follows a packet from the port that has one LID to another LID.
    ///
    /// # Errors
    /// It does not arrive.
    pub fn follow(&self, from: u16, to: u16) -> Result<Way, Fault> {
        let owner = |lid: &u16| self.owners.get(lid).copied().ok_or(Fault::DeadEnd);
        let (mut at, goal) = (owner(&from)?, owner(&to)?);
        let mut way = Way::default();
        if at == goal {
            // Nothing leaves the port, but a switch is still itself.
            way.switches.extend(self.switches.get(&at.0));
            return Ok(way);
        }
        if !self.switches.contains(&at.0) {
            at = self.cross(at, &mut way)?;
        }
        while self.switches.contains(&at.0) {
            if !way.switches.insert(at.0) {
                return Err(Fault::Loop);
            }
            let port = self.tables.get(&(at.0, to)).ok_or(Fault::DeadEnd)?;
            at = match *port {
                0 if (at.0, 0) == goal => return Ok(way),
                0 => return Err(Fault::DeadEnd),
                port => self.cross((at.0, port), &mut way)?,
            };
        }
        if at == goal {
            Ok(way)
        } else {
            Err(Fault::DeadEnd)
        }
    }

    fn cross(&self, out: Place, way: &mut Way) -> Result<Place, Fault> {
        let peer = *self.links.get(&out).ok_or(Fault::DeadEnd)?;
        way.links.insert((out.min(peer), out.max(peer)));
        way.hops += 1;
        Ok(peer)
    }

    /// How many links OpenSM counts from the port that has one LID to another LID, if it says.
    pub fn counted_hops(&self, from: u16, to: u16) -> Option<usize> {
        let at = *self.owners.get(&from)?;
        if self.switches.contains(&at.0) {
            return self.hops.get(&(at.0, to)).copied();
        }
        let (switch, _) = *self.links.get(&at)?;
        Some(1 + self.hops.get(&(switch, to))?)
    }
}

fn hexadecimal(word: &str) -> Option<u64> {
    u64::from_str_radix(word.trim().strip_prefix("0x")?, 16).ok()
}

fn garbled(file: &str, line: &str) -> Failure {
    Failure::Output {
        source_name: file.to_owned(),
        problem: format!("not understood: {line}"),
    }
}
