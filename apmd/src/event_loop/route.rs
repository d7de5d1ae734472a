// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who hears of what.

use cm_msgs::Presence;
use cm_msgs::sa::Trap;
use paths::sa::{Ask, Report, User};
use paths::source::{Answer, Question, Urgency};
use statemachine::{Input, Notice, PeerQuestion, PortId, PresenceTransmit, Query, Time};

use super::configuration::Configuration;
use super::parts::Parts;
use crate::acm_thread;
use crate::parts::ports::{PortNews, PresenceReceived};
use crate::parts::{connections, fabric, kernel, libraries, operators, ports, sa, sources};

/// What is asked of subnet administration by every port: notices that a port is reachable, or no longer; that a
/// switch's link went up or down; that a port's capabilities or link changed.
const TRAPS: [u16; 4] = [64, 65, 128, 144];

/// What the engine makes something of.
fn of_engine(trap: Trap) -> Option<Notice> {
    match trap {
        Trap::InService(gid) => Some(Notice::InService(gid)),
        Trap::OutOfService(gid) => Some(Notice::OutOfService(gid)),
        Trap::LinkState(_) => Some(Notice::LinkState),
        Trap::LocalChange { lid, .. } => Some(Notice::PortChange(lid)),
        Trap::GroupCreated(_) | Trap::GroupDeleted(_) => None,
    }
}

/// A note, and whose it is.
enum Note {
    Connections(connections::Note),
    Libraries(libraries::Note),
    Kernel(kernel::Note),
    Operators(operators::Note),
    /// A question to a peer, or the answer to one.
    Presence(PresenceTransmit),
    /// A daemon answers where a library asked, or none does.
    PeerAnswers(PeerQuestion, bool),
    Ports(ports::Note),
    Sa(sa::Note),
    Sources(sources::Note),
    Fabric(fabric::Note),
    Acm(acm_thread::Note),
}

impl Parts {
    /// The next note; the engine's first, of which failover is made.
    fn poll_note(&mut self, now: Time) -> Option<Note> {
        let has_room = |port| self.ports.has_room(port);
        let watched = !self.operators.watchers().is_empty();
        if let Some(note) = self.connections.poll_note(has_room, watched) {
            return Some(Note::Connections(note));
        }
        if let Some(note) = self.libraries.poll_note() {
            return Some(Note::Libraries(note));
        }
        if let Some(note) = self.kernel.poll_note() {
            return Some(Note::Kernel(note));
        }
        if let Some(send) = self.peers.poll_transmit(has_room) {
            return Some(Note::Presence(send));
        }
        if let Some((question, answers)) = self.peers.poll_verdict() {
            return Some(Note::PeerAnswers(question, answers));
        }
        if let Some(note) = self.ports.poll_note() {
            return Some(Note::Ports(note));
        }
        let engine = self.connections.engine();
        if let Some(note) = self.sa.poll_note(now, |port| engine.is_suspect_port(port)) {
            return Some(Note::Sa(note));
        }
        if let Some(note) = self.sources.poll_note(now) {
            return Some(Note::Sources(note));
        }
        if let Some(note) = self.fabric.poll_note() {
            return Some(Note::Fabric(note));
        }
        if let Some(note) = self.operators.poll_note(now) {
            return Some(Note::Operators(note));
        }
        self.acm.poll_note().map(Note::Acm)
    }

