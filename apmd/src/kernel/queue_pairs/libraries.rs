// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queue pairs that libraries register beside the module, which knows them as well.
//!
//! Such a queue pair is one connection, and the library's: the module sees a program's own loads and
//! leaves the queue pair alone. So a program whose library is connected is given a moment to register
//! first. Who has it and how it is, the kernel says: a registration is held against that before it counts,
//! and a library's report goes on with the queue pair as the kernel has it.

use std::time::Duration;

use cm_msgs::control::Report;
use cm_msgs::{Guid, Qpn};
use statemachine::{ConnId, Input, Time};

use crate::io::apm_module::Cookie;
use crate::kernel::claims::{Claim, Number};
use crate::kernel::orders::Answer;

use super::registration::astray;
use super::truth::truth;
use super::{Output, QueuePairs, Whose};

/// What a library has to register a queue pair of its program, and one that it has closed to end.
pub(super) const FOR_LIBRARY: Duration = Duration::from_secs(1);

/// What the module has to tell of a queue pair that a library has registered. Some, of other kinds, it
/// never tells of.
pub(super) const FOR_MODULE: Duration = Duration::from_secs(1);

impl QueuePairs {
    /// Whether its program has a library.
    pub(crate) fn handle_library(&mut self, now: Time, id: ConnId, has_library: bool) {
        let Some(&cookie) = self.by_conn.get(&id.conn) else {
            return;
        };
        if let Some(entry) = self.all.get_mut(&cookie)
            && entry.whose == Whose::Asked
        {
            entry.whose = Whose::Ours;
            if has_library {
                return self.await_library(now, cookie);
            }
            self.consider(now, cookie);
        }
    }

    fn await_library(&mut self, now: Time, cookie: Cookie) {
        if let Some(entry) = self.all.get_mut(&cookie) {
            entry.whose = Whose::Awaited;
            self.later.awaited.set(cookie, now + FOR_LIBRARY);
        }
    }

    /// A library wants to register this queue pair: [`Output::Known`] is what it is held against.
    pub(crate) fn ask(&mut self, now: Time, id: ConnId, number: (Guid, Qpn)) {
        match self.by_number.get(&number) {
            Some(&cookie) => self.query(cookie, Answer::Registration(id)),
            None => self.claims.expect(id, number, now + FOR_MODULE),
        }
    }

    /// Has the module say how a queue pair is now: what it told last may be from before a migration.
    pub(super) fn query(&mut self, cookie: Cookie, answer: Answer) {
        let token = self.orders.add(cookie, answer);
        self.outputs.push_back(Output::Query { cookie, token });
    }

    /// The module tells of a queue pair that it had not told of. Libraries may have been first.
    pub(super) fn meet(&mut self, cookie: Cookie, number: Number) {
        self.claims.set_known(number);
        let registered = self.claims.of(number);
        for id in self.claims.met(number).into_iter().chain(registered) {
            self.query(cookie, Answer::Registration(id));
        }
    }

    /// A library has registered it, as this connection, and that is true.
    pub(crate) fn claim(&mut self, now: Time, number: (Guid, Qpn), id: ConnId) {
        self.release(now, id);
        let cookie = self.by_number.get(&number).copied();
        let known = cookie.is_some();
        self.claims.add(Claim { number, known }, id);
        if let Some(cookie) = cookie {
            self.consider(now, cookie);
        }
    }

    /// A library no longer manages a connection. Mostly the queue pair is about to end as well.
    pub(crate) fn release(&mut self, now: Time, id: ConnId) {
        let Some(number) = self.claims.remove(id) else {
            return;
        };
        if let Some(&cookie) = self.by_number.get(&number) {
            self.await_library(now, cookie);
        }
    }

    pub(crate) fn release_client(&mut self, now: Time, client: u32) {
        for id in self.claims.of_client(client) {
            self.release(now, id);
        }
    }

    /// A library reports. True: there is nobody who knows better, and it goes on as it is. Else it goes
    /// on when the module has said how the queue pair is, or never if that is gone.
    pub(crate) fn believes(&mut self, id: ConnId, report: Report) -> bool {
        let Some(claim) = self.claims.get(id) else {
            return true;
        };
        match self.by_number.get(&claim.number) {
            Some(&cookie) => self.query(cookie, Answer::Report(id, report)),
            None => return !claim.known,
        }
        false
    }

    /// The module has answered, or cannot: then what it told last has to do.
    pub(super) fn answer_library(&mut self, cookie: Cookie, answer: Option<Answer>) {
        let Some(entry) = self.all.get(&cookie) else {
            return;
        };
        let number = entry.number();
        match answer {
            Some(Answer::Registration(id)) => {
                let qp = Some(Box::new(entry.qp.clone()));
                self.outputs.push_back(Output::Known { id, number, qp });
            }
            Some(Answer::Report(id, report)) if self.is_of(id, number) => {
                let report = match &entry.qp.snapshot {
                    Some(kernel) => truth(&report, kernel),
                    None => report,
                };
                // As a library's own report that says so: it is ignored.
                if astray(&report.snapshot).is_none() {
                    let input = Input::Report(id, report);
                    self.outputs.push_back(Output::Engine(Box::new(input)));
                }
            }
            _ => {}
        }
    }

    /// A library may have closed the connection meanwhile, and given its number to another.
    fn is_of(&self, id: ConnId, number: Number) -> bool {
        let claim = self.claims.get(id);
        claim.is_some_and(|claim| claim.number == number)
    }

    /// The module says nothing of it.
    pub(crate) fn tell_registrant(&mut self, id: ConnId, number: Number) {
        let qp = None;
        self.outputs.push_back(Output::Known { id, number, qp });
    }

    /// The module is gone: nobody knows better than libraries. Before what it told is forgotten.
    pub(super) fn believe_libraries(&mut self) {
        for (cookie, answer) in self.orders.clear() {
            let number = self.all.get(&cookie).map(super::Entry::number);
            match (answer, number) {
                (Answer::Registration(id), Some(number)) => self.tell_registrant(id, number),
                (Answer::Report(id, report), Some(number)) if self.is_of(id, number) => {
                    let input = Input::Report(id, report);
                    self.outputs.push_back(Output::Engine(Box::new(input)));
                }
                _ => {}
            }
        }
        for (id, number) in self.claims.expect_none() {
            self.tell_registrant(id, number);
        }
        self.claims.set_unknown();
    }
}
