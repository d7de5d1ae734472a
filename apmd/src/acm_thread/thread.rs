// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread: what wakes it goes to the service or to the resolver between hosts, and what these
//! want is done.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, TrySendError};
use std::time::Duration;

use acm::net::{Net, PortPartition};
use acm::{Client, Ended, Service, User};
use cm_msgs::Gid;
use mio::event::Event;
use mio::{Events, Poll, Waker};
use nix::poll::PollTimeout;
use statemachine::{Random, Time};

use super::alarm::Alarm;
use super::channel::{FromThread, Host, Sender, Status, ToThread, channel};
use super::counters::Counters;
use super::files;
use super::kernel::Kernel;
use super::neighbours::Neighbours;
use super::queue_pairs::QueuePairs;
use super::routes;
use super::streams::{Refusal, Streams, Turn, Waiting};
use super::token::Token;
use crate::clock::Clock;
use crate::config::{self, Multicast};
use crate::io::host_name::host_name;
use crate::io::routes::Routes;
use crate::io::thread;
use crate::observe::acm as model;
use crate::observe::filter::DestinationFilter;

/// Pause before what failed for want of resources, or of room, is tried again.
const ACCEPT_RETRY: Duration = Duration::from_secs(1);
const SEND_RETRY: Duration = Duration::from_millis(10);

/// Starts the thread.
pub(super) fn start(
    config: config::Acm,
    clock: Clock,
    random: Random,
    counters: Arc<Counters>,
    outbox: Sender<FromThread>,
) -> io::Result<Sender<ToThread>> {
    let poll = Poll::new()?;
    let waker = Arc::new(Waker::new(poll.registry(), Token::Loop.into())?);
    let (to, inbox) = channel(waker);
    let registries = [(), (), ()].map(|()| poll.registry().try_clone());
    let [streams, kernel, queue_pairs] = registries;
    let (streams, kernel, queue_pairs) = (streams?, kernel?, queue_pairs?);
    let alarm = Alarm::new(poll.registry())?;
    let run = move || {
        // Queue pairs stay on the thread that makes them.
        let routes = routes::subscribed(poll.registry());
        let neighbours = Neighbours::subscribed(poll.registry());
        let mut random = random;
        let mut thread = AcmThread {
            service: Service::new(config.settings(), random.split()),
            net: Net::new(config.multicast(), random),
            streams: Streams::open(&config, streams),
            kernel: Kernel::open(config.kernel, kernel),
            queue_pairs: QueuePairs::new(queue_pairs),
            routes,
            neighbours,
            host: Host {
                config,
                reloads: 0,
                ports: Default::default(),
                interfaces: Vec::new(),
            },
            mail: Mail {
                inbox,
                outbox,
                held: VecDeque::new(),
            },
            counters,
            wakeups: Wakeups {
                poll,
                clock,
                alarm,
                unread: Vec::new(),
                accept_at: None,
                stopping: false,
            },
        };
        thread.take_files();
        thread.tell_status();
        thread.run();
    };
    thread::spawn("acm", run)?;
    Ok(to)
}

/// What the thread waits for.
pub(super) struct Wakeups {
    poll: Poll,
    clock: Clock,
    alarm: Alarm,
    /// Queue pairs with more to read than one turn takes.
    pub(super) unread: Vec<u32>,
    /// When the listeners are looked at again: callers could not be taken in, or more wait than one turn
    /// takes.
    accept_at: Option<Time>,
    stopping: bool,
}

/// The thread's ends of the channels.
pub(super) struct Mail {
    inbox: Receiver<ToThread>,
    outbox: Sender<FromThread>,
    /// What found no room. Only what may not be lost is added to it.
    held: VecDeque<FromThread>,
}

impl Mail {
    /// Whether there is room, as far as known.
    fn has_room(&mut self) -> bool {
        while let Some(message) = self.held.pop_front() {
            if let Err(TrySendError::Full(message)) = self.outbox.try_send(message) {
                self.held.push_front(message);
                return false;
            }
        }
        true
    }

    /// Gives a message, now or as soon as there is room.
    pub(super) fn send(&mut self, message: FromThread) {
        self.held.push_back(message);
        self.has_room();
    }
}

pub(super) struct AcmThread {
    pub(super) service: Service,
    pub(super) net: Net,
    pub(super) streams: Streams,
    pub(super) kernel: Kernel,
    pub(super) queue_pairs: QueuePairs,
    pub(super) routes: Routes,
    neighbours: Neighbours,
    pub(super) host: Host,
    pub(super) mail: Mail,
    pub(super) counters: Arc<Counters>,
    pub(super) wakeups: Wakeups,
}

