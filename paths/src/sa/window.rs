// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many requests may be on their way to the SA through one port. No protocol tells it: MLNX_OFED lets 16 through a port and
//! drops the rest after 20 ms, an SA drops what its queue cannot hold. So the number grows as long as answers come, and is
//! halved when requests are lost, as TCP's window is (RFC 5681).

use std::collections::BTreeMap;

use statemachine::PortId;

/// What every port is trusted with at first, as far as the limit allows: what MLNX_OFED lets through.
const FIRST: usize = 16;

/// No loss makes it fewer: one port that reaches no SA has its requests time out beside each other.
const LEAST: usize = 4;

/// The state of a port's window, for operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowView {
    /// The port.
    pub port: PortId,
    /// How many requests may be on their way at the same time.
    pub size: usize,
    /// How many are.
    pub under_way: usize,
    /// How often it was made smaller.
    pub reductions: u64,
}

/// One request on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    port: PortId,
    /// Its place in the order in which requests left by that port.
    number: u64,
    is_path: bool,
}

impl Slot {
    /// The port by which it left.
    pub(super) fn port(self) -> PortId {
        self.port
    }
}

#[derive(Debug)]
struct Window {
    size: usize,
    /// From here on it grows by one for a whole window of answers, below it by one for each answer.
    threshold: usize,
    /// Answers since it grew last.
    answers: usize,
    under_way: usize,
    /// Of these, those that are no path queries.
    others: usize,
    sent: u64,
    /// The last request that left no room for another.
    full_at: u64,
    /// What was sent before this request was lost by the cause that has halved the window already.
    halved_at: u64,
    reductions: u64,
}

/// The windows of all ports.
#[derive(Debug)]
pub(super) struct Windows {
    most: usize,
    of_ports: BTreeMap<PortId, Window>,
}

impl Windows {
    /// No window becomes larger than `most`.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            of_ports: BTreeMap::new(),
        }
    }

    /// Nothing holds back what is sent from now on.
    pub(super) fn lift(&mut self) {
        self.most = usize::MAX;
        for window in self.of_ports.values_mut() {
            window.size = usize::MAX;
        }
    }

    fn window(&mut self, port: PortId) -> &mut Window {
        let most = self.most;
        self.of_ports.entry(port).or_insert(Window {
            size: match most {
                usize::MAX => most,
                most => most.min(FIRST),
            },
            threshold: most,
            answers: 0,
            under_way: 0,
            others: 0,
            sent: 0,
            full_at: 0,
            halved_at: 0,
            reductions: 0,
        })
    }

    /// Whether a request may leave by a port now. Path queries have three quarters of it to themselves: a table that does
    /// not come takes its place for ten seconds.
    pub(super) fn has_room(&self, port: PortId, is_path: bool) -> bool {
        let window = self.of_ports.get(&port);
        window.is_none_or(|window| {
            window.under_way < window.size && (is_path || window.others < window.size.div_ceil(4))
        })
    }

    /// A request leaves.
    pub(super) fn take(&mut self, port: PortId, is_path: bool) -> Slot {
        let window = self.window(port);
        window.under_way += 1;
        window.others += usize::from(!is_path);
        window.sent += 1;
        if window.under_way >= window.size {
            window.full_at = window.sent;
        }
        Slot {
            port,
            number: window.sent,
            is_path,
        }
    }

    /// A request is not on its way any more; that says nothing of others.
    pub(super) fn release(&mut self, slot: Slot) {
        let window = self.window(slot.port);
        window.under_way = window.under_way.saturating_sub(1);
        window.others = window.others.saturating_sub(usize::from(!slot.is_path));
    }

    /// A request was answered.
    pub(super) fn answered(&mut self, slot: Slot) {
        self.release(slot);
        let most = self.most;
        let window = self.window(slot.port);
        // A window that is not used up tells nothing of a larger one.
        if slot.number > window.full_at || window.size >= most {
            return;
        }
        window.answers += 1;
        if window.size < window.threshold || window.answers >= window.size {
            window.size += 1;
            window.answers = 0;
        }
    }

    /// A request was lost, or rejected as busy: others of those that left before now may be, by the same
    /// cause.
    pub(super) fn lost(&mut self, slot: Slot) {
        self.release(slot);
        let window = self.window(slot.port);
        if slot.number <= window.halved_at || window.size == usize::MAX {
            return;
        }
        window.halved_at = window.sent;
        window.answers = 0;
        window.threshold = (window.size / 2).max(LEAST);
        if window.size > window.threshold {
            window.size = window.threshold;
            window.reductions += 1;
        }
    }

    /// Another SA answers on this port, or the same has started again: what was measured with the one before does not count.
    pub(super) fn forget(&mut self, port: PortId) {
        let most = self.most;
        if let Some(window) = self.of_ports.get_mut(&port)
            && window.size != usize::MAX
        {
            window.size = most.min(FIRST);
            window.threshold = most;
            window.halved_at = window.sent;
        }
    }

    pub(super) fn views(&self) -> impl Iterator<Item = WindowView> {
        self.of_ports.iter().map(|(port, window)| WindowView {
            port: *port,
            size: window.size,
            under_way: window.under_way,
            reductions: window.reductions,
        })
    }
}

