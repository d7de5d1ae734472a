// SPDX-License-Identifier: MIT OR Apache-2.0
//! ServiceRecord (IBA 15.2.5.14).

use super::record::record;
use super::{NodeDescription, Template};
use crate::{Gid, PKey};

record! {
    /// A service, and at which port it is. Set registers it, Delete ends that; service ID, GID and P_Key name one.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct ServiceRecord: 176, 0x0031 {
        /// Which service.
        service_id: u64 = [0, 0, 64] @ 0,
        /// GID of the port.
        service_gid: Gid = [8, 0, 128] @ 1,
        /// The partition in which it is served.
        service_pkey: PKey = [24, 0, 16] @ 2,
        /// Seconds that it stays registered; all ones: for ever.
        service_lease: u32 = [28, 0, 32] @ 4,
        /// Of who registered it; zero in answers to ordinary hosts.
        service_key: [u8; 16] = [32, 0, 128] @ 5,
        /// What people call it: as a node's description, UTF-8 padded with zeros.
        service_name: NodeDescription = [48, 0, 512] @ 6,
        /// The service's own, bytes.
        service_data8: [u8; 16] = [112, 0, 128],
        /// The service's own, of 16 bits each.
        service_data16: [u8; 16] = [128, 0, 128],
        /// The service's own, of 32 bits each.
        service_data32: [u8; 16] = [144, 0, 128],
        /// The service's own, of 64 bits each.
        service_data64: [u8; 16] = [160, 0, 128],
    }
}

/// Each number of a record's data is a component.
const DATA8: u64 = 0xffff << 7;
const DATA16: u64 = 0xff << 23;

impl Template<ServiceRecord> {
    /// Only records of these `service_data8`.
    pub fn service_data8(mut self, service_data8: [u8; 16]) -> Self {
        self.record.service_data8 = service_data8;
        self.component_mask |= DATA8;
        self
    }

    /// Only records of these `service_data16`.
    pub fn service_data16(mut self, service_data16: [u8; 16]) -> Self {
        self.record.service_data16 = service_data16;
        self.component_mask |= DATA16;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Record, SaMad};
    use super::*;
    use crate::Guid;

    #[test]
    fn a_registration_names_its_components() {
        let gid = Gid::new(0xfe80 << 48, Guid(1));
        let mut name = NodeDescription::default();
        name.0[..4].copy_from_slice(b"name");
        let of = ServiceRecord::any()
            .service_id(7)
            .service_gid(gid)
            .service_pkey(PKey(0xffff))
            .service_lease(60)
            .service_name(name)
            .service_data8([8; 16])
            .service_data16([9; 16]);
        let mad = SaMad::set(2, &of).encode();
        assert_eq!(mad[..4], [1, 3, 2, 2]);
        assert_eq!(mad[16..18], [0, 0x31]);
        assert_eq!(mad[48..56], 0x7fff_ffd7u64.to_be_bytes());
        let data = &mad[56..];
        assert_eq!(data[..8], 7u64.to_be_bytes());
        assert_eq!(data[8..24], gid.0);
        assert_eq!(data[24..32], [0xff, 0xff, 0, 0, 0, 0, 0, 60]);
        assert_eq!(data[32..48], [0; 16]);
        assert_eq!(data[48..56], *b"name\0\0\0\0");
        assert_eq!((data[111], data[112], data[127]), (0, 8, 8));
        assert_eq!((data[128], data[143], data[144]), (9, 9, 0));
        let away = ServiceRecord::any().service_id(7).service_gid(gid);
        let mad = SaMad::delete(2, &away).encode();
        assert_eq!((mad[3], mad[55]), (0x15, 3));
    }
}
