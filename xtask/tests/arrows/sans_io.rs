// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a crate without I/O may name of the standard library and of other crates. Everything else is
//! refused: clocks, descriptors, threads, files, environment, sockets and randomness.

use crate::resolve::{Target, resolve};
use crate::source::{Crate, Written};

/// Modules and names of `std`, `core` and `alloc`, with all that is in them.
const STANDARD: &[&str] = &[
    "any",
    "array",
    "ascii",
    "assert",
    "assert_eq",
    "borrow",
    "boxed",
    "cell",
    "char",
    "cmp",
    "collections",
    "convert",
    "error",
    "fmt",
    "format",
    "hash",
    "io::Error",
    "io::ErrorKind",
    "iter",
    "marker",
    "matches",
    "mem",
    "net::AddrParseError",
    "net::IpAddr",
    "net::Ipv4Addr",
    "net::Ipv6Addr",
    "net::SocketAddr",
    "net::SocketAddrV4",
    "net::SocketAddrV6",
    "num",
    "ops",
    "option",
    "path::Path",
    "path::PathBuf",
    "rc",
    "result",
    "slice",
    "str",
    "string",
    "sync::Arc",
    "time::Duration",
    "vec",
];

/// Of what is allowed above: a source of randomness.
const RANDOM: &str = "RandomState";

/// Other crates that have no I/O either.
const CRATES: &[&str] = &[
    "acm",
    "chacha20",
    "cm_msgs",
    "pathdb",
    "paths",
    "serde",
    "slotmap",
    "statemachine",
    "strum",
    "thin_vec",
    "thiserror",
    "toml",
    "tracing",
];

/// Types of the language that have functions.
const LANGUAGE: &[&str] = &[
    "bool", "char", "f32", "f64", "i8", "i16", "i32", "i64", "i128", "isize", "str", "u8", "u16",
    "u32", "u64", "u128", "usize",
];

/// What does I/O without naming where it comes from: macros of the prelude, and methods of `Path`.
const CALLS: &[&str] = &[
    "canonicalize",
    "dbg",
    "eprint",
    "eprintln",
    "exists",
    "is_dir",
    "is_file",
    "is_symlink",
    "metadata",
    "print",
    "println",
    "read_dir",
    "read_link",
    "symlink_metadata",
    "thread_local",
    "try_exists",
];

/// Each place at which a crate names what it may not.
pub(crate) fn offences(krate: &Crate) -> Vec<String> {
    let mut offences = Vec::new();
    if !forbids_unsafe(krate) {
        offences.push(format!("{}: no #![forbid(unsafe_code)]", krate.name));
    }
    for (index, module) in krate.modules.iter().enumerate() {
        let mut offend = |written: &Written, what: &str| {
            offences.push(format!("{}:{} {what}", module.file.display(), written.line));
        };
        for written in &module.written {
            match resolve(krate, index, &written.segments).target {
                Target::Outside(path) if !is_allowed(&path) => offend(written, &path.join("::")),
                _ => {}
            }
        }
        for called in &module.called {
            if let [name] = &called.segments[..]
                && CALLS.contains(&name.as_str())
            {
                offend(called, name);
            }
        }
    }
    offences.sort();
    offences.dedup();
    offences
}

fn forbids_unsafe(krate: &Crate) -> bool {
    krate.attributes.iter().any(|attribute| {
        let forbidden = || attribute.parse_args::<syn::Path>();
        attribute.path().is_ident("forbid")
            && forbidden().is_ok_and(|it| it.is_ident("unsafe_code"))
    })
}

fn is_allowed(path: &[String]) -> bool {
    let Some((first, rest)) = path.split_first() else {
        return true;
    };
    match first.as_str() {
        "std" | "core" | "alloc" => is_allowed_of_standard(rest),
        // A generic parameter, or a name of the prelude: no file can be opened by these.
        name if name.starts_with(char::is_uppercase) => true,
        name => LANGUAGE.contains(&name) || CRATES.contains(&name),
    }
}

fn is_allowed_of_standard(path: &[String]) -> bool {
    let path_begins = |with: &str| {
        let mut with = with.split("::");
        path.iter().zip(&mut with).all(|(a, b)| a == b)
    };
    // A shorter path, `std::net`, is an import; what is used of it is looked at where it is used.
    let is_listed = STANDARD.iter().any(|with| path_begins(with));
    let is_call = |name: &String| name == RANDOM || CALLS.contains(&name.as_str());
    is_listed && !path.iter().any(is_call)
}
