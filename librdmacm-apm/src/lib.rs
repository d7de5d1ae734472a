// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library in the application: catches librdmacm calls and commits path changes.
