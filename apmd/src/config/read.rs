// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading the files: `apmd.toml`, then those of `apmd.d`. Keys are looked at one by one, so that all
//! that is wrong is told at once.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use cm_msgs::is_unprintable;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::check::Wrong;
use super::finding::{ConfigError, Finding, near_word};
use super::host::Absent;
use super::{Config, DEFAULT_PATH};
use crate::io::text_file;

/// The template has a tenth of it.
const SIZE_LIMIT: u64 = 64 * 1024;
const FILE_LIMIT: usize = 256;
/// Errors of syntax told of one file: what follows the first often comes of it.
const SYNTAX_TOLD: usize = 5;

/// A file's text.
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// The section, empty for none, and the key.
type Key<'t> = (Cow<'t, str>, Cow<'t, str>);

/// A file, and the line in it counted from 1.
type Place = (PathBuf, usize);

/// The files' texts, and which cannot be read.
#[derive(Default)]
pub(super) struct Files {
    pub(super) read: Vec<File>,
    unreadable: Vec<Finding>,
}

impl Files {
    /// `path` or the usual one, which need not exist, and `*.toml` of the directory that is called
    /// after it.
    pub(super) fn of(path: Option<&Path>) -> Self {
        let mut files = Self::default();
        let main = path.unwrap_or(Path::new(DEFAULT_PATH));
        files.add(main.to_owned(), path.is_none());
        let directory = main.with_extension("d");
        match drop_ins(&directory) {
            Ok(paths) => paths.into_iter().for_each(|path| files.add(path, false)),
            Err(error) => files.unreadable.push(unreadable(directory, &error)),
        }
        files
    }

    fn add(&mut self, path: PathBuf, optional: bool) {
        match text_file::read(&path, SIZE_LIMIT) {
            Ok(text) => self.read.push(File { path, text }),
            Err(error) if optional && error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.unreadable.push(unreadable(path, &error)),
        }
    }
}

#[cfg(test)]
impl FromIterator<File> for Files {
    fn from_iter<I: IntoIterator<Item = File>>(files: I) -> Self {
        Self {
            read: files.into_iter().collect(),
            ..Self::default()
        }
    }
}

/// What the files say.
pub(super) struct Reading {
    pub(super) config: Config,
    /// What may be meant otherwise.
    pub(super) warnings: Vec<Finding>,
}

impl Reading {
    /// Of a key that several files have, the last counts.
    pub(super) fn of(files: &Files) -> Result<Self, ConfigError> {
        let mut reader = Reader {
            findings: files.unreadable.clone(),
            ..Reader::default()
        };
        for file in &files.read {
            reader.add(file);
        }
        reader.finish()
    }
}

fn unreadable(path: PathBuf, error: &io::Error) -> Finding {
    Finding {
        path,
        line: None,
        what: error.to_string(),
    }
}

/// The files of a directory, which need not exist, in the order of their names.
fn drop_ins(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let paths: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut paths = paths?;
    paths.retain(|path| {
        let is_hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes()[0] == b'.');
        !is_hidden
            && path
                .extension()
                .is_some_and(|extension| extension == "toml")
    });
    if paths.len() > FILE_LIMIT {
        let what = format!("more than {FILE_LIMIT} files");
        return Err(io::Error::other(what));
    }
    paths.sort();
    Ok(paths)
}

/// The files so far.
#[derive(Default)]
struct Reader<'t> {
    /// By section; the keys above all sections are those of "".
    sections: Sections<'t>,
    places: BTreeMap<Key<'static>, Place>,
    findings: Vec<Finding>,
}

type Sections<'t> = BTreeMap<Cow<'t, str>, DeTable<'t>>;

impl<'t> Reader<'t> {
    fn add(&mut self, file: &'t File) {
        let (document, errors) = DeTable::parse_recoverable(&file.text);
        for error in errors.iter().take(SYNTAX_TOLD) {
            let at = error.span().map_or(0, |span| span.start);
            self.find(file, at, error.message().to_owned());
        }
        if !errors.is_empty() {
            return;
        }
        let known = KnownKeys::new();
        for (name, value) in document.into_inner() {
            let at = name.span().start;
            let section = name.get_ref().clone();
            if !known.is_section(&section) {
                self.add_key(&known, file, "".into(), name, value);
                continue;
            }
            match value.into_inner() {
                DeValue::Table(keys) => {
                    for (key, value) in keys {
                        self.add_key(&known, file, section.clone(), key, value);
                    }
                }
                _ => self.find(file, at, format!("{section}: want a section, [{section}]")),
            }
        }
    }

