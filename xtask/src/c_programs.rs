// SPDX-License-Identifier: MIT OR Apache-2.0
//! The VM's C programs: each is compiled when one of the files that went into it has changed, as the compiler and the
//! linker list them. Else the image that it goes into would be made anew at each start of a VM.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::artefacts::{self, Artefact, LIBRARY_PATH};
use crate::error::{Error, InFile};
use crate::fingerprint::Fingerprint;
use crate::{shell, userland, workspace};

/// UCX's example of a client and a server, which Debian has as source only.
const UCX_EXAMPLE: &str = "/usr/share/doc/libucx-dev/examples/ucp_client_server.c";

/// The driver of the VM's HCA to be linked with; its name has the version of the drivers' interface.
const DRIVER: &str = "/usr/lib/x86_64-linux-gnu/libhfi1verbs-rdmav*.a";

/// What C of our own has to pass.
const STRICT: &[&str] = &["-Wall", "-Wextra", "-Werror"];

/// Compiles C for the VM against the system's libibverbs and librdmacm.
pub(crate) struct Compiler<'a> {
    vm_dir: &'a Path,
    /// Where programs and what is known of them go.
    out: PathBuf,
}

impl<'a> Compiler<'a> {
    pub(crate) fn new(vm_dir: &'a Path) -> Result<Self, Error> {
        let out = vm_dir.join("programs");
        fs::create_dir_all(&out).in_file(&out)?;
        Ok(Self { vm_dir, out })
    }

    /// The programs of testbed/vm, which know the kernel module's constants.
    pub(crate) fn of_world(&self) -> Result<Vec<Artefact>, Error> {
        let constants = format!("-I{}", workspace::root().join("kernel").display());
        self.directory("testbed/vm", &[&constants])
    }

    /// The programs that the drill `programs` runs: they know nothing of our library.
    pub(crate) fn stock(&self) -> Result<Vec<Artefact>, Error> {
        let mut programs = self.directory("testbed/programs/stock", &[])?;
        let mpi = ["-I/usr/lib/x86_64-linux-gnu/openmpi/include", "-lmpi"];
        programs.extend(self.directory("testbed/programs/mpi", &mpi)?);
        programs.push(self.file(Path::new(UCX_EXAMPLE), &["-lucp", "-lucs"])?);
        programs.push(self.static_program()?);
        let asan = [STRICT, &["-fsanitize=address"]].concat();
        programs.push(self.program("cm_peers_asan", &cm_peers(), &asan)?);
        Ok(programs)
    }

    /// A program with librdmacm, libibverbs and the driver of the VM's HCA in it, from Debian's archives.
    fn static_program(&self) -> Result<Artefact, Error> {
        let driver = userland::matching(DRIVER)?.remove(0);
        // Of the linker's warnings some stay: glibc's resolver is opened at run time even so.
        let flags = [
            "-static",
            "-DRDMA_STATIC_PROVIDERS=hfi1verbs",
            "-Wl,--start-group",
            "-lrdmacm",
            "-libverbs",
            &driver.to_string_lossy(),
            "-lnl-route-3",
            "-lnl-3",
            "-Wl,--end-group",
        ];
        self.program("cm_peers_static", &cm_peers(), &[STRICT, &flags].concat())
    }

    /// The programs of testbed/programs: these use our library, which is among `ours`.
    pub(crate) fn linked(&self, ours: &[Artefact]) -> Result<Vec<Artefact>, Error> {
        let place = Path::new(LIBRARY_PATH);
        let Some(library) = ours.iter().find(|one| Path::new(&one.to) == place) else {
            let text = "librdmacm-apm builds no shared library";
            return Err(Error::Other(text.to_owned()));
        };
        // Without a soname, what a program asks for at run time is the name it was linked with.
        let name = place.file_name().unwrap_or_default();
        artefacts::copy(&library.from, &self.vm_dir.join(name))?;
        let headers = workspace::root().join("librdmacm-apm/include");
        let run_path = place.parent().unwrap_or(place);
        self.directory(
            "testbed/programs",
            &[
                &format!("-I{}", headers.display()),
                &format!("-L{}", self.vm_dir.display()),
                &format!("-l:{}", name.display()),
                &format!("-Wl,-rpath,/{}", run_path.display()),
            ],
        )
    }

    /// Each C file of a directory, with `flags` before the system's libraries.
    fn directory(&self, directory: &str, flags: &[&str]) -> Result<Vec<Artefact>, Error> {
        let source = workspace::root().join(directory);
        let mut artefacts = Vec::new();
        for entry in fs::read_dir(&source).in_file(&source)? {
            let path = entry.in_file(&source)?.path();
            if path.extension().is_some_and(|extension| extension == "c") {
                artefacts.push(self.file(&path, &[STRICT, flags].concat())?);
            }
        }
        Ok(artefacts)
    }