    /// Carries notes from part to part, until none is left.
    pub(super) fn route(&mut self, now: Time, configuration: &Configuration) {
        while let Some(note) = self.poll_note(now) {
            match note {
                Note::Connections(connections::Note::Order(conn, order)) => match conn.client {
                    crate::kernel::CLIENT => self.kernel.order(conn, order),
                    _ => self.libraries.order(now, conn, order),
                },
                Note::Connections(connections::Note::Send(send)) => {
                    self.ports.send_association(now, &send);
                }
                Note::Connections(connections::Note::Probe(probe)) => {
                    self.ports.send_probe(now, &probe);
                }
                Note::Connections(connections::Note::Ask(Query::Paths(query))) => {
                    self.sources.ask(now, Question::failover(query));
                }
                Note::Connections(connections::Note::Ask(Query::Assess(assess))) => {
                    let (query, overlaps) = (assess.query, self.fabric.assess(&assess));
                    let answer = Input::Assessed { query, overlaps };
                    self.connections.handle(now, answer);
                }
                Note::Connections(connections::Note::Ask(Query::Withdraw(query))) => {
                    self.sources.withdraw(query);
                }
                Note::Connections(connections::Note::Happened(trace)) => {
                    self.log(&trace);
                    self.tell_watchers(now, &trace);
                }
                Note::Libraries(libraries::Note::Engine(input)) => {
                    self.remember_leaving(now, &input);
                    if self.kernel.handle_claim(now, &input) {
                        self.handle_owners(now, *input);
                    }
                }
                Note::Libraries(libraries::Note::AskKernel { id, number }) => {
                    self.kernel.ask(now, id, number);
                }
                Note::Kernel(kernel::Note::Known { id, number, qp }) => {
                    self.libraries.handle_known(now, id, number, qp.as_deref());
                }
                Note::Kernel(kernel::Note::Engine(input)) => {
                    self.remember_leaving(now, &input);
                    self.handle_owners(now, *input);
                }
                Note::Kernel(kernel::Note::AskLibrary { id, pid }) => {
                    let has_library = self.libraries.has_process(pid);
                    self.kernel.handle_library(now, id, has_library);
                }
                Note::Kernel(kernel::Note::Forget(id)) => self.kernel.forget(id),
                Note::Kernel(kernel::Note::Discover(wanted)) => {
                    // Who has begun anew as well may not have found this host: it hears of it by being asked.
                    self.peers.forget_known();
                    self.sa.discover(wanted);
                }
                Note::Libraries(libraries::Note::AskPeer { question, uid, far })
                | Note::Kernel(kernel::Note::AskPeer { question, uid, far }) => {
                    self.peers.ask(now, question, uid, far);
                }
                Note::Libraries(libraries::Note::UnknownDevice(node_guid))
                | Note::Kernel(kernel::Note::DeviceUsed(node_guid)) => {
                    self.ports.device_is_used(now, node_guid);
                }
                Note::Libraries(libraries::Note::Gone(client)) => {
                    self.peers.client_gone(client);
                    self.operators.watchers().forget(client);
                }
                Note::Presence(send) => self.ports.send_presence(now, &send),
                Note::PeerAnswers(question, answers) => match question.client {
                    crate::kernel::CLIENT => self.kernel.handle_peer(now, question, answers),
                    _ => self.libraries.answer_peer(now, question, answers),
                },
                Note::Operators(note) => self.answer_operator(now, configuration, note),
                Note::Ports(ports::Note::Changed(news)) => self.port_changed(now, *news),
                Note::Ports(ports::Note::CameUp(port)) => self.sa.handle_port_up(port),
                Note::Ports(ports::Note::Gone(port)) => self.port_gone(now, port),
                Note::Ports(ports::Note::SmChanged(port)) => self.sm_changed(now, port),
                Note::Ports(ports::Note::MadsLost(port)) => self.sa.handle_mads_lost(port),
                Note::Ports(ports::Note::AddressesChanged) => {
                    if let Some(rtnl) = self.ports.rtnl() {
                        self.acm.handle_interfaces(now, rtnl.addresses());
                        self.kernel.handle_bonds(rtnl.bonds());
                    }
                }
                Note::Ports(ports::Note::Association(source, message)) => {
                    self.connections.handle(now, Input::Mad(source, *message));
                }
                Note::Ports(ports::Note::Crowded(port)) => {
                    self.connections.handle(now, Input::Crowded(port));
                }
                Note::Ports(ports::Note::Presence(mad)) => {
                    self.presence(now, &mad);
                }
                Note::Ports(ports::Note::SaResponse(mad)) => self.sa.handle_response(now, &mad),
                Note::Ports(ports::Note::SaTimedOut(id)) => self.sa.handle_timeout(id),
                Note::Ports(ports::Note::Report(key, port, mad)) => {
                    self.sa.handle_report(key, port, mad);
                }
                Note::Sa(sa::Note::Send(request)) => {
                    if self.ports.send_sa(&request).is_err() {
                        self.sa.handle_unsent(request.transaction_id);
                    }
                }
                Note::Sa(sa::Note::AnswerReport(key, report, answer)) => {
                    self.ports.answer_report(key, &report, &answer);
                }
                Note::Sa(sa::Note::Reported(report)) => self.reported(now, &report),
                Note::Sa(sa::Note::Paths(query, result)) => {
                    self.sources.handle_answer(now, query, result);
                }
                Note::Sa(sa::Note::PathsAbsent(query)) => self.sources.handle_absent(now, query),
                Note::Sa(sa::Note::Fabric(number, reply)) => {
                    self.fabric.handle_reply(number, reply);
                }
                Note::Sa(sa::Note::Found(found)) => self.kernel.handle_found(found),
                Note::Sa(sa::Note::Manager(port, guid)) => self.ports.set_manager(port, guid),
                Note::Sa(sa::Note::Joined(user, reply)) => self.acm.handle_joined(user, reply),
                Note::Sources(sources::Note::AskSa(ask)) => self.sa.ask(*ask),
                Note::Sources(sources::Note::WithdrawSa(query)) => self.sa.withdraw(query),
                Note::Sources(sources::Note::AskFabric(query)) => {
                    let result = self.fabric.find(&query);
                    self.sources.handle_answer(now, query.query, result);
                }
                Note::Sources(sources::Note::Answered(answer)) => self.path_found(now, answer),
                Note::Fabric(fabric::Note::AskSa(ask)) => self.sa.ask(*ask),
                Note::Fabric(fabric::Note::Changed) => self.acm.handle_fabric_changed(now),
                Note::Fabric(fabric::Note::OverlapChanged) => {
                    self.connections.handle(now, Input::FabricChanged);
                }
                Note::Acm(acm_thread::Note::Ask(question)) => self.sources.ask(now, question),
                Note::Acm(acm_thread::Note::Join { user, port, mad }) => {
                    self.sa.ask(Ask::new(User::Join(user), port, *mad));
                }
                Note::Acm(acm_thread::Note::Shown(operator, json)) => {
                    self.operators.answer(now, operator, &json);
                }
                Note::Acm(acm_thread::Note::TcpPort(port)) => self.sources.set_own_acm_port(port),
            }
        }
    }

