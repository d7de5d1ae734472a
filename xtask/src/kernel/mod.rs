// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian's kernels, unpacked and not installed: the stock one that matches the installed headers, and
//! newer ones of backports and of the next release with their headers. And one that is built here from Debian's source,
//! with the kernel's own checks.

mod build_programs;
mod debug;
mod modules;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;

use crate::apt::{Apt, BACKPORTS, Suites};
use crate::error::{Error, InFile};
use crate::shell;

/// Debian 13.
const TRIXIE: Suites = Suites {
    name: "trixie",
    main: "trixie",
    security: Some("trixie-security"),
};

/// Which of Debian's kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Choice {
    /// Debian 12's own, 6.1
    #[default]
    Stock,
    /// The newer one of bookworm-backports, 6.12; fetched once, and installed nowhere
    Backports,
    /// Debian 13's own, 6.12 with the fix that the module apm wants (docs/kernel.md); fetched once, and installed
    /// nowhere
    Trixie,
    /// Debian 12's source with KASAN, lockdep and kmemleak, built once, which takes half an hour or longer. A VM
    /// with it is several times slower
    Debug,
}

impl Choice {
    /// Those for which `cargo xtask sparse` reads the modules: one of each series.
    pub(crate) const FOR_SPARSE: [Self; 2] = [Self::Stock, Self::Backports];

    /// What its command line has besides that of the others: a second fault of the same boot is reported, too.
    pub(crate) fn arguments(self) -> &'static str {
        match self {
            Self::Stock | Self::Backports | Self::Trixie => "",
            Self::Debug => " kasan_multi_shot",
        }
    }

    /// How many times longer everything may take than on Debian's kernels, before a VM counts as hung.
    pub(crate) fn patience(self) -> u32 {
        match self {
            Self::Stock | Self::Backports | Self::Trixie => 1,
            Self::Debug => 6,
        }
    }

    /// The memory in MiB that a VM has to have: KASAN takes an eighth of it, and freed objects stay for a while.
    pub(crate) fn least_memory(self) -> u32 {
        match self {
            Self::Stock | Self::Backports | Self::Trixie => 0,
            Self::Debug => 4096,
        }
    }

    /// What make has to be told for a module of this kernel, beside where its sources are: Debian 13's headers name a
    /// compiler that Debian 12 does not have, and an option that its own does not know.
    fn make_arguments(self) -> &'static [&'static str] {
        match self {
            Self::Stock | Self::Backports | Self::Debug => &[],
            Self::Trixie => &["CC=gcc", "CONFIG_CC_HAS_MIN_FUNCTION_ALIGNMENT="],
        }
    }
}

/// An unpacked kernel.
pub(crate) struct Kernel {
    choice: Choice,
    /// What `uname -r` will say.
    pub(crate) release: String,
    /// The Debian version of its package.
    version: String,
    /// Where the package is unpacked.
    dir: PathBuf,
    /// Below which the headers are, in `usr/src`: `/` if they are installed.
    headers: PathBuf,
}

/// The name of the headers package that the metapackage `linux-headers-amd64` stands for.
fn concrete_headers(depends: &str) -> Option<&str> {
    depends
        .split([',', ' ', '|'])
        .find(|word| word.starts_with("linux-headers-") && word.ends_with("-amd64"))
}

/// The release whose headers the metapackage `linux-headers-amd64` stands for.
fn release(depends: &str) -> Result<String, Error> {
    let headers = concrete_headers(depends).ok_or_else(|| {
        Error::Other(format!(
            "linux-headers-amd64 depends on no headers: {depends}"
        ))
    })?;
    Ok(headers.trim_start_matches("linux-headers-").to_owned())
}

fn installed_field(package: &str, field: &str) -> Result<String, Error> {
    shell::output(
        &format!("dpkg-query {package}"),
        Command::new("dpkg-query").args(["-W", "-f", &format!("${{{field}}}"), package]),
    )
}

/// Where the kernels are.
fn kernels(vm_dir: &Path) -> PathBuf {
    vm_dir.join("kernel")
}

/// The kernel's own check of style, where the checking kernel's source is below `vm_dir`.
pub(crate) fn checkpatch(vm_dir: &Path) -> Option<PathBuf> {
    debug::checkpatch(&kernels(vm_dir).join("debug"))
}

impl Kernel {
    /// The kernel, unpacked below `vm_dir` unless it is there already.
    pub(crate) fn provide(choice: Choice, vm_dir: &Path) -> Result<Self, Error> {
        match choice {
            Choice::Stock => Self::stock(vm_dir),
            Choice::Backports => Self::of_suites(choice, &BACKPORTS, vm_dir),
            Choice::Trixie => Self::of_suites(choice, &TRIXIE, vm_dir),
            Choice::Debug => Self::debug(vm_dir),
        }
    }

