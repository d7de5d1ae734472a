// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian packages that are fetched and unpacked, never installed: from the machine's own package
//! sources, or from other suites with lists that are ours alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, InFile};
use crate::shell;

const DEBIAN: Archive = Archive {
    label: "Debian",
    usual: "http://deb.debian.org/debian/",
};
const SECURITY: Archive = Archive {
    label: "Debian-Security",
    usual: "http://deb.debian.org/debian-security/",
};
/// The keys that Debian's lists are signed with.
/// The architecture of this machine, as dpkg calls it: the VM is of no other.
pub(crate) const MACHINE_ARCHITECTURE: &str = "amd64";

pub(crate) const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// One of Debian's archives: its label in lists, and where it is if the machine's sources do not say.
struct Archive {
    label: &'static str,
    usual: &'static str,
}

/// Suites of Debian that the machine's own sources need not have.
pub(crate) struct Suites {
    /// Of the main archive; files about them are called so.
    pub(crate) main: &'static str,
    /// Of the archive of security updates.
    pub(crate) security: Option<&'static str>,
}

/// A release of Debian on which the project is to work.
pub(crate) struct Release {
    /// The release itself.
    pub(crate) own: Suites,
    /// Where it has newer versions of some packages.
    pub(crate) backports: Suites,
}

/// Debian 12.
pub(crate) static BOOKWORM: Release = Release {
    own: Suites {
        main: "bookworm",
        security: Some("bookworm-security"),
    },
    backports: Suites {
        main: "bookworm-backports",
        security: None,
    },
};

/// Debian 13.
pub(crate) static TRIXIE: Release = Release {
    own: Suites {
        main: "trixie",
        security: Some("trixie-security"),
    },
    backports: Suites {
        main: "trixie-backports",
        security: None,
    },
};

impl Release {
    /// This machine's.
    pub(crate) fn of_machine() -> Result<&'static Self, Error> {
        let file = Path::new("/etc/os-release");
        let text = fs::read_to_string(file).in_file(file)?;
        of_codename(&text).ok_or_else(|| {
            let known = [&BOOKWORM, &TRIXIE].map(|release| release.own.main);
            Error::Other(format!(
                "{}: none of the releases of Debian on which this works: {}",
                file.display(),
                known.join(", ")
            ))
        })
    }
}

/// The release that a file such as os-release names.
fn of_codename(os_release: &str) -> Option<&'static Release> {
    let codename = os_release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    let codename = codename.trim_matches('"');
    [&BOOKWORM, &TRIXIE]
        .into_iter()
        .find(|release| release.own.main == codename)
}

/// apt, and from where it fetches.
pub(crate) struct Apt {
    /// Read after the machine's own configuration.
    configuration: Option<PathBuf>,
}

impl Apt {
    /// With the machine's package sources and lists.
    pub(crate) const fn of_machine() -> Self {
        Self {
            configuration: None,
        }
    }

    /// With `suites` as only source, and all of apt's state below `dir`, so that nothing of the machine's own changes.
    /// apt checks the signature of the lists against Debian's keyring, and what it downloads against the lists.
    pub(crate) fn of_suites(suites: &Suites, dir: &Path) -> Result<Self, Error> {
        Self::of_architectures(suites, &[MACHINE_ARCHITECTURE], dir)
    }

    /// Likewise, with the packages for these architectures.
    pub(crate) fn of_architectures(
        suites: &Suites,
        architectures: &[&str],
        dir: &Path,
    ) -> Result<Self, Error> {
        for part in ["lists/partial", "cache/archives/partial"] {
            let part = dir.join(part);
            fs::create_dir_all(&part).in_file(&part)?;
        }
        let sources = dir.join("debian.sources");
        let architectures = architectures.join(" ");
        let text = sources_of(suites, &architectures, &machine_targets()?);
        fs::write(&sources, text).in_file(&sources)?;
        // No package is installed there.
        let status = dir.join("status");
        fs::write(&status, "").in_file(&status)?;
        let file = dir.join("apt.conf");
        fs::write(&file, configuration(dir, &architectures)).in_file(&file)?;
        let apt = Self {
            configuration: Some(file),
        };
        shell::output(
            &format!("apt-get update ({})", suites.main),
            apt.program("apt-get").args(["update", "-qq"]),
        )?;
        Ok(apt)
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        if let Some(file) = &self.configuration {
            command.arg("--config-file").arg(file);
        }
        command
    }

    /// A field of the package as the lists have it.
    pub(crate) fn field(&self, package: &str, field: &str) -> Result<String, Error> {
        let record = shell::output(
            &format!("apt-cache show {package}"),
            self.program("apt-cache")
                .args(["show", "--no-all-versions", package]),
        )?;
        value(&record, field)
            .map(str::to_owned)
            .ok_or_else(|| Error::Other(format!("apt-cache show {package}: no field {field}")))
    }

    /// Fetches a package, as NAME=VERSION, and unpacks `members` of it into `to`.
    pub(crate) fn unpack(
        &self,
        package: &str,
        members: &[&str],
        to: &Path,
        download: &Path,
    ) -> Result<(), Error> {
        if download.exists() {
            // Left by a run that was killed.
            fs::remove_dir_all(download).in_file(download)?;
        }
        fs::create_dir_all(download).in_file(download)?;
        fs::create_dir_all(to).in_file(to)?;
        let mut fetch = self.program("apt-get");
        fetch
            .args(["download", "-q", package])
            .current_dir(download);
        shell::output(&format!("apt-get download {package}"), &mut fetch)?;
        extract(&find_deb(download)?, members, to)?;
        fs::remove_dir_all(download).in_file(download)
    }
}

