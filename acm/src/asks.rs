// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is asked of others: users in turn, each with its share of what is under way.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use statemachine::{FairShare, Random, Time, Timers};

use super::requester::User;

/// Questions that wait or are under way, of all users; and as many more for the privileged.
const PLACES: usize = 1024;
const RESERVED_PLACES: usize = 256;
/// Questions under way at a time; and as many more for the privileged.
const UNDER_WAY: usize = 48;
const RESERVED_UNDER_WAY: usize = 16;
/// When a question is given up whose answer was lost: later than whoever is asked would.
const LOST: Duration = Duration::from_secs(300);

/// Which numbers a list of questions has: those of two lists whose answers come the same way must not
/// meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Numbers {
    Even,
    Odd,
}

impl Numbers {
    pub(crate) fn of(number: u32) -> Self {
        match number % 2 {
            0 => Self::Even,
            _ => Self::Odd,
        }
    }
}

/// Questions of type `Q`, each for the purpose `P`.
///
/// A user who asks much waits for its own questions and not others for them: whoever has questions
/// waiting has his turn, and of what may be under way each user gets a fair share.
#[derive(Debug)]
pub(crate) struct Asks<Q, P> {
    numbers: Numbers,
    random: Random,
    asks: HashMap<u32, Ask<Q, P>>,
    /// Numbers that wait, by user. A question may wait for several users, or be under way already.
    turns: BTreeMap<User, VecDeque<u32>>,
    /// Users with questions that wait, in the order of their turns.
    order: VecDeque<User>,
    places: FairShare<User>,
    under_way: FairShare<User>,
    lost: Timers<u32>,
}

#[derive(Debug)]
struct Ask<Q, P> {
    question: Q,
    purpose: P,
    user: User,
    /// Whose share of what is under way it takes; `None`: it waits.
    sent_for: Option<User>,
}

impl<Q: Copy, P> Asks<Q, P> {
    /// None; `random` makes the numbers hard to guess.
    pub(crate) fn new(numbers: Numbers, random: Random) -> Self {
        Self {
            numbers,
            random,
            asks: HashMap::new(),
            turns: BTreeMap::new(),
            order: VecDeque::new(),
            places: FairShare::new(PLACES, RESERVED_PLACES),
            under_way: FairShare::new(UNDER_WAY, RESERVED_UNDER_WAY),
            lost: Timers::default(),
        }
    }

    /// Adds a question, which `make` makes with its number. The number, unless the user has too
    /// many.
    pub(crate) fn add(
        &mut self,
        now: Time,
        user: User,
        purpose: P,
        make: impl FnOnce(u32) -> Q,
    ) -> Option<u32> {
        if !self.places.take(user, 1, user.is_privileged()) {
            return None;
        }
        let number = self.new_number();
        let ask = Ask {
            question: make(number),
            purpose,
            user,
            sent_for: None,
        };
        self.asks.insert(number, ask);
        self.lost.set(number, now + LOST);
        self.enqueue(user, number);
        Some(number)
    }

    fn new_number(&mut self) -> u32 {
        loop {
            let number = self.random.nonzero_u32();
            if Numbers::of(number) == self.numbers && !self.asks.contains_key(&number) {
                return number;
            }
        }
    }

    /// Another user wants the answer as well: it need not wait for the first one's turn. `change`
    /// changes the question, if it still waits.
    pub(crate) fn join(&mut self, user: User, number: u32, change: impl FnOnce(&mut Q)) {
        if let Some(ask) = self.asks.get_mut(&number)
            && ask.sent_for.is_none()
            && ask.user != user
        {
            change(&mut ask.question);
            self.enqueue(user, number);
        }
    }

    fn enqueue(&mut self, user: User, number: u32) {
        let turns = self.turns.entry(user).or_default();
        if turns.is_empty() {
            self.order.push_back(user);
        }
        if turns.len() >= 2 * PLACES {
            // Most of these were asked for others meanwhile.
            turns.retain(|number| {
                self.asks
                    .get(number)
                    .is_some_and(|ask| ask.sent_for.is_none())
            });
        }
        turns.push_back(number);
    }

    /// The next question to ask.
    pub(crate) fn next(&mut self) -> Option<Q> {
        for _ in 0..self.order.len() {
            let user = self.order.pop_front()?;
            let question = self.next_of(user);
            if self.turns.contains_key(&user) {
                self.order.push_back(user);
            }
            if question.is_some() {
                return question;
            }
        }
        None
    }

    fn next_of(&mut self, user: User) -> Option<Q> {
        let turns = self.turns.get_mut(&user)?;
        let waits = |number: &u32| {
            let ask = self.asks.get(number);
            ask.is_some_and(|ask| ask.sent_for.is_none())
        };
        while turns.front().is_some_and(|number| !waits(number)) {
            turns.pop_front();
        }
        let mut question = None;
        if let Some(number) = turns.front()
            && self.under_way.take(user, 1, user.is_privileged())
            && let Some(ask) = self.asks.get_mut(number)
        {
            ask.sent_for = Some(user);
            question = Some(ask.question);
            turns.pop_front();
        }
        if turns.is_empty() {
            self.turns.remove(&user);
        }
        question
    }

