// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask ynl`: has the kernel's own generator (tools/net/ynl) read the module's netlink specification, and holds
//! its header against ours. It validates the specification by the kernel's schema first.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::apt::{Apt, TRIXIE};
use crate::error::{Error, InFile};
use crate::netlink_spec::{HEADER, SPECIFICATION};
use crate::{packages, shell, workspace};

/// The metapackage; it depends on the source package, which has a version in its name.
const PACKAGE: &str = "linux-source";

/// What is kept of a kernel's source.
const PARTS: [&str; 2] = ["tools/net/ynl", "Documentation/netlink"];

/// Where the generator is below the source: since 6.14, and before.
const GENERATORS: [&str; 2] = [
    "tools/net/ynl/pyynl/ynl_gen_c.py",
    "tools/net/ynl/ynl-gen-c.py",
];

/// The generator accepts specifications with this licence only. Ours is read with that line in the place of its own, and
/// nothing that is generated is kept.
const LICENCE_LINE: &str =
    "# SPDX-License-Identifier: ((GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause)";

/// `cargo xtask ynl`.
pub(crate) fn run() -> Result<u8, Error> {
    packages::install(packages::YNL)?;
    let dir = workspace::vm_dir()?;
    let lock = workspace::lock()?;
    let source = provide(&dir)?;
    drop(lock);
    let scratch = dir.join(format!("ynl-{}", std::process::id()));
    let generated = generate(&source, &scratch);
    fs::remove_dir_all(&scratch).in_file(&scratch)?;
    let own = workspace::root().join(HEADER);
    let own = fs::read_to_string(&own).in_file(&own)?;
    let name = source.file_name().unwrap_or_default().to_string_lossy();
    let differences = differences(&constants(&generated?), &constants(&own));
    if differences.is_empty() {
        println!("{SPECIFICATION}: {name} generates the constants of {HEADER}");
        return Ok(0);
    }
    println!("{name} (-) and {HEADER} (+) differ:");
    differences.iter().for_each(|line| println!("{line}"));
    Ok(1)
}

/// The directory of a kernel's source with [`PARTS`], fetched once.
fn provide(vm_dir: &Path) -> Result<PathBuf, Error> {
    let dir = vm_dir.join("ynl");
    if let Some(source) = at_hand(&dir) {
        return Ok(source);
    }
    let suites = &TRIXIE.backports;
    let apt = Apt::of_suites(suites, &vm_dir.join("apt").join(suites.main))?;
    let depends = apt.field(PACKAGE, "Depends")?;
    let package = depends
        .split([',', ' ', '|'])
        .find(|word| word.starts_with("linux-source-"))
        .ok_or_else(|| Error::Other(format!("{PACKAGE} depends on no source: {depends}")))?;
    shell::progress(&format!("fetching {package}, 150 MB"));
    let archive = format!("usr/src/{package}.tar.xz");
    let member = format!("./{archive}");
    apt.unpack(package, &[&member], &dir, &vm_dir.join("download"))?;
    let archive = dir.join(archive);
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(&archive).arg("-C").arg(&dir);
    tar.args(PARTS.map(|part| format!("{package}/{part}")));
    shell::output(&format!("unpacking {package}"), &mut tar)?;
    fs::remove_file(&archive).in_file(&archive)?;
    at_hand(&dir).ok_or_else(|| Error::Other(format!("{package} has no tools/net/ynl")))
}

fn at_hand(dir: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(dir).ok()?;
    let mut sources = entries.flatten().map(|entry| entry.path());
    sources.find(|source| generator(source).is_some())
}

fn generator(source: &Path) -> Option<PathBuf> {
    let mut places = GENERATORS.map(|place| source.join(place)).into_iter();
    places.find(|place| place.is_file())
}

