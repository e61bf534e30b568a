//! Instructions and allocations of the hot paths. They are the same on every run, so that, unlike times,
//! they can be compared with bounds in the repository.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path as File;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use belayer_subject::paths::{Cost, Path};
use serde::{Deserialize, Serialize};

use super::chart::figure;

/// How often a path is run; the difference between this and twice this excludes the cost of start
/// and end.
const TIMES: usize = 4000;

/// A higher excess over the bound is a regression. Compilers differ a little.
const TOLERANCE: f64 = 0.10;

/// The maximum cost of one path.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Bound {
    /// Instructions per run.
    instructions: f64,
    /// Allocations per run.
    allocations: f64,
}

/// Whether the bounds are checked or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bounds {
    /// A path above its bound is a failure.
    Check,
    /// The measured values become the bounds.
    Bless,
}

/// Whether instructions can be counted on this machine.
pub(crate) fn is_available() -> bool {
    let version = Command::new("valgrind")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    version.is_ok_and(|status| status.success())
}

/// Counts all paths, prints a table, and checks or writes the bounds in `file`.
/// Fails when a path exceeds its bound, or valgrind is missing or fails.
pub(crate) fn run(subject: &File, file: &File, bounds: Bounds) -> Result<()> {
    ensure!(is_available(), "valgrind is not installed");
    let before: BTreeMap<String, Bound> = match fs::read_to_string(file) {
        Ok(text) => serde_json::from_str(&text).context("parse the bounds")?,
        Err(_) if bounds == Bounds::Bless => BTreeMap::new(),
        Err(error) => return Err(error).with_context(|| format!("read {}", file.display())),
    };
    let mut now = BTreeMap::new();
    let mut table =
        "| path | instructions | bound | allocations | bytes | ns |\n| --- | ---: | ---: | ---: | ---: | ---: |\n"
            .to_owned();
    for path in Path::ALL {
        let cost = walk(subject, path)?;
        let instructions = instructions(subject, path)?;
        let bound = before.get(path.name());
        let _ = writeln!(
            table,
            "| {} | {instructions:.0} | {} | {} | {} | {} |",
            path.name(),
            bound.map_or_else(
                || "none".to_owned(),
                |bound| format!("{:.0}", bound.instructions)
            ),
            figure(cost.allocations),
            figure(cost.bytes),
            figure(cost.nanoseconds),
        );
        now.insert(
            path.name().to_owned(),
            Bound {
                instructions: instructions.round(),
                allocations: (cost.allocations * 100.0).round() / 100.0,
            },
        );
    }
    anstream::println!("{table}");
    if bounds == Bounds::Bless {
        let text = serde_json::to_string_pretty(&now)? + "\n";
        return fs::write(file, text).with_context(|| format!("write {}", file.display()));
    }
    let trouble = compare(&before, &now);
    if trouble.is_empty() {
        return Ok(());
    }
    bail!(
        "{}; to accept it, run cargo xtask bench instructions --bless",
        trouble.join(", ")
    )
}

fn compare(before: &BTreeMap<String, Bound>, now: &BTreeMap<String, Bound>) -> Vec<String> {
    let mut trouble = Vec::new();
    for (path, cost) in now {
        let Some(bound) = before.get(path) else {
            trouble.push(format!("{path} has no bound"));
            continue;
        };
        for (what, cost, bound) in [
            ("instructions", cost.instructions, bound.instructions),
            ("allocations", cost.allocations, bound.allocations),
        ] {
            if cost > bound * (1.0 + TOLERANCE) + 0.05 {
                let (cost, bound) = (figure(cost), figure(bound));
                trouble.push(format!("{path} needs {cost} {what}, its bound is {bound}"));
            }
        }
    }
    trouble
}

fn walk(subject: &File, path: Path) -> Result<Cost> {
    let times = TIMES.to_string();
    let output = Command::new(subject)
        .args(["path", path.name(), "--times", &times])
        .output()
        .with_context(|| format!("start {}", subject.display()))?;
    let printed = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {printed}", path.name());
    serde_json::from_slice(&output.stdout).context("parse the printed cost")
}

fn instructions(subject: &File, path: Path) -> Result<f64> {
    let [once, twice] = [TIMES, 2 * TIMES].map(|times| counted(subject, path, times));
    Ok((twice? - once?) / TIMES as f64)
}

fn counted(subject: &File, path: Path, times: usize) -> Result<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(subject)
        .args(["path", path.name(), "--times", &times.to_string()])
        .output()
        .context("start valgrind")?;
    let printed = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {printed}", path.name());
    collected(&printed).with_context(|| format!("valgrind counted nothing: {printed}"))
}

/// The count in a line such as `==7== Collected : 12345`.
fn collected(printed: &str) -> Option<f64> {
    let line = printed.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit_once(':')?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(instructions: f64, allocations: f64) -> BTreeMap<String, Bound> {
        let bound = Bound {
            instructions,
            allocations,
        };
        [("decode".to_owned(), bound)].into()
    }

    #[test]
    fn a_path_above_its_bound_is_named() {
        let bound = bounds(1000.0, 2.0);
        assert!(compare(&bound, &bounds(1090.0, 2.0)).is_empty());
        assert!(compare(&bound, &bounds(500.0, 0.0)).is_empty());
        let more = compare(&bound, &bounds(1110.0, 3.0));
        assert_eq!(
            more,
            [
                "decode needs 1110 instructions, its bound is 1000",
                "decode needs 3.00 allocations, its bound is 2.00"
            ]
        );
        assert_eq!(compare(&BTreeMap::new(), &bound), ["decode has no bound"]);
    }

    #[test]
    fn the_count_is_parsed_from_valgrinds_output() {
        let printed = "==7== Events    : Ir\n==7== Collected : 12345\n==7==\n";
        assert_eq!(collected(printed), Some(12345.0));
        assert_eq!(collected("nothing"), None);
    }
}
