// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stock programs with the library in them run under valgrind while cables are pulled.

use std::fs;
use std::path::Path;

use super::unmodified::{self, Outcome, Subject};
use super::{Context, Drill, Part};
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::host::Host;
use crate::world::Kind;

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "memcheck",
    about: "rstream, rping under valgrind, two pulled cables: no error of the library",
    parts: &[
        Part {
            world: Kind::Flat,
            run: run_flat,
        },
        Part {
            world: Kind::Netns,
            run: run_netns,
        },
    ],
};

/// Where valgrind writes what it finds, a file for each process.
const REPORTS: &str = "/run/memcheck";

const STARTER: &[&str] = &[
    "apmctl",
    "run",
    "--",
    "valgrind.bin",
    "--leak-check=full",
    "--show-leak-kinds=definite",
    "--num-callers=40",
    "--xml=yes",
    "--xml-file=/run/memcheck/%p.xml",
];

/// What the library is called.
const LIBRARY: &str = "librdmacm-apm.so";

/// What is found in these is whose caller it is: valgrind's own, and libraries that do as they are told.
const INNERMOST: [&str; 3] = ["/vgpreload_", "/libc.so", "/ld-linux"];

fn run_flat(context: &mut Context<'_>) -> Result<(), Failure> {
    let gids = [Host::A.port(1).gid()?, Host::B.port(1).gid()?];
    context.world.start_daemons(Policy::default())?;
    check(context, &unmodified::rstream(&gids), 16)
}

fn run_netns(context: &mut Context<'_>) -> Result<(), Failure> {
    context.world.start_daemons(Policy::default())?;
    check(context, &unmodified::rping(), 200)
}

/// Both sides of a program under valgrind end well after two pulled cables, and nothing that it found is
/// of the library. `first`: how many units may take long enough, there.
fn check(context: &mut Context<'_>, subject: &Subject, first: u64) -> Result<(), Failure> {
    let mut count = first;
    let mut guesses = 8;
    loop {
        if Path::new(REPORTS).exists() {
            fs::remove_dir_all(REPORTS).map_err(in_file)?;
        }
        fs::create_dir_all(REPORTS).map_err(in_file)?;
        if unmodified::protected(context, STARTER, subject, count)? == Outcome::Survived {
            break;
        }
        guesses -= 1;
        count = unmodified::longer(context, subject, count, guesses)?;
    }
    let (mut reports, mut of_others, mut ours) = (0, 0, Vec::new());
    for entry in fs::read_dir(REPORTS).map_err(in_file)? {
        let path = entry.map_err(in_file)?.path();
        let report = fs::read_to_string(&path).map_err(in_file)?;
        let found = errors(&report);
        // A process that only starts another is no witness.
        reports += u32::from(report.contains("<state>FINISHED</state>"));
        for error in found {
            match is_of_library(error) {
                true => ours.push(summary(error)),
                false => of_others += 1,
            }
        }
    }
    let name = subject.name;
    let text = format!(
        "{name}: {reports} processes under valgrind, {} errors of the library, {of_others} of others",
        ours.len()
    );
    context.timeline.note("drill", text.clone());
    context.report.set(&format!("memcheck_{name}"), ours.len());
    ensure(reports >= 2, || {
        format!("{text}: it takes a client and a server")
    })?;
    ensure(ours.is_empty(), || format!("{text}: {}", ours.join("; ")))
}

fn in_file(source: std::io::Error) -> Failure {
    Failure::File {
        path: REPORTS.to_owned(),
        source,
    }
}

/// The errors in valgrind's XML, each from its kind to the end of its stacks.
fn errors(report: &str) -> Vec<&str> {
    let errors = report.split("<error>").skip(1);
    let text = errors.filter_map(|error| error.split("</error>").next());
    text.collect()
}

/// The values of an element.
fn values<'a>(text: &'a str, element: &str) -> impl Iterator<Item = &'a str> {
    let begin = format!("<{element}>");
    let parts: Vec<&str> = text.split(begin.as_str()).skip(1).collect();
    parts.into_iter().filter_map(|part| part.split("</").next())
}

/// Whether the innermost function that does not only do as it is told is the library's.
fn is_of_library(error: &str) -> bool {
    let stack = error.split("</stack>").next().unwrap_or_default();
    let mut objects = values(stack, "obj");
    let first = objects.find(|object| !INNERMOST.iter().any(|inner| object.contains(inner)));
    first.is_some_and(|object| object.ends_with(LIBRARY))
}

fn summary(error: &str) -> String {
    let kind = values(error, "kind").next().unwrap_or_default();
    let functions: Vec<&str> = values(error, "fn").take(8).collect();
    format!("{kind} in {}", functions.join(" < "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(objects: &[&str]) -> String {
        let frame =
            |object: &&str| format!("<frame><ip>0x1</ip><obj>{object}</obj><fn>f</fn></frame>");
        let frames: String = objects.iter().map(frame).collect();
        format!(
            "<valgrindoutput><error><kind>InvalidRead</kind><stack>{frames}</stack></error>\
             <status><state>FINISHED</state></status></valgrindoutput>"
        )
    }

    const OURS: &str = "/usr/lib/librdmacm-apm.so";
    const VERBS: &str = "/usr/lib/x86_64-linux-gnu/libibverbs.so.1";
    const LIBC: &str = "/usr/lib/x86_64-linux-gnu/libc.so.6";
    const MALLOC: &str = "/usr/libexec/valgrind/vgpreload_memcheck-amd64-linux.so";

    fn is_ours(objects: &[&str]) -> bool {
        let report = report(objects);
        let found = errors(&report);
        assert_eq!(found.len(), 1);
        is_of_library(found[0])
    }

    #[test]
    fn an_error_is_whose_code_it_is_in() {
        assert!(is_ours(&[OURS, LIBC]));
        assert!(is_ours(&[MALLOC, OURS]));
        assert!(is_ours(&[LIBC, OURS, VERBS]));
        assert!(!is_ours(&[LIBC, VERBS, OURS]));
        assert!(!is_ours(&[VERBS, OURS]));
    }

    #[test]
    fn an_error_is_told_with_its_functions() {
        let report = report(&[OURS, LIBC]);
        assert_eq!(summary(errors(&report)[0]), "InvalidRead in f < f");
    }
}
