// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the kernel module works as it should. It is asked again and again whether it sees what happens to queue pairs,
//! since switching its probes off raises no event; and the module may refuse apmd's settings.

use std::time::Duration;

use crate::io::apm_module::ModuleState;

/// Between two questions.
pub(crate) const ASKED_EVERY: Duration = Duration::from_secs(30);

/// What the module said last.
#[derive(Debug, Default)]
pub(crate) struct Health {
    last: Option<ModuleState>,
    settings_refused: bool,
}

impl Health {
    /// Takes the module's report. Returns whether queue pairs may have been created unseen that can be found now.
    pub(crate) fn handle_state(&mut self, state: ModuleState) -> bool {
        let before = self.last.replace(state);
        let was_working = before.is_none_or(|before| before.working);
        if was_working && !state.working {
            tracing::warn!("kernel module apm: its probes are switched off");
        }
        let missed = before.map_or(0, |before| before.missed);
        state.working && (!was_working || state.missed > missed)
    }

    /// Whether the module has refused our settings, which differ from its own.
    pub(crate) fn handle_settings(&mut self, refused: bool) {
        self.settings_refused = refused;
    }

    /// The module is gone, or is another.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// What an operator has to do.
    pub(crate) fn problems(&self) -> Vec<String> {
        let settings = self.settings_refused.then(|| {
            "the settings of kernel module apm are not those of [kernel]: they can be changed from the initial \
             network namespace only; run apmd there, or change protect and except there"
                .to_owned()
        });
        self.blindness().into_iter().chain(settings).collect()
    }

    fn blindness(&self) -> Option<String> {
        self.last.filter(|state| !state.working).map(|_| {
            "kernel module apm does not see what happens: its probes are switched off, new connections are not \
             protected and closed ones stay listed; `sysctl kernel.ftrace_enabled=1` and \
             `echo 1 >/sys/kernel/debug/kprobes/enabled` switch them on"
                .to_owned()
        })
    }

    /// What an operator may want to know.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let missed = self.last.map_or(0, |state| state.missed);
        let missed = (missed > 0).then(|| {
            format!(
                "the probes of kernel module apm have missed {missed} calls: queue pairs were looked for again"
            )
        });
        let lost = self.last.map_or(0, |state| state.lost_messages);
        let lost = (lost > 0).then(|| {
            format!(
                "{lost} messages of kernel module apm did not reach every subscriber: apmd reads all queue pairs \
                 again when it loses one"
            )
        });
        missed.into_iter().chain(lost).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(working: bool, missed: u64) -> ModuleState {
        ModuleState {
            working,
            missed,
            lost_messages: 0,
            moves_idle: false,
        }
    }

    #[test]
    fn probes_that_are_switched_off_are_a_problem_until_they_are_on_again() {
        let mut health = Health::default();
        assert!(!health.handle_state(state(true, 0)));
        assert_eq!(health.blindness(), None);
        assert!(
            !health.handle_state(state(false, 0)),
            "nothing can be seen now"
        );
        let problem = health.blindness().expect("a problem");
        assert!(problem.contains("kernel.ftrace_enabled=1") && problem.contains("kprobes"));
        assert!(
            health.handle_state(state(true, 0)),
            "what came meanwhile was not seen"
        );
        assert_eq!(health.blindness(), None);
        assert!(!health.handle_state(state(true, 0)));
    }

    #[test]
    fn missed_calls_have_queue_pairs_looked_for_once_and_are_told() {
        let mut health = Health::default();
        health.handle_state(state(true, 0));
        assert!(health.warnings().is_empty());
        assert!(health.handle_state(state(true, 2)) && !health.handle_state(state(true, 2)));
        assert!(health.warnings().concat().contains("missed 2 calls"));
        health.clear();
        assert_eq!((health.blindness(), health.warnings()), (None, vec![]));
    }

    #[test]
    fn lost_messages_are_a_warning_and_have_nothing_looked_for() {
        let mut health = Health::default();
        let lost = ModuleState {
            lost_messages: 5,
            ..state(true, 0)
        };
        assert!(
            !health.handle_state(lost),
            "an overrun has all read again already"
        );
        assert!(health.warnings().concat().contains("5 messages of kernel"));
        assert!(health.problems().is_empty());
    }

    #[test]
    fn a_module_that_was_blind_before_it_was_asked_is_one() {
        let mut health = Health::default();
        health.handle_state(state(false, 0));
        assert!(health.blindness().is_some());
    }
}
