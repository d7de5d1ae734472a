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

    /// The GID that a port always has, or 0 where the kernel does not report it; and this number of P_Keys, 0 for each
    /// that it does not tell. A port of an adapter in switch mode has neither, which costs its other ports nothing.
    ///
    /// # Errors
    /// As [`Self::gids`].
    pub(crate) fn as_far_as_told(&self, pkeys: u16) -> io::Result<(Gid, Vec<PKey>)> {
        let gid = self.first_gid();
        let pkey = |index| entry_in(&self.0.join(format!("pkeys/{index}")));
        let pkeys: Vec<io::Result<PKey>> = (0..pkeys).map(pkey).collect();
        // Afterwards: under this name there is still the port.
        std::fs::metadata(&self.0)?;
        let pkeys = pkeys.into_iter().map(Result::unwrap_or_default);
        Ok((gid.unwrap_or_default(), pkeys.collect()))
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
        let pkeys = vec![PKey::DEFAULT_FULL, PKey(0), PKey(0), PKey(0)];
        assert_eq!(tables.as_far_as_told(4).unwrap(), (gid, pkeys));
        // A file that cannot be read, as those of a port in switch mode.
        fs::remove_file(directory.join("gids/0")).unwrap();
        fs::create_dir(directory.join("gids/0")).unwrap();
        assert!(tables.first_gid().is_err());
        let told = tables.as_far_as_told(1).unwrap();
        assert_eq!(told, (Gid::default(), vec![PKey::DEFAULT_FULL]));
        fs::remove_dir_all(directory).unwrap();
        assert!(tables.gids().is_err() && tables.as_far_as_told(1).is_err());
    }
}
