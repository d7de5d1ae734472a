// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fabric as data in the operators' form.

use pathdb::{Fabric, PortId};
use statemachine::Time;

use super::model;
use paths::source::{FabricFrom, Ssa};

/// The fabric that is known.
pub(crate) fn fabric(now: Time, ssa: &Ssa) -> Option<model::Fabric> {
    let known = ssa.known()?;
    let seconds = |since| (now - since).as_secs_f64();
    let (links, links_down) = links(&known.fabric);
    Some(model::Fabric {
        from: match known.from {
            FabricFrom::Snapshot => "snapshot",
            FabricFrom::Live => "live",
        }
        .to_owned(),
        epoch: known.fabric.epoch(),
        nodes: known.fabric.nodes().count(),
        switches: known.fabric.switch_count(),
        links,
        links_down,
        service_level: ssa.sl(),
        bytes: known.fabric.table_bytes(),
        confirmed_seconds: seconds(known.confirmed),
        changed_seconds: seconds(known.changed),
    })
}

/// All links, and how many of them are down.
fn links(fabric: &Fabric) -> (usize, usize) {
    let (mut all, mut down) = (0, 0);
    for (id, node) in fabric.nodes() {
        let ports = (1..=node.ports).filter_map(|number| fabric.port_of(id, number));
        let once = |port: &PortId| fabric.peer(*port).is_some_and(|peer| *port < peer);
        for port in ports.filter(once) {
            all += 1;
            down += usize::from(!fabric.is_up(port));
        }
    }
    (all, down)
}

/// The fabric and its reading, in words.
pub(crate) fn words(fabric: Option<&model::Fabric>, ssa: &Ssa) -> String {
    let mut words = match fabric {
        None => "fabric not read yet".to_owned(),
        Some(fabric) => {
            let sl = match fabric.service_level {
                Some(sl) => format!("SL {sl}"),
                None => "no common SL, so no queries are answered".to_owned(),
            };
            let model::Fabric {
                from,
                epoch,
                nodes,
                switches,
                links,
                links_down,
                confirmed_seconds,
                changed_seconds,
                ..
            } = fabric;
            let down = match links_down {
                0 => String::new(),
                down => format!(" ({down} down)"),
            };
            format!(
                "{from}, epoch {epoch}: {nodes} nodes, {switches} switches, {links} links{down}, \
                 {sl}; confirmed {confirmed_seconds:.0} s ago, changed {changed_seconds:.0} s ago"
            )
        }
    };
    if let Some(progress) = ssa.progress() {
        words.push_str(&format!(
            "; reading {}, {} of {}",
            progress.step, progress.done, progress.of
        ));
    }
    if let Some(error) = ssa.last_error() {
        words.push_str(&format!("; {error}"));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use paths::fabric::Outcome;
    use paths::source::ssa::Settings;
    use std::sync::Arc;
    use test_fabrics::two_rails::{self, Shape};

    #[test]
    fn a_fabric_in_words() {
        let mut ssa = Ssa::new(Settings {
            snapshot: Some("fabric".into()),
            ..Settings::default()
        });
        assert_eq!(
            words(fabric(Time(0), &ssa).as_ref(), &ssa),
            "fabric not read yet"
        );
        ssa.poll_job(Time(0), &[]).unwrap();
        let read = two_rails::fabric(Shape {
            down: Some((2, 2)),
            sl: Some(3),
            ..Shape::default()
        });
        ssa.handle_outcome(Time(1_000_000), Outcome::New(Arc::new(read), true));
        let now = Time(5_000_000);
        assert_eq!(
            words(fabric(now, &ssa).as_ref(), &ssa),
            "snapshot, epoch 0: 4 nodes, 2 switches, 5 links (1 down), SL 3; confirmed 4 s ago, \
             changed 4 s ago"
        );
        ssa.poll_job(Time(400_000_000), &[]).unwrap();
        ssa.handle_outcome(now, Outcome::Failed("it is broken".to_owned()));
        assert!(words(None, &ssa).ends_with("; it is broken"));
    }
}
