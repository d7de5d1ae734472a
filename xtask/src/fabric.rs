// SPDX-License-Identifier: MIT OR Apache-2.0
//! The VM's fabric: switches, HCAs and cables, in the notation of ibsim and ibnetdiscover.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::error::{Error, InFile};

/// Fabrics that are known by name: name, LMC, text.
const NAMED: &[(&str, u8, &str)] = &[
    (
        "leaf-spine",
        2,
        include_str!("../../testbed/vm/fabrics/leaf-spine.net"),
    ),
    (
        "rails-of-trees",
        0,
        include_str!("../../testbed/vm/fabrics/rails-of-trees.net"),
    ),
    ("ring", 0, include_str!("../../testbed/vm/fabrics/ring.net")),
    (
        "two-subnets",
        0,
        include_str!("../../testbed/vm/fabrics/two-subnets.net"),
    ),
];

/// The fabric that a VM has if none is named, as wide as wanted.
pub(crate) const DEFAULT: &str = "two-rails";

/// What the software HCA's names may be long.
const NAME_LENGTH: usize = 15;

/// Hosts and the subnet manager.
const FEWEST_ADAPTERS: usize = 3;

/// One end of a cable: a node's name and a port.
type End = (String, u8);

#[derive(Clone, Debug, PartialEq)]
struct Node {
    name: String,
    ports: u8,
}

/// Switches, adapters and cables, and how many LIDs a port has.
#[derive(Clone, Debug)]
pub(crate) struct Fabric {
    switches: Vec<Node>,
    /// The last is the subnet manager's, the others are hosts'. Each is one device, or a device a
    /// port.
    adapters: Vec<Vec<Node>>,
    cables: BTreeSet<[End; 2]>,
    lmc: u8,
}

impl Fabric {
    /// The fabric with this name, or of this file. Two rails have `adapters` HCAs.
    pub(crate) fn find(name: &str, adapters: u32) -> Result<Self, Error> {
        let (text, lmc) = if name == DEFAULT {
            (two_rails(adapters), 0)
        } else if let Some((_, lmc, text)) = NAMED.iter().find(|(known, ..)| *known == name) {
            ((*text).to_owned(), *lmc)
        } else if Path::new(name).is_file() {
            (fs::read_to_string(name).in_file(Path::new(name))?, 0)
        } else {
            let known: Vec<_> = NAMED.iter().map(|(known, ..)| *known).collect();
            return Err(Error::Other(format!(
                "no fabric and no file is called {name}; there are {DEFAULT}, {}",
                known.join(", ")
            )));
        };
        let fabric = parse(&text).map_err(|why| Error::Other(format!("fabric {name}: {why}")))?;
        Ok(fabric.with_lmc(lmc))
    }

    /// The same with 2^`lmc` LIDs a port.
    pub(crate) fn with_lmc(self, lmc: u8) -> Self {
        Self { lmc, ..self }
    }

    /// The same with a device for each port of an adapter, as ConnectX-4 and later show themselves.
    pub(crate) fn with_port_devices(self) -> Self {
        let adapters: Vec<Vec<Node>> = self
            .adapters
            .iter()
            .map(|devices| devices.iter().flat_map(port_devices).collect())
            .collect();
        let devices: BTreeSet<&str> = self
            .adapters
            .iter()
            .flatten()
            .map(|device| device.name.as_str())
            .collect();
        let renamed = |end: &End| match devices.contains(end.0.as_str()) {
            true => (port_device(&end.0, end.1), 1),
            false => end.clone(),
        };
        let cables = self.cables.iter().map(|ends| ends.each_ref().map(renamed));
        Self {
            cables: cables.collect(),
            adapters,
            ..self
        }
    }

    /// 2^LMC LIDs a port.
    pub(crate) fn lmc(&self) -> u8 {
        self.lmc
    }

    /// The module's parameters, as modprobe reads them.
    pub(crate) fn module_options(&self) -> String {
        let switches = self.switches.iter();
        let switches = switches.map(|node| format!("{}:{}", node.name, node.ports));
        let mut hcas = Vec::new();
        for adapter in &self.adapters {
            let system = hcas.len();
            let devices = adapter.iter();
            hcas.extend(devices.map(|node| format!("{}:{}:{system}", node.name, node.ports)));
        }
        let cables = self.cables.iter();
        let cables = cables.map(|[(a, at_a), (b, at_b)]| format!("{a}.{at_a}-{b}.{at_b}"));
        format!(
            "options shca switches={} hcas={} cables={}\n",
            switches.collect::<Vec<_>>().join(","),
            hcas.join(","),
            cables.collect::<Vec<_>>().join(",")
        )
    }

