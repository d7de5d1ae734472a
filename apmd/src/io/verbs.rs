// SPDX-License-Identifier: MIT OR Apache-2.0
//! RDMA devices by libibverbs: what they are, and their asynchronous events.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::path::Path;
use std::ptr::NonNull;
use std::rc::Rc;

use cm_msgs::{Gid, Guid, PKey};
use rdma_sys as ffi;

use super::port_tables::PortTables;

// `enum ibv_event_type`, `enum ibv_device_cap_flags`, link layer of `struct ibv_port_attr`: C
// constants, because a Rust enum must not hold what a newer kernel may send.
const EVENT_DEVICE_FATAL: u32 = 8;
const EVENT_PORT_ACTIVE: u32 = 9;
const EVENT_PORT_ERR: u32 = 10;
const EVENT_LID_CHANGE: u32 = 11;
const EVENT_PKEY_CHANGE: u32 = 12;
const EVENT_SM_CHANGE: u32 = 13;
const EVENT_CLIENT_REREGISTER: u32 = 17;
const EVENT_GID_CHANGE: u32 = 18;
const DEVICE_AUTO_PATH_MIG: u32 = 1 << 4;
const LINK_LAYER_UNSPECIFIED: u8 = 0;
const LINK_LAYER_INFINIBAND: u8 = 1;
/// `IBV_QPF_GRH_REQUIRED` of `struct ibv_port_attr`'s flags.
const FLAG_GRH_REQUIRED: u8 = 1 << 0;

const SYSFS: &str = "/sys/class/infiniband";
/// Where the kernel says what the device of a uverbs file is called.
const UVERBS: &str = "/sys/class/infiniband_verbs";

/// A device that user space may use now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Listed {
    /// Its uverbs file's name (`uverbs0`), which it keeps for as long as it is there.
    pub(crate) uverbs: String,
    /// Its name, which may be changed at any time: by udev's rules when it has just appeared, or by `rdma dev set`.
    pub(crate) name: String,
    /// Its node GUID.
    pub(crate) node_guid: Guid,
}

/// An asynchronous event, as far as ports go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PortEvent {
    /// The port is lost.
    Error(u8),
    /// Something about the port is different.
    Changed(u8),
    /// The subnet manager wants to be told again what it was told before.
    Reregister(u8),
    /// The device is lost.
    DeviceFatal,
}

/// What a port says of itself that PortInfo does not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PortFacts {
    /// Link layer InfiniBand.
    pub(crate) infiniband: bool,
    /// It sends nothing without a GRH: a virtual function, as clouds have them.
    pub(crate) grh_required: bool,
    /// GID index 0.
    pub(crate) gid: Gid,
    /// The P_Key table by index; 0 for an empty entry.
    pub(crate) pkeys: Vec<PKey>,
}

/// An opened verbs context: closed when the last that was made from it is gone.
#[derive(Debug)]
pub(super) struct Context(NonNull<ffi::ibv_context>);

impl Context {
    pub(super) fn as_ptr(&self) -> *mut ffi::ibv_context {
        self.0.as_ptr()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is open, and whatever was made from it held a count of it and is
        // gone; nobody uses it again.
        unsafe { ffi::ibv_close_device(self.0.as_ptr()) };
    }
}

/// An opened RDMA device.
#[derive(Debug)]
pub(crate) struct Device {
    context: Rc<Context>,
    /// As in [`Listed`].
    uverbs: String,
    /// Its node GUID.
    pub(crate) node_guid: Guid,
    /// Ports.
    pub(crate) ports: u8,
    /// It claims automatic path migration.
    pub(crate) apm: bool,
}

/// The RDMA devices that user space may use now, by their names.
pub(crate) fn list() -> Vec<Listed> {
    let mut devices = Vec::new();
    for_each_device(|_, listed| {
        devices.push(listed.clone());
        None::<()>
    });
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    devices
}

/// What the kernel calls the device of a uverbs file now. libibverbs keeps the name that a device had when this
/// process saw it first (`ibverbs_get_device_list`), and looks for its files in sysfs by that for ever.
fn name_of(uverbs_class: &Path, uverbs: &str) -> io::Result<String> {
    let name = fs::read_to_string(uverbs_class.join(uverbs).join("ibdev"))?;
    Ok(name.trim().to_owned())
}

/// Whether the device that has this node GUID and so many ports is still there, without an InfiniBand port. Nothing
/// is opened for it.
pub(crate) fn is_still_foreign(name: &str, node_guid: Guid, ports: u8) -> bool {
    is_foreign_in(&Path::new(SYSFS).join(name), node_guid, ports)
}

fn is_foreign_in(device: &Path, node_guid: Guid, ports: u8) -> bool {
    let says = |file: &str, wanted: &str| {
        let text = fs::read_to_string(device.join(file));
        text.is_ok_and(|text| text.trim() == wanted)
    };
    let [a, b, c, d, e, f, g, h] = node_guid.0.to_be_bytes();
    let guid = format!("{a:02x}{b:02x}:{c:02x}{d:02x}:{e:02x}{f:02x}:{g:02x}{h:02x}");
    says("node_guid", &guid)
        && (1..=ports).all(|port| says(&format!("ports/{port}/link_layer"), "Ethernet"))
}

