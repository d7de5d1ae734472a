// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the kernel module works as it should. It is asked again and again whether it sees what happens to queue pairs,
//! since switching its probes off raises no event; and the module may refuse apmd's settings.

use std::time::Duration;

use crate::io::apm_module::ProbeState;

/// Between two questions.
pub(crate) const ASKED_EVERY: Duration = Duration::from_secs(30);

/// What the module said last.
#[derive(Debug, Default)]
pub(crate) struct Health {
    last: Option<ProbeState>,
    settings_refused: bool,
}

impl Health {
    /// Takes the module's report. Returns whether queue pairs may have been created unseen that can be found now.
    pub(crate) fn handle_probes(&mut self, state: ProbeState) -> bool {
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
    pub(crate) fn warning(&self) -> Option<String> {
        let missed = self
            .last
            .map(|state| state.missed)
            .filter(|missed| *missed > 0)?;
        Some(format!(
            "the probes of kernel module apm have missed {missed} calls: queue pairs were looked for again"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(working: bool, missed: u64) -> ProbeState {
        ProbeState { working, missed }
    }

    #[test]
    fn probes_that_are_switched_off_are_a_problem_until_they_are_on_again() {
        let mut health = Health::default();
        assert!(!health.handle_probes(state(true, 0)));
        assert_eq!(health.blindness(), None);
        assert!(
            !health.handle_probes(state(false, 0)),
            "nothing can be seen now"
        );
        let problem = health.blindness().expect("a problem");
        assert!(problem.contains("kernel.ftrace_enabled=1") && problem.contains("kprobes"));
        assert!(
            health.handle_probes(state(true, 0)),
            "what came meanwhile was not seen"
        );
        assert_eq!(health.blindness(), None);
        assert!(!health.handle_probes(state(true, 0)));
    }

    #[test]
    fn missed_calls_have_queue_pairs_looked_for_once_and_are_told() {
        let mut health = Health::default();
        health.handle_probes(state(true, 0));
        assert_eq!(health.warning(), None);
        assert!(health.handle_probes(state(true, 2)) && !health.handle_probes(state(true, 2)));
        assert!(
            health
                .warning()
                .is_some_and(|it| it.contains("missed 2 calls"))
        );
        health.clear();
        assert_eq!((health.blindness(), health.warning()), (None, None));
    }

    #[test]
    fn a_module_that_was_blind_before_it_was_asked_is_one() {
        let mut health = Health::default();
        health.handle_probes(state(false, 0));
        assert!(health.blindness().is_some());
    }
}
