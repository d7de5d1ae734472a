// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checking kernel: Debian's source with a small configuration and the kernel's own checks, built once and
//! kept. It is there when the stamp names the configuration.

use std::fs;
use std::num::NonZero;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::apt::Apt;
use crate::error::{Error, InFile};
use crate::{packages, shell};

/// The metapackage; it depends on the source package, which has a version in its name.
const PACKAGE: &str = "linux-source";

/// What differs from `make tinyconfig`.
const CONFIG: &str = include_str!("debug.config");

/// Where the kernel is, with its source in `linux-source-VERSION`.
struct Place {
    dir: PathBuf,
}

/// The release of the checking kernel in `dir`, if it has been built with today's configuration.
pub(super) fn at_hand(dir: &Path) -> Option<String> {
    let place = Place {
        dir: dir.to_path_buf(),
    };
    stamped(&fs::read_to_string(place.stamp()).ok()?)
}

/// Builds the checking kernel in `dir`, by way of `download`, and returns its release. It is not at hand before
/// [`complete`].
pub(super) fn build(dir: &Path, download: &Path) -> Result<String, Error> {
    let place = Place {
        dir: dir.to_path_buf(),
    };
    packages::install(packages::KERNEL)?;
    place.fetch_source(download)?;
    shell::progress("building the checking kernel; this takes half an hour or longer");
    place.configure()?;
    place.make(&["bzImage", "modules"])?;
    let release = place.release()?;
    place.install(&release)?;
    Ok(release)
}

/// The kernel's own check of style, in the source of the checking kernel in `dir`, if that has been unpacked.
pub(super) fn checkpatch(dir: &Path) -> Option<PathBuf> {
    let place = Place {
        dir: dir.to_path_buf(),
    };
    let script = place.source().ok()?.join("scripts/checkpatch.pl");
    script.is_file().then_some(script)
}

/// All that belongs to the kernel in `dir` is there.
pub(super) fn complete(dir: &Path, release: &str) -> Result<(), Error> {
    let place = Place {
        dir: dir.to_path_buf(),
    };
    let stamp = place.stamp();
    fs::write(&stamp, stamp_text(release)).in_file(&stamp)
}

/// The release, and what its configuration was.
fn stamp_text(release: &str) -> String {
    format!("{release}\n{CONFIG}")
}

/// The release that a stamp names, if it has been built with today's configuration.
fn stamped(stamp: &str) -> Option<String> {
    let (release, _) = stamp.split_once('\n')?;
    (stamp == stamp_text(release)).then(|| release.to_owned())
}

impl Place {
    fn stamp(&self) -> PathBuf {
        self.dir.join("stamp")
    }

