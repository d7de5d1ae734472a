// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl`: the operator's tool. Grammar, exit codes and JSON are described in `docs/apmctl.md`.

mod acm;
mod ask;
mod attribute;
mod conn;
mod counters;
mod drain;
mod fabric;
mod hex;
mod listed;
mod mad;
mod monitor;
mod number;
mod order;
mod path;
mod port;
mod qp;
mod run;
mod sa;
mod socket;
mod source;
mod status;
mod table;
mod terminal;
mod wait;
mod which;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use serde::Serialize;
use socket::Unreachable;

/// The form of the JSON that is printed. Another one when a key is renamed, removed or means something else; not when keys
/// are added.
const SCHEMA: u32 = 1;

/// Shows what apmd does, and runs programs under it.
///
/// Objects, verbs and filters may be shortened as far as they stay unique.
///
/// Exit status: 0 ok, 1 failed, 2 wrong usage, 3 daemon unreachable, 4 degraded (status), something is
/// wrong or worse (fabric check, fabric diff), something would have no path (fabric check --without) or could not leave
/// (port drain --dry-run), or time is up (wait, conn migrate, conn rearm, port drain). `run` ends with the command's own.
#[derive(Parser)]
#[command(name = "apmctl", version, infer_subcommands = true)]
pub struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    object: Object,
}

/// Options of all objects.
#[derive(Args)]
struct Options {
    /// Print JSON
    #[arg(short, long, global = true)]
    json: bool,
    /// Print indented JSON
    #[arg(short, long, global = true)]
    pretty: bool,
    /// Print more columns or lines
    #[arg(short, long, global = true)]
    details: bool,
    /// The daemon's runtime directory [default: that of $APMD_SOCKET, or /run/apmd]
    #[arg(short, long, global = true, value_name = "DIR")]
    socket: Option<PathBuf>,
    /// For how long the daemon may be silent before it counts as unreachable
    #[arg(long, global = true, value_name = "SECONDS", default_value = "5", value_parser = number::patience)]
    #[arg(env = "APMCTL_ANSWER_TIMEOUT", hide_env_values = true)]
    answer_timeout: Duration,
}

#[derive(Subcommand)]
enum Object {
    /// Connections
    Conn(conn::Conn),
    /// RC queue pairs of the host, where the kernel module is loaded
    Qp(qp::Qp),
    /// Local ports
    Port(port::Port),
    /// Where paths come from
    Source(source::Source),
    /// The fabric as data, without the daemon
    Fabric(fabric::Fabric),
    /// Paths between two hosts, without the daemon
    Path(path::Path),
    /// The daemon at a glance
    Status(status::Status),
    /// The served ACM
    Acm(acm::Acm),
    /// Counters
    Counters(counters::Counters),
    /// What subnet administration knows (asks it without the daemon)
    Sa(sa::Sa),
    /// What happens to connections, until interrupted
    Monitor(monitor::Monitor),
    /// Management datagrams
    // As short as before there was `monitor`.
    #[command(alias = "m")]
    Mad(mad::Mad),
    /// Run a program; its connections are kept armed
    Run(run::Run),
    /// Wait for a state
    Wait(wait::Wait),
}

/// Why a command ends without success.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Failed(String),
    /// The command line asks for what makes no sense.
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error("{0}")]
    TimedOut(String),
    /// The command to run cannot be run, with the exit status that shells use.
    #[error("{what}")]
    NotRun {
        /// What could not be run and why.
        what: String,
        /// 125, 126 or 127.
        status: u8,
    },
    /// The reader of our output is gone. Nobody is told.
    #[error("output: {0}")]
    Output(#[from] io::Error),
}

impl Failure {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) | Self::Output(_) => 1,
            Self::Usage(_) => 2,
            Self::Unreachable(_) => 3,
            Self::TimedOut(_) => 4,
            Self::NotRun { status, .. } => *status,
        }
    }
}

/// What a command that did its work found.
enum Outcome {
    /// Nothing to complain of.
    Ok,
    /// Something is wrong with what was looked at.
    Degraded,
}

/// Does what the command line says.
pub fn main(arguments: Arguments) -> ExitCode {
    let Arguments { options, object } = arguments;
    let outcome = match object {
        Object::Conn(conn) => conn.run(&options),
        Object::Qp(qp) => qp.run(&options),
        Object::Port(port) => port.run(&options),
        Object::Source(source) => source.run(&options),
        Object::Fabric(fabric) => fabric.run(&options),
        Object::Path(path) => path.run(&options),
        Object::Status(status) => status.run(&options),
        Object::Acm(acm) => acm.run(&options),
        Object::Counters(counters) => counters.run(&options),
        Object::Sa(sa) => sa.run(&options),
        Object::Monitor(monitor) => monitor.run(&options),
        Object::Mad(mad) => mad.run(&options),
        Object::Run(run) => run.run(&options),
        Object::Wait(wait) => wait.run(&options),
    };
    match outcome {
        Ok(Outcome::Ok) => ExitCode::SUCCESS,
        Ok(Outcome::Degraded) => ExitCode::from(4),
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::FAILURE
        }
        Err(failure) => {
            eprintln!("apmctl: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

impl Options {
    /// Whether JSON is wanted instead of tables.
    fn wants_json(&self) -> bool {
        self.json || self.pretty
    }

    /// Prints `value` as JSON or in this form, whichever is wanted.
    fn show(&self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), Failure> {
        match self.wants_json() {
            true => self.print_json(value),
            false => print(&text()),
        }
    }

    /// Prints `value` as JSON.
    fn print_json(&self, value: &impl Serialize) -> Result<(), Failure> {
        let text = if self.pretty {
            serde_json::to_string_pretty(value)
        } else {
            serde_json::to_string(value)
        };
        let text = text.map_err(|error| Failure::Failed(error.to_string()))?;
        print(&with_schema(text, self.pretty))
    }
}

/// Objects say first which form of the JSON they have. A list has no place for it.
fn with_schema(json: String, pretty: bool) -> String {
    let Some(fields) = json.strip_prefix('{') else {
        return json;
    };
    let (space, colon) = if pretty { ("\n  ", ": ") } else { ("", ":") };
    let comma = if fields.trim_start() == "}" { "" } else { "," };
    format!("{{{space}\"schema\"{colon}{SCHEMA}{comma}{fields}")
}

/// Prints a text that ends with one line feed.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.trim_end_matches('\n').as_bytes())?;
    if !text.is_empty() {
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn objects_say_their_schema_and_lists_stay_lists() {
        let parse = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
        for (value, want) in [
            (json!({"a": [1]}), json!({"schema": 1, "a": [1]})),
            (json!({}), json!({"schema": 1})),
            (json!([{"a": 1}]), json!([{"a": 1}])),
            (json!(null), json!(null)),
        ] {
            let compact = with_schema(value.to_string(), false);
            let pretty = serde_json::to_string_pretty(&value).expect("JSON");
            let pretty = with_schema(pretty, true);
            assert_eq!((parse(&compact), parse(&pretty)), (want.clone(), want));
        }
        let pretty = serde_json::to_string_pretty(&json!({"a": 1})).expect("JSON");
        let want = "{\n  \"schema\": 1,\n  \"a\": 1\n}";
        assert_eq!(with_schema(pretty, true), want);
    }
}
