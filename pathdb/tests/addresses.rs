// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of addresses: the sample of ibssa's documentation, what is refused, and printing.

use std::net::IpAddr;
use std::path::Path;

use cm_msgs::{Gid, PKey, Qpn};
use pathdb::addresses::{Conflict, Entry, Problem, Remote};
use pathdb::{Address, Addresses};
use proptest::prelude::*;

const SAMPLES: &str = "\
# Entry format is:
# address IB GID [<QPN> [<flags>]]

luna3                   fe80::8:f104:39a:169
fe80::208:f104:39a:169  fe80::8:f104:39a:169
192.168.1.3             fe80::8:f104:39a:169  0xaabbcc

[pkey = 6FFF]
192.168.1.4             fe80::8:f104:39a:169  0xaabbcc 0x80

[]
192.168.1.5             fe80::8:f104:39a:169  0xaabbcc

[pkey = 0x7FFF]
192.168.1.6             fe80::8:f104:39a:169  0xaabbcc 0xc0
  # one GID, two partitions; one name, two GIDs
[pkey=8001]
192.168.1.6\tfe80::8:f104:39a:169 11189196 64
luna3 fe80::8:f104:39a:16a
";

fn read(text: &str) -> Result<Addresses, pathdb::addresses::ReadError> {
    Addresses::read_from(Path::new("hosts.data"), text.as_bytes())
}

fn address(text: &str) -> Address {
    text.parse().expect("an address")
}

fn gid(text: &str) -> Gid {
    text.parse().expect("a GID")
}

#[test]
fn the_samples_of_the_documentation() {
    let addresses = read(SAMPLES).expect("a sample");
    assert_eq!(addresses.iter().len(), 8);
    let of = |text: &str| -> Vec<_> {
        let found = addresses.find(&address(text));
        let entry = |entry: &Entry| {
            let remote = entry.remote.map(|remote| (remote.qpn(), remote.flags()));
            (entry.pkey.0, remote)
        };
        found.map(entry).collect()
    };
    let qpn = Qpn(0xaa_bbcc);
    assert_eq!(of("luna3"), [(0xffff, None), (0x8001, None)]);
    assert_eq!(of("fe80::208:f104:39a:169"), [(0xffff, None)]);
    assert_eq!(of("192.168.1.3"), [(0xffff, Some((qpn, 0x80)))]);
    assert_eq!(of("192.168.1.4"), [(0x6fff, Some((qpn, 0x80)))]);
    assert_eq!(of("192.168.1.5"), [(0xffff, Some((qpn, 0x80)))]);
    let both = [(0x7fff, Some((qpn, 0xc0))), (0x8001, Some((qpn, 0x40)))];
    assert_eq!(of("192.168.1.6"), both);
    assert_eq!(of("192.168.1.7"), []);
    let first = gid("fe80::8:f104:39a:169");
    let at = |gid| addresses.iter().filter(move |entry| entry.gid == gid);
    assert_eq!(at(first).count(), 7);
    assert_eq!(first.interface_id(), cm_msgs::Guid(0x0008_f104_039a_0169));
    let second = at(gid("fe80::8:f104:39a:16a"));
    let names: Vec<_> = second.map(|entry| entry.address.to_string()).collect();
    assert_eq!(names, ["luna3"]);
}

