// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths from a file: TOML, an array of tables `path`. One file can serve all hosts, because a path
//! is good for both directions unless it says otherwise. Its keys are in `docs/sources.md`.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use cm_msgs::sa::PathRecord;
use cm_msgs::{Gid, Lid, PKey};
use pathdb::{Mtu, Rate};
use serde::Deserialize;
use statemachine::{PathQuery, QueryError};
use toml::Spanned;

/// The longest life time of a packet that its field has room for (6 bits).
const LIFE_TIME_MAX: u8 = 63;

/// Why a file of paths is not used.
#[derive(Debug, thiserror::Error)]
pub enum PathFileError {
    /// It cannot be read; for whoever reads it.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// It is not what it should be.
    #[error("{}:{line}: {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
}

/// Paths by their ends.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PathFile {
    paths: BTreeMap<(Gid, Gid), Vec<PartitionPath>>,
    len: usize,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct PartitionPath {
    record: PathRecord,
    /// The only partition that it is for.
    pkey: Option<PKey>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    path: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    sgid: Spanned<String>,
    dgid: Spanned<String>,
    slid: Spanned<u16>,
    dlid: Spanned<u16>,
    mtu: Spanned<u32>,
    rate: Spanned<f64>,
    #[serde(default = "zero")]
    sl: Spanned<u8>,
    pkey: Option<Spanned<u16>>,
    #[serde(default = "usual_life_time")]
    life_time: Spanned<u8>,
    #[serde(default = "yes")]
    reversible: bool,
    #[serde(default)]
    hop_limit: u8,
    #[serde(default)]
    traffic_class: u8,
    #[serde(default = "zero")]
    flow_label: Spanned<u32>,
}

fn zero<T: Default>() -> Spanned<T> {
    Spanned::new(0..0, T::default())
}

fn usual_life_time() -> Spanned<u8> {
    Spanned::new(0..0, 18)
}

fn yes() -> bool {
    true
}

/// What is wrong, and where in the text.
type Wrong = (usize, String);

impl PathFile {
    /// The paths of a file with this text; `path` is for the error.
    ///
    /// # Errors
    /// It says what it must not.
    pub fn read_from(path: &Path, text: &str) -> Result<Self, PathFileError> {
        Self::parse(text).map_err(|(at, what)| PathFileError::Content {
            path: path.to_owned(),
            line: text.get(..at).unwrap_or("").matches('\n').count() + 1,
            what,
        })
    }

    /// Paths in the file; one that is good for both directions counts once.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The paths that answer a query, in the file's order.
    ///
    /// # Errors
    /// There is none: [`QueryError::NoPath`].
    pub fn find(&self, query: &PathQuery) -> Result<Vec<PathRecord>, QueryError> {
        let known = self.paths.get(&(query.sgid, query.dgid));
        let records: Vec<_> = known
            .into_iter()
            .flatten()
            .filter(|known| known.answers(query))
            .map(|known| PathRecord {
                pkey: query.pkey,
                ..known.record
            })
            .collect();
        match records.is_empty() {
            true => Err(QueryError::NoPath),
            false => Ok(records),
        }
    }

    fn parse(text: &str) -> Result<Self, Wrong> {
        let file: File = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            (at, error.message().trim().replace('\n', " "))
        })?;
        let mut paths = Self {
            len: file.path.len(),
            ..Self::default()
        };
        for entry in &file.path {
            let known = entry.read()?;
            if entry.reversible {
                paths.insert(known.reversed());
            }
            paths.insert(known);
        }
        Ok(paths)
    }

    fn insert(&mut self, known: PartitionPath) {
        let ends = (known.record.sgid, known.record.dgid);
        self.paths.entry(ends).or_default().push(known);
    }
}

impl PartitionPath {
    fn answers(&self, query: &PathQuery) -> bool {
        let record = &self.record;
        query.slid.is_none_or(|slid| slid == record.slid)
            && query.dlid.is_none_or(|dlid| dlid == record.dlid)
            && self.pkey.is_none_or(|pkey| pkey.matches(query.pkey))
    }

    fn reversed(&self) -> Self {
        let record = self.record;
        Self {
            record: PathRecord {
                sgid: record.dgid,
                dgid: record.sgid,
                slid: record.dlid,
                dlid: record.slid,
                ..record
            },
            pkey: self.pkey,
        }
    }
}

