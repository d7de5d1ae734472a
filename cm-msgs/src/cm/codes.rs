// SPDX-License-Identifier: MIT OR Apache-2.0
//! Codes in CM messages.

use crate::codes::codes;

codes! {
    /// What became of the alternate path of a REQ (IBA 12.7.10).
    pub enum FailoverAccepted: u8 {
        Accepted = 0, "accepted";
        NotSupported = 1, "not supported";
        Rejected = 2, "rejected";
    }
}

codes! {
    /// Answer to a LAP (IBA 12.8.2.1, table "AP Status").
    pub enum ApStatus: u8 {
        Success = 0, "success";
        InvalidCommId = 1, "invalid communication id";
        Unsupported = 2, "migration not supported";
        Rejected = 3, "rejected";
        Redirect = 4, "redirect";
        IsCurrent = 5, "is the current path";
        InvalidQpn = 6, "invalid queue pair or end-to-end context";
        InvalidLid = 7, "invalid lid";
        InvalidGid = 8, "invalid gid";
        InvalidFlowLabel = 9, "invalid flow label";
        InvalidTrafficClass = 10, "invalid traffic class";
        InvalidHopLimit = 11, "invalid hop limit";
        InvalidPacketRate = 12, "invalid packet rate";
        InvalidSl = 13, "invalid service level";
    }
}

codes! {
    /// Answer to a SAP. Provisional: the numbers of SWG7322 are not public; these are ours.
    pub enum SpStatus: u8 {
        Success = 0, "success";
        InvalidCommId = 1, "invalid communication id";
        Unsupported = 2, "migration not supported";
        Rejected = 3, "rejected";
        Busy = 4, "busy";
        IsCurrent = 5, "is the current path";
    }
}

codes! {
    /// What a REJ rejects (IBA 12.6.7.1).
    pub enum Rejected: u8 {
        Req = 0, "REQ";
        Rep = 1, "REP";
        NoMessage = 2, "no message";
    }
}

codes! {
    /// Why a REJ rejects (IBA 12.6.7.2; 35 from Linux).
    pub enum RejReason: u16 {
        NoQp = 1, "no queue pair available";
        NoEec = 2, "no end-to-end context available";
        NoResources = 3, "no resources available";
        Timeout = 4, "timeout";
        Unsupported = 5, "unsupported request";
        InvalidCommId = 6, "invalid communication id";
        InvalidCommInstance = 7, "invalid communication instance";
        InvalidServiceId = 8, "invalid service id";
        InvalidTransportType = 9, "invalid transport service type";
        StaleConnection = 10, "stale connection";
        RdcDoesNotExist = 11, "reliable datagram channel does not exist";
        InvalidPrimaryGid = 12, "primary remote port gid rejected";
        InvalidPrimaryLid = 13, "primary remote port lid rejected";
        InvalidPrimarySl = 14, "invalid primary service level";
        InvalidPrimaryTrafficClass = 15, "invalid primary traffic class";
        InvalidPrimaryHopLimit = 16, "invalid primary hop limit";
        InvalidPrimaryPacketRate = 17, "invalid primary packet rate";
        InvalidAlternateGid = 18, "alternate remote port gid rejected";
        InvalidAlternateLid = 19, "alternate remote port lid rejected";
        InvalidAlternateSl = 20, "invalid alternate service level";
        InvalidAlternateTrafficClass = 21, "invalid alternate traffic class";
        InvalidAlternateHopLimit = 22, "invalid alternate hop limit";
        InvalidAlternatePacketRate = 23, "invalid alternate packet rate";
        PortAndCmRedirect = 24, "port and communication manager redirection";
        PortRedirect = 25, "port redirection";
        InvalidMtu = 26, "invalid path mtu";
        InsufficientResponderResources = 27, "insufficient responder resources";
        ConsumerReject = 28, "consumer reject";
        RnrRetryCount = 29, "receiver-not-ready retry count reject";
        DuplicateLocalCommId = 30, "duplicate local communication id";
        InvalidClassVersion = 31, "invalid class version";
        InvalidPrimaryFlowLabel = 32, "invalid primary flow label";
        InvalidAlternateFlowLabel = 33, "invalid alternate flow label";
        VendorOptionNotSupported = 35, "vendor option not supported";
    }
}
