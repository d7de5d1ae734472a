// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apm_stream`, the project's own client and server (testbed/programs/apm_stream.c).

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::clock::{Millis, Moment};
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::program::{Line, Program};
use crate::report::Report;
use crate::timeline::Timeline;
use crate::wait::{self, Seen};

/// Bound for connecting, and for ending.
const LIMIT: Duration = Duration::from_secs(60);

/// Stalls that are shorter are not noted: a busy machine has them without anything being broken.
const WORTH_A_LINE: Millis = Millis(100.0);

/// A time in which no message was confirmed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stall {
    /// When the last message before it was confirmed.
    pub start: Moment,
    /// How long.
    pub length: Millis,
}

/// The last line of apm_stream.
#[derive(Clone, PartialEq, Debug)]
pub struct StreamResult {
    /// Messages sent.
    pub sent: u64,
    /// Messages received.
    pub received: u64,
    /// Messages of the peer that never came.
    pub lost: u64,
    /// Messages of the peer that came again.
    pub repeated: u64,
    /// Messages of the peer that were altered.
    pub corrupt: u64,
    /// Completions with an error, and calls that failed.
    pub errors: u64,
    /// QPs that have another number than at the start.
    pub qpn_changed: u64,
    /// PATH_MIGRATED events.
    pub migrated_events: u64,
    /// The longest stall.
    pub max_stall: Stall,
}

/// The value of `key` in a line of `KIND key=value...`, of that kind.
pub fn value<'a>(line: &'a str, kind: &str, key: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(kind)?.strip_prefix(' ')?;
    let start = format!("{key}=");
    let at = if rest.starts_with(&start) {
        0
    } else {
        rest.find(&format!(" {start}"))? + 1
    };
    let value = &rest[at + start.len()..];
    match value.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => value.split(' ').next(),
    }
}

fn number<T: std::str::FromStr>(line: &str, kind: &str, key: &str) -> Option<T> {
    value(line, kind, key)?.parse().ok()
}

/// What a program is told by its event channel.
const MIGRATED: &str = "RDMA_CM_EVENT_PATH_MIGRATED";
const LOADED: &str = "RDMA_CM_EVENT_ALT_PATH_LOADED";

/// When the program was told of the event `name`, if this line says so.
fn told(line: &str, name: &str) -> Option<Moment> {
    (value(line, "EVENT", "name")? == name)
        .then(|| number(line, "EVENT", "t_ms").map(Moment::from_ms))?
}

impl Stall {
    /// From a STALL line.
    pub fn parse(line: &str) -> Option<Self> {
        Some(Self {
            start: Moment::from_ms(number(line, "STALL", "start_ms")?),
            length: Millis(number(line, "STALL", "ms")?),
        })
    }

    /// When it was over.
    pub fn end(&self) -> Moment {
        self.start + Duration::from_secs_f64(self.length.0 / 1000.0)
    }

    /// Whether any of it is between the two moments.
    pub fn overlaps(&self, from: Moment, to: Moment) -> bool {
        self.start < to && self.end() > from
    }
}

impl StreamResult {
    /// From a RESULT line.
    pub fn parse(line: &str) -> Option<Self> {
        let count = |key| number::<u64>(line, "RESULT", key);
        Some(Self {
            sent: count("sent")?,
            received: count("received")?,
            lost: count("lost")?,
            repeated: count("repeated")?,
            corrupt: count("corrupt")?,
            errors: count("errors")?,
            qpn_changed: count("qpn_changed")?,
            migrated_events: count("migrated_events")?,
            max_stall: Stall {
                start: Moment::from_ms(number(line, "RESULT", "max_stall_at_ms")?),
                length: Millis(number(line, "RESULT", "max_stall_ms")?),
            },
        })
    }
}

/// Who arms a program's connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Armed {
    /// The daemons, with the library.
    ByDaemons,
    /// The program itself, once, from port 2 to port 2: it does not opt in.
    ByHand,
    /// The daemons, with the kernel module: the program does not opt in.
    ByModule,
}

