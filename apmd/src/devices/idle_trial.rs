// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a device can move idle connections: tried when it is opened. On a thread and with the device opened once
//! more, because commands to a device that hangs do not end, and the failover loop has other devices to serve.

use std::io;
use std::sync::Arc;

use mio::Waker;

use crate::io::background::Background;
use crate::io::idle_trial;
use crate::io::verbs::{self, Listed};

/// Trials that may be under way at once. A device may hang, go and come back again and again.
const MOST: usize = 16;

/// The trials under way: each holds a count of it until it ends.
#[derive(Clone, Default, Debug)]
pub(super) struct UnderWay(Arc<()>);

impl UnderWay {
    /// One more, if there may be.
    fn another(&self) -> Option<Self> {
        (Arc::strong_count(&self.0) <= MOST).then(|| self.clone())
    }
}

/// A device's trial, and what came of it.
#[derive(Default, Debug)]
pub(crate) struct IdleTrial {
    /// `None`: it is over, or never was.
    thread: Option<Background<bool>>,
    moves_idle: bool,
}

impl IdleTrial {
    pub(super) fn start(device: &Listed, under_way: &UnderWay, waker: Arc<Waker>) -> Self {
        let Some(count) = under_way.another() else {
            tracing::warn!(
                device = device.name,
                "connections without traffic are not moved: not tried, since {MOST} earlier trials have not ended; does a \
                 device hang? restart apmd when it is mended"
            );
            return Self::default();
        };
        let mut thread = Background::new("idle trial", waker);
        let device = device.clone();
        thread.start(move || {
            let result = moves_idle(&device);
            drop(count);
            result
        });
        Self {
            thread: Some(thread),
            moves_idle: false,
        }
    }

    /// A queue pair of the device was given another primary path in SQD.
    pub(crate) fn moves_idle(&self) -> bool {
        self.moves_idle
    }

    /// The thread may be done. Whether it is known from now on that the device can.
    pub(super) fn poll(&mut self) -> bool {
        let Some(result) = self.thread.as_mut().and_then(Background::poll) else {
            return false;
        };
        self.thread = None;
        self.moves_idle = result;
        result
    }
}

fn moves_idle(listed: &Listed) -> bool {
    let name = &listed.name;
    let result = verbs::Device::open(|found| found == listed).and_then(|device| try_on(&device));
    match &result {
        Ok(()) => tracing::info!(device = name, "connections without traffic can be moved"),
        Err(error) => tracing::info!(
            device = name,
            %error,
            "connections without traffic are not moved: the device did not give a queue pair of apmd's own another \
             primary path in state SQD"
        ),
    }
    result.is_ok()
}

fn try_on(device: &verbs::Device) -> io::Result<()> {
    let is_usable = |port: &u8| {
        let facts = device.port_facts(*port);
        facts.is_ok_and(|facts| facts.infiniband && !facts.grh_required)
    };
    let mut ports = (1..=device.ports).filter(is_usable);
    let without = || io::Error::other("no InfiniBand port that sends without a GRH");
    let from = ports.next().ok_or_else(without)?;
    // Over one port between two of its LIDs.
    let to = ports.next().unwrap_or(from);
    idle_trial::moves_idle(device, from, to)
}

#[cfg(test)]
mod tests {
    use cm_msgs::Guid;
    use mio::{Events, Poll, Token};

    use super::*;

    #[test]
    fn trials_under_way_are_bounded() {
        let under_way = UnderWay::default();
        let mut trials: Vec<_> = (0..MOST).map(|_| under_way.another()).collect();
        assert!(trials.iter().all(Option::is_some));
        assert!(under_way.another().is_none());
        trials.pop();
        assert!(under_way.another().is_some());
    }

    #[test]
    fn a_device_that_cannot_be_opened_moves_nothing() {
        let mut poll = Poll::new().expect("epoll");
        let waker = Waker::new(poll.registry(), Token(0)).expect("eventfd");
        let gone = Listed {
            uverbs: "uverbs999".to_owned(),
            name: "gone".to_owned(),
            node_guid: Guid(1),
        };
        let mut trial = IdleTrial::start(&gone, &UnderWay::default(), Arc::new(waker));
        let mut events = Events::with_capacity(1);
        while trial.thread.is_some() {
            poll.poll(&mut events, None).expect("woken");
            assert!(!trial.poll());
        }
        assert!(!trial.moves_idle());
    }
}
