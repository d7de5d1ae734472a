// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forwarding tables that are wrong here and there: loops, dead ends, ways with no way back. OpenSM
//! loads them from a file, writes them to the switches and answers for them.

use crate::ibsim::{Dice, Net};

/// Of so many entries, one is changed.
const ONE_OF: usize = 40;

/// `tables` as in `opensm-lfts.dump`, with some entries of the switches of `net` changed: to any other
/// port or to none. A switch's entry for itself stays; OpenSM's SA takes a packet at its own switch
/// for arrived, whatever the entry.
pub fn garble(tables: &str, net: &Net, dice: &mut Dice) -> String {
    let mut ports = 0;
    let mut text = String::with_capacity(tables.len());
    for line in tables.lines() {
        if let Some(guid) = guid(line) {
            ports = net.switch_ports(guid);
        }
        let entry = line.strip_prefix("0x").and_then(|_| line.split_once(" # "));
        let own = entry.is_some_and(|(numbers, _)| numbers.ends_with(" 000"));
        match entry.filter(|_| !own && dice.below(ONE_OF) == 0) {
            None => text.push_str(line),
            Some((numbers, comment)) => {
                // One more than there are ports: the entry goes.
                let port = 1 + dice.below(usize::from(ports) + 1);
                if port > usize::from(ports) {
                    continue;
                }
                let lid = numbers.split(' ').next().unwrap_or_default();
                text.push_str(&format!("{lid} {port:03} # {comment}"));
            }
        }
        text.push('\n');
    }
    text
}

fn guid(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once(" guid 0x")?;
    u64::from_str_radix(rest.split(' ').next()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_entries_change_and_own_ones_stay() {
        let mut net = Net::default();
        net.switch(4);
        let mut tables = "Unicast lids [0-999] of switch Lid 1 guid 0x0000000000200000 ('s'):\n\
                          0x0001 000 # Switch portguid 0x0000000000200000: 's'\n"
            .to_owned();
        for lid in 2..1000 {
            tables.push_str(&format!("{lid:#06x} 009 # Channel Adapter\n"));
        }
        tables.push_str("999 lids dumped\n");
        let garbled = garble(&tables, &net, &mut Dice::new(1));
        let (before, after) = (tables.lines().count(), garbled.lines().count());
        assert!(after < before && before - after < 20, "{after}");
        let same = garbled.lines().filter(|line| tables.contains(line)).count();
        assert!(same > 950 && same < after, "{same}");
        let wrong = garbled.lines().filter(|line| !tables.contains(line));
        assert!(
            wrong
                .clone()
                .all(|line| ["001", "002", "003", "004"].contains(&&line[7..10]))
        );
        assert!(garbled.contains("0x0001 000 #") && garbled.ends_with("999 lids dumped\n"));
    }
}
