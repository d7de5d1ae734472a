// SPDX-License-Identifier: MIT OR Apache-2.0
//! One port in one partition: its queue pair, its groups, what it asks and what it is asked.

use std::collections::VecDeque;
use std::time::Duration;

use cm_msgs::acm::Address;
use cm_msgs::acm::resolve::{Answer, Groups, Message, Question};
use cm_msgs::sa::McMemberRecord;
use cm_msgs::{Gid, Lid, Qpn};
use statemachine::{Backoff, Random, Time};

use super::announcements::Announcements;
use super::datagram::{AddressVector, Datagram};
use super::group::{self, Demand, Group, MULTICAST_QPN};
use super::heard::{Announced, Heard};
use super::questions::{Answered, Due, Overdue, Questions};
use super::{
    Counters, Location, Lookup, LookupError, Malformed, Output, PortPartition, RouteProt, Settings,
    UpPort,
};

/// First pause before a queue pair is made anew, and the longest.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Qp {
    /// To be made at this time.
    Closed(Time),
    /// Asked for.
    Opening,
    Open(Qpn),
}

/// One port in one partition.
#[derive(Debug)]
pub(super) struct Participant {
    id: PortPartition,
    port: Option<UpPort>,
    qp: Qp,
    qp_backoff: Backoff,
    /// Groups to be in, the least demanding first. In this one the questions are asked.
    groups: Vec<Group>,
    route_prot: RouteProt,
    attached: Option<(Gid, Lid)>,
    questions: Questions,
    heard: Heard,
    announcements: Announcements,
    counters: Counters,
    outputs: VecDeque<Output>,
}

impl Participant {
    pub(super) fn new(id: PortPartition, random: Random) -> Self {
        Self {
            id,
            port: None,
            qp: Qp::Closed(Time(0)),
            qp_backoff: Backoff::new(PAUSE_FIRST, PAUSE_MAX),
            groups: Vec::new(),
            route_prot: RouteProt::Sa,
            attached: None,
            questions: Questions::new(random),
            heard: Heard::default(),
            announcements: Announcements::default(),
            counters: Counters::default(),
            outputs: VecDeque::new(),
        }
    }

    pub(super) fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    pub(super) fn counters(&self) -> Counters {
        self.counters
    }

    /// Whether questions can be asked.
    fn is_ready(&self) -> bool {
        self.ready().is_some()
    }

    /// Groups that the port is a member of now.
    pub(super) fn members(&self) -> impl Iterator<Item = &McMemberRecord> {
        self.groups.iter().filter_map(Group::member)
    }

    /// The port is as it is now, or is down.
    pub(super) fn handle_port(&mut self, now: Time, settings: &Settings, port: Option<UpPort>) {
        if self.port == port {
            return;
        }
        let index = self.pkey_index();
        self.port = port;
        if self.port.is_none() {
            // Memberships end with the port (IBA 15.2.5.17.2).
            self.detach();
            self.groups.clear();
            self.heard.clear();
            return;
        }
        if index != self.pkey_index() {
            self.close(now);
        }
        self.heard.clear();
        self.set_groups(now, settings);
        self.rejoin(now);
    }

    /// The SM forgot its members, or is another one.
    pub(super) fn rejoin(&mut self, now: Time) {
        self.groups.iter_mut().for_each(|group| group.join(now));
    }

    /// Makes the groups those that the settings want, and leaves the others.
    pub(super) fn set_groups(&mut self, now: Time, settings: &Settings) {
        self.route_prot = settings.route_prot;
        let Some(port) = &self.port else { return };
        let mut demands = vec![settings.least];
        let own = Demand {
            rate: port.rate,
            mtu: port.mtu,
        };
        if settings.route_prot == RouteProt::Acm && own != settings.least {
            demands.push(own);
        }
        let wanted: Vec<_> = demands.iter().map(|d| d.mgid(self.id.pkey)).collect();
        let mut old = std::mem::take(&mut self.groups);
        for (demand, mgid) in demands.into_iter().zip(&wanted) {
            let known = old.iter().position(|group| group.mgid() == *mgid);
            self.groups.push(match known {
                Some(at) => old.remove(at),
                None => {
                    let mut group = Group::new(self.id.pkey, demand);
                    group.join(now);
                    group
                }
            });
        }
        self.leave(&old);
    }

