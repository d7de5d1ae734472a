// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl acm`: the served ACM.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::ask::ask;
use super::table::{self, Column, or_dash};
use super::{Failure, Options, Outcome};
use crate::io::host_name::host_name;
use crate::io::text_file;
use crate::observe::acm::{Acm as State, Counters, Endpoint, Multicast};
use crate::observe::destinations::Destination;
use crate::observe::filter::DestinationFilter;
use crate::observe::request::{Request, Show};
use ::acm::{files, net};

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
    /// Write ibacm_addr.cfg, the names of this host's ports, as ib_acme -A does
    Config {
        /// The file's name
        #[arg(short = 'A', long = "addresses", value_name = "FILE", num_args = 0..=1,
              default_missing_value = ADDRESSES, default_value = ADDRESSES)]
        addresses: PathBuf,
        /// The directory
        #[arg(
            short = 'D',
            long = "directory",
            value_name = "DIR",
            default_value = "/etc/rdma"
        )]
        directory: PathBuf,
    },
    /// Print the section [acm] of apmd's configuration that does what ibacm's options say
    Import {
        /// ibacm's file of options
        #[arg(value_name = "FILE", default_value = "/etc/rdma/ibacm_opts.cfg")]
        file: PathBuf,
    },
}

const ADDRESSES: &str = "ibacm_addr.cfg";
/// Of a file of options; the one that ib_acme writes has 6 KiB.
const OPTIONS_MAX: u64 = 64 * 1024;

impl Acm {
    pub(super) fn run(self, options: &Options) -> Result<Outcome, Failure> {
        match self.verb {
            Some(Verb::Show { filters }) => show(options, parse(&filters)?),
            None => show(options, DestinationFilter::default()),
            Some(Verb::Config {
                addresses,
                directory,
            }) => {
                write(&directory.join(addresses), &generated_addresses()?)?;
                Ok(Outcome::Ok)
            }
            Some(Verb::Import { file }) => {
                let text = text_file::read_any(&file, OPTIONS_MAX);
                let text = text.map_err(|error| failed(format!("{}: {error}", file.display())))?;
                print!(
                    "# {} for /etc/rdma/apmd.toml\n{}",
                    file.display(),
                    files::import(&text)
                );
                Ok(Outcome::Ok)
            }
        }
    }
}

