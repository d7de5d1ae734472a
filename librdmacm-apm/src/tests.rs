// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the unit tests have in common.

pub(crate) mod model;