    /// The ports of the last adapter that need a subnet manager, as `DEVICE/PORT`: the first one, and each
    /// further one that none of those before it reaches.
    pub(crate) fn manager_ports(&self) -> Vec<String> {
        let devices = self.adapters.last().into_iter().flatten();
        let ports = devices.flat_map(|node| (1..=node.ports).map(|port| (node.name.clone(), port)));
        let mut managed = BTreeSet::new();
        let mut chosen = Vec::new();
        for end in ports {
            let switch = self.cables.iter().find_map(|ends| far_end(ends, &end));
            let Some((switch, _)) = switch.filter(|(switch, _)| !managed.contains(switch)) else {
                continue;
            };
            chosen.push(format!("{}/{}", end.0, end.1));
            managed.extend(self.switches_around(switch));
        }
        chosen
    }

    /// The names of a switch and of all that it reaches over cables between switches.
    fn switches_around(&self, switch: &str) -> BTreeSet<String> {
        let is_switch = |name: &str| self.switches.iter().any(|node| node.name == name);
        let mut found = BTreeSet::from([switch.to_owned()]);
        loop {
            let before = found.len();
            for [(a, _), (b, _)] in &self.cables {
                let joins = is_switch(a) && is_switch(b);
                if joins && (found.contains(a) || found.contains(b)) {
                    found.extend([a.clone(), b.clone()]);
                }
            }
            if found.len() == before {
                return found;
            }
        }
    }

    /// Who has which devices: a line for each host, and one for the subnet manager.
    pub(crate) fn hosts(&self) -> String {
        let mut text = String::new();
        let last = self.adapters.len() - 1;
        for ((index, devices), letter) in self.adapters.iter().enumerate().zip('a'..='z') {
            let names: Vec<_> = devices.iter().map(|node| node.name.as_str()).collect();
            let names = names.join(" ");
            // A String takes everything.
            let _ = match index == last {
                true => writeln!(text, "sm {names}"),
                false => writeln!(text, "host-{letter} {names}"),
            };
        }
        text
    }
}

/// The other end of a cable, if `end` is one of its ends.
fn far_end<'a>([a, b]: &'a [End; 2], end: &End) -> Option<&'a End> {
    if a == end {
        return Some(b);
    }
    (b == end).then_some(a)
}

fn port_device(adapter: &str, port: u8) -> String {
    format!("{adapter}_p{port}")
}

fn port_devices(adapter: &Node) -> impl Iterator<Item = Node> {
    (1..=adapter.ports).map(|port| Node {
        name: port_device(&adapter.name, port),
        ports: 1,
    })
}

/// Each adapter has a port on either of two switches, which have a cable between them.
fn two_rails(adapters: u32) -> String {
    let mut text = String::new();
    for rail in 0..2 {
        // Strings take everything.
        let _ = writeln!(text, "Switch 9 \"switch{rail}\"");
        for adapter in 0..adapters {
            let _ = writeln!(text, "[{}] \"shca{adapter}\"[{}]", adapter + 1, rail + 1);
        }
        let _ = writeln!(text, "[9] \"switch{}\"[9]", 1 - rail);
    }
    for adapter in 0..adapters {
        let _ = writeln!(text, "Ca 2 \"shca{adapter}\"");
    }
    text
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Switch,
    Adapter,
}

/// What was read so far: nodes by the names they have in the text, and both ends of cables.
#[derive(Default)]
struct Reader {
    nodes: Vec<(Kind, Node)>,
    cables: BTreeSet<[End; 2]>,
}

