//! `cargo xtask mutants`.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::cargo::{cargo, root};

/// Plant known faults in Belayer one by one, and check that simulated clusters find each
///
/// A fault is a patch in `e2e/simulator/mutants`. Each is applied to a copy of the tracked files below `target/mutants`, and
/// the simulator runs seed after seed until one violates an invariant. The result is a Markdown table. The exit code is 1
/// if a fault was not found.
#[derive(Debug, Args)]
pub(crate) struct Mutants {
    /// Only faults whose names contain one of these
    names: Vec<String>,

    /// After how many seeds a fault counts as not found
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    seeds: u64,

    /// The first seed; from 1,000,000 on runs are small, from 10,000,000, 40,000,000 and 50,000,000 on their settings differ more,
    /// from 60,000,000 on they are shorter. A patch whose second line is `From seed N.` needs the runs from there on
    #[arg(long, default_value_t = 50_000_000, value_name = "SEED")]
    first: u64,

    /// Print the names only
    #[arg(long)]
    list: bool,
}

/// A planted fault.
struct Mutant {
    name: String,
    /// What it does, in a sentence.
    what: String,
    /// The first seed whose runs can show it.
    from: u64,
    patch: PathBuf,
}

/// How a fault was found.
struct Found {
    seed: u64,
    /// The violated invariant.
    violated: String,
}

impl Mutants {
    pub(crate) fn execute(self) -> Result<ExitCode> {
        let mut mutants = all(&root())?;
        if !self.names.is_empty() {
            mutants.retain(|mutant| self.names.iter().any(|name| mutant.name.contains(name)));
            ensure!(!mutants.is_empty(), "no fault has such a name: see --list");
        }
        if self.list {
            for mutant in &mutants {
                println!("{:<32}  {}", mutant.name, mutant.what);
            }
            return Ok(ExitCode::SUCCESS);
        }
        let tree = Tree::copy()?;
        let mut missed = Vec::new();
        println!(
            "| fault | what it does | found after seeds | violated invariant | with compiling |"
        );
        println!("| --- | --- | --- | --- | --- |");
        for mutant in &mutants {
            let begun = Instant::now();
            tree.apply(&mutant.patch, &[])?;
            let found = tree.build().and_then(|()| self.look(&tree, mutant.from));
            tree.apply(&mutant.patch, &["--reverse"])?;
            let found = found.with_context(|| format!("fault {}", mutant.name))?;
            let took = begun.elapsed().as_secs();
            let (seeds, violated) = match &found {
                Some(found) => (
                    found.seed - self.first.max(mutant.from) + 1,
                    &*found.violated,
                ),
                None => {
                    missed.push(mutant.name.as_str());
                    (self.seeds, "MISSED")
                }
            };
            let Mutant { name, what, .. } = mutant;
            println!("| {name} | {what} | {seeds} | {violated} | {took} s |");
        }
        println!("\n{} faults, {} missed", mutants.len(), missed.len());
        Ok(ExitCode::from(u8::from(!missed.is_empty())))
    }