    /// Like [`Self::provide`], but Debian's archive is asked for a newer one than is there.
    pub(crate) fn provide_newest(choice: Choice, vm_dir: &Path) -> Result<Self, Error> {
        match choice {
            Choice::Stock => Self::stock(vm_dir),
            Choice::Backports => Self::newest(choice, &BACKPORTS, vm_dir),
            Choice::Trixie => Self::newest(choice, &TRIXIE, vm_dir),
            Choice::Debug => Self::debug(vm_dir),
        }
    }

    /// The checking kernel, which is built once.
    fn debug(vm_dir: &Path) -> Result<Self, Error> {
        let dir = kernels(vm_dir).join("debug");
        let at_hand = debug::at_hand(&dir);
        let is_built = at_hand.is_some();
        let release = match at_hand {
            Some(release) => release,
            None => debug::build(&dir, &vm_dir.join("download"))?,
        };
        let kernel = Self {
            choice: Choice::Debug,
            release,
            version: String::new(),
            headers: dir.clone(),
            dir,
        };
        if !is_built {
            kernel.index_modules()?;
            debug::complete(&kernel.dir, &kernel.release)?;
        }
        Ok(kernel)
    }

    /// The kernel of the installed headers.
    fn stock(vm_dir: &Path) -> Result<Self, Error> {
        let release = release(&installed_field("linux-headers-amd64", "Depends")?)?;
        let version = installed_field(&format!("linux-headers-{release}"), "Version")?;
        let dir = kernels(vm_dir).join(directory_name(&release, &version));
        let kernel = Self {
            choice: Choice::Stock,
            release,
            version,
            dir,
            headers: "/".into(),
        };
        if !kernel.is_complete() {
            kernel.unpack_image(&Apt::of_machine(), vm_dir)?;
            kernel.index_modules()?;
        }
        Ok(kernel)
    }

    /// The newest kernel of `suites` when it was last asked for, or now.
    fn of_suites(choice: Choice, suites: &Suites, vm_dir: &Path) -> Result<Self, Error> {
        match Self::at_hand(choice, suites, vm_dir)? {
            Some(kernel) => Ok(kernel),
            None => Self::newest(choice, suites, vm_dir),
        }
    }

    /// The kernel of `suites` that the file of their name names, if it is there.
    fn at_hand(choice: Choice, suites: &Suites, vm_dir: &Path) -> Result<Option<Self>, Error> {
        let chosen = fs::read_to_string(chosen(vm_dir, suites)).unwrap_or_default();
        let Some((release, version)) = chosen.trim_end().split_once(' ') else {
            return Ok(None);
        };
        let kernel = Self::with_headers(choice, release.to_owned(), version.to_owned(), vm_dir);
        if !kernel.is_complete() {
            return Ok(None);
        }
        kernel.place_headers()?;
        Ok(Some(kernel))
    }

    fn newest(choice: Choice, suites: &Suites, vm_dir: &Path) -> Result<Self, Error> {
        let apt = Apt::of_suites(suites, &vm_dir.join("apt").join(suites.name))?;
        let release = release(&apt.field("linux-headers-amd64", "Depends")?)?;
        let version = apt.field(&format!("linux-headers-{release}"), "Version")?;
        let kernel = Self::with_headers(choice, release, version, vm_dir);
        if !kernel.is_complete() {
            kernel.unpack_image(&apt, vm_dir)?;
            kernel.unpack_headers(&apt, vm_dir)?;
            kernel.index_modules()?;
        }
        kernel.place_headers()?;
        let chosen = chosen(vm_dir, suites);
        fs::write(&chosen, format!("{} {}\n", kernel.release, kernel.version)).in_file(&chosen)?;
        Ok(kernel)
    }

    /// A kernel that is unpacked with its headers beside it.
    fn with_headers(choice: Choice, release: String, version: String, vm_dir: &Path) -> Self {
        let dir = kernels(vm_dir).join(directory_name(&release, &version));
        Self {
            choice,
            release,
            version,
            headers: dir.clone(),
            dir,
        }
    }

    /// The bootable image.
    pub(crate) fn image(&self) -> PathBuf {
        self.dir
            .join("boot")
            .join(format!("vmlinuz-{}", self.release))
    }

    /// The build directory of the headers, for out-of-tree modules.
    pub(crate) fn build_dir(&self) -> PathBuf {
        self.headers
            .join("usr/src")
            .join(format!("linux-headers-{}", self.release))
    }

