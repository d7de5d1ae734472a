// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports: notices that the SA forwards to who has subscribed (IBA 13.4.11, 15.4.3). No I/O here.

use std::collections::VecDeque;
use std::time::Duration;

use cm_msgs::mad::MAD_LEN;
use cm_msgs::sa::{InformInfo, Notice, SaMad};
use statemachine::{Backoff, PortId, Time};

use super::{Ask, Failure, Malformed, Response, User};

/// Wait for the answer to the first copy of a subscription.
const TIMEOUT_MS: u32 = 500;
/// Copies of a subscription before it is left alone for a while.
const TRIES: u8 = 4;
/// First pause before a subscription that failed is tried again; doubles with every failure.
const PAUSE_FIRST: Duration = Duration::from_secs(2);
/// The longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// How long the SA is believed to keep a subscription. It may drop one without a word, for a report that was
/// lost on the way.
const RENEWED_AFTER: Duration = Duration::from_secs(1800);

/// What the SA told a local port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The local port that had subscribed.
    pub port: PortId,
    /// What happened.
    pub notice: Notice,
}

/// Where a subscription stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// To be asked for.
    Due,
    /// The SA is being asked, under this number.
    Asked(u32),
    /// The SA has it; to be renewed then.
    Held(Time),
    /// Asking failed: to be asked for again then.
    Failed(Time),
    /// It is to end.
    Ending,
}

#[derive(Debug)]
struct Subscription {
    port: PortId,
    trap: u16,
    stage: Stage,
    backoff: Backoff,
}

impl Subscription {
    /// When it is to be asked for again.
    fn due(&self) -> Option<Time> {
        match self.stage {
            Stage::Failed(at) | Stage::Held(at) => Some(at),
            Stage::Due | Stage::Asked(_) | Stage::Ending => None,
        }
    }
}

/// Subscriptions of local ports to traps, kept through changes of the subnet manager, and the
/// reports that they bring.
#[derive(Debug, Default)]
pub struct Reports {
    subscriptions: Vec<Subscription>,
    next_number: u32,
    reports: VecDeque<Report>,
}

impl Reports {
    /// From now on, `port` is to be told of `traps`, of all producers.
    pub fn subscribe(&mut self, port: PortId, traps: &[u16]) {
        for &trap in traps {
            let mut subscriptions = self.subscriptions.iter();
            if !subscriptions.any(|known| (known.port, known.trap) == (port, trap)) {
                self.subscriptions.push(Subscription {
                    port,
                    trap,
                    stage: Stage::Due,
                    backoff: Backoff::new(PAUSE_FIRST, PAUSE_MAX),
                });
            }
        }
    }

    /// A port has gone, and its subscriptions with it.
    pub fn handle_port_gone(&mut self, port: PortId) {
        self.subscriptions.retain(|known| known.port != port);
    }

    /// The port has come up, has another subnet manager, or is asked to register again: the SA may
    /// not know its subscriptions.
    pub fn handle_forgotten(&mut self, port: PortId) {
        for subscription in &mut self.subscriptions {
            if subscription.port == port {
                subscription.stage = Stage::Due;
                subscription.backoff.reset();
            }
        }
    }

    /// Nobody will be there to be told: ends what the SA has or may have.
    pub fn end(&mut self) {
        let may_have =
            |known: &Subscription| matches!(known.stage, Stage::Asked(_) | Stage::Held(_));
        self.subscriptions.retain(may_have);
        for subscription in &mut self.subscriptions {
            subscription.stage = Stage::Ending;
        }
    }

    /// The next thing to ask the SA, for [`User::Inform`].
    pub fn poll_ask(&mut self) -> Option<Ask> {
        let mut subscriptions = self.subscriptions.iter_mut();
        let to_ask = |known: &Subscription| matches!(known.stage, Stage::Due | Stage::Ending);
        let place = subscriptions.position(|known| to_ask(known))?;
        let number = self.next_number;
        self.next_number = self.next_number.wrapping_add(1);
        let subscription = &mut self.subscriptions[place];
        let (port, trap) = (subscription.port, subscription.trap);
        let info = if subscription.stage == Stage::Ending {
            self.subscriptions.swap_remove(place);
            InformInfo::unsubscribe_from(trap)
        } else {
            subscription.stage = Stage::Asked(number);
            InformInfo::subscribe_to(trap)
        };
        Some(Ask {
            user: User::Inform(number),
            port,
            mad: SaMad::set_inform_info(0, &info),
            timeout_ms: TIMEOUT_MS,
            tries: TRIES,
        })
    }

