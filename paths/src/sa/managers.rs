// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who manages the subnet of each local port: the port GUID of its subnet manager. Two subnets can have one prefix and
//! their managers one LID, as when both were left at what subnet managers begin with. No I/O here.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use cm_msgs::sa::{PathRecord, Record, SaMad};
use cm_msgs::{Gid, Guid, Lid};
use statemachine::{Backoff, PortId, Random, Time};

use super::stage::Stage;
use super::{Ask, Failure, Response, User};

/// Copies of a question before it is left alone for a while.
const TRIES: u8 = 4;
/// First pause before what failed is asked again; doubles with every failure.
const PAUSE_FIRST: Duration = Duration::from_secs(2);
/// The longest such pause: some SAs answer no question about a LID.
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// Not all hosts at the same time.
const JITTER_PERCENT: u8 = 20;

/// A path from a port to its subnet manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ManagerPath {
    /// The port's GID.
    pub gid: Gid,
    /// Where the subnet manager is.
    pub sm_lid: Lid,
}

#[derive(Debug)]
struct Question {
    path: ManagerPath,
    stage: Stage,
    backoff: Backoff,
}

impl Question {
    fn new(path: ManagerPath) -> Self {
        Self {
            path,
            stage: Stage::Due,
            backoff: Backoff::new(PAUSE_FIRST, PAUSE_MAX),
        }
    }
}

/// The questions of all ports.
#[derive(Debug)]
pub struct Managers {
    questions: BTreeMap<PortId, Question>,
    next_number: u32,
    random: Random,
    found: VecDeque<(PortId, Guid)>,
}

impl Managers {
    /// Nothing is asked yet. Times are spread by `random`.
    pub fn new(random: Random) -> Self {
        Self {
            questions: BTreeMap::new(),
            next_number: 0,
            random,
            found: VecDeque::new(),
        }
    }

    /// How a port reaches its subnet manager; `None` while it does not, or is gone.
    pub fn handle_port(&mut self, port: PortId, path: Option<ManagerPath>) {
        match path {
            Some(path) => {
                let known = self.questions.get(&port);
                if known.is_none_or(|known| known.path != path) {
                    self.questions.insert(port, Question::new(path));
                }
            }
            None => {
                self.questions.remove(&port);
            }
        }
    }

    /// Another subnet manager on this port, or the same that has started again.
    pub fn handle_sm_changed(&mut self, port: PortId) {
        if let Some(question) = self.questions.get_mut(&port) {
            *question = Question::new(question.path);
        }
    }

    /// The next question to the SA, for [`User::Manager`].
    pub fn poll_ask(&mut self) -> Option<Ask> {
        let is_due = |(_, question): &(&PortId, &mut Question)| question.stage == Stage::Due;
        let (port, question) = self.questions.iter_mut().find(is_due)?;
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        question.stage = Stage::Asked(number);
        let ManagerPath { gid, sm_lid } = question.path;
        let path = PathRecord::any().sgid(gid).dlid(sm_lid);
        let mad = SaMad::get(0, &path.reversible(true).numb_path(1));
        Some(Ask {
            tries: TRIES,
            ..Ask::new(User::Manager(number), *port, mad)
        })
    }

    /// What came of the question with this number.
    pub fn handle_reply(&mut self, now: Time, number: u32, reply: Result<Response, Failure>) {
        let is_asked =
            |(_, question): &(&PortId, &mut Question)| question.stage == Stage::Asked(number);
        let Some((&port, question)) = self.questions.iter_mut().find(is_asked) else {
            return;
        };
        match reply.and_then(|response| manager(&response, question.path)) {
            Ok(guid) => {
                question.stage = Stage::Done;
                self.found.push_back((port, guid));
            }
            Err(error) => {
                if question.backoff.failures() == 0 {
                    tracing::debug!(port = port.port, %error, "port GUID of the subnet manager not found");
                }
                let pause = question.backoff.next_delay();
                let pause = self.random.jitter(pause, JITTER_PERCENT);
                question.stage = Stage::Until(now + pause);
            }
        }
    }

    /// The next port whose subnet manager has been found, and the manager's port GUID.
    pub fn poll_found(&mut self) -> Option<(PortId, Guid)> {
        self.found.pop_front()
    }

