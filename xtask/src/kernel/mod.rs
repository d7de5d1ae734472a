// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian's kernels, unpacked and not installed: the stock one that matches the installed headers, and
//! newer ones of backports and of the next release with their headers. And one that is built here from Debian's source,
//! with the kernel's own checks.

mod build_programs;
mod compiler;
mod debug;
mod foreign;
mod layout;
mod modules;

use std::collections::BTreeSet;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;

pub(crate) use self::foreign::{ARM64, ForeignHeaders, PPC64EL};
pub(crate) use self::layout::merge as merge_module_directories;
use crate::apt::{Apt, Release, Suites, TRIXIE};
use crate::error::{Error, InFile};
use crate::shell;

/// Which of Debian's kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Choice {
    /// That of this machine's release: 6.1 of Debian 12, 6.12 of Debian 13
    #[default]
    Stock,
    /// The newer one of its backports: 6.12 of bookworm-backports; fetched once, and installed nowhere
    Backports,
    /// Debian 13's own, 6.12 with the fix that the module apm wants (docs/kernel.md); fetched once, and installed
    /// nowhere
    Trixie,
    /// The newest that a stable release has: 7.x of trixie-backports; fetched once, and installed nowhere
    Newest,
    /// The source of this machine's release with KASAN, lockdep and kmemleak, built once, which takes half an hour or
    /// longer. A VM with it is several times slower
    Debug,
}

/// Where a kernel is from.
enum Origin {
    /// This machine's package lists; the headers are installed.
    Machine,
    /// Packages of other suites, its headers among them.
    Archive(Archive),
    /// It is built here.
    Source,
}

/// Suites that have a kernel, and the release that they belong to.
struct Archive {
    suites: &'static Suites,
    release: &'static Release,
}

impl Choice {
    fn origin(self) -> Result<Origin, Error> {
        let backports = |release: &'static Release| {
            let suites = &release.backports;
            Origin::Archive(Archive { suites, release })
        };
        let machine = Release::of_machine()?;
        Ok(match self {
            Self::Stock => Origin::Machine,
            Self::Trixie if machine.own.main == TRIXIE.own.main => Origin::Machine,
            Self::Trixie => Origin::Archive(Archive {
                suites: &TRIXIE.own,
                release: &TRIXIE,
            }),
            Self::Backports => backports(machine),
            Self::Newest => backports(&TRIXIE),
            Self::Debug => Origin::Source,
        })
    }

    /// Those for which `cargo xtask sparse` reads the modules: one of each series.
    pub(crate) const FOR_SPARSE: [Self; 2] = [Self::Stock, Self::Backports];

    /// What its command line has besides that of the others: a second fault of the same boot is reported, too.
    pub(crate) fn arguments(self) -> &'static str {
        match self {
            Self::Stock | Self::Backports | Self::Trixie | Self::Newest => "",
            Self::Debug => " kasan_multi_shot",
        }
    }

    /// How many times longer everything may take than on Debian's kernels, before a VM counts as hung.
    pub(crate) fn patience(self) -> u32 {
        match self {
            Self::Stock | Self::Backports | Self::Trixie | Self::Newest => 1,
            Self::Debug => 6,
        }
    }

    /// The memory in MiB that a VM has to have: KASAN takes an eighth of it, and freed objects stay for a while.
    pub(crate) fn least_memory(self) -> u32 {
        match self {
            Self::Stock | Self::Backports | Self::Trixie | Self::Newest => 0,
            Self::Debug => 4096,
        }
    }
}