    /// What came of the request with this number.
    pub fn handle_reply(&mut self, now: Time, number: u32, reply: Result<Response, Failure>) {
        let mut subscriptions = self.subscriptions.iter_mut();
        let asked = subscriptions.find(|known| known.stage == Stage::Asked(number));
        let Some(subscription) = asked else {
            return;
        };
        let (port, trap) = (subscription.port.port, subscription.trap);
        let Err(error) = reply else {
            tracing::debug!(port, trap, "subscribed");
            subscription.stage = Stage::Held(now + RENEWED_AFTER);
            subscription.backoff.reset();
            return;
        };
        let pause = subscription.backoff.next_delay();
        tracing::debug!(port, trap, %error, ?pause, "not subscribed");
        subscription.stage = Stage::Failed(now + pause);
    }

    /// A MAD of method Report came in by `port`. The answer that its sender wants.
    ///
    /// # Errors
    /// It is no report of a notice.
    pub fn handle_report(&mut self, port: PortId, mad: &[u8]) -> Result<[u8; MAD_LEN], Malformed> {
        let mad = SaMad::decode(mad)?;
        let notice = mad.notice().map_err(Malformed::Answer)?;
        self.reports.push_back(Report { port, notice });
        Ok(mad.report_response().encode())
    }

    /// The next report. The SA may send one twice.
    pub fn poll_report(&mut self) -> Option<Report> {
        self.reports.pop_front()
    }

    /// When the next subscription is to be asked for again.
    pub fn poll_timeout(&self) -> Option<Time> {
        let due = self.subscriptions.iter().filter_map(Subscription::due);
        due.min()
    }