#[cfg(test)]
mod tests {
    use cm_msgs::Guid;

    use super::*;

    const PORT: PortId = PortId {
        node_guid: Guid(9),
        port: 1,
    };

    fn size(windows: &Windows) -> usize {
        windows.views().next().expect("a window").size
    }

    fn fill(windows: &mut Windows) -> Vec<Slot> {
        let mut slots = Vec::new();
        while windows.has_room(PORT, true) {
            slots.push(windows.take(PORT, true));
        }
        slots
    }

    /// A round trip in which all but `capacity` requests are lost.
    fn round(windows: &mut Windows, capacity: usize) -> usize {
        let slots = fill(windows);
        for (at, &slot) in slots.iter().enumerate() {
            match at < capacity {
                true => windows.answered(slot),
                false => windows.lost(slot),
            }
        }
        slots.len()
    }

    #[test]
    fn it_doubles_until_the_limit_while_all_is_answered() {
        let mut windows = Windows::new(100);
        let rounds: Vec<usize> = (0..10).map(|_| round(&mut windows, 1000)).collect();
        assert_eq!(rounds[0], FIRST);
        assert!(rounds.is_sorted() && rounds[9] == 100, "{rounds:?}");
        assert_eq!(Windows::new(3).window(PORT).size, 3);
    }

    #[test]
    fn it_settles_at_what_gets_through() {
        let mut windows = Windows::new(512);
        let rounds: Vec<usize> = (0..200).map(|_| round(&mut windows, 16)).collect();
        let sent: usize = rounds[20..].iter().sum();
        let lost: usize = rounds[20..]
            .iter()
            .map(|round| round.saturating_sub(16))
            .sum();
        assert!(rounds[20..].iter().all(|&round| round <= 17), "{rounds:?}");
        assert!(lost * 20 < sent, "{lost} of {sent} lost");
        assert!(sent > 180 * 10, "{sent} in 180 rounds");
    }

    #[test]
    fn one_cause_halves_it_once_and_nothing_below_the_least() {
        let mut windows = Windows::new(64);
        let slots = fill(&mut windows);
        slots.into_iter().for_each(|slot| windows.lost(slot));
        assert_eq!(size(&windows), FIRST / 2);
        for _ in 0..10 {
            round(&mut windows, 0);
        }
        assert_eq!(size(&windows), LEAST);
        assert_eq!(windows.views().next().map(|view| view.reductions), Some(2));
        windows.forget(PORT);
        assert_eq!(size(&windows), FIRST);
    }

    #[test]
    fn a_few_requests_at_a_time_prove_nothing() {
        let mut windows = Windows::new(512);
        for _ in 0..1000 {
            let slot = windows.take(PORT, true);
            windows.answered(slot);
        }
        assert_eq!(size(&windows), FIRST);
    }

    #[test]
    fn nothing_is_held_back_once_it_is_lifted() {
        let mut windows = Windows::new(4);
        fill(&mut windows);
        windows.lift();
        let slot = windows.take(PORT, true);
        windows.lost(slot);
        let other = PortId { port: 2, ..PORT };
        for _ in 0..100 {
            assert!(windows.has_room(PORT, true) && windows.has_room(other, true));
            windows.take(PORT, true);
            windows.take(other, true);
        }
    }
}
