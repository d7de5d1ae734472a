// SPDX-License-Identifier: MIT OR Apache-2.0
//! librdmacm's cmtime, which makes many connections at once and takes them down again: a server on host B, and
//! clients on host A.

use std::time::Duration;

use crate::clock::{Millis, Moment};
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::program::{Line, Program};
use crate::wait::{self, Seen};

/// The step in which the connections are made.
pub const CONNECT: &str = "connect";

/// Bound for a run of a client, which tries again where it is not answered.
const LIMIT: Duration = Duration::from_secs(60);

/// A run of a client.
#[derive(Clone, PartialEq, Debug)]
pub struct Run {
    /// Its steps, and how long all connections together took for each.
    pub steps: Vec<(String, Millis)>,
    /// The whole program, with what it loads.
    pub program: Millis,
}

impl Run {
    /// All its steps, from the first id made to the last one destroyed.
    pub fn all(&self) -> Millis {
        Millis(self.steps.iter().map(|(_, took)| took.0).sum())
    }

    /// A step; NaN if there is no such step.
    pub fn step(&self, name: &str) -> Millis {
        let step = self.steps.iter().find(|(step, _)| step == name);
        step.map_or(Millis(f64::NAN), |(_, took)| *took)
    }
}

/// How both ends are run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Side {
    /// Its name where something is wrong.
    pub name: &'static str,
    /// What runs them.
    pub run: &'static [&'static str],
    /// Of the server.
    pub port: &'static str,
}

/// A server and a client, both started for each run: a newer server ends after one client.
pub struct Ends {
    side: Side,
    connections: String,
}

impl Ends {
    /// Both with this number of connections.
    pub fn new(side: Side, connections: u32) -> Self {
        Self {
            side,
            connections: connections.to_string(),
        }
    }

    /// A server that listens. A newer one counts its connections, and older ones take the option as well.
    fn listen(&self) -> Result<Program, Failure> {
        let Side { name, run, port } = self.side;
        let ends = ["cmtime", "-b", "10.0.1.2", "-p", port];
        let words = [run, &ends, &["-c", &self.connections]].concat();
        let mut program = Program::start(&format!("{name} server"), Host::B, &words)?;
        wait::until("cmtime listens", LIMIT, || {
            program.ensure_running()?;
            let ids = crate::command::run_as(Host::B, &["rdma", "res", "show", "cm_id"])?;
            let address = format!("10.0.1.2:{port}");
            let listens = |line: &str| line.contains("LISTEN") && line.contains(&address);
            Ok(Seen::when(ids.lines().any(listens), || ids.clone()))
        })?;
        Ok(program)
    }

    /// Lets a client make all connections and take them down.
    ///
    /// # Errors
    /// If the server does not listen, a connection is not made, or the client does not end.
    pub fn connect(&self) -> Result<Run, Failure> {
        let Side { name, run, port } = self.side;
        let server = self.listen()?;
        let ends = ["cmtime", "-b", "10.0.1.1", "-s", "10.0.1.2", "-p", port];
        let words = [run, &ends, &["-c", &self.connections]].concat();
        let name = format!("{name} client");
        let started = Moment::now();
        let mut client = Program::start(&name, Host::A, &words)?;
        let status = client.wait(LIMIT)?;
        let program = Moment::now().since(started);
        drop(server);
        let lines = client.lines();
        ensure(status.success(), || {
            format!("{name}: {status}: {}", client.last_line())
        })?;
        parse(&name, &lines, program)
    }
}

/// What cmtime says of its steps, if all went well: its exit status does not tell.
fn parse(name: &str, lines: &[Line], program: Duration) -> Result<Run, Failure> {
    let complaint = lines
        .iter()
        .find(|line| line.text.contains("error") || line.text.contains("failure"));
    if let Some(complaint) = complaint {
        return Err(Failure::not_shown(format!("{name}: {}", complaint.text)));
    }
    // A newer one goes on to connect without queue pairs.
    let with_qps = lines.iter().take_while(|line| !is_without_qps(&line.text));
    let steps = with_qps.filter_map(|line| step(&line.text));
    let run = Run {
        steps: steps.map(|(name, took)| (name.to_owned(), took)).collect(),
        program: Millis::from(program),
    };
    if run.step(CONNECT).0.is_nan() {
        return Err(Failure::Output {
            source_name: name.to_owned(),
            problem: "it does not say how long it took to connect".to_owned(),
        });
    }
    Ok(run)
}

fn is_without_qps(line: &str) -> bool {
    line.starts_with("Connect (") && line.ends_with("no QPs")
}

/// A step, and how long all connections together took for it. Rows have a colon and four figures, the total in ms first;
/// those of a newer cmtime (rdma-core 56) six, the total in us second.
fn step(line: &str) -> Option<(&str, Millis)> {
    let (name, figures) = line.split_at(line.find(|c: char| c.is_ascii_digit())?);
    let figures: Result<Vec<f64>, _> = figures.split_whitespace().map(str::parse).collect();
    let total = match figures.ok()?.as_slice() {
        [ms, _, _, _] => *ms,
        [_, us, _, _, _, _] => us / 1000.0,
        _ => return None,
    };
    match name.trim_end_matches([':', ' ']) {
        // The sum of others.
        "full connect" => None,
        "cm connect" => Some((CONNECT, Millis(total))),
        name => Some((name, Millis(total))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<Line> {
        let line = |text: &str| Line {
            at: Moment::from_ms(0.0),
            text: text.to_owned(),
        };
        text.lines().map(line).collect()
    }

    const TABLE: &str = "creating id\nconnecting\n\
        step              total ms     max ms     min us  us / conn\n\
        create id    :       20.50       1.00      71.00     102.50\n\
        connect      :      700.25     600.00    2000.00    3501.25\n\
        destroy      :        9.25       0.50      30.00      46.25\n";

    #[test]
    fn the_steps_are_added_up() {
        let run = parse("client", &lines(TABLE), Duration::from_secs(1)).expect("a table");
        assert_eq!(run.all(), Millis(730.0));
        assert_eq!(run.step(CONNECT), Millis(700.25));
        assert_eq!(run.program, Millis(1000.0));
    }

    const NEWER: &str = "Connect (200) QPs test\n\tConnecting\nqp_conn               200\n\
        step             avg/iter  total(us)    us/conn    sum(us)    max(us)    min(us)\n\
        full connect         1371     274324          0          0     272084      62540\n\
        create id              10       2081         10       2005        132          5\n\
        cm connect           1088     217681      96394   19278814     201130       5747\n\
        Connect (200) test - no QPs\n\
        create id               7       1495          7       1449        130          5\n";

    #[test]
    fn of_a_newer_one_the_steps_with_queue_pairs_are_added_up() {
        let run = parse("client", &lines(NEWER), Duration::from_secs(1)).expect("a table");
        assert_eq!(run.step(CONNECT), Millis(217.681));
        assert_eq!(run.step("create id"), Millis(2.081));
        assert!((run.all().0 - 219.762).abs() < 1e-9);
    }

    #[test]
    fn a_connection_that_fails_is_no_figure() {
        let text = format!("event: RDMA_CM_EVENT_REJECTED, error: 8\n{TABLE}");
        let failure = parse("client", &lines(&text), Duration::ZERO).expect_err("rejected");
        assert!(failure.to_string().contains("REJECTED"), "{failure}");
        assert!(parse("client", &lines("connecting\n"), Duration::ZERO).is_err());
    }
}
