// SPDX-License-Identifier: MIT OR Apache-2.0
//! Between the users of subnet administration and the ports.

use super::Daemon;
use crate::sa::{Failure, Response, User};
use crate::source::sa::paths;

impl Daemon {
    /// Sends what is asked of the SA, and gives its replies to who asked. Whether there were any.
    pub(super) fn drain_sa(&mut self) -> bool {
        while let Some(request) = self.sa.poll_send() {
            if let Err(error) = self.devices.send_sa(&request) {
                tracing::debug!(port = request.port.port, %error, "request to the SA not sent");
                self.sa.handle_unsent(request.transaction_id);
            }
        }
        let mut any = false;
        while let Some((user, reply)) = self.sa.poll_reply() {
            any = true;
            self.sa_reply(user, reply);
        }
        any
    }

    fn sa_reply(&mut self, user: User, reply: Result<Response, Failure>) {
        match user {
            User::Paths(query) => {
                self.sources
                    .handle_answer(self.clock.now(), query, paths(reply));
            }
            User::Fabric(_) | User::Join(_) | User::Inform(_) => {}
        }
    }
}
