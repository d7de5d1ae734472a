// SPDX-License-Identifier: MIT OR Apache-2.0
//! apmd on host-a and Debian's ibacm on host-b resolve each other's addresses by multicast, with and
//! without subnet administration.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::command;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::file;
use crate::host::Host;
use crate::link::Link;
use crate::observe;
use crate::program::Program;
use crate::wait::{self, Seen};
use crate::world::Kind;

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "acm-multicast",
    about: "apmd and stock ibacm find each other by multicast, with and without the SA",
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

/// What tells apmd, and ibacm, to take the path from the multicast group that both hosts are in.
const BY_GROUP: (&str, &str) = (
    "[acm]\nserve = true\nmulticast = \"paths\"\n",
    "route_prot acm\n",
);
/// And from subnet administration.
const BY_SA: (&str, &str) = ("[acm]\nserve = true\n", "route_prot sa\n");

/// apmd on host-a, and ibacm on host-b.
struct Services {
    ibacm: Program,
    name_of_a: String,
}

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    let (sections, options) = BY_SA;
    let policy = |sections| Policy {
        sections,
        ..Policy::default()
    };
    let mut services = Services::start(context, policy(sections), options)?;
    let mut resolved = services.by_addresses(context)? + services.by_names(context)?;
    services.stop(context)?;

    let (sections, options) = BY_GROUP;
    let mut services = Services::start(context, policy(sections), options)?;
    // Both have joined their groups if they find each other; the names nobody has asked for yet.
    resolved += services.by_addresses(context)?;
    context.world.pull(Link::SubnetManager)?;
    let without_sa = services.by_names(context)?;
    path_is_the_groups(NAME_OF_B)?;
    context.world.restore(Link::SubnetManager)?;
    services.stop(context)?;
    let report = &mut *context.report;
    report.set("resolved_with_ibacm", resolved + without_sa);
    report.set("resolved_without_sa", without_sa);
    Ok(())
}

/// apmd, as `policy` has it, finds stock ibacm, and that finds it; how many answers there were.
pub(super) fn resolve_with_ibacm(
    context: &mut Context<'_>,
    policy: Policy,
) -> Result<usize, Failure> {
    let (_, options) = BY_SA;
    let mut services = Services::start(context, policy, options)?;
    let resolved = services.by_addresses(context)? + services.by_names(context)?;
    services.stop(context)?;
    Ok(resolved)
}

impl Services {
    fn start(context: &mut Context<'_>, policy: Policy, options: &str) -> Result<Self, Failure> {
        let mut ibacm = start_ibacm(options)?;
        context.world.start_daemon(Host::A, policy)?;
        wait_serving(&mut ibacm, Host::A, "10.0.1.1")?;
        wait_serving(&mut ibacm, Host::B, "10.0.1.2")?;
        Ok(Self {
            ibacm,
            name_of_a: command::run(&["hostname"])?.trim().to_owned(),
        })
    }

    /// Each finds the other's address; how many answers there were.
    fn by_addresses(&mut self, context: &Context<'_>) -> Result<usize, Failure> {
        self.both_ways(context, "i", ["10.0.1.1", "10.0.1.2"])
    }

    /// Each finds the other's name, which only the other knows.
    fn by_names(&mut self, context: &Context<'_>) -> Result<usize, Failure> {
        let name_of_a = self.name_of_a.clone();
        self.both_ways(context, "n", [&name_of_a, NAME_OF_B])
    }

    fn both_ways(
        &mut self,
        context: &Context<'_>,
        format: &str,
        [a, b]: [&str; 2],
    ) -> Result<usize, Failure> {
        for (from, own, other) in [(Host::A, a, b), (Host::B, b, a)] {
            self.ibacm.ensure_running()?;
            resolve(context, from, &["-f", format, "-s", own, "-d", other])?;
        }
        Ok(2)
    }

    fn stop(mut self, context: &mut Context<'_>) -> Result<(), Failure> {
        self.ibacm.signal(Signal::SIGKILL)?;
        self.ibacm.wait(LIMIT)?;
        context.world.stop_daemons()
    }
}

/// apmd says that it has the path to a name from the group.
fn path_is_the_groups(name: &str) -> Result<(), Failure> {
    let acm = observe::acm(Host::A)?;
    let known = acm["destinations"].as_array().into_iter().flatten();
    let mut known = known.filter(|known| known["address"] == name);
    ensure(known.any(|known| known["origin"] == "group"), || {
        format!("no path to {name} from a group: {acm}")
    })
}

/// Runs Debian's ibacm on host-b, in a mount namespace of its own.
fn start_ibacm(options: &str) -> Result<Program, Failure> {
    command::run(&["mkdir", "-p", RUN_OF_B])?;
    let device = Host::B.device();
    file::write(
        format!("{ETC_OF_B}/ibacm_addr.cfg"),
        &format!("{NAME_OF_B} {device} 1 default\n"),
    )?;
    let common = "log_file stdout\nserver_mode unix\nacme_plus_kernel_only no\n";
    file::write(
        format!("{ETC_OF_B}/ibacm_opts.cfg"),
        &format!("{common}{options}"),
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
        _ => {
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
    let (own, peer) = (from.port(1).lid()?, from.other().port(1).lid()?);
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