    /// What the owner of a queue pair says: its library, or the kernel module.
    fn handle_owners(&mut self, now: Time, input: Input) {
        let led = match input {
            Input::Register(id, ..) | Input::Refused(id, ..) | Input::Report(id, _) => Some(id),
            _ => None,
        };
        self.connections.handle(now, input);
        let engine = self.connections.engine();
        let led = led.and_then(|id| engine.identities_in(id..=id).next());
        if let Some(conn) = led {
            let port = PortId::new(conn.node_guid, conn.port);
            self.sa.want_name(now, port, conn.dlid);
        }
    }

    /// A question of another host, or the answer to one of ours: to a probe, or for a library.
    fn presence(&mut self, now: Time, mad: &PresenceReceived) {
        let engine = self.connections.engine();
        let answer = mad.probe_answers().into_iter().flatten();
        let answer = { answer }.find(|answer| engine.expects_probe(answer));
        match answer {
            Some(answer) => {
                let by_daemon = mad.message.is_here();
                self.connections.handle_probed(now, answer, by_daemon);
            }
            None => {
                let PresenceReceived {
                    from,
                    way,
                    transaction_id,
                    ..
                } = *mad;
                let sender = engine.sender(from.port, from.lid);
                if mad.message == Presence::Get {
                    let is_peer = engine.leads_to(from.port, from.lid);
                    if !self.peers.admits(now, sender, is_peer) {
                        return;
                    }
                    self.kernel.handle_peer_asks(from);
                }
                self.peers
                    .handle(now, from, sender, way, transaction_id, &mad.message);
            }
        }
    }

    fn port_changed(&mut self, now: Time, news: PortNews) {
        self.sources.handle_port(&news);
        self.sa.handle_port(&news);
        if news.reaches_sm() {
            self.sa.subscribe(news.id, &TRAPS);
        }
        self.fabric.handle_port(now, &news);
        self.acm.handle_port(now, &news);
        self.libraries.set_grh_required(news.id, news.requires_grh);
        self.libraries.handle_port(now, news.id, &news.status);
        self.kernel.handle_port(now, news.id, &news.status);
        self.peers.port_changed(now, news.id);
        let status = Some(news.status);
        self.connections.handle(now, Input::Port(news.id, status));
    }

    fn port_gone(&mut self, now: Time, port: PortId) {
        self.sa.handle_port_gone(port);
        self.sources.handle_port_gone(port);
        self.fabric.handle_port_gone(now, port);
        self.acm.handle_port_gone(now, port);
        self.libraries.handle_port_gone(port);
        self.kernel.handle_port_gone(port);
        self.peers.port_changed(now, port);
        self.connections.handle(now, Input::Port(port, None));
    }

    fn sm_changed(&mut self, now: Time, port: PortId) {
        self.sa.handle_sm_changed(now, port);
        self.sources.handle_sm_changed(port);
        self.acm.handle_sm_changed(now, port);
    }

    /// Subnet administration reports by itself.
    fn reported(&mut self, now: Time, report: &Report) {
        let Report { port, notice } = report;
        let (trap, lid) = (notice.trap_number, notice.issuer_lid.0);
        tracing::debug!(port = port.port, trap, lid, what = ?notice.trap(), "reported");
        if let Some(notice) = notice.trap().and_then(of_engine) {
            self.connections.handle(now, Input::Notice(*port, notice));
        }
        self.fabric.handle_report(now);
        match notice.trap() {
            Some(Trap::OutOfService(gid)) => self.acm.handle_gid_gone(now, gid),
            Some(Trap::LinkState(_)) => self.acm.handle_link_report(now),
            _ => {}
        }
    }

    fn path_found(&mut self, now: Time, answer: Answer) {
        if answer.urgency != Urgency::Failover {
            return self.acm.handle_answer(answer);
        }
        let Answer {
            query,
            origin,
            result,
            ..
        } = answer;
        // The record's source goes with it: operators are shown where an alternate came from.
        let input = Input::Paths {
            query,
            result,
            origin,
        };
        self.connections.handle(now, input);
    }
}
