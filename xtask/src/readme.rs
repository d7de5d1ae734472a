// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask readme`: runs the commands that the README and `docs/install.md` show, so that none of them
//! is only prose. They stand in code blocks marked `console host` (this machine), `console vm`, and
//! `console staged`: files go below $DESTDIR, which is an empty directory here.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{Error, InFile};
use crate::{drill, fabric, fabrics, vm, workspace};

/// What is read.
const DOCUMENTS: [&str; 2] = ["README.md", "docs/install.md"];

/// Where a command is to be typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Host,
    Vm,
    /// On this machine in the workspace's root, when the commands for the host have built all.
    Staged,
}

/// The blocks of commands in `text`, in order.
fn blocks(text: &str) -> Vec<(Place, String)> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let place = match line {
            "```console host" => Place::Host,
            "```console vm" => Place::Vm,
            "```console staged" => Place::Staged,
            _ => continue,
        };
        let commands: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        blocks.push((place, commands.join("\n") + "\n"));
    }
    blocks
}

/// What the other steps of `cargo xtask test` perform.
struct OtherSteps<F> {
    drills: Vec<&'static str>,
    /// The cases of the step `fabrics`.
    fabrics: Vec<String>,
    /// What cases these options of `cargo xtask fabrics` select.
    cases: F,
}

impl<F: Fn(&[&str]) -> Result<Vec<String>, Error>> OtherSteps<F> {
    /// Whether they perform this command: all of its drills, or all of its cases.
    fn perform(&self, command: &str) -> Result<bool, Error> {
        let words: Vec<_> = command.split_whitespace().collect();
        let ["cargo", "xtask", what, arguments @ ..] = &words[..] else {
            return Ok(false);
        };
        Ok(match (*what, arguments) {
            ("test", []) | ("vm", ["--check"]) => true,
            (_, arguments) if arguments.contains(&"--list") => false,
            ("drill", arguments) => {
                let mut names = arguments.iter().filter(|word| !word.starts_with("--"));
                names.all(|name| self.drills.contains(name))
            }
            ("fabrics", arguments) => {
                let cases = (self.cases)(arguments)?;
                cases.iter().all(|case| self.fabrics.contains(case))
            }
            _ => false,
        })
    }
}

/// `cargo xtask readme`. `parses` says whether the words after `cargo xtask` are understood.
pub(crate) fn run(parses: impl Fn(&[&str]) -> bool) -> Result<u8, Error> {
    let mut all = Vec::new();
    for document in DOCUMENTS {
        let path = workspace::root().join(document);
        let blocks = blocks(&fs::read_to_string(&path).in_file(&path)?);
        for command in blocks.iter().flat_map(|(_, commands)| commands.lines()) {
            if let Some(arguments) = command.strip_prefix("cargo xtask ")
                && !parses(&arguments.split_whitespace().collect::<Vec<_>>())
            {
                return Err(Error::Other(format!(
                    "{document}: not understood: {command}"
                )));
            }
        }
        all.extend(blocks);
    }
    let of = |wanted: Place| -> String {
        let wanted = all.iter().filter(|(place, _)| *place == wanted);
        wanted.map(|(_, commands)| commands.as_str()).collect()
    };
    let on_host = on_host(&of(Place::Host))?;
    // They would install what is left of an older build.
    let staged = match on_host {
        0 => staged(&of(Place::Staged))?,
        _ => 0,
    };
    let in_vm = vm::start(&vm::Run::script(script(&of(Place::Vm)), fabric::DEFAULT)?)?;
    Ok(on_host.max(staged).max(in_vm))
}

/// Shows each command before running it; the first that fails ends the script with its status.
fn script(commands: &str) -> String {
    format!("set -ex\n{commands}")
}

/// Runs those commands for this machine that other steps of `cargo xtask test` do not perform, below
/// the workspace, where cargo finds its alias, but not among the sources.
fn on_host(commands: &str) -> Result<u8, Error> {
    let dir = workspace::root().join("target/readme");
    fs::create_dir_all(&dir).in_file(&dir)?;
    let others = OtherSteps {
        drills: drill::names(),
        fabrics: fabrics::cases(fabrics::OF_TEST)?,
        cases: fabrics::cases,
    };
    let mut left = String::new();
    for command in commands.lines() {
        if !others.perform(command)? {
            left.push_str(command);
            left.push('\n');
        }
    }
    bash(&left, &dir, Command::new("bash"))
}