/// How a client and a server are run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Connections between them.
    pub connections: u32,
    /// Microseconds between two messages of a connection, each way.
    pub interval_us: u32,
    /// The client's local and remote LID; `None`: it asks subnet administration for a route.
    pub route: Option<[u16; 2]>,
    /// Of the server.
    pub port: u16,
    /// Queue pairs are made by threads that end.
    pub maker_ends: bool,
    /// What the connections' ACK timeout is set to; 0 leaves rdma_cm's.
    pub ack_timeout: u8,
    /// By whom the connections are armed.
    pub armed: Armed,
    /// The library in both says what it does.
    pub told_of: bool,
    /// Where the client and the server are.
    pub hosts: [Host; 2],
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connections: 1,
            interval_us: 1000,
            route: None,
            port: 7480,
            maker_ends: false,
            ack_timeout: 14,
            armed: Armed::ByDaemons,
            told_of: false,
            hosts: Host::ALL,
        }
    }
}

/// A client on one host and a server on another that exchange messages, opted in to APM.
pub struct Streams {
    client: Program,
    server: Program,
    options: Options,
}

impl Streams {
    /// Starts both, connects port 1 with port 1, and notes their events on the timeline.
    ///
    /// # Errors
    /// If they do not connect.
    pub fn start(timeline: &Timeline, options: Options) -> Result<Self, Failure> {
        let connections = options.connections.to_string();
        let interval = options.interval_us.to_string();
        let port = options.port.to_string();
        let mut common = vec!["-n", &connections, "-i", &interval, "-p", &port];
        common.extend(options.maker_ends.then_some("-t"));
        let [at_client, at_server] = options.hosts;
        let [gid_a, gid_b] = options.hosts.map(|host| host.port(1).gid());
        let (gid_a, gid_b) = (gid_a?, gid_b?);

        let timeout = format!("RDMA_APM_ACK_TIMEOUT={}", options.ack_timeout);
        let debug = if options.told_of { "1" } else { "0" };
        let debug = format!("RDMA_APM_DEBUG={debug}");
        let settings = ["env", &timeout, &debug, "apm_stream"];
        let mut words = settings.to_vec();
        let by_whom = |peer: Host| -> Result<Vec<String>, Failure> {
            Ok(match options.armed {
                Armed::ByDaemons => Vec::new(),
                Armed::ByHand => {
                    let (timeout, lid) = (options.ack_timeout, peer.port(2).lid()?);
                    let words = format!("-x -T {timeout} -a {lid}");
                    words.split(' ').map(str::to_owned).collect()
                }
                Armed::ByModule => {
                    let words = format!("-x -T {}", options.ack_timeout);
                    words.split(' ').map(str::to_owned).collect()
                }
            })
        };
        words.extend(["-s", "-b", &gid_b]);
        let armed = by_whom(at_client)?;
        words.extend(armed.iter().map(String::as_str));
        words.extend(&common);
        let mut server =
            Program::start_watched("server", at_server, &words, noting(timeline, "server"))?;
        server.wait_for_line("LISTENING", LIMIT, |line| line.starts_with("LISTENING"))?;

        let mut words = settings.to_vec();
        words.extend(["-b", &gid_a]);
        let armed = by_whom(at_server)?;
        words.extend(armed.iter().map(String::as_str));
        words.extend(common);
        let route = options
            .route
            .map(|[local, remote]| format!("{local},{remote}"));
        words.extend(route.iter().flat_map(|route| ["-r", route]));
        words.push(&gid_b);
        let mut client =
            Program::start_watched("client", at_client, &words, noting(timeline, "client"))?;
        client.wait_for_line("STATS", LIMIT, |line| line.starts_with("STATS"))?;
        Ok(Self {
            client,
            server,
            options,
        })
    }

    /// The processes of the client and the server.
    pub fn pids(&self) -> [u32; 2] {
        [self.client.pid(), self.server.pid()]
    }

