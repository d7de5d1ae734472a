// SPDX-License-Identifier: MIT OR Apache-2.0
//! The constants of the kernel module's netlink family, for the module and for the daemon, made from its
//! specification: of YAML the part that `kernel/apm.yaml` is written in.

use std::fmt::Write;
use std::fs;

use crate::error::{Error, InFile};
use crate::{shell, workspace};

pub(crate) const SPECIFICATION: &str = "kernel/apm.yaml";
pub(crate) const HEADER: &str = "kernel/apm_nl.h";
const RUST: &str = "apmd/src/io/apm_module/constants.rs";

/// What the specification names, in its order.
#[derive(Default, Debug)]
struct Spec {
    family: String,
    enums: Vec<(String, Vec<String>)>,
    attribute_sets: Vec<(String, Vec<String>)>,
    operations: Vec<String>,
    groups: Vec<String>,
}

impl Spec {
    fn read(text: &str) -> Result<Self, String> {
        let mut spec = Self::default();
        let mut section = "";
        for (number, line) in text.lines().enumerate() {
            let bare = line.trim_start();
            let indent = line.len() - bare.len();
            let Some((key, value)) = bare.split_once(':') else {
                continue;
            };
            let value = value.trim();
            if indent == 0 && !bare.starts_with('#') {
                section = key;
            }
            let name = || value.to_owned();
            let early = || format!("line {}: {key} of nothing", number + 1);
            match (section, indent, key) {
                ("name", 0, _) => spec.family = name(),
                ("definitions", 4, "name") => spec.enums.push((name(), Vec::new())),
                ("definitions", 4, "entries") => {
                    let entries = value.trim_matches(['[', ']']).split(',');
                    let last = spec.enums.last_mut().ok_or_else(early)?;
                    last.1.extend(entries.map(|entry| entry.trim().to_owned()));
                }
                ("attribute-sets", 4, "name") => spec.attribute_sets.push((name(), Vec::new())),
                ("attribute-sets", 8, "name") => {
                    let set = spec.attribute_sets.last_mut().ok_or_else(early)?;
                    set.1.push(name());
                }
                ("operations", 6, "name") => spec.operations.push(name()),
                ("mcast-groups", 6, "name") => spec.groups.push(name()),
                _ => {}
            }
        }
        if spec.family.is_empty() || spec.operations.is_empty() {
            return Err("it names no family or no operation".to_owned());
        }
        Ok(spec)
    }

    fn constant(&self, words: &[&str]) -> String {
        let mut constant = self.family.clone();
        for word in words {
            constant.push('_');
            constant.push_str(word);
        }
        constant.to_uppercase().replace('-', "_")
    }

    /// The header, as the kernel's own generator lays them out.
    fn header(&self) -> Result<String, std::fmt::Error> {
        let mut out = String::from(
            "/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */\n\
             /* Made from apm.yaml by cargo xtask kernel-header: change that. */\n",
        );
        let guard = format!("{}_NL_H", self.constant(&[]));
        write!(out, "#ifndef {guard}\n#define {guard}\n\n")?;
        let family = self.constant(&["family"]);
        writeln!(out, "#define {family}_NAME \"{}\"", self.family)?;
        writeln!(out, "#define {family}_VERSION 1")?;
        for (name, entries) in &self.enums {
            let kind = name.replace('-', "_");
            write!(out, "\nenum {}_{kind} {{\n", self.family)?;
            for entry in entries {
                writeln!(out, "\t{},", self.constant(&[name, entry]))?;
            }
            out.push_str("};\n");
        }
        for (set, attributes) in &self.attribute_sets {
            self.numbered(&mut out, "", &["a", set], attributes)?;
        }
        let tag = format!("{}_cmd ", self.family);
        self.numbered(&mut out, &tag, &["cmd"], &self.operations)?;
        out.push('\n');
        for group in &self.groups {
            let constant = self.constant(&["mcgrp", group]);
            writeln!(out, "#define {constant} \"{group}\"")?;
        }
        out.push_str("\n#endif\n");
        Ok(out)
    }

    /// The same for the daemon: a module of constants for each enumeration.
    fn rust(&self) -> Result<String, std::fmt::Error> {
        let mut out = String::from(
            "// SPDX-License-Identifier: MIT OR Apache-2.0\n\
             //! Made from kernel/apm.yaml by cargo xtask kernel-header: change that.\n\
             #![allow(dead_code, reason = \"it specifies more than the daemon uses\")]\n\n",
        );
        writeln!(out, "pub(super) const FAMILY: &str = \"{}\";", self.family)?;
        writeln!(out, "pub(super) const VERSION: u8 = 1;")?;
        for group in &self.groups {
            let name = group.to_uppercase();
            writeln!(out, "pub(super) const GROUP_{name}: &str = \"{group}\";")?;
        }
        for (name, entries) in &self.enums {
            constants(&mut out, name, "u32", 0, entries)?;
        }
        for (set, attributes) in &self.attribute_sets {
            constants(&mut out, &format!("a_{set}"), "u16", 1, attributes)?;
        }
        constants(&mut out, "cmd", "u8", 1, &self.operations)?;
        Ok(out)
    }

