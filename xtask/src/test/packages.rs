//! Checks what would be published: each crate is compiled from its own archive.

use std::process::Command;

use anyhow::Result;

use super::features::metadata;
use crate::cargo::{cargo, has_plugin};

/// `cargo package` of every published crate. Without network access: their registry is a folder of the build.
pub(super) fn verify() -> Result<Command> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let private = packages.filter(|package| package["publish"] == serde_json::json!([]));
    let mut command = cargo();
    command
        .args(["package", "--workspace", "--offline", "--allow-dirty"])
        // A library has no version of Kubernetes; a program that uses it chooses one.
        .env("K8S_OPENAPI_ENABLED_VERSION", "1.36");
    for name in private.filter_map(|package| package["name"].as_str()) {
        command.args(["--exclude", name]);
    }
    Ok(command)
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
