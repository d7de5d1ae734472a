// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a library was told of migrating by itself.

/// What the library was told last. Messages to it keep their order, so that this is what holds there
/// once it has read them.
#[derive(Default, Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct StandingOrder {
    /// `None`: an earlier daemon may have told it something, or a load that failed has taken back
    /// what was said with it.
    pub(super) told: Option<bool>,
}

impl StandingOrder {
    /// Whether the library has one.
    pub(super) fn holds(&self) -> bool {
        self.told == Some(true)
    }

    /// A load order goes out, and says this of the time after it.
    pub(super) fn load(&mut self, standing: bool) {
        self.told = Some(standing);
    }

    /// The load order is over.
    pub(super) fn load_ended(&mut self, done: bool) {
        if !done {
            self.told = None;
        }
    }

    /// The QP has left the primary for which the order was given. `loading`: another was given with a load that is
    /// not over.
    pub(super) fn moved(&mut self, loading: bool) {
        if !loading {
            self.told = Some(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_library_was_told_last_is_known_or_it_is_told_again() {
        let mut standing = StandingOrder::default();
        assert!(!standing.holds() && standing.told.is_none());
        standing.load(true);
        standing.load_ended(true);
        assert!(standing.holds());
        // A library that could not load may have forgotten what it was told before.
        standing.load(true);
        standing.load_ended(false);
        assert_eq!(standing.told, None);
    }

    #[test]
    fn an_order_ends_with_the_primary_that_it_was_given_for() {
        let mut standing = StandingOrder::default();
        standing.load(true);
        standing.moved(true);
        assert!(standing.holds(), "it came with the load for the new one");
        standing.moved(false);
        assert_eq!(standing.told, Some(false));
    }
}