fn parse(text: &str) -> Result<Fabric, String> {
    let mut reader = Reader::default();
    for (index, line) in text.lines().enumerate() {
        let read = reader.line(line.trim());
        read.map_err(|why| format!("line {}: {why}", index + 1))?;
    }
    reader.check_cables()?;
    reader.fabric()
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let word = line.split([' ', '\t']).next().unwrap_or_default();
        match word {
            "Switch" => self.node(Kind::Switch, line),
            "Ca" | "Hca" => self.node(Kind::Adapter, line),
            _ if word.starts_with('[') => self.cable(line),
            // Comments, and vendid=, sysimgguid= and the like.
            _ if word.is_empty() || word.starts_with('#') || word.contains('=') => Ok(()),
            _ => Err(format!("neither a node nor a cable: {line}")),
        }
    }

    /// `Switch 8 "leaf0" ...`
    fn node(&mut self, kind: Kind, line: &str) -> Result<(), String> {
        let wrong = || format!("not KIND PORTS \"NAME\": {line}");
        let mut words = line.split_whitespace().skip(1);
        let ports = words.next().and_then(|word| word.parse().ok());
        let name = words.next().and_then(|word| word.split('"').nth(1));
        let (ports, name) = ports.zip(name).ok_or_else(wrong)?;
        if self.nodes.iter().any(|(_, node)| node.name == name) {
            return Err(format!("a second {name}"));
        }
        let name = name.to_owned();
        self.nodes.push((kind, Node { name, ports }));
        Ok(())
    }

    /// `[7](GUID) "spine0"[1](GUID) ...`, a cable of the node above.
    fn cable(&mut self, line: &str) -> Result<(), String> {
        let wrong = || format!("not [PORT] \"NAME\"[PORT]: {line}");
        let mut parts = line.splitn(3, '"');
        let here = parts.next().and_then(port_in_brackets).ok_or_else(wrong)?;
        let there = parts.next().ok_or_else(wrong)?.to_owned();
        let at = parts.next().and_then(port_in_brackets).ok_or_else(wrong)?;
        let (_, node) = self.nodes.last().ok_or("a cable before any node")?;
        let mut ends = [(node.name.clone(), here), (there, at)];
        ends.sort();
        self.cables.insert(ends);
        Ok(())
    }

    /// Every end is a port that there is, and has one cable.
    fn check_cables(&self) -> Result<(), String> {
        let mut plugged = BTreeSet::new();
        for end in self.cables.iter().flatten() {
            let (name, port) = end;
            let node = self.nodes.iter().find(|(_, node)| node.name == *name);
            let (_, node) = node.ok_or_else(|| format!("there is no node {name}"))?;
            if !(1..=node.ports).contains(port) {
                return Err(format!("{name} has no port {port}"));
            }
            if !plugged.insert(end) {
                return Err(format!("two cables in port {port} of {name}"));
            }
        }
        Ok(())
    }

    fn fabric(self) -> Result<Fabric, String> {
        let names = names(&self.nodes);
        let (mut switches, mut adapters) = (Vec::new(), Vec::new());
        for (kind, node) in &self.nodes {
            let name = names[&node.name].clone();
            let ports = node.ports;
            match kind {
                Kind::Switch => switches.push(Node { name, ports }),
                Kind::Adapter => adapters.push(vec![Node { name, ports }]),
            }
        }
        if adapters.len() < FEWEST_ADAPTERS {
            return Err("fewer HCAs than two hosts and the subnet manager need".to_owned());
        }
        let renamed = |(name, port): End| (names[&name].clone(), port);
        let cables = self.cables.into_iter().map(|ends| ends.map(renamed));
        Ok(Fabric {
            switches,
            adapters,
            cables: cables.collect(),
            lmc: 0,
        })
    }
}

/// The number in the first pair of brackets.
fn port_in_brackets(text: &str) -> Option<u8> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']')?.0.parse().ok()
}

