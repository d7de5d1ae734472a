// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows. Hosts are 10.0.1.1 and 10.0.1.2 over IPoIB (ports 1), 10.0.0.1 and 10.0.0.2 over the
//! management Ethernet, which no fault touches: programs that wire themselves up over TCP use that.

use std::time::Duration;

use crate::world::Kind;

use super::row::{Amount, Data, End, Family, Row};
use super::way::Way;

/// The rows of the short form.
const SHORT: &[&str] = &["rping"];

/// All rows, in the order in which they are run and listed.
const ALL: &[&[Row]] = &[PERFTEST, RDMA_CM, LIBFABRIC, UCX, MPI, KERNEL, MANY];

const fn perftest(name: &'static str, server: &'static str, client: &'static str) -> Row {
    Row::new(Family::Perftest, name, server, client)
}

/// `-R` connects by rdma_cm; without it, perftest exchanges QP numbers over TCP. In a one-way
/// bandwidth test without `-b` the server's QP stays in RTR.
const PERFTEST: &[Row] = &[
    perftest(
        "ib_send_bw-R",
        "{run} ib_send_bw -F -R -d shca1 -D {n}",
        "{run} ib_send_bw -F -R -d shca0 -D {n} 10.0.1.2",
    ),
    perftest(
        "ib_send_bw",
        "{run} ib_send_bw -F -d shca1 -D {n}",
        "{run} ib_send_bw -F -d shca0 -D {n} 10.0.0.2",
    ),
    perftest(
        "ib_send_bw-b",
        "{run} ib_send_bw -F -b -d shca1 -D {n}",
        "{run} ib_send_bw -F -b -d shca0 -D {n} 10.0.0.2",
    ),
    perftest(
        "ib_write_bw-R",
        "{run} ib_write_bw -F -R -d shca1 -D {n}",
        "{run} ib_write_bw -F -R -d shca0 -D {n} 10.0.1.2",
    ),
    perftest(
        "ib_write_bw",
        "{run} ib_write_bw -F -d shca1 -D {n}",
        "{run} ib_write_bw -F -d shca0 -D {n} 10.0.0.2",
    ),
    perftest(
        "ib_write_bw-b",
        "{run} ib_write_bw -F -b -d shca1 -D {n}",
        "{run} ib_write_bw -F -b -d shca0 -D {n} 10.0.0.2",
    ),
    perftest(
        "ib_read_bw-R",
        "{run} ib_read_bw -F -R -d shca1 -D {n}",
        "{run} ib_read_bw -F -R -d shca0 -D {n} 10.0.1.2",
    ),
    perftest(
        "ib_read_bw",
        "{run} ib_read_bw -F -d shca1 -D {n}",
        "{run} ib_read_bw -F -d shca0 -D {n} 10.0.0.2",
    ),
    perftest(
        "ib_read_bw-b",
        "{run} ib_read_bw -F -b -d shca1 -D {n}",
        "{run} ib_read_bw -F -b -d shca0 -D {n} 10.0.0.2",
    ),
    perftest(
        "ib_write_lat-R",
        "{run} ib_write_lat -F -R -d shca1 -D {n}",
        "{run} ib_write_lat -F -R -d shca0 -D {n} 10.0.1.2",
    ),
    perftest(
        "ib_write_lat",
        "{run} ib_write_lat -F -d shca1 -D {n}",
        "{run} ib_write_lat -F -d shca0 -D {n} 10.0.0.2",
    ),
];

const fn rdma_cm(name: &'static str, server: &'static str, client: &'static str) -> Row {
    Row::new(Family::RdmaCm, name, server, client)
}

