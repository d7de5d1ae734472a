// SPDX-License-Identifier: MIT OR Apache-2.0
//! The GIDs of a port, from sysfs.

use std::collections::BTreeSet;
use std::io;
use std::net::Ipv6Addr;
use std::path::Path;

use cm_msgs::Gid;

/// What a port has.
///
/// # Errors
/// It is not there, or not under this name.
pub(crate) fn read(device: &str, port: u8) -> io::Result<BTreeSet<Gid>> {
    let ports = Path::new("/sys/class/infiniband")
        .join(device)
        .join("ports");
    gids(&ports.join(port.to_string()).join("gids"))
}

fn gids(table: &Path) -> io::Result<BTreeSet<Gid>> {
    let gids = std::fs::read_dir(table)?.flatten().filter_map(|entry| {
        let text = std::fs::read_to_string(entry.path()).ok()?;
        text.trim().parse::<Ipv6Addr>().ok()
    });
    Ok(gids.map(|gid| Gid(gid.octets())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_what_its_files_say() {
        let table = std::env::temp_dir().join(format!("apmd-gids-{}", std::process::id()));
        std::fs::create_dir_all(&table).unwrap();
        std::fs::write(table.join("0"), "fe80:0000:0000:0000:0002:c903:0000:0001\n").unwrap();
        std::fs::write(table.join("1"), "no GID\n").unwrap();
        let mut gid = [0; 16];
        gid[..2].copy_from_slice(&[0xfe, 0x80]);
        gid[9..12].copy_from_slice(&[2, 0xc9, 3]);
        gid[15] = 1;
        assert_eq!(gids(&table).unwrap(), [Gid(gid)].into());
        std::fs::remove_dir_all(&table).unwrap();
        assert!(gids(&table).is_err());
    }
}