/// What nodes are called in the VM. Adapters are shca0, shca1, ... as everything expects them;
/// switches keep names that are short and plain.
fn names(nodes: &[(Kind, Node)]) -> BTreeMap<String, String> {
    let plain = |name: &str| {
        let letters = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        name.len() <= NAME_LENGTH && name.chars().all(letters)
    };
    let mut counts = [0, 0];
    let mut name = |(kind, node): &(Kind, Node)| {
        let count = &mut counts[usize::from(*kind == Kind::Switch)];
        *count += 1;
        match kind {
            Kind::Switch if plain(&node.name) => node.name.clone(),
            Kind::Switch => format!("switch{}", *count - 1),
            Kind::Adapter => format!("shca{}", *count - 1),
        }
    };
    nodes
        .iter()
        .map(|node| (node.1.name.clone(), name(node)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_rails_are_as_wide_as_wanted() {
        let fabric = Fabric::find(DEFAULT, 3).expect("it is well formed");
        assert_eq!(
            fabric.module_options(),
            "options shca switches=switch0:9,switch1:9 hcas=shca0:2:0,shca1:2:1,shca2:2:2 \
             cables=shca0.1-switch0.1,shca0.2-switch1.1,shca1.1-switch0.2,shca1.2-switch1.2,\
             shca2.1-switch0.3,shca2.2-switch1.3,switch0.9-switch1.9\n"
        );
        assert_eq!(fabric.hosts(), "host-a shca0\nhost-b shca1\nsm shca2\n");
        let wide = Fabric::find(DEFAULT, 8).expect("it is well formed");
        assert_eq!(wide.cables.len(), 17);
    }

    #[test]
    fn named_fabrics_are_whole() {
        for (name, lmc, _) in NAMED {
            let fabric = Fabric::find(name, 3).expect("it is well formed");
            assert_eq!(fabric.lmc(), *lmc, "{name}");
            let plugged = fabric.cables.iter().flatten();
            let plugged: BTreeSet<_> = plugged.map(|(name, _)| name.as_str()).collect();
            let devices = fabric.adapters.iter().flatten();
            for node in devices.chain(&fabric.switches) {
                assert!(plugged.contains(node.name.as_str()), "{name}: {node:?}");
            }
        }
    }

    #[test]
    fn an_adapter_can_be_a_device_a_port() {
        let fabric = Fabric::find(DEFAULT, 3).expect("it is well formed");
        let fabric = fabric.with_port_devices();
        let options = fabric.module_options();
        assert!(
            options.contains("hcas=shca0_p1:1:0,shca0_p2:1:0,shca1_p1:1:2,"),
            "{options}"
        );
        assert!(options.contains(",shca0_p2.1-switch1.1,"), "{options}");
        assert!(fabric.hosts().starts_with("host-a shca0_p1 shca0_p2\n"));
    }

    #[test]
    fn what_ibnetdiscover_prints_is_read() {
        let text = "# Topology file\nvendid=0x2c9\nswitchguid=0x2c902(2c902)\n\
            Switch\t36 \"S-0002c90200000002\"\t\t# \"core\" base port 0 lid 1 lmc 0\n\
            [1]\t\"H-1\"[1](2c903) \t\t# \"one\" lid 3 4xQDR\n\
            [2]\t\"H-2\"[1](2c904) \t\t# \"two\" lid 4 4xQDR\n\
            [3]\t\"H-3\"[1](2c905) \t\t# \"three\" lid 5 4xQDR\n\
            Ca\t2 \"H-1\"\t\t# \"one\"\n[1](2c903) \t\"S-0002c90200000002\"[1]\t\t# lid 3\n\
            Ca\t2 \"H-2\"\nCa\t2 \"H-3\"\n";
        let fabric = parse(text).expect("it is well formed");
        let options = fabric.module_options();
        assert!(options.contains("switches=switch0:36 "), "{options}");
        assert!(
            options.ends_with("cables=shca0.1-switch0.1,shca1.1-switch0.2,shca2.1-switch0.3\n"),
            "{options}"
        );
    }

    #[test]
    fn each_subnet_has_a_manager() {
        let of = |name: &str| Fabric::find(name, 3).expect("it is known");
        assert_eq!(of(DEFAULT).manager_ports(), ["shca2/1"]);
        assert_eq!(of("rails-of-trees").manager_ports().len(), 1);
        let two = of("two-subnets");
        assert_eq!(two.manager_ports(), ["shca2/1", "shca2/2"]);
        let by_port = two.with_port_devices().manager_ports();
        assert_eq!(by_port, ["shca2_p1/1", "shca2_p2/1"]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = |text: &str| parse(text).err().unwrap_or_default();
        assert_eq!(wrong("Switch"), "line 1: not KIND PORTS \"NAME\": Switch");
        assert_eq!(wrong("[1] \"a\"[1]"), "line 1: a cable before any node");
        assert_eq!(wrong("Ca 1 \"a\"\nCa 1 \"a\""), "line 2: a second a");
        assert_eq!(wrong("Ca 1 \"a\"\n[2] \"b\"[1]"), "a has no port 2");
        assert_eq!(wrong("Ca 1 \"a\"\n[1] \"b\"[1]"), "there is no node b");
        let two = "Switch 3 \"s\"\n[1] \"a\"[1]\n[2] \"a\"[1]\nCa 1 \"a\"";
        assert_eq!(wrong(two), "two cables in port 1 of a");
        let error = Fabric::find("no-such", 3).err().map(|it| it.to_string());
        let error = error.unwrap_or_default();
        assert!(error.contains("two-rails, leaf-spine,"), "{error}");
    }
}
