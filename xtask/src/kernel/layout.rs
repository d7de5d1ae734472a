// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a root directory has its modules: packages bring them in `lib` or, since /usr is merged, in `usr/lib`, and each
//! depmod looks in one of the two, below any root directory that it is given.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::error::{Error, InFile};

/// Makes `lib/modules` and `usr/lib/modules` the same directory below `root`, which has one of them.
pub(crate) fn merge(root: &Path) -> Result<(), Error> {
    let [plain, merged] = ["lib/modules", "usr/lib/modules"].map(|place| root.join(place));
    let (link, to) = match (plain.exists(), merged.exists()) {
        (true, false) => (merged, "../../lib/modules"),
        (false, true) => (plain, "../usr/lib/modules"),
        (true, true) => return Ok(()),
        (false, false) => {
            return Err(Error::Other(format!(
                "{}: no directory lib/modules or usr/lib/modules",
                root.display()
            )));
        }
    };
    if let Some(parent) = link.parent() {
        fs::create_dir_all(parent).in_file(parent)?;
    }
    symlink(to, &link).in_file(&link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_found_in_either_place() {
        let places = ["lib/modules", "usr/lib/modules"];
        for place in places {
            let root = tempfile::tempdir().expect("a directory");
            let of_package = root.path().join(place).join("6.1");
            fs::create_dir_all(&of_package).expect("made");
            fs::write(of_package.join("modules.order"), place).expect("written");
            // A package that is unpacked again changes nothing.
            for _ in 0..2 {
                merge(root.path()).expect("merged");
                for seen in places {
                    let file = root.path().join(seen).join("6.1/modules.order");
                    assert_eq!(fs::read_to_string(&file).expect(seen), place);
                }
            }
        }
        let empty = tempfile::tempdir().expect("a directory");
        let text = merge(empty.path()).expect_err("no modules").to_string();
        assert!(
            text.ends_with("no directory lib/modules or usr/lib/modules"),
            "{text}"
        );
    }
}
