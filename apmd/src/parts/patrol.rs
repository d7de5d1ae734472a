// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rounds over all queue pairs, for those that died in silence. A completion error puts a queue pair into state error and
//! raises no event, and an application may go on for long without closing it. So the kernel is asked
//! now and then for the states of all queue pairs, and the library of each that is not in RTS any
//! more is told to look.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use cm_msgs::control::QpState;
use cm_msgs::{Guid, Qpn};
use statemachine::Time;

use crate::io::nldev::{Nldev, QueuePair};

/// How often.
const ROUND: Duration = Duration::from_secs(30);
/// Between two parts of an answer, so that failover has its turn.
const PAUSE: Duration = Duration::from_millis(1);

/// What a step of a round has come to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Queue pairs of a device.
    Found(Guid, Vec<(Qpn, QueuePair)>),
    /// There are no more of this device, or it is not there.
    Read(Guid),
    /// The kernel did not tell of this device, or not of all.
    Failed(Guid),
}

/// When to look at which device.
#[derive(Debug)]
pub(crate) struct Patrol {
    nldev: Option<Nldev>,
    at: Option<Time>,
    /// Being read.
    device: Option<Guid>,
    /// To be read in this round.
    devices: VecDeque<Guid>,
}

impl Patrol {
    /// A socket of its own: other questions would end its answers.
    pub(crate) fn new() -> Self {
        Self {
            // Who has no netlink was told when the other socket was opened.
            nldev: Nldev::open().ok(),
            at: None,
            device: None,
            devices: VecDeque::new(),
        }
    }

    /// There is something to manage.
    pub(crate) fn begin(&mut self, now: Time) {
        self.at.get_or_insert(now + ROUND);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.at.filter(|_| self.nldev.is_some())
    }

    /// A round begins now; one under way is given up.
    pub(crate) fn begin_now(&mut self, now: Time) {
        self.at = Some(now);
        self.device = None;
        self.devices.clear();
    }

    /// The next round begins then, if not sooner.
    pub(crate) fn begin_at(&mut self, at: Time) {
        self.at = Some(self.at.map_or(at, |sooner| sooner.min(at)));
    }

    pub(crate) fn is_between_rounds(&self) -> bool {
        self.device.is_none() && self.devices.is_empty()
    }

    /// Goes on, if it is time. `devices`: those to be looked at.
    pub(crate) fn handle_time(
        &mut self,
        now: Time,
        devices: impl FnOnce() -> VecDeque<Guid>,
    ) -> Option<Step> {
        if self.at.is_none_or(|at| at > now) {
            return None;
        }
        if self.device.is_none() && self.devices.is_empty() {
            self.devices = devices();
            if self.devices.is_empty() {
                // Begun again with the next connection.
                self.at = None;
                return None;
            }
        }
        let step = self.read();
        self.at = Some(
            now + if self.is_between_rounds() {
                ROUND
            } else {
                PAUSE
            },
        );
        step
    }

    /// The next part of the answer for a device, or the question for the next one.
    fn read(&mut self) -> Option<Step> {
        let nldev = self.nldev.as_mut()?;
        let Some(device) = self.device else {
            let device = self.devices.pop_front()?;
            return match nldev.begin_queue_pairs(device) {
                Ok(true) => {
                    self.device = Some(device);
                    None
                }
                Ok(false) => Some(Step::Read(device)),
                Err(error) => Some(failed(device, &error)),
            };
        };
        let step = match nldev.next_queue_pairs() {
            Ok(Some(found)) => return Some(Step::Found(device, found)),
            Ok(None) => Step::Read(device),
            Err(error) => failed(device, &error),
        };
        self.device = None;
        Some(step)
    }
}

fn failed(device: Guid, error: &io::Error) -> Step {
    tracing::debug!(node_guid = %device, %error, "queue pairs not read");
    Step::Failed(device)
}

/// Those that carry a connection no more. An application may drain its send queue for a while; what
/// the kernel does not tell is no reason to look.
pub(crate) fn disconnected(found: &[(Qpn, QueuePair)]) -> Vec<Qpn> {
    let over = |state: Option<QpState>| {
        state.is_some_and(|state| !matches!(state, QpState::Rts | QpState::Sqd))
    };
    let found = found.iter().filter(|(_, qp)| qp.reliable && over(qp.state));
    found.map(|(qpn, _)| *qpn).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::nldev::{Maker, socket_pair};

    #[test]
    fn who_is_in_rts_or_drained_is_connected() {
        let queue_pair = |state| QueuePair {
            maker: Maker::Ended,
            reliable: true,
            state,
            migration: None,
            peer_qpn: None,
        };
        let datagram = QueuePair {
            reliable: false,
            ..queue_pair(Some(QpState::Error))
        };
        let found = [
            (Qpn(1), queue_pair(Some(QpState::Rts))),
            (Qpn(2), queue_pair(Some(QpState::Sqd))),
            (Qpn(3), queue_pair(Some(QpState::Error))),
            (Qpn(4), queue_pair(None)),
            (Qpn(5), queue_pair(Some(QpState::Sqe))),
            (Qpn(6), datagram),
        ];
        assert_eq!(disconnected(&found), [Qpn(3), Qpn(5)]);
    }

    #[test]
    fn a_round_follows_a_round_while_there_are_connections() {
        let mut patrol = Patrol {
            nldev: None,
            at: None,
            device: None,
            devices: VecDeque::new(),
        };
        let start = Time(1_000_000);
        let none = VecDeque::new;
        assert!(patrol.handle_time(start, none).is_none());
        patrol.begin(start);
        patrol.begin(start + PAUSE);
        assert_eq!(patrol.at, Some(start + ROUND), "the first counts");
        let one = || VecDeque::from([Guid(1)]);
        patrol.handle_time(start + ROUND, one);
        assert!(patrol.at > Some(start + ROUND), "it goes on");
        patrol.devices.clear();
        let next = start + ROUND * 2;
        patrol.handle_time(next, none);
        assert_eq!(patrol.at, None, "there is nothing to manage");
        patrol.begin_at(next + ROUND);
        patrol.begin_at(next + PAUSE);
        patrol.begin_at(next + ROUND);
        assert_eq!(patrol.at, Some(next + PAUSE), "the soonest counts");
    }

    #[test]
    fn a_device_of_which_nothing_is_told_has_not_been_read() {
        // Nobody answers.
        let (ours, _kernels) = socket_pair();
        let start = Time(1_000_000);
        let mut patrol = Patrol {
            nldev: Some(Nldev::over(ours)),
            at: Some(start),
            device: None,
            devices: VecDeque::new(),
        };
        let both = || VecDeque::from([Guid(1), Guid(2)]);
        assert_eq!(patrol.handle_time(start, both), Some(Step::Failed(Guid(1))));
        assert!(!patrol.is_between_rounds());
        let next = start + PAUSE;
        assert_eq!(patrol.handle_time(next, both), Some(Step::Failed(Guid(2))));
        assert!(patrol.is_between_rounds());
    }
}
