// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers on the command line.

use std::time::Duration;

use super::Failure;

/// Decimal, or hexadecimal after 0x.
pub(super) fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    // Rust would take a sign as well.
    let are_digits = digits.chars().all(|digit| digit.is_digit(radix));
    let number = u64::from_str_radix(digits, radix);
    number.ok().filter(|_| are_digits)
}

/// A span of time, in seconds.
pub(super) fn span(seconds: f64) -> Result<Duration, Failure> {
    let span = Duration::try_from_secs_f64(seconds);
    span.map_err(|error| Failure::Usage(format!("timeout {seconds}: {error}")))
}

/// How long an answer may take, in seconds. Not 0, with which a socket waits without end.
pub(super) fn patience(text: &str) -> Result<Duration, String> {
    let span = text.parse().ok().map(Duration::try_from_secs_f64);
    span.and_then(Result::ok)
        .filter(|span| !span.is_zero())
        .ok_or_else(|| "want a number of seconds above 0".to_owned())
}

/// An SM_Key, which OpenSM's configuration has in hexadecimal.
pub(super) fn sm_key(text: &str) -> Result<u64, String> {
    number(text).ok_or_else(|| "want a number of 64 bits, decimal or 0x and hexadecimal".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_may_take_some_time_and_not_for_ever() {
        assert_eq!(patience("0.5"), Ok(Duration::from_millis(500)));
        for text in ["", "0", "-1", "nan", "inf", "1e300", "soon"] {
            assert!(patience(text).is_err(), "{text}");
        }
    }

    #[test]
    fn keys_are_decimal_or_hexadecimal() {
        assert_eq!(sm_key("0"), Ok(0));
        assert_eq!(sm_key("10"), Ok(10));
        assert_eq!(sm_key("0x10"), Ok(16));
        assert_eq!(sm_key("0xFFFFffffFFFFffff"), Ok(u64::MAX));
        for text in ["", "0x", "ff", "-1", "+1", "0x+1", "0x10000000000000000"] {
            assert!(sm_key(text).is_err(), "{text}");
        }
    }
}