/// An unpacked kernel.
pub(crate) struct Kernel {
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

/// The packages of the kernel `release` itself that its image depends on.
fn image_parts<'a>(depends: &'a str, release: &str) -> impl Iterator<Item = &'a str> {
    let words = depends.split([',', ' ', '|']);
    words.filter(move |word| word.starts_with("linux-") && word.ends_with(&format!("-{release}")))
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
        match choice.origin()? {
            Origin::Machine => Self::stock(vm_dir),
            Origin::Archive(archive) => match Self::at_hand(&archive, vm_dir)? {
                Some(kernel) => Ok(kernel),
                None => Self::newest(&archive, vm_dir),
            },
            Origin::Source => Self::debug(vm_dir),
        }
    }

    /// Like [`Self::provide`], but Debian's archive is asked for a newer one than is there.
    pub(crate) fn provide_newest(choice: Choice, vm_dir: &Path) -> Result<Self, Error> {
        match choice.origin()? {
            Origin::Archive(archive) => Self::newest(&archive, vm_dir),
            Origin::Machine | Origin::Source => Self::provide(choice, vm_dir),
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
            release,
            version,
            dir,
            headers: "/".into(),
        };
        if !kernel.is_complete() {
            kernel.unpack_image(&Apt::of_machine(), vm_dir)?;
            kernel.index_modules()?;
            kernel.expect_image()?;
        }
        Ok(kernel)
    }

    /// The kernel of the archive that the file of its name names, if it is there.
    fn at_hand(archive: &Archive, vm_dir: &Path) -> Result<Option<Self>, Error> {
        let chosen = fs::read_to_string(chosen(vm_dir, archive.suites)).unwrap_or_default();
        let Some((release, version)) = chosen.trim_end().split_once(' ') else {
            return Ok(None);
        };
        let kernel = Self::with_headers(release.to_owned(), version.to_owned(), vm_dir);
        if !kernel.is_complete() {
            return Ok(None);
        }
        kernel.place_headers()?;
        Ok(Some(kernel))
    }

    fn newest(archive: &Archive, vm_dir: &Path) -> Result<Self, Error> {
        let lists = |suites: &Suites| Apt::of_suites(suites, &vm_dir.join("apt").join(suites.main));
        let apt = lists(archive.suites)?;
        let release = release(&apt.field("linux-headers-amd64", "Depends")?)?;
        let version = apt.field(&format!("linux-headers-{release}"), "Version")?;
        let kernel = Self::with_headers(release, version, vm_dir);
        if !kernel.is_complete() {
            kernel.unpack_image(&apt, vm_dir)?;
            let kbuild = kernel.unpack_headers(&apt, vm_dir)?;
            build_programs::make_runnable(&kernel.dir, &kbuild, |dir| {
                lists(&archive.release.own)?.unpack(
                    "libc6",
                    &["./usr/lib"],
                    dir,
                    &vm_dir.join("download"),
                )
            })?;
            kernel.index_modules()?;
            kernel.expect_image()?;
        }
        kernel.place_headers()?;
        let chosen = chosen(vm_dir, archive.suites);
        fs::write(&chosen, format!("{} {}\n", kernel.release, kernel.version)).in_file(&chosen)?;
        Ok(kernel)
    }

    /// A kernel that is unpacked with its headers beside it.
    fn with_headers(release: String, version: String, vm_dir: &Path) -> Self {
        let dir = kernels(vm_dir).join(directory_name(&release, &version));
        Self {
            release,
            version,
            headers: dir.clone(),
            dir,
        }
    }

    /// The bootable image: in `boot`, or since Linux 7 beside the modules.
    pub(crate) fn image(&self) -> PathBuf {
        let beside = self.modules_dir().join("vmlinuz");
        if beside.is_file() {
            return beside;
        }
        let name = format!("vmlinuz-{}", self.release);
        self.dir.join("boot").join(name)
    }

    /// The build directory of the headers, for out-of-tree modules.
    pub(crate) fn build_dir(&self) -> PathBuf {
        self.headers
            .join("usr/src")
            .join(format!("linux-headers-{}", self.release))
    }

    /// What make has to be told for a module of this kernel, beside where its sources are.
    pub(crate) fn make_arguments(&self) -> Result<Vec<String>, Error> {
        compiler::arguments(&self.build_dir())
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
        self.image().is_file() && self.modules_dir().join("modules.dep").is_file()
    }

    fn expect_image(&self) -> Result<(), Error> {
        if self.image().is_file() {
            return Ok(());
        }
        Err(Error::Other(format!(
            "{}: the packages of {} have no kernel in boot or beside the modules",
            self.dir.display(),
            self.release
        )))
    }

    fn unpack_image(&self, apt: &Apt, vm_dir: &Path) -> Result<(), Error> {
        shell::progress(&format!(
            "fetching Debian's kernel {} {}",
            self.release, self.version
        ));
        let image = format!("linux-image-{}", self.release);
        let depends = apt.field(&format!("{image}={}", self.version), "Depends")?;
        // Since Linux 7 the image's package has no files: others that it depends on have them.
        let parts = image_parts(&depends, &self.release);
        for package in iter::once(&*image).chain(parts) {
            let exact = format!("{package}={}", self.version);
            apt.unpack(&exact, &["."], &self.dir, &vm_dir.join("download"))?;
        }
        Ok(())
    }

    /// Unpacks headers and the programs of the kernel's build, and returns the directory of the latter.
    fn unpack_headers(&self, apt: &Apt, vm_dir: &Path) -> Result<PathBuf, Error> {
        let base = self.base_release();
        for package in [
            format!("linux-headers-{}", self.release),
            format!("linux-headers-{base}-common"),
            format!("linux-kbuild-{base}"),
        ] {
            let exact = format!("{package}={}", self.version);
            apt.unpack(&exact, &["./usr"], &self.dir, &vm_dir.join("download"))?;
        }
        Ok(self.dir.join(format!("usr/lib/linux-kbuild-{base}")))
    }

    /// The release without its flavour.
    fn base_release(&self) -> &str {
        self.release.trim_end_matches("-amd64")
    }

    /// The headers' makefile names where headers are installed.
    fn place_headers(&self) -> Result<(), Error> {
        let makefile = self.build_dir().join("Makefile");
        let then = fs::read_to_string(&makefile).in_file(&makefile)?;
        let now = headers_placed(&then, &self.headers);
        if now == then {
            return Ok(());
        }
        fs::write(&makefile, now).in_file(&makefile)
    }

    fn index_modules(&self) -> Result<(), Error> {
        layout::merge(&self.dir)?;
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

/// The headers' makefile with `usr/src` below `root`, wherever it was before.
fn headers_placed(makefile: &str, root: &Path) -> String {
    let place = |line: &str| {
        let Some((before, name)) = line.split_once("/usr/src/") else {
            return format!("{line}\n");
        };
        // The path is absolute.
        let keyword = before.split('/').next().unwrap_or_default();
        let path = root.join("usr/src").join(name);
        format!("{keyword}{}\n", path.display())
    };
    makefile.lines().map(place).collect()
}

/// Says which kernel of `suites` was fetched last.
fn chosen(vm_dir: &Path, suites: &Suites) -> PathBuf {
    kernels(vm_dir).join(suites.main)
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
    fn the_parts_of_a_kernel_are_the_packages_of_its_release() {
        let depends = "dracut | initramfs-tools (>= 0.120), linux-base-7.3.4+deb13-amd64 (= 7.3.4-1), \
                       linux-binary-7.3.4+deb13-amd64 (= 7.3.4-1), linux-base (>= 4.3~), \
                       linux-modules-7.3.4+deb13-amd64 (= 7.3.4-1)";
        let parts: Vec<_> = image_parts(depends, "7.3.4+deb13-amd64").collect();
        let expected = ["base", "binary", "modules"];
        assert_eq!(
            parts,
            expected.map(|part| format!("linux-{part}-7.3.4+deb13-amd64"))
        );
        let older = "kmod, linux-base (>= 4.3~), initramfs-tools (>= 0.120)";
        assert_eq!(image_parts(older, "6.1.0-56-amd64").count(), 0);
    }

    #[test]
    fn the_headers_are_where_they_are_unpacked() {
        let of_package = "KBUILD_OUTPUT=/usr/src/linux-headers-7.3.4-amd64\n\
                          include /usr/src/linux-headers-7.3.4-common/Makefile\n";
        let placed = headers_placed(of_package, Path::new("/a b/kernel"));
        let expected = "KBUILD_OUTPUT=/a b/kernel/usr/src/linux-headers-7.3.4-amd64\n\
                        include /a b/kernel/usr/src/linux-headers-7.3.4-common/Makefile\n";
        assert_eq!(placed, expected);
        let moved = headers_placed(&placed, Path::new("/c"));
        assert_eq!(moved, expected.replace("/a b/kernel", "/c"));
        assert_eq!(headers_placed(&moved, Path::new("/")), of_package);
    }

    #[test]
    fn the_kernel_of_backports_is_built_for_with_its_own_headers() {
        let release = "6.12.95+deb12-amd64".to_owned();
        let version = "6.12.95-1~bpo12+1".to_owned();
        let kernel = Kernel::with_headers(release, version, Path::new("/t"));
        assert_eq!(kernel.base_release(), "6.12.95+deb12");
        let dir = "/t/kernel/6.12.95+deb12-amd64_6.12.95-1~bpo12+1";
        assert_eq!(
            kernel.build_dir(),
            Path::new(dir).join("usr/src/linux-headers-6.12.95+deb12-amd64")
        );
    }
}