impl Entry {
    fn read(&self) -> Result<PartitionPath, Wrong> {
        let sl = at_most(&self.sl, 15, "sl")?;
        let flow_label = at_most(&self.flow_label, 0xf_ffff, "flow_label")?;
        let record = PathRecord {
            sgid: gid(&self.sgid)?,
            dgid: gid(&self.dgid)?,
            slid: lid(&self.slid)?,
            dlid: lid(&self.dlid)?,
            mtu: mtu(&self.mtu)?,
            rate: rate(&self.rate)?,
            sl,
            packet_life_time: at_most(&self.life_time, LIFE_TIME_MAX, "life_time")?,
            reversible: self.reversible,
            hop_limit: self.hop_limit,
            traffic_class: self.traffic_class,
            flow_label,
            numb_path: 1,
            // "exactly", as in the SA's answers.
            mtu_selector: 2,
            rate_selector: 2,
            packet_life_time_selector: 2,
            ..PathRecord::default()
        };
        let pkey = self.pkey.as_ref().map(|pkey| PKey(*pkey.get_ref()));
        Ok(PartitionPath { record, pkey })
    }
}

fn wrong<T>(value: &Spanned<T>, what: impl Display) -> Wrong {
    (value.span().start, what.to_string())
}

fn gid(text: &Spanned<String>) -> Result<Gid, Wrong> {
    let gid: Gid = text
        .get_ref()
        .parse()
        .map_err(|error| wrong(text, format!("{}: {error}", text.get_ref())))?;
    if gid.is_unspecified() {
        return Err(wrong(text, "the gid of a port is not all zero"));
    }
    Ok(gid)
}

fn lid(number: &Spanned<u16>) -> Result<Lid, Wrong> {
    let lid = Lid(*number.get_ref());
    match lid.is_unicast() {
        true => Ok(lid),
        false => Err(wrong(
            number,
            format!("lid {}: want 1 to 49151", number.get_ref()),
        )),
    }
}

fn mtu(bytes: &Spanned<u32>) -> Result<u8, Wrong> {
    let mtu = Mtu::from_bytes(*bytes.get_ref());
    let what = format!("mtu {}: want 256, 512, 1024, 2048 or 4096", bytes.get_ref());
    mtu.map(Mtu::code).ok_or_else(|| wrong(bytes, what))
}

fn rate(gigabits: &Spanned<f64>) -> Result<u8, Wrong> {
    let mut all = Rate::ALL.iter();
    let rate = all.find(|rate| rate.text().parse() == Ok(*gigabits.get_ref()));
    rate.map(|rate| rate.code()).ok_or_else(|| {
        let texts: Vec<_> = Rate::ALL.iter().map(|rate| rate.text()).collect();
        let what = format!(
            "rate {}: want one of {} (Gb/s)",
            gigabits.get_ref(),
            texts.join(", ")
        );
        wrong(gigabits, what)
    })
}

