// SPDX-License-Identifier: MIT OR Apache-2.0
//! A port event on a host with very many armed connections.

use std::time::{Duration, Instant};

use cm_msgs::control::Role;
use statemachine::{Config, Engine, Input, Order, Time};

use crate::Figure;
use crate::host::{config, engine, path, port, register, snapshot, status};

/// Times that each event happens; the median counts.
const ROUNDS: usize = 31;

pub(crate) fn figures(scale: usize) -> Vec<Figure> {
    let sizes = [1_000, 10_000, 100_000].map(|count| count / scale);
    let costs = sizes.map(cost);
    let least = costs.into_iter().fold(f64::INFINITY, f64::min);
    let most = costs.into_iter().fold(0.0, f64::max);
    let cost = |(count, value)| Figure {
        name: format!("port event to first Migrate, {count} connections"),
        value,
        unit: "us",
        goal: 50.0,
        is_time: true,
    };
    // A few times, not a hundred: the processor's caches hold a thousand connections.
    let ratio = Figure {
        name: "the dearest of these against the cheapest".to_owned(),
        value: most / least,
        unit: "times",
        goal: 10.0,
        is_time: true,
    };
    let all = Figure {
        name: format!("the same until all of {} are ordered, for each", sizes[2]),
        value: all(sizes[2]),
        unit: "us",
        goal: 10.0,
        is_time: true,
    };
    let costs = sizes.into_iter().zip(costs).map(cost);
    costs.chain([ratio, all]).collect()
}

/// Microseconds from a port event to the first order, median.
fn cost(count: usize) -> f64 {
    let mut engine = armed(count);
    let mut times: Vec<f64> = (0..ROUNDS).map(|_| round(&mut engine)).collect();
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}

/// Microseconds of each order, from a port event until every connection has its own.
fn all(count: usize) -> f64 {
    let mut engine = armed(count);
    let begin = Instant::now();
    engine.handle(Time(2), Input::Port(port(0, 1), Some(status(0, 1, false))));
    let mut orders = 0;
    loop {
        while let Some((_, order)) = engine.poll_order() {
            orders += usize::from(matches!(order, Order::Migrate(_)));
        }
        while engine.poll_transmit(|_| true).is_some() {}
        while engine.poll_query().is_some() {}
        if orders == count || engine.poll_timeout().is_none_or(|at| at > Time(2)) {
            break;
        }
        engine.handle(Time(2), Input::Timeout);
    }
    let took = begin.elapsed();
    assert_eq!(orders, count, "all migrate at once");
    took.as_secs_f64() * 1e6 / count as f64
}

fn armed(count: usize) -> Engine {
    // Probes go by path and not by connection, and have a budget of their own.
    let config = Config {
        verify: Duration::ZERO,
        ..config()
    };
    let mut engine = engine(0, config);
    for conn in 0..count {
        let qp = snapshot(path(0, 1, 1), Some(path(0, 2, 2)));
        engine.handle(Time(1), register(0, Role::Passive, conn, qp));
        // It may do nothing by itself.
        while engine.poll_order().is_some() {}
    }
    engine
}

/// The port goes and the first order comes; then the port is back before anybody else has looked. The order
/// is not answered, so that the next round is about the next connection.
fn round(engine: &mut Engine) -> f64 {
    let now = Time(2);
    let down = Some(status(0, 1, false));
    let begin = Instant::now();
    engine.handle(now, Input::Port(port(0, 1), down));
    let order = engine.poll_order();
    let took = begin.elapsed();
    assert!(matches!(order, Some((_, Order::Migrate(_)))), "{order:?}");
    let up = Some(status(0, 1, true));
    engine.handle(now, Input::Port(port(0, 1), up));
    took.as_secs_f64() * 1e6
}
