//! `cargo xtask skew`.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::cargo::{cargo, compile, pass_through, root, target};
use crate::e2e::{build, program};

/// Run this build and that of an earlier commit on one Lease, kill the leader again and again, and check that nothing is lost
///
/// As during an upgrade, each replica goes on with the records and finalizers of the other. Options after the commit are
/// passed to `belayer-e2e skew`: `--kills`, `--rate`, `--seed`.
#[derive(Debug, Args)]
pub(crate) struct Skew {
    /// A commit or tag
    #[arg(value_name = "COMMIT")]
    commit: String,

    /// Options of the program
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "OPTION"
    )]
    options: Vec<String>,
}

impl Skew {
    pub(crate) fn execute(self) -> Result<ExitCode> {
        // A folder of its own: cargo would take crates of one tree for those of the other.
        let home = target().join("skew");
        let tree = home.join("tree");
        if !tree.exists() {
            let (from, to) = (root(), tree.to_string_lossy().into_owned());
            git(
                &from,
                &["clone", "--quiet", "--shared", "--no-checkout", ".", &to],
            )?;
        }
        git(&tree, &["fetch", "--quiet", "origin"])?;
        let commit = output(
            &root(),
            &[
                "rev-parse",
                "--verify",
                &format!("{}^{{commit}}", self.commit),
            ],
        )?;
        git(&tree, &["checkout", "--quiet", "--detach", &commit])?;
        let mut other = cargo();
        other
            .current_dir(&tree)
            .args(["build", "--package", "belayer"])
            .env("CARGO_TARGET_DIR", home.join("target"));
        compile(other)?;
        compile(build())?;
        let mut command = program();
        command
            .arg("skew")
            .arg(home.join("target/debug/belayer"))
            .args(self.options);
        pass_through(command)
    }
}

fn git(folder: &Path, arguments: &[&str]) -> Result<()> {
    output(folder, arguments).map(drop)
}

fn output(folder: &Path, arguments: &[&str]) -> Result<String> {
    let mut git = Command::new("git");
    let output = git.current_dir(folder).args(arguments).output();
    let output = output.context("start git")?;
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "git {}: {why}",
        arguments.join(" ")
    );
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
