// SPDX-License-Identifier: MIT OR Apache-2.0
//! Subnet administration: requests of all parts, and what it reports by itself.

use std::collections::VecDeque;

use cm_msgs::mad::MAD_LEN;
use cm_msgs::sa::PathRecord;
use cm_msgs::{Guid, Lid};
use paths::sa::{
    Ask, Failure, Limits, Malformed, ManagerPath, Managers, NodeNames, Report, Reports, Response,
    SaClient, SaRequest, Service, Services, Subnet, User, WindowView,
};
use paths::source::sa::paths;
use statemachine::{FarPort, PortId, QueryError, Random, Time};

use super::ports::PortNews;
use crate::io::umad::Incoming;
use crate::token::PortKey;

/// What concerns others.
#[derive(Debug)]
pub(crate) enum Note {
    Send(SaRequest),
    AnswerReport(PortKey, Box<Incoming>, [u8; MAD_LEN]),
    Reported(Report),
    /// A path query is answered.
    Paths(u32, Result<Vec<PathRecord>, QueryError>),
    /// The subnet has no manager; the query goes on.
    PathsAbsent(u32),
    /// A request of the fabric's reader is answered.
    Fabric(u32, Result<Response, Failure>),
    /// A multicast group was joined, or not.
    Joined(u32, Result<Response, Failure>),
    /// Daemons of other hosts say that they answer there.
    Found(Vec<FarPort>),
    /// The subnet manager of a port's subnet has this port GUID.
    Manager(PortId, Guid),
}

pub(crate) struct Sa {
    client: SaClient,
    reports: Reports,
    services: Services,
    managers: Managers,
    names: NodeNames,
    notes: VecDeque<Note>,
    malformed: u64,
}

impl Sa {
    pub(crate) fn new(mut random: Random) -> Self {
        Self {
            services: Services::new(random.split()),
            managers: Managers::new(random.split()),
            names: NodeNames::new(random.split()),
            client: SaClient::new(Limits::default(), random),
            reports: Reports::default(),
            notes: VecDeque::new(),
            malformed: 0,
        }
    }

    /// How many requests may be on their way by each port.
    pub(crate) fn windows(&self) -> impl Iterator<Item = WindowView> {
        self.client.windows()
    }

    /// MADs that did not decode.
    pub(crate) fn malformed(&self) -> u64 {
        self.malformed
    }

    pub(crate) fn ask(&mut self, ask: Ask) {
        self.client.ask(ask);
    }

    /// Nobody waits for the answer to a path query any more.
    pub(crate) fn withdraw(&mut self, query: u32) {
        self.client.withdraw(User::Paths(query));
    }

    /// Names of the nodes that connections lead to.
    pub(crate) fn names(&self) -> &NodeNames {
        &self.names
    }

    /// A connection leads from a local port to this LID: the node there is to have a name.
    pub(crate) fn want_name(&mut self, now: Time, port: PortId, lid: Lid) {
        self.names.want(now, port, lid);
    }

    pub(crate) fn subscribe(&mut self, port: PortId, traps: &[u16]) {
        self.reports.subscribe(port, traps);
    }

    /// Whether daemons of other hosts are to be found, and to find this one.
    pub(crate) fn discover(&mut self, wanted: bool) {
        self.services.set_wanted(wanted);
    }

    /// Nobody will be there to be told of anything.
    pub(crate) fn end(&mut self) {
        self.reports.end();
        self.services.set_wanted(false);
        self.client.lift_limits();
    }

    pub(crate) fn handle_response(&mut self, now: Time, mad: &Incoming) {
        if let Err(error) = self.client.handle_response(now, &mad.bytes) {
            self.count_malformed(mad, &error);
        }
    }

    pub(crate) fn handle_timeout(&mut self, transaction_id: u32) {
        self.client.handle_timeout(transaction_id);
    }

    pub(crate) fn handle_unsent(&mut self, transaction_id: u32) {
        self.client.handle_unsent(transaction_id);
    }

    /// A MAD of method Report, whose sender is known to be the subnet manager.
    pub(crate) fn handle_report(&mut self, key: PortKey, port: PortId, mad: Box<Incoming>) {
        match self.reports.handle_report(port, &mad.bytes) {
            Ok(answer) => self.notes.push_back(Note::AnswerReport(key, mad, answer)),
            Err(error) => self.count_malformed(&mad, &error),
        }
    }

    fn count_malformed(&mut self, mad: &Incoming, error: &Malformed) {
        self.malformed += 1;
        let (lid, qpn) = (mad.lid.0, mad.qpn);
        tracing::warn!(lid, qpn, %error, "malformed MAD of subnet administration");
    }

