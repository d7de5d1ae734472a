// SPDX-License-Identifier: MIT OR Apache-2.0
//! `struct rdma_apm_options` and `enum rdma_alt_path_type`.

use std::num::{NonZeroU8, NonZeroU32};

use cm_msgs::control::{Mode, Placement, PolicyOverride};

use super::Wish;

/// The smallest that was ever declared ends behind `port`.
const SMALLEST: usize = 8;
/// What is known here.
const KNOWN: usize = 12;

/// Reads the structure: native byte order, as large as its first member says. What a smaller one does
/// not have is zero; what a larger one has besides must be. `None`: it is no good.
pub(super) fn read(bytes: &[u8]) -> Option<Wish> {
    let size = u32::from_ne_bytes(*bytes.first_chunk()?);
    if usize::try_from(size) != Ok(bytes.len()) || bytes.len() < SMALLEST {
        return None;
    }
    let (known, unknown) = bytes.split_at(bytes.len().min(KNOWN));
    if unknown.iter().any(|&byte| byte != 0) {
        return None;
    }
    let mut options = [0; KNOWN];
    options[..known.len()].copy_from_slice(known);
    let [_, _, _, _, on, mode, failback, port, hold_down @ ..] = options;
    let policy = PolicyOverride {
        mode: match mode {
            0 => None,
            code => Some(Mode::from_code(code)?),
        },
        placement: placement(failback, port)?,
        hold_down: NonZeroU32::new(u32::from_ne_bytes(hold_down)),
    };
    match on {
        0 => Some(Wish::Off),
        1 => Some(Wish::On(Some(policy))),
        _ => None,
    }
}

/// `enum rdma_apm_failback` and its port. The outer `None`: these do not belong together.
fn placement(failback: u8, port: u8) -> Option<Option<Placement>> {
    match (failback, NonZeroU8::new(port)) {
        (0, None) => Some(None),
        (1, None) => Some(Some(Placement::Stay)),
        (2, Some(port)) => Some(Some(Placement::Prefer(port))),
        (3, None) => Some(Some(Placement::Spread)),
        _ => None,
    }
}

/// What `rdma_enable_apm` is asked for by this number of `enum rdma_alt_path_type`.
pub(crate) fn of_type(number: i32) -> Option<Wish> {
    let mode = match number {
        0 => return Some(Wish::Off),
        1 => Mode::Port,
        2 => Mode::Lid,
        3 => Mode::Any,
        _ => return None,
    };
    Some(Wish::On(Some(PolicyOverride {
        mode: Some(mode),
        ..PolicyOverride::default()
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(size: u32, rest: &[u8]) -> Option<Wish> {
        let mut bytes = size.to_ne_bytes().to_vec();
        bytes.extend(rest);
        read(&bytes)
    }

    fn on(policy: PolicyOverride) -> Option<Wish> {
        Some(Wish::On(Some(policy)))
    }

    #[test]
    fn every_member_is_read() {
        let prefer = NonZeroU8::new(2).map(Placement::Prefer);
        let [a, b, c, d] = 1_500u32.to_ne_bytes();
        let policy = PolicyOverride {
            mode: Some(Mode::Lid),
            placement: prefer,
            hold_down: NonZeroU32::new(1_500),
        };
        assert_eq!(options(12, &[1, 3, 2, 2, a, b, c, d]), on(policy));
        assert_eq!(
            options(12, &[1, 0, 0, 0, 0, 0, 0, 0]),
            on(PolicyOverride::default())
        );
        assert_eq!(options(12, &[0; 8]), Some(Wish::Off));
    }

    #[test]
    fn older_and_newer_structures_are_read() {
        let spread = PolicyOverride {
            placement: Some(Placement::Spread),
            ..PolicyOverride::default()
        };
        assert_eq!(options(8, &[1, 0, 3, 0]), on(spread));
        assert_eq!(
            options(16, &[1, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            on(spread)
        );
        assert_eq!(options(16, &[1, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 1]), None);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (size, rest) in [
            (12, &[1, 0, 3, 0][..]),
            (8, &[1, 0, 3, 0, 0, 0, 0, 0]),
            (4, &[]),
            (0, &[1, 0, 3, 0]),
            (7, &[1, 0, 3]),
            (8, &[2, 0, 0, 0]),
            (8, &[1, 4, 0, 0]),
            (8, &[1, 0, 4, 0]),
            (8, &[1, 0, 2, 0]),
            (8, &[1, 0, 1, 1]),
            (8, &[1, 0, 0, 1]),
        ] {
            assert_eq!(options(size, rest), None, "{size} {rest:?}");
        }
        assert_eq!(read(&[1, 0]), None);
    }

    #[test]
    fn the_types_of_alternates_are_modes() {
        let mode = |number| match of_type(number) {
            Some(Wish::On(Some(policy))) => policy.mode,
            _ => None,
        };
        assert_eq!(of_type(0), Some(Wish::Off));
        assert_eq!(
            [1, 2, 3].map(mode),
            [Mode::Port, Mode::Lid, Mode::Any].map(Some)
        );
        assert_eq!((of_type(4), of_type(-1)), (None, None));
    }
}
