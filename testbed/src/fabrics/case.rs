// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which fabrics are compared, routed how.

use std::fmt;

use clap::ValueEnum;

use crate::ibsim::{Engine, Shape};

/// A fabric of a shape, small enough for every pair of LIDs to be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Form {
    /// Two levels, dual-port hosts, some of them with both ports on one leaf
    FatTree2,
    /// Three levels, dual-port hosts
    FatTree3,
    /// Rings in two dimensions
    Torus2d,
    /// Rings in three dimensions
    Torus3d,
    /// Two dimensions without the rings
    Mesh2d,
    /// Random cables of 1, 4 and 12 lanes
    Irregular,
}

impl Form {
    /// The shape.
    pub const fn shape(self) -> Shape {
        match self {
            Self::FatTree2 => Shape::Tree2 {
                leaves: 6,
                spines: 3,
                down: 7,
                dual: true,
            },
            Self::FatTree3 => Shape::Tree3 {
                pods: 4,
                half: 3,
                dual: true,
            },
            Self::Torus2d => Shape::Grid {
                extents: [5, 4, 1],
                rings: true,
            },
            Self::Torus3d => Shape::Grid {
                extents: [3, 3, 3],
                rings: true,
            },
            Self::Mesh2d => Shape::Grid {
                extents: [4, 4, 1],
                rings: false,
            },
            Self::Irregular => Shape::Irregular {
                switches: 14,
                more: 12,
                hosts: 16,
            },
        }
    }

    /// Engines worth trying in a quick selection.
    const fn engines(self) -> &'static [Engine] {
        use Engine::{Dfsssp, Dor, Ftree, Lash, Minhop, Updn};
        match self {
            Self::FatTree2 => &[Minhop, Ftree, Updn],
            Self::FatTree3 => &[Minhop, Ftree, Updn, Dfsssp],
            Self::Torus2d | Self::Mesh2d => &[Minhop, Updn, Dor],
            Self::Torus3d => &[Dor, Lash],
            Self::Irregular => &[Minhop, Updn, Dor, Dfsssp],
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.pad(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// A fabric and its routing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Case {
    /// The fabric.
    pub form: Form,
    /// The routing engine that OpenSM is told to use.
    pub engine: Engine,
    /// LID mask count of the hosts' ports.
    pub lmc: u8,
    /// Decides what is random: cables, cuts, primaries.
    pub seed: u64,
}

/// Which cases.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Forms; all if empty.
    pub forms: Vec<Form>,
    /// Engines; if empty all, or with `quick` those that suit.
    pub engines: Vec<Engine>,
    /// LMCs; 0, 1 and 2 if empty.
    pub lmcs: Vec<u8>,
    /// Fewer engines.
    pub quick: bool,
    /// The first seed, and how many from there on.
    pub seeds: (u64, u64),
}

impl Selection {
    /// The cases.
    pub fn cases(&self) -> Vec<Case> {
        let forms = or_all(&self.forms, Form::value_variants());
        let lmcs = or_all(&self.lmcs, &[0, 1, 2]);
        let mut cases = Vec::new();
        for &form in forms {
            let engines = match self.quick {
                true => form.engines(),
                false => Engine::value_variants(),
            };
            for &engine in or_all(&self.engines, engines) {
                let (first, count) = self.seeds;
                let seeds = first..first.saturating_add(count);
                cases.extend(lmcs.iter().flat_map(|&lmc| {
                    seeds.clone().map(move |seed| Case {
                        form,
                        engine,
                        lmc,
                        seed,
                    })
                }));
            }
        }
        cases
    }
}

fn or_all<'a, T>(some: &'a [T], all: &'a [T]) -> &'a [T] {
    if some.is_empty() { all } else { some }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_engine_and_lmc_is_in_the_quick_selection() {
        let quick = Selection {
            quick: true,
            seeds: (1, 2),
            ..Selection::default()
        };
        let cases = quick.cases();
        for form in Form::value_variants() {
            assert!(cases.iter().any(|case| case.form == *form));
        }
        for engine in Engine::value_variants() {
            assert!(cases.iter().any(|case| case.engine == *engine));
        }
        assert!((0..3).all(|lmc| cases.iter().any(|case| case.lmc == lmc)));
        assert!(cases.iter().any(|case| case.seed == 2));
        let all = Selection {
            quick: false,
            ..quick
        };
        assert!(cases.len() < all.cases().len());
    }

    #[test]
    fn one_case_can_be_named() {
        let one = Selection {
            forms: vec![Form::Mesh2d],
            engines: vec![Engine::Lash],
            lmcs: vec![1],
            quick: true,
            seeds: (9, 1),
        };
        let [case] = one.cases()[..] else {
            panic!("{one:?}");
        };
        assert_eq!((case.engine, case.lmc, case.seed), (Engine::Lash, 1, 9));
        assert_eq!(case.form.to_string(), "mesh2d");
    }
}
