// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask mutants`: whether the engine's tests notice a changed condition. cargo-mutants names the changes. It
//! would build and test each by itself, which takes a minute of a core for each of 3,000; here one build has all of
//! them, each behind a switch, and a mutant costs only those tests that reach it, up to the first that fails.

mod embed;
mod listing;
mod survivors;
mod tree;
mod trial;

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use clap::Args;

use self::embed::Number;
use self::listing::Listed;
use self::survivors::{Mutant, Survivors};
use self::tree::{Built, Tree};
use self::trial::{Test, Verdict};
use crate::cargo_tool::CargoTool;
use crate::error::{Error, InFile};
use crate::{packages, shell, workspace};

const TOOL: CargoTool = CargoTool {
    name: "cargo-mutants",
    version: "27.1.0",
    features: &[],
};

/// The crate whose tests are tried.
const PACKAGE: &str = "statemachine";

/// Mutants that may live, and why.
const HARMLESS: &str = "statemachine/harmless-mutants.txt";

/// What became of mutants, as cargo-mutants names its lists.
const RESULTS: [&str; 4] = ["caught", "missed", "timeout", "unviable"];

/// Of those that a test does not end with.
const TIMEOUT: usize = 2;

/// Of those that do not compile.
const UNVIABLE: usize = 3;

/// What is no condition: texts for people, and formatting. What they say is read by tests of the programs that print
/// them.
const TEXTS: &[&str] = &[
    "^statemachine/src/trace\\.rs:",
    "^statemachine/src/view\\.rs:",
    "impl (fmt::)?(Display|Debug) for",
    " with (String::new\\(\\)|\"xyzzy\"\\.into\\(\\)|\"xyzzy\"|\"\") in",
];

/// What the command line says.
#[derive(Args)]
pub(crate) struct Options {
    /// Only mutants of this file, from the crate's src directory on; may be given again. Such as conn/routes.rs
    #[arg(long, value_name = "FILE")]
    file: Vec<String>,
    /// Only mutants whose description matches this regular expression, such as a function's name
    #[arg(long, value_name = "REGEX")]
    function: Vec<String>,
    /// Only this share of them, such as 0/8
    #[arg(long, value_name = "K/N", value_parser = shard)]
    shard: Option<String>,
    /// Only mutants of lines that differ from this commit
    #[arg(long, value_name = "COMMIT")]
    since: Option<String>,
    /// Of those, only what the last run found unnoticed
    #[arg(long)]
    again: bool,
    /// Without this test; may be given again. Some take as long as all others together
    #[arg(long, value_name = "TEST")]
    without: Vec<String>,
    /// So many tests at a time
    #[arg(long, value_name = "N", default_value = "1")]
    jobs: NonZeroUsize,
    /// Have the model checker look at each as well: minutes more for each that the other tests do not notice
    #[arg(long)]
    model: bool,
    /// Name them, and test none
    #[arg(long)]
    list: bool,
}

/// A share of the mutants, as cargo-mutants takes it.
fn shard(words: &str) -> Result<String, String> {
    let numbers = words.split_once('/');
    let numbers =
        numbers.and_then(|(share, of)| Some((share.parse::<u32>().ok()?, of.parse().ok()?)));
    match numbers {
        Some((share, of)) if share < of => Ok(words.to_owned()),
        _ => Err("K/N: share K, from 0 on, of N".to_owned()),
    }
}

