// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian's kernel headers for machines of other architectures, to compile for them.

use std::fs;
use std::path::{Path, PathBuf};

use super::{directory_name, headers_placed, kernels};
use crate::apt::{Apt, MACHINE_ARCHITECTURE, Release, Suites};
use crate::error::{Error, InFile};

/// An architecture for which Debian has a kernel and a cross compiler.
pub(crate) struct Architecture {
    /// As dpkg calls it.
    pub(crate) name: &'static str,
    /// As the packages of the kernel call it.
    flavour: &'static str,
    /// Before the names of its compiler and binutils.
    gnu_type: &'static str,
}

/// 64-bit ARM.
pub(crate) static ARM64: Architecture = Architecture {
    name: "arm64",
    flavour: "arm64",
    gnu_type: "aarch64-linux-gnu",
};

/// POWER, little-endian.
pub(crate) static PPC64EL: Architecture = Architecture {
    name: "ppc64el",
    flavour: "powerpc64le",
    gnu_type: "powerpc64le-linux-gnu",
};

/// Headers of a kernel for another architecture, with the programs of the build for this one.
pub(crate) struct ForeignHeaders {
    architecture: &'static Architecture,
    /// What `uname -r` says there.
    pub(crate) release: String,
    /// Where the packages are unpacked.
    dir: PathBuf,
}

impl ForeignHeaders {
    /// Those of this machine's release of Debian, unpacked below `vm_dir`. Security updates of other architectures come
    /// later than this one's, so those of the release itself are taken, unless its mirror lacks a package that it lists.
    pub(crate) fn provide(
        architecture: &'static Architecture,
        vm_dir: &Path,
    ) -> Result<Self, Error> {
        let with_security = &Release::of_machine()?.own;
        let without = Suites {
            main: with_security.main,
            security: None,
        };
        Self::provide_from(&without, architecture, vm_dir).or_else(|error| {
            eprintln!("{error}");
            eprintln!("trying the security updates of {}", with_security.main);
            Self::provide_from(with_security, architecture, vm_dir)
        })
    }

    fn provide_from(
        suites: &Suites,
        architecture: &'static Architecture,
        vm_dir: &Path,
    ) -> Result<Self, Error> {
        let Architecture { name, flavour, .. } = architecture;
        let security = suites.security.map_or("", |_| "-security");
        let lists = vm_dir.join(format!("apt/{}{security}-{name}", suites.main));
        let apt = Apt::of_architectures(suites, &[MACHINE_ARCHITECTURE, name], &lists)?;
        let metapackage = format!("linux-headers-{flavour}:{name}");
        let depends = apt.field(&metapackage, "Depends")?;
        let end = format!("-{flavour}");
        let headers = word(&depends, |word| word.ends_with(&end)).ok_or_else(|| {
            Error::Other(format!("{metapackage} depends on no headers: {depends}"))
        })?;
        let release = headers.trim_start_matches("linux-headers-").to_owned();
        let version = apt.field(&format!("{headers}:{name}"), "Version")?;
        let dir = kernels(vm_dir).join(directory_name(&release, &version));
        let found = Self {
            architecture,
            release,
            dir,
        };
        if !found.stamp().is_file() {
            found.unpack(&apt, headers, &version, &vm_dir.join("download"))?;
            let stamp = found.stamp();
            fs::write(&stamp, "").in_file(&stamp)?;
        }
        found.place()?;
        Ok(found)
    }

    /// The packages are all there.
    fn stamp(&self) -> PathBuf {
        self.dir.join("complete")
    }

    /// The headers, those for all architectures, and the programs of the build for this machine.
    fn unpack(
        &self,
        apt: &Apt,
        headers: &str,
        version: &str,
        download: &Path,
    ) -> Result<(), Error> {
        let own = format!("{headers}:{}", self.architecture.name);
        let depends = apt.field(&own, "Depends")?;
        let other = |end: fn(&str) -> bool| {
            word(&depends, end)
                .ok_or_else(|| Error::Other(format!("{own} lacks a package: {depends}")))
        };
        let common = other(|word| word.starts_with("linux-headers-") && word.ends_with("-common"))?;
        let programs = other(|word| word.starts_with("linux-kbuild-"))?;
        let programs = format!("{programs}:{MACHINE_ARCHITECTURE}");
        for package in [&own, common, &programs] {
            let exact = format!("{package}={version}");
            apt.unpack(&exact, &["./usr"], &self.dir, download)?;
        }
        Ok(())
    }

    /// The headers' makefile names where headers are installed.
    fn place(&self) -> Result<(), Error> {
        let makefile = self.build_dir().join("Makefile");
        let then = fs::read_to_string(&makefile).in_file(&makefile)?;
        fs::write(&makefile, headers_placed(&then, &self.dir)).in_file(&makefile)
    }

    /// The build directory, for out-of-tree modules.
    pub(crate) fn build_dir(&self) -> PathBuf {
        self.dir
            .join("usr/src")
            .join(format!("linux-headers-{}", self.release))
    }

    /// What make has to be told, beside where a module's sources are: Debian's headers take the cross compiler then.
    pub(crate) fn make_arguments(&self) -> Vec<String> {
        let Architecture { name, gnu_type, .. } = self.architecture;
        vec![
            format!("DEB_BUILD_ARCH={MACHINE_ARCHITECTURE}"),
            format!("DEB_HOST_ARCH={name}"),
            format!("DEB_HOST_GNU_TYPE={gnu_type}"),
        ]
    }
}

/// The first package of a dependency that is so called.
fn word(depends: &str, is_called: impl Fn(&str) -> bool) -> Option<&str> {
    depends.split([',', ' ', '|']).find(|word| is_called(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packages_of_a_build_are_named_by_what_the_headers_depend_on() {
        let depends =
            "linux-headers-6.1.0-50-common (= 6.1.176-1), linux-kbuild-6.1 (>= 6.1.176-1), gcc-12";
        let common = word(depends, |word| word.ends_with("-common"));
        assert_eq!(common, Some("linux-headers-6.1.0-50-common"));
        let programs = word(depends, |word| word.starts_with("linux-kbuild-"));
        assert_eq!(programs, Some("linux-kbuild-6.1"));
        assert_eq!(word(depends, |word| word == "gcc"), None);
    }

    #[test]
    fn headers_are_told_which_compiler_to_take() {
        let headers = ForeignHeaders {
            architecture: &PPC64EL,
            release: "6.1.0-50-powerpc64le".to_owned(),
            dir: "/t".into(),
        };
        assert!(
            headers
                .make_arguments()
                .contains(&"DEB_HOST_GNU_TYPE=powerpc64le-linux-gnu".to_owned())
        );
        let dir = headers.build_dir();
        assert_eq!(
            dir,
            Path::new("/t/usr/src/linux-headers-6.1.0-50-powerpc64le")
        );
    }
}