const RDMA_CM: &[Row] = &[
    Row {
        amount: Amount::Units(200, 1_000_000),
        data: Data::Checked,
        ..rdma_cm(
            "rping",
            "{run} rping -s -a 10.0.1.2 -V -S 4000 -C {n}",
            "{run} rping -c -I 10.0.1.1 -a 10.0.1.2 -V -S 4000 -C {n}",
        )
    },
    Row {
        amount: Amount::Units(4, 1_000_000),
        data: Data::Checked,
        ..rdma_cm(
            "rstream",
            "{run} rstream -b 10.0.1.2 -T b -T v -S 16384 -C 64 -I {n}",
            "{run} rstream -b 10.0.1.1 -s 10.0.1.2 -T b -T v -S 16384 -C 64 -I {n}",
        )
    },
    Row {
        amount: Amount::Units(4, 1_000_000),
        data: Data::Checked,
        ..rdma_cm(
            "riostream",
            "{run} riostream -b 10.0.1.2 -T b -T v -S 16384 -C 64 -I {n}",
            "{run} riostream -b 10.0.1.1 -s 10.0.1.2 -T b -T v -S 16384 -C 64 -I {n}",
        )
    },
    // fio makes its random numbers much faster than the kernel does.
    Row {
        before: Some(
            "cd /tmp && rm -f copied && \
             { [ -e original ] || { fio --name=original --filename=original.part --rw=write \
             --bs=1000000 --size=400000000 --refill_buffers && mv original.part original; }; }",
        ),
        server_ends: false,
        amount: Amount::Units(1, 1),
        data: Data::Compared("cmp /tmp/original /tmp/copied"),
        ..rdma_cm(
            "rcopy",
            "{run} rcopy",
            "{run} rcopy /tmp/original 10.0.1.2:/tmp/copied",
        )
    },
    // All messages are posted at once, so their number is bounded by the queue's; they grow.
    Row {
        amount: Amount::Units(8_192, 8_388_608),
        says: Some("return status 0"),
        ..rdma_cm(
            "ucmatose",
            "{run} ucmatose -b 10.0.1.2 -C 1000 -S {n}",
            "{run} ucmatose -b 10.0.1.1 -s 10.0.1.2 -C 1000 -S {n}",
        )
    },
    // Its results come by TCP, over the same cables; it waits 5 s for them if not told otherwise.
    Row {
        server_ends: false,
        says: Some("bw "),
        ..rdma_cm(
            "qperf-cm1",
            "{run} qperf",
            "{run} qperf -cm1 -to 60 -t {n} 10.0.1.2 rc_bw",
        )
    },
    // A job of fio's is a process of its own otherwise, which survives fio's and keeps its address.
    Row {
        amount: Amount::Units(64, 1_000_000),
        ..rdma_cm(
            "fio-write",
            "{run} fio --thread --name=server --ioengine=rdma --port=7490 --bs=64k --rw=read --size={n}m",
            "{run} fio --thread --name=client --ioengine=rdma --hostname=10.0.1.2 --port=7490 --verb=write \
             --bs=64k --rw=write --size={n}m",
        )
    },
    Row {
        amount: Amount::Units(64, 1_000_000),
        ..rdma_cm(
            "fio-read",
            "{run} fio --thread --name=server --ioengine=rdma --port=7490 --bs=64k --rw=read --size={n}m",
            "{run} fio --thread --name=client --ioengine=rdma --hostname=10.0.1.2 --port=7490 --verb=read \
             --bs=64k --rw=write --size={n}m",
        )
    },
];

const LIBFABRIC: &[Row] = &[Row {
    amount: Amount::Units(500, 10_000_000),
    data: Data::Checked,
    ..Row::new(
        Family::Libfabric,
        "fi_pingpong",
        "{run} fi_pingpong -p verbs -e msg -c -S 4096 -I {n}",
        "{run} fi_pingpong -p verbs -e msg -c -S 4096 -I {n} 10.0.1.2",
    )
}];

/// `rc_v`: rc_verbs, and UD to wire it up. rc_mlx5 and its kind are for hardware that is not here.
const UCX: &[Row] = &[
    Row {
        amount: Amount::Units(1_000, 100_000_000),
        ..Row::new(
            Family::Ucx,
            "ucx_perftest",
            "env UCX_TLS=rc_v {run} ucx_perftest",
            "env UCX_TLS=rc_v {run} ucx_perftest 10.0.0.2 -t tag_bw -s 65536 -w 10 -n {n}",
        )
    },
    // When its connection has broken it connects once more, for 20 s if not told otherwise: that is longer
    // than it has left in a black hole, and at its time it ends with success.
    Row {
        server_ends: false,
        data: Data::Checked,
        ..Row::new(
            Family::Ucx,
            "io_demo",
            "env UCX_TLS=rc_v {run} io_demo -q",
            "env UCX_TLS=rc_v {run} io_demo -q -c 1 -n 5 -i 0 -l {n}s -o read,write 10.0.1.2",
        )
    },
    Row {
        amount: Amount::Units(1_000, 100_000_000),
        server_ends: false,
        ..Row::new(
            Family::Ucx,
            "ucp_client_server",
            "env UCX_TLS=rc_v {run} ucp_client_server -c tag -s 8192 -i {n}",
            "env UCX_TLS=rc_v {run} ucp_client_server -c tag -s 8192 -i {n} -a 10.0.1.2",
        )
    },
];

/// Ranks 0 and 1 on the two hosts, started by mpirun on host A.
macro_rules! mpi {
    ($name:literal, $exchange:literal) => {
        Row {
            data: Data::Checked,
            ..Row::new(
                Family::Mpi,
                $name,
                "",
                concat!(
                    "mpi-agent host-a orterun --allow-run-as-root ",
                    "--mca plm_rsh_agent mpi-agent --mca oob_tcp_if_include eth0 ",
                    "--mca pml ucx --mca btl self -x UCX_TLS=rc_v,self ",
                    "-np 2 --host host-a,host-b {run} mpi_check ",
                    $exchange,
                    " {n}"
                ),
            )
        }
    };
}

const MPI: &[Row] = &[
    mpi!("mpi-pingpong", "pingpong"),
    mpi!("mpi-alltoall", "alltoall"),
];

/// Of what nothing can be preloaded into.
const BY_THE_KERNEL: &[Way] = &[Way::Kernel];

