// SPDX-License-Identifier: MIT OR Apache-2.0
//! Between the users of subnet administration and the ports.

use cm_msgs::sa::Trap;

use super::Daemon;
use super::token::PortKey;
use crate::io::umad::Incoming;
use crate::sa::{Failure, Report, Response, User};
use crate::source::sa::paths;

impl Daemon {
    /// Sends what is asked of the SA, and gives its replies to who asked. Whether there were any.
    pub(super) fn drain_sa(&mut self) -> bool {
        while let Some(report) = self.reports.poll_report() {
            self.reported(&report);
        }
        while let Some(ask) = self.reports.poll_ask() {
            self.sa.ask(ask);
        }
        while let Some(request) = self.sa.poll_send() {
            if let Err(error) = self.devices.send_sa(&request) {
                tracing::debug!(port = request.port.port, %error, "request to the SA not sent");
                self.sa.handle_unsent(request.transaction_id);
            }
        }
        let mut any = false;
        while let Some(user) = self.sa.poll_absent() {
            if let User::Paths(query) = user {
                any = true;
                self.sources.handle_absent(self.clock.now(), query);
            }
        }
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
            User::Inform(number) => self.reports.handle_reply(self.clock.now(), number, reply),
            User::Fabric(number) => self.fabric_reply(number, reply),
            User::Join(user) => self.acm_net_joined(user, reply),
        }
    }

    /// A MAD of method Report came in. Only the subnet manager's count: nobody else may send the
    /// daemon looking.
    pub(super) fn report(&mut self, key: PortKey, mad: &Incoming) -> Result<(), String> {
        let Some(port) = self.devices.port(key) else {
            return Ok(());
        };
        let sm_lid = port.watch.status().map(|status| status.sm_lid);
        if mad.qpn != 1 || Some(mad.lid) != sm_lid {
            let sm_lid = sm_lid.unwrap_or_default();
            return Err(format!(
                "report from lid {} queue pair {}, the subnet manager is lid {sm_lid}",
                mad.lid, mad.qpn
            ));
        }
        let answer = self.reports.handle_report(port.id, &mad.bytes);
        let answer = answer.map_err(|error| error.to_string())?;
        if let Err(error) = self.devices.answer_report(key, mad, &answer) {
            tracing::debug!(port = key.port, %error, "report not answered");
        }
        Ok(())
    }

    /// The SA told of something.
    fn reported(&mut self, report: &Report) {
        let Report { port, notice } = report;
        let (trap, lid) = (notice.trap_number, notice.issuer_lid.0);
        tracing::debug!(port = port.port, trap, lid, what = ?notice.trap(), "reported");
        self.ssa.handle_report(self.clock.now());
        match notice.trap() {
            Some(Trap::OutOfService(gid)) => self.acm_gid_gone(gid),
            Some(Trap::LinkState(_)) => self.acm_link_report(),
            _ => {}
        }
    }
}
