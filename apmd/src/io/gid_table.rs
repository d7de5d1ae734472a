// SPDX-License-Identifier: MIT OR Apache-2.0
//! The GIDs of a port, from sysfs.

use std::net::Ipv6Addr;
use std::path::Path;

use cm_msgs::Gid;

/// Whether a port has this GID.
pub(crate) fn contains(device: &str, port: u8, gid: Gid) -> bool {
    let ports = Path::new("/sys/class/infiniband")
        .join(device)
        .join("ports");
    lists(&ports.join(port.to_string()).join("gids"), gid)
}

fn lists(table: &Path, gid: Gid) -> bool {
    let entries = std::fs::read_dir(table).into_iter().flatten().flatten();
    let mut gids = entries.filter_map(|entry| {
        let text = std::fs::read_to_string(entry.path()).ok()?;
        text.trim().parse::<Ipv6Addr>().ok()
    });
    gids.any(|found| found.octets() == gid.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gid_is_found_in_its_table() {
        let table = std::env::temp_dir().join(format!("apmd-gids-{}", std::process::id()));
        std::fs::create_dir_all(&table).unwrap();
        std::fs::write(table.join("0"), "fe80:0000:0000:0000:0002:c903:0000:0001\n").unwrap();
        std::fs::write(table.join("1"), "no GID\n").unwrap();
        let gid = |last| {
            let mut gid = [0; 16];
            gid[..2].copy_from_slice(&[0xfe, 0x80]);
            gid[9..12].copy_from_slice(&[2, 0xc9, 3]);
            gid[15] = last;
            Gid(gid)
        };
        assert!(lists(&table, gid(1)));
        assert!(!lists(&table, gid(2)));
        std::fs::remove_dir_all(&table).unwrap();
        assert!(!lists(&table, gid(1)));
    }
}
