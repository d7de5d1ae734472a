// SPDX-License-Identifier: MIT OR Apache-2.0
//! A port event on a host with very many connections that wait for traffic, and some that are armed.

use std::time::{Duration, Instant};

use statemachine::view::Protection;
use statemachine::{Config, Engine, Input, Order, PortStatus, Time};

use crate::Figure;
use crate::host::{config, id, port, status};
use crate::pair::Pair;

/// Times that the event happens; the median counts.
const ROUNDS: usize = 31;

/// One connection in this many is armed.
const ARMED: usize = 100;

pub(crate) fn figures(scale: usize) -> Vec<Figure> {
    let count = 100_000 / scale;
    let armed = count / ARMED;
    let mut world = World::new(count, armed);
    let mut times: Vec<f64> = (0..ROUNDS).map(|_| world.first_order()).collect();
    times.sort_by(f64::total_cmp);
    let first = Figure {
        name: format!("port event to first MoveIdle, {count} idle connections"),
        value: times[ROUNDS / 2],
        unit: "us",
        goal: 50.0,
        is_time: true,
    };
    world.register_armed();
    let (before, each) = world.all_orders();
    let order = Figure {
        name: format!("orders to idle connections before the last Migrate of {armed}"),
        value: before as f64,
        unit: "orders",
        goal: 0.0,
        is_time: false,
    };
    let all = Figure {
        name: format!("port event until all of {count} idle ones are ordered, for each"),
        value: each,
        unit: "us",
        goal: 20.0,
        is_time: true,
    };
    vec![first, order, all]
}

struct World {
    pair: Pair,
    idle: usize,
    /// Orders that were given, and not answered.
    ordered: usize,
}

impl World {
    /// So many connections wait for traffic, and may be moved; there is room for more, which will be armed.
    fn new(idle: usize, armed: usize) -> Self {
        // Probes go by path and not by connection, and have a budget of their own.
        let config = Config {
            verify: Duration::ZERO,
            connection_limit: idle + armed,
            ..config()
        };
        let mut pair = Pair::new(idle + armed, &config, false);
        for host in [0, 1] {
            for number in [1, 2] {
                let up = Some(able(host, number, true));
                pair.tell(host, Input::Port(port(host, number), up));
            }
            for client in id(0).client..=id(idle + armed).client {
                pair.tell(host, Input::MovesIdle(client));
            }
        }
        pair.register(0..idle);
        pair.run(2_000_000);
        pair.until_all_are(Protection::IdleMovable);
        Self {
            pair,
            idle,
            ordered: 0,
        }
    }

    fn register_armed(&mut self) {
        self.pair.traffic = true;
        self.pair.register(self.idle..self.pair.qps[0].len());
        self.pair.run(2_000_000);
    }

    /// Microseconds until the first order. Then the port is back before anybody else has looked, and the order is not
    /// answered, so that the next round is about the next connection.
    fn first_order(&mut self) -> f64 {
        let now = Time(self.pair.now);
        let engine = &mut self.pair.engines[0];
        let begin = Instant::now();
        engine.handle(now, Input::Port(port(0, 1), Some(able(0, 1, false))));
        let order = engine.poll_order();
        let took = begin.elapsed();
        assert!(matches!(order, Some((_, Order::MoveIdle(_)))), "{order:?}");
        self.ordered += 1;
        engine.handle(now, Input::Port(port(0, 1), Some(able(0, 1, true))));
        took.as_secs_f64() * 1e6
    }

    /// The port goes. How many orders to idle connections were given before the last one to an armed connection, and
    /// microseconds for each until the last of all.
    fn all_orders(&mut self) -> (usize, f64) {
        let now = Time(self.pair.now);
        let engine = &mut self.pair.engines[0];
        let (idle, armed) = (self.idle - self.ordered, self.pair.qps[0].len() - self.idle);
        let (mut moved, mut migrated, mut before) = (0, 0, 0);
        let begin = Instant::now();
        engine.handle(now, Input::Port(port(0, 1), Some(able(0, 1, false))));
        loop {
            while let Some((_, order)) = engine.poll_order() {
                match order {
                    Order::MoveIdle(_) => moved += 1,
                    Order::Migrate(_) => (migrated, before) = (migrated + 1, moved),
                    _ => {}
                }
            }
            while engine.poll_transmit(|_| true).is_some() {}
            while engine.poll_query().is_some() {}
            if moved == idle || is_asleep(engine, now) {
                break;
            }
            engine.handle(now, Input::Timeout);
        }
        let took = begin.elapsed();
        assert_eq!((moved, migrated), (idle, armed), "all move at once");
        (before, took.as_secs_f64() * 1e6 / idle as f64)
    }
}

fn is_asleep(engine: &Engine, now: Time) -> bool {
    engine.poll_timeout().is_none_or(|at| at > now)
}

/// The status of a port of a device that moves idle connections.
fn able(host: usize, number: u8, active: bool) -> PortStatus {
    PortStatus {
        moves_idle: true,
        ..status(host, number, active)
    }
}
