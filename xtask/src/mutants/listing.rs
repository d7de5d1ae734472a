// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mutants that cargo-mutants knows, as its JSON list has them.

use serde_json::Value;

use crate::error::Error;

/// What kind of change it is, with cargo-mutants' words.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Genre {
    /// A function that returns at once.
    Function,
    /// Another operator between two operands.
    Binary,
    /// `!` or `-` left out.
    Unary,
    /// An arm of a `match` left out.
    Arm,
    /// The guard of an arm always true or always false.
    Guard,
    /// A field of a struct expression that is the base's instead.
    Field,
}

/// A place in a file: line and column, both from 1 on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    /// The line.
    pub(super) line: usize,
    /// The column, in characters.
    pub(super) column: usize,
}

/// A mutant.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    /// File, line, column and change, as in cargo-mutants' lists.
    pub(super) name: String,
    /// From the workspace's root.
    pub(super) file: String,
    /// What is changed.
    pub(super) genre: Genre,
    /// From here on.
    pub(super) start: Place,
    /// Up to here.
    pub(super) end: Place,
    /// What stands there instead.
    pub(super) replacement: String,
}

/// Reads the list.
///
/// # Errors
/// It is not such a list, or has a kind of change that is not known here.
pub(super) fn read(json: &str) -> Result<Vec<Listed>, Error> {
    let list: Value = serde_json::from_str(json)
        .map_err(|error| Error::Other(format!("cargo mutants --list --json: {error}")))?;
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    let read = |value: &Value| {
        listed(value).ok_or_else(|| Error::Other(format!("unknown kind of mutant: {value}")))
    };
    list.iter().map(read).collect()
}

fn listed(value: &Value) -> Option<Listed> {
    let text = |name: &str| value[name].as_str().map(str::to_owned);
    let number = |value: &Value| value.as_u64().and_then(|number| number.try_into().ok());
    let place = |end: &str| {
        let place = &value["span"][end];
        Some(Place {
            line: number(&place["line"])?,
            column: number(&place["column"])?,
        })
    };
    Some(Listed {
        name: text("name")?,
        file: text("file")?,
        genre: match value["genre"].as_str()? {
            "FnValue" => Genre::Function,
            "BinaryOperator" => Genre::Binary,
            "UnaryOperator" => Genre::Unary,
            "MatchArm" => Genre::Arm,
            "MatchArmGuard" => Genre::Guard,
            "StructField" => Genre::Field,
            _ => return None,
        },
        start: place("start")?,
        end: place("end")?,
        replacement: text("replacement")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_change_that_is_not_known_is_an_error() {
        let list = |genre| {
            let span = r#"{"start": {"line": 3, "column": 9}, "end": {"line": 3, "column": 11}}"#;
            let name = "a.rs:3:9: replace && with || in f";
            let start = format!(r#"[{{"name": "{name}", "file": "a.rs", "genre": "{genre}","#);
            read(&format!(
                r#"{start} "replacement": "||", "span": {span}}}]"#
            ))
        };
        let known = list("BinaryOperator").expect("a list");
        assert_eq!(known[0].genre, Genre::Binary);
        assert_eq!(
            known[0].end,
            Place {
                line: 3,
                column: 11
            }
        );
        assert!(list("Lifetime").is_err());
    }
}
