// SPDX-License-Identifier: MIT OR Apache-2.0
//! What make has to be told to build a module for headers of another release: they name the compiler of that release, and
//! were configured by what it knows.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::error::{Error, InFile};

/// The compiler of this machine.
const OURS: &str = "gcc";

/// Options that a kernel is configured with if its compiler knows them, and nothing else asks for: the option, and the
/// name by which the configuration says so.
const OPTIONS: &[(&str, &str)] = &[(
    "-fmin-function-alignment=16",
    "CONFIG_CC_HAS_MIN_FUNCTION_ALIGNMENT",
)];

/// What make has to be told for a module of the headers in `build`, beside where they are: nothing where their own
/// compiler is here.
pub(super) fn arguments(build: &Path) -> Result<Vec<String>, Error> {
    let file = build.join(".kernelvariables");
    if !file.is_file() {
        // Not Debian's headers.
        return Ok(Vec::new());
    }
    let variables = fs::read_to_string(&file).in_file(&file)?;
    match named(&variables) {
        Some(compiler) if !runs(compiler, &["--version"]) => Ok(for_ours()),
        _ => Ok(Vec::new()),
    }
}

fn for_ours() -> Vec<String> {
    let mut arguments = vec![format!("CC={OURS}")];
    let unknown = OPTIONS
        .iter()
        .filter(|(option, _)| !runs(OURS, &[option, "-E", "-x", "c", "/dev/null"]));
    arguments.extend(unknown.map(|(_, name)| format!("{name}=")));
    arguments
}

/// The compiler that the variables of Debian's headers name.
fn named(variables: &str) -> Option<&str> {
    let value = variables
        .lines()
        .find_map(|line| line.strip_prefix("CC = "))?;
    let word = value.split([' ', ')']).next_back()?;
    (!word.is_empty()).then_some(word)
}

fn runs(program: &str, arguments: &[&str]) -> bool {
    Command::new(program)
        .args(arguments)
        .output()
        .is_ok_and(|done| done.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments_for(compiler: &str) -> Vec<String> {
        let build = tempfile::tempdir().expect("a directory");
        let text = format!(
            "override ARCH = x86\nCCACHE = ccache\n\
             CC = $(if $(DEBIAN_KERNEL_USE_CCACHE),$(CCACHE)) $(CROSS_COMPILE){compiler}\n"
        );
        fs::write(build.path().join(".kernelvariables"), text).expect("written");
        arguments(build.path()).expect("readable")
    }

    #[test]
    fn headers_whose_compiler_is_here_are_built_with_it() {
        assert!(arguments_for("gcc").is_empty());
        let elsewhere = tempfile::tempdir().expect("a directory");
        assert!(arguments(elsewhere.path()).expect("none").is_empty());
    }

    #[test]
    fn others_are_built_with_this_machines_and_without_options_that_it_does_not_know() {
        let arguments = arguments_for("gcc-1");
        assert_eq!(arguments[0], "CC=gcc");
        let version = Command::new("gcc").arg("-dumpversion").output();
        let version = String::from_utf8(version.expect("it starts").stdout).expect("UTF-8");
        let major: u32 = version
            .trim()
            .split('.')
            .next()
            .expect("one")
            .parse()
            .expect("a number");
        let without = arguments.contains(&"CONFIG_CC_HAS_MIN_FUNCTION_ALIGNMENT=".to_owned());
        assert_eq!(without, major < 14, "gcc {major}");
    }
}