/// Runs commands that install below $DESTDIR, in the workspace's root and with an empty $DESTDIR.
fn staged(commands: &str) -> Result<u8, Error> {
    let root = workspace::root();
    let to = root.join("target/readme/root");
    if to.exists() {
        fs::remove_dir_all(&to).in_file(&to)?;
    }
    fs::create_dir_all(&to).in_file(&to)?;
    // The commands for the host may have built elsewhere.
    let built = format!("{}/release/", workspace::target().display());
    let commands = commands.replace("target/release/", &built);
    let mut bash_there = Command::new("bash");
    bash_there.env("DESTDIR", &to);
    bash(&commands, &root, bash_there)
}

/// Runs commands in a directory.
fn bash(commands: &str, dir: &Path, mut bash: Command) -> Result<u8, Error> {
    let status = bash
        .args(["-c", &script(commands)])
        .current_dir(dir)
        .stdin(Stdio::null())
        .status()
        .map_err(|source| Error::Start {
            program: "bash".to_owned(),
            source,
        })?;
    Ok(u8::from(!status.success()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_know_their_place() {
        let text = "x\n```console host\na\nb\n```\n```c\nint c;\n```\n```console vm\nd\n```\n\
                    ```console\ne\n```\n```console staged\nf\n```\n";
        assert_eq!(
            blocks(text),
            [
                (Place::Host, "a\nb\n".to_owned()),
                (Place::Vm, "d\n".to_owned()),
                (Place::Staged, "f\n".to_owned())
            ]
        );
    }

    /// They are run by whoever runs the tests, root among them.
    #[test]
    fn staged_commands_write_below_destdir_only() {
        let path = workspace::root().join("docs/install.md");
        let text = fs::read_to_string(path).expect("it is there");
        let blocks = blocks(&text);
        let staged = |(place, _): &&(Place, String)| *place == Place::Staged;
        let staged: Vec<_> = blocks.iter().filter(staged).collect();
        assert!(!staged.is_empty());
        for command in staged.iter().flat_map(|(_, commands)| commands.lines()) {
            // The one substitution: it writes nothing.
            let command = &command.replace("$(gcc -print-multiarch)", "ARCH");
            assert!(!command.contains(['>', ';', '&', '(', '`']), "{command}");
            let words: Vec<_> = command.split_whitespace().collect();
            let (["install", "-D", "-m", _, "-t", to, _, ..]
            | ["install", "-D", "-m", _, _, to]
            | ["install", "-D", "-s", "-m", _, _, to]
            | ["echo", _, "|", "install", "-D", "-m", _, "/dev/stdin", to]) = words[..]
            else {
                panic!("not one of the known forms: {command}");
            };
            let path = to.strip_prefix("\"$DESTDIR/").expect(command);
            assert!(path.ends_with('"') && !path.contains(".."), "{command}");
        }
    }

    #[test]
    fn what_other_steps_perform_is_not_repeated() {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let others = OtherSteps {
            drills: vec!["cable-pull", "unmodified"],
            fabrics: owned(&["torus dor 1", "mesh dor 1"]),
            cases: |arguments: &[&str]| match arguments {
                ["--seed", seed] => Ok(vec![format!("torus dor {seed}")]),
                _ => Err(Error::Other("usage".to_owned())),
            },
        };
        let performed = |command| others.perform(command).ok();
        for command in [
            "cargo xtask test",
            "cargo xtask vm --check",
            "cargo xtask drill",
            "cargo xtask drill --json unmodified cable-pull",
            "cargo xtask fabrics --seed 1",
        ] {
            assert_eq!(performed(command), Some(true), "{command}");
        }
        for command in [
            "cargo xtask drill --list",
            "cargo xtask drill unmodified cable-push",
            "cargo xtask vm --run s.sh",
            "cargo xtask fabrics --seed 2",
            "cargo build",
            "cargo xtask test | tail",
        ] {
            assert_eq!(performed(command), Some(false), "{command}");
        }
        assert_eq!(performed("cargo xtask fabrics --shape cube"), None);
    }
}
