// SPDX-License-Identifier: MIT OR Apache-2.0
//! A timer that wakes the poll at the earliest deadline.
//!
//! Poll's own timeout would start and stop a timer of the kernel's for every request, of which there
//! are many thousands before a deadline comes. This one is left as it is until a nearer deadline is
//! there; one that was cancelled meanwhile wakes the thread for nothing, once.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use mio::Registry;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use statemachine::Time;

use super::token::Token;
use crate::io::watched;

#[derive(Debug)]
pub(super) struct Alarm {
    timer: TimerFd,
    /// When it wakes the poll.
    set_for: Option<Time>,
}

impl Alarm {
    pub(super) fn new(registry: &Registry) -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        watched(timer.as_fd().as_raw_fd(), registry, Token::Alarm)?;
        Ok(Self {
            timer,
            set_for: None,
        })
    }

    /// Wakes the poll at the deadline, or earlier.
    pub(super) fn set(&mut self, now: Time, deadline: Time) -> io::Result<()> {
        if self.set_for.is_some_and(|at| at <= deadline) {
            return Ok(());
        }
        // 0 would stop it.
        let left = (deadline - now).max(Duration::from_nanos(1));
        let once = Expiration::OneShot(TimeSpec::from_duration(left));
        self.timer.set(once, TimerSetTimeFlags::empty())?;
        self.set_for = Some(deadline);
        Ok(())
    }

    /// It has woken the poll. What it would say when read is known; setting it clears that.
    pub(super) fn handle_ready(&mut self) {
        self.set_for = None;
    }
}

#[cfg(test)]
mod tests {
    use mio::{Events, Poll};

    use super::*;

    const NOW: Time = Time(1_000_000);
    const LONG: Duration = Duration::from_secs(3600);
    const SHORT: Duration = Duration::from_millis(1);

    fn wait(poll: &mut Poll) -> Vec<Option<Token>> {
        let mut events = Events::with_capacity(4);
        poll.poll(&mut events, Some(Duration::from_secs(60)))
            .expect("poll");
        let tokens = events.iter().map(|event| Token::from_mio(event.token()));
        tokens.collect()
    }

    #[test]
    fn a_nearer_deadline_moves_it_and_a_farther_one_does_not() {
        let mut poll = Poll::new().expect("epoll");
        let mut alarm = Alarm::new(poll.registry()).expect("timerfd");
        alarm.set(NOW, NOW + LONG).expect("a deadline");
        alarm.set(NOW, NOW + SHORT).expect("a deadline");
        alarm.set(NOW, NOW + LONG).expect("a deadline");
        assert_eq!(wait(&mut poll), [Some(Token::Alarm)]);
        // It is read by nobody, and wakes all the same every time; at once when it is late.
        for deadline in [NOW + SHORT, NOW, Time(0)] {
            alarm.handle_ready();
            alarm.set(NOW, deadline).expect("a deadline");
            assert_eq!(wait(&mut poll), [Some(Token::Alarm)]);
        }
    }
}
