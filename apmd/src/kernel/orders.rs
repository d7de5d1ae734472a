// SPDX-License-Identifier: MIT OR Apache-2.0
//! Orders that the module has not answered.

use std::collections::BTreeMap;

use cm_msgs::control::Report;
use statemachine::ConnId;

use crate::io::apm_module::Cookie;

/// What the answer to an order is to the engine, and the engine's token; or to a library.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Answer {
    Order(u32),
    Query(u32),
    /// What a registration of the queue pair is held against.
    Registration(ConnId),
    /// How the queue pair is of which this was reported.
    Report(ConnId, Report),
    /// It waits for none.
    None,
}

/// Orders' tokens are smaller; peers are named by others.
pub(crate) const TOKENS: u32 = 1 << 31;

/// By queue pair, and by the token that the module knows.
#[derive(Debug, Default)]
pub(super) struct Orders {
    waiting: BTreeMap<(Cookie, u32), Answer>,
    /// A refusal names no more. Thousands may come at once.
    by_token: BTreeMap<u32, Cookie>,
    last_token: u32,
}

impl Orders {
    /// The order's token, never 0.
    pub(super) fn add(&mut self, cookie: Cookie, answer: Answer) -> u32 {
        self.last_token = match self.last_token {
            last if last < TOKENS - 1 => last + 1,
            _ => 1,
        };
        self.waiting.insert((cookie, self.last_token), answer);
        self.by_token.insert(self.last_token, cookie);
        self.last_token
    }

    /// An order is answered.
    pub(super) fn take(&mut self, cookie: Cookie, token: u32) -> Option<Answer> {
        let answer = self.waiting.remove(&(cookie, token))?;
        self.by_token.remove(&token);
        Some(answer)
    }

    /// The queue pair that was given the order with this token.
    pub(super) fn with_token(&self, token: u32) -> Option<Cookie> {
        self.by_token.get(&token).copied()
    }

    /// A queue pair is gone: what nobody answers any more.
    pub(super) fn forget(&mut self, cookie: Cookie) -> Vec<Answer> {
        let of_it = (cookie, 0)..=(cookie, u32::MAX);
        let gone = self.waiting.extract_if(of_it, |_, _| true);
        let gone = gone.map(|((_, token), answer)| {
            self.by_token.remove(&token);
            answer
        });
        gone.collect()
    }

    /// Answers may have been lost: to which orders, as they were given.
    pub(super) fn clear(&mut self) -> Vec<(Cookie, Answer)> {
        self.by_token.clear();
        let all = std::mem::take(&mut self.waiting);
        let all = all.into_iter();
        all.map(|((cookie, _), answer)| (cookie, answer)).collect()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.by_token.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leads_to_its_queue_pair_while_it_waits() {
        let mut orders = Orders::default();
        let tokens = [7, 8, 8].map(|cookie| orders.add(Cookie(cookie), Answer::None));
        let cookies = |orders: &Orders| tokens.map(|token| orders.with_token(token).map(|it| it.0));
        assert_eq!(cookies(&orders), [Some(7), Some(8), Some(8)]);
        // Another's token is nobody's.
        assert_eq!(orders.take(Cookie(7), tokens[1]), None);
        assert_eq!(orders.take(Cookie(8), tokens[1]), Some(Answer::None));
        assert_eq!(cookies(&orders), [Some(7), None, Some(8)]);
        assert_eq!(orders.forget(Cookie(8)), [Answer::None]);
        assert_eq!(cookies(&orders), [Some(7), None, None]);
        orders.clear();
        assert!(orders.is_empty());
    }
}
