// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;
use cm_msgs::Qpn;

const IB0: u32 = 3;
const IB1: u32 = 4;

fn gid(last: u8) -> Gid {
    let mut gid = [0; 16];
    (gid[0], gid[1], gid[15]) = (0xfe, 0x80, last);
    Gid(gid)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn key(interface: u32, text: &str) -> Key {
    Key {
        interface,
        ip: ip(text),
    }
}

fn address(last: u8, qpn: u32) -> LinkAddress {
    LinkAddress {
        flags: 0x80,
        qpn: Qpn(qpn),
        gid: gid(last),
    }
}

fn record(text: &str, last: u8, qpn: Option<u32>) -> Record {
    Record {
        ip: ip(text),
        gid: gid(last),
        pkey: PKey(0xffff),
        remote: qpn.map(|qpn| (Qpn(qpn), 0x80)),
    }
}

fn interface(name: &str, last: u8) -> Interface {
    Interface {
        name: name.to_owned(),
        gid: gid(last),
        pkey: PKey(0xffff),
        up: true,
    }
}

fn subnet(interface: u32, text: &str, prefix_len: u8) -> Subnet {
    Subnet {
        interface,
        ip: ip(text),
        prefix_len,
    }
}

/// A kernel: it does what is asked, and tells.
struct Kernel {
    now: Time,
    neighbours: Neighbours,
    changes: Vec<Change>,
}

impl Kernel {
    fn new(records: &[Record]) -> Self {
        let mut kernel = Self {
            now: Time(0),
            neighbours: Neighbours::default(),
            changes: Vec::new(),
        };
        kernel.neighbours.set_records(Time(0), records.to_vec());
        kernel.tell(Event::Interface(IB0, interface("ib0", 1)));
        kernel.tell(Event::Address(subnet(IB0, "10.0.1.1", 24)));
        kernel.tell(Event::Address(subnet(IB0, "fd00::1", 64)));
        kernel.tell(Event::Complete);
        kernel
    }

    fn tell(&mut self, event: Event) {
        self.neighbours.handle(self.now, event);
    }

    /// Lets everything settle; the changes that were made.
    fn settle(&mut self) -> Vec<Change> {
        while let Some(at) = self.neighbours.poll_timeout() {
            self.now = self.now.max(at);
            self.neighbours.handle_time(self.now);
            while let Some((request, change)) = self.neighbours.poll_change() {
                self.changes.push(change);
                self.tell(Event::Done(request, Ok(())));
                match change {
                    Change::Set(key, address) => self.tell(Event::Entry(
                        key,
                        Entry {
                            address: Some(address),
                            ours: true,
                        },
                    )),
                    Change::Remove(key) => self.tell(Event::EntryGone(key)),
                }
            }
        }
        std::mem::take(&mut self.changes)
    }

    fn kernels_own(&mut self, key: Key, address: Option<LinkAddress>) {
        let ours = false;
        self.tell(Event::Entry(key, Entry { address, ours }));
    }
}

#[test]
fn addresses_in_the_subnet_become_entries_and_go_with_their_records() {
    let records = [
        record("10.0.1.2", 2, Some(0x12)),
        record("10.0.2.2", 3, Some(0x13)),
        record("10.0.1.1", 1, Some(0x11)),
        record("fd00::2", 2, Some(0x12)),
        record("10.0.1.3", 4, None),
    ];
    let mut kernel = Kernel::new(&records);
    let two = Change::Set(key(IB0, "10.0.1.2"), address(2, 0x12));
    let sixth = Change::Set(key(IB0, "fd00::2"), address(2, 0x12));
    assert_eq!(kernel.settle(), [two, sixth]);
    let census = kernel.neighbours.census();
    assert_eq!(
        (
            census.wanted,
            census.ours,
            census.without_qpn,
            census.off_link
        ),
        (3, 2, 1, 1)
    );
    kernel
        .neighbours
        .set_records(kernel.now, records[3..].to_vec());
    assert_eq!(kernel.settle(), [Change::Remove(key(IB0, "10.0.1.2"))]);
    kernel.neighbours.set_records(kernel.now, Vec::new());
    assert_eq!(kernel.settle(), [Change::Remove(key(IB0, "fd00::2"))]);
    assert_eq!(kernel.neighbours.census().ours, 0);
}

#[test]
fn a_changed_record_changes_the_entry() {
    let mut kernel = Kernel::new(&[record("10.0.1.2", 2, Some(0x12))]);
    kernel.settle();
    let moved = record("10.0.1.2", 5, Some(0x15));
    kernel.neighbours.set_records(kernel.now, vec![moved]);
    let to = Change::Set(key(IB0, "10.0.1.2"), address(5, 0x15));
    assert_eq!(kernel.settle(), [to]);
}

#[test]
fn what_the_kernel_found_is_the_truth() {
    let mut kernel = Kernel::new(&[record("10.0.1.2", 2, Some(0x12))]);
    let two = key(IB0, "10.0.1.2");
    kernel.kernels_own(two, Some(address(2, 0x99)));
    assert_eq!(kernel.settle(), [], "an entry that is not ours stays");
    assert_eq!(kernel.neighbours.census().kernels, 1);
    kernel.tell(Event::EntryGone(two));
    assert_eq!(kernel.settle(), [Change::Set(two, address(2, 0x12))]);
    let healed = Entry {
        address: Some(address(2, 0x99)),
        ours: true,
    };
    kernel.tell(Event::Entry(two, healed));
    assert_eq!(kernel.settle(), [], "found out by asking: the file is old");
    let mended = record("10.0.1.2", 2, Some(0x13));
    kernel.neighbours.set_records(kernel.now, vec![mended]);
    assert_eq!(kernel.settle(), [Change::Set(two, address(2, 0x13))]);
}

#[test]
fn an_entry_that_found_nobody_is_not_made_again_and_again() {
    let mut kernel = Kernel::new(&[record("10.0.1.2", 2, Some(0x12))]);
    let two = key(IB0, "10.0.1.2");
    kernel.kernels_own(two, None);
    assert_eq!(
        kernel.settle(),
        [Change::Set(two, address(2, 0x12))],
        "while it is asked for"
    );
    let failed = Entry {
        address: None,
        ours: true,
    };
    kernel.tell(Event::Entry(two, failed));
    assert_eq!(kernel.settle(), []);
}

#[test]
fn a_queue_pair_is_learnt_from_another_address_of_the_port() {
    let mut kernel = Kernel::new(&[record("fd00::2", 2, None)]);
    assert_eq!(kernel.settle(), []);
    kernel.kernels_own(key(IB0, "10.0.1.2"), Some(address(2, 0x44)));
    let learnt = Change::Set(key(IB0, "fd00::2"), address(2, 0x44));
    assert_eq!(kernel.settle(), [learnt]);
}

#[test]
fn entries_of_an_earlier_daemon_are_taken_over() {
    let mut kernel = Kernel::new(&[record("10.0.1.2", 2, Some(0x12))]);
    let ours = |last, qpn| Entry {
        address: Some(address(last, qpn)),
        ours: true,
    };
    kernel.tell(Event::Entry(key(IB0, "10.0.1.2"), ours(2, 0x12)));
    kernel.tell(Event::Entry(key(IB0, "10.0.1.9"), ours(9, 0x19)));
    assert_eq!(kernel.settle(), [Change::Remove(key(IB0, "10.0.1.9"))]);
    assert_eq!(
        kernel.neighbours.end(),
        [Change::Remove(key(IB0, "10.0.1.2"))]
    );
}

#[test]
fn only_interfaces_that_reach_the_port_count() {
    let mut kernel = Kernel::new(&[record("10.0.1.2", 2, Some(0x12))]);
    let mut other = interface("ib1", 7);
    other.pkey = PKey(0x8001);
    kernel.tell(Event::Interface(IB1, other.clone()));
    kernel.tell(Event::Address(subnet(IB1, "10.0.1.7", 24)));
    let on = |interface| Change::Set(key(interface, "10.0.1.2"), address(2, 0x12));
    assert_eq!(kernel.settle(), [on(IB0)], "another partition");
    other.pkey = PKey(0x7fff);
    other.up = false;
    kernel.tell(Event::Interface(IB1, other.clone()));
    assert_eq!(kernel.settle(), [], "down");
    other.up = true;
    kernel.tell(Event::Interface(IB1, other.clone()));
    assert_eq!(kernel.settle(), [on(IB1)]);
    other.gid = Gid([1; 16]);
    kernel.tell(Event::Interface(IB1, other));
    assert_eq!(
        kernel.settle(),
        [Change::Remove(key(IB1, "10.0.1.2"))],
        "another subnet"
    );
    kernel.tell(Event::InterfaceGone(IB0));
    assert_eq!(kernel.settle(), []);
    assert_eq!(kernel.neighbours.census().off_link, 1);
}

#[test]
fn the_kernel_is_not_asked_for_everything_at_once() {
    let records: Vec<_> = (2..=250)
        .map(|last| record(&format!("10.0.1.{last}"), last, Some(last.into())))
        .collect();
    let mut neighbours = Kernel::new(&records).neighbours;
    let now = neighbours.poll_timeout().unwrap();
    assert!(neighbours.handle_time(now));
    let first: Vec<_> = std::iter::from_fn(|| neighbours.poll_change()).collect();
    assert_eq!(first.len(), DEPTH);
    neighbours.handle(now, Event::Done(first[0].0, Err(libc::EPERM)));
    assert_eq!(neighbours.take_refusal(), Some(libc::EPERM));
    assert_eq!(neighbours.take_refusal(), None);
    assert_eq!(neighbours.census().refused, 1);
    assert!(neighbours.poll_change().is_some() && neighbours.poll_change().is_none());
}

#[test]
fn what_was_lost_is_told_again() {
    let mut kernel = Kernel::new(&[record("10.0.1.2", 2, Some(0x12))]);
    kernel.settle();
    kernel.tell(Event::Lost);
    assert_eq!(kernel.neighbours.poll_timeout(), None, "nothing is known");
    kernel.tell(Event::Complete);
    assert_eq!(kernel.settle(), [], "no interface");
    kernel.tell(Event::Interface(IB0, interface("ib0", 1)));
    kernel.tell(Event::Address(subnet(IB0, "10.0.1.1", 24)));
    assert_eq!(kernel.settle().len(), 1);
}

#[test]
fn a_table_too_small_is_told_with_what_to_do() {
    assert_eq!(overflow("ipv4", 1024, Some(1024)), None);
    assert_eq!(overflow("ipv4", 5000, None), None, "not known");
    assert_eq!(
        overflow("ipv4", 40_000, Some(1024)).unwrap(),
        "40000 ipv4 neighbours are more than the kernel keeps by itself (1024): \
         sysctl -w net.ipv4.neigh.default.gc_thresh3=50176"
    );
}