const fn kernel(name: &'static str, server: &'static str, client: &'static str) -> Row {
    Row {
        ready: Some("ready"),
        server_ends: false,
        data: Data::Checked,
        ways: BY_THE_KERNEL,
        end: End::ToldTo("block_writer"),
        // Of the kernel's own timers the shortest is NVMe's keep-alive, 5 s.
        tolerates: Duration::from_secs(5),
        ..Row::new(Family::Kernel, name, server, client)
    }
}

/// A writer that bypasses the page cache and reads back what it wrote.
const KERNEL: &[Row] = &[
    Row {
        world: Kind::Flat,
        after: Some("srp forget"),
        ..kernel("srp", "srp target", "srp initiator {n}")
    },
    Row {
        world: Kind::Flat,
        after: Some("nvme-rdma forget"),
        ..kernel("nvme", "nvme-rdma target", "nvme-rdma host {n}")
    },
    Row {
        world: Kind::Flat,
        // Its connection outlives the sockets.
        after: Some("rds forget"),
        end: End::Told,
        ..kernel("rds", "rds server", "rds client {n}")
    },
    Row {
        after: Some("nfs-rdma stop"),
        ..kernel("nfs", "nfs-rdma server", "nfs-rdma client {n}")
    },
];

macro_rules! peers {
    ($name:literal, $options:literal) => {
        peers!($name, "{run} cm_peers", $options)
    };
    ($name:literal, $program:literal, $options:literal) => {
        Row {
            ready: Some("ready"),
            data: Data::Checked,
            ..Row::new(
                Family::Many,
                $name,
                concat!($program, " ", $options, " 10.0.1.2"),
                concat!($program, " ", $options, " -d {n} -c 10.0.1.1 10.0.1.2"),
            )
        }
    };
}

const MANY: &[Row] = &[
    Row {
        connections: 100,
        ..peers!("connections-100", "-n 100 -t 6")
    },
    peers!("fork-exec", "-f"),
    peers!("dlopen", "-l"),
    peers!("own-qps", "-o"),
    // Calls by the handle of libibverbs, which the library cannot see: nothing is preloaded.
    Row {
        ways: BY_THE_KERNEL,
        ..peers!("by-handle", "cm_peers", "-o -v")
    },
    // The same with the library in its place, as a variable names it for NCCL.
    peers!(
        "as-libibverbs",
        "env VERBS_LIBRARY=/usr/lib/x86_64-linux-gnu/rdmacm-apm/librdmacm-apm.so {run} cm_peers",
        "-o -v"
    ),
    // What it still has when it ends is no matter here.
    peers!(
        "address-sanitizer",
        "env ASAN_OPTIONS=detect_leaks=0 {run} cm_peers_asan",
        ""
    ),
    Row {
        ways: BY_THE_KERNEL,
        ..peers!("static", "cm_peers_static", "-o")
    },
    peers!("deaf-listener", "-e"),
];

fn all() -> impl Iterator<Item = &'static Row> {
    ALL.iter().copied().flatten()
}

/// The row with this name.
#[cfg(test)]
pub(super) fn find(name: &str) -> Option<&'static Row> {
    all().find(|row| row.name == name)
}

/// What `--only` can name: families, and rows.
pub(crate) fn names() -> Vec<&'static str> {
    let mut names: Vec<_> = all().map(|row| row.family.name()).collect();
    names.dedup();
    names.extend(all().map(|row| row.name));
    names
}

/// The rows to run: those that `only` names, or all; in the short form, a few.
pub(super) fn chosen(only: &[String], short: bool) -> Vec<&'static Row> {
    let named = |row: &&Row| {
        let is_it = |name: &String| name == row.name || name == row.family.name();
        only.iter().any(is_it) || (only.is_empty() && (!short || SHORT.contains(&row.name)))
    };
    all().filter(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_xtask_knows_the_names() {
        let kept: Vec<_> = include_str!("../../../programs.txt").lines().collect();
        assert_eq!(kept, names(), "programs.txt is what --only can name");
    }

    #[test]
    fn rows_have_names_of_their_own() {
        let names = names();
        for name in &names {
            assert_eq!(names.iter().filter(|other| other == &name).count(), 1);
        }
        assert!(SHORT.iter().all(|name| find(name).is_some()));
        assert!(all().all(|row| row.ways.contains(&Way::Kernel)));
    }

    #[test]
    fn rows_are_chosen_by_name_by_family_or_for_the_short_form() {
        let chosen = |only: &[&str], short| {
            let only: Vec<_> = only.iter().map(ToString::to_string).collect();
            chosen(&only, short)
        };
        assert_eq!(chosen(&[], false).len(), all().count());
        assert_eq!(chosen(&[], true).len(), SHORT.len());
        assert_eq!(
            chosen(&["rping", "perftest"], true).len(),
            PERFTEST.len() + 1
        );
    }

    #[test]
    fn what_the_library_protects_it_is_preloaded_into_at_both_ends() {
        for row in all() {
            for line in [row.server, row.client] {
                let preloaded = line.is_empty() || line.contains("{run} ");
                let can_be = row.ways.contains(&Way::Library);
                assert_eq!(preloaded, can_be, "{}", row.name);
            }
        }
    }
}