fn generated_addresses() -> Result<String, Failure> {
    let host = host_name().ok_or_else(|| failed("this host has no name of 1 to 63 bytes"))?;
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
        // A device without that is about to come or to go, and costs no other.
        for path in list(&device.join("ports")).unwrap_or_default() {
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
fn parse(words: &[String]) -> Result<DestinationFilter, Failure> {
    let mut filter = DestinationFilter::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || {
            let value = words.next().cloned();
            value.ok_or_else(|| Failure::Usage(format!("{word}: a value is missing")))
        };
        let (place, value) = match word.as_str() {
            "from" => (&mut filter.from, value()?),
            "state" => (&mut filter.state, value()?),
            _ => (&mut filter.address, word.clone()),
        };
        if place.replace(value).is_some() {
            let what = "one address, one from and one state at most";
            return Err(Failure::Usage(what.to_owned()));
        }
    }
    if let Some(state) = filter.state.as_ref().filter(|state| !is_state(state)) {
        let states = STATES.join(", ");
        return Err(Failure::Usage(format!(
            "state: \"{state}\" is none of {states}"
        )));
    }
    Ok(filter)
}

/// What a destination can be.
const STATES: [&str; 4] = ["known", "doubtful", "asking", "absent"];

/// Whether a state begins so.
fn is_state(word: &str) -> bool {
    STATES.iter().any(|state| state.starts_with(word))
}

fn show(options: &Options, filter: DestinationFilter) -> Result<Outcome, Failure> {
    let is_any = filter.is_any();
    let from = filter.from.clone();
    let request = Request {
        destinations: filter,
        ..Show::Acm.into()
    };
    let state: Option<State> = ask(options, request)?;
    let Some(state) = state else {
        return Err(Failure::Failed(
            "acm is not served: set serve = true in [acm] and restart apmd".to_owned(),
        ));
    };
    if let Some(from) = from.filter(|from| !has_endpoint(&state, from)) {
        return Err(failed(format!(
            "from {from}: no endpoint there (see `apmctl acm`)"
        )));
    }
    options.show(&state, || {
        let mut text = text(&state);
        if options.details || !is_any {
            text += &destinations(&state, is_any);
        }
        text
    })?;
    Ok(Outcome::Ok)
}

/// Whether the device, or device and port, is one that is answered for.
fn has_endpoint(state: &State, from: &str) -> bool {
    let mut endpoints = state.endpoints.iter();
    endpoints.any(|it| it.device == from || format!("{}/{}", it.device, it.port) == from)
}

fn text(state: &State) -> String {
    let mut text = format!(
        "served at {}; the kernel's path requests are {}; {} clients, {} pending requests, {} \
         destinations\n",
        match state.served_at.as_slice() {
            [] => "-".to_owned(),
            files => files.join(", "),
        },
        if state.kernel { "served" } else { "not served" },
        state.clients,
        state.waiting,
        state.destinations_total,
    );
    text += &counters(&state.counters);
    text += &multicast(&state.multicast);
    text += &endpoints(state);
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
        moved,
    } = counters;
    format!(
        "requests: {resolve} ({kernel} from the kernel); from cache {route_cache} paths, {addr_cache} \
         addresses; {no_data} without data, {error} failed\n\
         queries: {addr_query} for addresses, {route_query} for paths; {rechecked} paths rechecked, \
         {dropped} destinations dropped, {moved} moved\n"
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
        "multicast: {questions} queries sent ({answers} answered, {unanswered} timed out), \
         {heard} received ({answers_sent} answered)\n"
    )
}

fn endpoints(state: &State) -> String {
    if state.endpoints.is_empty() {
        return "no endpoints: no port with a name or an address is up (see `apmctl port`)\n"
            .to_owned();
    }
    let columns: [Column<Endpoint>; 3] = [
        ("ENDPOINT", |it| format!("{}/{}", it.device, it.port)),
        ("PKEY", |it| format!("0x{:04x}", it.pkey)),
        ("ADDRESSES", |it| it.addresses.join(" ")),
    ];
    table::table(&state.endpoints, &columns)
}

fn destinations(state: &State, is_any: bool) -> String {
    if state.destinations.is_empty() {
        return match is_any {
            true => "no destinations: no program has asked for one\n".to_owned(),
            false => "no destination fits\n".to_owned(),
        };
    }
    let columns: [Column<Destination>; 9] = [
        ("DESTINATION", |known| known.address.clone()),
        ("KIND", |known| known.kind.clone()),
        ("FROM", |known| known.from.clone()),
        ("STATE", |known| known.state.clone()),
        ("GID", |known| or_dash(known.gid.clone())),
        ("LID", |known| {
            or_dash(known.dlid.map(|lid| lid.to_string()))
        }),
        ("ORIGIN", |known| or_dash(known.origin.clone())),
        ("EXPIRES", |known| {
            or_dash(known.seconds_left.map(|left| format!("{left:.0} s")))
        }),
        ("PENDING", |known| known.waiting.to_string()),
    ];
    let mut text = table::table(&state.destinations, &columns);
    let (shown, total) = (state.destinations.len(), state.destinations_total);
    if shown < total {
        text += &format!(
            "{shown} of {total} destinations shown: filter by ADDRESS, from DEVICE/PORT or state STATE\n"
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
        assert_eq!(parse(""), Some(DestinationFilter::default()));
        let want = DestinationFilter {
            address: Some("10.0.0.9".to_owned()),
            from: Some("mlx5_0/1".to_owned()),
            state: Some("known".to_owned()),
        };
        assert_eq!(parse("from mlx5_0/1 10.0.0.9 state known"), Some(want));
        assert_eq!(parse("from"), None);
        assert_eq!(parse("node-8 node-9"), None);
        assert_eq!(parse("state gone"), None);
    }
}