/// `cargo xtask mutants`.
pub(crate) fn run(options: &Options) -> Result<u8, Error> {
    packages::install(packages::BUILD)?;
    let program = TOOL.provide()?;
    let harmless = workspace::root().join(HARMLESS);
    let survivors = Survivors::read(&fs::read_to_string(&harmless).in_file(&harmless)?)?;
    let output = workspace::target().join("mutants");
    fs::create_dir_all(&output).in_file(&output)?;
    let json = listed(&program, &[], &output)?;
    let all = listing::read(&json)?;
    let chosen: BTreeSet<String> = if options.narrows() {
        let narrower = arguments(options, &output)?;
        // All of them could be listed just now.
        let json = listed(&program, &narrower, &output).map_err(|error| match error {
            Error::Failed { .. } => Error::Usage(
                "cannot list such mutants: --function takes a regular expression".to_owned(),
            ),
            other => other,
        })?;
        listing::read(&json)?
            .into_iter()
            .map(|mutant| mutant.name)
            .collect()
    } else {
        all.iter().map(|mutant| mutant.name.clone()).collect()
    };
    let last = Results::read(&output).ok().filter(|_| options.again);
    let is_chosen = |mutant: &Listed| {
        let missed = |last: &Results| {
            Mutant::parse(&mutant.name).is_some_and(|mutant| last.missed().contains(&mutant))
        };
        chosen.contains(&mutant.name) && last.as_ref().is_none_or(missed)
    };
    let numbers: Vec<Number> = (0..all.len())
        .filter(|&number| is_chosen(&all[number]))
        .collect();
    if numbers.is_empty() && last.is_none() {
        return Err(Error::Usage(format!(
            "no mutant fits: files are named from {PACKAGE}/src on, such as conn/routes.rs; texts (trace.rs, view.rs) have none"
        )));
    }
    if options.list {
        for &number in &numbers {
            println!("{}", all[number].name);
        }
        return Ok(0);
    }
    let tree = Tree::copy(options.model)?;
    let built = tree.build(&all)?;
    println!("mutants: {} of {} built", built.embedded.len(), all.len());
    // Of its own: another run may build others meanwhile.
    let own = output.join(format!("run-{}", std::process::id()));
    let binaries = built.copy_binaries(&own)?;
    let tests = trial::tests(&binaries, &options.without, &own)?;
    println!("mutants: {} to be tried", numbers.len());
    let results = try_all(&numbers, &all, &built, &tests, options.jobs.get());
    fs::remove_dir_all(&own).in_file(&own)?;
    let results = results?;
    results.write(&output)?;
    results.print();
    let unexplained = results.unexplained(&survivors);
    for mutant in &unexplained {
        println!("mutants: no test notices {mutant}");
    }
    match (results.count(), unexplained.len()) {
        (0, _) => Err(Error::Other("no mutants to be tried".to_owned())),
        (_, 0) => {
            println!("mutants: ok");
            Ok(0)
        }
        (_, count) => {
            println!("mutants: {count} to be noticed by a test, or explained in {HARMLESS}");
            Ok(1)
        }
    }
}

