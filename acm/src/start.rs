// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a resolution starts, and where it is to lead.

use std::net::IpAddr;

use cm_msgs::Gid;
use cm_msgs::acm::{Address, Status};
use cm_msgs::sa::PathRecord;

use super::endpoints::{Endpoint, EndpointId};
use super::local::Local;
use super::request::ResolveRequest;
use super::requester::Extra;

/// Finds the local address from which the kernel would send to another.
pub type SourceOf<'a> = dyn FnMut(IpAddr) -> Option<IpAddr> + 'a;

/// What a resolution begins with.
pub(crate) struct Start {
    pub(crate) from: EndpointId,
    pub(crate) extra: Extra,
    pub(crate) goal: Goal,
}

pub(crate) enum Goal {
    Resolve {
        to: Address,
        dgid: Gid,
        no_delay: bool,
    },
    Verify(PathRecord),
}

impl Start {
    pub(crate) fn of(
        request: ResolveRequest,
        local: &Local,
        source_of: &mut SourceOf<'_>,
    ) -> Result<Self, Status> {
        match request {
            ResolveRequest::Address {
                source,
                destination,
                no_delay,
            } => {
                let (from, chosen) = match source {
                    Some(source) => (local.endpoints.owner(&source), None),
                    None => choose_source(local, &destination, source_of)?,
                };
                Ok(Self {
                    from: from.ok_or(Status::SourceAddress)?.id,
                    extra: chosen.map_or(Extra::Nothing, Extra::Source),
                    goal: Goal::Resolve {
                        to: destination,
                        dgid: Gid::default(),
                        no_delay,
                    },
                })
            }
            ResolveRequest::Path { path, no_delay } => Self::of_path(local, &path, no_delay),
            ResolveRequest::Verify { path } => {
                let from = local.endpoints.start_of(&path);
                Ok(Self {
                    from: from.ok_or(Status::SourceAddress)?.id,
                    extra: Extra::Verification,
                    goal: Goal::Verify(path),
                })
            }
        }
    }

    pub(crate) fn of_path(
        local: &Local,
        path: &PathRecord,
        no_delay: bool,
    ) -> Result<Self, Status> {
        let from = local.endpoints.start_of(path);
        let to = match path.dlid.0 {
            0 => Address::Gid(path.dgid),
            _ => Address::Lid(path.dlid),
        };
        Ok(Self {
            from: from.ok_or(Status::SourceAddress)?.id,
            extra: Extra::Nothing,
            goal: Goal::Resolve {
                to,
                dgid: path.dgid,
                no_delay,
            },
        })
    }
}

/// An IP address is reached from where the kernel's routes say; anything else, and what the kernel
/// has no route to but the file of addresses knows, from the first port that is up.
fn choose_source<'a>(
    local: &'a Local,
    destination: &Address,
    source_of: &mut SourceOf<'_>,
) -> Result<(Option<&'a Endpoint>, Option<Address>), Status> {
    let ip = match destination {
        Address::Ip(ip) => Some(IpAddr::V4(*ip)),
        Address::Ip6(ip) => Some(IpAddr::V6(*ip)),
        _ => None,
    };
    let source = ip.and_then(source_of).map(|source| match source {
        IpAddr::V4(ip) => Address::Ip(ip),
        IpAddr::V6(ip) => Address::Ip6(ip),
    });
    if let Some(source) = source {
        return Ok((local.endpoints.owner(&source), Some(source)));
    }
    let mut endpoints = local.endpoints.listed(None);
    let from = match ip {
        Some(_) => endpoints.find(|from| local.listed(destination, from.pkey).is_some()),
        None => endpoints.next(),
    };
    let from = from.ok_or(Status::SourceAddress)?;
    Ok((Some(from), from.addresses.first().map(|own| own.address)))
}