    /// What make has to be told for a module of this kernel, beside where its sources are.
    pub(crate) fn make_arguments(&self) -> &'static [&'static str] {
        self.choice.make_arguments()
    }

    /// `/lib/modules/RELEASE` of the package.
    pub(crate) fn modules_dir(&self) -> PathBuf {
        self.dir.join("lib/modules").join(&self.release)
    }

    /// The files, relative to [`Self::modules_dir`], of the modules `names` and of all that they
    /// depend on, without what is part of the kernel.
    pub(crate) fn module_files(&self, names: &[&str]) -> Result<BTreeSet<String>, Error> {
        let read = |name: &str| {
            let path = self.modules_dir().join(name);
            fs::read_to_string(&path).in_file(&path)
        };
        modules::files(&read("modules.dep")?, &read("modules.builtin")?, names).map_err(|name| {
            let dir = self.modules_dir();
            Error::Other(format!("{}: no module {name}", dir.display()))
        })
    }

    /// The index of the modules is made last.
    fn is_complete(&self) -> bool {
        self.modules_dir().join("modules.dep").is_file()
    }

    fn unpack_image(&self, apt: &Apt, vm_dir: &Path) -> Result<(), Error> {
        shell::progress(&format!(
            "fetching Debian's kernel {} {}",
            self.release, self.version
        ));
        // Since Debian 13 packages have everything below /usr.
        let lib = match self.choice {
            Choice::Trixie => "usr/lib",
            Choice::Stock | Choice::Backports | Choice::Debug => "lib",
        };
        apt.unpack(
            &format!("linux-image-{}={}", self.release, self.version),
            &["./boot", &format!("./{lib}/modules/{}", self.release)],
            &self.dir,
            &vm_dir.join("download"),
        )?;
        let link = self.dir.join("lib");
        if link.exists() {
            return Ok(());
        }
        symlink(lib, &link).in_file(&link)
    }

    /// What a module is built with: headers, and the programs of the kernel's build.
    fn unpack_headers(&self, apt: &Apt, vm_dir: &Path) -> Result<(), Error> {
        let base = self.base_release();
        for package in [
            format!("linux-headers-{}", self.release),
            format!("linux-headers-{base}-common"),
            format!("linux-kbuild-{base}"),
        ] {
            let exact = format!("{package}={}", self.version);
            apt.unpack(&exact, &["./usr"], &self.dir, &vm_dir.join("download"))?;
        }
        match self.choice {
            Choice::Trixie => build_programs::bring_libc(
                apt,
                &self.dir,
                &format!("linux-kbuild-{base}"),
                &vm_dir.join("download"),
            ),
            Choice::Stock | Choice::Backports | Choice::Debug => Ok(()),
        }
    }

    /// The release without its flavour.
    fn base_release(&self) -> &str {
        self.release.trim_end_matches("-amd64")
    }

    /// The headers' makefile names where the rest of them would be installed.
    fn place_headers(&self) -> Result<(), Error> {
        let common = self
            .headers
            .join("usr/src")
            .join(format!("linux-headers-{}-common", self.base_release()));
        let text = format!("include {}/Makefile\n", common.display());
        let makefile = self.build_dir().join("Makefile");
        if fs::read_to_string(&makefile).in_file(&makefile)? == text {
            return Ok(());
        }
        fs::write(&makefile, text).in_file(&makefile)
    }

    fn index_modules(&self) -> Result<(), Error> {
        shell::output(
            "depmod",
            Command::new("depmod")
                .env("PATH", ADMIN_PATH)
                .arg("-b")
                .arg(&self.dir)
                .arg(&self.release),
        )
        .map(drop)
    }
}

/// Says which kernel of `suites` was fetched last.
fn chosen(vm_dir: &Path, suites: &Suites) -> PathBuf {
    kernels(vm_dir).join(suites.name)
}

fn directory_name(release: &str, version: &str) -> String {
    format!("{release}_{}", version.replace(':', "%"))
}

/// `PATH` for programs that Debian keeps out of an ordinary user's.
pub(crate) const ADMIN_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metapackage_names_its_headers() {
        assert_eq!(
            concrete_headers("linux-headers-6.1.0-56-amd64 (= 6.1.192-2)"),
            Some("linux-headers-6.1.0-56-amd64")
        );
        assert_eq!(concrete_headers("linux-headers-6.1.0-56-common"), None);
    }

    #[test]
    fn the_kernel_of_backports_is_built_for_with_its_own_headers() {
        let release = "6.12.95+deb12-amd64".to_owned();
        let version = "6.12.95-1~bpo12+1".to_owned();
        let kernel = Kernel::with_headers(Choice::Backports, release, version, Path::new("/t"));
        assert_eq!(kernel.base_release(), "6.12.95+deb12");
        let dir = "/t/kernel/6.12.95+deb12-amd64_6.12.95-1~bpo12+1";
        assert_eq!(
            kernel.build_dir(),
            Path::new(dir).join("usr/src/linux-headers-6.12.95+deb12-amd64")
        );
    }
}
