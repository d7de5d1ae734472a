// SPDX-License-Identifier: MIT OR Apache-2.0
//! Codecs for InfiniBand CM and SA messages and for apmd's client protocol.
