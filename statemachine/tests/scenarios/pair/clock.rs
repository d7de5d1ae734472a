// SPDX-License-Identifier: MIT OR Apache-2.0
//! Virtual time: what is on its way happens, engines hear of it and are asked what they want.

use statemachine::{Engine, Input, PortId, Time};

use super::{ACTIVE, MS, PASSIVE, Pair, Pending};

impl Pair {
    /// Lets so many milliseconds pass.
    pub(crate) fn run(&mut self, ms: u64) {
        self.run_us(ms * MS);
    }

    /// Lets so many microseconds pass.
    pub(crate) fn run_us(&mut self, us: u64) {
        let end = self.now + us;
        loop {
            let event = self.queue.first_key_value().map(|(&(time, _), _)| time);
            let timer = self.next_timer();
            let next = [event, timer].into_iter().flatten().min();
            let Some(next) = next.filter(|&next| next <= end) else {
                break;
            };
            self.now = self.now.max(next);
            if event == Some(next) {
                let (_, pending) = self.queue.pop_first().expect("just seen");
                self.happen(pending);
            } else {
                for host in 0..2 {
                    self.input(host, Input::Timeout);
                }
            }
        }
        self.now = end;
        self.assert_counted(ACTIVE);
        self.assert_counted(PASSIVE);
    }

    /// Lets time pass until both ends are armed. How many milliseconds that took.
    pub(crate) fn run_until_armed(&mut self, limit_ms: u64) -> u64 {
        let start = self.now;
        while !self.is_armed() {
            assert!(
                (self.now - start) / MS < limit_ms,
                "not armed: {:#?}",
                [self.view(0), self.view(1)]
            );
            self.run(1);
        }
        (self.now - start) / MS
    }

    pub(super) fn next_timer(&self) -> Option<u64> {
        let engines = self.hosts.iter().filter_map(|host| host.engine.as_ref());
        engines
            .filter_map(Engine::poll_timeout)
            .map(|time| time.0)
            .min()
    }

    pub(super) fn push(&mut self, delay: u64, pending: Pending) {
        self.serial += 1;
        self.queue.insert((self.now + delay, self.serial), pending);
    }

    pub(super) fn happen(&mut self, pending: Pending) {
        match pending {
            Pending::Mad(host, _, _) if self.hosts[host].stopped => {}
            Pending::Mad(host, source, message) => self.input(host, Input::Mad(source, message)),
            Pending::Probe(host, probe) => self.answer_probe(host, probe),
            Pending::ProbeAnswer(host, probe, by) => self.input(host, Input::Probed(probe, by)),
            Pending::Input(host, client, input) => {
                if self.hosts[host].client == client {
                    self.arrive(host, input);
                }
            }
            Pending::Assessed(host, input) => self.input(host, input),
            Pending::Port(host, port) => self.port_input(host, port),
            Pending::Order(host, client, conn, order) => {
                if self.hosts[host].client == client {
                    self.obey(host, conn, order);
                }
            }
            Pending::Packet(host, conn) => self.packet(host, conn),
            Pending::Answer(host, query) => self.answer(host, &query),
        }
    }

    pub(super) fn input(&mut self, host: usize, input: Input) {
        if self.verbose && !matches!(input, Input::Timeout) {
            eprintln!("{:>9} us host {host} <- {}", self.now, brief(&input));
        }
        let now = Time(self.now);
        let Some(engine) = &mut self.hosts[host].engine else {
            return;
        };
        engine.handle(now, input);
        self.drain(host);
    }

    /// Takes out of a host's engine what it wants done.
    pub(super) fn drain(&mut self, host: usize) {
        while let Some((id, order)) = self.poll(host, Engine::poll_order) {
            self.order(host, id, order);
        }
        let more = self.poll(host, Engine::poll_order);
        assert_eq!(more, None, "it had said that there is none");
        let full = self.hosts[host].full;
        let has_room = |id: PortId| !full[usize::from(id.port) - 1];
        while let Some(mad) = self.poll(host, |engine| engine.poll_transmit(has_room)) {
            self.send(host, mad);
        }
        let probes_wait = self.probes_wait;
        let has_room = |id| !probes_wait && has_room(id);
        while let Some(probe) = self.poll(host, |engine| engine.poll_probe(has_room)) {
            self.send_probe(host, probe);
        }
        while let Some(query) = self.poll(host, Engine::poll_query) {
            self.query(host, query);
        }
        while let Some(trace) = self.poll(host, Engine::poll_trace) {
            if self.verbose {
                eprintln!("{:>9} us host {host}    {trace}", self.now);
            }
            self.traces.push((host, trace));
        }
    }

    pub(super) fn poll<T>(
        &mut self,
        host: usize,
        poll: impl FnOnce(&mut Engine) -> Option<T>,
    ) -> Option<T> {
        self.hosts[host].engine.as_mut().and_then(poll)
    }
}

fn brief(input: &Input) -> String {
    match input {
        Input::Mad(source, message) => format!("{} from lid {}", message.name(), source.lid),
        Input::Report(_, report) => format!(
            "{:?}: {:?} primary {} alternate {:?}",
            report.cause,
            report.snapshot.migration,
            report.snapshot.primary.port,
            report.snapshot.alternate.map(|path| path.port)
        ),
        Input::Port(id, status) => {
            format!(
                "port {} active {}",
                id.port,
                status.as_ref().is_some_and(|s| s.active)
            )
        }
        other => format!("{other:?}").chars().take(60).collect(),
    }
}
