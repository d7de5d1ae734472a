// SPDX-License-Identifier: MIT OR Apache-2.0
//! The path sources in the operators' form.

use super::model::{Source, SourceHealth, SourceLoad, SourceState, Window};
use crate::devices::Devices;
use paths::sa::WindowView;
use paths::source::{Member, Sources};
use statemachine::{PortId, Time};

/// The path sources, in their order. `detail` says what each is made of.
pub(crate) fn sources(
    now: Time,
    sources: &Sources,
    devices: &Devices,
    detail: impl Fn(&Member) -> Option<String>,
) -> Vec<Source> {
    let member = |member| source(now, member, devices, detail(member));
    sources.members().iter().map(member).collect()
}

fn source(now: Time, member: &Member, devices: &Devices, detail: Option<String>) -> Source {
    let health = member.health();
    let counts = health.counts();
    let failure = health.failure();
    let ports = health.failing_ports().map(|port| name_of(port, devices));
    Source {
        source: member.origin().to_string(),
        state: match (failure, counts.answered + counts.no_path) {
            (Some(_), _) => SourceState::Failing,
            (None, 0) => SourceState::Unproven,
            (None, _) => SourceState::Healthy,
        },
        detail,
        fabric: None,
        health: SourceHealth {
            failing_seconds: failure.map(|failure| (now - failure.since).as_secs_f64()),
            failing_ports: ports.collect(),
            last_error: health.last_error().map(|error| error.to_string()),
            last_answer_seconds: health.answered_at().map(|at| (now - at).as_secs_f64()),
            last_latency_ms: health.latency().map(|latency| latency.as_secs_f64() * 1e3),
        },
        load: SourceLoad {
            in_flight: member.running(),
            in_flight_limit: member.limits().in_flight,
            waiting: member.waiting(),
            timeout_ms: u64::try_from(member.limits().timeout.as_millis()).unwrap_or(u64::MAX),
            windows: Vec::new(),
        },
        counts,
    }
}

/// How many requests to the SA may be on their way by each port.
pub(crate) fn windows(windows: impl Iterator<Item = WindowView>, devices: &Devices) -> Vec<Window> {
    let shown = windows.map(|window| Window {
        port: name_of(window.port, devices),
        size: window.size,
        in_flight: window.under_way,
        reductions: window.reductions,
    });
    shown.collect()
}

fn name_of(port: PortId, devices: &Devices) -> String {
    let device = devices.by_guid(port.node_guid);
    let name = device.map_or_else(|| port.node_guid.to_string(), |device| device.name.clone());
    format!("{name}/{}", port.port)
}
