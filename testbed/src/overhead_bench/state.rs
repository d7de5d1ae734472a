// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is compared: both hosts without the module, with it, and with daemons that use it.

use std::path::Path;

use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::kernel_module::KernelModule;
use crate::world::World;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Neither module nor daemons.
    Bare,
    /// The module, and nobody who listens to it.
    Module,
    /// The module and both daemons.
    Daemons,
    /// The first once more: what the run makes of no difference.
    Control,
}

/// Where the module shows that it is there.
const LOADED: &str = "/sys/module/apm";

/// What an operator's daemons log.
const POLICY: Policy = Policy {
    log: "info",
    ..Policy::NORMAL
};

impl State {
    /// In the order of a round. The next round has them backwards: none is always first.
    pub(super) const ROUND: [Self; 4] = [Self::Bare, Self::Module, Self::Daemons, Self::Control];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bare => "not loaded",
            Self::Module => "module",
            Self::Daemons => "module, daemons",
            Self::Control => "not loaded again",
        }
    }

    /// Measures in this state, and leaves it.
    pub(super) fn during<T>(
        self,
        world: &mut World,
        measure: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        ensure(!Path::new(LOADED).exists(), || {
            "the module is loaded already".to_owned()
        })?;
        if matches!(self, Self::Bare | Self::Control) {
            return measure();
        }
        let module = KernelModule::load()?;
        if self == Self::Daemons {
            world.start_daemons(POLICY)?;
        }
        let measured = measure()?;
        world.stop_daemons()?;
        module.unload()?;
        Ok(measured)
    }
}
