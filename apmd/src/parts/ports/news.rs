// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the others are told of a port.

use cm_msgs::PKey;
use statemachine::{PortId, PortStatus};

use crate::devices::{Device, Port};

/// A port, as it is now.
#[derive(Clone, Debug)]
pub(crate) struct PortNews {
    pub(crate) id: PortId,
    pub(crate) device: String,
    pub(crate) status: PortStatus,
    /// `enum ibv_rate`; 0 before it is known.
    pub(crate) rate: u8,
    /// 4.096 us * 2^n, 5 bits.
    pub(crate) subnet_timeout: u8,
    /// By index; 0 for an empty entry.
    pub(crate) pkeys: Vec<PKey>,
    /// Its umad file is open.
    pub(crate) has_mads: bool,
    /// Nothing leaves it without a GRH.
    pub(crate) requires_grh: bool,
}

impl PortNews {
    pub(super) fn of(device: &Device, port: &Port) -> Option<Self> {
        let watch = &port.watch;
        Some(Self {
            id: port.id,
            device: device.name.clone(),
            status: watch.status()?.clone(),
            rate: watch.rate(),
            subnet_timeout: watch.subnet_timeout(),
            pkeys: watch.pkey_table().to_vec(),
            has_mads: port.mad.is_some(),
            requires_grh: watch.requires_grh(),
        })
    }

    /// Whether it can ask subnet administration.
    pub(crate) fn reaches_sm(&self) -> bool {
        self.status.active && self.status.sm_lid.is_unicast() && self.has_mads
    }
}
