// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text from others, for people.

use core::fmt::{self, Write};

/// Whether a character must not be shown raw: control characters write to a terminal or begin a line of a log;
/// format characters (Unicode's category Cf) are invisible or reorder what stands around them, so that a name
/// looks like another; U+2028 and U+2029 separate lines.
pub fn is_unprintable(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{ad}'
                | '\u{600}'..='\u{605}'
                | '\u{61c}'
                | '\u{6dd}'
                | '\u{70f}'
                | '\u{890}'..='\u{891}'
                | '\u{8e2}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{110bd}'
                | '\u{110cd}'
                | '\u{13430}'..='\u{1343f}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Shows unprintable characters as Rust writes them, `\u{1b}`: a node's name must not act on an operator's
/// terminal. Escaping twice changes nothing.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .chars()
            .try_for_each(|char| match is_unprintable(char) {
                true => char.escape_default().fmt(f),
                false => f.write_char(char),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reorders_or_hides_text_is_escaped() {
        for char in [
            '\u{202e}',
            '\u{2066}',
            '\u{200b}',
            '\u{feff}',
            '\u{2028}',
            '\u{e0041}',
        ] {
            let shown = Escaped(&format!("a{char}b")).to_string();
            assert_eq!(shown, format!("a\\u{{{:x}}}b", u32::from(char)));
        }
        assert_eq!(Escaped("שלום مرحبا").to_string(), "שלום مرحبا");
    }

    #[test]
    fn only_control_characters_are_escaped() {
        let evil = "a\x1b[2J\nb\u{9b}31m\x7f";
        let shown = Escaped(evil).to_string();
        assert_eq!(shown, r"a\u{1b}[2J\nb\u{9b}31m\u{7f}");
        assert_eq!(Escaped(&shown).to_string(), shown);
        assert_eq!(Escaped(r"höst\1").to_string(), r"höst\1");
    }
}