/// The mirror of Debian's main archive that this machine uses.
pub(crate) fn main_mirror() -> Result<String, Error> {
    Ok(DEBIAN.mirror(&machine_targets()?).to_owned())
}

/// Sources for `suites`, from the mirrors that this machine uses.
pub(crate) fn machine_sources(suites: &Suites) -> Result<String, Error> {
    Ok(sources_of(
        suites,
        MACHINE_ARCHITECTURE,
        &machine_targets()?,
    ))
}

/// How this machine's apt fetches, as configuration: proxies and the like.
pub(crate) fn machine_acquire() -> Result<String, Error> {
    let mut dump = Command::new("apt-config");
    dump.args(["dump", "--no-empty", "--format", "%F \"%v\";%n", "Acquire"]);
    let all = shell::output("apt-config dump Acquire", &mut dump)?;
    // What is indexed depends on the release and on the packages that are installed.
    let lines = all
        .lines()
        .filter(|line| !line.starts_with("Acquire::IndexTargets"));
    Ok(lines.map(|line| format!("{line}\n")).collect())
}

/// The archives of the machine's own lists, as apt-get has them: "URI LABEL" a line.
fn machine_targets() -> Result<String, Error> {
    shell::output(
        "apt-get indextargets",
        Command::new("apt-get").args([
            "indextargets",
            "--format",
            "$(REPO_URI) $(LABEL)",
            "Created-By: Packages",
        ]),
    )
}

impl Archive {
    /// The mirror that the machine uses.
    fn mirror<'a>(&self, targets: &'a str) -> &'a str {
        targets
            .lines()
            .filter_map(|line| line.split_once(' '))
            .find_map(|(uri, label)| (label == self.label).then_some(uri))
            .unwrap_or(self.usual)
    }

    fn source(&self, targets: &str, suite: &str, architectures: &str) -> String {
        let mirror = self.mirror(targets);
        format!(
            "Types: deb\nURIs: {mirror}\nSuites: {suite}\nComponents: main\n\
             Architectures: {architectures}\nSigned-By: {KEYRING}\n"
        )
    }
}

fn sources_of(suites: &Suites, architectures: &str, targets: &str) -> String {
    let mut sources = vec![DEBIAN.source(targets, suites.main, architectures)];
    let security = |suite| SECURITY.source(targets, suite, architectures);
    sources.extend(suites.security.map(security));
    sources.join("\n")
}

/// Proxies and the like stay as the machine has them; what it does after an update is for its own
/// lists.
fn configuration(dir: &Path, architectures: &str) -> String {
    let dir = dir.display();
    format!(
        "Dir::Etc::sourcelist \"{dir}/debian.sources\";\n\
         Dir::Etc::sourceparts \"-\";\n\
         Dir::Etc::preferencesparts \"-\";\n\
         Dir::State::status \"{dir}/status\";\n\
         Dir::State::lists \"{dir}/lists\";\n\
         Dir::Cache \"{dir}/cache\";\n\
         APT::Architectures \"{architectures}\";\n\
         APT::Sandbox::User \"\";\n\
         #clear APT::Update;\n"
    )
}

/// The value of a field in a package's record.
fn value<'a>(record: &'a str, field: &str) -> Option<&'a str> {
    record
        .lines()
        .find_map(|line| Some(line.strip_prefix(field)?.strip_prefix(':')?.trim()))
}

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

/// Takes `members` out of a package.
fn extract(deb: &Path, members: &[&str], to: &Path) -> Result<(), Error> {
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
    let done = Command::new("tar")
        .args(["-x", "-C"])
        .arg(to)
        .args(members)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_mirrors_serve_other_suites_as_well() {
        let targets = "http://security.example/debian-security/ Debian-Security\n\
                       http://mirror.example/debian/ Debian\n";
        let suites = Suites {
            main: "next",
            security: Some("next-security"),
        };
        let text = sources_of(&suites, "amd64 arm64", targets);
        assert_eq!(text.matches("\nArchitectures: amd64 arm64\n").count(), 2);
        assert!(text.contains("\nURIs: http://mirror.example/debian/\nSuites: next\n"));
        assert!(text.contains(
            "\n\nTypes: deb\nURIs: http://security.example/debian-security/\nSuites: next-security\n"
        ));
        assert_eq!(
            text.matches(&format!("\nSigned-By: {KEYRING}\n")).count(),
            2
        );
        assert_eq!(DEBIAN.mirror("http://other.example/ Other\n"), DEBIAN.usual);
    }

    #[test]
    fn the_release_is_known_by_its_codename() {
        let of = |text| of_codename(text).map(|release| release.backports.main);
        let trixie =
            "PRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\nVERSION_CODENAME=trixie\nID=debian\n";
        assert_eq!(of(trixie), Some("trixie-backports"));
        assert_eq!(
            of("VERSION_CODENAME=\"bookworm\"\n"),
            Some("bookworm-backports")
        );
        assert_eq!(of("VERSION_CODENAME=noble\nID=ubuntu\n"), None);
        assert_eq!(of("ID=debian\n"), None);
    }

    #[test]
    fn records_have_fields() {
        let record = "Package: linux-headers-amd64\nVersion: 6.12.95-1\nDepends: a, b\n";
        assert_eq!(value(record, "Version"), Some("6.12.95-1"));
        assert_eq!(value(record, "Depends"), Some("a, b"));
        assert_eq!(value(record, "Depend"), None);
    }
}
