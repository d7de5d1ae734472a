// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for something to be seen, with a bound.

use std::thread;
use std::time::Duration;

use crate::clock::Moment;
use crate::failure::Failure;
use crate::patience;

/// How often things are looked at.
const PERIOD: Duration = Duration::from_millis(250);

/// What a look showed.
pub enum Seen<T> {
    /// What was waited for.
    Ready(T),
    /// Something else.
    NotYet(String),
}

impl Seen<()> {
    /// Ready if `ready`, else `what`.
    pub fn when(ready: bool, what: impl FnOnce() -> String) -> Self {
        if ready {
            Self::Ready(())
        } else {
            Self::NotYet(what())
        }
    }
}

/// Looks until it sees what is waited for.
///
/// # Errors
/// [`Failure::Timeout`] after `limit`, as it is on this kernel, with what was seen last; whatever `look` fails with.
pub fn until<T>(
    what: &str,
    limit: Duration,
    look: impl FnMut() -> Result<Seen<T>, Failure>,
) -> Result<T, Failure> {
    until_often(what, limit, PERIOD, look)
}

/// The same, with a look every `period`.
///
/// # Errors
/// As [`until`].
pub fn until_often<T>(
    what: &str,
    limit: Duration,
    period: Duration,
    mut look: impl FnMut() -> Result<Seen<T>, Failure>,
) -> Result<T, Failure> {
    let limit = patience::limit(limit);
    let deadline = Moment::now() + limit;
    loop {
        let seen = match look()? {
            Seen::Ready(value) => return Ok(value),
            Seen::NotYet(seen) => seen,
        };
        if Moment::now() > deadline {
            return Err(Failure::Timeout {
                what: what.to_owned(),
                limit,
                seen,
            });
        }
        thread::sleep(period);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_when_seen_and_says_what_it_saw_otherwise() {
        let mut looks = 0;
        let found = until("three looks", Duration::from_secs(60), || {
            looks += 1;
            Ok(if looks == 3 {
                Seen::Ready(looks)
            } else {
                Seen::NotYet(String::new())
            })
        });
        assert_eq!(found.ok(), Some(3));

        let failure = until::<()>("a miracle", Duration::ZERO, || {
            Ok(Seen::NotYet("rain".into()))
        });
        assert_eq!(
            failure.err().map(|failure| failure.to_string()).as_deref(),
            Some("not within 0 s: a miracle; last seen: rain")
        );
    }
}
