// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which connections a command is for, and how they are asked for.

use std::time::Duration;

use clap::Args;
use statemachine::view::Protection;
use strum::VariantArray;

use super::ask::ask_within;
use super::number;
use super::{Failure, Options};
use crate::observe::connections::ConnectionPage;
use crate::observe::filter::ConnectionFilter;
use crate::observe::model::{self, Path};
use crate::observe::request::{Request, Show};

/// Which connections.
#[derive(Args, Default)]
pub(super) struct Filters {
    /// An ID, or: qpn N, device NAME, pid N, command NAME, owner NAME, state armed|... (all must fit)
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
}

impl Filters {
    /// An ID that was named otherwise.
    pub(super) fn add_id(&mut self, id: String) -> Result<(), Failure> {
        if !id.starts_with(|c: char| c.is_ascii_digit()) {
            let text = format!("\"{id}\" is no connection ID, such as 3.1");
            return Err(Failure::Usage(text));
        }
        self.filters.push(id);
        Ok(())
    }

    /// As they were typed.
    pub(super) fn words(&self) -> String {
        self.filters.join(" ")
    }

    pub(super) fn parse(&self) -> Result<ConnectionFilter, Failure> {
        parse(&self.filters)
    }
}

/// All that fit, which the daemon tells a page at a time.
pub(super) fn all(
    options: &Options,
    filter: ConnectionFilter,
    patience: Duration,
) -> Result<Vec<model::Conn>, Failure> {
    pages(options, filter, patience, false)
}

/// As [`all`], with what happened to each on wish.
pub(super) fn pages(
    options: &Options,
    filter: ConnectionFilter,
    patience: Duration,
    history: bool,
) -> Result<Vec<model::Conn>, Failure> {
    let mut request = Request {
        connections: filter,
        history,
        ..Show::Conn.into()
    };
    let mut conns = Vec::new();
    loop {
        let page: ConnectionPage = ask_within(options, request.clone(), patience)?;
        conns.extend(page.connections);
        match page.next {
            Some(next) => request.connections.after = Some(next),
            None => return Ok(conns),
        }
    }
}

/// Words in the manner of iproute2: a key and its value, or an ID alone.
pub(super) fn parse(words: &[String]) -> Result<ConnectionFilter, Failure> {
    let mut filter = ConnectionFilter::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            once(&mut filter.id, "ID", word.clone())?;
            continue;
        }
        let keys = ["qpn", "device", "pid", "command", "owner", "state"];
        let fitting: Vec<_> = keys
            .iter()
            .filter(|key| key.starts_with(word.as_str()))
            .collect();
        let [key] = fitting[..] else {
            return Err(Failure::Usage(format!(
                "\"{word}\" is no connection ID and none of {}",
                keys.join(", ")
            )));
        };
        let value = words
            .next()
            .ok_or_else(|| Failure::Usage(format!("{key}: a value is missing")))?;
        let number = || {
            let number = number::number(value).and_then(|number| u32::try_from(number).ok());
            number.ok_or_else(|| Failure::Usage(format!("{key}: \"{value}\" is no number")))
        };
        match *key {
            "qpn" => once(&mut filter.qpn, key, number()?)?,
            "pid" => once(&mut filter.pid, key, number()?.cast_signed())?,
            "device" => once(&mut filter.device, key, value.clone())?,
            "owner" => once(&mut filter.owner, key, value.clone())?,
            "command" => once(&mut filter.command, key, value.clone())?,
            _ => once(&mut filter.state, key, state_word(value)?)?,
        }
    }
    Ok(filter)
}

fn once<T>(place: &mut Option<T>, key: &str, value: T) -> Result<(), Failure> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Failure::Usage(format!("{key}: one at most"))),
    }
}

/// A state of protection, or its beginning.
fn state_word(word: &str) -> Result<String, Failure> {
    let states: Vec<_> = Protection::VARIANTS
        .iter()
        .map(ToString::to_string)
        .collect();
    if states.iter().any(|state| state.starts_with(word)) {
        return Ok(word.to_owned());
    }
    let states = states.join(", ");
    Err(Failure::Usage(format!(
        "state: \"{word}\" is none of {states}"
    )))
}

pub(super) fn brief(path: &Path) -> String {
    format!("port {} lid {}>{}", path.port, path.slid, path.dlid)
}

/// Why a connection has not left its primary, which it should.
pub(super) fn why_held(conn: &model::Conn) -> String {
    let standing = &conn.standing;
    match (&standing.reason, &standing.held) {
        (Some(reason), _) => format!("{}: {reason}", standing.protection),
        (None, Some(held)) => held.clone(),
        (None, None) => {
            "the order was not carried out; see `apmctl conn show` and the log".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Result<ConnectionFilter, String> {
        let words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
        parse(&words).map_err(|failure| failure.to_string())
    }

    #[test]
    fn filters_are_keys_and_values_or_an_id() {
        let want = ConnectionFilter {
            id: Some("3.1".to_owned()),
            qpn: Some(0x12),
            device: Some("mlx5_0".to_owned()),
            pid: Some(7),
            owner: Some("ib_srp".to_owned()),
            ..ConnectionFilter::default()
        };
        assert_eq!(words("3.1 q 0x12 dev mlx5_0 p 7 own ib_srp"), Ok(want));
        assert_eq!(words("qpn").unwrap_err(), "qpn: a value is missing");
        assert_eq!(words("qpn abc").unwrap_err(), "qpn: \"abc\" is no number");
        assert_eq!(words("3.1 4.1").unwrap_err(), "ID: one at most");
        assert!(
            words("port 1")
                .unwrap_err()
                .starts_with("\"port\" is no connection ID")
        );
        assert!(words("state rearming").is_ok());
        let error = words("state nonsense").unwrap_err();
        assert!(
            error.contains("none of armed, idle (movable), rearming, "),
            "{error}"
        );
    }
}
