// SPDX-License-Identifier: MIT OR Apache-2.0
//! Destinations whose paths are in doubt, to be asked about in the order in which doubt was cast.

use std::collections::{HashSet, VecDeque};

use super::cache::Key;

/// A queue in which each destination is once.
#[derive(Debug, Default)]
pub(super) struct Doubtful {
    order: VecDeque<Key>,
    queued: HashSet<Key>,
}

impl Doubtful {
    /// Adds those that are not in it.
    pub(super) fn extend(&mut self, keys: impl IntoIterator<Item = Key>) {
        for key in keys {
            if self.queued.insert(key) {
                self.order.push_back(key);
            }
        }
    }

    /// Takes out the next.
    pub(super) fn pop(&mut self) -> Option<Key> {
        let key = self.order.pop_front()?;
        self.queued.remove(&key);
        Some(key)
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::endpoints::EndpointId;
    use super::*;
    use cm_msgs::Lid;
    use cm_msgs::acm::Address;

    #[test]
    fn each_is_queued_once() {
        let key = |lid| Key {
            from: EndpointId(1),
            to: Address::Lid(Lid(lid)),
        };
        let mut doubtful = Doubtful::default();
        doubtful.extend([key(1), key(2), key(1)]);
        doubtful.extend([key(2)]);
        assert_eq!(doubtful.pop(), Some(key(1)));
        doubtful.extend([key(1)]);
        let rest: Vec<_> = std::iter::from_fn(|| doubtful.pop()).collect();
        assert_eq!(rest, [key(2), key(1)]);
        assert!(doubtful.is_empty());
    }
}
