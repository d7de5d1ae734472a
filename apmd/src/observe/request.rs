// SPDX-License-Identifier: MIT OR Apache-2.0
//! What operators may ask for, as JSON. Described in `docs/apmctl.md`; keys are added, never changed.

use serde::{Deserialize, Serialize};

use super::change::Change;
use super::filter::{ConnectionFilter, DestinationFilter};

/// One packet of an operator's.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Asked {
    Show(Request),
    Change(Change),
}

impl Asked {
    /// # Errors
    /// It is neither.
    pub(crate) fn parse(json: &[u8]) -> serde_json::Result<Self> {
        let value: serde_json::Value = serde_json::from_slice(json)?;
        match value.get("do") {
            Some(_) => serde_json::from_value(value).map(Self::Change),
            None => serde_json::from_value(value).map(Self::Show),
        }
    }
}

impl From<Request> for Asked {
    fn from(request: Request) -> Self {
        Self::Show(request)
    }
}

impl From<Show> for Asked {
    fn from(show: Show) -> Self {
        Self::Show(show.into())
    }
}

impl From<Change> for Asked {
    fn from(change: Change) -> Self {
        Self::Change(change)
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    pub(crate) show: Show,
    /// `Show::Acm`: which destinations.
    #[serde(default, skip_serializing_if = "DestinationFilter::is_any")]
    pub(crate) destinations: DestinationFilter,
    /// `Show::Conn` and `Show::Transitions`: which connections.
    #[serde(default, skip_serializing_if = "ConnectionFilter::is_any")]
    pub(crate) connections: ConnectionFilter,
    /// `Show::Conn`: what happened to each, too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) history: bool,
    /// `Show::Qp`: go on behind this queue pair: `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<String>,
}

fn is_false(is: &bool) -> bool {
    !is
}

impl From<Show> for Request {
    fn from(show: Show) -> Self {
        Self {
            show,
            destinations: DestinationFilter::default(),
            connections: ConnectionFilter::default(),
            history: false,
            after: None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Show {
    /// A `ConnectionPage`.
    Conn,
    /// A `QueuePairPage`.
    Qp,
    /// A list of `Port`.
    Port,
    /// `Status`.
    Status,
    /// `Counters`.
    Counters,
    /// A list of `Source`.
    Source,
    /// `Acm`, or null if it is not served.
    Acm,
    /// A `transition::Told` a packet, without end.
    Transitions,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Refused {
    pub(crate) error: String,
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_request(words in vec(prop::sample::select(vec![
            "{", "}", "\"show\"", "\"do\"", "\"drain\"", "\"port\"", ":", ",", "\"conn\"", "\"acm\"", "\"connections\"", "\"id\"", "\"1.1\"",
            "\"pid\"", "-1", "4294967296", "null", "\"destinations\"", "\"address\"", "[", "]", "\"\\ud800\"",
        ]), 0..16), bytes in vec(any::<u8>(), 0..40)) {
            let _ = Asked::parse(&bytes);
            if let Ok(asked) = Asked::parse(words.concat().as_bytes()) {
                let text = serde_json::to_string(&asked).expect("JSON");
                prop_assert_eq!(Asked::parse(text.as_bytes()).expect("the same"), asked);
            }
        }
    }
}
