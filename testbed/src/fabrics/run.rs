// SPDX-License-Identifier: MIT OR Apache-2.0
//! One case: a fabric is routed and compared, cut, routed and compared again, once more when its
//! cables are plugged in again, and at last with tables that are wrong here and there.

use std::fmt;
use std::fs;
use std::time::Instant;

use pathdb::import::Files;
use serde::Serialize;

use super::alternates;
use super::case::Case;
use super::dumped::Dumped;
use super::garble::garble;
use super::hardware;
use super::records;
use super::reroute::{self, Before};
use super::tally::Tally;
use super::unreached;
use crate::failure::Failure;
use crate::ibsim::{Cable, Client, Dice, Net, Node, OpenSm, Place, Routing, Settings, Simulator};

/// The host where OpenSM runs and the client asks; its cable is never pulled.
const MANAGER: &str = "host-0";

/// Cables between switches that are pulled.
const CUTS: usize = 3;

/// How far a case has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// All cables are plugged in.
    Whole,
    /// Some are pulled.
    Cut,
    /// They are plugged in again.
    Healed,
    /// Some entries of the forwarding tables are wrong.
    Garbled,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Whole => "whole",
            Self::Cut => "cut",
            Self::Healed => "healed",
            Self::Garbled => "garbled",
        })
    }
}

/// What came of one state of a case. Its JSON is one line with these keys.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The form's name.
    pub shape: String,
    /// The engine wished for.
    pub engine: &'static str,
    /// The engine that OpenSM used: minhop where the other cannot route such a fabric.
    pub engine_used: String,
    /// LID mask count.
    pub lmc: u8,
    /// The seed.
    pub seed: u64,
    /// How far the case had come.
    pub state: State,
    /// The cables pulled, in words.
    pub pulled: Vec<String>,
    /// How long all of it took.
    pub seconds: f64,
    /// What was compared.
    #[serde(flatten)]
    pub tally: Tally,
}

/// A fabric under OpenSM with what compares it.
struct World {
    case: Case,
    // In the order of their ends: who asks first, the directory last.
    client: Client,
    opensm: OpenSm,
    simulator: Simulator,
    place: Place,
    dice: Dice,
    /// All LIDs that were seen so far.
    lids: Vec<u16>,
    /// The first state.
    before: Option<Before>,
}

/// Runs a case and hands each state's outcome to `report`. The directory is kept if `keep`.
///
/// # Errors
/// If a program does not start, or does not do as it should; differences are no errors.
pub fn run(case: Case, keep: bool, mut report: impl FnMut(&Outcome)) -> Result<(), Failure> {
    let started = Instant::now();
    let net = case.form.shape().build(case.seed);
    let mut world = World::start(case, &net)?;
    if keep {
        world.place.keep();
        eprintln!("files: {}", world.place.path().display());
    }
    report(&world.compare(State::Whole, &[], started)?);
    let started = Instant::now();
    let cuts = cuts(&net, &mut world.dice);
    for cable in &cuts {
        world.simulator.unplug(cable)?;
    }
    world.opensm.sweep()?;
    report(&world.compare(State::Cut, &cuts, started)?);
    let started = Instant::now();
    for cable in &cuts {
        world.simulator.replug(cable)?;
    }
    world.opensm.sweep()?;
    report(&world.compare(State::Healed, &[], started)?);
    let started = Instant::now();
    let mut world = world.garble(&net)?;
    report(&world.compare(State::Garbled, &[], started)?);
    Ok(())
}

/// Some cables between switches, and all of one host's that has as few as can be.
fn cuts(net: &Net, dice: &mut Dice) -> Vec<Cable> {
    let (mut between, at_hosts): (Vec<Cable>, Vec<Cable>) =
        net.cables().iter().partition(|cable| {
            cable
                .ends
                .iter()
                .all(|end| matches!(end.node, Node::Switch(_)))
        });
    dice.shuffle(&mut between);
    between.truncate(CUTS);
    let host = Node::Host(1 + dice.below(net.host_count() - 1));
    let its = at_hosts
        .iter()
        .filter(|cable| cable.ends.iter().any(|end| end.node == host));
    // And one port of another host, which keeps the other.
    let others = at_hosts.iter().filter(|cable| {
        cable
            .ends
            .iter()
            .all(|end| end.node != host && end.node != Node::Host(0))
    });
    let others: Vec<&Cable> = others.collect();
    between.extend(its);
    between.extend(dice.pick(&others));
    between
}

