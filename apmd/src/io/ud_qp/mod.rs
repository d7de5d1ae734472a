// SPDX-License-Identifier: MIT OR Apache-2.0
//! An unreliable datagram queue pair of one port, with what it needs: protection domain, completion
//! queue and channel, registered buffers, address handles. Nothing here waits.
#![allow(unsafe_code)]

mod buffers;

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::rc::Rc;

use acm::net::{AddressVector, Datagram};
use cm_msgs::{Gid, Lid, Qpn};
use rdma_sys as ffi;

use self::buffers::Buffers;
use super::verbs::{Context, Device, check};
use super::verbs_objects::{Channel, Cq, Handle, Mr, Pd, Qp};

/// The largest payload that is sent and received: one MAD.
pub(crate) const PAYLOAD_LEN: usize = 256;
/// The global routing header, for which every receive buffer has room in front (IBA 8.3).
const GRH_LEN: usize = 40;
const GRH_SGID_AT: usize = 8;
const RECEIVE_LEN: usize = GRH_LEN + PAYLOAD_LEN;
/// Address handles kept for the next datagram to the same place.
const HANDLES_MAX: usize = 256;
/// Marks the work requests that are sends.
const SEND: u64 = 1 << 32;
/// `enum ibv_wc_flags`: the GRH is in the buffer.
const WC_GRH: u32 = 1;

/// What the queue pair is to be like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Setup {
    /// Its port.
    pub(crate) port: u8,
    /// Its partition, by index into the port's table.
    pub(crate) pkey_index: u16,
    /// What datagrams to it must carry, and those from it do.
    pub(crate) qkey: u32,
    /// Datagrams that are taken in before somebody looks.
    pub(crate) receives: u16,
    /// Datagrams under to at the same time.
    pub(crate) sends: u16,
}

/// The queue pair. Fields are dropped in their order: what was made from another comes first.
#[derive(Debug)]
pub(crate) struct UdQp {
    qp: Qp,
    handles: VecDeque<(AddressVector, Handle)>,
    cq: Cq,
    channel: Channel,
    mr: Mr,
    buffers: Buffers,
    pd: Pd,
    _context: Rc<Context>,
    setup: Setup,
    /// What each send buffer is under to to; `None` for a free one.
    sends: Vec<Option<AddressVector>>,
    /// The completion queue will raise an event.
    armed: bool,
    /// Taken from the completion queue while a send buffer was looked for.
    inbox: VecDeque<Datagram>,
}

impl UdQp {
    /// Makes the queue pair, ready to send and receive.
    ///
    /// # Errors
    /// The device says no: no such port or partition, out of resources, gone.
    pub(crate) fn open(device: &Device, setup: Setup) -> io::Result<Self> {
        let context = Rc::clone(device.context());
        // SAFETY: the context is open.
        let pd = Pd::made(unsafe { ffi::ibv_alloc_pd(context.as_ptr()) })?;
        let (receives, sends) = (usize::from(setup.receives), usize::from(setup.sends));
        let buffers = Buffers::new(receives * RECEIVE_LEN + sends * PAYLOAD_LEN)?;
        let access = ffi::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
        // SAFETY: the allocation has this length and outlives the region.
        let mr = Mr::made(unsafe {
            let (base, len) = (buffers.at(0).cast(), buffers.len());
            ffi::ibv_reg_mr(pd.as_ptr(), base, len, access as i32)
        })?;
        // SAFETY: the context is open.
        let channel = Channel::made(unsafe { ffi::ibv_create_comp_channel(context.as_ptr()) })?;
        // SAFETY: the channel is open and owns the descriptor.
        super::set_nonblocking(unsafe { BorrowedFd::borrow_raw((*channel.as_ptr()).fd) })?;
        let depth = i32::from(setup.receives) + i32::from(setup.sends);
        // SAFETY: context and channel are open, and the channel outlives the queue.
        let cq = Cq::made(unsafe {
            let none = ptr::null_mut();
            ffi::ibv_create_cq(context.as_ptr(), depth, none, channel.as_ptr(), 0)
        })?;
        let qp = create_qp(&pd, &cq, setup)?;
        let mut this = Self {
            qp,
            handles: VecDeque::new(),
            cq,
            channel,
            mr,
            buffers,
            pd,
            _context: context,
            setup,
            sends: vec![None; sends],
            armed: false,
            inbox: VecDeque::new(),
        };
        this.set_init()?;
        for slot in 0..this.setup.receives {
            this.post_receive(slot)?;
        }
        this.set_rts()?;
        this.arm()?;
        Ok(this)
    }

