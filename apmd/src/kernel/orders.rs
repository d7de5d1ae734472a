// SPDX-License-Identifier: MIT OR Apache-2.0
//! Orders that the module has not answered.

use std::collections::BTreeMap;

use crate::io::apm_module::Cookie;

/// What the answer to an order is to the engine, and the engine's token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    Order(u32),
    Query(u32),
    /// It waits for none.
    None,
}

/// By queue pair, and by the token that the module knows.
#[derive(Debug, Default)]
pub(super) struct Orders {
    waiting: BTreeMap<(Cookie, u32), Answer>,
    last_token: u32,
}

impl Orders {
    /// The order's token. The greatest is never one, nor is 0.
    pub(super) fn add(&mut self, cookie: Cookie, answer: Answer) -> u32 {
        self.last_token = match self.last_token {
            last if last < u32::MAX - 1 => last + 1,
            _ => 1,
        };
        self.waiting.insert((cookie, self.last_token), answer);
        self.last_token
    }

    /// An order is answered.
    pub(super) fn take(&mut self, cookie: Cookie, token: u32) -> Option<Answer> {
        self.waiting.remove(&(cookie, token))
    }

    /// The queue pair that was given the order with this token.
    pub(super) fn with_token(&self, token: u32) -> Option<Cookie> {
        let mut waiting = self.waiting.keys();
        let (cookie, _) = waiting.find(|(_, waiting)| *waiting == token)?;
        Some(*cookie)
    }

    /// A queue pair is gone.
    pub(super) fn forget(&mut self, cookie: Cookie) {
        let waiting = self.waiting.range((cookie, 0)..=(cookie, u32::MAX));
        for key in waiting.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.waiting.remove(&key);
        }
    }

    /// Answers may have been lost.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
