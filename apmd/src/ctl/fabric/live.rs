// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading the fabric from subnet administration, directly over umad: no daemon is needed.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use cm_msgs::mad;
use cm_msgs::{Gid, Guid, Lid, sa};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use statemachine::{PortId, Time};

use crate::ctl::Failure;
use crate::fabric::{Progress, ReadError, Reader, Reading};
use crate::io::umad::{self, AgentClass, AgentId, Destination, Received, Umad, UmadName};
use crate::sa::{Limits, SaClient, User};

const SYSFS: &str = "/sys/class/infiniband";

/// Readings before a fabric that does not stand still is given up, and the pause between them.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);

/// From where a live fabric is read.
#[derive(Args)]
pub(super) struct Live {
    /// Read it from subnet administration instead, over umad
    #[arg(long)]
    pub(super) live: bool,
    /// The RDMA device to ask from [default: the first with a port that has a subnet manager]
    #[arg(long, value_name = "NAME", requires = "live")]
    device: Option<String>,
    /// Its port
    #[arg(long, value_name = "NUMBER", requires = "device")]
    port: Option<u8>,
    /// Requests at a time
    #[arg(long, value_name = "NUMBER", requires = "live", default_value_t = 4,
          value_parser = clap::value_parser!(u8).range(1..))]
    in_flight: u8,
    /// The key that makes subnet administration show partition tables
    #[arg(long, value_name = "KEY", requires = "live", default_value_t = 0)]
    sm_key: u64,
}

impl Live {
    /// Reads it; on a terminal with a line that says how far it is.
    pub(super) fn read(&self) -> Result<pathdb::Fabric, Failure> {
        let (mut port, sgid) = self.open()?;
        let reading = Reading {
            port: ASKING,
            sgid,
            in_flight: self.in_flight.into(),
            sm_key: self.sm_key,
        };
        let mut number = 0;
        let mut tries = 1;
        loop {
            let mut reader = Reader::new(reading, number);
            let read = port.read(&mut reader, &mut Line::new());
            number = reader.next_number();
            match read.map_err(|error| failed(&port.name, error))? {
                Ok(fabric) => return Ok(fabric),
                Err(ReadError::Contradiction(_)) if tries < TRIES => {
                    tries += 1;
                    std::thread::sleep(PAUSE);
                }
                Err(error) => return Err(failed(&port.name, error)),
            }
        }
    }

    /// Opens the port that is asked for, or the first that can ask.
    fn open(&self) -> Result<(Port, Gid), Failure> {
        let wanted = |name: &UmadName| {
            self.device
                .as_ref()
                .is_none_or(|device| *device == name.device)
                && self.port.is_none_or(|port| port == name.port)
        };
        let names: Vec<_> = umad::list().into_iter().filter(wanted).collect();
        let able = names.iter().find_map(|name| Some((name, facts(name)?)));
        let Some((name, facts)) = able else {
            let seen: Vec<_> = names
                .iter()
                .map(|name| format!("{}/{}", name.device, name.port))
                .collect();
            let seen = if seen.is_empty() {
                "none".to_owned()
            } else {
                seen.join(" ")
            };
            return Err(Failure::Failed(format!(
                "no port that is active and has a subnet manager; umad ports looked at: {seen}"
            )));
        };
        let gid = facts.gid;
        let port = Port::open(name, facts);
        let port = port.map_err(|error| failed(&name.path.display().to_string(), error))?;
        Ok((port, gid))
    }
}

fn failed(what: &str, error: impl std::fmt::Display) -> Failure {
    Failure::Failed(format!("{what}: {error}"))
}

/// The one port of the SA's client here.
const ASKING: PortId = PortId {
    node_guid: Guid(0),
    port: 1,
};

/// What sysfs says of a port that can ask the SA.
struct Facts {
    gid: Gid,
    sm_lid: Lid,
    sm_sl: u8,
    pkey_index: u16,
}

/// `None` if the port cannot ask.
fn facts(name: &UmadName) -> Option<Facts> {
    let dir = Path::new(SYSFS)
        .join(&name.device)
        .join("ports")
        .join(name.port.to_string());
    let read = |file: &str| std::fs::read_to_string(dir.join(file)).ok();
    let number = |text: String| {
        let text = text.trim();
        match text.strip_prefix("0x") {
            Some(hex) => u16::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        }
    };
    let active = read("state")?.contains("ACTIVE");
    let sm_lid = Lid(number(read("sm_lid")?)?);
    let gid: std::net::Ipv6Addr = read("gids/0")?.trim().parse().ok()?;
    let is_default = |key: u16| key & 0x7fff == 0x7fff;
    let default = (0..u16::MAX)
        .map_while(|index| number(read(&format!("pkeys/{index}"))?))
        .position(is_default);
    (active && sm_lid.is_unicast()).then_some(Facts {
        gid: Gid(gid.octets()),
        sm_lid,
        sm_sl: u8::try_from(number(read("sm_sl")?)?).ok()?,
        pkey_index: default.and_then(|index| index.try_into().ok()).unwrap_or(0),
    })
}

