// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library's state in this process, and what the caught calls mean for it.
#![allow(unsafe_code)]

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use cm_msgs::control::{Cause, PeerPort, PolicyOverride, Role};
use cm_msgs::{Gid, Lid, PKey, Qpn};
use nix::errno::Errno;
use rdma_sys::{ibv_context, ibv_qp, ibv_qp_type, rdma_cm_id};

use crate::binding;
use crate::change::Change;
use crate::channel::{Bell, ChannelKey, Channels, Event, Kind, LocalPort};
use crate::commit::{Command, Commit, Deliver, Delivery};
use crate::connection::{Connection, ContextKey, Description, IdKey, QpKey, QpNumber};
use crate::device::Device;
use crate::option::{ID_ACK_TIMEOUT, LEVEL_ID, Wish};
use crate::peers::{Answer, FarPort};
use crate::qp::Qp;
use crate::real::real;
use crate::registry::{Added, Announced, Connects, Owner, ReadyQp, Registry};
use crate::settings::Settings;
use crate::worker::Worker;

/// What an id holds, read while it surely exists: once it is established another thread may destroy it.
#[derive(Clone, Copy)]
pub(crate) struct IdView {
    key: IdKey,
    channel: ChannelKey,
    qp: Option<NonNull<ibv_qp>>,
    attempt: u64,
}

impl IdView {
    /// # Safety
    /// `id` is a valid id.
    pub(crate) unsafe fn of(id: *mut rdma_cm_id) -> Self {
        // SAFETY: see above.
        let held = unsafe { &*id };
        let key = IdKey(id as usize);
        Self {
            key,
            channel: ChannelKey(held.channel as usize),
            qp: NonNull::new(held.qp),
            attempt: library().registry.id(key).attempt,
        }
    }

    /// Its channel is librdmacm's own: whoever connects it waits in the call.
    pub(crate) fn is_synchronous(&self) -> bool {
        !library().channels.has(self.channel)
    }
}

/// All state of the library. One exists per process and is never freed.
pub(crate) struct Library {
    settings: Settings,
    pub(crate) registry: Registry,
    pub(crate) channels: Channels,
    commit: Commit,
    /// In a forked child, where it is itself abandoned: what its parent had abandoned.
    abandoned_before: AtomicPtr<Self>,
}

/// What this process's parents had, the last one's first.
static ABANDONED: AtomicPtr<Library> = AtomicPtr::new(ptr::null_mut());

static CURRENT: AtomicPtr<Library> = AtomicPtr::new(ptr::null_mut());

/// This process's state.
pub(crate) fn library() -> &'static Library {
    // SAFETY: what was stored is never freed.
    if let Some(library) = unsafe { CURRENT.load(Ordering::Acquire).as_ref() } {
        return library;
    }
    let new = Box::into_raw(Box::new(Library::new()));
    let null = ptr::null_mut();
    match CURRENT.compare_exchange(null, new, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: it is stored now and never freed.
        Ok(_) => unsafe { &*new },
        Err(first) => {
            // SAFETY: `new` was not published. What another thread stored is never freed.
            unsafe {
                drop(Box::from_raw(new));
                &*first
            }
        }
    }
}

/// A forked child has neither the thread nor the connections: it begins anew, should it use RDMA
/// by itself. The parent's state is abandoned, locked as it may be, and the socket to the daemon
/// is closed, which is how the daemon learns of the parent's death.
extern "C" fn after_fork_in_child() {
    let abandoned = CURRENT.swap(ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: what was stored is never freed.
    let Some(parents) = (unsafe { abandoned.as_ref() }) else {
        return;
    };
    // Nothing uses it again. A leak checker finds all of it from here.
    let older = ABANDONED.swap(abandoned, Ordering::AcqRel);
    parents.abandoned_before.store(older, Ordering::Release);
    for fd in parents.commit.descriptors() {
        // SAFETY: the descriptor is the commit thread's, which does not exist here.
        unsafe { libc::close(fd) };
    }
}

/// Registered when the object is loaded. Children's handlers run in the order of their registration, and one of the
/// program's may use RDMA: by then what its parent's threads had locked has been left behind.
extern "C" fn at_load() {
    // SAFETY: the handler may run at any fork from now on; see there.
    unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) };
}

