// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many lines the log takes. Most of what is worth a line, somebody outside can cause as often
//! as he likes, so every line is limited, by where it is written and by whom it is about; what is
//! left out is counted, and the count is logged. Nobody's lines crowd out others'.

use std::collections::HashMap;
use std::fmt::{Debug, Write};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// Fields that say whom a line is about and that nobody can change at will, as he can connection
/// numbers or pids.
const SOURCE: [&str; 6] = ["uid", "lid", "device", "port", "from", "to"];

/// Lines of one kind about one source, and of one kind.
const LIMITS: [Rate; 2] = [
    Rate {
        burst: 20,
        period: Duration::from_secs(1),
    },
    Rate {
        burst: 200,
        period: Duration::from_millis(100),
    },
];
/// The same for who asks for debugging.
const DEBUG_LIMITS: [Rate; 2] = [
    Rate {
        burst: 1000,
        period: Duration::from_millis(10),
    },
    Rate {
        burst: 2000,
        period: Duration::from_millis(5),
    },
];
/// Sources told apart; those beyond have the limit of their kind only.
const SOURCES: usize = 1024;
/// How long left-out lines are counted before the count is logged.
const COUNTING: Duration = Duration::from_secs(10);
/// Counts are logged under this target, without limit: there are few.
const TARGET: &str = "apmd::log";

/// Lines at once, and in which time one more is allowed.
#[derive(Clone, Copy)]
struct Rate {
    burst: u32,
    period: Duration,
}

/// A bucket that fills with time; `empty_at` is when it was, or will be, without debt.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    empty_at: Instant,
}

impl Bucket {
    fn has_room(self, now: Instant, rate: Rate) -> bool {
        self.empty_at.saturating_duration_since(now) + rate.period <= rate.period * rate.burst
    }

    fn take(&mut self, now: Instant, rate: Rate) {
        self.empty_at = self.empty_at.max(now) + rate.period;
    }
}

/// Lines that were left out.
#[derive(Clone, PartialEq, Eq, Debug)]
struct LeftOut {
    lines: u64,
    /// The first of them.
    first: String,
    level: Level,
    since: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Write,
    LeaveOut,
    /// It stands for those that follow: say what it is.
    LeaveOutFirst,
}

#[derive(Debug)]
struct Kind {
    bucket: Bucket,
    left_out: Option<LeftOut>,
}

/// By kind `K`: where a line is written.
#[derive(Debug)]
struct Limiter<K> {
    kinds: HashMap<K, Kind>,
    sources: HashMap<(K, u64), Bucket>,
}

impl<K: Clone + Eq + Hash> Limiter<K> {
    fn new() -> Self {
        Self {
            kinds: HashMap::new(),
            sources: HashMap::new(),
        }
    }

    /// Whether a line is written.
    fn allow(&mut self, now: Instant, kind: &K, source: u64, level: Level) -> Verdict {
        let [per_source, per_kind] = if level > Level::INFO {
            DEBUG_LIMITS
        } else {
            LIMITS
        };
        let bucket = Bucket { empty_at: now };
        if self.sources.len() >= SOURCES {
            self.sources.retain(|_, bucket| bucket.empty_at > now);
        }
        let key = (kind.clone(), source);
        // Who comes under ever new names takes no more memory, and shares the limit of its kind.
        let known = self.sources.contains_key(&key) || self.sources.len() < SOURCES;
        let of_source = match known {
            true => self.sources.entry(key).or_insert(bucket),
            false => &mut { bucket },
        };
        let of_kind = self.kinds.entry(kind.clone()).or_insert(Kind {
            bucket,
            left_out: None,
        });
        if of_source.has_room(now, per_source) && of_kind.bucket.has_room(now, per_kind) {
            of_source.take(now, per_source);
            of_kind.bucket.take(now, per_kind);
            return Verdict::Write;
        }
        let verdict = match of_kind.left_out {
            None => Verdict::LeaveOutFirst,
            Some(_) => Verdict::LeaveOut,
        };
        let left_out = of_kind.left_out.get_or_insert_with(|| LeftOut {
            lines: 0,
            first: String::new(),
            level,
            since: now,
        });
        left_out.lines += 1;
        verdict
    }

    /// The first line of a kind that was left out.
    fn describe(&mut self, kind: &K, first: String) {
        let kind = self.kinds.get_mut(kind);
        if let Some(left_out) = kind.and_then(|kind| kind.left_out.as_mut()) {
            left_out.first = first;
        }
    }

    /// When to ask for [`Self::left_out`].
    fn due(&self) -> Option<Instant> {
        let all = self
            .kinds
            .values()
            .filter_map(|kind| kind.left_out.as_ref());
        all.map(|left_out| left_out.since + COUNTING).min()
    }

