// SPDX-License-Identifier: MIT OR Apache-2.0
//! `apmctl sa`: what subnet administration knows, asked by umad without the daemon.

use clap::{Args, Subcommand, ValueEnum};
use cm_msgs::sa::{
    LinearForwardingTableRecord, LinkRecord, McMemberRecord, NodeRecord, PKeyTableRecord,
    PathRecord, PortInfoRecord, Record, SaMad, ServiceRecord, SlToVlMappingTableRecord,
    SwitchInfoRecord,
};
use serde_json::json;

use super::attribute::Attribute;
use super::number;
use super::{Failure, Options, Outcome, print};
use crate::io::sa_session::{SaSession, SessionError};
use paths::sa;

/// Copies of a request.
const TRIES: u8 = 2;

#[derive(Args)]
pub(super) struct Sa {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
#[command(infer_subcommands = true)]
enum Verb {
    /// Show a whole table
    Show {
        /// Which
        table: Table,
        /// Ask by a port of this device [default: the first active port]
        #[arg(long)]
        device: Option<String>,
        /// Ask by this port
        #[arg(long)]
        port: Option<u8>,
        /// How long the table may take
        #[arg(long, value_name = "SECS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3600))]
        timeout: u32,
        /// The subnet manager's SM_Key: without it, OpenSM keeps some things to itself; decimal,
        /// or hexadecimal after 0x
        #[arg(long, value_name = "KEY", default_value_t = 0, value_parser = number::sm_key)]
        sm_key: u64,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Table {
    /// NodeRecord: channel adapters' ports and switches
    Node,
    /// PortInfoRecord: all ports
    Port,
    /// SLtoVLMappingTableRecord
    Sl2vl,
    /// SwitchInfoRecord
    Switch,
    /// LinearForwardingTableRecord
    Lft,
    /// LinkRecord: links, from both ends
    Link,
    /// P_KeyTableRecord
    Pkey,
    /// PathRecord: from every port to every port
    Path,
    /// MCMemberRecord: multicast groups
    Group,
    /// ServiceRecord: registered services, apmd's among them
    Service,
}

impl Table {
    /// SubnAdmGetTable of everything.
    fn request(self) -> SaMad {
        match self {
            Self::Node => SaMad::get_table(0, &NodeRecord::any()),
            Self::Port => SaMad::get_table(0, &PortInfoRecord::any()),
            Self::Sl2vl => SaMad::get_table(0, &SlToVlMappingTableRecord::any()),
            Self::Switch => SaMad::get_table(0, &SwitchInfoRecord::any()),
            Self::Lft => SaMad::get_table(0, &LinearForwardingTableRecord::any()),
            Self::Link => SaMad::get_table(0, &LinkRecord::any()),
            Self::Pkey => SaMad::get_table(0, &PKeyTableRecord::any()),
            Self::Path => SaMad::get_table(0, &PathRecord::any()),
            Self::Group => SaMad::get_table(0, &McMemberRecord::any()),
            Self::Service => SaMad::get_table(0, &ServiceRecord::any()),
        }
    }
}

impl Sa {
    pub(super) fn run(self, options: &Options) -> Result<Outcome, Failure> {
        let Verb::Show {
            table,
            device,
            port,
            timeout,
            sm_key,
        } = self.verb;
        let mut session = SaSession::open(device.as_deref(), port)?;
        let mut request = table.request();
        request.sa.sm_key = sm_key;
        let response = session.ask(request, timeout * 1000, TRIES)?;
        let records: Option<Vec<_>> = response
            .records()
            .map(|record| Attribute::of_sa(response.attribute, record))
            .collect();
        let records = records.ok_or_else(|| {
            Failure::Failed(format!(
                "records of {} bytes are too short for attribute {:#06x}",
                response.record_len, response.attribute
            ))
        })?;
        if options.wants_json() {
            let records: Vec<_> = records.iter().map(|record| json!(record.json())).collect();
            options.print_json(&records)?;
        } else {
            let blocks = records.iter().map(|r| format!("{}\n{}", r.name, r.text()));
            print(&blocks.collect::<Vec<_>>().join("\n"))?;
        }
        Ok(Outcome::Ok)
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Sa(sa::Failure::Timeout) => Self::TimedOut(error.to_string()),
            other => Self::Failed(other.to_string()),
        }
    }
}
