// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text from others, for people.

use core::fmt::{self, Write};

/// Shows control characters as Rust writes them, `\u{1b}`: whoever can name a node must not write
/// to an operator's terminal or begin a line of a log. Escaping twice changes nothing.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|char| match char.is_control() {
            true => char.escape_default().fmt(f),
            false => f.write_char(char),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_control_characters_are_escaped() {
        let evil = "a\x1b[2J\nb\u{9b}31m\x7f";
        let shown = Escaped(evil).to_string();
        assert_eq!(shown, r"a\u{1b}[2J\nb\u{9b}31m\u{7f}");
        assert_eq!(Escaped(&shown).to_string(), shown);
        assert_eq!(Escaped(r"höst\1").to_string(), r"höst\1");
    }
}
