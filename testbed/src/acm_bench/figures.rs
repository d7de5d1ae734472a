// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was measured.

use std::time::Duration;

use super::client::Sample;
use super::question::Kind;
use super::server::Transport;

/// The rounds of one server.
pub(super) struct Rounds(Vec<(Sample, Duration)>);

impl Rounds {
    pub(super) const NONE: Self = Self(Vec::new());

    /// Adds a round, and the processor time that it took the server.
    pub(super) fn add(&mut self, sample: Sample, cpu: Duration) {
        self.0.push((sample, cpu));
    }

    /// Adds a round of a millisecond.
    #[cfg(test)]
    pub(super) fn add_plain(&mut self, answers: u64) {
        let sample = Sample {
            answers,
            time: Duration::from_millis(1),
            latencies: Vec::new(),
        };
        self.add(sample, Duration::ZERO);
    }

    /// The fastest tenth of them, together.
    pub(super) fn figures(mut self) -> Side {
        let rate = |sample: &Sample| sample.answers as f64 / sample.time.as_secs_f64();
        let all = self.0.iter().map(|(sample, _)| sample.answers).sum();
        self.0.sort_by(|(a, _), (b, _)| rate(b).total_cmp(&rate(a)));
        self.0.truncate(self.0.len().div_ceil(10));
        let answers: u64 = self.0.iter().map(|(sample, _)| sample.answers).sum();
        let time: Duration = self.0.iter().map(|(sample, _)| sample.time).sum();
        let cpu: Duration = self.0.iter().map(|(_, cpu)| *cpu).sum();
        let latencies = self.0.into_iter().flat_map(|(sample, _)| sample.latencies);
        let mut latencies: Vec<u32> = latencies.collect();
        Side {
            rate: answers as f64 / time.as_secs_f64(),
            p50: percentile(&mut latencies, 50),
            p99: percentile(&mut latencies, 99),
            cpu: cpu.as_secs_f64() * 1e6 / answers.max(1) as f64,
            answers: all,
        }
    }
}

/// One server in figures.
pub(super) struct Side {
    /// Answers a second.
    rate: f64,
    /// Latencies, microseconds.
    p50: f64,
    p99: f64,
    /// Microseconds of the server's processor time for an answer.
    cpu: f64,
    /// Answers of all rounds, every one of them right.
    answers: u64,
}

impl Side {
    fn json(&self) -> String {
        format!(
            "{{\"requests_per_s\":{:.0},\"p50_us\":{:.1},\"p99_us\":{:.1},\"cpu_us\":{:.2},\
             \"answers\":{}}}",
            self.rate, self.p50, self.p99, self.cpu, self.answers
        )
    }

    fn row(&self) -> String {
        let Self {
            rate,
            p50,
            p99,
            cpu,
            ..
        } = self;
        format!("{rate:7.0} {p50:7.0} {p99:7.0} {cpu:7.1}")
    }
}

/// What so many of a hundred latencies do not exceed, in microseconds.
fn percentile(nanoseconds: &mut [u32], percent: usize) -> f64 {
    let last = nanoseconds.len().saturating_sub(1);
    if nanoseconds.is_empty() {
        return 0.0;
    }
    let (_, at, _) = nanoseconds.select_nth_unstable(last * percent / 100);
    f64::from(*at) / 1e3
}

/// One way of asking, both servers.
pub(super) struct Cell {
    pub(super) transport: Transport,
    pub(super) kind: Kind,
    pub(super) connections: usize,
    pub(super) ibacm: Side,
    pub(super) apmd: Side,
    pub(super) pipelined: Side,
    /// What there is room for: [`super::bare`].
    pub(super) bare: Side,
}

impl Cell {
    pub(super) const HEAD: &str = "\
        transport  asks by        conns   ibacm     p50     p99  cpu us    apmd     p50     p99  \
        cpu us  ratio  of bare  pipelined   p50     p99  cpu us  ratio      bare     p50     p99  \
        cpu us  ratio";

    fn ratio(&self, side: &Side) -> f64 {
        side.rate / self.ibacm.rate
    }

    /// What apmd can be brought to serve over these connections, by what ibacm can.
    pub(super) fn served(&self) -> f64 {
        self.ratio(&self.apmd).max(self.ratio(&self.pipelined))
    }

    /// The same with one request under way on each connection, which is all that ibacm takes.
    pub(super) fn one_by_one(&self) -> f64 {
        self.ratio(&self.apmd)
    }

    /// How much apmd serves of what the bare server does, one request under way on each connection.
    pub(super) fn of_bare(&self) -> f64 {
        self.apmd.rate / self.bare.rate
    }

    /// Which one it is, in words.
    pub(super) fn name(&self) -> String {
        let (transport, kind) = (self.transport.name(), self.kind.name());
        format!("{transport}, by {kind}, connections: {}", self.connections)
    }

    pub(super) fn row(&self) -> String {
        format!(
            "{:9}  {:13} {:6} {} {}  {:5.2}  {:6.0}%    {}  {:5.2}   {}  {:5.2}",
            self.transport.name(),
            self.kind.name(),
            self.connections,
            self.ibacm.row(),
            self.apmd.row(),
            self.one_by_one(),
            100.0 * self.of_bare(),
            self.pipelined.row(),
            self.ratio(&self.pipelined),
            self.bare.row(),
            self.ratio(&self.bare),
        )
    }

    pub(super) fn json(&self) -> String {
        format!(
            "{{\"bench\":\"acm\",\"transport\":\"{}\",\"asks_by\":\"{}\",\"connections\":{},\
             \"ibacm\":{},\"apmd\":{},\"ratio\":{:.2},\"of_bare\":{:.2},\"pipelined\":{},\
             \"pipelined_ratio\":{:.2},\"bare\":{},\"bare_ratio\":{:.2}}}",
            self.transport.name(),
            self.kind.name(),
            self.connections,
            self.ibacm.json(),
            self.apmd.json(),
            self.one_by_one(),
            self.of_bare(),
            self.pipelined.json(),
            self.ratio(&self.pipelined),
            self.bare.json(),
            self.ratio(&self.bare),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_tenth_of_the_rounds_counts() {
        let mut rounds = Rounds::NONE;
        for round in 0..20_u32 {
            let sample = Sample {
                answers: 100 + u64::from(round),
                time: Duration::from_millis(100),
                latencies: (1..=100).map(|n| n * 1000 * (20 - round)).collect(),
            };
            rounds.add(sample, Duration::from_micros(1000));
        }
        let side = rounds.figures();
        assert_eq!((side.rate, side.answers), (1185.0, 2190));
        assert_eq!((side.p50, side.p99), (67.0, 196.0));
        assert!((side.cpu - 2000.0 / 237.0).abs() < 1e-9);
    }
}