/// Shows `f` each device until it returns something.
fn for_each_device<T>(mut f: impl FnMut(*mut ffi::ibv_device, &Listed) -> Option<T>) -> Option<T> {
    let mut count: c_int = 0;
    // SAFETY: `count` outlives the call; the list is checked for null before use.
    let list = unsafe { ffi::ibv_get_device_list(&raw mut count) };
    if list.is_null() {
        return None;
    }
    let mut found = None;
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the list has `count` valid entries, and each has two NUL-terminated names that
        // live as long as the list.
        let (device, uverbs, first_name, node_guid) = unsafe {
            let device = *list.add(index);
            let uverbs = CStr::from_ptr((&raw const (*device).dev_name).cast());
            let first_name = CStr::from_ptr(ffi::ibv_get_device_name(device));
            let node_guid = ffi::ibv_get_device_guid(device);
            (device, uverbs, first_name, node_guid)
        };
        let uverbs = uverbs.to_string_lossy().into_owned();
        let name = name_of(Path::new(UVERBS), &uverbs);
        let listed = Listed {
            // One that has gone since the list was made has no file any more.
            name: name.unwrap_or_else(|_| first_name.to_string_lossy().into_owned()),
            node_guid: Guid(u64::from_be(node_guid)),
            uverbs,
        };
        found = f(device, &listed);
        if found.is_some() {
            break;
        }
    }
    // SAFETY: the list came from `ibv_get_device_list` and is freed once; opened devices live on.
    unsafe { ffi::ibv_free_device_list(list) };
    found
}

impl Device {
    /// Opens the first device that is wanted; its event file does not block.
    ///
    /// # Errors
    /// No such device, or no right to it.
    pub(crate) fn open(is_wanted: impl Fn(&Listed) -> bool) -> io::Result<Self> {
        let opened = for_each_device(|device, listed| {
            is_wanted(listed).then(|| {
                // SAFETY: `device` is in the list that `for_each_device` still holds.
                let context = NonNull::new(unsafe { ffi::ibv_open_device(device) });
                context
                    .ok_or_else(io::Error::last_os_error)
                    .map(|context| (Rc::new(Context(context)), listed.clone()))
            })
        });
        let (context, listed) = opened.ok_or(io::ErrorKind::NotFound)??;
        let mut device = Self {
            context,
            uverbs: listed.uverbs,
            node_guid: listed.node_guid,
            ports: 0,
            apm: false,
        };
        device.query()?;
        super::set_nonblocking(device.async_fd())?;
        Ok(device)
    }

    fn query(&mut self) -> io::Result<()> {
        let mut attr = MaybeUninit::<ffi::ibv_device_attr>::zeroed();
        // SAFETY: the context is open, and `attr` has room for what the call writes.
        let result = unsafe { ffi::ibv_query_device(self.context.as_ptr(), attr.as_mut_ptr()) };
        check(result)?;
        // SAFETY: all of it was zeroed, then written: integers only.
        let attr = unsafe { attr.assume_init() };
        self.ports = attr.phys_port_cnt;
        self.apm = attr.device_cap_flags & DEVICE_AUTO_PATH_MIG != 0;
        Ok(())
    }

    /// What port `port` says of itself.
    ///
    /// # Errors
    /// The device has gone.
    pub(crate) fn port_facts(&self, port: u8) -> io::Result<PortFacts> {
        let mut attr = MaybeUninit::<ffi::ibv_port_attr>::zeroed();
        // SAFETY: the context is open, and `attr` has room for what the call writes.
        let result =
            unsafe { ffi::___ibv_query_port(self.context.as_ptr(), port, attr.as_mut_ptr()) };
        check(result)?;
        // SAFETY: all of it was zeroed, then written: integers only.
        let attr = unsafe { attr.assume_init() };
        // Not asked of libibverbs, which would read them under the name that the device had first.
        let name = name_of(Path::new(UVERBS), &self.uverbs)?;
        let (gid, pkeys) = PortTables::of(&name, port).as_far_as_told(attr.pkey_tbl_len)?;
        Ok(PortFacts {
            // Drivers that leave it open are from before there was anything but InfiniBand.
            infiniband: matches!(
                attr.link_layer,
                LINK_LAYER_UNSPECIFIED | LINK_LAYER_INFINIBAND
            ),
            grh_required: attr.flags & FLAG_GRH_REQUIRED != 0,
            gid,
            pkeys,
        })
    }

