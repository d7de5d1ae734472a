// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measuring one attribute: bytes first compared, then both sides timed in turns.

use std::hint::black_box;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use testbed::ibsim::Dice;

use crate::allocations;
use crate::attributes::Attribute;

/// Different values of which each is written and read; with their bytes they fit the first-level cache.
const VALUES: usize = 64;

/// Values that are compared.
const COMPARED: usize = 20_000;

/// How long each turn is, and how many there are: the best counts, which others disturbed least.
const TURN: Duration = Duration::from_millis(20);
const TURNS: usize = 16;

/// How often all values are gone through between two looks at the clock. A look takes as long as some
/// ten values, which at one look a round was up to a sixth of the faster side's time and next to
/// nothing of the slower one's.
const ROUNDS: usize = 64;

/// How much faster than libibmad's the codecs are to be.
const GOAL: f64 = 10.0;

/// Where a result is put, by both sides: never across two pages, which by chance of where the stack
/// begins would be so in some processes, and takes up to three times as long.
#[repr(align(512))]
struct Place<T>(T);

/// How long a comparison and measurement takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    Full,
    /// A turn of each.
    Short,
}

/// Writing or reading, by both.
struct Pair {
    what: &'static str,
    /// Nanoseconds of processor time for one attribute.
    cm_msgs: f64,
    libibmad: f64,
}

impl Pair {
    /// Of the fields alone: both without what copying takes.
    fn less(&self, copy: f64) -> Self {
        Self {
            what: self.what,
            cm_msgs: self.cm_msgs - copy,
            libibmad: self.libibmad - copy,
        }
    }

    fn ratio(&self) -> f64 {
        self.libibmad / self.cm_msgs
    }
}

/// What was measured.
pub(crate) struct Figures {
    name: &'static str,
    fields: usize,
    calls: usize,
    /// Nanoseconds for only copying the attribute's bytes, in the same loop.
    copy: f64,
    pairs: [Pair; 2],
    /// Of cm-msgs, in all that was measured.
    allocations: u64,
    compared: usize,
    differences: usize,
}

impl Figures {
    pub(crate) const HEAD: &str = "attribute   fields  libibmad calls          cm-msgs ns  libibmad ns  \
        ratio  copy ns  ratio less copy  allocations  compared  differ";

    /// A line for writing and one for reading.
    pub(crate) fn rows(&self) -> String {
        let rows = self.pairs.each_ref().map(|pair| {
            format!(
                "{:10}  {:6}  {:14}  {:6}  {:10.1}  {:11.1}  {:5.1}  {:7.1}  {:15.1}  {:11}  {:8}  {:6}",
                self.name,
                self.fields,
                self.calls,
                pair.what,
                pair.cm_msgs,
                pair.libibmad,
                pair.ratio(),
                self.copy,
                pair.less(self.copy).ratio(),
                self.allocations,
                self.compared,
                self.differences,
            )
        });
        rows.join("\n")
    }

    pub(crate) fn json(&self) -> String {
        let pairs = self.pairs.each_ref().map(|pair| {
            format!(
                "\"{0}_ns\":{1:.2},\"libibmad_{0}_ns\":{2:.2},\"{0}_ratio\":{3:.1}",
                pair.what,
                pair.cm_msgs,
                pair.libibmad,
                pair.ratio()
            )
        });
        format!(
            "{{\"bench\":\"codec\",\"attribute\":\"{}\",\"fields\":{},\"libibmad_calls\":{},{},\
             \"allocations\":{},\"compared\":{},\"differences\":{}}}",
            self.name,
            self.fields,
            self.calls,
            pairs.join(","),
            self.allocations,
            self.compared,
            self.differences,
        )
    }

    /// What is wrong whatever the machine does, in words.
    pub(crate) fn faults(&self) -> Vec<String> {
        let counts = [
            ("of the values differ", self.differences as u64),
            ("allocations", self.allocations),
        ];
        let faults = counts.into_iter().filter(|(_, count)| *count > 0);
        faults
            .map(|(what, count)| format!("{}: {count} {what}", self.name))
            .collect()
    }

    /// The goals that were missed, in words.
    pub(crate) fn missed_goals(&self) -> Vec<String> {
        let missed = self.pairs.iter().filter(|pair| pair.ratio() < GOAL);
        let words = |pair: &Pair| {
            let (name, what, ratio) = (self.name, pair.what, pair.ratio());
            format!("goal missed: {name} {what}: {ratio:.1} times as fast, goal {GOAL}")
        };
        missed.map(words).collect()
    }
}

/// Compares and measures.
pub(crate) fn figures<T: Attribute<N>, const N: usize>(length: Length) -> nix::Result<Figures> {
    let mut dice = Dice::new(1);
    let mut any = || [0; N].map(|_: u8| dice.below(256) as u8);
    let differences = (0..COMPARED).filter(|_| !agree::<T, N>(&any())).count();
    let bytes: Vec<[u8; N]> = (0..VALUES).map(|_| any()).collect();
    let values: Vec<T> = bytes.iter().map(T::decode).collect();
    let mut place = Place(T::decode(&[0; N]));

    let mut encode = Pair::new("encode");
    let mut decode = Pair::new("decode");
    let mut copy = f64::INFINITY;
    let mut allocated = 0;
    for _ in 0..length.turns() {
        copy = copy.min(turn(&bytes, |bytes| {
            black_box(&Place(*bytes));
        })?);
        let before = allocations::count();
        encode.cm_msgs = encode.cm_msgs.min(turn(&values, |value| {
            black_box(&Place(value.encode()));
        })?);
        decode.cm_msgs = decode.cm_msgs.min(turn(&bytes, |bytes| {
            black_box(&Place(T::decode(bytes)));
        })?);
        allocated += allocations::count() - before;
        encode.libibmad = encode.libibmad.min(turn(&values, |value| {
            black_box(&Place(value.encode_by_libibmad()));
        })?);
        decode.libibmad = decode.libibmad.min(turn(&bytes, |bytes| {
            T::decode_by_libibmad(bytes, &mut place.0);
            black_box(&place);
        })?);
    }
    Ok(Figures {
        name: T::NAME,
        fields: place.0.shown(),
        calls: T::CALLS,
        copy,
        pairs: [encode, decode],
        allocations: allocated,
        compared: COMPARED,
        differences,
    })
}

impl Length {
    const fn turns(self) -> usize {
        match self {
            Self::Full => TURNS,
            Self::Short => 1,
        }
    }
}

impl Pair {
    const fn new(what: &'static str) -> Self {
        Self {
            what,
            cm_msgs: f64::INFINITY,
            libibmad: f64::INFINITY,
        }
    }
}

/// Whether both read the same of any bytes, and write the same of that.
fn agree<T: Attribute<N>, const N: usize>(bytes: &[u8; N]) -> bool {
    let value = T::decode(bytes);
    let mut by_libibmad = T::decode(&[0; N]);
    T::decode_by_libibmad(bytes, &mut by_libibmad);
    value == by_libibmad && value.encode() == value.encode_by_libibmad()
}

/// Nanoseconds of this thread's processor time for one call.
fn turn<V>(values: &[V], mut call: impl FnMut(&V)) -> nix::Result<f64> {
    let (before, started) = (processor_time()?, Instant::now());
    let mut rounds = 0;
    while started.elapsed() < TURN {
        for _ in 0..ROUNDS {
            for value in black_box(values) {
                call(value);
            }
        }
        rounds += ROUNDS;
    }
    let taken = processor_time()? - before;
    Ok(taken.as_nanos() as f64 / (rounds * values.len()) as f64)
}

fn processor_time() -> nix::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}