/// Tries mutants, some at a time; those with which a test did not end once more at the end, one at a time.
fn try_all(
    numbers: &[Number],
    all: &[Listed],
    built: &Built,
    tests: &[Test],
    jobs: usize,
) -> Result<Results, Error> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Results::default());
    let slow = Mutex::new(Vec::new());
    let work = || -> Result<(), Error> {
        while let Some(&number) = numbers.get(next.fetch_add(1, Ordering::Relaxed)) {
            let name = &all[number].name;
            let (list, why) = if built.embedded.contains(&number) {
                let (verdict, why) = trial::judge(tests, number)?;
                (verdict.list(), why)
            } else {
                (UNVIABLE, String::new())
            };
            println!("{} {name} {why}", RESULTS[list]);
            if list == TIMEOUT {
                lock(&slow).push(number);
            } else {
                lock(&results).0[list].push(name.clone());
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        let join = |worker: thread::ScopedJoinHandle<'_, Result<(), Error>>| {
            worker.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        workers.into_iter().try_for_each(join)
    })?;
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let slow = slow.into_inner().unwrap_or_else(PoisonError::into_inner);
    if !slow.is_empty() {
        println!(
            "mutants: {} that ran into a time limit are tried again",
            slow.len()
        );
    }
    for number in slow {
        let name = &all[number].name;
        let (verdict, why) = trial::judge_again(tests, number)?;
        println!("{} {name} {why}", RESULTS[verdict.list()]);
        results.0[verdict.list()].push(name.clone());
    }
    Ok(results)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Verdict {
    /// Its list.
    const fn list(self) -> usize {
        match self {
            Self::Caught => 0,
            Self::Missed => 1,
            Self::Endless => TIMEOUT,
        }
    }
}

impl Options {
    fn narrows(&self) -> bool {
        let some = [&self.file, &self.function].map(|names| !names.is_empty());
        some.contains(&true) || self.shard.is_some() || self.since.is_some()
    }
}

/// What cargo-mutants lists.
fn listed(program: &Path, narrower: &[String], output: &Path) -> Result<String, Error> {
    let mut command = Command::new(program);
    command.current_dir(workspace::root());
    command.args(["mutants", "--package", PACKAGE, "--list", "--json"]);
    command.arg("--output").arg(output);
    for text in TEXTS {
        command.args(["--exclude-re", text]);
    }
    command.args(narrower);
    shell::output("cargo mutants --list", &mut command)
}

/// What narrows the list.
fn arguments(options: &Options, output: &Path) -> Result<Vec<String>, Error> {
    let mut words: Vec<String> = Vec::new();
    let mut add = |option: &str, value: String| words.extend([option.to_owned(), value]);
    for file in &options.file {
        add("--file", format!("{PACKAGE}/src/{file}"));
    }
    for function in &options.function {
        add("--re", function.clone());
    }
    if let Some(shard) = &options.shard {
        add("--shard", shard.clone());
    }
    if let Some(commit) = &options.since {
        let changes = diff(commit, output)?;
        add("--in-diff", changes.to_string_lossy().into_owned());
    }
    Ok(words)
}

/// A file with what has changed since a commit.
fn diff(commit: &str, output: &Path) -> Result<PathBuf, Error> {
    let mut git = Command::new("git");
    git.current_dir(workspace::root());
    git.args(["diff", commit, "--", &format!("{PACKAGE}/src")]);
    let text = shell::output("git diff", &mut git)?;
    let file = output.join("changes.diff");
    fs::write(&file, text).in_file(&file)?;
    Ok(file)
}

/// The mutants that were tested, by what became of them, with cargo-mutants' names.
#[derive(Default)]
struct Results([Vec<String>; RESULTS.len()]);

impl Results {
    /// Those of the last run.
    fn read(directory: &Path) -> Result<Self, Error> {
        let mut results = Self::default();
        for (list, name) in results.0.iter_mut().zip(RESULTS) {
            let file = directory.join(format!("{name}.txt"));
            let text = fs::read_to_string(&file).in_file(&file)?;
            list.extend(text.lines().map(str::to_owned));
        }
        Ok(results)
    }

    fn write(&self, directory: &Path) -> Result<(), Error> {
        for (list, name) in self.0.iter().zip(RESULTS) {
            let file = directory.join(format!("{name}.txt"));
            let text: String = list.iter().map(|name| format!("{name}\n")).collect();
            fs::write(&file, text).in_file(&file)?;
        }
        Ok(())
    }

    fn missed(&self) -> Vec<Mutant> {
        let missed = self.0[1].iter();
        missed.filter_map(|name| Mutant::parse(name)).collect()
    }

    fn count(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// A line for each file.
    fn print(&self) {
        let mut files: Vec<&str> = self
            .0
            .iter()
            .flatten()
            .filter_map(|name| name.split(':').next())
            .collect();
        files.sort_unstable();
        files.dedup();
        let [caught, missed, timeout, unviable] = RESULTS;
        println!(
            "{:<52} {caught:>8} {missed:>8} {timeout:>8} {unviable:>8}",
            "file"
        );
        for file in files {
            let is_in = |name: &&String| name.split(':').next() == Some(file);
            let of = |list: &Vec<String>| list.iter().filter(is_in).count();
            let [caught, missed, timeout, unviable] = self.0.each_ref().map(of);
            println!("{file:<52} {caught:>8} {missed:>8} {timeout:>8} {unviable:>8}");
        }
    }

    /// Those that no test noticed, and that nobody has explained. A test that did not end twice has noticed.
    fn unexplained(&self, survivors: &Survivors) -> Vec<Mutant> {
        let mut missed = self.missed();
        missed.retain(|mutant| !survivors.explain(mutant));
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_explained_mutant_is_of_a_file_that_is_there() {
        let root = workspace::root();
        let text = fs::read_to_string(root.join(HARMLESS)).expect("a list");
        let survivors = Survivors::read(&text).expect("a list that can be read");
        for file in survivors.files() {
            assert!(root.join(file).is_file(), "{file}");
        }
    }

    #[test]
    fn a_share_is_one_of_so_many() {
        for good in ["0/8", "7/8"] {
            assert_eq!(shard(good).as_deref(), Ok(good));
        }
        for bad in ["5", "8/8", "a/b", "0/0", "-1/2", "1/2/3"] {
            assert!(shard(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn files_are_named_from_the_crate_on() {
        let options = Options {
            file: vec!["conn/routes.rs".to_owned()],
            function: Vec::new(),
            shard: Some("0/8".to_owned()),
            since: None,
            again: false,
            without: Vec::new(),
            jobs: NonZeroUsize::MIN,
            model: false,
            list: false,
        };
        let words = arguments(&options, Path::new("out")).expect("no diff");
        let words = words.join(" ");
        assert_eq!(words, "--file statemachine/src/conn/routes.rs --shard 0/8");
    }
}