    fn leave(&mut self, groups: &[Group]) {
        for membership in groups.iter().filter_map(Group::leave_request) {
            self.outputs.push_back(Output::Leave {
                port: self.id.port,
                membership,
            });
        }
    }

    /// Leaves everything, in order. Nothing more is done with the endpoint.
    pub(super) fn end(mut self, now: Time) -> VecDeque<Output> {
        self.give_up_questions();
        self.detach();
        let groups = std::mem::take(&mut self.groups);
        self.leave(&groups);
        self.close(now);
        self.outputs
    }

    fn pkey_index(&self) -> Option<u16> {
        let table = &self.port.as_ref()?.pkeys;
        let (full, base) = (self.id.pkey.0, self.id.pkey.0 & 0x7fff);
        let exact = table.iter().position(|key| key.0 == full);
        let index = exact.or_else(|| table.iter().position(|key| key.0 & 0x7fff == base))?;
        u16::try_from(index).ok()
    }

    fn close(&mut self, now: Time) {
        if self.qp != Qp::Closed(now) {
            self.outputs.push_back(Output::Close(self.id));
        }
        self.qp = Qp::Closed(now);
        self.attached = None;
    }

    /// The queue pair was made.
    pub(super) fn handle_opened(&mut self, qpn: Qpn) {
        self.qp = Qp::Open(qpn);
        self.qp_backoff.reset();
    }

    /// The queue pair could not be made, or is broken: it is gone.
    pub(super) fn handle_broken(&mut self, now: Time) {
        self.attached = None;
        self.qp = Qp::Closed(now + self.qp_backoff.next_delay());
    }

    /// The group whose join is number `user`.
    pub(super) fn joining(&mut self, user: u32) -> Option<&mut Group> {
        self.groups.iter_mut().find(|group| group.is_joining(user))
    }

    /// Does what is due: queue pair, groups, questions.
    pub(super) fn drive(&mut self, now: Time, settings: &Settings, next_user: &mut u32) {
        self.open(now);
        self.join(now, next_user);
        self.attach();
        if self.is_ready() {
            self.ask_again(now, settings);
            self.ask_next(now, settings);
            self.announce_next(now);
        } else {
            self.give_up_questions();
        }
    }

    fn open(&mut self, now: Time) {
        let due = matches!(self.qp, Qp::Closed(at) if at <= now);
        let Some(pkey_index) = self.pkey_index().filter(|_| due) else {
            return;
        };
        self.qp = Qp::Opening;
        self.outputs.push_back(Output::Open {
            endpoint: self.id,
            pkey_index,
        });
    }

    fn join(&mut self, now: Time, next_user: &mut u32) {
        let Some(port) = &self.port else { return };
        for group in &mut self.groups {
            let Some(membership) = group.start(now, *next_user, port, self.id.pkey) else {
                continue;
            };
            self.outputs.push_back(Output::Join {
                user: *next_user,
                port: self.id.port,
                membership,
            });
            *next_user = next_user.wrapping_add(1);
        }
    }

    /// The queue pair takes in what is sent to the first group, as that is now.
    fn attach(&mut self) {
        let Qp::Open(_) = self.qp else { return };
        let first = self.groups.first().and_then(Group::member);
        let wanted = first.map(|member| (member.mgid, Lid(member.mlid)));
        if self.attached == wanted {
            return;
        }
        self.detach();
        if let Some((group, lid)) = wanted {
            self.outputs.push_back(Output::Attach {
                endpoint: self.id,
                group,
                lid,
            });
        }
        self.attached = wanted;
    }

    fn detach(&mut self) {
        if let Some((group, lid)) = self.attached.take() {
            self.outputs.push_back(Output::Detach {
                endpoint: self.id,
                group,
                lid,
            });
        }
    }

    /// What sending takes: the port, the queue pair's number, and the group to ask in.
    fn ready(&self) -> Option<(&UpPort, Qpn, &McMemberRecord)> {
        let Qp::Open(qpn) = self.qp else { return None };
        let member = self.groups.first()?.member()?;
        self.attached?;
        Some((self.port.as_ref()?, qpn, member))
    }

