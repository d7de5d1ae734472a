// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unprivileged users abuse a daemon's sockets in every way that once did harm. Meanwhile, and
//! afterwards, a connection that was armed before is armed again after every pulled cable.

mod acm;
mod attacker;
mod crowd;
mod presence;
mod registrations;
mod requests;
mod scene;
mod shares;
mod slow_peer;
mod snapshot;

use serde_json::Value;

use self::scene::Scene;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::world::Kind;

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "abuse",
    about: "unprivileged users flood, crowd, forge and plant: others stay protected",
    parts: &[Part {
        world: Kind::Flat,
        run: |context| run(context, Policy::NORMAL.log, ATTACKS),
    }],
};

/// The drill with attacks by root of other hosts.
pub(super) const FROM_ELSEWHERE: Drill = Drill {
    name: "abuse-presence",
    about: "two other hosts ask without end whether apmd is present: others stay protected",
    parts: &[Part {
        world: Kind::LeafSpine,
        run: |context| {
            presence::prepare(context)?;
            run(context, Policy::NORMAL.log, ATTACKS_FROM_ELSEWHERE)
        },
    }],
};

/// The drill with a peer that has very many connections.
pub(super) const SLOW_PEER: Drill = Drill {
    name: "abuse-slow-peer",
    about: "a peer with 3,000 connections is late, then silent: others are armed again",
    parts: &[Part {
        world: Kind::LeafSpine,
        run: |context| {
            slow_peer::prepare(context)?;
            run(context, slow_peer::LOG, ATTACKS_OF_A_PEER)
        },
    }],
};

/// An attack, which fails if it does harm.
struct Attack {
    name: &'static str,
    run: fn(&mut Context<'_>, &mut Scene) -> Result<(), Failure>,
}

const ATTACKS: &[Attack] = &[
    Attack {
        name: "flood",
        run: acm::flood,
    },
    Attack {
        name: "half-requests",
        run: acm::half_requests,
    },
    Attack {
        name: "open-tcp",
        run: acm::open_tcp,
    },
    Attack {
        name: "forged",
        run: registrations::forged,
    },
    Attack {
        name: "forged-by-module",
        run: registrations::forged_by_module,
    },
    Attack {
        name: "takeover",
        run: registrations::takeover,
    },
    Attack {
        name: "dead-lid",
        run: shares::dead_lid,
    },
    Attack {
        name: "dead-lids",
        run: shares::dead_lids,
    },
    Attack {
        name: "seven-uids",
        run: shares::seven_uids,
    },
    Attack {
        name: "churn",
        run: registrations::churn,
    },
    Attack {
        name: "deaf",
        run: crowd::deaf,
    },
    Attack {
        name: "silent",
        run: crowd::silent,
    },
    Attack {
        name: "symlink",
        run: snapshot::symlink,
    },
];

/// By root of other hosts.
const ATTACKS_FROM_ELSEWHERE: &[Attack] = &[Attack {
    name: "presence",
    run: presence::questions,
}];

/// By the daemon of a host that is a peer.
const ATTACKS_OF_A_PEER: &[Attack] = &[Attack {
    name: "slow-peer",
    run: slow_peer::late_then_silent,
}];

/// Each attack has its turn, whatever came of those before it. Host A's daemon logs at the level `log`.
fn run(context: &mut Context<'_>, log: &'static str, attacks: &[Attack]) -> Result<(), Failure> {
    let mut scene = Scene::set(context, log)?;
    let mut harm = Vec::new();
    let mut verdicts = serde_json::Map::new();
    for attack in attacks {
        context
            .timeline
            .note("drill", format!("attack: {}", attack.name));
        let verdict = match (attack.run)(context, &mut scene) {
            Ok(()) => "ok".to_owned(),
            Err(failure) => {
                harm.push(format!("{}: {failure}", attack.name));
                failure.to_string()
            }
        };
        let text = format!("{}: {verdict}", attack.name);
        context.timeline.note("drill", text);
        verdicts.insert(attack.name.to_owned(), verdict.into());
    }
    context.report.set("attacks", Value::Object(verdicts));
    scene.leave(context)?;
    ensure(harm.is_empty(), || harm.join("; "))
}