    /// Fails unless both run and have seen no error.
    ///
    /// # Errors
    /// What they said.
    pub fn ensure_healthy(&mut self) -> Result<(), Failure> {
        for program in [&mut self.client, &mut self.server] {
            if let Some(line) = program
                .lines()
                .into_iter()
                .find(|line| line.text.starts_with("ERROR"))
            {
                return Err(Failure::not_shown(format!(
                    "{}: {}",
                    program.name(),
                    line.text
                )));
            }
            program.ensure_running()?;
        }
        Ok(())
    }

    /// How the client stood still because of a cable pulled at `pulled`: its longest stall that has
    /// any part between then and the moment at which both sides were told of the migration, if one
    /// was long enough to be noticed. It is known once traffic flows again.
    ///
    /// # Errors
    /// [`Failure::NotShown`] if a side was not told of a migration.
    pub fn stall_of_pull(&self, pulled: Moment) -> Result<Option<Stall>, Failure> {
        let end = self.both_told(MIGRATED, pulled).ok_or_else(|| {
            Failure::not_shown("the client or the server was not told of the migration")
        })?;
        Ok(self.longest_stall(pulled, end))
    }

    /// The client's longest stall that has any part between the two moments, if one was long enough
    /// to be noticed.
    pub fn longest_stall(&self, from: Moment, to: Moment) -> Option<Stall> {
        let lines = self.client.lines();
        let stalls = lines.iter().filter_map(|line| Stall::parse(&line.text));
        let overlapping = stalls.filter(|stall| stall.overlaps(from, to));
        overlapping.max_by(|a, b| a.length.0.total_cmp(&b.length.0))
    }

    /// When both sides had been told, after `since`, that an alternate path is loaded.
    ///
    /// # Errors
    /// [`Failure::Timeout`] if one is not told.
    pub fn wait_loaded(&self, since: Moment) -> Result<Moment, Failure> {
        wait::until("an alternate path is loaded on both ends", LIMIT, || {
            Ok(match self.both_told(LOADED, since) {
                Some(at) => Seen::Ready(at),
                None => Seen::NotYet("a side was not told".to_owned()),
            })
        })
    }

    /// When both sides had been told, after `since`, of the alternate path that they have now.
    ///
    /// # Errors
    /// As [`Self::wait_loaded`].
    pub fn last_loaded(&self, since: Moment) -> Result<Moment, Failure> {
        self.wait_loaded(since)?;
        let last = |program: &Program| {
            let lines = program.lines();
            lines.iter().rev().find_map(|line| told(&line.text, LOADED))
        };
        let both = last(&self.client).max(last(&self.server));
        both.ok_or_else(|| Failure::not_shown("a side has forgotten what it was told"))
    }

    /// When the client was told of a migration for the first time after `since`.
    pub fn client_migrated(&self, since: Moment) -> Option<Moment> {
        let lines = self.client.lines();
        let told = lines.iter().filter_map(|line| told(&line.text, MIGRATED));
        { told }.find(|at| *at > since)
    }

    /// When the later of the two was told of the event `name` for the first time after `since`.
    fn both_told(&self, name: &str, since: Moment) -> Option<Moment> {
        let first = |program: &Program| {
            let lines = program.lines();
            let mut told = lines.iter().filter_map(|line| told(&line.text, name));
            told.find(|at| *at >= since)
        };
        Some(first(&self.client)?.max(first(&self.server)?))
    }

    /// Waits until the client's library says so; what it said before `since` does not count.
    ///
    /// # Errors
    /// [`Failure::Timeout`] if it does not.
    pub fn wait_library_says(&mut self, words: &str, since: Moment) -> Result<(), Failure> {
        let what = format!("the client's library says: {words}");
        wait::until(&what, LIMIT, || {
            self.ensure_healthy()?;
            let said = self.library_said(words, since);
            Ok(Seen::when(said, || self.client.last_line()))
        })
    }

