// SPDX-License-Identifier: MIT OR Apache-2.0
//! Another host has very many connections to the host under test. Its daemon answers late, and then not at all, while all
//! of them are to be armed again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Context;
use super::requests::{self, Requests};
use super::scene::{self, Scene};
use crate::clock::Moment;
use crate::daemon::{Daemon, Policy};
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::kernel_module::KernelModule;
use crate::observe;
use crate::program::Program;
use crate::stream::value;
use crate::timeline::Timeline;
use crate::wait::{self, Seen};

/// The host with many connections. It has one port.
const PEER: Host = Host::C;

/// Connections between the peer and the host under test.
const CONNECTIONS: usize = 3_000;
const SHORT_CONNECTIONS: usize = 300;

/// Seconds in which each sends one message: an alternate path is armed by traffic only.
const SECONDS: usize = 3;

/// The program of which the connections are judged.
const INNOCENT: &[&str] = &["command", "apm_stream"];

/// Cables pulled before the peer connects, as many while it answers, and as many while it is silent.
const PULLS: usize = 3;
const SHORT_PULLS: usize = 2;

/// Requests to the peer that may leave while the innocent connection has one to send: what one far port may have
/// without an answer while others wait.
const SHARE: usize = 16;

/// The peer's daemon is stopped for the first time, and then goes on for the second, in turn: what it is sent in the
/// meantime is answered late.
const STOPPED: Duration = Duration::from_millis(200);
const RUNNING: Duration = Duration::from_millis(100);

/// Until a cable is pulled.
const LATE: Duration = Duration::from_secs(2);

/// Bound for all connections to be armed.
const LIMIT: Duration = Duration::from_secs(240);

/// Each connection's news would be too much for the drill to read while it measures.
pub(super) const LOG: &str = "warn";

/// Has the host under test and its innocent peer take part, before anybody connects.
pub(super) fn prepare(context: &mut Context<'_>) -> Result<(), Failure> {
    context.world.move_to(Host::ALL)?;
    context.world.look_only_at(INNOCENT);
    // Without a connection manager the end with the lower LID is the active one, which asks the other.
    let [own, peers] = [Host::A, PEER].map(|host| host.port(1).lid());
    let (own, peers) = (own?, peers?);
    ensure(own < peers, || {
        format!("the host under test has LID {own}, its peer {peers}: it would ask for nothing")
    })
}

/// A peer that is late and then silent delays nobody else's requests: requests are counted. Times depend on how many
/// connections leave the port at once, which is the machine's work and not the peer's doing. So the long form compares them
/// with those beside as many connections to the same peer while it answers, in turns; the short form reports them.
pub(super) fn late_then_silent(
    context: &mut Context<'_>,
    scene: &mut Scene,
) -> Result<(), Failure> {
    let (connections, pulls) = match context.options.short {
        true => (SHORT_CONNECTIONS, SHORT_PULLS),
        false => (CONNECTIONS, PULLS),
    };
    let module = KernelModule::load()?;
    let before = observe::sums(Host::A)?.total;
    let alone = scene.rearm_times(context, pulls)?;
    scene::tell(context, "alone", &alone);
    let mut peer = Peer::start(context, connections)?;
    let timeline = context.timeline.clone();
    let (mut answering, mut times, mut counts) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..pulls {
        peer.wait_armed(&timeline)?;
        answering.push(scene.rearm(context)?);
        peer.fall_silent(&timeline)?;
        let requests = Requests::begin(Host::A)?;
        let rearmed = scene.rearm(context)?;
        let told = scene.told_of_migration(rearmed.pulled)?;
        let ahead = requests.end()?.ahead(rearmed.pulled, told, Host::B, PEER)?;
        timeline.note("drill", format!("requests to {PEER}: {ahead}"));
        times.push(rearmed);
        counts.push(ahead);
        peer.answer_again(&timeline)?;
    }
    scene::tell(context, "answering_peer", &answering);
    scene::tell(context, "slow_peer", &times);
    let all = |count: fn(&requests::Ahead) -> usize| counts.iter().map(count).collect::<Vec<_>>();
    let waited = all(|ahead| ahead.since_told);
    context.report.set("slow_peer_connections", connections);
    context.report.set("slow_peer_waiting", peer.waiting);
    context
        .report
        .set("slow_peer_asked_since_pull", all(|it| it.since_pull));
    context
        .report
        .set("slow_peer_asked_while_waiting", waited.clone());
    peer.leave(&timeline, before)?;
    module.unload()?;
    let worst = waited.iter().max();
    ensure(worst.is_some_and(|worst| *worst <= SHARE), || {
        format!("a request waited while more than {SHARE} went to {PEER}: {waited:?}")
    })?;
    match context.options.short {
        true => Ok(()),
        false => scene::ensure_no_slower(&answering, &times),
    }
}

