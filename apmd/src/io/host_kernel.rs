// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the running kernel says of itself.

use std::path::Path;

use super::text_file;

/// Type data of ib_core, in which the names of its functions are.
const TYPES: &str = "/sys/kernel/btf/ib_core";
/// That of Debian's 6.1 has some 100 KiB.
const TYPES_MAX: usize = 8 << 20;
const IB_CORE: &str = "/sys/module/ib_core";
const SIZE_MAX: u64 = 1024;

/// The running kernel.
#[derive(Debug)]
pub(crate) struct HostKernel {
    /// As `uname -r` and `-v` print them.
    pub(crate) release: String,
    pub(crate) version: String,
    /// Whether ib_core has `rdma_restrack_begin_del`, if that can be known.
    pub(crate) has_begin_del: Option<bool>,
    /// An ib_core that was not built with the kernel.
    pub(crate) foreign_ib_core: Option<String>,
}

pub(crate) fn host_kernel() -> HostKernel {
    let said = |name: &str| {
        let path = Path::new("/proc/sys/kernel").join(name);
        let text = text_file::read(&path, SIZE_MAX).unwrap_or_default();
        text.trim_end().to_owned()
    };
    // Where ib_core is part of the kernel, or the kernel has no such data, the version has to do.
    let types = std::fs::read(TYPES).ok();
    let types = types.filter(|types| types.len() <= TYPES_MAX);
    HostKernel {
        release: said("osrelease"),
        version: said("version"),
        has_begin_del: types.and_then(|types| has_begin_del(&types)),
        foreign_ib_core: foreign_module(Path::new(IB_CORE)),
    }
}

/// The version and taint of a loaded module that was not built with its kernel (TAINT_OOT_MODULE, `O`: modpost marks the
/// kernel's own with `intree`). `None` also where the module is part of the kernel's image.
fn foreign_module(sysfs: &Path) -> Option<String> {
    let said = |name: &str| {
        let text = text_file::read(&sysfs.join(name), SIZE_MAX).unwrap_or_default();
        text.trim().to_owned()
    };
    let taint = said("taint");
    taint.contains('O').then(|| {
        let version = said("version");
        let version = match version.as_str() {
            "" => "of no version",
            version => version,
        };
        format!("{version} (taint {taint})")
    })
}

/// `None`: the names of functions are not there.
fn has_begin_del(types: &[u8]) -> Option<bool> {
    let has = |name: &[u8]| types.windows(name.len()).any(|at| at == name);
    has(b"\0rdma_restrack_put\0").then(|| has(b"\0rdma_restrack_begin_del\0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_known_by_name() {
        assert_eq!(has_begin_del(b"\0rdma_restrack_put\0x\0"), Some(false));
        let both = b"\0rdma_restrack_put\0rdma_restrack_begin_del\0";
        assert_eq!(has_begin_del(both), Some(true));
        assert_eq!(has_begin_del(b"\0rdma_restrack_begin_del\0"), None);
        assert_eq!(has_begin_del(b""), None);
    }

    #[test]
    fn a_module_from_outside_the_kernels_tree_is_known_by_its_taint() {
        let sysfs = std::env::temp_dir().join(format!("apmd-module-{}", std::process::id()));
        std::fs::create_dir_all(&sysfs).unwrap();
        assert_eq!(foreign_module(&sysfs), None, "built in");
        // `E`: not signed. Debian's own modules have an empty taint.
        for (taint, version, want) in [
            ("\n", "", None),
            ("E\n", "", None),
            ("O\n", "", Some("of no version (taint O)")),
            ("OE\n", "24.10-1.1.4\n", Some("24.10-1.1.4 (taint OE)")),
        ] {
            std::fs::write(sysfs.join("taint"), taint).unwrap();
            std::fs::write(sysfs.join("version"), version).unwrap();
            assert_eq!(foreign_module(&sysfs).as_deref(), want);
        }
        std::fs::remove_dir_all(&sysfs).unwrap();
    }

    #[test]
    fn the_running_kernel_has_a_name() {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let running = host_kernel();
        assert_eq!(running.release, release.trim_end());
        assert!(running.version.starts_with('#'), "{running:?}");
    }
}
