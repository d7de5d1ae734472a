// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl acm`: the served ACM.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::ask::ask;
use super::table::Table;
use super::{Failure, Options, Outcome};
use crate::acm::{self, files, net};
use crate::config::Config;
use crate::observe::acm::{Acm as State, Counters, Multicast};
use crate::observe::destinations::Wanted;
use crate::observe::model::{Request, Show};

#[derive(Args)]
pub(super) struct Acm {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
#[command(infer_subcommands = true)]
enum Verb {
    /// Show endpoints, clients and counters; with -d or a filter, destinations as well
    Show {
        /// An address, or: from DEVICE[/PORT], state known|... (all must fit)
        #[arg(value_name = "FILTER")]
        filters: Vec<String>,
    },
    /// Write ibacm_addr.cfg and ibacm_opts.cfg for this host, as ib_acme -A -O does
    Config {
        /// Write only the names of the ports, to FILE
        #[arg(short = 'A', long = "addresses", value_name = "FILE", num_args = 0..=1,
              default_missing_value = ADDRESSES)]
        addresses: Option<PathBuf>,
        /// Write only the options, to FILE
        #[arg(short = 'O', long = "options", value_name = "FILE", num_args = 0..=1,
              default_missing_value = OPTIONS)]
        options: Option<PathBuf>,
        /// The directory
        #[arg(
            short = 'D',
            long = "directory",
            value_name = "DIR",
            default_value = "/etc/rdma"
        )]
        directory: PathBuf,
        /// apmd's configuration, whose sockets and timeouts the options are to have
        #[arg(short, long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

const ADDRESSES: &str = "ibacm_addr.cfg";
const OPTIONS: &str = "ibacm_opts.cfg";

impl Acm {
    pub(super) fn run(self, options: &Options) -> Result<Outcome, Failure> {
        match self.verb {
            Some(Verb::Show { filters }) => show(options, parse(&filters)?),
            None => show(options, Wanted::default()),
            Some(Verb::Config {
                addresses,
                options: opts,
                directory,
                config,
            }) => {
                let both = addresses.is_none() && opts.is_none();
                let or = |file: Option<PathBuf>, name: &str| file.or(both.then(|| name.into()));
                if let Some(file) = or(addresses, ADDRESSES) {
                    write(&directory.join(file), &generated_addresses()?)?;
                }
                if let Some(file) = or(opts, OPTIONS) {
                    let config = Config::load(config.as_deref()).map_err(failed)?;
                    let text = files::generate_options(&config.acm, &config.acm_multicast);
                    write(&directory.join(file), &text)?;
                }
                Ok(Outcome::Ok)
            }
        }
    }
}

fn generated_addresses() -> Result<String, Failure> {
    let host = acm::host_name().ok_or_else(|| failed("this host has no name of 1 to 63 bytes"))?;
    let mut ports = local_ports(Path::new("/sys/class/infiniband")).map_err(failed)?;
    ports.sort_by(|a, b| (&a.device, a.port).cmp(&(&b.device, b.port)));
    Ok(files::generate_addresses(&host.to_string(), &ports))
}

/// The ports of this host's devices.
fn local_ports(devices: &Path) -> Result<Vec<files::PortName>, String> {
    let list = |path: &Path| {
        let entries = fs::read_dir(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok::<Vec<_>, String>(entries.flatten().map(|entry| entry.path()).collect())
    };
    let name = |path: &Path| {
        path.file_name()
            .map(|name| name.to_string_lossy().into_owned())
    };
    let mut found = Vec::new();
    for device in list(devices)? {
        for path in list(&device.join("ports"))? {
            let port = name(&path).and_then(|number| number.parse().ok());
            if let (Some(device), Some(port)) = (name(&device), port) {
                let state = fs::read_to_string(path.join("state")).unwrap_or_default();
                let active = state.contains("ACTIVE");
                found.push(files::PortName {
                    device,
                    port,
                    active,
                });
            }
        }
    }
    Ok(found)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| failed(format!("{}: {error}", path.display())))
}

fn failed(what: impl ToString) -> Failure {
    Failure::Failed(what.to_string())
}

