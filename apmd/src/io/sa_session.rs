// SPDX-License-Identifier: MIT OR Apache-2.0
//! Subnet administration for a program that waits for its answers, through one port. The daemon
//! asks through its event loop instead.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Instant;

use cm_msgs::mad;
use cm_msgs::sa::{self, SaMad};
use cm_msgs::{Gid, Guid, Lid, PKey};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use statemachine::{PortId, Time};

use super::random;
use super::rdma_class;
use super::umad::{self, AgentClass, AgentId, Destination, Received, Umad, UmadName};
use paths::sa::{Ask, Failure, Limits, Response, SaClient, User};

const SYSFS: &str = "/sys/class/infiniband";

/// Who begins several requests takes care that they are not too many.
const LIMITS: Limits = Limits { in_flight: 512 };

/// A port that requests are sent from.
#[derive(Debug)]
pub(crate) struct SaSession {
    umad: Umad,
    agent: AgentId,
    name: UmadName,
    client: SaClient,
    start: Instant,
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    /// No port fits.
    #[error("no active port {0}")]
    NoPort(String),
    /// umad or sysfs says no.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: String,
        /// Why it failed.
        error: io::Error,
    },
    /// The SA was not reached, or says no.
    #[error(transparent)]
    Sa(#[from] Failure),
}

impl SaSession {
    /// Opens the first active port that fits.
    ///
    /// # Errors
    /// There is none, or no right to it.
    pub(crate) fn open(device: Option<&str>, port: Option<u8>) -> Result<Self, SessionError> {
        let fits = |name: &UmadName| {
            device.is_none_or(|device| device == name.device)
                && port.is_none_or(|port| port == name.port)
                && is_active(name)
        };
        let name = umad::list().into_iter().find(fits).ok_or_else(|| {
            let port = port.map_or_else(String::new, |port| format!("/{port}"));
            SessionError::NoPort(format!("{}{port}", device.unwrap_or("here")))
        })?;
        let open = || {
            let umad = Umad::open(&name.path)?;
            let agent = umad.register(AgentClass {
                rmpp: true,
                ..AgentClass::sender(1, mad::CLASS_SA, sa::CLASS_VERSION)
            })?;
            Ok((umad, agent))
        };
        let (umad, agent) = open().map_err(system(name.path.display()))?;
        let random = random::from_kernel().map_err(system("getrandom"))?;
        Ok(Self {
            umad,
            agent,
            name,
            client: SaClient::new(LIMITS, random),
            start: Instant::now(),
        })
    }

    /// Device and port.
    pub(crate) fn name(&self) -> (&str, u8) {
        (&self.name.device, self.name.port)
    }