    fn common_group(&self, theirs: &Groups) -> Option<&McMemberRecord> {
        // The most demanding one comes last.
        let ours = |gid: &Gid| self.members().find(|member| member.mgid == *gid);
        theirs.as_slice().iter().rev().find_map(ours)
    }

    /// Asks the fabric where an address is.
    pub(super) fn lookup(&mut self, now: Time, lookup: &Lookup) {
        if lookup.held_by.is_some() {
            self.heard.remove(&lookup.destination);
        }
        let result = if !self.is_ready() {
            Err(LookupError::NotReady)
        } else if let Some((announced, until)) = self.heard.get(now, &lookup.destination) {
            self.counters.heard_used += 1;
            self.answer_lookups(&[lookup.number], &announced, Some(until));
            return;
        } else {
            self.questions.ask(now, lookup)
        };
        if let Err(error) = result {
            self.finish(&[lookup.number], Err(error));
        }
    }

    /// `until`: when it ends that what was announced is believed, which was heard only.
    fn answer_lookups(&mut self, numbers: &[u32], announced: &Announced, until: Option<Time>) {
        let result = self.found(announced, until);
        self.finish(numbers, result);
    }

    fn found(&self, announced: &Announced, until: Option<Time>) -> Result<Location, LookupError> {
        let port = self.port.as_ref().ok_or(LookupError::NotReady)?;
        let member = self.common_group(&announced.groups);
        let member = member.ok_or(LookupError::NoCommonGroup)?;
        Ok(Location {
            gid: announced.gid,
            lid: announced.lid,
            path: (self.route_prot == RouteProt::Acm)
                .then(|| group::path_to(member, port, announced.gid, announced.lid)),
            until,
        })
    }

    fn finish(&mut self, numbers: &[u32], result: Result<Location, LookupError>) {
        for number in numbers {
            self.outputs.push_back(Output::Resolved(*number, result));
        }
    }

    fn give_up_questions(&mut self) {
        let numbers = self.questions.clear();
        self.finish(&numbers, Err(LookupError::NotReady));
    }

    /// ibacm's wait for an answer: its timeout and the port's SubnetTimeOut.
    fn first_wait(&self, settings: &Settings) -> Duration {
        let exponent = self.port.as_ref().map_or(0, |port| port.subnet_timeout);
        settings.timeout + Duration::from_nanos(4096 << exponent.min(31))
    }

    fn ask_again(&mut self, now: Time, settings: &Settings) {
        let wait = self.first_wait(settings);
        while let Some(overdue) = self.questions.overdue(now, settings, wait) {
            match overdue {
                Overdue::Again(due) => {
                    self.counters.questions_repeated += 1;
                    self.send_question(due);
                }
                Overdue::Unanswered(numbers) => {
                    self.counters.unanswered += 1;
                    self.finish(&numbers, Err(LookupError::Unanswered));
                }
                Overdue::Moved(numbers, announced) => {
                    self.answer_lookups(&numbers, &announced, None);
                }
            }
        }
    }

    fn ask_next(&mut self, now: Time, settings: &Settings) {
        let wait = self.first_wait(settings);
        while let Some(due) = self.questions.next(now, settings.depth, wait) {
            self.counters.questions += 1;
            self.send_question(due);
        }
    }

    /// An address is this endpoint's now.
    pub(super) fn announce(&mut self, now: Time, address: Address, moved: bool) {
        if moved || self.is_ready() {
            self.announcements.add(now, address);
        }
    }

    /// An address is not this endpoint's any more.
    pub(super) fn announce_no_longer(&mut self, address: &Address) {
        self.announcements.remove(address);
    }

    fn announce_next(&mut self, now: Time) {
        while let Some(address) = self.announcements.next(now) {
            self.counters.announced += 1;
            let tid = self.questions.new_tid();
            let (source, destination) = (address, address);
            self.send_question(Due {
                tid,
                source,
                destination,
            });
        }
    }