/// Words in the manner of iproute2: a key and its value, or an address alone.
fn parse(words: &[String]) -> Result<Wanted, Failure> {
    let mut wanted = Wanted::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || {
            let value = words.next().cloned();
            value.ok_or_else(|| failed(format!("{word}: a value is missing")))
        };
        let (place, value) = match word.as_str() {
            "from" => (&mut wanted.from, value()?),
            "state" => (&mut wanted.state, value()?),
            _ => (&mut wanted.address, word.clone()),
        };
        if place.replace(value).is_some() {
            return Err(failed("one address, one from and one state at most"));
        }
    }
    Ok(wanted)
}

fn show(options: &Options, wanted: Wanted) -> Result<Outcome, Failure> {
    let details = options.details || !wanted.is_any();
    let request = Request {
        show: Show::Acm,
        destinations: wanted,
    };
    let state: Option<State> = ask(options, request)?;
    let Some(state) = state else {
        return Err(Failure::Failed(
            "acm is not served: set serve = true in [acm] and restart apmd".to_owned(),
        ));
    };
    options.show(&state, || text(&state, details))?;
    Ok(Outcome::Ok)
}

fn text(state: &State, details: bool) -> String {
    let mut text = format!(
        "served at {}; kernel {}; {} clients, {} requests waiting, {} destinations\n",
        match state.served_at.as_slice() {
            [] => "-".to_owned(),
            files => files.join(", "),
        },
        if state.kernel { "heard" } else { "not heard" },
        state.clients,
        state.waiting,
        state.destinations_total,
    );
    text += &counters(&state.counters);
    text += &multicast(&state.multicast);
    text += &endpoints(state);
    if details {
        text += &destinations(state);
    }
    text
}

fn counters(counters: &Counters) -> String {
    let Counters {
        resolve,
        kernel,
        error,
        no_data,
        addr_query,
        addr_cache,
        route_query,
        route_cache,
        rechecked,
        dropped,
    } = counters;
    format!(
        "requests {resolve} (kernel {kernel}): {route_cache} known, {addr_cache} addresses known, \
         {no_data} without data, {error} failed\n\
         asked: hosts {addr_query}, paths {route_query}; checked again {rechecked}, dropped {dropped}\n"
    )
}

fn multicast(multicast: &Multicast) -> String {
    let net::Counters {
        questions,
        answers,
        unanswered,
        heard,
        answers_sent,
        ..
    } = multicast.counters;
    format!(
        "other hosts: asked {questions} ({answers} answered, {unanswered} not), \
         heard {heard}, answered {answers_sent}\n"
    )
}

fn endpoints(state: &State) -> String {
    let mut table = Table::new(&["ENDPOINT", "PKEY", "ADDRESSES"]);
    for endpoint in &state.endpoints {
        table.row(vec![
            format!("{}/{}", endpoint.device, endpoint.port),
            format!("0x{:04x}", endpoint.pkey),
            endpoint.addresses.join(" "),
        ]);
    }
    table.text()
}

fn destinations(state: &State) -> String {
    let mut table = Table::new(&[
        "DESTINATION",
        "KIND",
        "FROM",
        "STATE",
        "GID",
        "LID",
        "ORIGIN",
        "LEFT",
        "WAITING",
    ]);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    for known in &state.destinations {
        table.row(vec![
            known.address.clone(),
            known.kind.clone(),
            known.from.clone(),
            known.state.clone(),
            or_dash(known.gid.clone()),
            or_dash(known.dlid.map(|lid| lid.to_string())),
            or_dash(known.origin.clone()),
            or_dash(known.seconds_left.map(|left| format!("{left:.0} s"))),
            known.waiting.to_string(),
        ]);
    }
    let mut text = table.text();
    let (shown, total) = (state.destinations.len(), state.destinations_total);
    if shown < total {
        text += &format!(
            "{shown} of {total} destinations: name an address, from DEVICE/PORT, or state STATE\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_pairs_of_words_or_an_address() {
        let parse = |text: &str| {
            let words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
            parse(&words).ok()
        };
        assert_eq!(parse(""), Some(Wanted::default()));
        let want = Wanted {
            address: Some("10.0.0.9".to_owned()),
            from: Some("mlx5_0/1".to_owned()),
            state: Some("known".to_owned()),
        };
        assert_eq!(parse("from mlx5_0/1 10.0.0.9 state known"), Some(want));
        assert_eq!(parse("from"), None);
        assert_eq!(parse("node-8 node-9"), None);
    }
}
