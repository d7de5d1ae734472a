// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far something is, for who looks on: a bar on a terminal, nothing elsewhere.

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

/// A bar that is gone when it is dropped.
pub(super) struct Bar(ProgressBar);

impl Bar {
    pub(super) fn new() -> Self {
        let style = ProgressStyle::with_template("{msg}: {percent} % {wide_bar} {eta}");
        let bar = ProgressBar::new(0).with_finish(ProgressFinish::AndClear);
        Self(bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
    }

    pub(super) fn show(&self, what: &str, done: u64, all: u64) {
        if self.0.message() != what {
            self.0.set_message(what.to_owned());
            self.0.reset_eta();
        }
        self.0.set_length(all);
        self.0.set_position(done);
    }
}
