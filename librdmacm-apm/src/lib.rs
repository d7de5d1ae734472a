// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library in the application: catches librdmacm calls and commits path changes.
//!
//! Loaded by `LD_PRELOAD` or linked before librdmacm, it sees reliable connections come and go,
//! registers them with apmd, and carries out apmd's orders on a thread of its own: load an
//! alternate path, migrate. It decides nothing. What it catches is in [`interpose`]; the C
//! interface is `include/rdma/rdma_apm.h`.
//!
//! | module | job |
//! |---|---|
//! | `interpose` | the caught functions, and `rdma_apm.h`'s own |
//! | `change` | what a modify of the application's means |
//! | `library` | what a caught call means |
//! | `registry`, `connection` | ids, QPs, connections; who may touch a QP when |
//! | `commit`, `worker`, `link` | the commit thread: its mailbox, its loop, its socket |
//! | `peers` | whether daemons answer at peers' ports |
//! | `arrivals` | new connections, until no more come |
//! | `tracked`, `order` | one connection on that thread; carrying out an order |
//! | `idle_move` | giving a QP without traffic another primary path, in SQD |
//! | `standing` | migrating without a daemon when a local port fails |
//! | `thread` | starting the commit thread |
//! | `leak_check` | what LeakSanitizer should not look for |
//! | `settings`, `privilege` | the environment, and whether it can be trusted |
//! | `roles` | who is active where no CM says |
//! | `queue_pair`, `qp`, `device` | reading and changing a QP by verbs |
//! | `channel` | events for applications that opted in |
//! | `async_events` | noticing verbs events without consuming them |

mod arrivals;
mod async_events;
mod binding;
mod change;
mod channel;
mod commit;
mod connection;
mod device;
mod export;
mod idle_move;
mod interpose;
mod leak_check;
mod library;
mod link;
mod log;
mod option;
mod order;
mod peers;
mod privilege;
mod qp;
mod queue_pair;
mod real;
mod registry;
mod roles;
mod settings;
mod standing;
#[cfg(test)]
mod tests;
mod thread;
mod tracked;
mod worker;