    /// Whether the client's library has said so since then.
    pub fn library_said(&self, words: &str, since: Moment) -> bool {
        let lines = self.client.lines();
        lines
            .iter()
            .any(|line| line.at >= since && line.text.contains(words))
    }

    /// Waits until the client receives what was sent after this call.
    ///
    /// # Errors
    /// [`Failure::Timeout`] if it does not; whatever it complains of.
    pub fn wait_flowing(&mut self) -> Result<(), Failure> {
        // Two lines of statistics: the first may count what was on its way before.
        let lines = self.client.lines().len();
        wait::until("messages flow", LIMIT, || {
            self.ensure_healthy()?;
            let printed = self.client.lines();
            let counts: Vec<u64> = printed
                .iter()
                .skip(lines)
                .filter_map(|line| number(&line.text, "STATS", "received"))
                .collect();
            let grown = counts
                .first()
                .zip(counts.last())
                .is_some_and(|(first, last)| last > first);
            Ok(Seen::when(grown, || {
                format!("messages received: {counts:?}")
            }))
        })
    }

    /// Waits until the client says that its connection is broken; returns what it says.
    ///
    /// # Errors
    /// [`Failure::Timeout`] if it does not say so.
    pub fn wait_broken(mut self) -> Result<String, Failure> {
        let says = |line: &str| line.starts_with("ERROR");
        let line = self.client.wait_for_line("an error", LIMIT, says)?;
        Ok(line.text)
    }

    /// Ends both, adds to the report what came of the messages, and returns the longest stall.
    ///
    /// # Errors
    /// If they do not end, or anything was lost, repeated, altered or failed.
    pub fn finish(mut self, timeline: &Timeline, report: &mut Report) -> Result<Millis, Failure> {
        self.client.signal(Signal::SIGTERM)?;
        let mut results = Vec::new();
        for program in [&mut self.client, &mut self.server] {
            let status = program.wait(LIMIT)?;
            let lines = program.lines();
            let result = lines
                .iter()
                .rev()
                .find_map(|line| StreamResult::parse(&line.text));
            let result = result.ok_or_else(|| Failure::Output {
                source_name: program.name().to_owned(),
                problem: format!("{status}, and no RESULT: {}", program.last_line()),
            })?;
            results.push(result);
        }
        let [client, server] = [&results[0], &results[1]];
        report.connections += u64::from(self.options.connections);
        report.lost += client.lost + server.lost;
        report.duplicated += client.repeated + server.repeated;
        report.set("messages", client.received + server.received);
        report.set("corrupt", client.corrupt + server.corrupt);
        report.set("completion_errors", client.errors + server.errors);
        report.set("qpn_changed", client.qpn_changed + server.qpn_changed);
        for (name, result) in [("client", client), ("server", server)] {
            timeline.note(name, summary(result));
            judge(name, result)?;
        }
        ensure(
            client.sent == server.received && server.sent == client.received,
            || {
                format!(
                    "client sent {} and server received {}; server sent {} and client received {}",
                    client.sent, server.received, server.sent, client.received
                )
            },
        )?;
        Ok(client.max_stall.length)
    }
}

fn summary(result: &StreamResult) -> String {
    format!(
        "{} messages sent, {} received, {} lost, {} repeated, {} altered, {} errors",
        result.sent, result.received, result.lost, result.repeated, result.corrupt, result.errors
    )
}

fn judge(name: &str, result: &StreamResult) -> Result<(), Failure> {
    let faults = result.lost + result.repeated + result.corrupt + result.errors;
    ensure(faults == 0, || format!("{name}: {}", summary(result)))?;
    ensure(result.qpn_changed == 0, || {
        format!("{name}: the QP number changed")
    })?;
    ensure(result.received > 0, || format!("{name}: received nothing"))
}

