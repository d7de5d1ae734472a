// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian's stock kernel: the image package that matches the installed headers is downloaded and
//! unpacked, not installed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, InFile};
use crate::shell;

/// An unpacked kernel.
pub(crate) struct Kernel {
    /// What `uname -r` will say.
    pub(crate) release: String,
    /// The Debian version of its package.
    pub(crate) version: String,
    /// Where the package is unpacked.
    dir: PathBuf,
}

/// The name of the headers package that the metapackage `linux-headers-amd64` stands for.
fn concrete_headers(depends: &str) -> Option<&str> {
    depends
        .split([',', ' ', '|'])
        .find(|word| word.starts_with("linux-headers-") && word.ends_with("-amd64"))
}

fn package_field(package: &str, field: &str) -> Result<String, Error> {
    shell::output(
        &format!("dpkg-query {package}"),
        Command::new("dpkg-query").args(["-W", "-f", &format!("${{{field}}}"), package]),
    )
}

impl Kernel {
    /// Finds the kernel of the installed headers; unpacks it below `vm_dir` unless it is there.
    pub(crate) fn provide(vm_dir: &Path) -> Result<Self, Error> {
        let depends = package_field("linux-headers-amd64", "Depends")?;
        let headers = concrete_headers(&depends).ok_or_else(|| {
            Error::Other(format!(
                "linux-headers-amd64 depends on no headers: {depends}"
            ))
        })?;
        let release = headers.trim_start_matches("linux-headers-").to_owned();
        let version = package_field(headers, "Version")?;
        let dir = vm_dir
            .join("kernel")
            .join(format!("{release}_{}", version.replace(':', "%")));
        let kernel = Self {
            release,
            version,
            dir,
        };
        if !kernel.modules_dir().join("modules.dep").is_file() {
            kernel.unpack(vm_dir)?;
        }
        Ok(kernel)
    }

    /// The bootable image.
    pub(crate) fn image(&self) -> PathBuf {
        self.dir
            .join("boot")
            .join(format!("vmlinuz-{}", self.release))
    }

    /// The build directory of the headers, for out-of-tree modules.
    pub(crate) fn build_dir(&self) -> PathBuf {
        Path::new("/usr/src").join(format!("linux-headers-{}", self.release))
    }

    /// `/lib/modules/RELEASE` of the package.
    pub(crate) fn modules_dir(&self) -> PathBuf {
        self.dir.join("lib/modules").join(&self.release)
    }

    /// The files, relative to [`Self::modules_dir`], of the modules `names` and of all that they
    /// depend on.
    pub(crate) fn module_files(&self, names: &[&str]) -> Result<BTreeSet<String>, Error> {
        let path = self.modules_dir().join("modules.dep");
        let listing = fs::read_to_string(&path).in_file(&path)?;
        with_dependencies(&listing, names)
            .map_err(|name| Error::Other(format!("{}: no module {name}", path.display())))
    }

    fn unpack(&self, vm_dir: &Path) -> Result<(), Error> {
        shell::progress(&format!(
            "fetching Debian's kernel {} {}",
            self.release, self.version
        ));
        let download = vm_dir.join("download");
        fs::create_dir_all(&download).in_file(&download)?;
        fs::create_dir_all(&self.dir).in_file(&self.dir)?;
        let package = format!("linux-image-{}={}", self.release, self.version);
        let mut fetch = Command::new("apt-get");
        fetch
            .args(["download", "-q", &package])
            .current_dir(&download);
        shell::output(&format!("apt-get download {package}"), &mut fetch)?;
        let deb = find_deb(&download)?;
        self.extract(&deb)?;
        fs::remove_dir_all(&download).in_file(&download)?;
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

    /// Takes the image and the drivers that the VM can use out of the package.
    fn extract(&self, deb: &Path) -> Result<(), Error> {
        let mut reader = Command::new("dpkg-deb")
            .arg("--fsys-tarfile")
            .arg(deb)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|source| Error::Start {
                program: "dpkg-deb".to_owned(),
                source,
            })?;
        let stream = reader
            .stdout
            .take()
            .ok_or_else(|| Error::Other("dpkg-deb has no output".to_owned()))?;
        let modules = format!("./lib/modules/{}", self.release);
        let done = Command::new("tar")
            .args(["-x", "-C"])
            .arg(&self.dir)
            .args(["./boot", &modules])
            .stdin(stream)
            .status()
            .map_err(|source| Error::Start {
                program: "tar".to_owned(),
                source,
            })?;
        let read = reader.wait().in_file(deb)?;
        if done.success() && read.success() {
            return Ok(());
        }
        Err(Error::Failed {
            what: format!("unpacking {}", deb.display()),
            status: done.to_string(),
            output: String::new(),
        })
    }
}

/// `PATH` for programs that Debian keeps out of an ordinary user's.
pub(crate) const ADMIN_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

fn find_deb(dir: &Path) -> Result<PathBuf, Error> {
    for entry in fs::read_dir(dir).in_file(dir)? {
        let path = entry.in_file(dir)?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            return Ok(path);
        }
    }
    Err(Error::Other(format!(
        "{}: apt-get download left no package",
        dir.display()
    )))
}

fn module_name(file: &str) -> String {
    let base = file.rsplit('/').next().unwrap_or(file);
    base.trim_end_matches(".ko").replace('-', "_")
}

/// Files of `names` and their dependencies by `listing`, in the form of modules.dep; the name that
/// is not in it if one is not. modules.dep already lists dependencies of dependencies.
fn with_dependencies(listing: &str, names: &[&str]) -> Result<BTreeSet<String>, String> {
    let mut files = BTreeSet::new();
    for name in names {
        let line = listing
            .lines()
            .find(|line| {
                line.split(':')
                    .next()
                    .is_some_and(|file| module_name(file) == *name)
            })
            .ok_or_else(|| (*name).to_owned())?;
        files.extend(
            line.split([':', ' '])
                .filter(|word| !word.is_empty())
                .map(str::to_owned),
        );
    }
    Ok(files)
}

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
    fn dependencies_come_along_once() {
        let listing = "kernel/a/rdma_cm.ko: kernel/a/ib_cm.ko kernel/a/ib-core.ko\n\
                       kernel/a/ib_cm.ko: kernel/a/ib-core.ko\n\
                       kernel/a/ib-core.ko:\n";
        let files = with_dependencies(listing, &["rdma_cm", "ib_core"]).expect("all known");
        assert_eq!(files.len(), 3);
        assert_eq!(with_dependencies(listing, &["siw"]), Err("siw".to_owned()));
    }
}
