// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bounded stock that users share without being able to shut each other out.

use alloc::collections::BTreeMap;

/// How many times of what is left one user may hold.
const SHARE: usize = 3;

/// One part in so many is kept for users who hold little.
const KEPT: usize = 16;

/// And that much is little: one part in so many.
const LITTLE: usize = 256;

/// A stock of which a user may hold three times what is left (the *dynamic threshold* of shared
/// packet buffers): a user alone gets three quarters, two get three sevenths each, and something is
/// always left for the next. However many users there are, sixteen more find a little. A part may be set apart for
/// the privileged.
#[derive(Clone, Debug)]
pub struct FairShare<User> {
    limit: usize,
    reserve: usize,
    held: BTreeMap<User, usize>,
    total: usize,
}

impl<User: Ord> FairShare<User> {
    /// A stock of `limit` for all, and `reserve` more for the privileged.
    pub fn new(limit: usize, reserve: usize) -> Self {
        Self {
            limit,
            reserve,
            held: BTreeMap::new(),
            total: 0,
        }
    }

    /// Changes the stock; what is held stays.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// What all hold.
    pub fn total(&self) -> usize {
        self.total
    }

    /// The most that `user` could come to hold one by one, as others hold now.
    pub fn within_reach(&self, user: &User) -> usize {
        let held = self.held.get(user).copied().unwrap_or(0);
        let free = self.limit.saturating_sub(self.total - held);
        // Where three times what is left, and one more, is what is held.
        let much = (free + 1).saturating_mul(SHARE) / (SHARE + 1);
        let much = much.min(free.saturating_sub(self.kept()));
        much.max(self.little().min(free))
    }

    /// What only those get who hold little.
    fn kept(&self) -> usize {
        self.limit / KEPT
    }

    /// What every user may have while there is any.
    fn little(&self) -> usize {
        self.limit.div_ceil(LITTLE)
    }

    /// Takes `amount` for `user`, or nothing if that is more than its share.
    #[must_use]
    pub fn take(&mut self, user: User, amount: usize, privileged: bool) -> bool {
        let held = self.held.get(&user).copied().unwrap_or(0);
        let left = self.limit.saturating_sub(self.total + amount);
        let granted = if privileged {
            // Whatever users hold, an administrator can get in and look.
            self.total + amount <= self.limit + self.reserve
        } else {
            let total = self.total + amount;
            let little = held + amount <= self.little() && total <= self.limit;
            // One more than what is left, or nobody could take the last of it.
            let fair = held + amount <= (left + 1).saturating_mul(SHARE);
            little || (fair && total + self.kept() <= self.limit)
        };
        if granted {
            *self.held.entry(user).or_default() += amount;
            self.total += amount;
        }
        granted
    }

    /// Moves `amount` that `from` holds to `to`, or nothing if that is more than the share of `to`.
    #[must_use]
    pub fn hand_over(&mut self, from: User, to: User, amount: usize, privileged: bool) -> bool
    where
        User: Clone,
    {
        self.give_back(from.clone(), amount);
        let granted = self.take(to, amount, privileged);
        if !granted {
            *self.held.entry(from).or_default() += amount;
            self.total += amount;
        }
        granted
    }

    /// Gives `amount` back.
    pub fn give_back(&mut self, user: User, amount: usize) {
        let Some(held) = self.held.get_mut(&user) else {
            return;
        };
        let amount = amount.min(*held);
        *held -= amount;
        self.total -= amount;
        if *held == 0 {
            self.held.remove(&user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(stock: &mut FairShare<u32>, user: u32) -> usize {
        core::iter::repeat_with(|| stock.take(user, 1, false))
            .take_while(|granted| *granted)
            .count()
    }

    #[test]
    fn nobody_shuts_others_out() {
        let mut stock = FairShare::new(1000, 8);
        assert_eq!(fill(&mut stock, 1), 750, "alone: three quarters");
        assert_eq!(
            fill(&mut stock, 2),
            188,
            "the second: three quarters of the rest"
        );
        for user in 3..6 {
            assert!(fill(&mut stock, user) > 0, "user {user}");
        }
        stock.give_back(1, 700);
        assert!(fill(&mut stock, 2) > 300, "what comes back is shared anew");
    }

    #[test]
    fn sixteen_find_a_little_beside_any_number() {
        let mut stock = FairShare::new(4_000, 0);
        let much: usize = (0..2).map(|user| fill(&mut stock, user)).sum();
        assert!((3_700..=3_750).contains(&much), "{much}");
        for user in 10..25 {
            assert!(fill(&mut stock, user) >= 16, "user {user}");
        }
    }

    #[test]
    fn what_is_within_reach_is_what_can_be_taken() {
        for limit in 0..50 {
            let mut stock = FairShare::new(limit, 0);
            for user in 1..5 {
                let reach = stock.within_reach(&user);
                assert_eq!(fill(&mut stock, user), reach, "user {user} of {limit}");
                assert_eq!(stock.within_reach(&user), reach, "what is held counts");
            }
        }
    }

    #[test]
    fn the_privileged_have_a_reserve() {
        let mut stock = FairShare::new(10, 2);
        while (1..20).any(|user| stock.take(user, 1, false)) {}
        assert_eq!(stock.total(), 10);
        assert!(stock.take(0, 2, true));
        assert!(!stock.take(0, 1, true));
        stock.give_back(0, 9);
        assert_eq!(stock.total(), 10, "no more comes back than was taken");
    }

    #[test]
    fn what_is_handed_over_is_of_the_others_share() {
        let mut stock = FairShare::new(100, 0);
        assert_eq!(fill(&mut stock, 1), 75);
        assert!(stock.hand_over(1, 2, 10, false));
        assert_eq!(
            (stock.total(), stock.held[&1], stock.held[&2]),
            (75, 65, 10)
        );
        let more = fill(&mut stock, 2);
        assert!(more > 0 && !stock.hand_over(1, 2, 60, false));
        assert_eq!((stock.total(), stock.held[&1]), (75 + more, 65));
        assert!(stock.hand_over(1, 0, 65, true));
        assert!(!stock.held.contains_key(&1));
    }

    #[test]
    fn a_single_place_can_be_had() {
        let mut stock = FairShare::new(1, 0);
        assert!(stock.take(7, 1, false));
        assert!(!stock.take(8, 1, false));
    }
}
