// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a seed stands for: the hosts, their connections, and the faults.

use std::num::{NonZeroU8, NonZeroU32};

use cm_msgs::control::{Mode, Placement, PolicyOverride};
use statemachine::Random;

use super::addresses::{Change, Lids, Subnets};
use super::fabric::{Direction, Element, Failure, PortOf};
use super::fault::{Fault, Kind, NEVER, What};
use super::profile::{Profile, TwoSubnets};
use super::queue::{MS, SECOND};

/// Faults begin within this time, after two seconds of peace.
const SPAN: u64 = 40 * SECOND;

/// What a seed stands for.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Hosts.
    pub hosts: usize,
    /// Groups of hosts with the same two leaf switches.
    pub groups: usize,
    /// Spine switches.
    pub spines: usize,
    /// LID mask count.
    pub lmc: u8,
    /// The subnets, and how their addresses are alike.
    pub subnets: Subnets,
    /// What each host's programs say of how their connections are to be protected.
    pub policies: Vec<PolicyOverride>,
    /// Each connection's active and passive host.
    pub connections: Vec<(usize, usize)>,
    /// Which connections are silent most of the time, until nothing goes wrong any more.
    pub quiet: Vec<bool>,
    /// Which hosts can move a queue pair that waits for traffic.
    pub movable: Vec<bool>,
    /// What goes wrong, in the order of its beginning.
    pub faults: Vec<Fault>,
}

/// The stream of random numbers that a seed stands for.
pub fn random(seed: u64) -> Random {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    Random::new(bytes)
}

impl Plan {
    /// The plan of a seed. The shape is the same in every profile, except for the subnets.
    pub fn new(seed: u64, profile: &Profile) -> Self {
        let mut root = random(seed);
        let (mut shape, mut dice) = (root.split(), root.split());
        let (mut wishes, mut subnets) = (root.split(), root.split());
        let mut idle = root.split();
        let hosts = 2 + pick(&mut shape, 3);
        let connections = (0..1 + pick(&mut shape, 4)).map(|_| {
            let active = pick(&mut shape, hosts);
            (active, (active + 1 + pick(&mut shape, hosts - 1)) % hosts)
        });
        let connections: Vec<_> = connections.collect();
        let mut in_idle = |bound, out_of| profile.idle && pick(&mut idle, out_of) < bound;
        let quiet = connections.iter().map(|_| in_idle(1, 2)).collect();
        let movable = (0..hosts).map(|_| in_idle(7, 8)).collect();
        let mut plan = Self {
            seed,
            hosts,
            groups: 1 + pick(&mut shape, 2),
            spines: 2 + pick(&mut shape, 2),
            lmc: if pick(&mut shape, 3) == 0 { 1 } else { 0 },
            subnets: subnets_of(&mut subnets, profile.two_subnets),
            policies: (0..hosts).map(|_| policy(&mut wishes)).collect(),
            connections,
            quiet,
            movable,
            faults: Vec::new(),
        };
        let mut faults: Vec<Fault> = (0..1 + pick(&mut dice, 12))
            .flat_map(|_| plan.faults(profile, &mut dice))
            .collect();
        faults.sort_by_key(|fault| fault.begin);
        for (number, fault) in faults.iter_mut().enumerate() {
            fault.number = number;
        }
        plan.faults = faults;
        plan
    }

    /// Only these of its faults.
    pub fn keep(&self, numbers: &[usize]) -> Self {
        let faults = self.faults.iter().copied();
        Self {
            faults: faults
                .filter(|fault| numbers.contains(&fault.number))
                .collect(),
            ..self.clone()
        }
    }

    /// When the last fault is over.
    pub fn calm_from(&self) -> u64 {
        let ends = self.faults.iter().map(|fault| match fault.end {
            NEVER => fault.begin,
            end => end,
        });
        ends.max().unwrap_or(0).max(2 * SECOND)
    }

    /// Subnets of which a fault can be a part.
    fn rails(&self) -> usize {
        match self.subnets {
            Subnets::One => 1,
            Subnets::Two { .. } => 2,
        }
    }

    fn faults(&self, profile: &Profile, dice: &mut Random) -> Vec<Fault> {
        let kind = profile.kinds[pick(dice, profile.kinds.len())];
        let begin = 2 * SECOND + u64::from(dice.below(SPAN as u32));
        // Blips, and what lasts.
        let longest = [100 * MS, 2 * SECOND, 15 * SECOND][pick(dice, 3)];
        let end = begin + MS + u64::from(dice.below(longest as u32));
        let fault = |begin, end, what| Fault {
            number: 0,
            begin,
            end,
            what,
        };
        match kind {
            Kind::HoleAndBlip => {
                let (host, port) = self.port(dice);
                let hole = What::Fabric(Element::Cable((host, port)), Failure::BlackHole);
                let blip = What::Fabric(Element::Cable((host, 3 - port)), Failure::Dead);
                // The hole is known by then.
                let at = begin + 5 * SECOND + u64::from(dice.below(SECOND as u32));
                let lasts = MS + u64::from(dice.below(100 * MS as u32));
                let mut faults = vec![fault(begin, at + SECOND, hole), fault(at, at + lasts, blip)];
                // Where the SA is silent the hole cannot be replaced.
                if pick(dice, 2) == 0 {
                    faults.push(fault(begin, at + SECOND, What::NoSa));
                }
                faults
            }
            Kind::PulledForGood => {
                let cable = Element::Cable(self.port(dice));
                vec![fault(begin, NEVER, What::Fabric(cable, Failure::Dead))]
            }
            _ => vec![fault(begin, end, self.what(kind, dice))],
        }
    }