    /// Counts that are to be logged.
    fn left_out(&mut self, now: Instant) -> Vec<LeftOut> {
        let due = |left_out: &mut LeftOut| left_out.since + COUNTING <= now;
        let kinds = self.kinds.values_mut();
        kinds
            .filter_map(|kind| kind.left_out.take_if(due))
            .collect()
    }
}

/// The limit on the log's lines, as a layer and for the loop that has counts logged.
#[derive(Clone, Debug)]
pub(crate) struct LogLimit(Arc<Mutex<Limiter<Identifier>>>);

impl LogLimit {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Limiter::new())))
    }

    fn limiter(&self) -> MutexGuard<'_, Limiter<Identifier>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In which time [`Self::log_left_out`] has something to log.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        let due = self.limiter().due()?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    /// Logs how many lines were left out.
    pub(crate) fn log_left_out(&self) {
        let left_out = self.limiter().left_out(Instant::now());
        for LeftOut {
            lines,
            first,
            level,
            ..
        } in left_out
        {
            match level {
                Level::ERROR => tracing::error!(target: TARGET, lines, "left out, like: {first}"),
                Level::WARN => tracing::warn!(target: TARGET, lines, "left out, like: {first}"),
                Level::INFO => tracing::info!(target: TARGET, lines, "left out, like: {first}"),
                _ => tracing::debug!(target: TARGET, lines, "left out, like: {first}"),
            }
        }
    }
}

impl<S: Subscriber> Layer<S> for LogLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::DEBUG || metadata.target() == TARGET {
            return true;
        }
        // Values are formatted without the lock, in case one logs.
        let mut about = About(DefaultHasher::new());
        event.record(&mut about);
        let (kind, source) = (metadata.callsite(), about.0.finish());
        let now = Instant::now();
        let verdict = self.limiter().allow(now, &kind, source, *metadata.level());
        if verdict == Verdict::LeaveOutFirst {
            let mut text = Text(String::new());
            event.record(&mut text);
            self.limiter().describe(&kind, text.0);
        }
        verdict == Verdict::Write
    }
}

/// Whom a line is about.
struct About(DefaultHasher);

impl Visit for About {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if SOURCE.contains(&field.name()) {
            (field.name(), format!("{value:?}")).hash(&mut self.0);
        }
    }
}

/// A line as text.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let space = if self.0.is_empty() { "" } else { " " };
        // A String takes everything.
        let _ = match field.name() {
            "message" => write!(self.0, "{space}{value:?}"),
            name => write!(self.0, "{space}{name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allow(limiter: &mut Limiter<u8>, now: Instant, kind: u8, source: u64) -> bool {
        let verdict = limiter.allow(now, &kind, source, Level::WARN);
        if verdict == Verdict::LeaveOutFirst {
            limiter.describe(&kind, format!("{kind} {source}"));
        }
        verdict == Verdict::Write
    }

    fn flood(limiter: &mut Limiter<u8>, now: Instant, kind: u8, source: u64) -> usize {
        let written = (0..1000).filter(|_| allow(limiter, now, kind, source));
        written.count()
    }

    #[test]
    fn a_flood_is_a_few_lines_and_a_count() {
        let mut limiter = Limiter::new();
        let start = Instant::now();
        assert_eq!(flood(&mut limiter, start, 1, 7), 20);
        assert_eq!(flood(&mut limiter, start, 1, 8), 20, "another's lines");
        assert_eq!(flood(&mut limiter, start, 2, 7), 20, "another kind of line");
        let later = start + Duration::from_secs(3);
        assert_eq!(flood(&mut limiter, later, 1, 7), 3);
        assert_eq!(limiter.due(), Some(start + COUNTING));
        assert!(limiter.left_out(later).is_empty());
        let mut left_out = limiter.left_out(start + COUNTING);
        left_out.sort_by(|a, b| a.first.cmp(&b.first));
        let counted: Vec<_> = left_out
            .iter()
            .map(|one| (&*one.first, one.lines))
            .collect();
        assert_eq!(counted, [("1 7", 2957), ("2 7", 980)]);
        assert_eq!(limiter.due(), None);
    }

    #[test]
    fn many_sources_are_limited_together() {
        let mut limiter = Limiter::new();
        let start = Instant::now();
        let written = (0..5000).filter(|source| allow(&mut limiter, start, 1, *source));
        assert_eq!(written.count(), 200);
        assert!(allow(&mut limiter, start, 2, 1), "another kind of line");
        let later = start + COUNTING;
        let left_out: u64 = limiter.left_out(later).iter().map(|one| one.lines).sum();
        assert_eq!(left_out, 4800);
        assert!(allow(&mut limiter, later, 1, 6000));
    }

    #[test]
    fn sources_are_forgotten() {
        let mut limiter = Limiter::new();
        let start = Instant::now();
        for source in 0..5000 {
            let later = start + LIMITS[1].period * source;
            assert!(allow(&mut limiter, later, 1, source.into()));
            assert!(limiter.sources.len() <= SOURCES);
        }
    }
}
