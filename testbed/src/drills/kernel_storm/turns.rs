// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module is loaded, orders hammer at it, it is unloaded while connections come and go, and is absent.

use std::time::Duration;

use crate::clock::Moment;
use crate::command;
use crate::failure::Failure;
use crate::ibsim::Dice;
use crate::kernel_module::KernelModule;
use crate::patience;

use super::orders::{Orders, Tally};

/// How long queue pairs whose events go through the module may keep it.
const LIMIT: Duration = Duration::from_secs(180);

/// Where the module is.
enum State {
    Absent {
        until: Moment,
    },
    Loaded {
        module: KernelModule,
        orders: Orders,
        until: Moment,
    },
    /// It protects nobody any more, and goes when the last queue pair goes that it did protect.
    Leaving {
        module: KernelModule,
        orders: Orders,
        since: Moment,
    },
}

/// What the others have to do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Nothing,
    /// The module is to go: what outlives everything else ends.
    Leaves,
    /// It is to go at once: all programs are killed.
    LeavesAtOnce,
    /// It has gone.
    Gone,
}

/// It comes and goes.
pub(super) struct Turns {
    state: Option<State>,
    /// How long it stays at least, and how much longer at most.
    stay: [Duration; 2],
    tally: Tally,
    unloads: u64,
    busy: u64,
}

impl Turns {
    pub(super) fn new(stay: [Duration; 2]) -> Self {
        Self {
            state: Some(State::Absent {
                until: Moment::now(),
            }),
            stay,
            tally: Tally::default(),
            unloads: 0,
            busy: 0,
        }
    }

    /// Orders so far, as far as their turn is over.
    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// How often it went, and how often it was said to be in use.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.unloads, self.busy)
    }

    /// Whether it is unloaded.
    pub(super) fn is_absent(&self) -> bool {
        matches!(self.state, Some(State::Absent { .. }))
    }

    /// What is due now.
    pub(super) fn go_on(&mut self, dice: &mut Dice) -> Result<Told, Failure> {
        let now = Moment::now();
        let Some(state) = self.state.take() else {
            return Err(Failure::not_shown("a turn of the module has failed"));
        };
        let (state, told) = match state {
            State::Absent { until } if now > until => (self.load(dice)?, Told::Nothing),
            State::Loaded {
                module,
                mut orders,
                until,
            } if now > until => {
                orders.settle()?;
                // What is loaded stays so; nothing is loaded from here on.
                command::run(&["apm_order", "protect", "none"])?;
                let told = [Told::Leaves, Told::LeavesAtOnce][dice.below(2)];
                let since = Moment::now();
                let state = State::Leaving {
                    module,
                    orders,
                    since,
                };
                (state, told)
            }
            State::Leaving {
                module,
                orders,
                since,
            } => self.try_unload(module, orders, since, dice)?,
            state => (state, Told::Nothing),
        };
        self.state = Some(state);
        Ok(told)
    }

    fn load(&self, dice: &mut Dice) -> Result<State, Failure> {
        let module = KernelModule::load()?;
        let orders = Orders::start(dice.below(1 << 30) as u64)?;
        let [least, more] = self.stay;
        let more = dice.below(more.as_millis() as usize) as u64;
        let until = Moment::now() + least + Duration::from_millis(more);
        Ok(State::Loaded {
            module,
            orders,
            until,
        })
    }

    fn try_unload(
        &mut self,
        module: KernelModule,
        orders: Orders,
        since: Moment,
        dice: &mut Dice,
    ) -> Result<(State, Told), Failure> {
        let Some((module, why)) = module.try_unload()? else {
            self.unloads += 1;
            orders.finish(&mut self.tally)?;
            let absent = Duration::from_millis(200 + dice.below(1500) as u64);
            let until = Moment::now() + absent;
            return Ok((State::Absent { until }, Told::Gone));
        };
        self.busy += 1;
        if Moment::now().since(since) > patience::limit(LIMIT) {
            let text = format!("{why}; {}", what_keeps_it()?);
            return Err(Failure::not_shown(text));
        }
        let state = State::Leaving {
            module,
            orders,
            since,
        };
        Ok((state, Told::Nothing))
    }
}

/// References of the module, what it knows, and which connected queue pairs there are.
fn what_keeps_it() -> Result<String, Failure> {
    let said = |words: &[&str]| -> Result<String, Failure> {
        let said = command::run(words)?;
        let lines = said.lines().filter(|line| !line.contains("type UD"));
        Ok(lines.collect::<Vec<_>>().join("; "))
    };
    Ok(format!(
        "{} references; known: {}; there are: {}",
        said(&["cat", "/sys/module/apm/refcnt"])?,
        said(&["apm_order", "get"])?,
        said(&["rdma", "resource", "show", "qp"])?,
    ))
}
