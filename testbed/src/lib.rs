// SPDX-License-Identifier: MIT OR Apache-2.0
//! Worlds to run apmd in, and the drills.
