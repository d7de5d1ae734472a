// SPDX-License-Identifier: MIT OR Apache-2.0
//! The project's own programs for the VM: release builds of the crates, and the C programs of
//! testbed/vm.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, InFile};
use crate::{shell, workspace};

/// UCX's example of a client and a server, which Debian has as source only.
const UCX_EXAMPLE: &str = "/usr/share/doc/libucx-dev/examples/ucp_client_server.c";

/// The program of `cargo xtask fabrics`.
pub(crate) const FABRICS: &str = "apm-fabrics";

/// What C of our own has to pass.
const STRICT: &[&str] = &["-Wall", "-Wextra", "-Werror"];

/// Where librdmacm-apm lives on Debian.
const LIBRARY_PATH: &str = "usr/lib/x86_64-linux-gnu/rdmacm-apm/librdmacm-apm.so";

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

/// Builds the crates whose programs run in the VM.
pub(crate) fn build_rust() -> Command {
    workspace::cargo(&[
        "build",
        "--release",
        "--package=apmd",
        "--package=librdmacm-apm",
        "--package=testbed",
    ])
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

/// What goes to the VM of it.
pub(crate) fn rust() -> Result<Vec<Artefact>, Error> {
    let json = built()?;
    let mut artefacts: Vec<Artefact> = json_strings(&json, "executable")
        .into_iter()
        .map(PathBuf::from)
        .filter_map(|from| {
            let name = from.file_name()?.to_str()?;
            Some(Artefact {
                to: format!("usr/bin/{name}"),
                from: from.clone(),
            })
        })
        .filter(|artefact| !artefact.to.contains("build-script"))
        // Simulated fabrics are for this machine.
        .filter(|artefact| !artefact.to.ends_with(FABRICS))
        .collect();
    artefacts.extend(library(&json).map(|path| Artefact {
        from: path.into(),
        to: LIBRARY_PATH.to_owned(),
    }));
    Ok(artefacts)
}

/// Compiles each C program of testbed/vm against the system's libibverbs and librdmacm, and the kernel
/// module's constants.
pub(crate) fn c_programs(vm_dir: &Path) -> Result<Vec<Artefact>, Error> {
    let constants = format!("-I{}", workspace::root().join("kernel").display());
    compile("testbed/vm", vm_dir, &[constants])
}

/// Compiles the C programs that the drill `programs` runs: they know nothing of our library.
pub(crate) fn stock_programs(vm_dir: &Path) -> Result<Vec<Artefact>, Error> {
    let mut programs = compile("testbed/programs/stock", vm_dir, &[])?;
    let mpi = [
        "-I/usr/lib/x86_64-linux-gnu/openmpi/include".to_owned(),
        "-lmpi".to_owned(),
    ];
    programs.extend(compile("testbed/programs/mpi", vm_dir, &mpi)?);
    let ucx = ["-lucp", "-lucs"];
    programs.push(compile_file(Path::new(UCX_EXAMPLE), vm_dir, &[], &ucx)?);
    programs.push(static_program(vm_dir)?);
    Ok(programs)
}

/// A program with librdmacm, libibverbs and the driver of the VM's HCA in it, from Debian's archives.
fn static_program(vm_dir: &Path) -> Result<Artefact, Error> {
    let source = workspace::root().join("testbed/programs/stock/cm_peers.c");
    // Of the linker's warnings some stay: glibc's resolver is opened at run time even so.
    let flags = [
        "-static",
        "-DRDMA_STATIC_PROVIDERS=hfi1verbs",
        "-Wl,--start-group",
        "-lrdmacm",
        "-libverbs",
        "-lhfi1verbs-rdmav34",
        "-lnl-route-3",
        "-lnl-3",
        "-Wl,--end-group",
    ];
    compile_as(
        "cm_peers_static",
        &source,
        vm_dir,
        &[STRICT, &flags].concat(),
    )
}

/// Compiles each C program of testbed/programs: these use our library, which is among `ours`.
pub(crate) fn linked_programs(vm_dir: &Path, ours: &[Artefact]) -> Result<Vec<Artefact>, Error> {
    let place = Path::new(LIBRARY_PATH);
    let Some(library) = ours.iter().find(|one| Path::new(&one.to) == place) else {
        return Err(Error::Other(
            "librdmacm-apm builds no shared library".to_owned(),
        ));
    };
    // Without a soname, what a program asks for at run time is the name it was linked with.
    let named = vm_dir.join(place.file_name().unwrap_or_default());
    fs::copy(&library.from, &named).in_file(&library.from)?;
    let headers = workspace::root().join("librdmacm-apm/include");
    let run_path = place.parent().unwrap_or(place);
    compile(
        "testbed/programs",
        vm_dir,
        &[
            format!("-I{}", headers.display()),
            format!("-L{}", vm_dir.display()),
            format!("-l:{}", place.file_name().unwrap_or_default().display()),
            format!("-Wl,-rpath,/{}", run_path.display()),
        ],
    )
}

/// Compiles each C file of a directory to a program, with `flags` before the system's libraries.
fn compile(directory: &str, vm_dir: &Path, flags: &[String]) -> Result<Vec<Artefact>, Error> {
    let source = workspace::root().join(directory);
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let mut artefacts = Vec::new();
    for entry in fs::read_dir(&source).in_file(&source)? {
        let path = entry.in_file(&source)?.path();
        if path.extension().is_none_or(|extension| extension != "c") {
            continue;
        }
        artefacts.push(compile_file(&path, vm_dir, STRICT, &flags)?);
    }
    Ok(artefacts)
}

/// Compiles one C file to a program of its name.
fn compile_file(
    path: &Path,
    vm_dir: &Path,
    warnings: &[&str],
    flags: &[&str],
) -> Result<Artefact, Error> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    compile_as(&name, path, vm_dir, &[warnings, flags].concat())
}

/// Compiles one C file to a program of this name.
fn compile_as(name: &str, path: &Path, vm_dir: &Path, flags: &[&str]) -> Result<Artefact, Error> {
    let out = vm_dir.join("programs");
    fs::create_dir_all(&out).in_file(&out)?;
    let program = out.join(name);
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-g", "-o"])
        .arg(&program)
        .arg(path)
        .args(flags)
        .args(["-lrdmacm", "-libverbs", "-lpthread"]);
    shell::output(&format!("compiling {}", path.display()), &mut gcc)?;
    Ok(Artefact {
        from: program,
        to: format!("usr/bin/{name}"),
    })
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
