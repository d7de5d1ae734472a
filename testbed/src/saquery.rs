// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian's `saquery`: what subnet administration says to a program that is not ours.

use std::net::Ipv6Addr;

use crate::command;
use crate::failure::Failure;
use crate::host::Host;
use crate::port::Port;

/// What matters of a path record.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Record {
    /// LID of the source.
    pub slid: u16,
    /// LID of the destination.
    pub dlid: u16,
    /// Service level.
    pub sl: u8,
    /// MTU, IBA code.
    pub mtu: u8,
    /// Rate, IBA code.
    pub rate: u8,
}

impl Record {
    /// From text with a line for each field: its name, dots or a colon, and its value, as `saquery`
    /// and `ib_acme` print it.
    pub fn parse(text: &str) -> Option<Self> {
        let field = |name| number(text, name);
        Some(Self {
            slid: field("slid")?,
            dlid: field("dlid")?,
            sl: field("sl")? as u8 & 0xf,
            // The two bits above are the selector.
            mtu: field("mtu")? as u8 & 0x3f,
            rate: field("rate")? as u8 & 0x3f,
        })
    }
}

fn number(text: &str, name: &str) -> Option<u16> {
    let mut values = text.lines().filter_map(|line| {
        let rest = line.trim().strip_prefix(name)?;
        rest.starts_with(['.', ':'])
            .then(|| rest.trim_start_matches(['.', ':', ' ']))
    });
    let value = values.next_back()?;
    match value.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16).ok(),
        None => value.parse().ok(),
    }
}

/// All paths from a port to another, asked as the first one's host; none if there are none.
///
/// # Errors
/// If `saquery` does not start, or prints something else.
pub fn paths(from: Port, to: Port) -> Result<Vec<Record>, Failure> {
    let (sgid, dgid) = (from.gid()?, to.gid()?);
    let words = [
        from.host.name(),
        "saquery",
        "PR",
        "--sgid",
        &sgid,
        "--dgid",
        &dgid,
    ];
    let text = command::run(&words)?;
    let blocks = text.split("PathRecord dump:").skip(1);
    let mut records = Vec::new();
    for block in blocks {
        records.push(Record::parse(block).ok_or_else(|| Failure::Output {
            source_name: words.join(" "),
            problem: format!("a field is missing: {block}"),
        })?);
    }
    records.sort();
    Ok(records)
}

/// Numbers of the traps of which subnet administration tells a port, ascending.
///
/// # Errors
/// If `saquery` does not start, or there is no such port.
pub fn traps(port: Port) -> Result<Vec<u16>, Failure> {
    let gid = port.gid()?.parse::<Ipv6Addr>();
    let text = command::run(&[port.host.name(), "saquery", "IIR"])?;
    let blocks = text.split("InformInfoRecord dump:").skip(1);
    let of_port = blocks.filter(|block| gid.is_ok() && subscriber(block) == gid.clone().ok());
    let mut traps: Vec<u16> = of_port
        .filter_map(|block| number(block, "trap_num"))
        .collect();
    traps.sort_unstable();
    Ok(traps)
}

/// GIDs of the ports at which services of this name are registered, ascending.
///
/// # Errors
/// If `saquery` does not start.
pub fn services(host: Host, name: &str) -> Result<Vec<Ipv6Addr>, Failure> {
    let text = command::run(&[host.name(), "saquery", "SR"])?;
    let mut gids: Vec<_> = services_of(&text, name).collect();
    gids.sort_unstable();
    Ok(gids)
}

fn services_of<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = Ipv6Addr> + use<'a> {
    let blocks = text.split("ServiceRecord dump:").skip(1);
    blocks.filter_map(move |block| {
        let is_named = value(block, "ServiceName") == Some(name);
        value(block, "ServiceGID")?
            .parse()
            .ok()
            .filter(|_| is_named)
    })
}

/// The text behind a field's name and dots.
fn value<'a>(block: &'a str, field: &str) -> Option<&'a str> {
    let mut lines = block.lines().map(str::trim);
    let value = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix('.'))?;
    Some(value.trim_start_matches('.'))
}

fn subscriber(block: &str) -> Option<Ipv6Addr> {
    let mut lines = block.lines().map(str::trim);
    let gid = lines.find_map(|line| line.strip_prefix("SubscriberGID"))?;
    gid.trim_start_matches('.').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_programs_texts_are_understood() {
        let record = Record {
            slid: 18,
            dlid: 5,
            sl: 1,
            mtu: 5,
            rate: 7,
        };
        let saquery = "\n\t\tdlid....................5\n\t\tslid....................18\n\
            \t\tsl......................0x1\n\t\tmtu.....................0x85\n\
            \t\trate....................0x87\n";
        let ib_acme = "  dlid: 5\n  slid: 18\n  sl: 1\n  mtu: 5\n  rate: 7\n";
        assert_eq!(Record::parse(saquery), Some(record.clone()));
        assert_eq!(Record::parse(ib_acme), Some(record));
        assert_eq!(Record::parse("  dlid: 5\n"), None);
    }

    #[test]
    fn services_are_known_by_their_names() {
        let text = "ServiceRecord dump:\n\t\tServiceID...............0x0200000041504d44\n\
            \t\tServiceGID..............fe80::653:4843:4100:202\n\
            \t\tServiceName.............apmd\n\
            ServiceRecord dump:\n\t\tServiceGID..............fe80::1\n\
            \t\tServiceName.............other\n";
        let gid: Ipv6Addr = "fe80::653:4843:4100:202".parse().unwrap();
        assert!(services_of(text, "apmd").eq([gid]));
    }

    #[test]
    fn subscribers_are_known_by_their_gids() {
        let block = "\n\t\tRID\n\t\tSubscriberGID...........fe80::653:4843:4100:202\n\
            \t\ttrap_num................144\n";
        let gid = "fe80::0653:4843:4100:0202".parse().ok();
        assert_eq!(
            (subscriber(block), number(block, "trap_num")),
            (gid, Some(144))
        );
        assert_eq!(subscriber("trap_num....144"), None);
    }
}
