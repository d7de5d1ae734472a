// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which files of a kernel's modules are needed, by its own indices.

use std::collections::BTreeSet;

/// How a kernel may have compressed its modules.
const COMPRESSED: &[&str] = &[".gz", ".xz", ".zst"];

/// The name by which modprobe knows the module in `file`.
fn module_name(file: &str) -> String {
    let base = file.rsplit('/').next().unwrap_or(file);
    let plain = COMPRESSED
        .iter()
        .find_map(|end| base.strip_suffix(end))
        .unwrap_or(base);
    plain.trim_end_matches(".ko").replace('-', "_")
}

/// Files of `names` and their dependencies by `dependencies`, in the form of modules.dep, without
/// those that are part of the kernel by `builtin`, in the form of modules.builtin; the name that is in
/// neither if there is one. modules.dep already lists dependencies of dependencies.
pub(super) fn files(
    dependencies: &str,
    builtin: &str,
    names: &[&str],
) -> Result<BTreeSet<String>, String> {
    let mut files = BTreeSet::new();
    for name in names {
        if builtin.lines().any(|file| module_name(file) == *name) {
            continue;
        }
        let line = dependencies
            .lines()
            .find(|line| {
                line.split(':')
                    .next()
                    .is_some_and(|file| module_name(file) == *name)
            })
            .ok_or_else(|| (*name).to_owned())?;
        files.extend(
            line.split([':', ' '])
                .filter(|word| !word.is_empty())
                .map(str::to_owned),
        );
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_come_along_once() {
        let listing = "kernel/a/rdma_cm.ko: kernel/a/ib_cm.ko kernel/a/ib-core.ko\n\
                       kernel/a/ib_cm.ko: kernel/a/ib-core.ko\n\
                       kernel/a/ib-core.ko:\n";
        let found = files(listing, "", &["rdma_cm", "ib_core"]).expect("all known");
        assert_eq!(found.len(), 3);
        assert_eq!(files(listing, "", &["siw"]), Err("siw".to_owned()));
    }

    #[test]
    fn modules_may_be_compressed_or_built_in() {
        let listing = "kernel/a/rdmavt.ko.xz: kernel/a/ib_core.ko.zst\n\
                       kernel/a/ib_core.ko.zst:\n";
        let builtin = "kernel/drivers/virtio/virtio_pci.ko\n";
        let found = files(listing, builtin, &["rdmavt", "virtio_pci"]).expect("all known");
        let expected = ["kernel/a/ib_core.ko.zst", "kernel/a/rdmavt.ko.xz"];
        assert!(found.iter().eq(&expected), "{found:?}");
    }
}
