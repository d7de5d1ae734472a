// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists of findings, of which a part is shown unless all are asked for.

use std::fmt::Write;

/// Appends a line for each of the first `shown` items, and how many more there are.
pub(super) fn listed<T>(text: &mut String, list: &[T], shown: usize, line: impl Fn(&T) -> String) {
    for item in list.iter().take(shown) {
        text.push_str(&line(item));
        text.push('\n');
    }
    if list.len() > shown {
        let more = list.len() - shown;
        let _ = writeln!(text, "and {more} more like that, see them with -d");
    }
}