impl AcmThread {
    fn run(&mut self) {
        let mut events = Events::with_capacity(256);
        let mut now = self.wakeups.clock.now();
        while !self.wakeups.stopping {
            let client = match self.sleep(now, &mut events) {
                Ok(client) => client,
                Err(error) => return tracing::error!(%error, "acm: poll failed"),
            };
            now = self.wakeups.clock.now();
            // Before the listeners' own wakeups, or one turn would take in twice as many as it may.
            self.accept_again(now);
            if let Some((key, ended)) = client {
                self.client(now, key, ended);
            }
            for event in &events {
                self.dispatch(now, event);
            }
            self.work(now);
        }
        self.leave_groups(now);
    }

    /// Waits for events, or for what is due next, as seen when the last ones came. The client that
    /// has something to say besides, and how much of its stream has ended.
    fn sleep(&mut self, now: Time, events: &mut Events) -> io::Result<Option<(u32, Ended)>> {
        let mut timeout = PollTimeout::ZERO;
        if !self.streams.has_unread() && self.wakeups.unread.is_empty() {
            if let Some(deadline) = self.next_deadline(now) {
                self.wakeups.alarm.set(now, deadline)?;
            }
            timeout = PollTimeout::NONE;
        }
        let woken = self.streams.sleep(timeout)?;
        events.clear();
        if woken.poll {
            match self.wakeups.poll.poll(events, Some(Duration::ZERO)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
        Ok(woken.client)
    }

    fn next_deadline(&self, now: Time) -> Option<Time> {
        let deadlines = [
            self.service.poll_timeout(),
            self.net.poll_timeout(),
            self.streams.poll_timeout(),
            self.wakeups.accept_at,
            (!self.mail.held.is_empty()).then(|| now + SEND_RETRY),
        ];
        deadlines.into_iter().flatten().min()
    }

    fn dispatch(&mut self, now: Time, event: &Event) {
        match Token::from_mio(event.token()) {
            Some(Token::Client(key)) => self.client(now, key, ended(event)),
            Some(Token::Listener(place)) => self.accept(now, place),
            Some(Token::Kernel) => self.kernel_requests(now),
            Some(Token::Routes) => {
                if let Err(error) = self.routes.read_changes() {
                    tracing::warn!(%error, "changes of routes are no longer heard");
                }
            }
            Some(Token::Neighbours) => self.neighbours_changed(now),
            Some(Token::QueuePair(key)) => self.receive(now, key),
            Some(Token::Device(key)) => self.queue_pairs.take_events(key),
            Some(Token::Alarm) => self.wakeups.alarm.handle_ready(),
            Some(Token::Loop) => self.read_mail(now),
            None => {}
        }
    }

    /// What is left over from the last turn, what is due, and what came of it all.
    fn work(&mut self, now: Time) {
        while let Some(Client { key, user }) = self.streams.expired(now) {
            tracing::debug!(
                client = key,
                uid = user.uid(),
                from = user.host().map(display),
                "client of acm disconnected: left half a request or its answers"
            );
            self.service.handle_client_gone(key);
        }
        for key in self.streams.take_unread() {
            self.client(now, key, Ended::Nothing);
        }
        for key in std::mem::take(&mut self.wakeups.unread) {
            self.receive(now, key);
        }
        if self.service.poll_timeout().is_some_and(|at| at <= now) {
            self.service.handle_time(now);
        }
        self.net.handle_time(now);
        self.drain(now);
    }

    /// Does what the service and the resolver want, until they want nothing more.
    pub(super) fn drain(&mut self, now: Time) {
        loop {
            if let Some(lookup) = self.service.poll_lookup() {
                self.net.lookup(now, &lookup);
            } else if let Some(address) = self.service.poll_departure() {
                self.net.announce_no_longer(&address);
            } else if let Some(arrival) = self.service.poll_arrival() {
                self.announce(now, arrival);
            } else if let Some(answer) = self.service.poll_answer() {
                self.answer(now, &answer);
            } else if !self.mail.has_room() {
                return;
            } else if let Some(output) = self.net.poll_output() {
                self.output(now, output);
            } else if let Some(question) = self.service.poll_question() {
                self.mail.send(FromThread::Ask(question));
            } else {
                return;
            }
        }
    }

    fn client(&mut self, now: Time, key: u32, ended: Ended) {
        let Self {
            service, routes, ..
        } = self;
        let mut source_of = |to: IpAddr| routes.source_to(now, to);
        let turn = self
            .streams
            .handle_ready(now, key, ended, |client, header, message, output| {
                service.handle_request(now, client, header, message, &mut source_of, output);
            });
        if let Turn::Broken(user, breach) = turn {
            Counters::count(&self.counters.malformed);
            tracing::warn!(
                client = key,
                uid = user.uid(),
                from = user.host().map(display),
                %breach,
                "client of acm disconnected: protocol violation"
            );
        }
        if turn != Turn::Over {
            self.service.handle_client_gone(key);
        }
    }

    fn accept(&mut self, now: Time, place: u32) {
        let counters = &self.counters;
        let again = match self
            .streams
            .accept(place, |outcome| taken(counters, outcome))
        {
            Ok(Waiting::Nobody) => return,
            Ok(Waiting::Somebody) => now,
            Err(error) => {
                tracing::warn!(%error, "client of acm not taken in");
                now + ACCEPT_RETRY
            }
        };
        let at = self.wakeups.accept_at.map_or(again, |at| at.min(again));
        self.wakeups.accept_at = Some(at);
    }

    /// Takes in who could not be when he came.
    fn accept_again(&mut self, now: Time) {
        if self.wakeups.accept_at.is_some_and(|at| at <= now) {
            self.wakeups.accept_at = None;
            for place in 0..Streams::LISTENERS {
                self.accept(now, place);
            }
        }
    }

    fn kernel_requests(&mut self, now: Time) {
        while let Some(request) = self.kernel.receive() {
            self.service.handle_kernel(now, request);
        }
        if self.kernel.failure().is_some() {
            self.tell_status();
        }
    }

    /// The kernel's neighbour tables say where addresses are.
    fn neighbours_changed(&mut self, now: Time) {
        for neighbour in self.neighbours.read() {
            let (pkey, address, gid) = (neighbour.pkey, neighbour.address, neighbour.gid);
            self.service.handle_claim(now, pkey, address, gid);
        }
    }

    fn answer(&mut self, now: Time, answer: &acm::Answer) {
        if let Some(message) = answer.for_kernel() {
            return self.kernel.send(&message);
        }
        let mut output = Vec::new();
        if let Some(key) = answer.for_client(&mut output)
            && self.streams.answer(now, key, &output) == Turn::Gone
        {
            self.service.handle_client_gone(key);
        }
    }

    /// The failover loop has something to say.
    fn read_mail(&mut self, now: Time) {
        loop {
            match self.mail.inbox.try_recv() {
                Ok(message) => self.hear(now, message),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.wakeups.stopping = true;
                    return;
                }
            }
        }
    }

    fn hear(&mut self, now: Time, message: ToThread) {
        match message {
            ToThread::Host(host) => self.take_host(now, *host),
            ToThread::Everything(host) => {
                self.take_host(now, *host);
                for port in self.host.ports.keys() {
                    self.net.handle_reregister(now, *port);
                }
                self.service.handle_fabric_changed(now);
            }
            ToThread::SmChanged(port) => {
                self.net.handle_reregister(now, port);
                self.service.handle_port_event(now, port);
            }
            ToThread::FabricChanged => self.service.handle_fabric_changed(now),
            ToThread::LinkChanged => self.service.handle_link_report(now),
            ToThread::GidGone(gid) => self.service.handle_gid_gone(gid),
            ToThread::Paths {
                number,
                origin,
                result,
            } => self.service.handle_paths(now, number, origin, result),
            ToThread::Joined(user, reply) => self.joined(now, user, reply),
            ToThread::Show(operator, wanted) => self.show(now, operator, &wanted),
            ToThread::Stop => self.wakeups.stopping = true,
        }
    }

    fn take_host(&mut self, now: Time, host: Host) {
        let before = std::mem::replace(&mut self.host, host);
        let routed = self.ports_by_gid();
        if before.reloads != self.host.reloads {
            self.reload();
        } else if routed
            .iter()
            .any(|gid| !ports_by_gid(&before).contains(gid))
        {
            let routes = files::routes(&self.host.config, &routed);
            self.service.set_routes(routes);
        }
        for id in before.ports.keys() {
            if !self.host.ports.contains_key(id) {
                self.port_gone(now, *id);
            }
        }
        for (id, port) in &self.host.ports {
            self.service.handle_port(*id, port.clone());
            self.net.handle_port(now, *id, port.up());
        }
        if before.interfaces != self.host.interfaces {
            let interfaces = self.host.interfaces.clone();
            self.service.set_interfaces(interfaces);
        }
        if before.reloads != self.host.reloads {
            self.net.set_settings(now, self.host.config.multicast());
            self.tell_status();
        }
        self.set_endpoints(now);
    }

    fn ports_by_gid(&self) -> Vec<Gid> {
        ports_by_gid(&self.host)
    }

    /// The configuration was read again: so are ibacm's files, and what could not be opened is.
    fn reload(&mut self) {
        self.service.set_settings(self.host.config.settings());
        self.take_files();
        self.streams.listen_again(&self.host.config);
        self.kernel.listen_again();
    }

    /// Gives the service what the files say.
    fn take_files(&mut self) {
        let config = &self.host.config;
        self.service.set_names(files::names(config), host_name());
        self.service.set_known(files::addresses(config));
        let routes = files::routes(config, &self.ports_by_gid());
        self.service.set_routes(routes);
    }

    fn port_gone(&mut self, now: Time, id: statemachine::PortId) {
        self.service.handle_port_gone(id);
        self.net.handle_port(now, id, None);
        for endpoint in self.queue_pairs.on(id) {
            self.broken(now, endpoint);
        }
        let ports = &self.host.ports;
        self.queue_pairs
            .keep_devices(|guid| ports.keys().any(|port| port.node_guid == guid));
    }

    /// Asks and answers other hosts where ACM is served, under all its addresses.
    fn set_endpoints(&mut self, now: Time) {
        let wanted = self.host.config.multicast != Multicast::Off;
        let named = self
            .service
            .endpoints()
            .filter(|endpoint| wanted && !endpoint.addresses.is_empty());
        let endpoints: Vec<_> = named
            .map(|endpoint| PortPartition {
                port: endpoint.port,
                pkey: endpoint.pkey,
            })
            .collect();
        self.net.set_endpoints(now, &endpoints);
    }

    fn tell_status(&mut self) {
        let streams = self.streams.failures();
        let streams = streams.map(|why| format!("acm is not served at {why}"));
        let kernel = self.kernel.failure();
        let kernel = kernel.map(|why| format!("the kernel's path requests are not heard: {why}"));
        let status = Status {
            tcp_port: self.streams.tcp_port(),
            problems: streams.chain(kernel).collect(),
        };
        self.mail.send(FromThread::Status(status));
    }

    fn show(&mut self, now: Time, operator: u32, wanted: &DestinationFilter) {
        let ports = &self.host.ports;
        let device = |guid| {
            let mut ports = ports.iter();
            let port = ports.find(|(id, _)| id.node_guid == guid)?;
            Some(port.1.device.clone())
        };
        let shown = model::Acm {
            served_at: self.streams.served_at(),
            kernel: self.kernel.is_heard(),
            clients: self.streams.clients(),
            multicast: model::show_multicast(&self.net, device),
            ..model::show(now, &self.service, wanted)
        };
        let json = serde_json::to_vec(&shown).unwrap_or_default();
        self.mail.send(FromThread::Shown(operator, json));
    }
}

fn ports_by_gid(host: &Host) -> Vec<Gid> {
    host.ports.values().map(|port| port.status.gid).collect()
}

/// What became of a caller.
fn taken(counters: &Counters, outcome: Result<(), Refusal>) {
    let Err(refusal) = outcome else {
        return Counters::count(&counters.clients);
    };
    Counters::count(&counters.refused);
    let user = refusal.user();
    tracing::warn!(
        uid = user.and_then(User::uid),
        from = user.and_then(User::host).map(display),
        %refusal,
        "client of acm not taken in"
    );
}

/// What a wakeup tells of the end of a client's stream.
fn ended(event: &Event) -> Ended {
    match (event.is_write_closed(), event.is_read_closed()) {
        (true, _) => Ended::Everything,
        (false, true) => Ended::Speaking,
        (false, false) => Ended::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(number: u32) -> FromThread {
        FromThread::Shown(number, Vec::new())
    }

    #[test]
    fn what_finds_no_room_is_held_and_given_in_its_order() {
        let poll = Poll::new().expect("epoll");
        let waker = Waker::new(poll.registry(), mio::Token(0)).expect("eventfd");
        let (outbox, from) = channel(Arc::new(waker));
        let (_to, inbox) = std::sync::mpsc::channel();
        let mut mail = Mail {
            inbox,
            outbox,
            held: VecDeque::new(),
        };
        let mut given = 0;
        while mail.has_room() {
            mail.send(shown(given));
            given += 1;
            assert!(given < 10_000, "the channel has no bound");
        }
        mail.send(shown(given));
        assert!(!mail.has_room() && mail.held.len() == 2);
        let mut taken = Vec::new();
        while let Ok(FromThread::Shown(number, _)) = from.try_recv() {
            taken.push(number);
            mail.has_room();
        }
        assert!(taken.into_iter().eq(0..=given), "none lost, none twice");
        assert!(mail.has_room());
    }
}