/// An open umad file, and the transactions over it.
struct Port {
    name: String,
    facts: Facts,
    umad: Umad,
    agent: AgentId,
    client: SaClient,
    started: Instant,
}

impl Port {
    fn open(name: &UmadName, facts: Facts) -> io::Result<Self> {
        let umad = Umad::open(&name.path)?;
        let agent = umad.register(AgentClass {
            qpn: 1,
            mgmt_class: mad::CLASS_SA,
            class_version: sa::CLASS_VERSION,
            receive: None,
            rmpp: true,
        })?;
        let limits = Limits {
            in_flight: usize::from(u8::MAX) * 2,
        };
        Ok(Self {
            name: format!("{} port {}", name.device, name.port),
            facts,
            umad,
            agent,
            // Another file has other transactions: the kernel keeps them apart.
            client: SaClient::new(limits, std::process::id()),
            started: Instant::now(),
        })
    }

    fn now(&self) -> Time {
        Time(self.started.elapsed().as_micros() as u64)
    }

    /// Lets the reader ask until it has an outcome.
    fn read(
        &mut self,
        reader: &mut Reader,
        line: &mut Line,
    ) -> io::Result<Result<pathdb::Fabric, ReadError>> {
        loop {
            while let Some(ask) = reader.poll_ask() {
                self.client.ask(ask);
            }
            self.send();
            let mut replied = false;
            while let Some((user, reply)) = self.client.poll_reply() {
                replied = true;
                if let User::Fabric(number) = user {
                    reader.handle_reply(number, reply);
                }
            }
            if let Some(outcome) = reader.poll_outcome() {
                return Ok(outcome);
            }
            line.show(reader.progress());
            if !replied {
                self.receive()?;
            }
        }
    }

    fn send(&mut self) {
        while let Some(request) = self.client.poll_send() {
            let to = Destination {
                qpn: 1,
                lid: self.facts.sm_lid,
                sl: self.facts.sm_sl,
                pkey_index: self.facts.pkey_index,
                timeout_ms: request.timeout_ms,
            };
            if self.umad.send(self.agent, to, &request.mad).is_err() {
                self.client.handle_unsent(request.transaction_id);
            }
        }
    }

    /// Waits for something to come in, unless there is something to do already, and takes it.
    fn receive(&mut self) -> io::Result<()> {
        let now = self.now();
        let pause = self.client.poll_timeout().map(|at| at - now);
        let pause = pause.map_or(PollTimeout::NONE, |pause| {
            PollTimeout::try_from(pause + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
        });
        match poll(
            &mut [PollFd::new(self.umad.as_fd(), PollFlags::POLLIN)],
            pause,
        ) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        while let Some(received) = self.umad.receive()? {
            match received {
                // What is no answer at all is not awaited either: the request times out.
                Received::Mad(message) => {
                    let _ = self.client.handle_response(self.now(), &message.bytes);
                }
                Received::TimedOut { transaction_id, .. } => {
                    self.client.handle_timeout(transaction_id);
                }
            }
        }
        self.client.handle_time(self.now());
        Ok(())
    }
}

/// The line that says how far it is; nothing where nobody looks.
struct Line {
    wanted: bool,
    shown: Option<(Progress, Instant)>,
}

impl Line {
    fn new() -> Self {
        Self {
            wanted: io::stderr().is_terminal(),
            shown: None,
        }
    }

    fn show(&mut self, progress: Progress) {
        let fresh = self.shown.is_some_and(|(before, at)| {
            before.step == progress.step && at.elapsed() < Duration::from_millis(100)
        });
        if !self.wanted || fresh {
            return;
        }
        let Progress {
            step,
            done,
            of,
            records,
        } = progress;
        // A terminal that cannot be written to is no reason to stop.
        let _ = write!(
            io::stderr(),
            "\r\x1b[K{step}: {done} of {of}, {records} records"
        );
        self.shown = Some((progress, Instant::now()));
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
