// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibacm_route.data` in the format `opensm_full_v1`: for every port a head with its GUID and base
//! LID, and then `DLID : SL : MTU : RATE` a line for every other.

use std::collections::HashMap;

use cm_msgs::sa::PathRecord;
use cm_msgs::{Gid, Guid, Lid};

use super::{Parsed, lines};

/// A port whose paths are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Head {
    guid: Guid,
    lid: Lid,
}

/// The paths of the ports `from`, which have these GIDs, to all others of the file: without P_Key
/// and packet life time, which it does not have. Destinations are in the sources' subnet. LMC is not
/// known to the format: a LID is its port's only one.
pub fn routes(text: &str, from: &[Gid]) -> Parsed<Vec<PathRecord>> {
    let mut skipped = Vec::new();
    let guids = guids(text);
    let mut value = Vec::new();
    let mut section = None;
    for (number, line) in lines(text) {
        if let Some(head) = head(line) {
            let mut sources = from.iter();
            let source = sources.find(|gid| gid.interface_id() == head.guid);
            section = source.map(|gid| (*gid, head.lid));
        } else if let Some((sgid, slid)) = section {
            match route(line, sgid, slid, &guids) {
                Ok(route) => value.extend(route),
                Err(what) => skipped.push((number, what.to_owned())),
            }
        }
    }
    Parsed { value, skipped }
}

fn guids(text: &str) -> HashMap<Lid, Guid> {
    let heads = lines(text).filter_map(|(_, line)| head(line));
    heads.map(|head| (head.lid, head.guid)).collect()
}

/// `Channel Adapter 0x..., base LID 7, ...`, `Switch 0x...`, `Router 0x...`.
fn head(line: &str) -> Option<Head> {
    let rest = ["Channel Adapter ", "Switch ", "Router "]
        .iter()
        .find_map(|kind| line.trim_start().strip_prefix(kind))?;
    let (guid, rest) = rest.split_once(',')?;
    let guid = u64::from_str_radix(guid.trim().strip_prefix("0x")?, 16).ok()?;
    let (_, lid) = rest.split_once("base LID")?;
    let lid = lid.split(',').next()?.trim().parse().ok()?;
    Some(Head {
        guid: Guid(guid),
        lid: Lid(lid),
    })
}

fn route(
    line: &str,
    sgid: Gid,
    slid: Lid,
    guids: &HashMap<Lid, Guid>,
) -> Result<Option<PathRecord>, &'static str> {
    let mut fields = line.split(':').map(str::trim);
    let dlid = fields.next().and_then(|lid| lid.strip_prefix("0x"));
    let dlid = dlid.and_then(|lid| u16::from_str_radix(lid, 16).ok());
    let dlid = Lid(dlid.ok_or("want a lid in hexadecimal")?);
    let sl = fields.next().ok_or("want LID : SL : MTU : RATE")?;
    if sl == "UNREACHABLE" {
        return Ok(None);
    }
    let number = |text: Option<&str>| {
        let number = text.and_then(|text| text.parse::<u8>().ok());
        number.ok_or("want LID : SL : MTU : RATE")
    };
    let sl = number(Some(sl))?;
    let (mtu, rate) = (number(fields.next())?, number(fields.next())?);
    let guid = guids.get(&dlid).ok_or("nobody in the file has that lid")?;
    Ok(Some(PathRecord {
        sgid,
        dgid: Gid::new(sgid.subnet_prefix(), *guid),
        slid,
        dlid,
        reversible: true,
        sl: sl & 0xf,
        mtu,
        rate,
        ..PathRecord::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# dumped\n\
        Switch 0x0000000000000100, base LID 1, \"leaf\", port 0\n\
        0x0004 : 0 : 4 : 3\n\
        Channel Adapter 0x0000000000000204, base LID 4, \"a, HCA-1\", port 1\n\
        # LID  : SL : MTU : RATE\n\
        0x0001 : 0 : 4 : 3\n\
        0x0004 : 0 : 5 : 7\n\
        0x0005 : 2 : 5 : 7\n\
        0x0006 : UNREACHABLE\n\
        0x0007 : 0 : 5 : 7\n\
        0x0005 : 2 : 5\n\
        Channel Adapter 0x0000000000000205, base LID 5, \"b\", port 1\n\
        0x0004 : 1 : 5 : 7\n";

    #[test]
    fn only_the_paths_of_the_ports_in_question() {
        let prefix = 0xfe80 << 48;
        let source = Gid::new(prefix, Guid(0x204));
        let parsed = routes(FILE, &[source]);
        let paths: Vec<_> = parsed
            .value
            .iter()
            .map(|path| {
                assert_eq!((path.sgid, path.slid), (source, Lid(4)));
                (
                    path.dgid.interface_id().0,
                    path.dlid.0,
                    path.sl,
                    path.mtu,
                    path.rate,
                )
            })
            .collect();
        assert_eq!(
            paths,
            [
                (0x100, 1, 0, 4, 3),
                (0x204, 4, 0, 5, 7),
                (0x205, 5, 2, 5, 7)
            ]
        );
        let lines: Vec<_> = parsed.skipped.iter().map(|(line, _)| *line).collect();
        assert_eq!(
            lines,
            [10, 11],
            "a lid that nobody has, and a line that is cut"
        );
        let both = [source, Gid::new(prefix, Guid(0x205))];
        assert_eq!(routes(FILE, &both).value.len(), 4);
        assert_eq!(routes(FILE, &[]).value, []);
    }
}