    fn send_question(&mut self, due: Due) {
        let groups = Groups::new(self.members().map(|member| member.mgid));
        let message = Message::Question(Question {
            tid: due.tid,
            source: due.source,
            destination: due.destination,
            groups,
            responder_resources: 0,
            initiator_depth: 0,
        });
        if let Some(to) = self
            .ready()
            .map(|(_, _, member)| group::address_of_all(member))
        {
            self.send(to, MULTICAST_QPN, &message);
        }
    }

    fn send(&mut self, to: AddressVector, qpn: Qpn, message: &Message) {
        self.outputs.push_back(Output::Send {
            endpoint: self.id,
            to,
            qpn,
            bytes: Box::new(message.encode()),
        });
    }

    /// Something came in. `mine`: whether an address is this endpoint's.
    pub(super) fn handle_datagram(
        &mut self,
        now: Time,
        settings: &Settings,
        datagram: &Datagram,
        mine: impl Fn(&Address) -> bool,
    ) -> Result<(), Malformed> {
        let read = Message::decode(&datagram.payload);
        let message = read.inspect_err(|_| self.counters.malformed += 1)?;
        let Some(gid) = datagram.gid else {
            self.counters.malformed += 1;
            return Err(Malformed::NoGrh);
        };
        let Some((port, qpn, _)) = self.ready() else {
            return Ok(());
        };
        if gid == port.gid && datagram.qpn == qpn {
            return Ok(()); // Our own question, come round.
        }
        match message {
            Message::Question(question) => {
                self.asked(now, settings, datagram, gid, &question, mine);
            }
            Message::Answer(answer) => self.answered(now, datagram, gid, &answer),
        }
        Ok(())
    }

    /// Somebody asks: all listeners learn where he is, and the one asked for answers.
    fn asked(
        &mut self,
        now: Time,
        settings: &Settings,
        datagram: &Datagram,
        gid: Gid,
        question: &Question,
        mine: impl Fn(&Address) -> bool,
    ) {
        if !mine(&question.source) {
            let announced = Announced {
                gid,
                lid: datagram.lid,
                groups: question.groups,
            };
            self.counters.heard += 1;
            let until = now + settings.heard_for;
            self.heard.insert(now, until, question.source, announced);
            let waiting = self.questions.heard(&question.source);
            self.answer_lookups(&waiting, &announced, Some(until));
            self.outputs.push_back(Output::Claimed {
                endpoint: self.id,
                address: question.source,
                gid,
            });
        }
        if mine(&question.destination) {
            self.answer(datagram, gid, question);
        }
    }

    fn answer(&mut self, datagram: &Datagram, gid: Gid, question: &Question) {
        let Some(member) = self.common_group(&question.groups).copied() else {
            self.counters.no_common_group += 1;
            return;
        };
        let to = AddressVector {
            gid,
            lid: datagram.lid,
            sl: datagram.sl,
            ..group::address_of_all(&member)
        };
        let message = Message::Answer(Answer {
            tid: question.tid,
            status: 0,
            groups: Groups::new([member.mgid]),
        });
        self.counters.answers_sent += 1;
        self.send(to, datagram.qpn, &message);
    }

    fn answered(&mut self, now: Time, datagram: &Datagram, gid: Gid, answer: &Answer) {
        let announced = Announced {
            gid,
            lid: datagram.lid,
            groups: answer.groups,
        };
        let answered = self.questions.answered(now, answer, &announced);
        match answered {
            None => self.counters.late += 1,
            Some(_) => self.counters.answers += 1,
        }
        let Some(Answered::Lookups(waiting)) = answered else {
            return;
        };
        if answer.status != 0 {
            return self.finish(&waiting, Err(LookupError::Refused(answer.status)));
        }
        self.answer_lookups(&waiting, &announced, None);
    }

    /// When [`Participant::drive`] has something to do.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let open = match self.qp {
            Qp::Closed(at) if self.pkey_index().is_some() => Some(at),
            _ => None,
        };
        let join = self.groups.iter().filter_map(Group::poll_timeout).min();
        let announce = self.announcements.poll_timeout();
        let announce = announce.filter(|_| self.is_ready());
        let times = [open, join, self.questions.poll_timeout(), announce];
        times
            .into_iter()
            .flatten()
            .filter(|at| at.0 != u64::MAX)
            .min()
    }
}
