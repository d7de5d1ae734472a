// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask notices`: the licence texts of all crates that are linked into apmd, apmctl and librdmacm-apm, by
//! cargo-about, as a file that is installed with them. `xtask/tests/notices.rs` holds it to the dependencies.

use std::process::Command;

use crate::cargo_tool::CargoTool;
use crate::error::Error;
use crate::{deny, shell, workspace};

const TOOL: CargoTool = CargoTool {
    name: "cargo-about",
    version: "0.9.3",
    features: &["cli"],
};

/// The file, in the workspace.
const NOTICES: &str = "apmd/dist/third-party-notices.txt";

/// `cargo xtask notices`.
pub(crate) fn run() -> Result<u8, Error> {
    let program = TOOL.provide()?;
    deny::provide_crates()?;
    let mut about = Command::new(program);
    about.current_dir(workspace::root());
    // The library's dependencies are among the daemon's: the test notices one that is not.
    about.args(["about", "generate", "--offline", "--locked", "--fail"]);
    about.args([
        "--manifest-path",
        "apmd/Cargo.toml",
        "--config",
        "about.toml",
    ]);
    about.args(["--output-file", NOTICES, "about.hbs"]);
    shell::output("cargo about", &mut about)?;
    println!("{NOTICES}: written");
    Ok(0)
}