/// The header that the generator makes. It wants the specification in a kernel's tree, which it knows by MAINTAINERS.
fn generate(source: &Path, scratch: &Path) -> Result<String, Error> {
    let schemas = scratch.join("Documentation/netlink");
    let specification = schemas.join("specs/apm.yaml");
    fs::create_dir_all(schemas.join("specs")).in_file(&schemas)?;
    let maintainers = scratch.join("MAINTAINERS");
    fs::write(&maintainers, "").in_file(&maintainers)?;
    let schema = "genetlink.yaml";
    let from = source.join("Documentation/netlink").join(schema);
    fs::copy(&from, schemas.join(schema)).in_file(&from)?;
    let own = workspace::root().join(SPECIFICATION);
    let text = fs::read_to_string(&own).in_file(&own)?;
    fs::write(&specification, licensed(&text)).in_file(&specification)?;
    let generator = generator(source)
        .ok_or_else(|| Error::Other(format!("{}: no generator", source.display())))?;
    let mut python = Command::new("python3");
    python
        .arg(generator)
        .args(["--mode", "uapi", "--header", "--spec"])
        .arg(&specification);
    shell::output("the kernel's YNL generator", &mut python)
}

/// The specification with the generator's licence in its first line.
fn licensed(specification: &str) -> String {
    let rest = specification.split_once('\n').map_or("", |(_, rest)| rest);
    format!("{LICENCE_LINE}\n{rest}")
}

/// The lines of a header that define something, without comments, include guard and alignment.
fn constants(header: &str) -> Vec<String> {
    let mut text = String::new();
    let mut rest = header;
    while let Some((before, after)) = rest.split_once("/*") {
        text.push_str(before);
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines = text.lines().map(line);
    let is_guard = |line: &str| {
        let mut words = line.split(' ');
        let directive = words.next().unwrap_or_default();
        ["#ifndef", "#endif"].contains(&directive) || (directive == "#define" && words.count() == 1)
    };
    lines
        .filter(|line| !line.is_empty() && !is_guard(line))
        .collect()
}

/// Lines that are not the same, as a diff without context: the value of an enumerator is its place.
fn differences(generated: &[String], own: &[String]) -> Vec<String> {
    let length = generated.len().max(own.len());
    (0..length)
        .filter(|at| generated.get(*at) != own.get(*at))
        .flat_map(|at| {
            let of = |sign, lines: &[String]| lines.get(at).map(|line| format!("{sign}{line}"));
            [of('-', generated), of('+', own)].into_iter().flatten()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GENERATED: &str = "/* SPDX */\n/* YNL-GEN uapi header */\n\n#ifndef _UAPI_X_H\n#define _UAPI_X_H\n\n\
         #define X_NAME\t\t\"x\"\n/**\n * enum x - what\n *   it is\n */\nenum x {\n\tX_A = 1,\n\tX_B,\n};\n\
         #endif /* _UAPI_X_H */\n";

    #[test]
    fn headers_with_equal_constants_are_equal_whatever_their_layout() {
        let own = "/* made */\n#ifndef X_H\n#define X_H\n#define X_NAME \"x\"\n\n\
                   enum x {\n\tX_A = 1,\n\n\tX_B,\n};\n\n#endif\n";
        let generated = constants(GENERATED);
        assert_eq!(generated.len(), 5);
        assert!(differences(&generated, &constants(own)).is_empty());
    }

    #[test]
    fn another_order_name_or_value_is_shown() {
        let generated = constants(GENERATED);
        for changed in [
            GENERATED.replace("X_A = 1,\n\tX_B", "X_B = 1,\n\tX_A"),
            GENERATED.replace("X_B", "X_C"),
            GENERATED.replace("= 1", "= 2"),
            GENERATED.replace("\tX_B,\n", ""),
            GENERATED.replace("\"x\"", "\"y\""),
        ] {
            assert!(!differences(&generated, &constants(&changed)).is_empty());
        }
        let changed = constants(&GENERATED.replace("X_B", "X_C"));
        assert_eq!(differences(&generated, &changed), ["-X_B,", "+X_C,"]);
    }

    #[test]
    fn the_first_line_alone_is_replaced() {
        let made = licensed("# SPDX-License-Identifier: own\n# more\nname: x\n");
        assert_eq!(made, format!("{LICENCE_LINE}\n# more\nname: x\n"));
    }
}
