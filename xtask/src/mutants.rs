// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask mutants`: whether the engine's tests notice a changed condition, by cargo-mutants. Each mutant is
//! built and tested by itself, so that all of them take hours: files, functions or a share of them can be named.

mod survivors;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use self::survivors::{Mutant, Survivors};
use crate::cargo_tool::CargoTool;
use crate::error::{Error, InFile};
use crate::{packages, shell, workspace};

const TOOL: CargoTool = CargoTool {
    name: "cargo-mutants",
    version: "27.1.0",
};

/// The crate whose tests are tried.
const PACKAGE: &str = "statemachine";

/// Mutants that may live, and why.
const HARMLESS: &str = "statemachine/harmless-mutants.txt";

/// What became of mutants, as cargo-mutants names its lists.
const RESULTS: [&str; 4] = ["caught", "missed", "timeout", "unviable"];

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
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
    /// Only mutants of lines that differ from this commit
    #[arg(long, value_name = "COMMIT")]
    since: Option<String>,
    /// Have the model checker look at each as well: minutes more for each that the other tests do not notice
    #[arg(long)]
    model: bool,
    /// Name them, and test none
    #[arg(long)]
    list: bool,
}

/// `cargo xtask mutants`.
pub(crate) fn run(options: &Options) -> Result<u8, Error> {
    packages::install(packages::BUILD)?;
    let program = TOOL.provide()?;
    let harmless = workspace::root().join(HARMLESS);
    let survivors = Survivors::read(&fs::read_to_string(&harmless).in_file(&harmless)?)?;
    let output = workspace::target().join("mutants");
    fs::create_dir_all(&output).in_file(&output)?;
    let mut command = Command::new(&program);
    command.current_dir(workspace::root());
    command.args(arguments(options, &output)?);
    let start = |source| Error::Start {
        program: TOOL.name.to_owned(),
        source,
    };
    // Its status says no more than its lists, unless it could test nothing.
    let status = command.status().map_err(start)?;
    if options.list {
        return Ok(u8::from(!status.success()));
    }
    let results = Results::read(&output.join("mutants.out"))?;
    results.print();
    let unexplained = results.unexplained(&survivors);
    for mutant in &unexplained {
        println!("mutants: no test notices {mutant}");
    }
    match (results.count(), unexplained.len()) {
        (0, _) => Err(Error::Other(format!(
            "cargo mutants tested nothing ({status})"
        ))),
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

/// What cargo-mutants is called with.
fn arguments(options: &Options, output: &Path) -> Result<Vec<String>, Error> {
    let mut words: Vec<String> = ["mutants", "--package", PACKAGE, "--no-shuffle"]
        .map(Into::into)
        .into();
    let mut add = |option: &str, value: String| words.extend([option.to_owned(), value]);
    add("--output", output.to_string_lossy().into_owned());
    // Built once a mutant: without traces, and with fewer optimizations than the model checker wants.
    add("--profile", "mutants".to_owned());
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
    if options.list {
        words.push("--list".to_owned());
    } else if !options.model {
        words.extend(["--", "--", "--skip", "model::", "--skip", "guard::"].map(Into::into));
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

/// The mutants that were tested, by what became of them.
struct Results([Vec<Mutant>; RESULTS.len()]);

impl Results {
    fn read(directory: &Path) -> Result<Self, Error> {
        let read = |name: &str| {
            let file = directory.join(format!("{name}.txt"));
            let text = fs::read_to_string(&file).in_file(&file)?;
            Ok(text.lines().filter_map(Mutant::parse).collect())
        };
        let mut lists: [Vec<Mutant>; RESULTS.len()] = Default::default();
        for (list, name) in lists.iter_mut().zip(RESULTS) {
            *list = read(name)?;
        }
        Ok(Self(lists))
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
            .map(|mutant| mutant.file.as_str())
            .collect();
        files.sort_unstable();
        files.dedup();
        let [caught, missed, timeout, unviable] = RESULTS;
        println!(
            "{:<52} {caught:>8} {missed:>8} {timeout:>8} {unviable:>8}",
            "file"
        );
        for file in files {
            let of = |list: &Vec<Mutant>| list.iter().filter(|mutant| mutant.file == file).count();
            let [caught, missed, timeout, unviable] = self.0.each_ref().map(of);
            println!("{file:<52} {caught:>8} {missed:>8} {timeout:>8} {unviable:>8}");
        }
    }

    /// Those that no test noticed, and that nobody has explained. A test that never ends has noticed.
    fn unexplained(&self, survivors: &Survivors) -> Vec<&Mutant> {
        let missed = self.0[1].iter();
        missed.filter(|mutant| !survivors.explain(mutant)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options {
            file: vec!["conn/routes.rs".to_owned()],
            function: Vec::new(),
            shard: Some("0/8".to_owned()),
            since: None,
            model: false,
            list: false,
        }
    }

    #[test]
    fn files_are_named_from_the_crate_on_and_the_model_checker_is_asked_for() {
        let words = |options| {
            arguments(&options, Path::new("out"))
                .expect("no diff")
                .join(" ")
        };
        let short = words(options());
        assert!(short.contains("--file statemachine/src/conn/routes.rs --shard 0/8"));
        assert!(
            short.ends_with("-- -- --skip model:: --skip guard::"),
            "{short}"
        );
        let long = words(Options {
            model: true,
            ..options()
        });
        assert!(!long.contains("--skip"), "{long}");
    }

    #[test]
    fn every_explained_mutant_is_of_a_file_that_is_there() {
        let root = workspace::root();
        let text = fs::read_to_string(root.join(HARMLESS)).expect("a list");
        let survivors = Survivors::read(&text).expect("a list that can be read");
        for file in survivors.files() {
            assert!(root.join(file).is_file(), "{file}");
        }
    }
}
