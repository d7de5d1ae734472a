// SPDX-License-Identifier: MIT OR Apache-2.0
//! Doorbells: ids of our own on an application's channel. Each resolves the address of a local port, so
//! that the kernel queues an event which wakes whoever waits for the channel.
#![allow(unsafe_code)]

use std::ptr::{self, null_mut};

use nix::errno::Errno;
use rdma_sys::{rdma_cm_id, rdma_event_channel, rdma_port_space, rdma_resolve_addr};

use super::{ChannelKey, LocalPort};
use crate::device::check;
use crate::real::real;

/// What the `context` of every doorbell points to. No id of the application's does.
static MARK: u8 = 0;

/// The address of a doorbell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bell(pub(super) usize);

impl Bell {
    /// The id as a doorbell, if it is one. The mark in the id tells, no table: another thread may have
    /// taken the bell out of the tables since its event was read.
    ///
    /// # Safety
    /// `id` is a valid id.
    pub(crate) unsafe fn of(id: *const rdma_cm_id) -> Option<Self> {
        // SAFETY: the id is valid.
        let context = unsafe { (*id).context };
        ptr::eq(context.cast(), &raw const MARK).then_some(Self(id as usize))
    }

    /// Makes a doorbell on the channel and rings it.
    ///
    /// # Safety
    /// The application does not destroy the channel during the call.
    pub(super) unsafe fn ring(channel: ChannelKey, port: LocalPort) -> Result<Self, Errno> {
        let mut id = null_mut();
        let mark = (&raw const MARK).cast_mut().cast();
        // SAFETY: the channel exists. librdmacm hands out the context and never looks behind it.
        check(unsafe {
            let channel = channel.0 as *mut rdma_event_channel;
            (real().rdma_create_id)(channel, &mut id, mark, rdma_port_space::RDMA_PS_TCP)
        })?;
        let bell = Self(id as usize);
        let mut address = SockaddrIb::of(port);
        // SAFETY: `id` is the new id; librdmacm reads as much of the address as its family has.
        let rung = check(unsafe {
            let address = (&raw mut address).cast::<libc::sockaddr>();
            rdma_resolve_addr(id, null_mut(), address.cast(), RESOLVE_TIMEOUT_MS)
        });
        if rung.is_err() {
            // SAFETY: the id was made above, and nobody else knows it.
            unsafe { bell.destroy() };
        }
        rung.map(|()| bell)
    }

    /// Destroys it, and with it the event that makes its channel readable, unless that has been read.
    /// Then this waits until whoever read it has acknowledged it.
    ///
    /// # Safety
    /// Nobody else destroys it: the caller has made it, or taken it out of the tables. Its channel exists.
    pub(crate) unsafe fn destroy(self) {
        // SAFETY: it is an id as long as it is not destroyed.
        unsafe { (real().rdma_destroy_id)(self.0 as *mut rdma_cm_id) };
    }

    /// # Safety
    /// As of [`Self::destroy`], for each.
    pub(crate) unsafe fn destroy_all(bells: Vec<Self>) {
        for bell in bells {
            // SAFETY: see above.
            unsafe { bell.destroy() };
        }
    }
}

/// Resolving a local address does not wait for anybody.
const RESOLVE_TIMEOUT_MS: i32 = 1000;

/// `struct sockaddr_ib` of `infiniband/ib.h`; addresses and masks big-endian.
#[repr(C)]
struct SockaddrIb {
    family: u16,
    pkey: [u8; 2],
    flow_info: [u8; 4],
    address: [u8; 16],
    service_id: [u8; 8],
    service_mask: [u8; 8],
    scope_id: u64,
}

impl SockaddrIb {
    /// `AF_IB`.
    const FAMILY: u16 = 27;
    /// `RDMA_IB_IP_PS_TCP`.
    const TCP_PORT_SPACE: u64 = 0x0106_0000;
    /// `RDMA_IB_IP_PS_MASK`.
    const PORT_SPACE_MASK: u64 = 0xffff_ffff_ffff_0000;

    fn of(port: LocalPort) -> Self {
        Self {
            family: Self::FAMILY,
            pkey: port.pkey.0.to_be_bytes(),
            flow_info: [0; 4],
            address: port.gid.0,
            service_id: Self::TCP_PORT_SPACE.to_be_bytes(),
            service_mask: Self::PORT_SPACE_MASK.to_be_bytes(),
            scope_id: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::zeroed;

    use super::*;

    #[test]
    fn a_doorbell_is_told_by_its_mark() {
        // SAFETY: all zero is a valid id: null pointers and numbers.
        let mut id: rdma_cm_id = unsafe { zeroed() };
        let of = |id: &rdma_cm_id| {
            // SAFETY: a reference is valid.
            unsafe { Bell::of(id) }
        };
        assert_eq!(of(&id), None);
        let own = 0_u8;
        id.context = (&raw const own).cast_mut().cast();
        assert_eq!(of(&id), None, "an application's");
        id.context = (&raw const MARK).cast_mut().cast();
        assert_eq!(of(&id), Some(Bell(&raw const id as usize)));
    }
}
