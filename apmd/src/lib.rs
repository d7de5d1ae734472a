// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon that keeps RDMA connections armed, and apmctl.
