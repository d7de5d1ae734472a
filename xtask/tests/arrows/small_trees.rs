// SPDX-License-Identifier: MIT OR Apache-2.0
//! That each check fails where it should, on small crates that the test writes.

use std::fs;
use std::path::PathBuf;

use crate::source::{Crate, package};
use crate::{circles, sans_io, types};

/// The start of a crate without I/O.
const PURE: &str = "#![forbid(unsafe_code)]\n";

/// A crate of these files below `src`, written anew.
fn tree(name: &str, files: &[(&str, &str)]) -> Crate {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    // It need not be there.
    let _ = fs::remove_dir_all(&directory);
    for (file, text) in files {
        let file = directory.join("src").join(file);
        fs::create_dir_all(file.parent().expect("below src")).expect("a writable directory");
        fs::write(file, text).expect("a writable directory");
    }
    package(&directory).pop().expect("it has a root")
}

/// What is refused of a module with this text.
fn refused(name: &str, text: &str) -> Vec<String> {
    let root = format!("{PURE}mod inner;\n");
    let krate = tree(name, &[("lib.rs", &root), ("inner.rs", text)]);
    sans_io::offences(&krate)
}

#[test]
fn a_crate_that_opens_a_file_is_refused() {
    let texts = [
        "fn read() { std::fs::read(\"x\").ok(); }",
        "use std::fs;",
        "use std::{fmt, fs::File};",
        "use std::fs as files; fn read() { files::read(\"x\").ok(); }",
        "use std as s; fn read() { s::fs::read(\"x\").ok(); }",
        "use std::*;",
        "extern crate nix;",
        "fn read() { ::std::fs::read(\"x\").ok(); }",
        "fn read() { assert!(std::fs::read(\"x\").is_ok()); }",
        "macro_rules! read { () => { $crate::deep::fs::read(\"x\") } }\nmod deep { pub use std::fs; }",
        "mod deep { pub(super) fn read() { std::fs::File::open(\"x\").ok(); } }",
        "struct Reader; impl Reader { fn read(self) { let _ = std::fs::File::open(\"x\"); } }",
        "fn is_there(path: &std::path::Path) -> bool { path.exists() }",
        "use std::path::Path; fn is_there(path: &Path) -> bool { Path::exists(path) }",
    ];
    for (number, text) in texts.iter().enumerate() {
        let found = refused(&format!("opens-a-file-{number}"), text);
        assert!(!found.is_empty(), "{text}");
        assert!(
            found
                .iter()
                .all(|it| it.contains("inner.rs:1 ") || it.contains("inner.rs:2 "))
        );
    }
}

#[test]
fn so_is_one_with_any_other_io() {
    let texts = [
        "use std::time::Instant;",
        "use std::time; fn now() { time::SystemTime::now(); }",
        "use std::net::UdpSocket;",
        "use std::net; fn open() { net::TcpStream::connect(\"x\").ok(); }",
        "use std::os::fd::OwnedFd;",
        "fn wait() { std::thread::yield_now(); }",
        "fn name() { std::env::var(\"x\").ok(); }",
        "fn number() -> u32 { std::process::id() }",
        "use std::sync::Mutex;",
        "use std::collections::hash_map::RandomState;",
        "fn dice() { getrandom::fill(&mut []).ok(); }",
        "fn dice() -> u8 { rand::random() }",
        "fn say() { println!(\"x\"); }",
        "use nix::unistd;",
    ];
    for (number, text) in texts.iter().enumerate() {
        let found = refused(&format!("other-io-{number}"), text);
        assert!(!found.is_empty(), "{text}");
    }
    let unsafe_allowed = tree("unsafe-allowed", &[("lib.rs", "")]);
    assert_eq!(sans_io::offences(&unsafe_allowed).len(), 1);
}

