// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a drill says to people while it runs, apart from what came of it.

use std::fmt::Display;

/// Where a drill speaks, and how much it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Narration {
    stream: Option<Stream>,
    events: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stream {
    Stdout,
    Stderr,
}

impl Narration {
    /// Says nothing.
    pub const SILENT: Self = Self {
        stream: None,
        events: false,
    };

    /// On stdout; on stderr if that is for `json`. Without what happens, if `quiet`.
    pub fn new(json: bool, quiet: bool) -> Self {
        let stream = if json { Stream::Stderr } else { Stream::Stdout };
        Self {
            stream: Some(stream),
            events: !quiet,
        }
    }

    /// Says a line, or several.
    pub fn say(self, text: impl Display) {
        match self.stream {
            Some(Stream::Stdout) => println!("{text}"),
            Some(Stream::Stderr) => eprintln!("{text}"),
            None => {}
        }
    }

    /// Says that something has happened.
    pub fn event(self, text: impl Display) {
        if self.events {
            self.say(text);
        }
    }
}
