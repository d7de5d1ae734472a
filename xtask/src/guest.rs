// SPDX-License-Identifier: MIT OR Apache-2.0
//! The VM's own files: the scripts and settings of testbed/vm, and the skeleton of its root.

/// Files and directories of testbed/vm and where they go: (source, place, permissions).
pub(crate) const SCRIPTS: &[(&str, &str, u32)] = &[
    ("testbed/vm/init", "init", 0o755),
    ("testbed/vm/host", "usr/bin/host-a", 0o755),
    ("testbed/vm/host", "usr/bin/host-b", 0o755),
    ("testbed/vm/host", "usr/bin/host-c", 0o755),
    ("testbed/vm/host", "usr/bin/host-d", 0o755),
    ("testbed/vm/hosts.sh", "usr/lib/vm/hosts.sh", 0o644),
    ("testbed/vm/world", "usr/bin/world", 0o755),
    ("testbed/vm/daemons", "usr/bin/daemons", 0o755),
    ("testbed/vm/subnet-manager", "usr/bin/subnet-manager", 0o755),
    ("testbed/vm/cable", "usr/bin/cable", 0o755),
    ("testbed/vm/welcome", "usr/bin/welcome", 0o755),
    ("testbed/vm/check", "usr/bin/vm-check", 0o755),
    ("testbed/vm/check.d", "usr/lib/vm-check", 0o755),
    (
        "testbed/programs/kernel/one-namespace",
        "usr/bin/one-namespace",
        0o755,
    ),
    (
        "testbed/programs/kernel/nfs-rdma",
        "usr/bin/nfs-rdma",
        0o755,
    ),
    (
        "testbed/programs/kernel/nvme-rdma",
        "usr/bin/nvme-rdma",
        0o755,
    ),
    ("testbed/programs/kernel/rds", "usr/bin/rds", 0o755),
    ("testbed/programs/kernel/srp", "usr/bin/srp", 0o755),
    ("testbed/programs/mpi/mpi-agent", "usr/bin/mpi-agent", 0o755),
    ("testbed/vm/opensm.conf", "etc/opensm/opensm.conf", 0o644),
];

/// Small files of a Debian root.
pub(crate) const TEXTS: &[(&str, &str)] = &[
    (
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    ),
    ("etc/group", "root:x:0:\nrdma:x:110:\nnogroup:x:65534:\n"),
    ("etc/hostname", "apm\n"),
    (
        "etc/hosts",
        "127.0.0.1 localhost\n::1 localhost\n10.0.1.1 host-a\n10.0.1.2 host-b\n10.0.1.3 host-c\n10.0.1.4 host-d\n",
    ),
    (
        "etc/nsswitch.conf",
        "passwd: files\ngroup: files\nhosts: files\nservices: files\n",
    ),
    ("etc/services", "echo 7/tcp\nssh 22/tcp\n"),
    ("etc/profile", "export PS1='\\h:\\w\\$ '\n"),
];

/// Directories that are there when init starts.
pub(crate) const DIRECTORIES: &[&str] = &[
    "dev",
    "etc",
    "etc/libibverbs.d",
    "etc/opensm",
    "etc/rdma",
    "host",
    "mnt",
    "out",
    "proc",
    "root",
    "run",
    "sys",
    "tmp",
    "usr",
    "usr/bin",
    "usr/lib",
    "usr/lib64",
    "usr/sbin",
    "var",
    "var/cache",
    "var/cache/opensm",
    "var/lib",
    "var/lib/apmd",
    "var/log",
    "var/run",
];

/// Symbolic links of Debian's merged root.
pub(crate) const LINKS: &[(&str, &str)] = &[
    ("bin", "usr/bin"),
    ("lib", "usr/lib"),
    ("lib64", "usr/lib64"),
    ("sbin", "usr/sbin"),
];
