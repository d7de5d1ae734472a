// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which faults there are, and what is judged.

use clap::ValueEnum;

use super::fault::Kind;
use super::verdict::Rule;

/// A set of faults and rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Profile {
    /// The faults that a seed chooses from.
    pub kinds: Vec<Kind>,
    /// What is judged.
    pub rules: Vec<Rule>,
}

/// Profiles that have a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Named {
    /// The widest in which the engine breaks no rule.
    #[default]
    Default,
    /// Every fault and every rule.
    All,
}

/// What the default profile leaves out, since the engine does not survive it yet.
const FAULTS_LEFT_OUT: &[Kind] = &[];

/// Likewise, of the rules.
const RULES_LEFT_OUT: &[Rule] = &[];

impl Profile {
    /// The profile of that name, with these besides.
    pub fn new(named: Named, with: &[Kind], judge: &[Rule]) -> Self {
        let all = named == Named::All;
        let kinds = Kind::value_variants().iter().copied();
        let kinds =
            kinds.filter(|kind| all || with.contains(kind) || !FAULTS_LEFT_OUT.contains(kind));
        let rules = Rule::value_variants().iter().copied();
        let rules =
            rules.filter(|rule| all || judge.contains(rule) || !RULES_LEFT_OUT.contains(rule));
        Self {
            kinds: kinds.collect(),
            rules: rules.collect(),
        }
    }
}