    /// Its number.
    pub(crate) fn qpn(&self) -> Qpn {
        // SAFETY: the queue pair exists; the field does not change.
        Qpn(unsafe { (*self.qp.as_ptr()).qp_num })
    }

    /// Takes in what is sent to the group.
    ///
    /// # Errors
    /// The device says no.
    pub(crate) fn attach(&mut self, group: Gid, lid: Lid) -> io::Result<()> {
        let gid = ffi::ibv_gid { raw: group.0 };
        // SAFETY: the queue pair exists, and `gid` outlives the call.
        check(unsafe { ffi::ibv_attach_mcast(self.qp.as_ptr(), &raw const gid, lid.0) })
    }

    /// Ends [`UdQp::attach`].
    ///
    /// # Errors
    /// The device says no, or never knew.
    pub(crate) fn detach(&mut self, group: Gid, lid: Lid) -> io::Result<()> {
        let gid = ffi::ibv_gid { raw: group.0 };
        // SAFETY: the queue pair exists, and `gid` outlives the call.
        check(unsafe { ffi::ibv_detach_mcast(self.qp.as_ptr(), &raw const gid, lid.0) })
    }

    /// Sends a datagram of at most [`PAYLOAD_LEN`] bytes.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]: as much as may be is under to; anything else: the device
    /// says no.
    pub(crate) fn send(&mut self, to: &AddressVector, qpn: Qpn, payload: &[u8]) -> io::Result<()> {
        if payload.len() > PAYLOAD_LEN {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let slot = self.free_send()?;
        let handle = self.handle(to)?;
        let offset = usize::from(self.setup.receives) * RECEIVE_LEN + slot * PAYLOAD_LEN;
        self.buffers.write(offset, payload);
        let mut sge = self.sge(offset, payload.len());
        // SAFETY: integers, pointers and unions of them, for which zero is a value.
        let mut request: ffi::ibv_send_wr = unsafe { MaybeUninit::zeroed().assume_init() };
        request.wr_id = SEND | slot as u64;
        request.sg_list = &raw mut sge;
        request.num_sge = 1;
        request.opcode = ffi::ibv_wr_opcode::IBV_WR_SEND;
        request.send_flags = ffi::ibv_send_flags::IBV_SEND_SIGNALED.0;
        request.wr.ud.ah = handle;
        request.wr.ud.remote_qpn = qpn.0;
        request.wr.ud.remote_qkey = self.setup.qkey;
        let mut refused = ptr::null_mut();
        // SAFETY: queue pair and handle exist, request and list outlive the call, and the buffer
        // is not touched again before its completion.
        check(unsafe { ffi::ibv_post_send(self.qp.as_ptr(), &raw mut request, &raw mut refused) })?;
        self.sends[slot] = Some(*to);
        Ok(())
    }

    /// What came in next; `None` when there is nothing for now, and the file will tell.
    ///
    /// # Errors
    /// The queue pair is broken and has to be made anew.
    pub(crate) fn receive(&mut self) -> io::Result<Option<Datagram>> {
        loop {
            if let Some(datagram) = self.inbox.pop_front() {
                return Ok(Some(datagram));
            }
            if self.complete()? {
                continue;
            }
            if self.take_events()? {
                self.armed = false;
            }
            if self.armed {
                return Ok(None);
            }
            self.arm()?;
        }
    }

    fn free_send(&mut self) -> io::Result<usize> {
        loop {
            if let Some(slot) = self.sends.iter().position(Option::is_none) {
                return Ok(slot);
            }
            if !self.complete()? {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
    }

    /// The address handle for a place; made if it is not there.
    fn handle(&mut self, to: &AddressVector) -> io::Result<*mut ffi::ibv_ah> {
        if let Some((_, handle)) = self.handles.iter().find(|(known, _)| known == to) {
            return Ok(handle.as_ptr());
        }
        if self.handles.len() >= HANDLES_MAX {
            // A handle must live as long as a send by it is under to (IBA 11.2.3.3); there are
            // fewer sends than handles.
            let idle = |(to, _): &(AddressVector, Handle)| !self.sends.contains(&Some(*to));
            if let Some(oldest) = self.handles.iter().position(idle) {
                self.handles.remove(oldest);
            }
        }
        let mut attr = ffi::ibv_ah_attr {
            grh: ffi::ibv_global_route {
                dgid: ffi::ibv_gid { raw: to.gid.0 },
                flow_label: to.flow_label,
                sgid_index: 0,
                hop_limit: to.hop_limit,
                traffic_class: to.traffic_class,
            },
            dlid: to.lid.0,
            sl: to.sl,
            src_path_bits: to.path_bits,
            static_rate: to.rate,
            is_global: 1,
            port_num: self.setup.port,
        };
        // SAFETY: the protection domain exists, and `attr` outlives the call.
        let handle = Handle::made(unsafe { ffi::ibv_create_ah(self.pd.as_ptr(), &raw mut attr) })?;
        let pointer = handle.as_ptr();
        self.handles.push_back((*to, handle));
        Ok(pointer)
    }

    /// Takes one completion; whether there was one.
    fn complete(&mut self) -> io::Result<bool> {
        let mut done = MaybeUninit::<ffi::ibv_wc>::zeroed();
        // SAFETY: the queue exists, and `done` has room for the one completion that is asked for.
        let count = unsafe { ffi::ibv_poll_cq(self.cq.as_ptr(), 1, done.as_mut_ptr()) };
        if count == 0 {
            return Ok(false);
        }
        check(count.min(0))?;
        // SAFETY: zeroed, then written: integers and a union of them only.
        let done = unsafe { done.assume_init() };
        if done.status != ffi::ibv_wc_status::IBV_WC_SUCCESS {
            let error = format!("work completion with status {}", done.status);
            return Err(io::Error::other(error));
        }
        if done.wr_id & SEND != 0 {
            self.sends[(done.wr_id & !SEND) as usize] = None;
        } else {
            self.received(&done)?;
        }
        Ok(true)
    }

    fn received(&mut self, done: &ffi::ibv_wc) -> io::Result<()> {
        let slot = done.wr_id as u16;
        let len = usize::try_from(done.byte_len).unwrap_or(0).min(RECEIVE_LEN);
        let mut bytes = [0; RECEIVE_LEN];
        self.buffers
            .read(usize::from(slot) * RECEIVE_LEN, &mut bytes[..len]);
        self.inbox.push_back(datagram(done, &bytes[..len]));
        self.post_receive(slot)
    }

    fn post_receive(&mut self, slot: u16) -> io::Result<()> {
        let mut sge = self.sge(usize::from(slot) * RECEIVE_LEN, RECEIVE_LEN);
        let mut request = ffi::ibv_recv_wr {
            wr_id: slot.into(),
            next: ptr::null_mut(),
            sg_list: &raw mut sge,
            num_sge: 1,
        };
        let mut refused = ptr::null_mut();
        // SAFETY: the queue pair exists, request and list outlive the call, and the buffer is not
        // touched before its completion.
        check(unsafe { ffi::ibv_post_recv(self.qp.as_ptr(), &raw mut request, &raw mut refused) })
    }

    fn sge(&self, offset: usize, len: usize) -> ffi::ibv_sge {
        ffi::ibv_sge {
            addr: self.buffers.at(offset) as u64,
            length: len as u32,
            // SAFETY: the region exists; the field does not change.
            lkey: unsafe { (*self.mr.as_ptr()).lkey },
        }
    }

    /// Takes the events out of the channel; whether there was one.
    fn take_events(&mut self) -> io::Result<bool> {
        let mut any = false;
        loop {
            let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: the channel exists, and both pointers have room for what the call writes.
            let result = unsafe {
                ffi::ibv_get_cq_event(self.channel.as_ptr(), &raw mut cq, &raw mut context)
            };
            if result == 0 {
                any = true;
                // SAFETY: the event is of our queue, the only one on the channel.
                unsafe { ffi::ibv_ack_cq_events(cq, 1) };
                continue;
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(any),
                io::ErrorKind::Interrupted => {}
                _ => return Err(error),
            }
        }
    }

    fn arm(&mut self) -> io::Result<()> {
        // SAFETY: the queue exists.
        check(unsafe { ffi::ibv_req_notify_cq(self.cq.as_ptr(), 0) })?;
        self.armed = true;
        Ok(())
    }

    fn set_init(&mut self) -> io::Result<()> {
        use ffi::ibv_qp_attr_mask as mask;
        let mut attr = zeroed_attr();
        attr.qp_state = ffi::ibv_qp_state::IBV_QPS_INIT;
        attr.port_num = self.setup.port;
        attr.pkey_index = self.setup.pkey_index;
        attr.qkey = self.setup.qkey;
        let what = mask::IBV_QP_STATE.0
            | mask::IBV_QP_PKEY_INDEX.0
            | mask::IBV_QP_PORT.0
            | mask::IBV_QP_QKEY.0;
        self.modify(&mut attr, what)
    }

    fn set_rts(&mut self) -> io::Result<()> {
        use ffi::ibv_qp_attr_mask as mask;
        let mut attr = zeroed_attr();
        attr.qp_state = ffi::ibv_qp_state::IBV_QPS_RTR;
        self.modify(&mut attr, mask::IBV_QP_STATE.0)?;
        attr.qp_state = ffi::ibv_qp_state::IBV_QPS_RTS;
        self.modify(&mut attr, mask::IBV_QP_STATE.0 | mask::IBV_QP_SQ_PSN.0)
    }

    fn modify(&mut self, attr: &mut ffi::ibv_qp_attr, mask: u32) -> io::Result<()> {
        // SAFETY: the queue pair exists, and `attr` outlives the call.
        check(unsafe { ffi::ibv_modify_qp(self.qp.as_ptr(), attr, mask as i32) })
    }
}

fn zeroed_attr() -> ffi::ibv_qp_attr {
    // SAFETY: integers and unions of them, for which zero is a value.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

fn create_qp(pd: &Pd, cq: &Cq, setup: Setup) -> io::Result<Qp> {
    // SAFETY: integers and pointers, for which zero is a value.
    let mut init: ffi::ibv_qp_init_attr = unsafe { MaybeUninit::zeroed().assume_init() };
    init.send_cq = cq.as_ptr();
    init.recv_cq = cq.as_ptr();
    init.qp_type = ffi::ibv_qp_type::IBV_QPT_UD;
    init.cap.max_send_wr = setup.sends.into();
    init.cap.max_recv_wr = setup.receives.into();
    init.cap.max_send_sge = 1;
    init.cap.max_recv_sge = 1;
    // SAFETY: domain and queue exist and outlive the queue pair; `init` outlives the call.
    Qp::made(unsafe { ffi::ibv_create_qp(pd.as_ptr(), &raw mut init) })
}

/// A completion and the buffer that it is about: the GRH, or room for it, and the payload.
fn datagram(done: &ffi::ibv_wc, bytes: &[u8]) -> Datagram {
    let gid = bytes
        .get(GRH_SGID_AT..)
        .and_then(|rest| rest.first_chunk().copied())
        .filter(|_| done.wc_flags & WC_GRH != 0)
        .map(Gid);
    Datagram {
        gid,
        lid: Lid(done.slid),
        qpn: Qpn(done.src_qp),
        sl: done.sl,
        path_bits: done.dlid_path_bits,
        payload: bytes.get(GRH_LEN..).unwrap_or_default().to_vec(),
    }
}

impl AsRawFd for UdQp {
    /// The file that tells of completions.
    fn as_raw_fd(&self) -> RawFd {
        // SAFETY: the channel is open; the field does not change while it is.
        unsafe { (*self.channel.as_ptr()).fd }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(flags: u32, len: u32) -> ffi::ibv_wc {
        // SAFETY: integers and a union of them, for which zero is a value.
        let mut done: ffi::ibv_wc = unsafe { MaybeUninit::zeroed().assume_init() };
        done.wc_flags = flags;
        done.byte_len = len;
        done.slid = 7;
        done.src_qp = 0x11;
        done.sl = 3;
        done.dlid_path_bits = 1;
        done
    }

    #[test]
    fn a_datagram_names_its_sender_by_the_grh() {
        let mut bytes = [0; RECEIVE_LEN];
        bytes[8..24].fill(0xfe);
        bytes[24..40].fill(0xff);
        bytes[40] = 1;
        let whole = datagram(&completion(WC_GRH, 296), &bytes);
        assert_eq!(whole.gid, Some(Gid([0xfe; 16])));
        assert_eq!((whole.lid, whole.qpn), (Lid(7), Qpn(0x11)));
        assert_eq!((whole.sl, whole.path_bits), (3, 1));
        assert_eq!(whole.payload.len(), PAYLOAD_LEN);
        assert_eq!(whole.payload[0], 1);
        let without = datagram(&completion(0, 296), &bytes);
        assert_eq!(without.gid, None, "the bytes are anybody's");
    }

    #[test]
    fn short_datagrams_are_short() {
        for len in 0..RECEIVE_LEN {
            let bytes = vec![0; len];
            let short = datagram(&completion(WC_GRH, len as u32), &bytes);
            assert_eq!(short.payload.len(), len.saturating_sub(GRH_LEN));
            assert_eq!(short.gid.is_some(), len >= 24);
        }
    }

    #[test]
    fn flags_are_those_of_the_header() {
        assert_eq!(WC_GRH, ffi::ibv_wc_flags::IBV_WC_GRH.0);
    }
}