fn at_most<T: Copy + PartialOrd + Display>(
    value: &Spanned<T>,
    most: T,
    name: &str,
) -> Result<T, Wrong> {
    let number = *value.get_ref();
    match number <= most {
        true => Ok(number),
        false => Err(wrong(
            value,
            format!("{name} {number}: want at most {most}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cm_msgs::Guid;
    use statemachine::PortId;

    const GOOD: &str = r#"
[[path]]
sgid = "fe80::1"
dgid = "fe80::2"
slid = 3
dlid = 5
mtu = 4096
rate = 2.5

[[path]]
sgid = "fe80::1"
dgid = "fe80::2"
slid = 3
dlid = 6
mtu = 2048
rate = 100
sl = 4
pkey = 0x8001
reversible = false
"#;

    fn query(from: &str, to: &str) -> PathQuery {
        PathQuery {
            query: 1,
            port: PortId {
                node_guid: Guid(9),
                port: 1,
            },
            sgid: from.parse().unwrap(),
            dgid: to.parse().unwrap(),
            slid: None,
            dlid: None,
            pkey: PKey(0xffff),
        }
    }

    #[test]
    fn paths_are_found_by_their_ends_and_partition() {
        let file = PathFile::parse(GOOD).unwrap();
        assert_eq!((file.len(), file.is_empty()), (2, false));
        let found = file.find(&query("fe80::1", "fe80::2")).unwrap();
        let [record] = found[..] else {
            panic!("{found:?}")
        };
        assert_eq!((record.slid, record.dlid), (Lid(3), Lid(5)));
        assert_eq!((record.mtu, record.rate), (5, 2));
        assert_eq!((record.pkey, record.packet_life_time), (PKey(0xffff), 18));

        let limited = PathQuery {
            pkey: PKey(0x0001),
            ..query("fe80::1", "fe80::2")
        };
        let both = file.find(&limited).unwrap();
        assert_eq!(both.iter().map(|r| r.sl).collect::<Vec<_>>(), [0, 4]);
        let by_lid = PathQuery {
            dlid: Some(Lid(6)),
            ..limited
        };
        let one = file.find(&by_lid).unwrap();
        assert_eq!(one.iter().map(|r| r.rate).collect::<Vec<_>>(), [16]);
    }

    #[test]
    fn a_path_is_good_for_both_directions_unless_it_says_otherwise() {
        let file = PathFile::parse(GOOD).unwrap();
        let back = PathQuery {
            pkey: PKey(0x8001),
            ..query("fe80::2", "fe80::1")
        };
        let found = file.find(&back).unwrap();
        let [record] = found[..] else {
            panic!("{found:?}")
        };
        assert_eq!((record.slid, record.dlid), (Lid(5), Lid(3)));
        let none = file.find(&query("fe80::1", "fe80::3"));
        assert_eq!(none, Err(QueryError::NoPath));
    }

    #[test]
    fn errors_name_line_and_value() {
        let cases = [
            ("slid = 3", "slid = 0", 5, "lid 0: want 1 to 49151"),
            ("dlid = 6", "dlid = 49152", 14, "lid 49152"),
            ("\"fe80::1\"", "\"host\"", 3, "host: not a gid"),
            ("\"fe80::2\"", "\"::\"", 4, "not all zero"),
            ("mtu = 4096", "mtu = 4000", 7, "mtu 4000: want 256"),
            (
                "rate = 2.5",
                "rate = 2.6",
                8,
                "rate 2.6: want one of 2.5, 5",
            ),
            ("sl = 4", "sl = 16", 17, "sl 16: want at most 15"),
            ("sl = 4", "slx = 4", 17, "unknown field `slx`"),
            ("sl = 4", "life_time = 64", 17, "life_time 64"),
            ("sl = 4", "flow_label = 1048576", 17, "flow_label 1048576"),
            ("dlid = 6\n", "", 10, "missing field `dlid`"),
        ];
        for (good, bad, line, what) in cases {
            let text = GOOD.replacen(good, bad, 1);
            let (at, found) = PathFile::parse(&text).unwrap_err();
            assert!(found.contains(what), "{found:?} does not say {what:?}");
            assert_eq!(text[..at].matches('\n').count() + 1, line, "{what}");
        }
    }

    #[test]
    fn the_documented_file_is_good() {
        let page = include_str!("../../../docs/sources.md");
        let (_, rest) = page.split_once("```toml\n").unwrap();
        let (example, _) = rest.split_once("```").unwrap();
        let file = PathFile::parse(example).unwrap();
        let found = file.find(&query("fe80::5:ad00:10:1", "fe80::5:ad00:20:1"));
        let [record] = found.as_deref().unwrap() else {
            panic!("{found:?}")
        };
        let short = "[[path]]\nsgid = \"fe80::5:ad00:10:1\"\ndgid = \"fe80::5:ad00:20:1\"\n\
            slid = 3\ndlid = 5\nmtu = 4096\nrate = 100\n";
        let short = PathFile::parse(short).unwrap();
        let without = short.find(&query("fe80::5:ad00:10:1", "fe80::5:ad00:20:1"));
        assert_eq!(without, Ok(vec![*record]), "the defaults are as written");
    }

    #[test]
    fn an_empty_file_knows_nothing() {
        assert_eq!(PathFile::parse("# nothing\n"), Ok(PathFile::default()));
        assert!(PathFile::parse("path = 3").is_err());
    }

    #[test]
    fn what_is_nested_without_end_is_refused() {
        let many = 1 << 20;
        for text in [
            format!("path = {}", "[".repeat(many)),
            format!("path = {}{}", "[".repeat(many), "]".repeat(many)),
            format!("path = {}", "{a=".repeat(many)),
            format!("{}path = 1", "path.".repeat(many)),
        ] {
            let (_, what) = PathFile::parse(&text).unwrap_err();
            assert!(what.contains("recurs"), "{what}");
        }
    }
}