    /// A question is answered, or is not to be asked any more: its purpose.
    pub(crate) fn done(&mut self, number: u32) -> Option<P> {
        let ask = self.asks.remove(&number)?;
        self.lost.cancel(&number);
        self.places.give_back(ask.user, 1);
        if let Some(user) = ask.sent_for {
            self.under_way.give_back(user, 1);
        }
        Some(ask.purpose)
    }

    /// A question whose answer was lost.
    pub(crate) fn lost(&mut self, now: Time) -> Option<u32> {
        self.lost.expired(now)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.lost.next()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const NOW: Time = Time(0);

    fn asks() -> Asks<u32, ()> {
        Asks::new(Numbers::Even, Random::new([7; 32]))
    }

    fn flood(asks: &mut Asks<u32, ()>, user: User) -> Vec<u32> {
        let more = || asks.add(NOW, user, (), |number| number);
        std::iter::from_fn(more).take(100_000).collect()
    }

    fn drain(asks: &mut Asks<u32, ()>) -> Vec<u32> {
        std::iter::from_fn(|| asks.next()).collect()
    }

    #[test]
    fn a_flood_of_one_user_neither_fills_all_places_nor_takes_all_that_may_be_under_way() {
        let mut asks = asks();
        let flooded = flood(&mut asks, User::Local(1));
        assert!(flooded.len() <= PLACES * 3 / 4, "{}", flooded.len());
        let sent = drain(&mut asks);
        assert!(sent.len() <= UNDER_WAY * 3 / 4, "{}", sent.len());
        let other = asks.add(NOW, User::Local(2), (), |number| number);
        assert_eq!(drain(&mut asks), [other.unwrap()], "at once");
        let kernel = asks.add(NOW, User::Kernel, (), |number| number);
        assert_eq!(drain(&mut asks), [kernel.unwrap()]);
        // What ends makes room, and users have it in turn.
        flood(&mut asks, User::Local(2));
        let rest = drain(&mut asks);
        for number in sent.iter().chain(&rest) {
            asks.done(*number).unwrap();
        }
        let next = drain(&mut asks);
        let of_first = next.iter().filter(|number| flooded.contains(number));
        assert!(of_first.clone().count() > 0 && of_first.count() < next.len());
    }

    #[test]
    fn whoever_wants_the_same_does_not_wait_for_the_first_ones_turn() {
        let mut asks = asks();
        let flooded = flood(&mut asks, User::Local(1));
        drain(&mut asks);
        let last = *flooded.last().unwrap();
        asks.join(User::Local(2), last, |_| {});
        assert_eq!(drain(&mut asks), [last]);
        asks.join(User::Local(3), last, |_| {});
        assert_eq!(drain(&mut asks), [], "it is under way");
        assert!(asks.done(last).is_some() && asks.done(last).is_none());
    }

    #[test]
    fn what_is_done_leaves_nothing() {
        let mut asks = asks();
        for number in flood(&mut asks, User::Recheck) {
            asks.done(number);
        }
        assert_eq!(drain(&mut asks), []);
        assert_eq!((asks.places.total(), asks.under_way.total()), (0, 0));
        assert!(asks.turns.is_empty() && asks.order.is_empty());
        assert_eq!(asks.poll_timeout(), None);
    }

    #[test]
    fn numbers_of_two_lists_do_not_meet_and_none_says_the_next() {
        let numbers = |numbers, seed| {
            let mut asks: Asks<u32, ()> = Asks::new(numbers, Random::new([seed; 32]));
            flood(&mut asks, User::Kernel)
        };
        let even = numbers(Numbers::Even, 7);
        assert!(
            even.iter()
                .all(|number| Numbers::of(*number) == Numbers::Even)
        );
        let odd = numbers(Numbers::Odd, 7);
        assert!(
            odd.iter()
                .all(|number| Numbers::of(*number) == Numbers::Odd)
        );
        let steps: BTreeSet<_> = even
            .windows(2)
            .map(|pair| pair[1].wrapping_sub(pair[0]))
            .collect();
        assert_eq!(steps.len(), even.len() - 1, "no step occurs twice");
    }

    #[test]
    fn a_number_in_use_is_not_drawn_again() {
        let mut asks = asks();
        let first = asks.add(NOW, User::Kernel, (), |number| number).unwrap();
        asks.random = Random::new([7; 32]);
        let second = asks.add(NOW, User::Kernel, (), |number| number).unwrap();
        assert_ne!(first, second);
        asks.done(first);
        asks.random = Random::new([7; 32]);
        let again = asks.add(NOW, User::Kernel, (), |number| number);
        assert_eq!(again, Some(first), "the stream begins with it");
    }

    #[test]
    fn an_answer_that_is_lost_is_not_waited_for() {
        let mut asks = asks();
        let number = asks.add(NOW, User::Local(1), (), |number| number);
        let at = asks.poll_timeout().unwrap();
        assert_eq!(asks.lost(Time(at.0 - 1)), None);
        assert_eq!(asks.lost(at), number);
    }
}
