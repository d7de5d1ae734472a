// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of the kernel's routes, which say from where a destination is reached.

use mio::Registry;

use super::token::Token;
use crate::io::routes::Routes;
use crate::io::watched;

/// Routes whose changes are heard of. If that cannot be, it is logged, and they are asked every time.
pub(super) fn subscribed(registry: &Registry) -> Routes {
    let mut routes = Routes::default();
    let subscribed = routes.subscribe();
    match subscribed.and_then(|fd| watched(fd, registry, Token::Routes)) {
        Ok(_) => routes,
        Err(error) => {
            tracing::warn!(%error, "changes of routes cannot be heard");
            Routes::default()
        }
    }
}
