// SPDX-License-Identifier: MIT OR Apache-2.0
//! `guid2lid`: one line `GUID FIRST LAST` a port, with empty lines between. OpenSM keeps the lines
//! of ports that are gone, so that they get their LIDs again.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;

use cm_msgs::{Guid, Lid};

use super::warnings::Bad;
use super::{Lost, Problem, ReadError, Warnings, lid, range, syntax};
use crate::lid_range::LidRange;
use crate::lines::{Lines, Records, guid};

/// Reads the LIDs of all ports that OpenSM remembers.
pub(super) fn read(
    path: &Path,
    warnings: &mut Warnings,
) -> Result<HashMap<Guid, LidRange>, ReadError> {
    let mut lids = HashMap::new();
    let mut lines = Lines::open(path)?;
    lines.records(Records::LINES, 0, &mut |_, _, _| (), |line, number| {
        if let Err(bad) = take(line, &mut lids) {
            warnings.push(path, number, bad);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let known = lids
        .into_iter()
        .filter_map(|(guid, range)| Some((guid, range?)));
    Ok(known.collect())
}

/// `None` stays for a port of which two lines tell different LIDs.
fn take(line: &str, lids: &mut HashMap<Guid, Option<LidRange>>) -> Result<(), Bad> {
    if line.is_empty() || line.starts_with('#') {
        return Ok(());
    }
    let (guid, range) = port(line)?;
    match lids.entry(guid).or_insert(Some(range)) {
        known if *known != Some(range) => {
            *known = None;
            Err(Bad::new(Problem::GuidTwice(guid), Lost::OtherLids))
        }
        _ => Ok(()),
    }
}

fn port(line: &str) -> Result<(Guid, LidRange), Bad> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let numbers = match fields[..] {
        [port, first, last] => guid(port).zip(lid(first).zip(lid(last))),
        _ => None,
    };
    let wanted = || syntax("port guid, first and last lid", line);
    let (guid, (first, last)) = numbers.ok_or_else(|| Bad::new(wanted(), Lost::OtherLids))?;
    // A port that OpenSM knew and could give no LID.
    if (first, last) == (Lid(0), Lid(0)) {
        return Err(Bad::new(Problem::LidZero, Lost::Nothing));
    }
    let range = range(first, last)
        .ok_or_else(|| Bad::new(Problem::Lids { first, last }, Lost::OtherLids))?;
    Ok((guid, range))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_guid_and_its_lids() {
        let (guid, lids) = port("0x0000000000100004 0x0008 0x000b").expect("a port");
        assert_eq!(guid, Guid(0x10_0004));
        assert_eq!((lids.base(), lids.lmc()), (Lid(8), 2));
    }

    #[test]
    fn lids_that_no_port_can_have() {
        for line in [
            "0x1 0x0008 0x0007",
            "0x1 0x0008 0x000a",
            "0x1 0x0009 0x000a",
            "0x1 0x0000 0xffff",
            "0x1 0xc000 0xc000",
        ] {
            let bad = port(line).expect_err("no port's");
            assert!(matches!(bad.problem, Problem::Lids { .. }), "{line}");
        }
        let bad = port("0x1 0x0008").expect_err("cut short");
        assert!(matches!(bad.problem, Problem::Syntax { .. }));
        let bad = port("0x1 0x0000 0x0000").expect_err("no lid");
        assert!(matches!(bad.problem, Problem::LidZero));
        assert!(!bad.lost.is_loss());
    }

    #[test]
    fn two_lines_that_differ_say_nothing() {
        let mut lids = HashMap::new();
        take("0x1 0x8 0x8", &mut lids).expect("a port");
        take("0x1 0x8 0x8", &mut lids).expect("the same again");
        take("0x1 0x9 0x9", &mut lids).expect_err("other lids");
        take("0x1 0x9 0x9", &mut lids).expect_err("a third line decides nothing");
        assert_eq!(lids[&Guid(1)], None);
    }
}
