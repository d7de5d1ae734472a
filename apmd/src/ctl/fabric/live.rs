// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading the fabric from subnet administration, directly over umad: no daemon is needed.

use std::fmt::Display;
use std::time::Duration;

use clap::Args;
use cm_msgs::Guid;
use statemachine::PortId;

use crate::ctl::Failure;
use crate::ctl::number;
use crate::ctl::terminal::Bar;
use crate::io::sa_session::{SaSession, SessionError};
use paths::fabric::{Progress, ReadError, Reader, Reading};
use paths::sa::User;

/// Readings before a fabric that does not stand still is given up, and the pause between them.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);
/// Readings before it is given up that the subnet manager comes to an end with its work.
const TRIES_UNROUTED: u32 = 60;

/// From where a live fabric is read.
#[derive(Args)]
pub(super) struct Live {
    /// Read it from subnet administration instead, over umad
    #[arg(long)]
    pub(super) live: bool,
    /// Ask by a port of this device [default: the first active port]
    #[arg(long, value_name = "NAME", requires = "live")]
    device: Option<String>,
    /// Ask by this port
    #[arg(long, value_name = "NUMBER", requires = "live")]
    port: Option<u8>,
    /// Requests at a time
    #[arg(long, value_name = "NUMBER", requires = "live", default_value_t = 4,
          value_parser = clap::value_parser!(u8).range(1..))]
    in_flight: u8,
    /// The subnet manager's SM_Key: with it, partitions are read as well; decimal, or hexadecimal after 0x
    #[arg(long, value_name = "KEY", requires = "live", default_value_t = 0,
          value_parser = number::sm_key)]
    sm_key: u64,
    /// Read SL-to-VL tables as well, of which a switch has as many as it has pairs of ports
    #[arg(long, requires = "live")]
    sl2vl: bool,
    /// Read forwarding tables although ports are in state Init; OpenSM may not survive that
    #[arg(long, requires = "live")]
    unrouted: bool,
}

impl Live {
    /// Reads it; on a terminal with a line that says how far it is.
    pub(super) fn read(&self) -> Result<pathdb::Fabric, Failure> {
        let mut session = SaSession::open(self.device.as_deref(), self.port)?;
        let reading = Reading {
            port: PortId::new(Guid(0), session.name().1),
            sgid: session.gid()?,
            in_flight: self.in_flight.into(),
            sm_key: self.sm_key,
            sl2vl: self.sl2vl,
            unrouted: self.unrouted,
        };
        let mut number = 0;
        let mut tries = 1;
        let mut tries_unrouted = 1;
        loop {
            let mut reader = Reader::new(reading, number);
            let outcome = read(&mut session, &mut reader)?;
            // A late answer to this reading must not pass for the next one's.
            number = reader.next_number();
            match outcome {
                Ok(fabric) => return Ok(fabric),
                Err(ReadError::Contradiction(_)) if tries < TRIES => {
                    tries += 1;
                    std::thread::sleep(PAUSE);
                }
                Err(ReadError::Unrouted { .. }) if tries_unrouted < TRIES_UNROUTED => {
                    tries_unrouted += 1;
                    std::thread::sleep(PAUSE);
                }
                Err(error @ ReadError::Unrouted { .. }) => {
                    let error = format!("{error}; --unrouted reads all the same");
                    return Err(failed(&session, error));
                }
                Err(error) => return Err(failed(&session, error)),
            }
        }
    }
}

/// Lets the reader ask until it has an outcome.
fn read(
    session: &mut SaSession,
    reader: &mut Reader,
) -> Result<Result<pathdb::Fabric, ReadError>, SessionError> {
    let bar = Bar::new();
    loop {
        while let Some(ask) = reader.poll_ask() {
            session.begin(ask);
        }
        if let Some(outcome) = reader.poll_outcome() {
            return Ok(outcome);
        }
        let Progress { step, done, of, .. } = reader.progress();
        bar.show(&step.to_string(), done as u64, of as u64);
        let (user, reply) = session.reply()?;
        if let User::Fabric(number) = user {
            reader.handle_reply(number, reply);
        }
    }
}

fn failed(session: &SaSession, error: impl Display) -> Failure {
    let (device, port) = session.name();
    Failure::Failed(format!("{device} port {port}: {error}"))
}
