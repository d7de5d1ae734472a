// SPDX-License-Identifier: MIT OR Apache-2.0
//! apmd on host-a and Debian's ibacm on host-b resolve each other's addresses by multicast.

use std::fs;
use std::time::Duration;

use crate::command;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::program::Program;
use crate::wait::{self, Seen};
use crate::world::{Kind, attribute};

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "acm-multicast",
    about: "apmd and stock ibacm on two hosts find each other's addresses by multicast",
    parts: &[Part {
        world: Kind::Netns,
        run,
    }],
};

/// What only host-b's ibacm is to see: its sockets lie where those of host-a's apmd do.
const RUN_OF_B: &str = "/tmp/acm-multicast/run";
/// ibacm's own configuration, over that of the image.
const ETC_OF_B: &str = "/tmp/acm-multicast/rdma";

/// A name that only ibacm's configuration knows.
const NAME_OF_B: &str = "beta";

const LIMIT: Duration = Duration::from_secs(60);

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    let mut ibacm = start_ibacm()?;
    context.world.start_daemon(
        Host::A,
        Policy {
            sections: "[acm]\nserve = true\n",
            ..Policy::default()
        },
    )?;
    let name_of_a = command::run(&["hostname"])?.trim().to_owned();
    wait_serving(&mut ibacm, Host::A, "10.0.1.1")?;
    wait_serving(&mut ibacm, Host::B, "10.0.1.2")?;
    let asked = [
        (Host::A, ["-f", "i", "-s", "10.0.1.1", "-d", "10.0.1.2"]),
        (Host::B, ["-f", "i", "-s", "10.0.1.2", "-d", "10.0.1.1"]),
        (Host::A, ["-f", "n", "-s", &name_of_a, "-d", NAME_OF_B]),
        (Host::B, ["-f", "n", "-s", NAME_OF_B, "-d", &name_of_a]),
    ];
    for (from, words) in asked {
        ibacm.ensure_running()?;
        resolve(context, from, &words)?;
    }
    context.report.set("resolved_with_ibacm", asked.len());
    context.world.stop_daemons()
}

/// Runs Debian's ibacm on host-b, in a mount namespace of its own.
fn start_ibacm() -> Result<Program, Failure> {
    let write = |name: &str, text: &str| {
        let path = format!("{ETC_OF_B}/{name}");
        fs::create_dir_all(ETC_OF_B)
            .and_then(|()| fs::create_dir_all(RUN_OF_B))
            .and_then(|()| fs::write(&path, text))
            .map_err(|source| Failure::File { path, source })
    };
    let device = Host::B.device();
    write(
        "ibacm_addr.cfg",
        &format!("{NAME_OF_B} {device} 1 default\n"),
    )?;
    write(
        "ibacm_opts.cfg",
        "log_file stdout\nserver_mode unix\nacme_plus_kernel_only no\n",
    )?;
    let words = apart(&["ibacm", "-P"]);
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    Program::start("ibacm on host-b", Host::B, &words)
}

/// `words` in a mount namespace in which `/run` and `/etc/rdma` are host-b's own.
fn apart(words: &[&str]) -> Vec<String> {
    let script =
        format!("mount --bind {RUN_OF_B} /run && mount --bind {ETC_OF_B} /etc/rdma && exec \"$@\"");
    let front = ["unshare", "--mount", "sh", "-c", &script, "sh"];
    front
        .iter()
        .chain(words)
        .map(|&word| word.to_owned())
        .collect()
}

fn ib_acme(host: Host, words: &[&str]) -> Result<String, Failure> {
    let mut all = vec!["ib_acme"];
    all.extend(words);
    match host {
        Host::A => command::run_as(host, &all),
        Host::B => {
            let words = apart(&all);
            let words: Vec<_> = words.iter().map(String::as_str).collect();
            command::run_as(host, &words)
        }
    }
}

/// Waits until the host's service lists its address.
fn wait_serving(ibacm: &mut Program, host: Host, address: &str) -> Result<(), Failure> {
    let what = format!("{host}'s acm service lists {address}");
    wait::until(&what, LIMIT, || {
        ibacm.ensure_running()?;
        Ok(match ib_acme(host, &["-e"]) {
            Ok(list) => Seen::when(list.contains(address), || list),
            Err(error) => Seen::NotYet(error.to_string()),
        })
    })
}

/// `from` finds its peer's port 1. A service that has not joined its group yet has no data.
fn resolve(context: &Context<'_>, from: Host, words: &[&str]) -> Result<(), Failure> {
    let lid = |host: Host| {
        let text = attribute(host.port(1), "lid")?;
        let number = u16::from_str_radix(text.trim_start_matches("0x"), 16);
        number.map_err(|_| Failure::not_shown(format!("no lid: {text}")))
    };
    let (own, peer) = (lid(from)?, lid(from.other())?);
    let what = format!("ib_acme {} on {from}", words.join(" "));
    let answer = wait::until(&what, LIMIT, || {
        Ok(match ib_acme(from, words) {
            Ok(answer) => Seen::Ready(answer),
            Err(error) => Seen::NotYet(error.to_string()),
        })
    })?;
    for want in [format!("slid: {own}"), format!("dlid: {peer}")] {
        ensure(answer.contains(&want), || {
            format!("{what}: no {want} in: {answer}")
        })?;
    }
    context.timeline.note(from, format!("{what}: lid {peer}"));
    Ok(())
}
