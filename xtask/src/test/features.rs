//! Checks that the binary compiles without every controller, and with each one alone.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cargo::{AS_TESTS, cargo};

const PACKAGE: &str = "belayer";

/// What is compiled together with the binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    /// The whole workspace: third-party crates are those of the tests, already compiled. A feature of
    /// one of them that the binary forgot to enable may be enabled by another package.
    Workspace,
    /// Nothing, as in an installation. Third-party crates are compiled again.
    Nothing,
}

/// One check without any feature and one for each feature alone; the default is checked by clippy.
pub(super) fn checks(beside: Beside) -> Result<Vec<(String, Command)>> {
    let metadata = metadata()?;
    let features =
        features(&metadata).with_context(|| format!("no package {PACKAGE} in cargo metadata"))?;
    let users = users(&metadata);
    let mut checks = vec![("features: none".to_owned(), check(beside, &users, None))];
    for feature in features {
        let name = format!("features: {feature}");
        checks.push((name, check(beside, &users, Some(&feature))));
    }
    Ok(checks)
}

/// The binary as it is installed: without the features that tests enable in the libraries.
pub(super) fn installed() -> Command {
    let mut command = cargo();
    command.args(["check", "--bins", "--package", PACKAGE]);
    command
}

fn check(beside: Beside, users: &[String], feature: Option<&str>) -> Command {
    let mut command = cargo();
    command.args(["check", "--lib", "--bins", "--no-default-features"]);
    match beside {
        Beside::Workspace => {
            command.args(AS_TESTS);
            for user in users {
                command.args(["--exclude", user]);
            }
        }
        Beside::Nothing => {
            command.args(["--package", PACKAGE]);
        }
    }
    if let Some(feature) = feature {
        command.arg(format!("--features={PACKAGE}/{feature}"));
    }
    command
}

pub(super) fn metadata() -> Result<Value> {
    let output = cargo()
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .context("start cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata failed");
    serde_json::from_slice(&output.stdout).context("read cargo metadata")
}

fn features(metadata: &Value) -> Option<Vec<String>> {
    let packages = metadata["packages"].as_array()?;
    let package = packages.iter().find(|package| package["name"] == PACKAGE)?;
    let features = package["features"].as_object()?;
    Some(
        features
            .keys()
            .filter(|name| *name != "default")
            .cloned()
            .collect(),
    )
}

/// The packages that use the binary's library: together with one of them the binary has the features that
/// this package enables, whatever the check leaves out.
fn users(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let uses = |package: &&Value| {
        let mut dependencies = package["dependencies"].as_array().into_iter().flatten();
        dependencies.any(|dependency| dependency["name"] == PACKAGE)
    };
    let names = packages
        .filter(uses)
        .filter_map(|package| package["name"].as_str());
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_but_the_default_is_named() {
        let metadata = serde_json::json!({ "packages": [
            { "name": "other", "features": { "x": [] } },
            { "name": "belayer", "features": { "default": ["demo"], "demo": [], "pod-finalizer": [] } },
        ]});
        assert_eq!(features(&metadata).unwrap(), ["demo", "pod-finalizer"]);
    }

    #[test]
    fn a_package_that_uses_the_binary_is_not_part_of_its_check() {
        let metadata = serde_json::json!({ "packages": [
            { "name": "belayer", "dependencies": [{ "name": "clap" }] },
            { "name": "program", "dependencies": [{ "name": "belayer" }] },
        ]});
        assert_eq!(users(&metadata), ["program"]);
    }
}