    /// The GID of the port.
    ///
    /// # Errors
    /// sysfs does not say.
    pub(crate) fn gid(&self) -> Result<Gid, SessionError> {
        let text = text(&self.name, "gids/0")?;
        text.parse().map_err(|error| {
            let error = io::Error::new(io::ErrorKind::InvalidData, error);
            system(format!("{}/{} gids/0", self.name.device, self.name.port))(error)
        })
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// The SA was not reached, or says no.
    pub(crate) fn ask(
        &mut self,
        mad: SaMad,
        timeout_ms: u32,
        tries: u8,
    ) -> Result<Response, SessionError> {
        self.begin(Ask {
            user: User::Fabric(0),
            port: PortId::new(Guid(0), self.name.port),
            mad,
            timeout_ms,
            tries,
        });
        let (_, reply) = self.reply()?;
        Ok(reply?)
    }

    /// Asks without waiting. The SA is that of this port, whatever the request says.
    pub(crate) fn begin(&mut self, ask: Ask) {
        self.client.ask(ask);
    }

    /// Waits for the answer to one of the requests that were begun, of which there must be some.
    ///
    /// # Errors
    /// umad or sysfs says no.
    pub(crate) fn reply(&mut self) -> Result<(User, Result<Response, Failure>), SessionError> {
        loop {
            self.client.handle_time(self.now());
            while let Some(request) = self.client.poll_send() {
                let to = self.destination(request.timeout_ms)?;
                let sent = self.umad.send(self.agent, to, &request.mad);
                sent.map_err(system(self.name.path.display()))?;
            }
            if let Some(reply) = self.client.poll_reply() {
                return Ok(reply);
            }
            self.wait()
                .and_then(|()| self.receive())
                .map_err(system(self.name.path.display()))?;
        }
    }

    fn now(&self) -> Time {
        Time(0) + self.start.elapsed()
    }

    /// The subnet manager as it is now: another may have taken over.
    fn destination(&self, timeout_ms: u32) -> Result<Destination, SessionError> {
        Ok(Destination {
            qpn: 1,
            lid: Lid(number(&self.name, "sm_lid")?),
            sl: number(&self.name, "sm_sl")? as u8,
            pkey_index: default_pkey_index(&self.name),
            path_bits: 0,
            timeout_ms,
        })
    }

    /// Until something came in or a pause is over.
    fn wait(&self) -> io::Result<()> {
        let timeout = match self.client.poll_timeout() {
            Some(at) => {
                PollTimeout::try_from((at - self.now()).as_millis() + 1).unwrap_or(PollTimeout::MAX)
            }
            None => PollTimeout::NONE,
        };
        let mut fds = [PollFd::new(self.umad.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, timeout)?;
        Ok(())
    }

    fn receive(&mut self) -> io::Result<()> {
        while let Some(received) = self.umad.receive()? {
            match received {
                Received::TimedOut { transaction_id, .. } => {
                    self.client.handle_timeout(transaction_id);
                }
                Received::Mad(mad) => {
                    let answered = self.client.handle_response(self.now(), &mad.bytes);
                    if let Err(error) = answered {
                        tracing::debug!(%error, "malformed answer");
                    }
                }
            }
        }
        Ok(())
    }
}

fn system(what: impl ToString) -> impl FnOnce(io::Error) -> SessionError {
    let what = what.to_string();
    move |error| SessionError::System { what, error }
}

/// A file of a port's in sysfs.
fn text(name: &UmadName, file: &str) -> Result<String, SessionError> {
    let path = Path::new(SYSFS)
        .join(&name.device)
        .join("ports")
        .join(name.port.to_string())
        .join(file);
    let text = fs::read_to_string(&path).map_err(system(path.display()))?;
    Ok(text.trim().to_owned())
}

fn number(name: &UmadName, file: &str) -> Result<u16, SessionError> {
    let text = text(name, file)?;
    parse(&text).ok_or_else(|| {
        let error = io::Error::new(io::ErrorKind::InvalidData, format!("{text:?}"));
        system(format!("{}/{} {file}", name.device, name.port))(error)
    })
}

/// A number as the kernel writes it: decimal, or hex after 0x.
fn parse(text: &str) -> Option<u16> {
    match text.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn is_active(name: &UmadName) -> bool {
    rdma_class::is_endpoint(&name.device, name.port)
        && text(name, "state").is_ok_and(|state| state.contains("ACTIVE"))
        && number(name, "sm_lid").is_ok_and(|lid| Lid(lid).is_unicast())
}

/// Index of the default partition in the P_Key table.
fn default_pkey_index(name: &UmadName) -> u16 {
    let is_default = |index: &u16| {
        let pkey = text(name, &format!("pkeys/{index}")).map(|text| text.parse::<PKey>());
        matches!(pkey, Ok(Ok(pkey)) if pkey.partition() == PKey::DEFAULT_FULL.partition())
    };
    (0..16).find(is_default).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_sysfs_has_them() {
        assert_eq!(parse("0x1"), Some(1));
        assert_eq!(parse("0xffff"), Some(0xffff));
        assert_eq!(parse("3"), Some(3));
        assert_eq!(parse("0x10000"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_machine_without_the_device_says_so() {
        let error = SaSession::open(Some("no-such-device"), Some(7)).unwrap_err();
        assert_eq!(error.to_string(), "no active port no-such-device/7");
    }
}
