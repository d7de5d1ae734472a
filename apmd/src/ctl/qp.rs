// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl qp`: every RC queue pair of the host that the kernel module knows.

use clap::{Args, Subcommand};

use super::ask::ask;
use super::table::{self, Column, or_dash};
use super::{Failure, Options, Outcome, print};
use crate::observe::filter;
use crate::observe::queue_pairs::{HostQueuePair, QueuePairPage};
use crate::observe::request::{Request, Show};

#[derive(Args)]
pub(super) struct Qp {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
#[command(infer_subcommands = true)]
enum Verb {
    /// Show RC queue pairs, protected or not and why
    Show {
        /// Only those of this kernel module or command
        #[arg(value_name = "OWNER")]
        owner: Option<String>,
    },
}

impl Qp {
    pub(super) fn run(self, options: &Options) -> Result<Outcome, Failure> {
        let mut found = all(options)?;
        let owner = match self.verb {
            Some(Verb::Show { owner }) => owner,
            None => None,
        };
        if let Some(owner) = &owner {
            found.retain(|qp| qp.owner == *owner);
        }
        if found.is_empty() && !options.wants_json() {
            print(&nothing(owner.as_deref()))?;
            return Ok(Outcome::Ok);
        }
        options.show(&found, || table(&found))?;
        Ok(Outcome::Ok)
    }
}

/// What the module does not know may still be there.
fn nothing(owner: Option<&str>) -> String {
    let of_owner = owner
        .map(|owner| format!(" of {owner}"))
        .unwrap_or_default();
    format!(
        "no InfiniBand RC queue pair{of_owner} is known to the kernel module, which does not see those of RoCE \
         and iWARP devices and of DevX"
    )
}

fn all(options: &Options) -> Result<Vec<HostQueuePair>, Failure> {
    let mut request: Request = Show::Qp.into();
    let mut found = Vec::new();
    loop {
        let page: QueuePairPage = ask(options, request.clone())?;
        found.extend(page.queue_pairs);
        match page.next {
            Some(next) => request.after = Some(next),
            None => return Ok(found),
        }
    }
}

fn table(found: &[HostQueuePair]) -> String {
    let columns: [Column<HostQueuePair>; 7] = [
        ("DEVICE", |qp| qp.device.clone()),
        ("QPN", |qp| format!("0x{:06x}", qp.qpn)),
        ("OWNER", |qp| filter::owner(&qp.owner, qp.pid)),
        ("QP STATE", |qp| or_dash(qp.qp_state.clone())),
        ("CONN", |qp| or_dash(qp.connection.clone())),
        ("STATE", |qp| qp.protection.clone()),
        ("REASON", |qp| qp.reason.clone().unwrap_or_default()),
    ];
    table::table(found, &columns)
}