    /// An enumeration from 1 on that ends with its greatest value.
    fn numbered(
        &self,
        out: &mut String,
        tag: &str,
        kind: &[&str],
        names: &[String],
    ) -> std::fmt::Result {
        write!(out, "\nenum {tag}{{\n")?;
        for (index, name) in names.iter().enumerate() {
            let constant = self.constant(&[kind, &[name]].concat());
            let first = if index == 0 { " = 1" } else { "" };
            writeln!(out, "\t{constant}{first},")?;
        }
        let greatest = self.constant(&[kind, &["max"]].concat());
        write!(
            out,
            "\n\t__{greatest},\n\t{greatest} = (__{greatest} - 1)\n"
        )?;
        out.push_str("};\n");
        Ok(())
    }
}

/// A module of constants, counted from `first`.
fn constants(
    out: &mut String,
    module: &str,
    kind: &str,
    first: usize,
    names: &[String],
) -> std::fmt::Result {
    write!(out, "\npub(super) mod {} {{\n", module.replace('-', "_"))?;
    for (number, name) in (first..).zip(names) {
        let name = name.to_uppercase().replace('-', "_");
        writeln!(
            out,
            "    pub(in crate::io::apm_module) const {name}: {kind} = {number};"
        )?;
    }
    out.push_str("}\n");
    Ok(())
}

/// The files that are made, and what is to stand in them.
fn files() -> Result<[(&'static str, String); 2], Error> {
    let path = workspace::root().join(SPECIFICATION);
    let text = fs::read_to_string(&path).in_file(&path)?;
    let made = Spec::read(&text).and_then(|spec| {
        let made = spec
            .header()
            .and_then(|header| Ok([(HEADER, header), (RUST, spec.rust()?)]));
        made.map_err(|error| error.to_string())
    });
    made.map_err(|error| Error::Other(format!("{}: {error}", path.display())))
}

/// Writes the files anew.
pub(crate) fn run() -> Result<u8, Error> {
    for (name, text) in files()? {
        let path = workspace::root().join(name);
        fs::write(&path, text).in_file(&path)?;
        shell::progress(&format!("wrote {name}"));
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constants_are_made_from_the_specification_as_it_is() {
        for (name, current) in files().expect("a specification") {
            let committed = fs::read_to_string(workspace::root().join(name));
            let committed = committed.expect("a file of constants");
            assert_eq!(committed, current, "run cargo xtask kernel-header");
        }
    }

    #[test]
    fn names_become_constants_in_their_order() {
        let text = "name: fam\n\
                    definitions:\n  -\n    name: path-kind\n    entries: [one, two-way]\n\
                    attribute-sets:\n  -\n    name: qp\n    attributes:\n      -\n        \
                    name: dev-index\n        type: u32\n\
                    operations:\n  list:\n    -\n      name: get\n    -\n      name: load\n";
        let header = Spec::read(text).expect("valid").header().expect("text");
        assert!(
            header.contains(
                "enum fam_path_kind {\n\tFAM_PATH_KIND_ONE,\n\tFAM_PATH_KIND_TWO_WAY,\n};"
            )
        );
        assert!(header.contains("\tFAM_A_QP_DEV_INDEX = 1,\n\n\t__FAM_A_QP_MAX,\n\tFAM_A_QP_MAX = (__FAM_A_QP_MAX - 1)\n"));
        assert!(header.contains("enum fam_cmd {\n\tFAM_CMD_GET = 1,\n\tFAM_CMD_LOAD,\n"));
        let rust = Spec::read(text).expect("valid").rust().expect("text");
        assert!(
            rust.contains(
                "mod path_kind {\n    pub(in crate::io::apm_module) const ONE: u32 = 0;\n"
            )
        );
        assert!(rust.contains(
            "mod a_qp {\n    pub(in crate::io::apm_module) const DEV_INDEX: u16 = 1;\n}"
        ));
        assert!(rust.contains("const LOAD: u8 = 2;\n"));
    }

    #[test]
    fn what_names_nothing_is_refused() {
        assert!(Spec::read("doc: nothing\n").is_err());
        assert!(Spec::read("definitions:\n  -\n    entries: [a]\n").is_err());
    }
}
