// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask readme`: runs the commands that the README shows, so that none of them is only prose.
//! They stand in code blocks marked `console host` (this machine) and `console vm`.

use std::fs;
use std::process::{Command, Stdio};

use crate::error::{Error, InFile};
use crate::{vm, workspace};

/// Where a command of the README is to be typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Host,
    Vm,
}

/// The blocks of commands in `text`, in order.
fn blocks(text: &str) -> Vec<(Place, String)> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let place = match line {
            "```console host" => Place::Host,
            "```console vm" => Place::Vm,
            _ => continue,
        };
        let commands: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        blocks.push((place, commands.join("\n") + "\n"));
    }
    blocks
}

/// Whether `cargo xtask test` performs this command as one of its other steps.
fn is_step_of_test(command: &str) -> bool {
    let is_drill = command.starts_with("cargo xtask drill") && !command.contains("--list");
    let is_fabrics = command.starts_with("cargo xtask fabrics");
    is_drill || is_fabrics || ["cargo xtask test", "cargo xtask vm --check"].contains(&command)
}

/// `cargo xtask readme`. `parses` says whether the words after `cargo xtask` are understood.
pub(crate) fn run(parses: impl Fn(&[&str]) -> bool) -> Result<u8, Error> {
    let path = workspace::root().join("README.md");
    let blocks = blocks(&fs::read_to_string(&path).in_file(&path)?);
    for command in blocks.iter().flat_map(|(_, commands)| commands.lines()) {
        if let Some(arguments) = command.strip_prefix("cargo xtask ")
            && !parses(&arguments.split_whitespace().collect::<Vec<_>>())
        {
            return Err(Error::Other(format!(
                "README.md: not understood: {command}"
            )));
        }
    }
    let of = |wanted: Place| -> String {
        let wanted = blocks.iter().filter(|(place, _)| *place == wanted);
        wanted.map(|(_, commands)| commands.as_str()).collect()
    };
    let on_host = on_host(&of(Place::Host))?;
    let in_vm = vm::start(&vm::Run::script(script(&of(Place::Vm))))?;
    Ok(on_host.max(in_vm))
}

/// Shows each command before running it; the first that fails ends the script with its status.
fn script(commands: &str) -> String {
    format!("set -ex\n{commands}")
}

/// Runs those commands for this machine that are not steps of `cargo xtask test` anyway, below the
/// workspace, where cargo finds its alias, but not among the sources.
fn on_host(commands: &str) -> Result<u8, Error> {
    let dir = workspace::root().join("target/readme");
    fs::create_dir_all(&dir).in_file(&dir)?;
    let commands: String = commands
        .lines()
        .filter(|command| !is_step_of_test(command))
        .map(|command| format!("{command}\n"))
        .collect();
    let status = Command::new("bash")
        .args(["-c", &script(&commands)])
        .current_dir(&dir)
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
        let text = "x\n```console host\na\nb\n```\n```c\nint c;\n```\n```console vm\nd\n```\n";
        assert_eq!(
            blocks(text),
            [
                (Place::Host, "a\nb\n".to_owned()),
                (Place::Vm, "d\n".to_owned())
            ]
        );
    }

    #[test]
    fn steps_of_the_test_are_not_repeated() {
        assert!(is_step_of_test("cargo xtask drill --json unmodified"));
        assert!(is_step_of_test("cargo xtask vm --check"));
        assert!(is_step_of_test("cargo xtask fabrics --quick"));
        assert!(!is_step_of_test("cargo xtask drill --list"));
        assert!(!is_step_of_test("cargo xtask vm --run s.sh"));
    }
}