impl World {
    fn start(case: Case, net: &Net) -> Result<Self, Failure> {
        let place = Place::new()?;
        let simulator = Simulator::start(&place, net)?;
        let settings = Settings {
            routing: Routing::Engine(case.engine),
            lmc: case.lmc,
            roots: case.form.shape().roots(),
        };
        let opensm = OpenSm::start(&place, &settings, MANAGER)?;
        let client = Client::attach(&place.socket_name(), MANAGER)?;
        Ok(Self {
            case,
            client,
            opensm,
            simulator,
            place,
            dice: Dice::new(case.seed),
            lids: Vec::new(),
            before: None,
        })
    }

    /// Ends OpenSM and starts it with its own tables, of which some entries are changed.
    fn garble(mut self, net: &Net) -> Result<Self, Failure> {
        let path = self.opensm.files().join("opensm-lfts.dump");
        let tables = fs::read_to_string(&path).map_err(|source| Failure::File {
            path: path.display().to_string(),
            source,
        })?;
        let settings = Settings {
            routing: Routing::Tables(garble(&tables, net, &mut self.dice)),
            lmc: self.case.lmc,
            roots: Vec::new(),
        };
        drop(self.opensm);
        let opensm = OpenSm::start(&self.place, &settings, MANAGER)?;
        Ok(Self { opensm, ..self })
    }

    fn compare(
        &mut self,
        state: State,
        cuts: &[Cable],
        started: Instant,
    ) -> Result<Outcome, Failure> {
        let mut tally = Tally::default();
        let files = self.opensm.files();
        let read = Files::in_dir(files).read();
        let imported = read.map_err(|error| Failure::not_shown(error.to_string()))?;
        let mut fabric = imported
            .whole()
            .map_err(|warning| Failure::not_shown(warning.to_string()))?;
        let dumped = Dumped::read(files)?;
        let ports0 = hardware::ask_ports(&mut self.client, &mut fabric, MANAGER, &mut tally)?;
        let ranges = fabric.end_ports().filter_map(|port| fabric.port(port).lids);
        self.lids
            .extend(ranges.flat_map(|range| range.iter()).map(|lid| lid.0));
        self.lids.sort_unstable();
        self.lids.dedup();
        tally.lids = self.lids.len();
        let top = self.lids.last().copied().unwrap_or_default();
        hardware::ask_tables(&mut self.client, &fabric, MANAGER, top, &mut tally)?;
        let pairs = records::pairs(&fabric, &ports0, &self.lids, &self.lids);
        records::compare(&mut self.client, &fabric, &pairs, &mut tally)?;
        // What OpenSM counts is the least there could be, not what wrong tables make of it.
        let counted = state != State::Garbled;
        records::compare_hops(&fabric, &dumped, &pairs, counted, &mut tally);
        unreached::compare(&fabric, &dumped, &mut tally);
        let pairs = alternates::compare(&fabric, &dumped, &mut self.dice, &mut tally);
        match &self.before {
            Some(before) => reroute::compare(before, &fabric, &dumped, &self.lids, &mut tally),
            None => self.before = Some(Before { fabric, pairs }),
        }
        Ok(Outcome {
            shape: self.case.form.to_string(),
            engine: self.case.engine.name(),
            engine_used: self.opensm.engine_used()?,
            lmc: self.case.lmc,
            seed: self.case.seed,
            state,
            pulled: cuts.iter().map(Cable::to_string).collect(),
            seconds: (started.elapsed().as_secs_f64() * 100.0).round() / 100.0,
            tally,
        })
    }
}
