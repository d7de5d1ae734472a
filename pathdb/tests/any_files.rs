// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of a fabric that anything may have happened to: a fabric or an error, and what became a
//! fabric stays the same from then on. More cases: `PROPTEST_CASES`, or `cargo xtask fuzz`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use pathdb::import::{Files, Links};
use pathdb::snapshot::{read, write};
use pathdb::{Fabric, RiskFile};
use proptest::collection::vec;
use proptest::prelude::*;

/// A change of a sequence: of bytes, of lines.
#[derive(Clone, Debug)]
enum Change<T> {
    /// At most so many others in the place of so many.
    Splice(usize, usize, Vec<T>),
    /// A piece once more, somewhere else.
    Copy(usize, usize, usize),
    Cut(usize),
}

fn change<T: Clone + std::fmt::Debug>(
    item: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = Change<T>> {
    let at = any::<usize>;
    prop_oneof![
        6 => (at(), 0..9usize, vec(item, 0..9)).prop_map(|(at, len, by)| Change::Splice(at, len, by)),
        2 => (at(), 0..40usize, at()).prop_map(|(from, len, to)| Change::Copy(from, len, to)),
        1 => at().prop_map(Change::Cut),
    ]
}

impl<T: Clone> Change<T> {
    fn apply(self, all: &mut Vec<T>) {
        let within = |at: usize, all: &Vec<T>| at % (all.len() + 1);
        match self {
            Self::Splice(at, len, by) => {
                let at = within(at, all);
                let end = (at + len).min(all.len());
                all.splice(at..end, by);
            }
            Self::Copy(from, len, to) => {
                let (from, to) = (within(from, all), within(to, all));
                let piece = all[from..(from + len).min(all.len())].to_vec();
                all.splice(to..to, piece);
            }
            Self::Cut(at) => all.truncate(within(at, all)),
        }
    }
}

fn sample(name: &str) -> PathBuf {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    data.join("irregular").join(name)
}

const SUBNET: &str = "opensm-subnet.txt";
const TABLES: &str = "opensm-lfts.txt";
const GUID2LID: &str = "guid2lid.txt";

fn fabric() -> Fabric {
    let files = Files {
        links: Links::OpenSm(sample(SUBNET)),
        tables: Some(sample(TABLES)),
        guid2lid: Some(sample(GUID2LID)),
    };
    files.read().expect("a sample").fabric
}

fn written(fabric: &Fabric) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(fabric, &mut bytes).expect("memory takes everything");
    bytes
}

/// A snapshot: what comes before the compressed frame, and what is in it.
static SNAPSHOT: LazyLock<(Vec<u8>, Vec<u8>)> = LazyLock::new(|| {
    let bytes = written(&fabric());
    // The magic number of zstd, little-endian.
    let frame = bytes
        .windows(4)
        .position(|four| four == 0xfd2f_b528_u32.to_le_bytes());
    let (front, frame) = bytes.split_at(frame.expect("a frame"));
    let body = zstd::decode_all(frame).expect("a whole frame");
    (front.to_vec(), body)
});

fn survives(fabric: &Fabric) -> Result<(), TestCaseError> {
    let again = read(&written(fabric)[..]);
    prop_assert_eq!(&again.expect("what was written is read"), fabric);
    Ok(())
}

/// The sample's files with one of them changed.
fn opensm(name: &str, text: &str) -> Option<Fabric> {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(file.path(), text).expect("room for it");
    let path = |of: &str| {
        if of == name {
            file.path().to_owned()
        } else {
            sample(of)
        }
    };
    let files = Files {
        links: Links::OpenSm(path(SUBNET)),
        tables: Some(path(TABLES)),
        guid2lid: Some(path(GUID2LID)),
    };
    files.read().ok().map(|imported| imported.fabric)
}

