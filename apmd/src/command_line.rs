// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command lines: what is wrong with one is said in a line like all other errors, and a verb may be left out where
//! something to be shown is named.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Parser};

/// Exit status of a command line that cannot be understood.
const USAGE: u8 = 2;

/// The verb that may be left out.
const SHOW: &str = "show";

/// Reads a command line, program first. Otherwise help, version or what is wrong is printed, and this is how to end.
///
/// # Errors
/// The program has nothing more to do.
pub fn read<T: Parser>(words: impl IntoIterator<Item = OsString>) -> Result<T, ExitCode> {
    let mut words: Vec<OsString> = words.into_iter().collect();
    let error = match T::try_parse_from(&words) {
        Ok(read) => return Ok(read),
        Err(error) => error,
    };
    let error = match shown(&T::command(), &words, &error) {
        None => error,
        Some(at) => {
            words.insert(at, SHOW.into());
            match T::try_parse_from(&words) {
                Ok(read) => return Ok(read),
                Err(error) => error,
            }
        }
    };
    Err(say(&T::command(), &words, &error))
}

fn say(command: &Command, words: &[OsString], error: &clap::Error) -> ExitCode {
    use ErrorKind::{
        DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand as NothingAsked, DisplayVersion,
    };
    if matches!(error.kind(), DisplayHelp | DisplayVersion | NothingAsked) {
        // If standard output is closed, nobody can be told.
        let _ = error.print();
        return match error.kind() {
            NothingAsked => ExitCode::from(USAGE),
            _ => ExitCode::SUCCESS,
        };
    }
    eprintln!("{}: {}", command.get_name(), line(command, words, error));
    ExitCode::from(USAGE)
}

/// What is wrong, in one line that ends with where help is.
fn line(command: &Command, words: &[OsString], error: &clap::Error) -> String {
    let (at, path) = object(command, words, unknown(error));
    let help = format!("see `{path} --help`");
    if let (ErrorKind::InvalidSubcommand, Some(word)) = (error.kind(), unknown(error)) {
        let names = at.get_subcommands().map(Command::get_name);
        let names: Vec<&str> = names.filter(|name| *name != "help").collect();
        let fitting: Vec<&str> = names
            .iter()
            .copied()
            .filter(|name| name.starts_with(word))
            .collect();
        return match fitting[..] {
            [] => format!("'{word}' is none of {}; {help}", names.join(", ")),
            _ => format!("'{word}' may be {}; {help}", fitting.join(" or ")),
        };
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let lines = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.is_empty());
    format!("{}; {help}", lines.collect::<Vec<_>>().join(" "))
}

/// The word that is no object or verb.
fn unknown(error: &clap::Error) -> Option<&str> {
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => Some(word),
        _ => None,
    }
}

/// Where `show` belongs, if it was left out before what is to be shown: an ID, an address, a port have digits in them,
/// and no verb has.
fn shown(command: &Command, words: &[OsString], error: &clap::Error) -> Option<usize> {
    let word = unknown(error).filter(|word| word.contains(|c: char| c.is_ascii_digit()))?;
    object(command, words, Some(word)).0.find_subcommand(SHOW)?;
    words.iter().position(|other| other == OsStr::new(word))
}

/// The command that the words lead to, up to one that is unknown, and its name from the program on.
fn object<'c>(
    command: &'c Command,
    words: &[OsString],
    unknown: Option<&str>,
) -> (&'c Command, String) {
    let (mut at, mut path) = (command, command.get_name().to_owned());
    let words = words.iter().skip(1).filter_map(|word| word.to_str());
    for word in words.take_while(|word| Some(*word) != unknown) {
        let is_it = |other: &&Command| other.get_name().starts_with(word);
        let fitting: Vec<&Command> = at.get_subcommands().filter(is_it).collect();
        let only = fitting.first().filter(|_| fitting.len() == 1).copied();
        if let Some(next) = at.find_subcommand(word).or(only) {
            at = next;
            path = format!("{path} {}", next.get_name());
        }
    }
    (at, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ctl::Arguments;

    fn wrong(text: &str) -> String {
        use clap::CommandFactory;
        let words: Vec<OsString> = text.split(' ').map(OsString::from).collect();
        let error = Arguments::try_parse_from(&words)
            .err()
            .expect("it is wrong");
        line(&Arguments::command(), &words, &error)
    }

    #[test]
    fn what_is_wrong_is_a_line() {
        for (text, wanted) in [
            (
                "apmctl conn foo",
                "'foo' is none of show, set, migrate, rearm; see `apmctl conn --help`",
            ),
            (
                "apmctl -j port frob",
                "'frob' is none of show, drain, undrain; see `apmctl port --help`",
            ),
            (
                "apmctl conn foo migrate",
                "'foo' is none of show, set, migrate, rearm; see `apmctl conn --help`",
            ),
            (
                "apmctl c",
                "'c' may be conn or counters; see `apmctl --help`",
            ),
            (
                "apmctl --x",
                "unexpected argument '--x' found; see `apmctl --help`",
            ),
            (
                "apmctl m decode",
                "the following required arguments were not provided: <HEX>...; see `apmctl mad decode --help`",
            ),
        ] {
            assert_eq!(wrong(text), wanted);
        }
        assert!(wrong("apmctl frob").starts_with("'frob' is none of conn, qp, port, "));
    }

    #[test]
    fn show_may_be_left_out_before_what_is_shown() {
        let reads = |text: &str| {
            let words = text.split(' ').map(OsString::from);
            read::<Arguments>(words).is_ok()
        };
        for text in [
            "apmctl conn 4.1",
            "apmctl -j conn -d 4.1",
            "apmctl con 4.1",
            "apmctl conn 4.1 migrate",
            "apmctl port mlx5_0/1",
        ] {
            assert!(reads(text), "{text}");
        }
        for text in [
            "apmctl conn foo",
            "apmctl 4.1",
            "apmctl wait 4.1",
            "apmctl conn 4.1 -x",
        ] {
            assert!(!reads(text), "{text}");
        }
    }
}
