// SPDX-License-Identifier: MIT OR Apache-2.0
//! The project's own programs for the VM: release builds of the crates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, InFile};
use crate::{shell, workspace};

/// The program of `cargo xtask fabrics`.
pub(crate) const FABRICS: &str = "apm-fabrics";

/// Where librdmacm-apm lives on Debian.
pub(crate) const LIBRARY_PATH: &str = "usr/lib/x86_64-linux-gnu/rdmacm-apm/librdmacm-apm.so";

/// Whether a line of ldd's is about our own library, which only the VM has in its place.
pub(crate) fn is_own_library(line: &str) -> bool {
    let name = line.split_whitespace().next().unwrap_or_default();
    LIBRARY_PATH.ends_with(&format!("/{name}"))
}

/// A file of ours and where it goes in the VM (no leading slash).
pub(crate) struct Artefact {
    /// The file on this machine.
    pub(crate) from: PathBuf,
    /// Its place in the VM.
    pub(crate) to: String,
}

/// The string values of `"key":"value"` in cargo's JSON messages.
fn json_strings<'a>(json: &'a str, key: &str) -> Vec<&'a str> {
    let start = format!("\"{key}\":\"");
    json.split(start.as_str())
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect()
}

fn library(json: &str) -> Option<&str> {
    json.split('"')
        .find(|word| word.ends_with("/librdmacm_apm.so"))
}

/// What is built optimized, always together: of other crates cargo would unite other features, and build what both
/// rest on twice.
const OPTIMIZED: &[&str] = &[
    "--package=apmd",
    "--package=librdmacm-apm",
    "--package=pathdb",
    "--package=testbed",
];

/// Builds the crates whose programs run in the VM.
pub(crate) fn build_rust() -> Command {
    workspace::cargo(&[&["build", "--release"], OPTIMIZED].concat())
}

/// `cargo bench` of the benchmarks of these crates that are called so; `name` may be a pattern of cargo's.
pub(crate) fn bench(name: &str, arguments: &[&str]) -> Command {
    let mut command = workspace::cargo(&[&["bench"], OPTIMIZED].concat());
    command.arg(format!("--bench={name}")).args(arguments);
    command
}

/// Has that made; cargo's messages of it.
fn built() -> Result<String, Error> {
    let mut build = build_rust();
    build.arg("--message-format=json-render-diagnostics");
    shell::output("cargo build --release", &mut build)
}

/// One of its programs, for this machine. (`cargo run` would build it with the features of its own package
/// only, and all that it needs a second time.)
pub(crate) fn program(name: &str) -> Result<Command, Error> {
    let json = built()?;
    let executables = json_strings(&json, "executable");
    let is_it = |path: &&str| Path::new(path).file_name() == Some(name.as_ref());
    let missing = || Error::Other(format!("cargo build --release makes no {name}"));
    let path = executables.into_iter().find(is_it).ok_or_else(missing)?;
    let mut command = Command::new(path);
    command.current_dir(workspace::root());
    Ok(command)
}

/// What goes to the VM of it. The library keeps its line numbers, which valgrind names.
pub(crate) fn rust(vm_dir: &Path) -> Result<Vec<Artefact>, Error> {
    let json = built()?;
    let directory = vm_dir.join("stripped");
    fs::create_dir_all(&directory).in_file(&directory)?;
    let mut artefacts = Vec::new();
    for path in json_strings(&json, "executable").into_iter().map(Path::new) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Simulated fabrics are for this machine.
        if name.contains("build-script") || name == FABRICS {
            continue;
        }
        artefacts.push(Artefact {
            from: stripped(path, &directory)?,
            to: format!("usr/bin/{name}"),
        });
    }
    artefacts.extend(library(&json).map(|path| Artefact {
        from: path.into(),
        to: LIBRARY_PATH.to_owned(),
    }));
    Ok(artefacts)
}

/// `from` below `directory` without what debuggers read, which is nine tenths of it: the image is loaded and unpacked
/// at each start of a VM.
fn stripped(from: &Path, directory: &Path) -> Result<PathBuf, Error> {
    let to = directory.join(from.file_name().unwrap_or_default());
    let modified = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified());
    let of_source = modified(from).in_file(from)?;
    if modified(&to).is_ok_and(|of_copy| of_copy == of_source) {
        return Ok(to);
    }
    let mut strip = Command::new("strip");
    strip.arg("--strip-debug").arg("-o").arg(&to).arg(from);
    shell::output(&format!("stripping {}", from.display()), &mut strip)?;
    date_as(from, &to)?;
    Ok(to)
}

/// Copies with the modification time, by which it is seen whether a file has changed.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    if let Some(directory) = to.parent() {
        fs::create_dir_all(directory).in_file(directory)?;
    }
    fs::copy(from, to).in_file(from)?;
    date_as(from, to)
}

fn date_as(from: &Path, to: &Path) -> Result<(), Error> {
    let metadata = fs::metadata(from).in_file(from)?;
    let modified = metadata.modified().in_file(from)?;
    let file = fs::File::options().write(true).open(to).in_file(to)?;
    file.set_modified(modified).in_file(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_found_in_cargo_messages() {
        let json = r#"{"reason":"compiler-artifact","filenames":["/t/release/apmd"],"executable":"/t/release/apmd","fresh":true}
{"reason":"compiler-artifact","filenames":["/t/release/librdmacm_apm.so","/t/release/liba.rlib"],"executable":null}"#;
        assert_eq!(json_strings(json, "executable"), ["/t/release/apmd"]);
        assert_eq!(library(json), Some("/t/release/librdmacm_apm.so"));
    }
}
