// SPDX-License-Identifier: MIT OR Apache-2.0
//! Snapshots: what is written is read again, and nothing else is.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use cm_msgs::PKey;
use pathdb::snapshot::{SnapshotError, VERSION, load, read, save, write};
use pathdb::{Fabric, NodeKind, PathTerms, PortSpec, SlToVl};
use test_fabrics::{FatTree, Spread};

fn written(fabric: &Fabric) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(fabric, &mut bytes).expect("memory takes everything");
    bytes
}

fn small() -> Fabric {
    let tree = FatTree {
        pods: 2,
        half: 2,
        dual: true,
        lmc: 1,
        spread: Spread::Random(3),
    };
    tree.build().expect("no contradiction")
}

#[test]
fn partitions_terms_and_epochs_survive() {
    let mut builder = pathdb::Builder::new();
    builder.epoch(77);
    let terms = PathTerms {
        service_level: Some(3),
        packet_life_time: None,
    };
    builder.terms(terms);
    let node = builder.node(pathdb::NodeSpec {
        kind: NodeKind::Adapter,
        guid: cm_msgs::Guid(9),
        system: cm_msgs::Guid(8),
        name: "näme\x1b".into(),
        ports: 2,
    });
    let node = node.expect("new");
    // The tables stand in another order than the ports that have them.
    for (number, keys) in [
        (2, vec![PKey(0xffff), PKey(0x8001)]),
        (1, vec![PKey(0x7fff)]),
    ] {
        let spec = PortSpec {
            pkeys: keys,
            ..PortSpec::default()
        };
        builder.port(node, number, &spec).expect("new");
    }
    let fabric = builder.routing().finish();
    let again = read(&written(&fabric)[..]).expect("a snapshot");
    assert_eq!(again, fabric);
    assert_eq!((again.epoch(), again.terms()), (77, terms));
    assert_eq!(again.node(node).name.to_string(), r"näme\u{1b}");
}

#[test]
fn lanes_survive_in_either_form() {
    let mut builder = pathdb::Builder::new();
    let mut switch = |guid| {
        let spec = pathdb::NodeSpec {
            kind: NodeKind::Switch,
            guid: cm_msgs::Guid(guid),
            system: cm_msgs::Guid(guid),
            name: format!("switch {guid}").into(),
            ports: 40,
        };
        builder.node(spec).expect("new")
    };
    let (same, spelt_out, each) = (switch(1), switch(2), switch(3));
    let (one, other) = (SlToVl([1; 8]), SlToVl([0xf2; 8]));
    builder.same_sl_to_vl(same, one).expect("a switch");
    for (from, to) in (0..=40).flat_map(|from| (0..=40).map(move |to| (from, to))) {
        if from != to {
            builder.sl_to_vl(spelt_out, from, to, one).expect("new");
        }
    }
    builder.sl_to_vl(each, 3, 4, other).expect("new");
    let fabric = builder.routing().finish();
    let bytes = written(&fabric);
    let again = read(&bytes[..]).expect("a snapshot");
    assert_eq!(again, fabric);
    assert_eq!(again.sl_to_vl(each, 3, 4), Some(other));
    assert_eq!(again.sl_to_vl(each, 4, 3), None);
    assert_eq!(again.sl_to_vl(spelt_out, 7, 8), Some(one));
    assert!(bytes.len() < 300, "{}", bytes.len());
}

#[test]
fn every_cut_is_refused() {
    let bytes = written(&small());
    for end in 0..bytes.len() {
        assert!(read(&bytes[..end]).is_err(), "cut at {end}");
    }
}

#[test]
fn no_change_of_a_byte_changes_the_fabric() {
    let fabric = small();
    let bytes = written(&fabric);
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << bit;
            if let Ok(read) = read(&bytes[..]) {
                assert_eq!(read, fabric, "bit {bit} of byte {at}");
            }
        }
    }
}

#[test]
fn other_versions_and_other_files_are_told() {
    let mut bytes = written(&small());
    bytes[8] += 1;
    let error = read(&bytes[..]).expect_err("another version");
    assert!(
        matches!(error, SnapshotError::Version(v) if v == VERSION + 1),
        "{error}"
    );
    let error = read(&b"# opensm-subnet.lst"[..]).expect_err("another file");
    assert!(matches!(error, SnapshotError::NotASnapshot), "{error}");
}

#[test]
fn files_are_replaced_whole() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let directory = directory.path();
    let path = directory.join("fabric");
    fs::write(&path, "what was there").expect("a file");
    let error = load(&path).expect_err("no snapshot").to_string();
    assert!(
        error.ends_with("fabric: not a snapshot of a fabric"),
        "{error}"
    );
    let fabric = small();
    let size = save(&fabric, &path).expect("a file");
    assert_eq!(size, written(&fabric).len() as u64);
    assert_eq!(load(&path).expect("a snapshot"), fabric);
    let files = fs::read_dir(directory).expect("a directory").count();
    assert_eq!(files, 1, "nothing is left beside it");

    let error = save(&fabric, &path.join("below")).expect_err("a file is no directory");
    assert!(error.to_string().contains("fabric/below: "), "{error}");
    let error = load(Path::new("/nowhere/fabric")).expect_err("missing");
    assert!(
        error.to_string().starts_with("/nowhere/fabric: No such"),
        "{error}"
    );
}

#[test]
fn no_link_is_followed_and_who_may_read_is_as_it_was() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("fabric");
    let others = directory.path().join("others");
    fs::write(&others, "not ours").expect("a file");
    let planted = path.with_extension(std::process::id().to_string());
    for link in [&path, &planted] {
        symlink(&others, link).expect("a link");
    }
    let fabric = small();
    save(&fabric, &path).expect("a file");
    assert_eq!(fs::read_to_string(&others).expect("a file"), "not ours");
    let is_file = |path: &Path| fs::symlink_metadata(path).expect("it is there").is_file();
    assert!(is_file(&path) && !is_file(&planted));
    assert_eq!(load(&path).expect("a snapshot"), fabric);

    fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("our own");
    save(&fabric, &path).expect("a file");
    let mode = fs::metadata(&path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
}
