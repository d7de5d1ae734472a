// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which faults there are, and what is judged.

use clap::ValueEnum;

use super::fault::Kind;
use super::verdict::Rule;

/// A set of faults and rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Profile {
    /// The faults that a seed chooses from; one that is there several times is chosen more often.
    pub kinds: Vec<Kind>,
    /// What is judged.
    pub rules: Vec<Rule>,
    /// Which seeds have two subnets.
    pub two_subnets: TwoSubnets,
    /// Half of the connections are idle, and most hosts can move them.
    pub idle: bool,
}

/// Which seeds have two subnets with a subnet manager each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TwoSubnets {
    /// None.
    Never,
    /// Half of them.
    Sometimes,
    /// All.
    Always,
}

/// Profiles that have a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Named {
    /// Every fault and rule but those that are left out below; docs/sim.md lists what still breaks.
    #[default]
    Default,
    /// One subnet whose addresses do not change, and the faults that earlier seeds were made of.
    Basic,
    /// Two subnets, with LIDs and prefixes that may be equal, and every rule.
    TwoSubnets,
    /// Prefixes that change, and every rule.
    Prefix,
    /// LIDs that change while links are up, and every rule.
    LidMoves,
    /// A suspect alternate and a blip of the primary's port, and every rule.
    SuspectAlternate,
    /// Peers that redirect, and every rule.
    Redirect,
    /// Queue pairs in SQD, and every rule.
    Sqd,
    /// Ports that are lost for good while daemons restart, and every rule.
    StaleRestart,
    /// Connections that are silent most of the time, and every rule.
    Idle,
    /// Every fault and every rule.
    All,
}

/// What the default profile leaves out, since the engine does not survive it yet.
const FAULTS_LEFT_OUT: &[Kind] = &[];

/// Likewise, of the rules.
const RULES_LEFT_OUT: &[Rule] = &[];

/// Which of its seeds have two subnets.
const TWO_SUBNETS: TwoSubnets = TwoSubnets::Sometimes;

/// Faults that have a profile of their own.
const DIMENSIONS: &[Kind] = &[
    Kind::LidMove,
    Kind::Prefix,
    Kind::HoleAndBlip,
    Kind::Redirect,
    Kind::Sqd,
    Kind::PulledForGood,
];

/// How often a kind of fault is in the list of a profile that is about it.
const WEIGHT: usize = 8;

impl Named {
    /// What the profile leaves out.
    fn left_out(self) -> (&'static [Kind], &'static [Rule], TwoSubnets) {
        match self {
            Self::Default => (FAULTS_LEFT_OUT, RULES_LEFT_OUT, TWO_SUBNETS),
            Self::All => (&[], &[], TwoSubnets::Sometimes),
            Self::TwoSubnets => (DIMENSIONS, &[], TwoSubnets::Always),
            _ => (DIMENSIONS, &[], TwoSubnets::Never),
        }
    }

    /// The faults that the profile is about.
    fn subject(self) -> &'static [Kind] {
        match self {
            Self::Default | Self::Basic | Self::TwoSubnets | Self::Idle | Self::All => &[],
            Self::Prefix => &[Kind::Prefix],
            Self::LidMoves => &[Kind::LidMove],
            Self::SuspectAlternate => &[Kind::HoleAndBlip],
            Self::Redirect => &[Kind::Redirect],
            Self::Sqd => &[Kind::Sqd],
            Self::StaleRestart => &[Kind::PulledForGood, Kind::Crash],
        }
    }
}

impl Profile {
    /// The profile of that name, with these besides.
    pub fn new(named: Named, with: &[Kind], judge: &[Rule]) -> Self {
        let (faults, unjudged, two_subnets) = named.left_out();
        let kinds = Kind::value_variants().iter().copied();
        let kinds = kinds.filter(|kind| with.contains(kind) || !faults.contains(kind));
        let mut kinds: Vec<Kind> = kinds.collect();
        for _ in 0..WEIGHT {
            kinds.extend(named.subject());
        }
        let rules = Rule::value_variants().iter().copied();
        let rules = rules.filter(|rule| judge.contains(rule) || !unjudged.contains(rule));
        Self {
            kinds,
            rules: rules.collect(),
            two_subnets,
            idle: matches!(named, Named::Idle | Named::All),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_dimension_is_the_basic_profile_and_that() {
        let basic = Profile::new(Named::Basic, &[], &[]);
        for &named in Named::value_variants() {
            let profile = Profile::new(named, &[], &[]);
            assert_eq!(profile.kinds[..basic.kinds.len()], basic.kinds, "{named:?}");
            let about = named.subject().iter();
            assert!(
                about.clone().all(|kind| profile.kinds.contains(kind)),
                "{named:?}"
            );
        }
    }
}
