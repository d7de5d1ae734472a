// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fabric as data: switches, forwarding tables, ports and links; the path records of one end
//! against all others; the alternate that shares least with a primary.
//!
//! [`Builder`] makes a [`Fabric`] and refuses what contradicts itself; [`Delta`]s lead it from one
//! epoch to the next, whole or not at all. Everything else only reads it: answers are computed by
//! walking the forwarding tables as a packet would, for the very LIDs in question, so that each LID
//! of a port with several has its own path.
#![forbid(unsafe_code)]

pub mod addresses;
mod capability;
pub mod check;
mod disjoint;
mod fabric;
mod half_world;
pub mod import;
mod lid_range;
mod lines;
mod locate;
mod name;
mod packed;
pub mod risks;
pub mod snapshot;
mod summary;
mod walk;

pub use addresses::{Address, Addresses};
pub use capability::Capability;
pub use cm_msgs::rate::{Mtu, Rate, Speed, Width};
pub use disjoint::{
    Alternate, Candidate, Disjoint, ElementName, Finder, Fitness, Overlaps, Pair, Path, Shared,
    Sharing, Verdict, recheck, recheck_after,
};
pub use fabric::{
    BuildError, Builder, Change, Delta, DeltaError, Element, Fabric, Node, NodeId, NodeKind,
    NodeSpec, PathTerms, Port, PortId, PortName, PortSpec, RiskId, Risks, Routing, ServiceLevels,
    SlToVl,
};
pub use half_world::{PathRecord, World};
pub use lid_range::LidRange;
pub use lines::{Progress, ReadError};
pub use locate::{LocateError, Place};
pub use name::NodeName;
pub use risks::RiskFile;
pub use summary::Summary;
pub use walk::{Fault, Leg};