    /// The directory of the source, which has been unpacked.
    fn source(&self) -> Result<PathBuf, Error> {
        let entries = fs::read_dir(&self.dir).in_file(&self.dir)?;
        let mut paths = entries.flatten().map(|entry| entry.path());
        let found = paths.find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("linux-source-") && path.join("Makefile").is_file()
        });
        found.ok_or_else(|| Error::Other(format!("{}: no source of a kernel", self.dir.display())))
    }

    /// Unpacks Debian's source, with its patches, unless it is there.
    fn fetch_source(&self, download: &Path) -> Result<(), Error> {
        if self.source().is_ok() {
            return Ok(());
        }
        let apt = Apt::of_machine();
        let depends = apt.field(PACKAGE, "Depends")?;
        let package = concrete_source(&depends)
            .ok_or_else(|| Error::Other(format!("{PACKAGE} depends on no source: {depends}")))?;
        shell::progress(&format!("fetching {package}"));
        let archive = format!("usr/src/{package}.tar.xz");
        apt.unpack(package, &[&format!("./{archive}")], &self.dir, download)?;
        let archive = self.dir.join(archive);
        let mut tar = Command::new("tar");
        tar.arg("-xf").arg(&archive).arg("-C").arg(&self.dir);
        shell::output(&format!("unpacking {package}"), &mut tar)?;
        fs::remove_file(&archive).in_file(&archive)
    }

    /// Makes the configuration, and holds it to what was wanted: an option that depends on something absent would
    /// disappear without a word.
    fn configure(&self) -> Result<(), Error> {
        self.make(&["tinyconfig"])?;
        let path = self.source()?.join(".config");
        let tiny = fs::read_to_string(&path).in_file(&path)?;
        fs::write(&path, format!("{tiny}{CONFIG}")).in_file(&path)?;
        self.make(&["olddefconfig"])?;
        let made = fs::read_to_string(&path).in_file(&path)?;
        match lost(CONFIG, &made) {
            lost if lost.is_empty() => Ok(()),
            lost => Err(Error::Other(format!(
                "cannot configure the checking kernel: its source does not accept {}",
                lost.join(", ")
            ))),
        }
    }

    /// Runs the kernel's make with as many jobs as there are processors, after everything else that wants one.
    fn make(&self, targets: &[&str]) -> Result<String, Error> {
        let jobs = thread::available_parallelism().map_or(1, NonZero::get);
        let mut make = Command::new("nice");
        make.args(["-n", "19", "make", "-s", "-C"])
            .arg(self.source()?)
            .arg(format!("-j{jobs}"))
            .args(["KBUILD_BUILD_HOST=vm", "KBUILD_BUILD_USER=apmd"])
            .args(targets);
        shell::output(&format!("make {}", targets.join(" ")), &mut make)
    }

    fn release(&self) -> Result<String, Error> {
        Ok(self.make(&["kernelrelease"])?.trim().to_owned())
    }

    /// Puts image, modules and headers where those of Debian's packages are.
    fn install(&self, release: &str) -> Result<(), Error> {
        let boot = self.dir.join("boot");
        let headers = self.dir.join("usr/src");
        for new in [&boot, &headers] {
            fs::create_dir_all(new).in_file(new)?;
        }
        let image = self.source()?.join("arch/x86/boot/bzImage");
        fs::copy(&image, boot.join(format!("vmlinuz-{release}"))).in_file(&image)?;
        let mut install = Command::new("make");
        install
            .args(["-s", "-C"])
            .arg(self.source()?)
            .arg(format!("INSTALL_MOD_PATH={}", self.dir.display()))
            .arg("modules_install");
        shell::output("make modules_install", &mut install)?;
        let link = headers.join(format!("linux-headers-{release}"));
        if !link.exists() {
            // The directory may be moved or copied.
            let source = self.source()?;
            let source = Path::new("../..").join(source.file_name().unwrap_or_default());
            symlink(source, &link).in_file(&link)?;
        }
        Ok(())
    }
}

/// The package that the metapackage stands for.
fn concrete_source(depends: &str) -> Option<&str> {
    depends
        .split([',', ' ', '|'])
        .find(|word| word.starts_with("linux-source-"))
}

/// The lines of `wanted` that `made` does not have.
fn lost<'a>(wanted: &'a str, made: &str) -> Vec<&'a str> {
    let is_option = |line: &&str| line.starts_with("CONFIG_") || line.starts_with("# CONFIG_");
    let options = wanted.lines().filter(is_option);
    let is_lost = |option: &&str| match option.strip_suffix(" is not set") {
        // An option that does not exist in this configuration is not set, either.
        Some(name) => {
            let name = name.trim_start_matches("# ");
            made.lines()
                .any(|line| line.starts_with(&format!("{name}=")))
        }
        None => !made.lines().any(|line| line == *option),
    };
    options.filter(is_lost).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_of_another_configuration_is_not_at_hand() {
        let stamp = stamp_text("6.1.172-debug");
        assert_eq!(stamped(&stamp).as_deref(), Some("6.1.172-debug"));
        assert_eq!(stamped("6.1.172-debug\nCONFIG_KASAN=y\n"), None);
        assert_eq!(stamped(""), None);
    }

    #[test]
    fn the_metapackage_names_the_source() {
        let depends = "linux-source-6.12 (= 6.12.118-1)";
        assert_eq!(concrete_source(depends), Some("linux-source-6.12"));
        assert_eq!(concrete_source("xz-utils"), None);
    }

    #[test]
    fn what_the_source_does_not_accept_is_named() {
        let wanted =
            "# A word.\nCONFIG_A=y\nCONFIG_B=m\n# CONFIG_C is not set\n# CONFIG_D is not set\n";
        let made = "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=y\n";
        assert_eq!(lost(wanted, made), ["CONFIG_B=m", "# CONFIG_C is not set"]);
        assert!(lost(wanted, "CONFIG_A=y\nCONFIG_B=m\n").is_empty());
    }

    #[test]
    fn the_checks_are_on() {
        for check in [
            "KASAN",
            "PROVE_LOCKING",
            "DEBUG_ATOMIC_SLEEP",
            "DEBUG_KMEMLEAK",
            "SECURITY_INFINIBAND",
        ] {
            assert!(CONFIG.contains(&format!("\nCONFIG_{check}=y\n")), "{check}");
        }
    }
}
