// SPDX-License-Identifier: MIT OR Apache-2.0
//! What operators may ask for, as JSON. Described in `docs/apmctl.md`; keys are added, never changed.

use serde::{Deserialize, Serialize};

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
}

impl From<Show> for Request {
    fn from(show: Show) -> Self {
        Self {
            show,
            destinations: DestinationFilter::default(),
            connections: ConnectionFilter::default(),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Show {
    /// A `ConnectionPage`.
    Conn,
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

/// Which connections; what is not said may be anything.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ConnectionFilter {
    pub(crate) id: Option<String>,
    pub(crate) qpn: Option<u32>,
    pub(crate) device: Option<String>,
    pub(crate) pid: Option<i32>,
    pub(crate) command: Option<String>,
    /// How `protection` begins.
    pub(crate) state: Option<String>,
    /// Go on behind this connection: `next` of the page before.
    pub(crate) after: Option<String>,
}

impl ConnectionFilter {
    pub(crate) fn is_any(&self) -> bool {
        *self == Self::default()
    }
}

/// Which destinations; what is not said may be anything.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DestinationFilter {
    /// The address: a name, an IP address, a GID or a LID.
    pub(crate) address: Option<String>,
    /// The local device, or device and port such as `mlx5_0/1`, from which it is seen.
    pub(crate) from: Option<String>,
    /// How its state begins.
    pub(crate) state: Option<String>,
}

impl DestinationFilter {
    pub(crate) fn is_any(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_request(words in vec(prop::sample::select(vec![
            "{", "}", "\"show\"", ":", ",", "\"conn\"", "\"acm\"", "\"connections\"", "\"id\"", "\"1.1\"",
            "\"pid\"", "-1", "4294967296", "null", "\"destinations\"", "\"address\"", "[", "]", "\"\\ud800\"",
        ]), 0..16), bytes in vec(any::<u8>(), 0..40)) {
            let _ = serde_json::from_slice::<Request>(&bytes);
            if let Ok(request) = serde_json::from_str::<Request>(&words.concat()) {
                let text = serde_json::to_string(&request).expect("JSON");
                prop_assert_eq!(serde_json::from_str::<Request>(&text).expect("the same"), request);
            }
        }
    }
}
