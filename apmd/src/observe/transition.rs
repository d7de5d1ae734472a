// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens to connections, as it happens. Described in `docs/apmctl.md`; keys are added, never
//! changed.

use serde::{Deserialize, Serialize};
use statemachine::Trace;
use statemachine::trace::What;
use statemachine::view::Stall;

use super::connections::grade_word;
use super::filter::{ConnectionFilter, is_owner};

/// Which connection, of which program.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Subject {
    pub(crate) id: String,
    pub(crate) device: String,
    pub(crate) qpn: u32,
    pub(crate) peer_qpn: u32,
    pub(crate) pid: i32,
    pub(crate) command: String,
}

/// One thing that happened to a connection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Transition {
    /// Seconds since 1970.
    pub(crate) time: f64,
    #[serde(flatten)]
    pub(crate) subject: Subject,
    pub(crate) event: String,
    pub(crate) from: Option<String>,
    pub(crate) to: Option<String>,
    pub(crate) reason: Option<String>,
    /// Of `migrated`: why, in a word.
    #[serde(default)]
    pub(crate) cause: Option<String>,
    /// Of `migrated`: for how long it had stalled, if that is known.
    #[serde(default)]
    pub(crate) stall_ms: Option<u16>,
    /// The connection's protection then; empty once it is closed.
    pub(crate) protection: String,
    /// Of `protection` and `grade`, if it is armed: what that covers, as `conn` has it.
    #[serde(default)]
    pub(crate) grade: Option<String>,
    /// All of it in words.
    pub(crate) text: String,
}

/// A packet to who watches.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Told {
    Transition(Box<Transition>),
    /// The reader is slow: so many transitions that fit are not told.
    LeftOut {
        left_out: u64,
    },
    /// From now on. The first packet.
    Watching {
        watching: bool,
    },
}

/// What kind of transition it is; `None`: a step on the way to one, or not of a connection.
pub(crate) fn event(trace: &Trace) -> Option<&'static str> {
    trace.conn?;
    match trace.what {
        What::Registered => Some("registered"),
        What::Closed => Some("closed"),
        What::Refused(_) => Some("refused"),
        What::Protection { .. } => Some("protection"),
        What::Grade(_) => Some("grade"),
        What::Association { .. } => Some("association"),
        What::Migrated { .. } => Some("migrated"),
        What::PrimaryLost => Some("primary_lost"),
        _ => None,
    }
}

impl Transition {
    /// `protection` is what the connection has now, if it still is one.
    pub(crate) fn new(
        time: f64,
        subject: Subject,
        event: &str,
        trace: &Trace,
        protection: Option<String>,
    ) -> Self {
        let (from, to) = trace.change().unzip();
        let (from, to) = (from.map(ToString::to_string), to.map(ToString::to_string));
        let reason = match &trace.what {
            What::Protection { reason, .. } => reason.map(|reason| reason.to_string()),
            What::Refused(refusal) => Some(refusal.to_string()),
            What::Migrated { by, .. } => Some(by.to_string()),
            _ => None,
        };
        let (cause, stall) = match trace.what {
            What::Migrated { cause, stall, .. } => (Some(cause.to_string()), stall),
            _ => (None, None),
        };
        let grade = match trace.what {
            What::Protection { grade, .. } => grade,
            What::Grade(grade) => Some(grade),
            _ => None,
        };
        // Several may have come of one cause: then this is no longer what the connection has now.
        let protection = match &trace.what {
            What::Protection { to, .. } => Some(to.to_string()),
            _ => protection,
        };
        Self {
            time,
            subject,
            event: event.to_owned(),
            from,
            to,
            reason,
            cause,
            stall_ms: stall.map(Stall::millis),
            protection: protection.unwrap_or_default(),
            grade: grade.map(|grade| grade_word(grade).to_owned()),
            text: trace.to_string(),
        }
    }

    /// Whether who asked for these connections is told.
    pub(crate) fn fits(&self, filter: &ConnectionFilter) -> bool {
        fn is<T: PartialEq>(wanted: Option<&T>, found: &T) -> bool {
            wanted.is_none_or(|wanted| wanted == found)
        }
        let subject = &self.subject;
        let state = filter.state.as_deref().unwrap_or("");
        is(filter.id.as_ref(), &subject.id)
            && is(filter.qpn.as_ref(), &subject.qpn)
            && is(filter.device.as_ref(), &subject.device)
            && is(filter.pid.as_ref(), &subject.pid)
            && is(filter.command.as_ref(), &subject.command)
            && filter
                .owner
                .as_ref()
                .is_none_or(|owner| is_owner(owner, &subject.command, subject.pid))
            && self.protection.starts_with(state)
    }
}