    /// One C file, as a program of its name.
    fn file(&self, source: &Path, flags: &[&str]) -> Result<Artefact, Error> {
        let name = source.file_stem().unwrap_or_default().to_string_lossy();
        self.program(&name, source, flags)
    }

    /// One C file, as a program of this name.
    fn program(&self, name: &str, source: &Path, flags: &[&str]) -> Result<Artefact, Error> {
        let program = self.out.join(name);
        let [headers, linked] =
            ["headers", "linked"].map(|kind| self.out.join(format!("{name}.{kind}")));
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-g", "-MD", "-MF"]).arg(&headers);
        gcc.arg(format!("-Wl,--dependency-file={}", linked.display()));
        gcc.arg("-o").arg(&program).arg(source).args(flags);
        gcc.args(["-lrdmacm", "-libverbs", "-lpthread"]);
        let stamp = self.out.join(format!("{name}.stamp"));
        let inputs = [&*headers, &*linked];
        let is_current = program.is_file()
            && fs::read_to_string(&stamp)
                .is_ok_and(|is| fingerprint(&gcc, inputs).is_ok_and(|now| is == now));
        if !is_current {
            shell::output(&format!("compiling {}", source.display()), &mut gcc)?;
            let now = fingerprint(&gcc, inputs)?;
            fs::write(&stamp, now).in_file(&stamp)?;
        }
        Ok(Artefact {
            from: program,
            to: format!("usr/bin/{name}"),
        })
    }
}

/// The source that is compiled in several ways.
fn cm_peers() -> PathBuf {
    workspace::root().join("testbed/programs/stock/cm_peers.c")
}

/// Of the command, and of the files that went into what it made.
fn fingerprint(command: &Command, rules: [&Path; 2]) -> Result<String, Error> {
    let mut fingerprint = Fingerprint::default();
    fingerprint.add(command.get_program());
    command
        .get_args()
        .for_each(|argument| fingerprint.add(argument));
    for rule in rules {
        let text = fs::read_to_string(rule).in_file(rule)?;
        // The compiler's own object for the linker is gone, which makes no difference.
        inputs(&text).for_each(|input| fingerprint.add_file(Path::new(input)));
    }
    Ok(fingerprint.to_string())
}

/// What a rule of make's says that its target is made of. (No input here has a space in its name.)
fn inputs(rule: &str) -> impl Iterator<Item = &str> {
    let (_, all) = rule.split_once(": ").unwrap_or_default();
    // The linker adds an empty rule for each input.
    let (all, _) = all.split_once("\n\n").unwrap_or((all, ""));
    all.split_whitespace().filter(|word| *word != "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_of_what_is_read_from_makes_rules() {
        let by_gcc = "apm_order: apm_order.c \\\n /usr/include/a.h /usr/include/b.h\n";
        let expected = ["apm_order.c", "/usr/include/a.h", "/usr/include/b.h"];
        assert!(inputs(by_gcc).eq(expected));
        let by_ld = "apm_order: \\\n  /usr/lib/crt1.o \\\n  /tmp/cc1.o\n\n/usr/lib/crt1.o:\n\n/tmp/cc1.o:\n";
        assert!(inputs(by_ld).eq(["/usr/lib/crt1.o", "/tmp/cc1.o"]));
    }

    #[test]
    fn a_program_is_made_anew_when_what_went_into_it_changes_and_else_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let compiler = Compiler::new(directory.path()).expect("a compiler");
        let [source, header] = ["one.c", "one.h"].map(|name| directory.path().join(name));
        fs::write(
            &source,
            "#include \"one.h\"\nint main(void) { return STATUS; }\n",
        )
        .expect("written");
        let made = |flags: &[&str]| {
            let program = compiler.file(&source, flags).expect("it compiles").from;
            let status = Command::new(&program).status().expect("it runs");
            let metadata = fs::metadata(&program).expect("it is there");
            (status.code(), metadata.modified().expect("a time"))
        };
        fs::write(&header, "#define STATUS 1\n").expect("written");
        let first = made(&[]);
        assert_eq!(first.0, Some(1));
        assert_eq!(made(&[]), first);
        fs::write(&header, "#define STATUS 12\n").expect("written");
        assert_eq!(made(&[]).0, Some(12));
        fs::write(&header, "#ifndef STATUS\n#define STATUS 1\n#endif\n").expect("written");
        assert_eq!(made(&["-DSTATUS=3"]).0, Some(3));
        assert_eq!(made(&[]).0, Some(1));
    }
}