    /// Runs seeds until one violates an invariant.
    fn look(&self, tree: &Tree, from: u64) -> Result<Option<Found>> {
        let mut simulator = tree.simulator();
        simulator
            .args(["--seeds", &self.seeds.to_string()])
            .args(["--first", &self.first.max(from).to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut running = simulator.spawn().context("start the simulator")?;
        let output = running.stdout.take().context("no output")?;
        let mut found = None;
        for line in BufReader::new(output).lines() {
            found = violation(&line?);
            if found.is_some() {
                running.kill()?;
                break;
            }
        }
        let status = running.wait()?;
        ensure!(
            found.is_some() || status.success(),
            "the simulator ended with {status}"
        );
        Ok(found)
    }
}

/// Reads `seed 7 violates NO-LOSS: pod ci/x ...`.
fn violation(line: &str) -> Option<Found> {
    let (seed, how) = line.strip_prefix("seed ")?.split_once(" violates ")?;
    let violated = how.split_once(':').map_or(how, |(name, _)| name);
    Some(Found {
        seed: seed.parse().ok()?,
        violated: violated.to_owned(),
    })
}

/// All faults, by name.
fn all(root: &Path) -> Result<Vec<Mutant>> {
    let folder = root.join("e2e/simulator/mutants");
    let mut mutants = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let patch = entry?.path();
        let text = fs::read_to_string(&patch)?;
        let name = patch.file_stem().unwrap_or_default();
        let mut lines = text.lines();
        mutants.push(Mutant {
            name: name.to_string_lossy().into_owned(),
            what: lines.next().unwrap_or_default().to_owned(),
            from: lines
                .next()
                .map_or(Ok(0), |line| first_seed(&patch, line))?,
            patch,
        });
    }
    mutants.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(mutants)
}

/// Reads `From seed 70000000.`; an empty line if all runs can show the fault.
fn first_seed(patch: &Path, line: &str) -> Result<u64> {
    if line.is_empty() {
        return Ok(0);
    }
    let seed = line.strip_prefix("From seed ");
    let seed = seed.and_then(|line| line.strip_suffix('.')?.parse().ok());
    seed.with_context(|| {
        format!(
            "{}: line 2 must be empty or `From seed N.`",
            patch.display()
        )
    })
}

/// A copy of the tracked files, in which faults are planted.
struct Tree {
    /// Contains the copy and its build.
    home: PathBuf,
}

impl Tree {
    /// Copies what differs from an earlier copy, so that cargo compiles nothing twice.
    fn copy() -> Result<Self> {
        let tree = Self {
            home: root().join("target/mutants"),
        };
        let mut git = Command::new("git");
        let listed = git.args(["ls-files", "-z"]).current_dir(root()).output()?;
        ensure!(
            listed.status.success(),
            "`git ls-files` failed: the faults are planted in tracked files"
        );
        for file in String::from_utf8(listed.stdout)?.split_terminator('\0') {
            let (from, to) = (root().join(file), tree.files().join(file));
            let Ok(text) = fs::read(&from) else {
                continue;
            };
            if fs::read(&to).is_ok_and(|copied| copied == text) {
                continue;
            }
            fs::create_dir_all(to.parent().unwrap_or(&tree.home))?;
            fs::write(to, text)?;
        }
        Ok(tree)
    }

    fn files(&self) -> PathBuf {
        self.home.join("tree")
    }

    fn apply(&self, patch: &Path, options: &[&str]) -> Result<()> {
        apply(&self.files(), patch, options)
    }

    /// Compiled for speed, but without what makes each build slow.
    fn build(&self) -> Result<()> {
        let built = cargo()
            .current_dir(self.files())
            .args([
                "build",
                "--release",
                "--quiet",
                "--package",
                "belayer-simulator",
            ])
            .env("CARGO_TARGET_DIR", self.home.join("target"))
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "64")
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
            .args(["--config", "profile.release.package.\"*\".opt-level=3"])
            .env("RUSTFLAGS", "--cap-lints=allow")
            .status()?;
        ensure!(built.success(), "it does not compile: see above");
        Ok(())
    }

    fn simulator(&self) -> Command {
        Command::new(self.home.join("target/release/belayer-simulator"))
    }
}

/// Applies a patch below `folder`, whatever repository that is in.
fn apply(folder: &Path, patch: &Path, options: &[&str]) -> Result<()> {
    let mut git = Command::new("git");
    git.current_dir(folder)
        .env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap_or(folder))
        .arg("apply")
        .args(options)
        .arg(patch);
    let output = git.output().context("start git")?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("{} cannot be applied: {why}", patch.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The code around a fault has changed: then make the patch again.
    #[test]
    fn each_fault_can_be_planted_and_says_what_it_does() {
        let mutants = all(&root()).unwrap();
        assert!(mutants.len() >= 40, "{}", mutants.len());
        for mutant in mutants {
            apply(&root(), &mutant.patch, &["--check"]).unwrap();
            assert!(!mutant.what.is_empty(), "{}", mutant.name);
        }
    }

    #[test]
    fn a_violation_is_read_from_the_output() {
        let found = violation("seed 12 violates NO-LOSS: pod ci/a is gone").unwrap();
        assert_eq!((found.seed, &*found.violated), (12, "NO-LOSS"));
        assert!(violation("1000 seeds from 0, 0 failed").is_none());
    }
}
