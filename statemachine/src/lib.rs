// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sans-IO state machines that keep RDMA connections armed.