    fn port(&self, dice: &mut Random) -> PortOf {
        (pick(dice, self.hosts), [1, 2][pick(dice, 2)])
    }

    fn change(&self, dice: &mut Random) -> Change {
        let port = self.port(dice);
        let mut other = self.port(dice);
        if self.rails() == 2 {
            // A LID counts in its own subnet only.
            other.1 = port.1;
        }
        match pick(dice, 2) {
            0 if other != port => Change::Swap(port, other),
            _ => Change::Renumber(port),
        }
    }

    fn what(&self, kind: Kind, dice: &mut Random) -> What {
        match kind {
            Kind::Cable => What::Fabric(self.cable(dice), Failure::Dead),
            Kind::Switch => What::Fabric(self.switch(dice), Failure::Dead),
            Kind::BlackHole if dice.below(2) == 0 => {
                What::Fabric(self.switch(dice), Failure::BlackHole)
            }
            Kind::BlackHole => What::Fabric(self.cable(dice), Failure::BlackHole),
            Kind::OneWay => {
                let direction = [Direction::Up, Direction::Down][pick(dice, 2)];
                What::Fabric(self.cable(dice), Failure::OneWay(direction))
            }
            Kind::MadLoss => What::MadLoss(50 + dice.below(950)),
            Kind::MadCopy => What::MadCopy(50 + dice.below(950)),
            Kind::MadDelay => What::MadDelay(1_000 + dice.below(800_000)),
            Kind::Forgery => What::Forgery(1 + dice.below(50)),
            Kind::SlowSa => What::SlowSa(10_000 + dice.below(10_000_000)),
            Kind::NoSa => What::NoSa,
            Kind::BusySa => What::BusySa,
            Kind::StaleSa => What::StaleSa,
            Kind::LateLibrary => What::LateLibrary(pick(dice, self.hosts)),
            Kind::MuteLibrary => What::MuteLibrary(pick(dice, self.hosts)),
            Kind::Crash => What::Crash(pick(dice, self.hosts)),
            Kind::Close => What::Close(pick(dice, self.connections.len()), pick(dice, 2)),
            Kind::LidMove => What::Addresses(self.change(dice)),
            Kind::Prefix => What::Addresses(Change::Prefix(pick(dice, self.rails()))),
            Kind::Redirect => What::Redirect(pick(dice, self.hosts)),
            Kind::Sqd => What::Sqd(pick(dice, self.connections.len()), pick(dice, 2)),
            // Several faults, or one that does not end.
            Kind::HoleAndBlip | Kind::PulledForGood => {
                What::Fabric(self.cable(dice), Failure::Dead)
            }
        }
    }

    fn cable(&self, dice: &mut Random) -> Element {
        match pick(dice, 4) {
            0 => {
                let leaf = pick(dice, 2 * self.groups);
                Element::Trunk(leaf, pick(dice, self.rails() * self.spines))
            }
            _ => Element::Cable(self.port(dice)),
        }
    }

    fn switch(&self, dice: &mut Random) -> Element {
        match pick(dice, 2) {
            0 => Element::Leaf(pick(dice, 2 * self.groups)),
            _ => Element::Spine(pick(dice, self.rails() * self.spines)),
        }
    }
}

/// Half of all hosts say nothing. Mode `lid` is left out: on one leaf nothing can be saved.
fn policy(wishes: &mut Random) -> PolicyOverride {
    let port = NonZeroU8::new(1 + pick(wishes, 2) as u8);
    PolicyOverride {
        mode: [None, None, None, Some(Mode::Port)][pick(wishes, 4)],
        placement: match pick(wishes, 4) {
            0 => port.map(Placement::Prefer),
            1 => Some(Placement::Spread),
            _ => None,
        },
        hold_down: [None, NonZeroU32::new(1_000)][pick(wishes, 2)],
    }
}

fn subnets_of(dice: &mut Random, wanted: TwoSubnets) -> Subnets {
    let two = Subnets::Two {
        lids: [Lids::Equal, Lids::Crossed, Lids::Distinct][pick(dice, 3)],
        same_prefix: pick(dice, 2) == 0,
        same_sm: pick(dice, 2) == 0,
    };
    match wanted {
        TwoSubnets::Never => Subnets::One,
        TwoSubnets::Always => two,
        TwoSubnets::Sometimes => [Subnets::One, two][pick(dice, 2)],
    }
}

/// A number below a small bound.
fn pick(dice: &mut Random, bound: usize) -> usize {
    dice.below(bound as u32) as usize
}
