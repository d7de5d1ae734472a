// SPDX-License-Identifier: MIT OR Apache-2.0
//! ACM: the address and path service that ibacm is, for this host and with the others.

pub mod net;
