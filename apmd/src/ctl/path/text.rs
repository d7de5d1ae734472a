// SPDX-License-Identifier: MIT OR Apache-2.0
//! The answer of `apmctl path show` in words.

use std::fmt::Write;

use super::judged::{Bounds, Candidate, Common, Judged, OneWay, Verdict};
use crate::ctl::table::Table;

/// Candidates that are shown unless all are asked for.
const SHOWN: usize = 16;

/// The primary and the best alternate at length, the verdict, then all in a table.
pub(super) fn text(judged: &Judged, all: bool) -> String {
    let mut text = String::new();
    for candidate in &judged.candidates {
        if candidate.fitness == "primary" {
            at_length(&mut text, "primary", candidate);
        }
    }
    let best = judged.candidates.iter().find(|c| c.fitness == "alternate");
    if let Some(best) = best {
        at_length(&mut text, "alternate", best);
        let _ = writeln!(text, "{:<11}  {}", "shares", shares(best));
    }
    let _ = writeln!(text, "{:<11}  {}", "verdict", verdict(judged.verdict));
    let _ = writeln!(text, "{:<11}  {}", "disjoint", bounds(&judged.disjoint));
    text.push('\n');
    let shown = if all { judged.candidates.len() } else { SHOWN };
    text.push_str(&table(
        &judged.candidates[..shown.min(judged.candidates.len())],
    ));
    let hidden = judged.candidates.len().saturating_sub(shown);
    if hidden > 0 {
        let _ = writeln!(text, "and {hidden} more, see them with -d");
    }
    text
}

fn at_length(text: &mut String, what: &str, candidate: &Candidate) {
    let Candidate {
        slid,
        dlid,
        source_port,
        destination_port,
        ..
    } = candidate;
    let _ = writeln!(
        text,
        "{what:<11}  {source_port} (lid {slid}) -> {destination_port} (lid {dlid})"
    );
    for (what, way) in [("there", &candidate.forward), ("back", &candidate.reverse)] {
        if let Some(way) = way {
            let _ = writeln!(text, "  {what:<9}  {}", directions(way));
        }
    }
}

fn directions(way: &OneWay) -> String {
    let by = match way.switches.join(", ") {
        none if none.is_empty() => "by no switch".to_owned(),
        switches => format!("by {switches}"),
    };
    format!("{by}; {}, mtu {}", rate(way), mtu(way))
}

fn rate(way: &OneWay) -> String {
    way.rate
        .map_or("rate unknown".to_owned(), |rate| format!("{rate} Gb/s"))
}

fn mtu(way: &OneWay) -> String {
    way.mtu.map_or("unknown".to_owned(), |mtu| mtu.to_string())
}

fn shares(candidate: &Candidate) -> String {
    let name = |shared: &Common| match shared.unavoidable {
        true => format!("{} (no cable around it)", shared.name),
        false => shared.name.clone(),
    };
    let names: Vec<_> = candidate.shared.iter().map(name).collect();
    match &candidate.fault {
        Some(fault) if names.is_empty() => fault.clone(),
        Some(fault) => format!("{fault}; {}", names.join(", ")),
        None if candidate.fitness == "primary" => "(primary)".to_owned(),
        None if names.is_empty() => "nothing".to_owned(),
        None => names.join(", "),
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Disjoint => "the alternate shares nothing with the primary",
        Verdict::CablesForbid => {
            "cabling allows no better alternate: what it shares has no cable around it"
        }
        Verdict::OtherPrimary => "another primary has an alternate that shares no switch with it",
        Verdict::TablesCould => {
            "forwarding tables could do better: the cables lead around some of what it shares"
        }
        Verdict::NoAlternate => "no alternate",
        Verdict::OtherDevices => {
            "no alternate: apm stays on one device, and the other ports of these hosts are other devices"
        }
    }
}

fn bounds(bounds: &Bounds) -> String {
    let Bounds { cables, tables } = bounds;
    let what = match tables == cables {
        true => "the cabling allows no more",
        false => "forwarding tables could give more",
    };
    format!(
        "{} of {} possible routes have no switch in common, {} of {} no link: {what}",
        tables.switches, cables.switches, tables.links, cables.links
    )
}

fn table(candidates: &[Candidate]) -> String {
    let mut table = Table::new(&[
        "FROM", "TO", "SLID", "DLID", "LINKS", "RATE", "MTU", "SCORE", "SHARES",
    ]);
    for candidate in candidates {
        let ways = candidate.forward.as_ref().zip(candidate.reverse.as_ref());
        let none = || "-".to_owned();
        let both = |of: fn(&OneWay) -> String| {
            ways.map_or_else(none, |(there, back)| match (of(there), of(back)) {
                (there, back) if there == back => there,
                (there, back) => format!("{there}/{back}"),
            })
        };
        let score = candidate.score.as_ref();
        table.row([
            candidate.source_port.clone(),
            candidate.destination_port.clone(),
            candidate.slid.to_string(),
            candidate.dlid.to_string(),
            both(|way| way.links.to_string()),
            both(|way| way.rate.unwrap_or("?").to_owned()),
            both(|way| way.mtu.map_or("?".to_owned(), |mtu| mtu.to_string())),
            score.map_or_else(none, |score| {
                format!("{}/{}/{}", score.switches, score.groups, score.links)
            }),
            shares(candidate),
        ]);
    }
    table.text()
}
