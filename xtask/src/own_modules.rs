// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the project's kernel modules, out of the source tree, with the kernel's own rules.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, InFile};
use crate::fingerprint::Fingerprint;
use crate::kernel::{ForeignHeaders, Kernel};
use crate::{shell, workspace};

/// A module whose source is here.
pub(crate) struct OwnModule {
    pub(crate) name: &'static str,
    source: &'static str,
    /// What make is told besides.
    arguments: &'static [&'static str],
}

/// The software HCA, which the VM's world needs.
pub(crate) const SOFT_HCA: OwnModule = OwnModule {
    name: "shca",
    source: "testbed/soft-hca",
    arguments: &[],
};

/// What sees and migrates the host's queue pairs.
pub(crate) const APM: OwnModule = OwnModule {
    name: "apm",
    source: "kernel",
    arguments: &[],
};

/// Its unit tests, for a kernel with KUnit. They compile on others, but their symbols are missing there.
pub(crate) const APM_KUNIT: OwnModule = OwnModule {
    name: "apm_kunit",
    source: "kernel",
    arguments: &["APM_KUNIT=1", "KBUILD_MODPOST_WARN=1"],
};

impl OwnModule {
    /// Builds the module for `kernel` and returns its path.
    pub(crate) fn build(&self, kernel: &Kernel, vm_dir: &Path) -> Result<PathBuf, Error> {
        let copy = self.copy(&kernel.release, vm_dir)?;
        let mut make = self.make_for(kernel, &copy)?;
        make.arg("-j4");
        let module = copy.join(format!("{}.ko", self.name));
        let stamp = copy.join("stamp");
        let made_of = fingerprint(&make, &copy, &kernel.build_dir())?;
        if module.is_file() && fs::read_to_string(&stamp).is_ok_and(|then| then == made_of) {
            return Ok(module);
        }
        shell::output(&format!("building {}", self.source), &mut make)?;
        fs::write(&stamp, made_of).in_file(&stamp)?;
        if module.is_file() {
            return Ok(module);
        }
        Err(Error::Other(format!(
            "{}: the build made no {}.ko",
            self.source, self.name
        )))
    }

    /// Builds the module for `kernel` in a directory below `scratch`, and has sparse read each file.
    pub(crate) fn check(&self, kernel: &Kernel, scratch: &Path, flags: &str) -> Result<(), Error> {
        let copy = self.copy(&kernel.release, scratch)?;
        let mut make = self.make_for(kernel, &copy)?;
        make.arg("C=2").arg(format!("CF={flags}"));
        let what = format!("sparse of {} for {}", self.source, kernel.release);
        shell::output(&what, &mut make).map(drop)
    }

    /// Compiles the module for a machine of another architecture, in a directory below `scratch`.
    pub(crate) fn compile(&self, headers: &ForeignHeaders, scratch: &Path) -> Result<(), Error> {
        let copy = self.copy(&headers.release, scratch)?;
        let mut make = make(&headers.build_dir(), headers.make_arguments(), &copy);
        make.args(self.arguments).arg("-j2");
        let what = format!("building {} for {}", self.source, headers.release);
        shell::output(&what, &mut make).map(drop)
    }

    /// Has the kernel's own check of style read each file. It knows the layout of TRACE_EVENT only in the kernel's own
    /// include/trace.
    pub(crate) fn check_style(&self, checkpatch: &Path) -> Result<(), Error> {
        let source = workspace::root().join(self.source);
        let (events, others): (Vec<_>, Vec<_>) = c_files(&source)?
            .into_iter()
            .partition(|path| path.ends_with("trace.h"));
        self.run_checkpatch(checkpatch, &others, &[])?;
        if events.is_empty() {
            return Ok(());
        }
        let layout = ["--ignore", "OPEN_ENDED_LINE,PARENTHESIS_ALIGNMENT"];
        self.run_checkpatch(checkpatch, &events, &layout)
    }

