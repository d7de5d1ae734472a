// SPDX-License-Identifier: MIT OR Apache-2.0
//! Subnet management packets (IBA 14.2.1), as far as a host asks its own ports.

mod port_info;

pub use port_info::{PortInfo, PortState};

use crate::layout::attribute;
use crate::mad::{self, Header, MAD_LEN};
use crate::{DecodeError, Lid};

/// The class version of SMPs.
pub const CLASS_VERSION: u8 = 1;

/// PortInfo; the attribute modifier is the port number, 0 the port that the SMP came in by.
pub const ATTR_PORT_INFO: u16 = 0x0015;

/// Direction bit in the status of directed route SMPs: set on the way back.
const DIRECTION: u16 = 0x8000;

/// A subnet management packet, LID routed or of directed route without a hop.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Smp {
    /// The MAD's header.
    pub header: Header,
    /// Key of the subnet manager.
    pub m_key: u64,
    /// The attribute.
    pub data: crate::PrivateData<64>,
}

attribute! {
    /// Everything after the MAD's header. Directed route LIDs and the hops' ports are read by nobody
    /// here and written as the permissive LID and zero: a packet with hop count 0 ends where it starts.
    struct Body: 232 {
        m_key: u64 = [0, 0, 64],
        dr_slid: Lid = [8, 0, 16],
        dr_dlid: Lid = [10, 0, 16],
        data: crate::PrivateData<64> = [40, 0, 512],
    }
}

/// How an SMP finds its port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Routing {
    /// By the LID in the packet's route header. The port must have a LID.
    Lid,
    /// By hops, here none: the local port, with or without a LID.
    Directed,
}

/// An SMP is not the answer that was awaited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResponseError {
    /// The port refuses.
    #[error("subnet management agent answers with status {0:#06x}")]
    Status(u16),
    /// Not GetResp(PortInfo).
    #[error("method {method:#04x} attribute {attribute:#06x} is no answer to get port info")]
    Other {
        /// The method found.
        method: u8,
        /// The attribute found.
        attribute: u16,
    },
}

impl Smp {
    /// SubnGet(PortInfo) of port `port` of the local device.
    pub fn get_port_info(routing: Routing, transaction_id: u64, port: u8) -> Self {
        let mgmt_class = match routing {
            Routing::Lid => mad::CLASS_SM_LID_ROUTED,
            Routing::Directed => mad::CLASS_SM_DIRECTED_ROUTE,
        };
        let header = Header {
            base_version: mad::BASE_VERSION,
            mgmt_class,
            class_version: CLASS_VERSION,
            method: mad::METHOD_GET,
            transaction_id,
            attribute_id: ATTR_PORT_INFO,
            attribute_modifier: port.into(),
            ..Header::default()
        };
        Self {
            header,
            ..Self::default()
        }
    }

    /// Reads an SMP of either routing.
    ///
    /// # Errors
    /// Bytes that are no MAD of class 0x01 or 0x81, version 1.
    pub fn decode(mad: &[u8]) -> Result<Self, DecodeError> {
        let (header, body) = Header::split(mad)?;
        if header.mgmt_class == mad::CLASS_SM_DIRECTED_ROUTE {
            header.expect_version(CLASS_VERSION)?;
        } else {
            header.expect_class(mad::CLASS_SM_LID_ROUTED, CLASS_VERSION)?;
        }
        let Body { m_key, data, .. } = Body::decode(body);
        Ok(Self {
            header,
            m_key,
            data,
        })
    }

    /// The bytes.
    pub fn encode(&self) -> [u8; MAD_LEN] {
        let dr_lid = match self.routing() {
            Routing::Lid => Lid(0),
            Routing::Directed => Lid::PERMISSIVE,
        };
        let body = Body {
            m_key: self.m_key,
            dr_slid: dr_lid,
            dr_dlid: dr_lid,
            data: self.data,
        };
        self.header.join(&body.encode())
    }

    /// How the packet finds its port.
    pub fn routing(&self) -> Routing {
        if self.header.mgmt_class == mad::CLASS_SM_DIRECTED_ROUTE {
            Routing::Directed
        } else {
            Routing::Lid
        }
    }

    /// The answer to [`Smp::get_port_info`].
    ///
    /// # Errors
    /// The port refuses, or the packet is no such answer.
    pub fn port_info(&self) -> Result<PortInfo, ResponseError> {
        let Header {
            method,
            attribute_id: attribute,
            ..
        } = self.header;
        if (method, attribute) != (mad::METHOD_GET_RESP, ATTR_PORT_INFO) {
            return Err(ResponseError::Other { method, attribute });
        }
        match self.header.status & !DIRECTION {
            0 => Ok(PortInfo::decode(&self.data.0)),
            status => Err(ResponseError::Status(status)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_by_directed_route_has_no_hop() {
        let mad = Smp::get_port_info(Routing::Directed, 5, 2).encode();
        assert_eq!(mad[..8], [1, 0x81, 1, 1, 0, 0, 0, 0]);
        assert_eq!(mad[16..24], [0, 0x15, 0, 0, 0, 0, 0, 2]);
        assert_eq!(
            mad[32..36],
            [0xff; 4],
            "permissive source and destination LID"
        );
        assert!(mad[36..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn question_by_lid() {
        let mad = Smp::get_port_info(Routing::Lid, 5, 0).encode();
        assert_eq!(mad[..8], [1, 1, 1, 1, 0, 0, 0, 0]);
        assert!(mad[24..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn direction_is_no_error() {
        let mut smp = Smp::get_port_info(Routing::Directed, 5, 1);
        let asked = ResponseError::Other {
            method: 1,
            attribute: 0x15,
        };
        assert_eq!(smp.port_info(), Err(asked));
        smp.header.method = mad::METHOD_GET_RESP;
        smp.header.status = 0x8000;
        assert_eq!(smp.port_info(), Ok(PortInfo::default()));
        smp.header.status = 0x801c;
        assert_eq!(smp.port_info(), Err(ResponseError::Status(0x1c)));
    }

    #[test]
    fn other_classes_are_refused() {
        let mut mad = Smp::get_port_info(Routing::Lid, 5, 1).encode();
        mad[1] = 4;
        assert_eq!(
            Smp::decode(&mad),
            Err(DecodeError::MgmtClass { found: 4, want: 1 })
        );
        mad[1] = 0x81;
        mad[2] = 2;
        assert_eq!(
            Smp::decode(&mad),
            Err(DecodeError::ClassVersion { found: 2, want: 1 })
        );
    }
}