    /// Asks again for those whose time has come.
    pub fn handle_time(&mut self, now: Time) {
        for subscription in &mut self.subscriptions {
            if subscription.due().is_some_and(|at| at <= now) {
                subscription.stage = Stage::Due;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cm_msgs::sa::{ATTR_INFORM_INFO, ATTR_NOTICE, ResponseError, SaStatus, Trap};
    use cm_msgs::{Guid, Lid, mad};

    impl Reports {
        /// Subscriptions that the SA has, and all.
        fn held(&self) -> (usize, usize) {
            let held = self.subscriptions.iter();
            let held = held
                .filter(|known| matches!(known.stage, Stage::Held(_)))
                .count();
            (held, self.subscriptions.len())
        }
    }

    const PORT: PortId = PortId {
        node_guid: Guid(9),
        port: 1,
    };
    const OTHER: PortId = PortId { port: 2, ..PORT };

    fn asked(reports: &mut Reports) -> Vec<(u32, PortId, u16)> {
        let asks = std::iter::from_fn(|| reports.poll_ask());
        asks.map(|ask| {
            let User::Inform(number) = ask.user else {
                panic!("{:?}", ask.user);
            };
            let info = InformInfo::decode(ask.mad.data.first_chunk().unwrap());
            assert_eq!(ask.mad.header.method, 2);
            assert_eq!(info.subscribe, 1);
            (number, ask.port, info.trap_number)
        })
        .collect()
    }

    fn yes() -> Result<Response, Failure> {
        Ok(Response {
            attribute: ATTR_INFORM_INFO,
            record_len: 200,
            data: vec![0; 200],
        })
    }

    #[test]
    fn each_trap_is_asked_for_once() {
        let mut reports = Reports::default();
        reports.subscribe(PORT, &[64, 65]);
        reports.subscribe(PORT, &[65]);
        reports.subscribe(OTHER, &[65]);
        let asks = asked(&mut reports);
        assert_eq!(asks, [(0, PORT, 64), (1, PORT, 65), (2, OTHER, 65)]);
        for (number, _, _) in asks {
            reports.handle_reply(Time(0), number, yes());
        }
        assert_eq!((reports.held(), reports.poll_ask()), ((3, 3), None));
        reports.handle_port_gone(PORT);
        assert_eq!(reports.held(), (1, 1));
    }

    #[test]
    fn another_subnet_manager_is_asked_again_and_late_answers_of_the_old_do_not_count() {
        let mut reports = Reports::default();
        reports.subscribe(PORT, &[65]);
        reports.subscribe(OTHER, &[65]);
        asked(&mut reports);
        reports.handle_reply(Time(0), 1, yes());
        reports.handle_forgotten(PORT);
        reports.handle_reply(Time(0), 0, yes());
        assert_eq!(asked(&mut reports), [(2, PORT, 65)]);
        assert_eq!(reports.held(), (1, 2));
        reports.handle_reply(Time(0), 2, yes());
        assert_eq!(reports.held(), (2, 2));
    }

    #[test]
    fn what_is_held_is_renewed_and_ended() {
        let mut reports = Reports::default();
        reports.subscribe(PORT, &[64, 65, 128]);
        asked(&mut reports);
        let at = [7, 5].map(Time);
        for (number, at) in (0..).zip(at) {
            reports.handle_reply(at, number, yes());
        }
        let renewed = reports.poll_timeout().unwrap();
        assert_eq!(renewed, at[1] + RENEWED_AFTER);
        reports.handle_time(renewed);
        assert_eq!(asked(&mut reports), [(3, PORT, 65)]);
        reports.handle_reply(renewed, 2, Err(Failure::Timeout));
        reports.end();
        let ended: Vec<_> = std::iter::from_fn(|| reports.poll_ask())
            .map(|ask| InformInfo::decode(ask.mad.data.first_chunk().unwrap()))
            .map(|info| (info.subscribe, info.trap_number))
            .collect();
        assert_eq!(ended, [(0, 64), (0, 65)], "the SA never had the third");
        assert_eq!((reports.held(), reports.poll_timeout()), ((0, 0), None));
    }

    #[test]
    fn what_fails_is_tried_again_ever_more_slowly() {
        let mut reports = Reports::default();
        reports.subscribe(PORT, &[128]);
        let mut pauses = Vec::new();
        for failure in [
            Failure::Timeout,
            Failure::Unreachable,
            Failure::Status(SaStatus::RequestInvalid),
            Failure::Timeout,
            Failure::Timeout,
            Failure::Timeout,
            Failure::Timeout,
        ] {
            let [(number, ..)] = asked(&mut reports)[..] else {
                panic!("not asked");
            };
            reports.handle_reply(Time(0), number, Err(failure));
            let at = reports.poll_timeout().unwrap();
            reports.handle_time(Time(at.0 - 1));
            assert_eq!(reports.poll_ask(), None);
            reports.handle_time(at);
            pauses.push(at.0 / 1_000_000);
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(reports.poll_timeout(), None);
    }

    #[test]
    fn a_report_is_answered_and_told() {
        let notice = Notice {
            is_generic: true,
            trap_number: 128,
            data_details: [7; 54],
            ..Notice::default()
        };
        let mut mad = SaMad::set_inform_info(0x1234, &InformInfo::default());
        mad.header.method = mad::METHOD_REPORT;
        mad.header.attribute_id = ATTR_NOTICE;
        mad.data[..80].copy_from_slice(&notice.encode());
        let mut reports = Reports::default();
        let answer = reports.handle_report(PORT, &mad.encode()).unwrap();
        let answer = SaMad::decode(&answer).unwrap();
        assert_eq!(
            (answer.header.method, answer.header.transaction_id),
            (0x86, 0x1234)
        );
        let report = reports.poll_report().unwrap();
        assert_eq!(report.port, PORT);
        assert_eq!(report.notice.trap(), Some(Trap::LinkState(Lid(0x707))));
        assert_eq!(reports.poll_report(), None);

        mad.header.attribute_id = ATTR_INFORM_INFO;
        let other = ResponseError::Attribute { found: 3, want: 2 };
        assert_eq!(
            reports.handle_report(PORT, &mad.encode()),
            Err(Malformed::Answer(other))
        );
        assert!(reports.handle_report(PORT, &[0; 256]).is_err());
        assert_eq!(reports.poll_report(), None);
    }
}
