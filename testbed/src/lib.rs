// SPDX-License-Identifier: MIT OR Apache-2.0
//! Worlds to run apmd in, and the drills.
//!
//! A drill runs inside the VM that `cargo xtask vm` boots. It breaks things there with `cable` and
//! signals, and looks at what users could see as well: programs' output and exit status, `apmctl`,
//! the daemons' logs. Its deadlines are for what hangs; they judge no speed.
//!
//! - [`drills`]: one file each, and the registry.
//! - [`world`]: what a drill acts on: cables, the daemons of both hosts. [`port`]: their ports.
//! - [`subnet_manager`]: the subnet managers, to be killed and replaced. [`partitions`]: those they make.
//!   [`subnets`]: the numbers that two of them assign.
//! - [`unit`]: what its daemons may do, as systemd would have it.
//! - [`program`], [`stream`], [`cmtime`]: what it runs. [`observe`], [`ib_acme`], [`saquery`],
//!   [`memory`], [`wakeups`], `trace` (of the kernel's events): what it sees.
//! - [`kernel_module`], [`kernel_ulp`]: the module `apm`, and the kernel's own connections.
//! - [`witness`]: whether the VM itself had a processor. [`timeline`], [`report`]: what it says.
//! - [`bench`]: how benches print and end. [`acm_bench`]: how fast ACM is served there. [`connect_bench`]: what connecting costs. [`failover_bench`]:
//!   how long a pulled cable stops a program. [`overhead_bench`]: what the kernel module costs.
//! - [`sim`]: no drill: the real engine on many hosts in virtual time.
//! - [`runner`]: which drills run in which order, and the command line.

pub mod abuse;
pub mod acm_bench;
pub mod bench;
pub mod clock;
pub mod cmtime;
pub mod command;
pub mod connect_bench;
pub mod daemon;
pub mod drills;
pub mod fabrics;
pub mod failover_bench;
pub mod failure;
pub mod file;
pub mod host;
pub mod ib_acme;
pub mod ibsim;
pub mod kernel_module;
pub mod kernel_ulp;
pub mod link;
pub mod memory;
pub mod narration;
pub mod observe;
pub mod overhead_bench;
pub mod partitions;
pub mod patience;
pub mod port;
pub mod program;
pub mod report;
pub mod runner;
pub mod saquery;
pub mod sim;
pub mod stream;
pub mod subnet_manager;
pub mod subnets;
pub mod timeline;
mod trace;
pub mod unit;
pub mod wait;
pub mod wakeups;
pub mod witness;
pub mod world;
