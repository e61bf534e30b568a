//! Checks what would be published: each crate is compiled from its own archive, and compared with the last release.

use std::process::Command;

use anyhow::{Context, Result};

use super::features::metadata;
use super::step::Step;
use crate::cargo::{cargo, has_plugin, root};

/// `cargo package` of every published crate. Without network access: their registry is a folder of the build.
pub(super) fn verify() -> Result<Command> {
    let mut command = cargo();
    command.args(["package", "--offline", "--allow-dirty"]);
    of_libraries(&mut command)?;
    Ok(command)
}

/// Compares the public items of the published crates with those of the last release.
pub(super) fn semver() -> Result<Step> {
    let name = "the public items of the crates since the last release";
    let Some(tag) = last_release()? else {
        return Ok(Step::skipped(name, "there is no earlier release"));
    };
    if !has_plugin("semver-checks") {
        let how =
            "cargo-semver-checks is not installed: cargo install --locked cargo-semver-checks";
        return Ok(Step::skipped(name, how));
    }
    let mut command = cargo();
    command.args(["semver-checks", "check-release", "--baseline-rev", &tag]);
    of_libraries(&mut command)?;
    Ok(Step::check(name, command))
}

/// Selects the published crates.
fn of_libraries(command: &mut Command) -> Result<()> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let private = packages.filter(|package| package["publish"] == serde_json::json!([]));
    command
        .arg("--workspace")
        // A library has no version of Kubernetes; a program that uses it chooses one.
        .env("K8S_OPENAPI_ENABLED_VERSION", "1.36");
    for name in private.filter_map(|package| package["name"].as_str()) {
        command.args(["--exclude", name]);
    }
    Ok(())
}

/// The last tag of a release before this commit.
fn last_release() -> Result<Option<String>> {
    let mut git = Command::new("git");
    git.args(["describe", "--tags", "--abbrev=0", "--match=v*", "HEAD^"])
        .current_dir(root());
    let output = git.output().context("start git")?;
    let tag = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok(output.status.success().then_some(tag))
}

/// Whether cargo-deny is installed: its build takes minutes.
pub(super) fn has_deny() -> bool {
    has_plugin("deny")
}

/// Checks the dependencies against `.cargo/deny.toml`, without network access.
pub(super) fn deny() -> Command {
    let mut command = cargo();
    command.args(["deny", "--offline", "--locked", "check"]);
    command.args(["licenses", "bans", "sources"]);
    command
}
