// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which connection looks next at what happened.

use alloc::vec::Vec;

use super::Engine;
use crate::context::{Alarm, Context};
use crate::id::PortId;
use crate::notices::Notice;
use crate::path_index::Concerned;
use crate::schedule::{Class, Turn, Waiter};
use crate::view::PortState;

impl Engine {
    /// A port is another than before, or of another use.
    pub(super) fn tell_connections(&mut self, id: PortId, to: PortState) {
        self.cx.ports.note_change(id);
        self.cx.questions.forget_recent();
        self.mark_port(id, to);
    }

    /// Marks the connections with their primary on a port: those that must leave it do so before anything else, first
    /// those of which the hardware's retries are running.
    pub(super) fn mark_lost_primaries(&mut self, id: PortId) {
        self.mark(Class::Migrate, Concerned::Armed(id));
        self.mark(Class::Rearm, Concerned::Unarmed(id));
    }

    /// Marks the connections of a port's device: those that must leave it, those that have no
    /// protection or may have lost it, then the others, whose peers want to know.
    fn mark_port(&mut self, id: PortId, to: PortState) {
        if to == PortState::Down {
            self.mark_lost_primaries(id);
        }
        self.mark(Class::Rearm, Concerned::Alternates(id));
        self.mark(Class::Rearm, Concerned::Exposed(id.node_guid));
        let ports: Vec<_> = self.cx.path_index.ports_of(id.node_guid).collect();
        for concerned in ports.into_iter().flat_map(Concerned::primaries) {
            self.mark(Class::Improve, concerned);
        }
    }

    pub(super) fn mark(&mut self, class: Class, concerned: Concerned) {
        let any = self.cx.path_index.members(concerned).is_some();
        self.cx.schedule.mark(class, concerned, any);
    }

    /// Lets the next connection look at what happened, if there is one whose turn it is.
    pub(super) fn take_turn(&mut self) -> bool {
        let answered = self.cx.questions.has_answers();
        match self.cx.schedule.turn(answered) {
            Some(Turn::Answer) => {
                if let Some((id, answer)) = self.cx.questions.next_answer()
                    && let Some(conn) = self.conns.get_mut(&id)
                {
                    conn.paths(&mut self.cx, &answer);
                }
                true
            }
            Some(Turn::Waiting(waiter)) => {
                self.cx.schedule.serve(waiter);
                match waiter {
                    Waiter::Conn(id) => {
                        if let Some(conn) = self.conns.get_mut(&id) {
                            conn.room(&mut self.cx);
                        }
                    }
                    Waiter::Closing(comm_id) => self.closing.retry(&mut self.cx, comm_id),
                }
                true
            }
            Some(Turn::Next(class, concerned)) => {
                let Context {
                    schedule,
                    path_index,
                    ..
                } = &mut self.cx;
                let id = schedule.next(path_index.members(concerned));
                if let Some(conn) = id.and_then(|id| self.conns.get_mut(&id)) {
                    conn.look(&mut self.cx, class);
                }
                true
            }
            None => false,
        }
    }

    pub(super) fn notice(&mut self, port: PortId, notice: Notice) {
        self.cx.counters.notices += 1;
        if !self.notices.add(port, notice) {
            self.cx.counters.notices_dropped += 1;
        }
        self.wait_for_notices();
    }

    fn wait_for_notices(&mut self) {
        match self.notices.due() {
            Some(due) => self.cx.timers.set(Alarm::Notices, due.max(self.cx.now)),
            None => self.cx.timers.cancel(&Alarm::Notices),
        }
    }

    pub(super) fn look_at_notices(&mut self) {
        let mut heard = self.notices.take(self.cx.now);
        for conn in self.conns.values_mut() {
            conn.noticed(&mut self.cx, &mut heard);
        }
        let paths = heard.to_probe(|path| self.cx.probes.answered(path));
        for path in paths {
            self.cx.probes.soon(self.cx.now, &path);
        }
        self.notices.looked(self.cx.now, heard);
        self.wait_for_notices();
    }
}
