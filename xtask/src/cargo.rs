//! Runs cargo from xtask.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};

/// The cargo that runs xtask, in the workspace's root.
pub(crate) fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root());
    // Cargo sets these variables for the package of xtask. The build script of ring reads them: if they were passed on, ring and
    // all crates that depend on it would be compiled again after each `cargo build` without xtask.
    let own = std::env::vars_os().map(|(name, _)| name);
    for name in own.filter(|name| is_of_a_package(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    command
}

fn is_of_a_package(name: &str) -> bool {
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

/// Selects the whole workspace and its examples: cargo then gives third-party crates the
/// features that `cargo test --workspace` gives them, and compiles them once for both.
pub(crate) const AS_TESTS: [&str; 2] = ["--workspace", "--examples"];

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    manifest
        .parent()
        .map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// `cargo run` of one of the workspace's programs; only the program's output and compiler progress are
/// printed.
pub(crate) fn run_package(package: &str) -> Command {
    let mut command = cargo();
    command.args(["run", "--package", package, "--"]);
    command
}

/// A program of this profile's target folder. Not by `cargo run`, which selects one package
/// and would build it again, with the features that it has alone.
pub(crate) fn built(profile: &str, program: &str) -> Command {
    let mut command = Command::new(target().join(profile).join(program));
    command.current_dir(root());
    command
}

/// The target folder, in which xtask itself was built.
pub(crate) fn target() -> PathBuf {
    let us = std::env::current_exe().unwrap_or_default();
    us.ancestors().nth(2).unwrap_or(Path::new("target")).into()
}

/// `cargo build` of these packages in release mode. `belayer version` names the commit.
pub(crate) fn release(packages: &[&str]) -> Command {
    release_by(None, packages)
}

/// As [`release`], by a plugin of cargo that wraps `build`.
pub(crate) fn release_by(plugin: Option<&str>, packages: &[&str]) -> Command {
    let mut build = cargo();
    build.args(plugin).args(["build", "--release"]);
    if let Some(commit) = commit() {
        build.env("BELAYER_COMMIT", commit);
    }
    for package in packages {
        build.args(["--package", package]);
    }
    build
}

/// Whether this plugin of cargo is installed.
pub(crate) fn has_plugin(name: &str) -> bool {
    let mut version = cargo();
    version
        .args([name, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}

/// The commit of the work tree; `None` outside a repository.
fn commit() -> Option<String> {
    let mut git = Command::new("git");
    git.args(["rev-parse", "HEAD"])
        .current_dir(root())
        .stderr(Stdio::null());
    let output = git.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// Runs a `cargo build` that another command needs.
pub(crate) fn compile(mut command: Command) -> Result<()> {
    let status = command.status().context("start cargo")?;
    ensure!(status.success(), "a program does not compile: see above");
    Ok(())
}

/// Runs the command and returns its exit code.
pub(crate) fn pass_through(mut command: Command) -> Result<ExitCode> {
    let status = command.status().context("start cargo")?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_is_not_told_which_package_runs_it() {
        let cargo = cargo();
        let removed = |name: &str| {
            let mut changed = cargo.get_envs();
            changed.any(|(have, value)| have == name && value.is_none())
        };
        // `cargo test` sets them.
        for name in ["CARGO_PKG_NAME", "CARGO_MANIFEST_DIR"] {
            assert!(
                std::env::var_os(name).is_some() && removed(name),
                "{name} is passed on"
            );
        }
    }
}