/// A switch, two hosts, and what `-p` prints of them.
const DISCOVERED: &str = "vendid=0x2c9\ndevid=0xd2f2\nsysimgguid=0x20\nswitchguid=0x20(20)\n\
Switch\t3 \"S-0000000000000020\"\t\t# \"leaf\" enhanced port 0 lid 1 lmc 0\n\
[1]\t\"H-0000000000000010\"[1](11) \t\t# \"a HCA-1\" lid 2 4xNDR\n\
[2]\t\"H-0000000000000030\"[1](31) \t\t# \"b HCA-1\" lid 3 4xNDR\n\n\
sysimgguid=0x10\ncaguid=0x10\nCa\t1 \"H-0000000000000010\"\t\t# \"a HCA-1\"\n\
[1](11) \t\"S-0000000000000020\"[1]\t\t# lid 2 lmc 0 \"leaf\" lid 1 4xNDR\n\
CA     2  1 0x0000000000000041 4x EDR - SW     1  3 0x0000000000000020 ( 'c' - 'leaf' )\n\
SW     1  2 0x0000000000000020 4x ???                                    'leaf'\n";
const FDBS: &str = "dump_ucast_routes: Switch 0x20\nLID    : Port : Hops : Optimal\n\
0x0001 : 000  : 00   : yes\n0x0002 : 001  : 01   : yes\nPLFT_NUM: 1\n0x0003 : UNREACHABLE\n";

fn word() -> impl Strategy<Value = char> {
    prop_oneof![
        4 => prop::sample::select("0123456789abcdefx:{}[]\"'#- \t\n".chars().collect::<Vec<_>>()),
        1 => any::<char>(),
    ]
}

proptest! {
    #[test]
    fn any_snapshot(bytes in vec(any::<u8>(), 0..400), begins: bool) {
        let mut bytes = bytes;
        if begins {
            bytes.splice(..0, SNAPSHOT.0.iter().copied());
        }
        if let Ok(fabric) = read(&bytes[..]) {
            survives(&fabric)?;
        }
    }

    #[test]
    fn any_change_of_a_snapshot(changes in vec(change(any::<u8>()), 1..4)) {
        let (front, mut body) = SNAPSHOT.clone();
        changes.into_iter().for_each(|change| change.apply(&mut body));
        let frame = zstd::encode_all(&body[..], 1).expect("memory takes everything");
        if let Ok(fabric) = read(&[front, frame].concat()[..]) {
            survives(&fabric)?;
        }
    }

    #[test]
    fn any_change_of_the_bytes_of_a_snapshot(changes in vec(change(any::<u8>()), 1..3)) {
        let mut bytes = written(&fabric());
        changes.into_iter().for_each(|change| change.apply(&mut bytes));
        if let Ok(fabric) = read(&bytes[..]) {
            survives(&fabric)?;
        }
    }

    #[test]
    fn any_change_of_opensms_files(
        name in prop::sample::select(vec![SUBNET, TABLES, GUID2LID]),
        characters in vec(change(word()), 0..3),
        lines in vec(change(Just(String::new())), 0..3),
    ) {
        let text = fs::read_to_string(sample(name)).expect("a sample");
        let mut all: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.into_iter().for_each(|change| change.apply(&mut all));
        let mut text: Vec<char> = all.join("\n").chars().collect();
        characters.into_iter().for_each(|change| change.apply(&mut text));
        if let Some(fabric) = opensm(name, &text.into_iter().collect::<String>()) {
            survives(&fabric)?;
        }
    }

    #[test]
    fn any_change_of_what_the_tools_print(
        of_links: bool,
        characters in vec(change(word()), 0..4),
        lines in vec(change(Just(String::new())), 0..4),
    ) {
        let changed = |text: &str| {
            let mut all: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.clone().into_iter().for_each(|change| change.apply(&mut all));
            let mut text: Vec<char> = all.join("\n").chars().collect();
            characters.clone().into_iter().for_each(|change| change.apply(&mut text));
            text.into_iter().collect::<String>()
        };
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).expect("room for it");
            path
        };
        let links = if of_links { changed(DISCOVERED) } else { DISCOVERED.to_owned() };
        let tables = if of_links { FDBS.to_owned() } else { changed(FDBS) };
        let files = Files {
            links: Links::IbNetDiscover(file("links", &links)),
            tables: Some(file("tables", &tables)),
            guid2lid: None,
        };
        if let Ok(imported) = files.read() {
            survives(&imported.fabric)?;
        }
    }

    #[test]
    fn any_risks(changes in vec(change(word()), 0..8)) {
        let mut text: Vec<char> = "[box]\nswitch 0x7\nlink s/1\n# x\n[y]\nswitch leaf1\n".chars().collect();
        changes.into_iter().for_each(|change| change.apply(&mut text));
        let text: String = text.into_iter().collect();
        if let Ok(risks) = RiskFile::read_from(Path::new("risks"), text.as_bytes()) {
            let _ = risks.bind(&FABRIC);
        }
    }
}

static FABRIC: LazyLock<Fabric> = LazyLock::new(fabric);
