// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who is charged for what a local process takes: a user, with all the user IDs that are subordinate to it.
//!
//! A user to whom `/etc/subuid` gives 65,536 IDs can run processes as each of them (newuidmap(1)), and would have
//! as many shares of everything. The owner of a process's user namespace would say the same, but
//! `/proc/PID/ns/user` is for those who may trace the process, which the daemon's user may not; and this holds for
//! a process that has ended by now, too.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

const SUBORDINATE: &str = "/etc/subuid";
const USERS: &str = "/etc/passwd";

/// The user who is charged for what processes take. Whatever is charged to a user is charged to one of these, and
/// [`Person::of`] is the only way to one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct Person(u32);

impl Person {
    /// The user who is charged for a process with this user ID.
    pub(crate) fn of(uid: u32) -> Self {
        Self(person(uid))
    }

    /// A user by number, whatever ranges this host's users have.
    #[cfg(test)]
    pub(crate) const fn without_ranges(uid: u32) -> Self {
        Self(uid)
    }

    pub(crate) fn uid(self) -> u32 {
        self.0
    }

    pub(crate) fn is_root(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Person {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn person(uid: u32) -> u32 {
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

/// Ranges of subordinate user IDs, without overlaps.
#[derive(Debug)]
struct Subordinates {
    /// Ranges by their first ID: the last ID and the user who is charged.
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
        let mut ranges = Vec::new();
        for (owner, first, count) in subordinate.lines().filter_map(range) {
            let by_number = owner.parse().ok();
            let uid = by_number.unwrap_or_else(|| *uids.entry(owner).or_insert(first));
            // Root's ranges are for containers, which are not root and have nothing in common.
            if uid != 0 && count != 0 {
                let last = first.saturating_add(count - 1);
                // The owner's own ID may be in a range, too.
                ranges.extend([(first, last, uid), (uid, uid, uid)]);
            }
        }
        Self::merge(ranges)
    }

    /// From ranges, which may overlap, by their first ID, last ID and owner. Owners of ranges that overlap can run
    /// processes as the other's IDs. They count as one person, or one of them would have both shares.
    fn merge(mut ranges: Vec<(u32, u32, u32)>) -> Self {
        ranges.sort_unstable();
        let mut owners = Owners::of(&ranges);
        let mut merged: Vec<(u32, u32, u32)> = Vec::new();
        for (first, last, owner) in ranges {
            match merged.last_mut() {
                Some((_, before, other)) if first <= *before => {
                    owners.join(*other, owner);
                    *before = last.max(*before);
                }
                _ => merged.push((first, last, owner)),
            }
        }
        let ranges = merged
            .into_iter()
            .map(|(first, last, owner)| (first, (last, owners.person(owner))));
        Self {
            ranges: ranges.collect(),
        }
    }

    fn person(&self, uid: u32) -> u32 {
        let below = self.ranges.range(..=uid).next_back();
        match below {
            // Root is root even if somebody's range begins with it.
            Some((_, &(last, owner))) if uid <= last && uid != 0 => owner,
            _ => uid,
        }
    }
}

/// Owners of ranges, and which of them count as one person: the one with the widest range, and of equally wide ones
/// the one with the lowest ID.
struct Owners {
    /// The width of each owner's widest range, less one.
    widest: BTreeMap<u32, u32>,
    /// An owner with a wider range who counts as one person with this one.
    wider: BTreeMap<u32, u32>,
}

impl Owners {
    fn of(ranges: &[(u32, u32, u32)]) -> Self {
        let mut widest = BTreeMap::new();
        for (first, last, owner) in ranges {
            let width = widest.entry(*owner).or_default();
            *width = (last - first).max(*width);
        }
        Self {
            widest,
            wider: BTreeMap::new(),
        }
    }

    fn person(&mut self, owner: u32) -> u32 {
        let mut person = owner;
        while let Some(wider) = self.wider.get(&person) {
            person = *wider;
        }
        if person != owner {
            self.wider.insert(owner, person);
        }
        person
    }

    fn join(&mut self, one: u32, other: u32) {
        let (one, other) = (self.person(one), self.person(other));
        if one == other {
            return;
        }
        let order = |owner: u32| (self.widest.get(&owner), Reverse(owner));
        if order(one) < order(other) {
            self.wider.insert(one, other);
        } else {
            self.wider.insert(other, one);
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
pub(crate) mod testing {
    use std::process::Command;

    /// Runs `body` with this `/etc/subuid`: the test `name` is run again in a mount namespace of its own, where a file
    /// is bound over it. That needs root.
    pub(crate) fn with_subuid(text: &str, name: &str, body: impl FnOnce()) {
        const IS_BOUND: &str = "APMD_TEST_SUBUID_IS_BOUND";
        if std::env::var_os(IS_BOUND).is_some() {
            return body();
        }
        if !nix::unistd::geteuid().is_root() {
            let required = std::env::var_os("APMD_REQUIRE_ROOT");
            let required = required.is_some_and(|required| required == "1");
            assert!(!required, "only root can bind a file over /etc/subuid");
            eprintln!("skipped: only root can bind a file over /etc/subuid");
            return;
        }
        let unique = format!("subuid-{}-{}", std::process::id(), name.len());
        let file = std::env::temp_dir().join(unique);
        std::fs::write(&file, text).expect("its own file");
        let script = "mount --bind \"$1\" /etc/subuid && exec \"$0\" --exact \"$2\" --nocapture";
        let output = Command::new("unshare")
            .args(["-m", "sh", "-c", script])
            .arg(std::env::current_exe().expect("it runs"))
            .arg(&file)
            .arg(name)
            .env(IS_BOUND, "1")
            .output()
            .expect("unshare is installed");
        std::fs::remove_file(&file).expect("its own file");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}{errors}");
        assert!(text.contains("1 passed"), "no test {name}: {text}");
    }
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

    /// LXD's and Docker's packages have written ranges that overlap with the first user's.
    #[test]
    fn ranges_that_overlap_are_one_person() {
        let nested = "alice:100000:65536\nbob:100010:5\n";
        let partial = "bob:150000:50000\nalice:100000:65536\n";
        let by_a_third = "bob:100010:5\n1002:90000:10001\nalice:100000:65536\n1002:100012:1\n";
        for subuid in [nested, partial, by_a_third] {
            let known = Subordinates::parse(subuid, PASSWD);
            // The owners, too, or one of them would have a share more.
            let uids = [1000, 1001, 100_000, 100_009, 100_012, 100_015, 165_535];
            assert_eq!(uids.map(|uid| known.person(uid)), [1000; 7], "{subuid}");
        }
    }

    /// The order of the lines does not count.
    #[test]
    fn a_package_that_shares_a_users_range_gives_the_user_no_second_share() {
        let passwd = format!("{PASSWD}lxd:x:998:998::/:/bin/false\n");
        let mut lines = ["alice:100000:65536", "lxd:100000:65536"];
        for _ in 0..2 {
            let known = Subordinates::parse(&lines.join("\n"), &passwd);
            let persons = [100_000, 165_535, 1000, 998].map(|uid| known.person(uid));
            assert_eq!(persons, [998; 4]);
            lines.reverse();
        }
    }

    #[test]
    fn ranges_of_a_subordinate_user_are_its_owners() {
        let known = Subordinates::parse("100005:300000:65536\nalice:100000:10\n", PASSWD);
        let persons = [1000, 100_001, 100_005, 300_001].map(|uid| known.person(uid));
        // The widest range counts, whoever has it.
        assert_eq!(persons, [100_005; 4]);
    }

    #[test]
    fn ranges_at_the_ends() {
        let known = Subordinates::parse("alice:0:10\nbob:4294967290:65536\n1002:7000:0\n", PASSWD);
        let persons = [0, 1, 9, 4_294_967_290, u32::MAX, 7000].map(|uid| known.person(uid));
        assert_eq!(persons, [0, 1000, 1000, 1001, 1001, 7000]);
    }
}
