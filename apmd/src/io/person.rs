// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who is charged for what a local process takes: a user, with all the user IDs that are subordinate to it.
//!
//! A user to whom `/etc/subuid` gives 65,536 IDs can run processes as each of them (newuidmap(1)), and would have
//! as many shares of everything. The owner of a process's user namespace would say the same, but
//! `/proc/PID/ns/user` is for those who may trace the process, which the daemon's user may not; and this holds for
//! a process that has ended by now, too.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

const SUBORDINATE: &str = "/etc/subuid";
const USERS: &str = "/etc/passwd";

/// The user who is charged for a process with this user ID.
pub(crate) fn person(uid: u32) -> u32 {
    static LAST_READ: Mutex<(Option<SystemTime>, Subordinates)> =
        Mutex::new((None, Subordinates::EMPTY));
    let mut last = LAST_READ.lock().unwrap_or_else(PoisonError::into_inner);
    let changed = fs::metadata(SUBORDINATE).and_then(|file| file.modified());
    let changed = changed.ok();
    if last.0 != changed {
        *last = (changed, Subordinates::read());
    }
    last.1.person(uid)
}

/// Ranges of subordinate user IDs.
#[derive(Debug)]
struct Subordinates {
    /// Ranges by their first ID: the count of IDs and the user that they belong to.
    ranges: BTreeMap<u32, (u32, u32)>,
}

impl Subordinates {
    const EMPTY: Self = Self {
        ranges: BTreeMap::new(),
    };

    fn read() -> Self {
        let text = |path: &str| match fs::read(Path::new(path)) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => {
                tracing::debug!(path, %error, "subordinate user IDs count as users of their own");
                String::new()
            }
        };
        Self::parse(&text(SUBORDINATE), &text(USERS))
    }

    /// From subuid(5) and passwd(5). Names that are not in the file are not looked up elsewhere, where that could
    /// take long: the ranges of such a user count as one person, apart from the user.
    fn parse(subordinate: &str, users: &str) -> Self {
        let mut uids: BTreeMap<&str, u32> = users.lines().filter_map(user).collect();
        let mut ranges = BTreeMap::new();
        for (owner, first, count) in subordinate.lines().filter_map(range) {
            let by_number = owner.parse().ok();
            let uid = by_number.unwrap_or_else(|| *uids.entry(owner).or_insert(first));
            // Root's ranges are for containers, which are not root and have nothing in common.
            if uid != 0 {
                ranges.insert(first, (count, uid));
            }
        }
        Self { ranges }
    }

    fn person(&self, uid: u32) -> u32 {
        let below = self.ranges.range(..=uid).next_back();
        match below {
            Some((first, &(count, owner))) if uid - first < count => owner,
            _ => uid,
        }
    }
}

/// A user's name and ID.
fn user(line: &str) -> Option<(&str, u32)> {
    let mut fields = line.split(':');
    let name = fields.next()?;
    Some((name, fields.nth(1)?.parse().ok()?))
}

/// An owner, by name or number, the first ID and how many.
fn range(line: &str) -> Option<(&str, u32, u32)> {
    let mut fields = line.trim().split(':');
    let owner = fields.next()?;
    Some((
        owner,
        fields.next()?.parse().ok()?,
        fields.next()?.parse().ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\n\
        alice:x:1000:1000::/home/alice:/bin/sh\n\
        bob:x:1001:1001::/home/bob:/bin/sh\n";

    #[test]
    fn subordinate_ids_are_their_users() {
        let subuid = "# by useradd\nalice:100000:65536\n1001:165536:65536\nalice:300000:10\n";
        let known = Subordinates::parse(subuid, PASSWD);
        let persons = [1000, 100_000, 165_535, 300_009].map(|uid| known.person(uid));
        assert_eq!(persons, [1000; 4]);
        assert_eq!(
            [1001, 165_536, 231_071].map(|uid| known.person(uid)),
            [1001; 3]
        );
        let others = [0, 1, 99_999, 231_072, 300_010, u32::MAX];
        assert_eq!(others.map(|uid| known.person(uid)), others);
    }

    #[test]
    fn a_container_of_roots_is_not_root() {
        let known = Subordinates::parse("root:1000000:1000\n0:2000000:1000\n", PASSWD);
        for uid in [1_000_000, 2_000_007] {
            assert_eq!(known.person(uid), uid);
        }
    }

    #[test]
    fn who_is_not_in_the_file_is_one_person() {
        let subuid = "carol:400000:10\ncarol:500000:10\nnonsense\n:1:\nalice:x:y\n";
        let known = Subordinates::parse(subuid, PASSWD);
        assert_eq!(known.person(400_009), known.person(500_001));
        assert_eq!(known.person(100_000), 100_000);
    }
}