    fn add_key(
        &mut self,
        known: &KnownKeys,
        file: &'t File,
        section: Cow<'t, str>,
        key: Spanned<Cow<'t, str>>,
        value: Spanned<DeValue<'t>>,
    ) {
        let at = key.span().start;
        let table = DeTable::from_iter([(key.clone(), value.clone())]);
        let single = Sections::from([(section.clone(), table)]);
        let name = dotted(&section, key.get_ref());
        let refused = match known.refuse(&section, key.get_ref()) {
            Some(what) => Some(what),
            None => refuse_value(single, key.get_ref()),
        };
        if let Some(what) = refused {
            return self.find(file, at, format!("{name}: {what}"));
        }
        let place = (file.path.clone(), line(&file.text, at));
        let owned = |name: &str| Cow::Owned(name.to_owned());
        self.places
            .insert((owned(&section), owned(key.get_ref())), place);
        let table = self.sections.entry(section).or_default();
        // Not only put in: the key remembers where it was.
        table.remove(&key);
        table.insert(key, value);
    }

    fn find(&mut self, file: &File, at: usize, what: String) {
        // One line, whatever the file has between quotation marks.
        let what = what.trim().replace(is_unprintable, " ");
        self.findings.push(Finding {
            path: file.path.clone(),
            line: Some(line(&file.text, at)),
            what,
        });
    }

    fn finish(self) -> Result<Reading, ConfigError> {
        let Self {
            sections,
            places,
            mut findings,
        } = self;
        // Its keys have been read one by one.
        let config = parse(sections).unwrap_or_default();
        let absent = Absent::of(&config, |section, key| {
            places.contains_key(&(section.into(), key.into()))
        });
        let placed = |wrongs: Vec<Wrong>| wrongs.into_iter().map(|wrong| wrong.at(&places));
        findings.extend(placed(config.check_together()));
        findings.extend(placed(absent.errors.into_found()));
        let warnings = placed(absent.warnings.into_found()).collect();
        ConfigError::unless_none(findings).map(|()| Reading { config, warnings })
    }
}

impl Wrong {
    /// Where the files say it.
    fn at(self, places: &BTreeMap<Key<'static>, Place>) -> Finding {
        let place = places.get(&(self.section.into(), self.key.into()));
        let (path, line) = place.cloned().unzip();
        Finding {
            path: path.unwrap_or_else(|| DEFAULT_PATH.into()),
            line,
            what: format!("{}: {}", dotted(self.section, self.key), self.what),
        }
    }
}

fn line(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or("").matches('\n').count() + 1
}

fn dotted(section: &str, key: &str) -> String {
    match section {
        "" => key.to_owned(),
        _ => format!("{section}.{key}"),
    }
}

/// The configuration with these sections, and the defaults for what they do not say.
fn parse(mut sections: Sections<'_>) -> Result<Config, toml::de::Error> {
    let mut document = sections.remove("").unwrap_or_default();
    for (name, keys) in sections {
        let keys = Spanned::new(0..0, DeValue::Table(keys));
        document.insert(Spanned::new(0..0, name), keys);
    }
    Config::deserialize(Deserializer::from(Spanned::new(0..0, document)))
}

/// What is wrong with the only value of `single`, which is that of `key`.
fn refuse_value(single: Sections<'_>, key: &str) -> Option<String> {
    match parse(single) {
        Ok(config) => {
            let mut wrongs = config.check().into_iter();
            wrongs
                .find(|wrong| wrong.key == key)
                .map(|wrong| wrong.what)
        }
        Err(error) => Some(explain(error.message())),
    }
}

/// serde's words for a value of the wrong type. The words that it knows are between backticks.
fn explain(message: &str) -> String {
    // Only to be kinder: if serde says it otherwise one day, its own words are shown.
    let words: Vec<_> = message.split('`').skip(1).step_by(2).collect();
    match words.as_slice() {
        [word, known @ ..] if message.starts_with("unknown variant") => {
            let near = near_word(word, known.iter().copied());
            format!("is \"{word}\", want {}{near}", known.join(", "))
        }
        _ => message.to_owned(),
    }
}

/// The keys that there are.
struct KnownKeys(serde_json::Map<String, serde_json::Value>);

impl KnownKeys {
    fn new() -> Self {
        match serde_json::to_value(Config::default()) {
            Ok(serde_json::Value::Object(keys)) => Self(keys),
            _ => Self(serde_json::Map::new()),
        }
    }

    fn is_section(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(serde_json::Value::is_object)
    }

    /// The keys of a section, or all that stands above the sections, and those.
    fn keys(&self, section: &str) -> &serde_json::Map<String, serde_json::Value> {
        let keys = self.0.get(section).and_then(serde_json::Value::as_object);
        keys.unwrap_or(&self.0)
    }

    /// Why there is no such key.
    fn refuse(&self, section: &str, key: &str) -> Option<String> {
        let keys = self.keys(section);
        if keys.contains_key(key) {
            return None;
        }
        let mut others = self.0.keys().filter(|name| self.is_section(name));
        let hint = match others.find(|name| self.keys(name).contains_key(key)) {
            Some(other) => format!("; it belongs to [{other}]"),
            None => near_word(key, keys.keys().map(String::as_str)),
        };
        Some(format!("no such key{hint}"))
    }
}
