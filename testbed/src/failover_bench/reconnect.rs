// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that connects again by itself (testbed/programs/stock/reconnect.c).

use std::time::Duration;

use super::ack_timeout::AckTimeout;
use crate::clock::{Millis, Moment};
use crate::failure::Failure;
use crate::host::Host;
use crate::program::{Line, Program};
use crate::stream::{Stall, value};
use crate::wait::{self, Seen};
use crate::world::World;

/// Bound for retries to run out, and to connect again.
const LIMIT: Duration = Duration::from_secs(120);

/// How long it stood still for each of so many pulled cables, each that of the port in use.
pub(super) fn stalls(
    world: &World,
    timeout: AckTimeout,
    repetitions: u32,
) -> Result<Vec<Millis>, Failure> {
    let timeout = timeout.option().to_string();
    let gids = |host: Host| -> Result<[String; 2], Failure> {
        Ok([host.port(1).gid()?, host.port(2).gid()?])
    };
    let ([a1, a2], [b1, b2]) = (gids(Host::A)?, gids(Host::B)?);
    let words = ["reconnect", "-T", &timeout, "-s", &b1, &b2];
    let mut server = Program::start("server", Host::B, &words)?;
    wait::until("the server listens at both ports", LIMIT, || {
        server.ensure_running()?;
        let lines = server.lines();
        let listening = lines
            .iter()
            .filter(|line| line.text.starts_with("LISTENING"));
        Ok(Seen::when(listening.count() == 2, || server.last_line()))
    })?;
    let words = ["reconnect", "-T", &timeout, &a1, &b1, &a2, &b2];
    let mut client = Program::start("client", Host::A, &words)?;
    let mut stalls = Vec::new();
    for _ in 0..repetitions {
        answered_since(&mut client, Moment::now())?;
        let port = Host::A.port(pair_in_use(&client)?);
        let pulled = world.pull(port)?;
        stalls.push(stall_since(&mut client, pulled)?);
        answered_since(&mut client, Moment::now())?;
        world.plug(port)?;
    }
    Ok(stalls)
}

/// The number of the pair of ports by which it connected last, and so of its own port.
fn pair_in_use(client: &Program) -> Result<u8, Failure> {
    let lines = client.lines();
    let mut connected = lines.iter().rev();
    let pair = connected.find_map(|line| value(&line.text, "CONNECTED", "pair")?.parse().ok());
    pair.ok_or_else(|| Failure::not_shown("the client does not say by which port it is connected"))
}

fn answered_since(client: &mut Program, since: Moment) -> Result<(), Failure> {
    wait::until("the server answers", LIMIT, || {
        client.ensure_running()?;
        let lines = client.lines();
        let answered = |line: &Line| line.at > since && line.text.starts_with("STATS");
        Ok(Seen::when(lines.iter().any(answered), || {
            client.last_line()
        }))
    })
}

/// How long it stood still, from then on, until it had connected again.
fn stall_since(client: &mut Program, pulled: Moment) -> Result<Millis, Failure> {
    wait::until("the client connects again", LIMIT, || {
        client.ensure_running()?;
        let lines = client.lines();
        let later = || lines.iter().filter(|line| line.at > pulled);
        let connected = later().find(|line| line.text.starts_with("CONNECTED"));
        let stall = connected.and_then(|connected| {
            later()
                .filter(|line| line.at >= connected.at)
                .find_map(|line| Stall::parse(&line.text))
        });
        Ok(match stall {
            Some(stall) => Seen::Ready(stall.length),
            None => Seen::NotYet(client.last_line()),
        })
    })
}
