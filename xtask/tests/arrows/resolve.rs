// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a path in a module leads to, through imports and re-exports.

use crate::source::Crate;

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A module of this crate, or something in it.
    Inside(usize),
    /// Out of this crate: a path that begins with another crate's name, or a language's type.
    Outside(Vec<String>),
    /// Something local, of the prelude, or made by a macro.
    Unknown,
}

/// How far re-exports are followed: a circle of them ends somewhere.
const DEPTH: usize = 16;

/// Where a path leads, and through which modules.
pub(crate) struct Resolved {
    pub(crate) target: Target,
    /// Modules of which it uses a re-export.
    pub(crate) through: Vec<usize>,
}

/// A step on the way along a path.
enum Step {
    Module(usize),
    Item(usize),
    Outside(Vec<String>),
}

/// Where the path leads that is written in module `from`.
pub(crate) fn resolve(krate: &Crate, from: usize, segments: &[String]) -> Resolved {
    let mut through = Vec::new();
    let target = match follow(krate, from, segments, &mut through, DEPTH) {
        Some(Step::Module(module) | Step::Item(module)) => Target::Inside(module),
        Some(Step::Outside(path)) => Target::Outside(path),
        None => Target::Unknown,
    };
    Resolved { target, through }
}

fn follow(
    krate: &Crate,
    from: usize,
    segments: &[String],
    through: &mut Vec<usize>,
    depth: usize,
) -> Option<Step> {
    let mut rest = segments.iter();
    let first = rest.next()?;
    let mut step = match first.as_str() {
        "crate" => Step::Module(0),
        "self" => Step::Module(from),
        "super" => Step::Module(krate.modules[from].parent?),
        "Self" => return None,
        name => match lookup(krate, from, name, through, depth) {
            Some(step) => step,
            None if segments.len() > 1 || is_import(krate, from, name) => {
                return Some(Step::Outside(segments.to_vec()));
            }
            None => return None,
        },
    };
    for name in rest {
        step = match step {
            Step::Module(module) if name == "super" => Step::Module(krate.modules[module].parent?),
            Step::Module(module) if name == "self" || name == "*" => Step::Module(module),
            Step::Module(module) => {
                if !krate.modules[module].children.contains_key(name) {
                    through.push(module);
                }
                lookup(krate, module, name, through, depth).unwrap_or(Step::Item(module))
            }
            Step::Item(module) => Step::Item(module),
            Step::Outside(mut path) => {
                path.push(name.clone());
                Step::Outside(path)
            }
        };
    }
    Some(step)
}

/// Whether a module imports another crate by its bare name.
fn is_import(krate: &Crate, module: usize, name: &str) -> bool {
    let imported = krate.modules[module].imports.get(name);
    imported.is_some_and(|path| path.len() == 1)
}

/// What a name is in a module.
fn lookup(
    krate: &Crate,
    module: usize,
    name: &str,
    through: &mut Vec<usize>,
    depth: usize,
) -> Option<Step> {
    let depth = depth.checked_sub(1)?;
    let this = &krate.modules[module];
    if let Some(child) = this.children.get(name) {
        return Some(Step::Module(*child));
    }
    if this.defines.contains(name) {
        return Some(Step::Item(module));
    }
    if let Some(path) = this.imports.get(name) {
        if path.first().is_some_and(|first| first == name) {
            return Some(Step::Outside(path.clone()));
        }
        return follow(krate, module, path, through, depth);
    }
    this.globs
        .iter()
        .find_map(|glob| match follow(krate, module, glob, through, depth) {
            Some(Step::Module(other)) if other != module => {
                lookup(krate, other, name, through, depth)
            }
            _ => None,
        })
}
