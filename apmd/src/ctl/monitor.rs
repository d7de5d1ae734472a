// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl monitor`: what happens to connections, as it happens.

use clap::Args;

use super::ask::Stream;
use super::which::Filters;
use super::{Failure, Options, Outcome, print};
use crate::observe::filter;
use crate::observe::request::{Request, Show};
use crate::observe::transition::{Told, Transition};

#[derive(Args)]
pub(super) struct Monitor {
    /// Only of this connection
    #[arg(short, long, value_name = "ID")]
    conn: Option<String>,
    #[command(flatten)]
    filters: Filters,
}

impl Monitor {
    /// Until it is interrupted, or the daemon ends.
    pub(super) fn run(mut self, options: &Options) -> Result<Outcome, Failure> {
        if let Some(id) = self.conn.take() {
            self.filters.add_id(id)?;
        }
        let request = Request {
            connections: self.filters.parse()?,
            ..Show::Transitions.into()
        };
        let mut stream = Stream::open(options, request)?;
        loop {
            let told: Told = stream.next()?;
            match &told {
                Told::Watching { .. } => {}
                told if options.wants_json() => options.print_json(told)?,
                Told::Transition(transition) => print(&line(transition))?,
                Told::LeftOut { left_out } => print(&format!(
                    "{left_out} transitions left out: they came faster than they were read"
                ))?,
            }
        }
    }
}

fn line(transition: &Transition) -> String {
    let subject = &transition.subject;
    let program = match subject.command.as_str() {
        "" => String::new(),
        command => format!(" {}", filter::owner(command, subject.pid)),
    };
    let change = match (&transition.from, &transition.to) {
        (Some(from), Some(to)) => format!(" ({from} -> {to})"),
        _ => String::new(),
    };
    format!(
        "{} {} {} 0x{:06x}{program}: {}{change}",
        time_of_day(transition.time),
        subject.id,
        subject.device,
        subject.qpn,
        transition.text,
    )
}

/// UTC, as the daemon's log has it.
fn time_of_day(time: f64) -> String {
    let ms = (time * 1e3).round() as u64 % 86_400_000;
    let (seconds, ms) = (ms / 1000, ms % 1000);
    let (minutes, seconds) = (seconds / 60, seconds % 60);
    format!(
        "{:02}:{:02}:{seconds:02}.{ms:03}Z",
        minutes / 60,
        minutes % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::transition::Subject;

    #[test]
    fn a_transition_is_one_line() {
        let transition = Transition {
            time: 1_700_000_000.25,
            subject: Subject {
                id: "3.1".to_owned(),
                device: "mlx5_0".to_owned(),
                qpn: 0x111,
                peer_qpn: 0x222,
                pid: 77,
                command: "rping".to_owned(),
            },
            event: "protection".to_owned(),
            from: Some("rearming".to_owned()),
            to: Some("armed".to_owned()),
            reason: None,
            cause: None,
            stall_ms: None,
            protection: "armed".to_owned(),
            grade: None,
            text: "connection armed".to_owned(),
        };
        assert_eq!(
            line(&transition),
            "22:13:20.250Z 3.1 mlx5_0 0x000111 rping[77]: connection armed (rearming -> armed)"
        );
        let json = serde_json::to_string(&transition).expect("JSON");
        let told: Told = serde_json::from_str(&json).expect("the same");
        assert_eq!(told, Told::Transition(transition.into()));
        let told: Told = serde_json::from_str(r#"{"left_out":7}"#).expect("told");
        assert_eq!(told, Told::LeftOut { left_out: 7 });
    }
}