    fn run_checkpatch(
        &self,
        checkpatch: &Path,
        files: &[PathBuf],
        options: &[&str],
    ) -> Result<(), Error> {
        let mut perl = Command::new("perl");
        perl.arg(checkpatch)
            .args(["--no-tree", "--strict", "--terse"])
            .args(options)
            .arg("-f")
            .args(files);
        shell::output(&format!("checkpatch of {}", self.source), &mut perl).map(drop)
    }

    /// A copy of the sources to build for the kernel `release`.
    fn copy(&self, release: &str, below: &Path) -> Result<PathBuf, Error> {
        let source = workspace::root().join(self.source);
        // What is built with other arguments would be built again each time in the same directory.
        let directory = match self.arguments {
            [] => source.file_name().unwrap_or_default().to_string_lossy(),
            _ => self.name.into(),
        };
        let copy = below.join(format!("{directory}-{release}"));
        mirror(&source, &copy)?;
        Ok(copy)
    }

    /// Builds the module in `copy`.
    fn make_for(&self, kernel: &Kernel, copy: &Path) -> Result<Command, Error> {
        let mut make = make(&kernel.build_dir(), kernel.make_arguments()?, copy);
        make.args(self.arguments);
        Ok(make)
    }
}

fn make(build: &Path, arguments: Vec<String>, copy: &Path) -> Command {
    let mut make = Command::new("make");
    make.arg("-C")
        .arg(build)
        .arg(format!("M={}", copy.display()));
    // Type data for BPF, which needs a program that the headers do not bring.
    make.arg("CONFIG_DEBUG_INFO_BTF_MODULES=");
    make.args(arguments);
    make.arg("modules");
    make
}

fn is_source(path: &Path) -> bool {
    let by_name = path
        .file_name()
        .is_some_and(|name| name == "Kbuild" || name == "Makefile");
    // The build itself leaves NAME.mod.c beside the sources.
    let generated = path.to_string_lossy().ends_with(".mod.c");
    (by_name || is_c(path)) && !generated
}

fn is_c(path: &Path) -> bool {
    path.extension().is_some_and(|ext| ext == "c" || ext == "h")
}

/// Of the sources in `copy`, of how they are built, and of the kernel's symbols: make takes a second to see that nothing
/// has changed.
fn fingerprint(make: &Command, copy: &Path, kernel: &Path) -> Result<String, Error> {
    let mut fingerprint = Fingerprint::default();
    fingerprint.add_file(&kernel.join("Module.symvers"));
    make.get_args()
        .for_each(|argument| fingerprint.add(argument));
    let mut sources = files(copy)?;
    sources.retain(|path| is_source(path));
    sources.iter().for_each(|path| fingerprint.add_file(path));
    Ok(fingerprint.to_string())
}

/// What is in a directory, in the order of names.
fn files(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).in_file(directory)? {
        files.push(entry.in_file(directory)?.path());
    }
    files.sort();
    Ok(files)
}

/// The C files of a directory.
fn c_files(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = files(directory)?;
    files.retain(|path| is_c(path) && is_source(path));
    Ok(files)
}