    /// When something is to be asked again.
    pub fn poll_timeout(&self) -> Option<Time> {
        let questions = self.questions.values();
        questions.filter_map(|question| question.stage.due()).min()
    }

    /// Asks again for what has come due.
    pub fn handle_time(&mut self, now: Time) {
        for question in self.questions.values_mut() {
            question.stage.handle_time(now);
        }
    }
}

/// The port GUID in the path record that leads to the subnet manager.
fn manager(response: &Response, asked: ManagerPath) -> Result<Guid, Failure> {
    let mut records = response.decode::<PathRecord>()?;
    let leads_there =
        |record: &PathRecord| record.dlid == asked.sm_lid && !record.dgid.is_unspecified();
    let record = records.find(leads_there);
    let guid = record.map(|record| record.dgid.interface_id());
    guid.filter(|guid| guid.0 != 0).ok_or(Failure::Absent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cm_msgs::sa::SaMessage;

    const PORT: PortId = PortId {
        node_guid: Guid(9),
        port: 1,
    };
    const PATH: ManagerPath = ManagerPath {
        gid: Gid([1; 16]),
        sm_lid: Lid(3),
    };

    fn managers() -> Managers {
        let mut managers = Managers::new(Random::new([7; 32]));
        managers.handle_port(PORT, Some(PATH));
        managers
    }

    fn number(ask: &Ask) -> u32 {
        match ask.user {
            User::Manager(number) => number,
            other => panic!("{other:?}"),
        }
    }

    /// The answer that names the port with this GUID at this LID.
    fn answer(dlid: Lid, guid: u64) -> Response {
        let template = PathRecord::any().dlid(dlid);
        let mut mad = SaMad::get(0, &template.dgid(Gid::new(7, Guid(guid))));
        mad.header.method = cm_msgs::mad::METHOD_GET_RESP;
        let bytes = mad.encode();
        Response::new(&SaMessage::decode(&bytes).expect("a MAD")).expect("an answer")
    }

    #[test]
    fn the_port_at_the_managers_lid_is_asked_for_once() {
        let mut managers = managers();
        let ask = managers.poll_ask().expect("due");
        assert_eq!(ask.port, PORT);
        assert!(managers.poll_ask().is_none());
        managers.handle_reply(Time(1), number(&ask), Ok(answer(PATH.sm_lid, 0x33)));
        assert_eq!(managers.poll_found(), Some((PORT, Guid(0x33))));
        managers.handle_port(PORT, Some(PATH));
        assert!(managers.poll_ask().is_none() && managers.poll_timeout().is_none());
        managers.handle_sm_changed(PORT);
        assert!(managers.poll_ask().is_some(), "perhaps another");
    }

    #[test]
    fn an_answer_to_an_old_question_does_not_count() {
        let mut managers = managers();
        let old = managers.poll_ask().expect("due");
        let moved = ManagerPath {
            sm_lid: Lid(8),
            ..PATH
        };
        managers.handle_port(PORT, Some(moved));
        managers.handle_reply(Time(1), number(&old), Ok(answer(PATH.sm_lid, 0x33)));
        assert_eq!(managers.poll_found(), None);
        let ask = managers.poll_ask().expect("asked again");
        managers.handle_port(PORT, None);
        managers.handle_reply(Time(1), number(&ask), Ok(answer(Lid(8), 0x33)));
        assert_eq!(managers.poll_found(), None, "the port is gone");
    }

    #[test]
    fn what_is_not_answered_is_asked_ever_more_rarely() {
        let mut managers = managers();
        let mut now = Time(0);
        let mut pauses = Vec::new();
        for reply in [Err(Failure::Timeout), Ok(answer(Lid(4), 0x33))] {
            let ask = managers.poll_ask().expect("due");
            managers.handle_reply(now, number(&ask), reply);
            assert_eq!(managers.poll_found(), None);
            let at = managers.poll_timeout().expect("again");
            pauses.push(at - now);
            managers.handle_time(at);
            now = at;
        }
        assert!(pauses[0] >= Duration::from_millis(1600) && pauses[1] > pauses[0]);
    }
}
