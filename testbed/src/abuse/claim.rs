// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registrations of queue pairs: one's own, somebody else's, or none's.

use std::convert::Infallible;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use cm_msgs::control::{
    Cause, Ending, FromDaemon, FromLibrary, MigrationState, PolicyOverride, QpState, Register,
    Report, Role, Snapshot,
};
use cm_msgs::path::Path;
use cm_msgs::{Gid, Guid, Lid, PKey, Qpn};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::EachSecond;
use super::library::Library;

/// What is registered.
#[derive(Args)]
pub(super) struct Options {
    /// The libraries' socket
    socket: PathBuf,
    /// Node GUID of the device, as sysfs has it
    #[arg(long, value_parser = parse_guid)]
    node_guid: Guid,
    /// The local port
    #[arg(long, default_value_t = 1)]
    port: u8,
    /// Its LID
    #[arg(long)]
    slid: u16,
    /// The peer's LID
    #[arg(long)]
    dlid: u16,
    /// GID of the local port
    #[arg(long)]
    sgid: Gid,
    /// GID of the peer's port
    #[arg(long)]
    dgid: Gid,
    /// The queue pair
    #[arg(long)]
    qpn: u32,
}

fn parse_guid(text: &str) -> Result<Guid, std::num::ParseIntError> {
    u64::from_str_radix(&text.replace(':', ""), 16).map(Guid)
}

/// How long it is waited for a refusal.
const PATIENCE: Duration = Duration::from_secs(10);

/// After a connection is refused or cut.
const PAUSE: Duration = Duration::from_millis(10);

/// A registration as the library would send it.
pub(super) fn register(node_guid: Guid, qpn: u32, primary: Path) -> Register {
    Register {
        role: Role::Active,
        opted_in: false,
        node_guid,
        qpn: Qpn(qpn),
        peer_qpn: Qpn(qpn ^ 1),
        policy: PolicyOverride::default(),
        snapshot: Snapshot {
            qp_state: QpState::Rts,
            migration: MigrationState::Migrated,
            primary,
            alternate: None,
        },
    }
}

impl Options {
    fn register(&self) -> Register {
        let primary = Path {
            port: self.port,
            mtu: 3,
            rate: 2,
            ack_timeout: 14,
            slid: Lid(self.slid),
            dlid: Lid(self.dlid),
            pkey: PKey(0xffff),
            sgid: self.sgid,
            dgid: self.dgid,
            ..Path::default()
        };
        register(self.node_guid, self.qpn, primary)
    }
}

/// Registers, prints whether that was refused within some seconds, and stays.
pub(super) fn once(options: &Options) -> io::Result<Infallible> {
    let library = Library::connect(&options.socket)?;
    library.hello()?;
    let register = options.register();
    library.send(&FromLibrary::Register { conn: 1, register })?;
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        wait(&library)?;
        match library.receive()? {
            Some(FromDaemon::Refuse { refusal, .. }) => {
                println!("REFUSED why=\"{refusal}\"");
                break;
            }
            // Asked for another look, it says the same again.
            Some(FromDaemon::Query { conn, token }) => {
                let report = Report {
                    cause: Cause::Query { token },
                    snapshot: register.snapshot,
                };
                library.send(&FromLibrary::Report { conn, report })?;
            }
            _ => {}
        }
    }
    if Instant::now() >= deadline {
        println!("ACCEPTED");
    }
    loop {
        thread::sleep(Duration::MAX);
    }
}

/// Registers and closes as fast as that is taken.
pub(super) fn over_and_over(options: &Options) -> io::Result<Infallible> {
    let mut each_second = EachSecond::new();
    let (mut registered, mut refused, mut connections) = (0_u64, 0_u64, 0_u64);
    loop {
        let Ok(library) = Library::connect(&options.socket) else {
            thread::sleep(PAUSE);
            continue;
        };
        connections += 1;
        let mut alive = library.hello().unwrap_or(false);
        while alive {
            let register = options.register();
            let conn = registered;
            let sent = library.send(&FromLibrary::Register { conn, register });
            registered += u64::from(matches!(sent, Ok(true)));
            alive = sent.is_ok()
                && library
                    .send(&FromLibrary::Close {
                        conn,
                        ending: Ending::Gone,
                    })
                    .is_ok();
            while let Ok(Some(message)) = library.receive() {
                refused += u64::from(matches!(message, FromDaemon::Refuse { .. }));
            }
            if let Ok(false) = sent {
                alive = wait(&library).is_ok();
            }
            if each_second.is_over() {
                println!(
                    "STATS registered={registered} refused={refused} connections={connections}"
                );
            }
        }
        thread::sleep(PAUSE);
    }
}

/// Until the daemon has said something, or taken something, or some time has gone.
fn wait(library: &Library) -> io::Result<()> {
    let mut fds = [PollFd::new(library.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::from(10_u16)).map(drop)?;
    Ok(())
}