#[cfg(test)]
mod tests {
    use cm_msgs::Lid;
    use cm_msgs::control::Refusal;
    use statemachine::ConnId;
    use statemachine::trace::{MigratedBy, PathLids};
    use statemachine::view::{Grade, MoveCause, Protection};

    use super::*;

    fn trace(what: What) -> Trace {
        let (client, conn) = (3, 1);
        Trace {
            conn: Some(ConnId { client, conn }),
            port: None,
            what,
        }
    }

    fn transition(what: What) -> Transition {
        let trace = trace(what);
        let subject = Subject {
            id: "3.1".to_owned(),
            device: "mlx5_0".to_owned(),
            qpn: 7,
            peer_qpn: 8,
            pid: 99,
            command: "rping".to_owned(),
        };
        let event = event(&trace).expect("a transition");
        Transition::new(1.5, subject, event, &trace, Some("unprotected".to_owned()))
    }

    #[test]
    fn what_is_said_is_what_the_engine_said() {
        let armed = transition(What::Protection {
            from: Protection::Rearming,
            to: Protection::Armed,
            reason: None,
            grade: Some(Grade::SamePort),
        });
        let json = serde_json::to_value(&armed).expect("JSON");
        let want = serde_json::json!({
            "time": 1.5, "id": "3.1", "device": "mlx5_0", "qpn": 7, "peer_qpn": 8, "pid": 99,
            "command": "rping", "event": "protection", "from": "rearming", "to": "armed",
            "reason": null, "cause": null, "stall_ms": null, "grade": "same_port", "protection": "armed",
            "text": "connection armed (same port)",
        });
        assert_eq!(json, want);
        let paths = [1, 2].map(|port| PathLids {
            port,
            slid: Lid(3 + u16::from(port)),
            dlid: Lid(7 + u16::from(port)),
        });
        let migrated = transition(What::Migrated {
            from: paths[0],
            to: paths[1],
            by: MigratedBy::Order,
            cause: MoveCause::PeerPortLost,
            suspect: false,
            stall: None,
        });
        assert_eq!(migrated.reason.as_deref(), Some("as ordered"));
        assert_eq!(migrated.cause.as_deref(), Some("peer_port_lost"));
        assert_eq!(migrated.from.as_deref(), Some("port 1 lid 4 to lid 8"));
        assert_eq!(
            migrated.text,
            "migrated as ordered: the peer's port was lost"
        );
        let refused = transition(What::Refused(Refusal::Full));
        assert_eq!(refused.reason, Some(Refusal::Full.to_string()));
        assert_eq!(event(&trace(What::Stale)), None, "a step, no transition");
    }

    #[test]
    fn every_filter_counts() {
        let is = transition(What::Registered);
        let filter = |change: fn(&mut ConnectionFilter)| {
            let mut filter = ConnectionFilter::default();
            change(&mut filter);
            filter
        };
        assert!(is.fits(&ConnectionFilter::default()));
        let fitting = filter(|filter| {
            filter.id = Some("3.1".to_owned());
            filter.qpn = Some(7);
            filter.device = Some("mlx5_0".to_owned());
            filter.pid = Some(99);
            filter.command = Some("rping".to_owned());
            filter.owner = Some("rping[99]".to_owned());
            filter.state = Some("unp".to_owned());
        });
        assert!(is.fits(&fitting));
        let others: [fn(&mut ConnectionFilter); 7] = [
            |filter| filter.id = Some("3.2".to_owned()),
            |filter| filter.qpn = Some(8),
            |filter| filter.device = Some("mlx5_1".to_owned()),
            |filter| filter.pid = Some(9),
            |filter| filter.command = Some("rpin".to_owned()),
            |filter| filter.owner = Some("kernel".to_owned()),
            |filter| filter.state = Some("armed".to_owned()),
        ];
        for other in others {
            assert!(!is.fits(&filter(other)), "{:?}", filter(other));
        }
    }
}