#[test]
fn values_and_tests_are_not() {
    let text = "use std::net::{IpAddr, Ipv6Addr};\nuse core::time::Duration;\nuse std::fmt;\n\
        use std::path::PathBuf;\nuse alloc::collections::BTreeMap;\n\
        fn name(file: PathBuf, at: Duration) -> String { format!(\"{file:?} {}\", u64::MAX) }\n\
        #[cfg(test)]\nmod tests { use std::fs; }\n#[cfg(test)]\nuse std::time::Instant;\n\
        impl fmt::Display for X { #[cfg(test)] fn fmt() { std::thread::yield_now() } }";
    assert_eq!(refused("values", text), [""; 0]);
}

/// The circles of a crate, by the modules in them.
fn found(name: &str, files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let circles = circles::circles(&tree(name, files));
    circles.into_iter().map(|circle| circle.modules).collect()
}

#[test]
fn modules_that_import_each_other_are_a_circle() {
    let two = [
        ("lib.rs", "mod a;\nmod b;\n"),
        ("a.rs", "use crate::b::B;\npub struct A(B);"),
        ("b.rs", "pub struct B(Option<Box<super::a::A>>);"),
    ];
    assert_eq!(found("two", &two), [["two::a", "two::b"]]);
    let three = [
        ("lib.rs", "mod a;\nmod b;\nmod c;\nmod d;"),
        ("a/mod.rs", "pub mod inner;\nuse super::d::D;"),
        ("a/inner.rs", "use crate::b;\npub struct A(b::B);"),
        (
            "b.rs",
            "pub struct B; fn c() { println!(\"{}\", crate::c::C) }",
        ),
        (
            "c.rs",
            "use super::{a::{inner::*}, d};\npub const C: u8 = 1;",
        ),
        ("d.rs", "pub struct D;"),
    ];
    assert_eq!(
        found("three", &three),
        [["three::a", "three::b", "three::c"]]
    );
}

#[test]
fn a_circle_through_a_re_export_is_one() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\npub use a::A;\npub use b::*;"),
        ("a.rs", "use crate::B;\npub struct A(B);"),
        ("b.rs", "pub struct B(Option<Box<crate::A>>);"),
    ];
    assert_eq!(
        found("re-export", &files),
        [["re-export::a", "re-export::b"]]
    );
}

#[test]
fn children_within_a_module_can_be_one() {
    let files = [(
        "lib.rs",
        "mod outer { mod a { use super::b::B; pub struct A; }\n\
            mod b { use super::a::A; pub struct B; } }",
    )];
    assert_eq!(
        found("inline", &files),
        [["inline::outer::a", "inline::outer::b"]]
    );
}

#[test]
fn a_module_and_its_parent_are_none_and_tests_do_not_count() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\npub struct Root(a::A);"),
        ("a.rs", "use crate::{Root, b::B};\npub struct A(B);"),
        (
            "b.rs",
            "pub struct B;\n#[cfg(test)]\nmod tests { use crate::a::A; }",
        ),
    ];
    assert_eq!(found("none", &files), [[""; 0]; 0]);
}

#[test]
fn a_types_fields_and_the_files_of_its_methods_are_counted() {
    let files = [
        (
            "lib.rs",
            "mod a; mod b; mod c;\npub struct X { p: u8, q: u8 }\nimpl X { fn x() {} }",
        ),
        (
            "a.rs",
            "use super::*;\nimpl X { fn a() {} }\nimpl X { fn aa() {} }",
        ),
        (
            "b.rs",
            "impl crate::X { fn b() {} }\nimpl Drop for crate::X { fn drop(&mut self) {} }",
        ),
        (
            "c.rs",
            "pub enum Y { One, Two { r: u8, s: u8, t: u8 } }\nimpl Clone for super::X {\n\
            fn clone(&self) {} }\nimpl crate::X { const C: u8 = 1; }",
        ),
    ];
    let sizes = types::sizes(&tree("sizes", &files));
    let size = |name: &str| {
        let size = &sizes[name];
        (size.fields, size.files.len())
    };
    assert_eq!(size("sizes::X"), (2, 3));
    assert_eq!(size("sizes::c::Y"), (3, 0));
}