#[test]
fn what_is_refused_is_named_with_its_line() {
    let long = "n".repeat(32);
    for (line, wanted) in [
        ("luna3", "want ADDRESS GID [QPN [FLAGS]], found 'luna3'"),
        ("luna3 fe80::1 1 0x80 x", "want ADDRESS GID [QPN [FLAGS]]"),
        ("luna3 fe80::1 # spare", "'#' is no queue pair number"),
        ("luna3 fe80::1 0x80 0x81", "'0x81' are no flags"),
        ("luna3 fe80::1 0x80 256", "'256' are no flags"),
        (
            "luna3 fe80::1 0x1000000",
            "'0x1000000' is no queue pair number",
        ),
        ("luna3 fe80::1 +5", "'+5' is no queue pair number"),
        ("luna3 fe80::1 017", "'017' is no queue pair number"),
        ("luna3 fe80::1 0x", "'0x' is no queue pair number"),
        ("luna3 luna4", "'luna4' is not the gid of a port"),
        ("luna3 10.0.0.1", "'10.0.0.1' is not the gid of a port"),
        ("luna3 ff12::1", "'ff12::1' is not the gid of a port"),
        ("luna3 ::", "'::' is not the gid of a port"),
        (
            "10.0.0.256 fe80::1",
            "'10.0.0.256' looks like an ip address",
        ),
        ("fe80:::1 fe80::1", "'fe80:::1' looks like an ip address"),
        (&format!("{long} fe80::1"), "1 to 31 characters, 'nnn"),
        ("lün fe80::1", "neither an ip address nor a host name"),
        ("[pkey 1]", "want [pkey = HEX] or [], found '[pkey 1]'"),
        ("[pkey = 1", "want [pkey = HEX] or []"),
        ("[key = 1]", "want [pkey = HEX] or []"),
        ("[pkey = 0x8000]", "'0x8000' is no p_key"),
        ("[pkey = 0]", "'0' is no p_key"),
        ("[pkey = 10000]", "'10000' is no p_key"),
        ("[pkey = -1]", "'-1' is no p_key"),
        ("[pkey = ]", "'' is no p_key"),
    ] {
        let text = format!("\n# first\nluna1 fe80::2\n{line}\nluna2 fe80::3\n");
        let error = read(&text).expect_err(line).to_string();
        let place = "hosts.data:4: ";
        assert!(
            error.starts_with(place) && error.contains(wanted),
            "{error}"
        );
    }
    let error = Addresses::read(Path::new("/nowhere/hosts.data")).expect_err("missing");
    let text = error.to_string();
    assert!(text.starts_with("/nowhere/hosts.data:0: No such"), "{text}");
}

#[test]
fn the_same_again_is_one_entry_and_another_queue_pair_is_an_error() {
    let twice = "10.0.0.1 fe80::1 7\n10.0.0.1 fe80::1 7 0x80\n";
    assert_eq!(read(twice).expect("the same").iter().len(), 1);
    let error = read("10.0.0.1 fe80::1 7\n10.0.0.1 fe80::1 8\n").expect_err("7 and 8");
    assert_eq!(error.line, 2);
    assert!(matches!(error.problem, Problem::Conflict(Conflict { .. })));
}

fn entries() -> impl Strategy<Value = Entry> {
    let address = prop_oneof![
        any::<u32>().prop_map(|bits| Address::Ip(IpAddr::V4(bits.into()))),
        any::<u128>().prop_map(|bits| Address::Ip(IpAddr::V6(bits.into()))),
        "[a-z][!-9;-~]{0,30}".prop_map(|name| address(&name)),
    ];
    let remote = (0u32..1 << 24, 0u8..4).prop_map(|(qpn, modes)| Remote::new(Qpn(qpn), modes << 6));
    let gid = any::<[u8; 8]>().prop_map(|guid| {
        let mut gid = [0xfe; 16];
        gid[8..].copy_from_slice(&guid);
        Gid(gid)
    });
    let pkey = prop_oneof![Just(0xffff), Just(0x7fff), 1u16..0x8000];
    (address, gid, pkey, prop_oneof![Just(None), remote]).prop_map(
        |(address, gid, pkey, remote)| Entry {
            address,
            gid,
            pkey: PKey(pkey),
            remote,
        },
    )
}

proptest! {
    #[test]
    fn what_is_printed_is_read_as_the_same(entries in prop::collection::vec(entries(), 0..40)) {
        let mut addresses = Addresses::default();
        for entry in &entries {
            // Random entries hardly ever contradict each other.
            prop_assume!(addresses.insert(entry.clone()).is_ok());
        }
        let printed = addresses.to_string();
        prop_assert_eq!(&read(&printed).expect("printed"), &addresses);
        for entry in &entries {
            prop_assert!(addresses.find(&entry.address).any(|found| found == entry));
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "[ \t\n#\\[\\]=pkeyx0-9a-f.:]{0,80}") {
        if let Ok(addresses) = read(&text) {
            prop_assert_eq!(read(&addresses.to_string()).expect("printed"), addresses);
        }
    }
}