/// The host with many connections.
struct Peer {
    daemon: Daemon,
    program: Program,
    connections: usize,
    /// Connections that waited for its answers when it last fell silent.
    waiting: usize,
}

impl Peer {
    /// Connects and waits until all is armed.
    fn start(context: &mut Context<'_>, connections: usize) -> Result<Self, Failure> {
        let policy = Policy {
            log: LOG,
            ..Policy::default()
        };
        let daemon = Daemon::start(PEER, policy, &context.timeline)?;
        let [count, rate] = [connections, connections / SECONDS].map(|number| number.to_string());
        let (own, peers) = (Host::A.device(), PEER.device());
        let words = [
            "nice",
            "-n",
            "19",
            "many_connections",
            &count,
            &rate,
            own,
            "1",
            peers,
            "1",
        ];
        let began = Moment::now();
        let program = Program::start("many connections", Host::A, &words)?;
        let mut peer = Self {
            daemon,
            program,
            connections,
            waiting: 0,
        };
        peer.wait_armed(&context.timeline)?;
        let seconds = Moment::now().since(began).as_secs_f64();
        context.report.set("slow_peer_armed_s", seconds.round());
        Ok(peer)
    }

    /// Waits until all connections are armed, at both ends.
    fn wait_armed(&mut self, timeline: &Timeline) -> Result<(), Failure> {
        let began = Moment::now();
        for host in [Host::A, PEER] {
            let what = format!("{host} has {} connections armed", self.connections);
            wait::until(&what, LIMIT, || {
                self.program.ensure_running()?;
                // A daemon that has much to do may not answer in time.
                Ok(match observe::sums(host) {
                    Ok(sums) if sums.armed >= self.connections && sums.armed == sums.total => {
                        Seen::Ready(())
                    }
                    Ok(sums) => Seen::NotYet(format!("{sums:?}, {}", self.program.last_line())),
                    Err(failure) => Seen::NotYet(failure.to_string()),
                })
            })?;
        }
        let seconds = Moment::now().since(began).as_secs_f64();
        let text = format!("all connections of {PEER} are armed after {seconds:.1} s");
        timeline.note("drill", text);
        Ok(())
    }

    /// Its daemon answers late for a while, and then not at all.
    fn fall_silent(&mut self, timeline: &Timeline) -> Result<(), Failure> {
        self.wait_armed(timeline)?;
        let delay = Delay::begin(&self.daemon);
        thread::sleep(LATE);
        delay.end()?;
        self.daemon.pause()?;
        timeline.note(PEER, "apmd stopped");
        Ok(())
    }

    /// Its daemon goes on, and all connections are armed again. Fails if none was waiting for it.
    fn answer_again(&mut self, timeline: &Timeline) -> Result<(), Failure> {
        let sums = observe::sums(Host::A)?;
        self.daemon.resume()?;
        self.waiting = sums.total - sums.armed;
        let text = format!(
            "{} connections wait for {PEER}, whose apmd goes on",
            self.waiting
        );
        timeline.note("drill", text.clone());
        // Else nothing was asked that it could have left unanswered.
        ensure(self.waiting >= self.connections / 2, || text)?;
        self.wait_armed(timeline)
    }

    /// Ends all its connections, and waits until the host under test has as many as before. Fails if one has failed.
    fn leave(self, timeline: &Timeline, before: usize) -> Result<(), Failure> {
        let said = self.program.last_line();
        ensure(value(&said, "STATS", "failed") == Some("0"), || said)?;
        drop(self.program);
        wait::until("the peer's connections are closed", LIMIT, || {
            let sums = observe::sums(Host::A)?;
            Ok(Seen::when(sums.total == before, || format!("{sums:?}")))
        })?;
        self.daemon.stop()?;
        timeline.note(PEER, "apmd ended");
        Ok(())
    }
}

/// A daemon that is stopped and goes on in turn, until this ends; then it goes on.
struct Delay {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<nix::Result<()>>>,
}

impl Delay {
    fn begin(daemon: &Daemon) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let pid = Pid::from_raw(i32::try_from(daemon.pid()).unwrap_or(i32::MAX));
        let thread = thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                kill(pid, Signal::SIGSTOP)?;
                thread::sleep(STOPPED);
                kill(pid, Signal::SIGCONT)?;
                thread::sleep(RUNNING);
            }
            Ok(())
        });
        Self {
            over,
            thread: Some(thread),
        }
    }

    /// Fails if the daemon was not there.
    fn end(mut self) -> Result<(), Failure> {
        self.finish().map_err(|errno| {
            Failure::not_shown(format!("the peer's daemon cannot be stopped: {errno}"))
        })
    }

    fn finish(&mut self) -> nix::Result<()> {
        self.over.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        // One that panicked has said so.
        ended.and_then(Result::ok).unwrap_or(Ok(()))
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        // On the way out of a drill that has failed.
        let _ = self.finish();
    }
}
