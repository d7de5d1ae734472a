// SPDX-License-Identifier: MIT OR Apache-2.0
//! The questions that operators ask, as `docs/monitoring.md` answers them: each command is run where its question arises,
//! and has to print what the page shows, numbers aside.

use std::time::Duration;

use crate::command;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::port::Port;
use crate::stream::{Options, Streams};
use crate::wait::{self, Seen};
use crate::world::Kind;

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "questions",
    about: "a cable, a dead apmd: the commands in docs/monitoring.md answer as shown there",
    parts: &[Part {
        world: Kind::Flat,
        run,
    }],
};

const PAGE: &str = include_str!("../../../docs/monitoring.md");

/// The heading above the questions; each has a heading of the next level.
const SECTION: &str = "\n## Ten questions\n";

/// What asks, in the page's examples.
const PROMPT: &str = "# ";

/// Of a page's lines, or of the end of one, that are not shown.
const ELISION: &str = "...";

/// For what a daemon finds out by asking a peer that is dead.
const LIMIT: Duration = Duration::from_secs(60);

/// A question with what the page shows.
struct Shown {
    question: &'static str,
    command: &'static str,
    prints: Vec<&'static str>,
}

/// What is done before a question is asked.
type Before = fn(&mut Context<'_>, &mut Port) -> Result<(), Failure>;

/// The page's questions, in its order.
const QUESTIONS: [(&str, Before); 10] = [
    ("Is every connection protected?", armed),
    ("Where is a program's connection?", as_it_is),
    ("Do the path sources answer?", as_it_is),
    ("May this port be taken down?", as_it_is),
    ("May this switch be taken down?", snapshot),
    ("Why did it move?", pulled),
    ("How many moved, and why?", as_it_is),
    ("Is redundancy lost?", as_it_is),
    ("How is the peer's apmd?", peer_killed),
    ("Why is it not protected?", pulled_again),
];

fn run(context: &mut Context<'_>) -> Result<(), Failure> {
    context.world.start_daemons(Policy::default())?;
    let streams = Streams::start(&context.timeline, Options::default())?;
    let mut left = Host::A.port(1);
    // All of them, so that a page that is out of date can be corrected at once.
    let mut differing = Vec::new();
    for ((_, before), shown) in QUESTIONS.into_iter().zip(shown()) {
        before(context, &mut left)?;
        let Shown {
            question,
            command,
            prints,
        } = shown;
        context.timeline.note(Host::A, question);
        let said = ask(command)?;
        if !fits(&prints, &said) {
            let said = said.join("\n");
            differing.push(format!("### {question}\n# {command}\n{said}"));
        }
    }
    ensure(differing.is_empty(), || {
        let differing = differing.join("\n");
        format!("docs/monitoring.md shows something else than:\n{differing}")
    })?;
    context.finish(streams)?;
    context.world.stop_daemons()?;
    context.world.mend()
}

/// What a shell on the first host prints.
fn ask(words: &str) -> Result<Vec<String>, Failure> {
    let said = command::run_as(Host::A, &["sh", "-c", &format!("{words} 2>&1; true")])?;
    Ok(said.lines().map(str::to_owned).collect())
}

fn as_it_is(_: &mut Context<'_>, _: &mut Port) -> Result<(), Failure> {
    Ok(())
}

fn armed(context: &mut Context<'_>, _: &mut Port) -> Result<(), Failure> {
    context.world.wait_disjoint(1)?;
    verified()
}

/// Until a probe of the alternate has come back: until then that is all that `apmctl` says of it.
fn verified() -> Result<(), Failure> {
    wait::until("the alternate is verified", LIMIT, || {
        let shown = command::run_as(Host::A, &["apmctl", "conn", "show"])?;
        Ok(Seen::when(!shown.contains("unverified"), || shown.clone()))
    })
}

/// The cable of the port goes on which the connection is.
fn pulled(context: &mut Context<'_>, left: &mut Port) -> Result<(), Failure> {
    let pairs = context.world.wait_disjoint(1)?;
    *left = pairs[0].active_port(Host::A);
    context.world.pull(*left)?;
    context.world.wait_moved(1, *left)?;
    context.report.migrations += 1;
    context.world.wait_armed(1)?;
    verified()
}

fn snapshot(_: &mut Context<'_>, _: &mut Port) -> Result<(), Failure> {
    let words = ["apmctl", "fabric", "import", "--live", "-o", "/run/fabric"];
    command::run_as(Host::A, &words).map(drop)
}

fn peer_killed(context: &mut Context<'_>, left: &mut Port) -> Result<(), Failure> {
    context.world.plug(*left)?;
    context.world.wait_disjoint(1)?;
    verified()?;
    context.world.kill_daemon(Host::B)?;
    wait::until("the peer's apmd is silent", LIMIT, || {
        let shown = command::run_as(Host::A, &["apmctl", "status"])?;
        Ok(Seen::when(shown.contains("silent"), || shown.clone()))
    })
}

/// With nobody at the peer to agree with.
fn pulled_again(context: &mut Context<'_>, _: &mut Port) -> Result<(), Failure> {
    let unprotected =
        || command::run_as(Host::A, &["apmctl", "conn", "show", "state", "unprotected"]);
    let shown = command::run_as(Host::A, &["apmctl", "-j", "conn", "show"])?;
    let primary = |port: u8| shown.contains(&format!("\"primary\":{{\"port\":{port},"));
    let port = if primary(1) { 1 } else { 2 };
    context.world.pull(Host::A.port(port))?;
    context.report.migrations += 1;
    wait::until("it is unprotected", LIMIT, || {
        let shown = unprotected()?;
        Ok(Seen::when(shown.contains("apm_stream"), || shown.clone()))
    })
}

// ---- the page ----

/// The questions of the page.
fn shown() -> impl Iterator<Item = Shown> {
    let section = PAGE.split(SECTION).nth(1).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    section.split("\n### ").skip(1).map(|part| {
        let (question, rest) = part.split_once('\n').unwrap_or((part, ""));
        let block = rest.split("```console\n").nth(1).unwrap_or_default();
        let block = block.split("```").next().unwrap_or_default();
        let mut lines = block.lines();
        let command = lines.next().and_then(|line| line.strip_prefix(PROMPT));
        Shown {
            question,
            command: command.unwrap_or_default(),
            prints: lines.collect(),
        }
    })
}

/// Whether a page's lines are those of a command, numbers and blanks aside. [`ELISION`] stands for any lines.
fn fits(page: &[&str], said: &[String]) -> bool {
    match (page.split_first(), said.split_first()) {
        (None, None) => true,
        (Some((&ELISION, rest)), _) => (0..=said.len()).any(|skip| fits(rest, &said[skip..])),
        (Some((first, rest)), Some((line, others))) => {
            let (first, line) = (shape(first), shape(line));
            let alike = match first.strip_suffix(ELISION) {
                Some(begin) => line.starts_with(begin),
                None => first == line,
            };
            alike && fits(rest, others)
        }
        _ => false,
    }
}

/// A line without what differs from run to run: numbers become `#`, however long, and several blanks are one.
fn shape(line: &str) -> String {
    let words = line.split_whitespace().map(|word| {
        let mut shape = String::new();
        let mut rest = word;
        while let Some(first) = rest.chars().next() {
            let hexadecimal = rest.strip_prefix("0x");
            let number = |c: char| match hexadecimal {
                Some(_) => c.is_ascii_hexdigit() || c == 'x',
                None => c.is_ascii_digit(),
            };
            let len = rest.find(|c| !number(c)).unwrap_or(rest.len());
            match len {
                0 => shape.push(first),
                _ => shape.push('#'),
            }
            rest = &rest[len.max(first.len_utf8() * usize::from(len == 0))..];
        }
        shape.replace("#.#", "#")
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_asks_what_the_drill_asks() {
        let asked: Vec<_> = shown().collect();
        let questions: Vec<_> = asked.iter().map(|shown| shown.question).collect();
        assert_eq!(questions, QUESTIONS.map(|(question, _)| question));
        for shown in asked {
            assert!(shown.command.starts_with("apmctl "), "{}", shown.question);
            let lines = shown.prints.iter().filter(|line| **line != ELISION);
            assert!(lines.count() > 0, "{}", shown.question);
        }
    }

    #[test]
    fn numbers_and_blanks_do_not_count_and_words_do() {
        let said = ["2.1   shca0 0x00011f", "port 2", "4"].map(str::to_owned);
        for (page, expected) in [
            (&["1.1 shca1 0x000001", "port 17", "0"][..], true),
            (&["1.1 shca1 0x000001", "...", "0"], true),
            (&["...", "port 17", "..."], true),
            (&["...", "port 17"], false),
            (&["1.1 shca1 0x000001", "lid 17", "0"], false),
            (&["1.1 shca1...", "port 17", "0"], true),
            (&["1.1 shca1 lid...", "port 17", "0"], false),
            (&["1.1 shca1 0x000001", "port 17"], false),
            (&["1.1 shca1 0x000001", "port 17", "0", "0"], false),
        ] {
            assert_eq!(fits(page, &said), expected, "{page:?}");
        }
        assert_eq!(
            shape("armed for 12.5 s: lid 4->0x1F"),
            "armed for # s: lid #->#"
        );
    }
}