/// Makes the sources in `copy` those of `source`, leaving unchanged ones alone so that make sees
/// what changed.
fn mirror(source: &Path, copy: &Path) -> Result<(), Error> {
    fs::create_dir_all(copy).in_file(copy)?;
    let mut names: BTreeSet<OsString> = BTreeSet::new();
    for entry in fs::read_dir(source).in_file(source)? {
        let entry = entry.in_file(source)?;
        if !is_source(&entry.path()) {
            continue;
        }
        let to = copy.join(entry.file_name());
        let content = fs::read(entry.path()).in_file(&entry.path())?;
        if fs::read(&to).ok().as_ref() != Some(&content) {
            fs::write(&to, content).in_file(&to)?;
        }
        names.insert(entry.file_name());
    }
    for entry in fs::read_dir(copy).in_file(copy)? {
        let entry = entry.in_file(copy)?;
        if is_source(&entry.path()) && !names.contains(&entry.file_name()) {
            fs::remove_file(entry.path()).in_file(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> String {
        fs::read_to_string(workspace::root().join(path)).expect(path)
    }

    /// What `make -n -C kernel` says where the kernel's ib_core has `intree` (empty: from elsewhere; `None`: there is none).
    fn make_beside(intree: Option<&str>, ofed: Option<&Path>) -> Result<String, Error> {
        let dir = std::env::temp_dir().join(format!("xtask-modinfo-{}", std::process::id()));
        fs::create_dir_all(dir.join("include/config")).expect("a directory");
        fs::write(dir.join("include/config/kernel.release"), "6.1.0-of-test\n").expect("a release");
        let script = dir.join("modinfo");
        let answer = match intree {
            None => "exit 1".to_owned(),
            Some(intree) => format!(
                "case $4 in filename) echo /updates/ib_core.ko;; intree) echo {intree};; esac"
            ),
        };
        // As it is called: modinfo -k RELEASE -F FIELD ib_core.
        fs::write(
            &script,
            format!("#!/bin/sh\n[ $2 = 6.1.0-of-test ] || exit 1\n{answer}\n"),
        )
        .expect("a script");
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&script, executable).expect("permissions");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut make = Command::new("make");
        make.arg("-n")
            .arg("-C")
            .arg(workspace::root().join("kernel"))
            .arg(format!("KDIR={}", dir.display()))
            .env("PATH", format!("{}:{path}", dir.display()))
            .env_remove("OFED");
        if let Some(ofed) = ofed {
            make.arg(format!("OFED={}", ofed.display()));
        }
        // The kernel's own makefile is not there: only what comes before it counts.
        fs::write(
            dir.join("Makefile"),
            "modules:\n\t@echo the kernel builds\n",
        )
        .expect("text");
        let said = shell::output("make", &mut make);
        fs::remove_dir_all(&dir).expect("its end");
        said
    }

    #[test]
    fn the_module_is_not_built_with_the_kernels_headers_for_another_ib_core() {
        assert!(make_beside(Some("Y"), None).is_ok());
        assert!(make_beside(None, None).is_ok(), "part of the kernel");
        let refused = make_beside(Some(""), None).expect_err("it is not the kernel's own");
        let refused = refused.to_string();
        assert!(
            refused.contains("/updates/ib_core.ko is not the kernel's own; set OFED"),
            "{refused}"
        );
        let said = make_beside(Some(""), Some(Path::new("/ofed"))).expect("its headers are named");
        assert!(said.contains("/kernel/ofed.symvers OFED=/ofed"), "{said}");
    }

    /// As bash reads it for DKMS.
    fn exclusive_config() -> Vec<String> {
        let conf = workspace::root().join("kernel/dkms.conf");
        let mut bash = Command::new("bash");
        bash.args(["-c", ". \"$1\" && echo $BUILD_EXCLUSIVE_CONFIG", "bash"]);
        let list = shell::output("bash", bash.arg(conf)).expect("it is read");
        list.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn dkms_skips_kernels_that_the_module_refuses_or_cannot_use() {
        let list = exclusive_config();
        let source = read("kernel/apm.h");
        let refused: Vec<_> = source
            .split("#ifdef ")
            .skip(1)
            .filter_map(|rest| rest.split_once('\n'))
            .filter(|(_, next)| next.starts_with("#error"))
            .map(|(option, _)| format!("!{option}"))
            .collect();
        assert!(!refused.is_empty());
        let probes = read("kernel/probes.c");
        assert!(probes.contains("register_kretprobe(") && probes.contains("struct kprobe "));
        let needed = ["CONFIG_INFINIBAND", "CONFIG_KPROBES", "CONFIG_KRETPROBES"];
        for option in needed.map(str::to_owned).iter().chain(&refused) {
            assert!(list.contains(option), "{option}: {list:?}");
        }
    }
}