#[used]
// SAFETY: the dynamic linker calls what is there, as functions of the C ABI, when it has loaded the object. Their
// arguments, which this one does not take, are the caller's to clean up.
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

impl Library {
    fn new() -> Self {
        let settings = Settings::of_process();
        let deliver = || -> Deliver {
            Box::new(|delivery| match delivery {
                Delivery::Event(connection, event, status, primary) => {
                    if let Some(id) = connection.id {
                        let kind = Kind::Apm(event);
                        let event = Event { id, kind, status };
                        library().channels.post(event, LocalPort::of(primary));
                    }
                }
                Delivery::Disconnected(connection, primary) => {
                    // An id that is gone may have left its address to another: none goes while the
                    // QP is held.
                    connection.with_qp(|_| {
                        if let Some(id) = connection.id {
                            let event = Event::disconnected(id);
                            library().channels.post(event, LocalPort::of(primary));
                        }
                    });
                }
                Delivery::Left(number) => {
                    library().channels.left(number);
                }
            })
        };
        let commit = Commit::new(settings.socket.clone(), deliver, Worker::prepare);
        Self {
            settings,
            registry: Registry::default(),
            channels: Channels::default(),
            commit,
            abandoned_before: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Whether every connection is to be managed, whoever makes it.
    pub(crate) fn wants_all(&self) -> bool {
        self.settings.all
    }

    fn wanted(&self, asked: Option<bool>) -> bool {
        asked.unwrap_or(self.settings.all)
    }

    /// The application is about to connect or accept: the only time at which the primary path's
    /// ACK timeout can be set. It is left alone where no migration can come of it: the
    /// application has its own, there is no daemon here or at the peer, or no second path is
    /// possible. There a connection is better off with long retries, in which a path may come back.
    /// A QP that the application made by itself gets it by `rdma_init_qp_attr`. `qp_num`: as librdmacm
    /// is told.
    ///
    /// # Safety
    /// `id` is a valid id.
    pub(crate) unsafe fn prepare(
        &'static self,
        id: *mut rdma_cm_id,
        role: Role,
        qp_num: Option<Qpn>,
    ) {
        let key = IdKey(id as usize);
        // SAFETY: the id is valid.
        let id_ref = unsafe { &*id };
        let verbs = id_ref.verbs;
        if verbs.is_null() || id_ref.qp_type != ibv_qp_type::IBV_QPT_RC {
            return;
        }
        let qp = match (NonNull::new(id_ref.qp), qp_num) {
            // SAFETY: an id's QP exists as long as the id points to it, and so does its context.
            (Some(qp), _) => Announced::OfId(QpKey(qp.as_ptr() as usize), unsafe {
                context_key(qp.as_ref().context)
            }),
            (None, Some(qpn)) => Announced::Number(QpNumber {
                // SAFETY: the id holds its device open.
                node_guid: unsafe { Device::new(verbs) }.node_guid(),
                qpn,
            }),
            (None, None) => return,
        };
        // SAFETY: on InfiniBand the union holds the IB address; elsewhere the bytes are not used.
        let peer_gid = Gid(unsafe { id_ref.route.addr.addr.ibaddr.dgid.raw });
        let peer = self
            .settings
            .ack_timeout
            // SAFETY: the id is valid, and has a device.
            .and_then(|_| unsafe { self.peer_that_counts(id_ref) });
        let answer = peer.map_or(Answer::No, |peer| self.commit.peer_answers(peer));
        let connects = Connects {
            role,
            qp,
            peer_gid,
            answer_came_late: answer == Answer::Late,
        };
        self.registry.connects(key, connects);
        let Some(mut timeout) = self.settings.ack_timeout.filter(|_| answer == Answer::Yes) else {
            return;
        };
        // SAFETY: the option is a byte. A refusal leaves the id as it was.
        unsafe {
            (real().rdma_set_option)(id, LEVEL_ID, ID_ACK_TIMEOUT, (&raw mut timeout).cast(), 1);
        }
    }

    /// The id has a route now, and will connect soon: time to ask for its peer.
    ///
    /// # Safety
    /// `id` is a valid id.
    pub(crate) unsafe fn routed(&'static self, id: *mut rdma_cm_id) {
        // SAFETY: the id is valid.
        let id = unsafe { &*id };
        if id.verbs.is_null()
            || id.qp_type != ibv_qp_type::IBV_QPT_RC
            || self.settings.ack_timeout.is_none()
        {
            return;
        }
        // SAFETY: the id is valid, and has a device.
        if let Some(peer) = unsafe { self.peer_that_counts(id) } {
            self.commit.ask_peer_ahead(peer);
        }
    }

    /// The port that an id connects to, if its ACK timeout depends on the daemon there: the connection
    /// will be managed, the application has set none, and the device can have a second path.
    ///
    /// # Safety
    /// The id is valid and has a device.
    unsafe fn peer_that_counts(&'static self, id: &rdma_cm_id) -> Option<FarPort> {
        let state = self.registry.id(IdKey(ptr::from_ref(id) as usize));
        if !self.wanted(state.asked) || state.own_ack_timeout || !self.commit.daemon_present() {
            return None;
        }
        // SAFETY: the id is valid, and holds its device open.
        let peer = unsafe { peer_port(id) }?;
        // Only a device that can is asked about: connections to the same peer need not ask it again.
        let can_migrate = self.commit.peers.is_asked(peer)
            // SAFETY: the id holds its device open.
            || unsafe { Device::new(id.verbs) }.can_migrate(id.port_num);
        can_migrate.then_some(peer)
    }

    /// The id's connection is established. The id, or its QP, may have been destroyed since it was read.
    pub(crate) fn established(&'static self, id: IdView) {
        let Some(connects) = self.registry.establish(id.key, id.attempt) else {
            return;
        };
        let asked = self.registry.id(id.key).asked;
        if self.wanted(asked) {
            self.look_after_id(id, connects, asked == Some(true));
        } else if let Announced::Number(number) = connects.qp {
            self.close_number(number);
        }
    }

    /// A QP is in RTS now. One that librdmacm connects has more to come: its `rdma_accept` may fail
    /// yet, and `RDMA_CM_EVENT_ESTABLISHED` follows on the active side.
    ///
    /// # Safety
    /// The QP exists, and is not destroyed during the call.
    unsafe fn ready_to_send(&'static self, qp: NonNull<ibv_qp>) {
        // SAFETY: the QP exists.
        let (context, qp_type, qpn) = unsafe {
            let qp = qp.as_ref();
            (qp.context, qp.qp_type, Qpn(qp.qp_num))
        };
        if qp_type != ibv_qp_type::IBV_QPT_RC {
            return;
        }
        let key = QpKey(qp.as_ptr() as usize);
        // It does not only receive.
        if let Some(receiver) = self.registry.by_qp(key).filter(|it| it.only_receives) {
            self.close(&receiver);
        }
        let ready = ReadyQp {
            number: QpNumber {
                // SAFETY: a QP's context is open.
                node_guid: unsafe { Device::new(context) }.node_guid(),
                qpn,
            },
            // SAFETY: a QP's context is open.
            context: unsafe { context_key(context) },
            // A program that finds only ibv_destroy_qp past this library breaks what follows, and nothing can be
            // done about that (docs/library.md, Limits).
            // SAFETY: the QP exists, and the call that destroys it comes by here and releases it first.
            qp: Arc::new(unsafe { Qp::new(qp) }),
        };
        match self.registry.ready(key, ready) {
            Owner::Librdmacm => {}
            Owner::Announced(id, connects) => {
                let asked = self.registry.id(id).asked;
                if self.wanted(asked) {
                    self.look_after_ready(key, Some((id, connects)), asked == Some(true));
                }
            }
            Owner::Application if self.settings.all => self.look_after_ready(key, None, false),
            Owner::Application => {}
        }
    }

    /// A QP is in RTR now, where most are for a moment only.
    ///
    /// # Safety
    /// The QP exists, and is not destroyed during the call.
    unsafe fn ready_to_receive(&'static self, qp: NonNull<ibv_qp>) {
        // SAFETY: the QP exists.
        let (context, qp_type) = unsafe { (qp.as_ref().context, qp.as_ref().qp_type) };
        if qp_type != ibv_qp_type::IBV_QPT_RC {
            return;
        }
        // SAFETY: a QP's context is open.
        let context = unsafe { context_key(context) };
        let key = QpKey(qp.as_ptr() as usize);
        // SAFETY: as in `ready_to_send`.
        let qp = Arc::new(unsafe { Qp::new(qp) });
        if let Some(receiver) = self.registry.add_receiver(key, context, qp) {
            self.commit.send(Command::Receives(receiver));
        }
    }

    fn look_after_ready(&'static self, key: QpKey, id: Option<(IdKey, Connects)>, opted_in: bool) {
        let Some(Added {
            connection,
            replaced,
        }) = self.registry.add_ready(key, id, opted_in)
        else {
            return;
        };
        if let Some(replaced) = replaced {
            self.commit.send(Command::Close(replaced.number));
        }
        self.commit.send(Command::Register(connection));
    }

    /// The connection that a modify of the application's takes from us, should it succeed.
    pub(crate) fn takes(&self, connection: &Connection, change: Change) -> bool {
        match change {
            Change::EndsConnection => true,
            Change::Paths => !connection.opted_in(),
            Change::ReadyToSend | Change::ReadyToReceive | Change::Other => false,
        }
    }

    /// The connection that has this QP.
    pub(crate) fn known_by(&'static self, qp: *mut ibv_qp) -> Option<Arc<Connection>> {
        self.registry.by_qp(QpKey(qp as usize))
    }

    /// A modify of the application's has succeeded.
    ///
    /// # Safety
    /// The QP exists, and is not destroyed during the call.
    pub(crate) unsafe fn modified(&'static self, qp: *mut ibv_qp, change: Change) {
        match (change, NonNull::new(qp)) {
            (Change::EndsConnection, _) => self.close_qp(qp),
            (Change::Paths, _) => self.paths_are_the_applications(qp),
            // SAFETY: see above.
            (Change::ReadyToSend, Some(qp)) => unsafe { self.ready_to_send(qp) },
            // SAFETY: see above.
            (Change::ReadyToReceive, Some(qp)) if self.settings.all => unsafe {
                self.ready_to_receive(qp);
            },
            (Change::ReadyToSend | Change::ReadyToReceive, _) | (Change::Other, _) => {}
        }
    }

    /// The application sets the paths of a QP by itself.
    fn paths_are_the_applications(&'static self, qp: *mut ibv_qp) {
        let key = QpKey(qp as usize);
        let known = self.registry.by_qp(key);
        if known.as_ref().is_some_and(|known| known.opted_in()) {
            return;
        }
        self.registry.hands_off(key);
        if let Some(known) = known {
            self.close(&known);
        }
    }

    /// The application turned APM on or off, or says how it should be.
    ///
    /// # Safety
    /// `id` is a valid id.
    pub(crate) unsafe fn asked(&'static self, id: *mut rdma_cm_id, wish: Wish) {
        let key = IdKey(id as usize);
        self.registry.ask(key, wish);
        if wish != Wish::Off && self.settings.ack_timeout.is_some() {
            self.commit.daemon_present();
        }
        match (self.registry.by_id(key), wish != Wish::Off) {
            (Some(connection), true) => {
                let policy = self.registry.id(key).policy;
                let before = connection.policy();
                connection.set_policy(policy);
                if connection.opted_in() && before != policy {
                    // The daemon need not begin anew.
                    self.commit.send(Command::Policy(connection.number));
                    return;
                }
                connection.set_opted_in(true);
                // SAFETY: the id is valid.
                self.route(unsafe { IdView::of(id) });
                self.commit.send(Command::Register(connection));
            }
            (Some(connection), false) => self.close(&connection),
            (None, true) => {
                if let Some(connects) = self.registry.id(key).established {
                    // SAFETY: the id is valid.
                    self.look_after_id(unsafe { IdView::of(id) }, connects, true);
                }
            }
            (None, false) => {}
        }
    }

    /// The connection of an id that is established.
    fn look_after_id(&'static self, id: IdView, connects: Connects, opted_in: bool) {
        self.route(id);
        let IdView { key, qp, .. } = id;
        let Connects {
            role,
            peer_gid,
            answer_came_late,
            ..
        } = connects;
        match connects.qp {
            Announced::Number(number) => {
                // Not ready yet: then it is managed when it is.
                if let Some(qp) = self.registry.ready_as(number) {
                    self.look_after_ready(qp, Some((key, connects)), opted_in);
                }
            }
            Announced::OfId(qp_key, context) => {
                let Some(qp) = qp.filter(|qp| qp.as_ptr() as usize == qp_key.0) else {
                    return;
                };
                self.look_after(Description {
                    role: Some(role),
                    id: Some(key),
                    qp_key,
                    context,
                    peer_gid,
                    opted_in,
                    policy: self.registry.id(key).policy,
                    answer_came_late,
                    only_receives: false,
                    // SAFETY: it is used only if the registry takes it, which is to say that it has not
                    // been destroyed. A call that destroys it later releases it first (see `ready_to_send`).
                    qp: Arc::new(unsafe { Qp::new(qp) }),
                });
            }
        }
    }

    /// Puts a QP under APM; false if it already is, or may not be.
    fn look_after(&'static self, description: Description) -> bool {
        let Some(connection) = self.registry.add(description) else {
            return false;
        };
        binding::check_once();
        self.commit.send(Command::Register(connection));
        true
    }

    /// The application puts a QP under APM by its own word, which goes before a guess, and
    /// before what its setting paths by itself has said until now.
    ///
    /// # Safety
    /// The QP exists. It is released before it is destroyed.
    pub(crate) unsafe fn attach(&'static self, qp: NonNull<ibv_qp>, role: Role, gid: Gid) -> bool {
        let qp_key = QpKey(qp.as_ptr() as usize);
        let known = self.registry.by_qp(qp_key);
        self.registry.hands_on(qp_key);
        if let Some(guess) = known.filter(|known| known.role.is_none()) {
            self.close(&guess);
        }
        self.look_after(Description {
            role: Some(role),
            id: None,
            qp_key,
            // SAFETY: the QP exists, and so does its context.
            context: unsafe { context_key(qp.as_ref().context) },
            peer_gid: gid,
            opted_in: false,
            policy: PolicyOverride::default(),
            answer_came_late: false,
            only_receives: false,
            // SAFETY: see above.
            qp: Arc::new(unsafe { Qp::new(qp) }),
        })
    }

    fn route(&self, id: IdView) {
        self.channels.route(id.key, id.channel);
    }

    /// A connection is over. When this returns, its QP is not used any more.
    pub(crate) fn close(&'static self, connection: &Connection) {
        self.end(connection, Command::Close(connection.number));
    }

    fn end(&'static self, connection: &Connection, command: Command) {
        // Released before it is taken out: who does not find it any more may destroy the QP.
        connection.release_qp();
        if self.registry.remove(connection) {
            self.commit.send(command);
        }
    }

    /// The application disconnects an id.
    ///
    /// # Safety
    /// `id` is a valid id.
    pub(crate) unsafe fn disconnect_id(&'static self, id: *mut rdma_cm_id) {
        let key = IdKey(id as usize);
        let Some(connection) = self.registry.by_id(key) else {
            return;
        };
        if connection.has_moved() {
            // SAFETY: the id is valid, and on InfiniBand, where alone connections migrate, the union
            // holds the IB address.
            let address = unsafe { &(*id).route.addr.addr.ibaddr };
            let port = LocalPort {
                // SAFETY: plain bytes.
                gid: Gid(unsafe { address.sgid.raw }),
                pkey: PKey(u16::from_be(address.pkey)),
            };
            self.channels.leaves(connection.number, key, port);
        }
        self.end(&connection, Command::Disconnect(connection.number));
    }

    /// The id's connection is over.
    pub(crate) fn close_id(&'static self, id: *mut rdma_cm_id) {
        if let Some(connection) = self.registry.by_id(IdKey(id as usize)) {
            self.close(&connection);
        }
    }

    /// An id that connects a QP of the application's own does not want APM.
    fn close_number(&'static self, number: QpNumber) {
        let qp = self.registry.ready_as(number);
        if let Some(connection) = qp.and_then(|qp| self.registry.by_qp(qp)) {
            self.close(&connection);
        }
    }

    /// The QP is about to go away.
    pub(crate) fn close_qp(&'static self, qp: *mut ibv_qp) {
        self.registry.unready(QpKey(qp as usize));
        if let Some(connection) = self.registry.by_qp(QpKey(qp as usize)) {
            self.close(&connection);
        }
    }

    /// The verbs context is about to be closed.
    pub(crate) fn close_context(&'static self, address: usize) {
        for qp in self.registry.ready_on_context(address) {
            self.registry.unready(qp);
        }
        for connection in self.registry.on_context(address) {
            self.close(&connection);
        }
    }

    /// The application begins to use librdmacm. What it connects may depend on the daemon soon: the thread and its socket
    /// are made ready meanwhile.
    pub(crate) fn begins(&'static self) {
        if self.settings.all && self.settings.ack_timeout.is_some() {
            self.commit.daemon_present();
        }
    }

    /// There is a new id. It may have the address of a dead one whose end was not caught.
    pub(crate) fn new_id(&'static self, id: *mut rdma_cm_id) {
        // Doorbells that the dead one has left ring in vain: their channel may be about to go.
        drop(self.forget_id(id));
    }

    /// The id is about to be destroyed. When this returns, no thread of the application's has an event of
    /// ours that names it.
    pub(crate) fn destroys_id(&'static self, id: *mut rdma_cm_id) {
        let bells = self.forget_id(id);
        // SAFETY: they come from the tables, and the id, which is still there, is on their channel.
        unsafe { Bell::destroy_all(bells) };
        // None can come any more.
        self.channels.wait_for_acknowledgement(IdKey(id as usize));
    }

    fn forget_id(&'static self, id: *mut rdma_cm_id) -> Vec<Bell> {
        self.close_id(id);
        self.registry.forget_id(IdKey(id as usize));
        self.channels.forget_id(IdKey(id as usize))
    }

    /// The application received an asynchronous event of the QP.
    pub(crate) fn seen(&'static self, qp: *mut ibv_qp, cause: Cause) {
        if let Some(connection) = self.registry.by_qp(QpKey(qp as usize)) {
            self.commit.send(Command::Seen(connection.number, cause));
        }
    }

    /// The application received an event of a port that has failed.
    pub(crate) fn port_failed(&'static self, context: usize) {
        if self.registry.is_on_context(context) {
            self.commit.send(Command::PortFailed(context));
        }
    }

    /// The commit thread's state of a QP.
    pub(crate) fn protection(&self, qp: *mut ibv_qp) -> Result<u8, Errno> {
        let connection = self
            .registry
            .by_qp(QpKey(qp as usize))
            .ok_or(Errno::ENOENT)?;
        Ok(connection.protection() as u8)
    }
}

/// The port that an id connects to, if its route is known.
///
/// # Safety
/// The id is valid and has a device.
unsafe fn peer_port(id: &rdma_cm_id) -> Option<FarPort> {
    // SAFETY: librdmacm keeps as many records as it says, or none and no pointer.
    let record = unsafe { id.route.path_rec.as_ref() }.filter(|_| id.route.num_paths > 0)?;
    Some(FarPort {
        port: PeerPort {
            // SAFETY: the id holds its device open.
            node_guid: unsafe { Device::new(id.verbs) }.node_guid(),
            port: id.port_num,
            lid: Lid(u16::from_be(record.dlid)),
        },
        pkey: PKey(u16::from_be(record.pkey)),
    })
}

/// # Safety
/// The context is open.
unsafe fn context_key(context: *mut ibv_context) -> ContextKey {
    ContextKey {
        address: context as usize,
        // SAFETY: the context is open.
        async_fd: unsafe { (*context).async_fd },
    }
}
