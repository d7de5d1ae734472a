// SPDX-License-Identifier: MIT OR Apache-2.0
//! ACM's sockets: a flood of requests, requests that are never complete, and who may come by TCP.

use super::Context;
use super::attacker::{self, ACM_SOCKET, Attacker};
use super::scene::Scene;
use crate::command;
use crate::failure::{Failure, ensure};
use crate::file::{DIRECTORY, write};
use crate::host::Host;

/// Clients that flood, each of another user.
const CLIENTS: u32 = 16;

/// A daemon that lets everybody come by TCP.
const OPEN: &str = "runtime_dir = \"/run/drill/open\"\n[acm]\nserve = true\n\
    directory = \"/run/drill/open\"\nkernel = false\n\
    tcp_port = 6127\ntcp_networks = [\"0.0.0.0/0\"]\n";

/// Re-arming does not wait for what strangers ask of ACM.
pub(super) fn flood(context: &mut Context<'_>, scene: &mut Scene) -> Result<(), Failure> {
    let gid = Host::A.port(2).gid()?;
    let start = |number| Attacker::start(number, &["apm-abuse", "flood", ACM_SOCKET, &gid]);
    let attackers: Result<Vec<_>, _> = (0..CLIENTS).map(start).collect();
    let mut attackers = attackers?;
    for attacker in &mut attackers {
        attacker.wait_for(&["STATS"])?;
    }
    let shown = scene.rearm_under(context, "flood", &mut attackers);
    let asked = attacker::sum(&attackers, "asked");
    context.report.set("flood_requests", asked);
    let text = format!("{CLIENTS} clients have sent {asked} requests");
    context.timeline.note("drill", text);
    shown
}

/// Half a request, sent when the scene was set, is not waited for any more.
pub(super) fn half_requests(context: &mut Context<'_>, scene: &mut Scene) -> Result<(), Failure> {
    let ended = scene.half_request.wait_for(&["ENDED"])?;
    let ms = crate::stream::value(&ended, "ENDED", "ms").and_then(|ms| ms.parse::<u64>().ok());
    context.report.set("half_request_ms", ms);
    let text = format!("half a request: {ended}");
    context.timeline.note("drill", text);
    Ok(())
}

/// A daemon is not started that would answer everybody's requests by TCP.
pub(super) fn open_tcp(context: &mut Context<'_>, _: &mut Scene) -> Result<(), Failure> {
    let config = format!("{DIRECTORY}/open.toml");
    write(&config, OPEN)?;
    let words = [Host::A.name(), "timeout", "10", "apmd", "--config", &config];
    let output = command::attempt(&words)?;
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().last().unwrap_or_default();
    let text = format!(
        "tcp_networks with everybody in it: {}: {said}",
        output.status
    );
    context.timeline.note("drill", text.clone());
    ensure(
        output.status.code() == Some(1) && said.contains("tcp_networks"),
        || text,
    )
}
