// SPDX-License-Identifier: MIT OR Apache-2.0
//! A port's GIDs and P_Keys, from sysfs.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use cm_msgs::{Gid, PKey};

/// The directory of the tables of a port.
#[derive(Debug)]
pub(crate) struct PortTables(PathBuf);

impl PortTables {
    /// Of this port of the device that is called `device` now.
    pub(crate) fn of(device: &str, port: u8) -> Self {
        let ports = Path::new("/sys/class/infiniband")
            .join(device)
            .join("ports");
        Self(ports.join(port.to_string()))
    }

    /// All its GIDs.
    ///
    /// # Errors
    /// It is not there, or not under this name.
    pub(crate) fn gids(&self) -> io::Result<BTreeSet<Gid>> {
        let entries = std::fs::read_dir(self.0.join("gids"))?.flatten();
        Ok(entries
            .filter_map(|entry| entry_in(&entry.path()).ok())
            .collect())
    }

    /// The GID that it always has.
    ///
    /// # Errors
    /// As [`Self::gids`].
    pub(crate) fn first_gid(&self) -> io::Result<Gid> {
        entry_in(&self.0.join("gids/0"))
    }

    /// So many P_Keys.
    ///
    /// # Errors
    /// As [`Self::gids`], or it has fewer.
    pub(crate) fn pkeys(&self, count: u16) -> io::Result<Vec<PKey>> {
        let pkey = |index| entry_in(&self.0.join(format!("pkeys/{index}")));
        (0..count).map(pkey).collect()
    }
}

fn entry_in<T: FromStr<Err: Display>>(file: &Path) -> io::Result<T> {
    let parsed = std::fs::read_to_string(file)?.trim().parse::<T>();
    parsed.map_err(|error| {
        let what = format!("{}: {error}", file.display());
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn as_the_kernel_writes_them() {
        let directory = std::env::temp_dir().join(format!("apmd-tables-{}", std::process::id()));
        let tables = PortTables(directory.clone());
        for table in ["gids", "pkeys"] {
            fs::create_dir_all(directory.join(table)).unwrap();
        }
        let write = |file: &str, text: &str| fs::write(directory.join(file), text).unwrap();
        write("gids/0", "fe80:0000:0000:0000:0002:c903:0000:0001\n");
        write("gids/1", "no GID\n");
        write("pkeys/0", "0xffff\n");
        write("pkeys/1", "0x0000\n");
        write("pkeys/2", "no P_Key\n");
        let gid: Gid = "fe80::2:c903:0:1".parse().unwrap();
        assert_eq!(tables.first_gid().unwrap(), gid);
        assert_eq!(tables.gids().unwrap(), [gid].into());
        assert_eq!(tables.pkeys(2).unwrap(), [PKey::DEFAULT_FULL, PKey(0)]);
        let error = tables.pkeys(3).expect_err("not a number").to_string();
        assert!(error.contains("pkeys/2: not a p_key"), "{error}");
        fs::remove_dir_all(directory).unwrap();
        assert!(tables.gids().is_err() && tables.first_gid().is_err());
    }
}
