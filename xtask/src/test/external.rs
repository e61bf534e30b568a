//! What other projects see first: the crates' examples, and programs outside the workspace that use one crate each, with
//! their own lock file, the crate's own features, and another version of Kubernetes.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cargo::{built, cargo, root, target};

const FOLDER: &str = "e2e/external";

/// Examples that end by themselves and fail if a result is wrong.
const EXAMPLES: [&str; 6] = [
    "election",
    "informer",
    "live_reads",
    "runner",
    "virtual_machines",
    "workqueue",
];

/// Runs each example, as the tests have built it.
pub(super) fn examples() -> impl Iterator<Item = (String, Command)> {
    EXAMPLES.into_iter().map(|name| {
        let command = built("debug", &format!("examples/{name}"));
        (format!("the example {name}"), command)
    })
}

/// Builds and runs each program. One at a time: together they would share their features.
pub(super) fn programs() -> Result<Vec<(String, Command)>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root().join(FOLDER)).context(FOLDER)? {
        let path = entry?.path();
        if path.is_dir() && path.join("Cargo.toml").exists() {
            names.extend(
                path.file_name()
                    .and_then(|name| Some(name.to_str()?.to_owned())),
            );
        }
    }
    names.sort();
    let runs = names.into_iter().map(|name| {
        let mut command = cargo();
        command
            .args(["run", "--quiet", "--locked"])
            .args(manifest());
        command.arg("--package").arg(format!("external-{name}"));
        // Third-party crates with the same features are those of the workspace, already compiled.
        command.arg("--target-dir").arg(target());
        (format!("a program outside the workspace: {name}"), command)
    });
    Ok(runs.collect())
}

/// Checks their format.
pub(super) fn format() -> Command {
    let mut command = cargo();
    command.args(["fmt", "--all", "--check"]).args(manifest());
    command
}

fn manifest() -> [String; 2] {
    ["--manifest-path".to_owned(), format!("{FOLDER}/Cargo.toml")]
}
