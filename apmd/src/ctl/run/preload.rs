// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order in which libraries are preloaded: the user's first, as they are, then ours.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// The variable of the dynamic linker; ld.so(8) takes colons and spaces between names.
pub(super) const VARIABLE: &str = "LD_PRELOAD";

/// Runtimes of sanitizers, by the beginning of their names: GCC's and Clang's. AddressSanitizer's refuses to start
/// a program in which another library is before it.
const SANITIZERS: [&str; 5] = [
    "libasan.so",
    "libhwasan.so",
    "liblsan.so",
    "libtsan.so",
    "libclang_rt.",
];

/// What ours has to be before: it calls these by looking further in the search order.
const BEHIND_OURS: [&str; 2] = ["librdmacm.so", "libibverbs.so"];

/// What to preload: the sanitizer runtimes among the libraries that the program needs, what the user preloads, and
/// ours; of the user's, rdma-core's own libraries come after it.
pub(super) fn order(needed: &[String], users: &OsStr, ours: &Path) -> OsString {
    let users: Vec<&[u8]> = users
        .as_bytes()
        .split(|byte| b": ".contains(byte))
        .filter(|name| !name.is_empty())
        .collect();
    let is_among_users = |name: &str| users.iter().any(|user| file_name(user) == name.as_bytes());
    let sanitizers = needed
        .iter()
        .filter(|name| begins_with(name.as_bytes(), &SANITIZERS) && !is_among_users(name))
        .map(|name| name.as_bytes());
    let place = users
        .iter()
        .position(|user| begins_with(file_name(user), &BEHIND_OURS))
        .unwrap_or(users.len());
    let (before, behind) = users.split_at(place);
    let all: Vec<&[u8]> = sanitizers
        .chain(before.iter().copied())
        .chain([ours.as_os_str().as_bytes()])
        .chain(behind.iter().copied())
        .collect();
    OsString::from_vec(all.join(&b':'))
}

fn begins_with(name: &[u8], beginnings: &[&str]) -> bool {
    beginnings
        .iter()
        .any(|beginning| name.starts_with(beginning.as_bytes()))
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order_of(needed: &[&str], users: &str) -> String {
        let needed: Vec<_> = needed.iter().map(ToString::to_string).collect();
        let all = order(&needed, OsStr::new(users), Path::new("/lib/ours.so"));
        all.into_string().expect("UTF-8")
    }

    #[test]
    fn the_users_libraries_come_first_in_their_order() {
        for (users, expected) in [
            ("", "/lib/ours.so"),
            ("a.so", "a.so:/lib/ours.so"),
            (":/x/a.so  b.so:", "/x/a.so:b.so:/lib/ours.so"),
        ] {
            assert_eq!(order_of(&["libc.so.6"], users), expected);
        }
    }

    #[test]
    fn a_sanitizer_that_the_program_needs_is_the_first_of_all_and_there_once() {
        let needed = ["libasan.so.8", "librdmacm.so.1"];
        assert_eq!(order_of(&needed, ""), "libasan.so.8:/lib/ours.so");
        assert_eq!(order_of(&needed, "a.so"), "libasan.so.8:a.so:/lib/ours.so");
        let by_user = "/usr/lib/libasan.so.8:a.so";
        assert_eq!(
            order_of(&needed, by_user),
            format!("{by_user}:/lib/ours.so")
        );
    }

    #[test]
    fn ours_is_before_those_that_it_stands_in_front_of() {
        let users = "a.so:/opt/librdmacm.so.1:b.so:libibverbs.so.1";
        assert_eq!(
            order_of(&[], users),
            "a.so:/lib/ours.so:/opt/librdmacm.so.1:b.so:libibverbs.so.1"
        );
    }
}