/// Notes what a user would care about; the rest are figures.
fn noting(timeline: &Timeline, who: &'static str) -> impl FnMut(&Line) + Send + 'static {
    let timeline = timeline.clone();
    move |line| {
        let text = &line.text;
        if let Some(stall) = Stall::parse(text) {
            if stall.length < WORTH_A_LINE {
                return;
            }
            timeline.note_at(line.at, who, format!("stood still for {}", stall.length));
        } else if let Some(name) = value(text, "EVENT", "name") {
            timeline.note_at(line.at, who, format!("event {name}"));
        } else if let Some(qpn) = value(text, "CONNECTED", "qpn") {
            timeline.note_at(line.at, who, format!("connected, QP {qpn}"));
        } else if !["STATS", "DONE", "RESULT", "LISTENING"]
            .iter()
            .any(|kind| text.starts_with(kind))
        {
            timeline.note_at(line.at, who, text.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULT: &str = "RESULT role=client connections=1 sent=10 received=9 lost=1 repeated=2 \
        corrupt=3 errors=4 qpn_changed=0 migrated_events=20 max_stall_ms=41.250 \
        max_stall_at_ms=2000.500 ok=0";

    #[test]
    fn values_are_found_by_kind_and_whole_key() {
        let line = "EVENT conn=0 t_ms=12.5 status=0 name=\"path migrated\"";
        assert_eq!(value(line, "EVENT", "name"), Some("path migrated"));
        assert_eq!(value(line, "EVENT", "conn"), Some("0"));
        assert_eq!(value(line, "EVENT", "ms"), None);
        assert_eq!(value(line, "STALL", "conn"), None);
        assert_eq!(value("EVENTS conn=0", "EVENT", "conn"), None);
    }

    #[test]
    fn result_lines_are_parsed() {
        let result = StreamResult::parse(RESULT);
        assert_eq!(
            result,
            Some(StreamResult {
                sent: 10,
                received: 9,
                lost: 1,
                repeated: 2,
                corrupt: 3,
                errors: 4,
                qpn_changed: 0,
                migrated_events: 20,
                max_stall: Stall {
                    start: Moment::from_ms(2000.5),
                    length: Millis(41.25)
                },
            })
        );
        assert_eq!(StreamResult::parse("RESULT sent=x"), None);
        assert_eq!(StreamResult::parse("STATS sent=1"), None);
    }

    #[test]
    fn each_fault_is_judged() {
        let good = "RESULT role=client connections=1 sent=10 received=10 lost=0 repeated=0 \
            corrupt=0 errors=0 qpn_changed=0 migrated_events=0 max_stall_ms=1 max_stall_at_ms=1 ok=1";
        let judged = |line: &str| StreamResult::parse(line).map(|it| judge("client", &it).is_ok());
        assert_eq!(judged(good), Some(true));
        for key in ["lost", "repeated", "corrupt", "errors", "qpn_changed"] {
            let bad = good.replace(&format!("{key}=0"), &format!("{key}=1"));
            assert_eq!(judged(&bad), Some(false), "{key}");
        }
        assert_eq!(
            judged(&good.replace("received=10", "received=0")),
            Some(false)
        );
    }

    #[test]
    fn migrations_are_events() {
        let line = "EVENT conn=0 t_ms=12.5 status=0 name=\"RDMA_CM_EVENT_PATH_MIGRATED\"";
        assert_eq!(told(line, MIGRATED), Some(Moment::from_ms(12.5)));
        assert_eq!(told(line, LOADED), None);
    }

    #[test]
    fn stalls_belong_to_the_pull_they_overlap() {
        let stall = Stall::parse("STALL conn=0 start_ms=1000.000 ms=50.000").expect("well formed");
        let at = Moment::from_ms;
        assert!(stall.overlaps(at(1010.0), at(1020.0)));
        assert!(stall.overlaps(at(900.0), at(1001.0)));
        assert!(stall.overlaps(at(1049.0), at(2000.0)));
        assert!(!stall.overlaps(at(1050.0), at(2000.0)));
        assert!(!stall.overlaps(at(900.0), at(1000.0)));
    }
}