    /// The next event that is about a port; `None` when there is none for now.
    ///
    /// # Errors
    /// The device has gone.
    pub(crate) fn next_event(&self) -> io::Result<Option<PortEvent>> {
        loop {
            let mut event = MaybeUninit::<ffi::ibv_async_event>::zeroed();
            // SAFETY: the context is open, and `event` has room for what the call writes.
            let result =
                unsafe { ffi::ibv_get_async_event(self.context.as_ptr(), event.as_mut_ptr()) };
            if result != 0 {
                let error = io::Error::last_os_error();
                return match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(None),
                    io::ErrorKind::Interrupted => continue,
                    _ => Err(error),
                };
            }
            let event = event.as_mut_ptr();
            // The type is read as the integer that it is in C, for a value without a Rust name would be
            // undefined. The union's first bytes are the port number in port events.
            // SAFETY: the call filled the event in, and both fields are only looked at as integers.
            let (kind, port) = unsafe {
                let kind = (&raw const (*event).event_type).cast::<u32>().read();
                let port = (&raw const (*event).element).cast::<c_int>().read();
                ffi::ibv_ack_async_event(event);
                (kind, port)
            };
            if let Some(event) = port_event(kind, u8::try_from(port).unwrap_or(0)) {
                return Ok(Some(event));
            }
        }
    }

    pub(super) fn context(&self) -> &Rc<Context> {
        &self.context
    }

    fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context owns the descriptor and lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) }
    }
}

fn port_event(kind: u32, port: u8) -> Option<PortEvent> {
    match kind {
        EVENT_DEVICE_FATAL => Some(PortEvent::DeviceFatal),
        EVENT_PORT_ERR => Some(PortEvent::Error(port)),
        EVENT_PORT_ACTIVE | EVENT_LID_CHANGE | EVENT_PKEY_CHANGE | EVENT_SM_CHANGE
        | EVENT_GID_CHANGE => Some(PortEvent::Changed(port)),
        EVENT_CLIENT_REREGISTER => Some(PortEvent::Reregister(port)),
        _ => None,
    }
}

/// verbs return 0, -1 with errno, or a positive errno.
pub(super) fn check(result: c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        error if error > 0 => Err(io::Error::from_raw_os_error(error)),
        _ => Err(io::Error::last_os_error()),
    }
}

impl AsRawFd for Device {
    /// The file of its asynchronous events.
    fn as_raw_fd(&self) -> RawFd {
        // SAFETY: the context is open; the field does not change while it is.
        unsafe { (*self.context.as_ptr()).async_fd }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_numbers_are_those_of_the_header() {
        use ffi::ibv_event_type::*;
        assert_eq!(EVENT_DEVICE_FATAL, IBV_EVENT_DEVICE_FATAL);
        assert_eq!(EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ACTIVE);
        assert_eq!(EVENT_PORT_ERR, IBV_EVENT_PORT_ERR);
        assert_eq!(EVENT_LID_CHANGE, IBV_EVENT_LID_CHANGE);
        assert_eq!(EVENT_PKEY_CHANGE, IBV_EVENT_PKEY_CHANGE);
        assert_eq!(EVENT_SM_CHANGE, IBV_EVENT_SM_CHANGE);
        assert_eq!(EVENT_CLIENT_REREGISTER, IBV_EVENT_CLIENT_REREGISTER);
        assert_eq!(EVENT_GID_CHANGE, IBV_EVENT_GID_CHANGE);
        assert_eq!(
            DEVICE_AUTO_PATH_MIG,
            ffi::ibv_device_cap_flags::IBV_DEVICE_AUTO_PATH_MIG.0
        );
    }

    #[test]
    fn a_device_that_is_closed_is_known_by_its_files() {
        let device = std::env::temp_dir().join(format!("apmd-foreign-{}", std::process::id()));
        let write = |file: &str, text: &str| {
            let path = device.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let is_foreign = || is_foreign_in(&device, Guid(0x04d4_12ff_fe60_8ceb), 1);
        assert!(!is_foreign(), "it is not there");
        write("node_guid", "04d4:12ff:fe60:8ceb\n");
        write("ports/1/link_layer", "Ethernet\n");
        assert!(is_foreign());
        write("ports/1/link_layer", "InfiniBand\n");
        assert!(!is_foreign(), "its port's type was changed");
        write("ports/1/link_layer", "Ethernet\n");
        write("node_guid", "04d4:12ff:fe60:8cec\n");
        assert!(!is_foreign(), "it is another one");
        fs::remove_dir_all(device).unwrap();
    }

    #[test]
    fn a_device_has_the_name_that_the_kernel_has_for_it_now() {
        let sysfs = std::env::temp_dir().join(format!("apmd-renamed-{}", std::process::id()));
        fs::create_dir_all(sysfs.join("uverbs0")).unwrap();
        for name in ["mlx5_0", "ibp1s0"] {
            fs::write(sysfs.join("uverbs0/ibdev"), format!("{name}\n")).unwrap();
            assert_eq!(name_of(&sysfs, "uverbs0").unwrap(), name);
        }
        assert!(name_of(&sysfs, "uverbs1").is_err());
        fs::remove_dir_all(sysfs).unwrap();
    }

    #[test]
    fn events_of_queue_pairs_and_unknown_ones_are_nobodys_port() {
        assert_eq!(port_event(10, 2), Some(PortEvent::Error(2)));
        assert_eq!(port_event(11, 1), Some(PortEvent::Changed(1)));
        for other in [0, 6, 7, 19, 4711] {
            assert_eq!(port_event(other, 1), None);
        }
    }
}