    /// Whether, and on which subnet, a port can ask.
    pub(crate) fn handle_port(&mut self, news: &PortNews) {
        let status = &news.status;
        let subnet = news.reaches_sm().then(|| Subnet {
            prefix: status.gid.subnet_prefix(),
            sm_lid: status.sm_lid,
            sm_guid: status.sm_guid,
        });
        let reaches = news.reaches_sm() && status.infiniband && !status.gid.is_unspecified();
        let manager = reaches.then_some(ManagerPath {
            gid: status.gid,
            sm_lid: status.sm_lid,
        });
        self.managers.handle_port(news.id, manager);
        self.client.handle_port(news.id, subnet);
        let reaches = news.reaches_sm() && status.infiniband;
        self.names
            .handle_port(news.id, reaches.then_some(status.lmc));
        let service = reaches.then(|| service(news)).flatten();
        self.services.handle_port(news.id, service);
    }

    /// The port has come up: the subnet manager may not know what it had asked for.
    pub(crate) fn handle_port_up(&mut self, port: PortId) {
        self.reports.handle_forgotten(port);
        self.services.handle_port_up(port);
    }

    /// Another manager, or the same anew: what the old one was asked or told is forgotten.
    pub(crate) fn handle_sm_changed(&mut self, now: Time, port: PortId) {
        let again = self.client.handle_sm_changed(port);
        self.reports.handle_forgotten(port);
        self.services.handle_sm_changed(now, port);
        self.managers.handle_sm_changed(port);
        self.names.handle_sm_changed(port);
        let is_path = |user: &&User| matches!(user, User::Paths(_));
        let paths = again.iter().filter(is_path).count();
        let (port, others) = (port.port, again.len() - paths);
        tracing::info!(
            port,
            paths,
            others,
            "subnet manager changed; requests repeated"
        );
    }

    /// What was sent by this port's umad file is not answered any more.
    pub(crate) fn handle_mads_lost(&mut self, port: PortId) {
        self.client.handle_port_gone(port);
    }

    pub(crate) fn handle_port_gone(&mut self, port: PortId) {
        self.client.handle_port(port, None);
        self.client.handle_port_gone(port);
        self.reports.handle_port_gone(port);
        self.services.handle_port_gone(port);
        self.managers.handle_port(port, None);
        self.names.handle_port_gone(port);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let times = [
            self.client.poll_timeout(),
            self.reports.poll_timeout(),
            self.services.poll_timeout(),
            self.managers.poll_timeout(),
            self.names.poll_timeout(),
        ];
        times.into_iter().flatten().min()
    }

    pub(crate) fn handle_time(&mut self, now: Time) {
        self.client.handle_time(now);
        self.reports.handle_time(now);
        self.services.handle_time(now);
        self.managers.handle_time(now);
        self.names.handle_time(now);
    }

    /// `is_suspect`: whether nothing passes a port, as far as is known.
    pub(crate) fn poll_note(
        &mut self,
        now: Time,
        is_suspect: impl Fn(PortId) -> bool,
    ) -> Option<Note> {
        if let Some(note) = self.notes.pop_front() {
            return Some(note);
        }
        if let Some(report) = self.reports.poll_report() {
            return Some(Note::Reported(report));
        }
        while let Some(ask) = self.reports.poll_ask() {
            self.client.ask(ask);
        }
        while let Some(ask) = self.services.poll_ask() {
            self.client.ask(ask);
        }
        while let Some(ask) = self.managers.poll_ask() {
            self.client.ask(ask);
        }
        if let Some(ask) = self.names.poll_ask(now) {
            self.client.ask(ask);
        }
        if let Some(request) = self.client.poll_send_around(is_suspect) {
            return Some(Note::Send(request));
        }
        while let Some(user) = self.client.poll_absent() {
            if let User::Paths(query) = user {
                return Some(Note::PathsAbsent(query));
            }
        }
        while let Some((user, reply)) = self.client.poll_reply() {
            return Some(match user {
                User::Paths(query) => Note::Paths(query, paths(reply)),
                User::Fabric(number) => Note::Fabric(number, reply),
                User::Join(user) => Note::Joined(user, reply),
                User::Inform(number) => {
                    self.reports.handle_reply(now, number, reply);
                    continue;
                }
                User::Node(number) => {
                    self.names.handle_reply(now, number, reply);
                    continue;
                }
                User::Manager(number) => {
                    self.managers.handle_reply(now, number, reply);
                    match self.managers.poll_found() {
                        Some((port, guid)) => Note::Manager(port, guid),
                        None => continue,
                    }
                }
                User::Service(number) => {
                    self.services.handle_reply(now, number, reply);
                    let found = self.services.take_found();
                    if found.is_empty() {
                        continue;
                    }
                    Note::Found(found)
                }
            });
        }
        None
    }
}

/// Where others are to ask for this daemon: in the first partition whose members all hear each other.
fn service(news: &PortNews) -> Option<Service> {
    let held = || news.pkeys.iter().filter(|pkey| pkey.partition() != 0);
    let pkey = held().find(|pkey| pkey.matches(**pkey)).or(held().next())?;
    Some(Service {
        gid: news.status.gid,
        lid: news.status.lid,
        lmc: news.status.lmc,
        pkey: *pkey,
    })
}
