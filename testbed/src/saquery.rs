// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian's `saquery`: what subnet administration says to a program that is not ours.

use crate::command;
use crate::failure::Failure;
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
}
