// SPDX-License-Identifier: MIT OR Apache-2.0
//! `guid2lid`: one line `GUID FIRST LAST` a port, with empty lines between. OpenSM keeps the lines
//! of ports that are gone, so that they get their LIDs again.

use std::collections::HashMap;
use std::path::Path;

use cm_msgs::{Guid, Lid};

use super::{Problem, ReadError, lid, syntax};
use crate::lid_range::LidRange;
use crate::lines::{Lines, guid};

/// Reads the LIDs of all ports that OpenSM remembers.
pub(super) fn read(path: &Path) -> Result<HashMap<Guid, LidRange>, ReadError> {
    let mut lids = HashMap::new();
    Lines::open(path)?.each(|line| {
        if line.is_empty() {
            return Ok(());
        }
        let (guid, range) = port(line)?;
        match lids.insert(guid, range) {
            None => Ok(()),
            Some(_) => Err(Problem::GuidTwice(guid)),
        }
    })?;
    Ok(lids)
}

fn port(line: &str) -> Result<(Guid, LidRange), Problem> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let numbers = match fields[..] {
        [port, first, last] => guid(port).zip(lid(first).zip(lid(last))),
        _ => None,
    };
    let (guid, (first, last)) =
        numbers.ok_or_else(|| syntax("port guid, first and last lid", line))?;
    let range = range(first, last).ok_or(Problem::Lids { first, last })?;
    Ok((guid, range))
}

fn range(first: Lid, last: Lid) -> Option<LidRange> {
    let count = last.0.checked_sub(first.0)?.checked_add(1)?;
    let lmc = count.is_power_of_two().then(|| count.trailing_zeros())?;
    LidRange::new(first, lmc as u8)
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
            "0x1 0x0000 0x0000",
            "0x1 0x0000 0xffff",
            "0x1 0xc000 0xc000",
        ] {
            assert!(matches!(port(line), Err(Problem::Lids { .. })), "{line}");
        }
        assert!(matches!(port("0x1 0x0008"), Err(Problem::Syntax { .. })));
    }
}
