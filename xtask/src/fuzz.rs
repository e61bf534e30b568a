//! `cargo xtask fuzz`.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::cargo::{cargo, root};

/// Run the property tests of what reads untrusted input for minutes each, with new random input in every round
///
/// They are the tests `fuzz_*` that `cargo test` runs with few cases. A target fails if it panics, if a property does not
/// hold, or if its process needs more memory than --most-mib. proptest prints the smallest input that fails and writes its
/// seed into the folder `proptest-regressions`, so that `cargo test` repeats it.
#[derive(Debug, Args)]
pub(crate) struct Fuzz {
    /// Only targets whose names contain one of these
    names: Vec<String>,

    /// How long each target runs
    #[arg(long, default_value_t = 10, value_name = "N")]
    minutes: u64,

    /// Resident memory that a target may need, in MiB
    #[arg(long, default_value_t = 64, value_name = "N")]
    most_mib: u64,

    /// Print the names only
    #[arg(long)]
    list: bool,
}

/// Name, package and test of each target.
const TARGETS: &[(&str, &str, &str)] = &[
    (
        "protobuf",
        "belayer-core",
        "fuzz_damaged_protobuf_is_decoded_or_bad",
    ),
    (
        "json",
        "belayer-core",
        "fuzz_damaged_json_is_decoded_or_bad",
    ),
    (
        "frames",
        "belayer-core",
        "fuzz_any_stream_is_cut_within_bounds",
    ),
    (
        "owners",
        "belayer-core",
        "fuzz_any_owner_reference_stays_in_its_place",
    ),
    (
        "status",
        "belayer-pod-finalizer",
        "fuzz_a_damaged_status_is_read_or_refused",
    ),
    (
        "mountinfo",
        "belayer-node-agent",
        "fuzz_a_damaged_mountinfo_is_read",
    ),
    ("carry", "belayer-pod-recreation", "fuzz_any_pod_is_carried"),
    (
        "configuration",
        "belayer",
        "fuzz_a_damaged_configuration_is_read_or_refused",
    ),
    (
        "kubeconfig",
        "belayer",
        "fuzz_a_damaged_kubeconfig_is_read_or_refused",
    ),
];

/// Cases of a round, where a test does not set them.
const CASES: &str = "20000";

const POLL: Duration = Duration::from_millis(50);

impl Fuzz {
    pub(crate) fn execute(self) -> Result<ExitCode> {
        let wanted = |name: &str| self.names.iter().any(|part| name.contains(&**part));
        let mut targets = TARGETS.to_vec();
        if !self.names.is_empty() {
            targets.retain(|(name, ..)| wanted(name));
            ensure!(!targets.is_empty(), "no target has such a name: see --list");
        }
        if self.list {
            for (name, package, test) in targets {
                println!("{name:<14} {package:<24} {test}");
            }
            return Ok(ExitCode::SUCCESS);
        }
        let folder = root().join("target/fuzz");
        fs::create_dir_all(&folder)?;
        let mut failed = 0;
        for (name, package, test) in targets {
            let program = build(package)?;
            let limit = Duration::from_secs(60 * self.minutes);
            let log = folder.join(format!("{name}.log"));
            let run = run(&program, test, limit, &log)?;
            let mib = run.peak_kib >> 10;
            let result = match run.failure {
                Some(_) => "failed",
                None if mib > self.most_mib => "too much memory",
                // It hangs, or it needs more time.
                None if run.rounds == 0 => "no round ended",
                None => "ok",
            };
            println!(
                "{name:<14} {result}: {} rounds in {:.1} minutes, at most {mib} MiB resident",
                run.rounds,
                run.took.as_secs_f64() / 60.0,
            );
            if let Some(output) = &run.failure {
                println!("{output}");
            }
            failed += usize::from(result != "ok");
        }
        Ok(match failed {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        })
    }
}

/// Builds the unit tests of a package, and returns their program.
fn build(package: &str) -> Result<String> {
    let mut command = cargo();
    command.args(["test", "--package", package, "--lib", "--no-run"]);
    command.arg("--message-format=json-render-diagnostics");
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .context("start cargo")?;
    ensure!(
        output.status.success(),
        "the tests of {package} do not compile"
    );
    let messages = String::from_utf8(output.stdout)?;
    let program = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["profile"]["test"] == true)
        .find_map(|message| message["executable"].as_str().map(str::to_owned));
    program.with_context(|| format!("cargo names no program for the tests of {package}"))
}

/// What a target did.
struct Run {
    rounds: u32,
    took: Duration,
    /// The most memory that it had.
    peak_kib: u64,
    /// The output of the round that failed.
    failure: Option<String>,
}

/// Repeats a test until the time is over, with new input in every round. The output goes to a file: a test that writes to
/// a pipe waits when the pipe is full and nothing reads it.
fn run(program: &str, test: &str, limit: Duration, log: &Path) -> Result<Run> {
    let begun = Instant::now();
    let mut run = Run {
        rounds: 0,
        took: Duration::ZERO,
        peak_kib: 0,
        failure: None,
    };
    while begun.elapsed() < limit && run.failure.is_none() {
        let mut command = Command::new(program);
        command
            .args([test, "--test-threads=1"])
            .env("PROPTEST_CASES", CASES);
        let output = File::create(log).with_context(|| log.display().to_string())?;
        command.stdout(output.try_clone()?).stderr(output);
        let mut child = command
            .spawn()
            .with_context(|| format!("start {program}"))?;
        let ended = loop {
            run.peak_kib = run.peak_kib.max(peak_kib(&child).unwrap_or_default());
            let ended = child.try_wait()?;
            if ended.is_some() || begun.elapsed() >= limit {
                break ended;
            }
            std::thread::sleep(POLL);
        };
        let Some(status) = ended else {
            child.kill()?;
            child.wait()?;
            break;
        };
        let text = String::from_utf8_lossy(&fs::read(log)?).into_owned();
        if !status.success() {
            run.failure = Some(text);
        } else {
            ensure!(text.contains("1 passed"), "{test} is not one test: {text}");
            run.rounds += 1;
        }
    }
    run.took = begun.elapsed();
    Ok(run)
}

/// The most resident memory of a process so far.
fn peak_kib(child: &Child) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// The sources below a folder, one after the other.
    fn sources(folder: &Path, text: &mut String) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, text);
            } else if path.extension().is_some_and(|end| end == "rs") {
                text.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }

    /// A program whose output is larger than a pipe ends, and its failure is reported.
    #[test]
    fn much_output_hides_no_failure() {
        let folder = root().join("target/fuzz");
        fs::create_dir_all(&folder).unwrap();
        let program = folder.join("much-output.sh");
        fs::write(&program, "#!/bin/sh\nhead -c 1000000 /dev/zero\nexit 1\n").unwrap();
        fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let log = folder.join("much-output.log");
        let limit = Duration::from_secs(30);
        let run = run(program.to_str().unwrap(), "any", limit, &log).unwrap();
        assert_eq!(run.failure.map(|text| text.len()), Some(1_000_000));
    }

    #[test]
    fn every_target_is_a_test_and_every_such_test_a_target() {
        for package in [
            "core",
            "pod-finalizer",
            "node-agent",
            "pod-recreation",
            "belayer",
        ] {
            let mut text = String::new();
            sources(&root().join("crates").join(package).join("src"), &mut text);
            let mut found: Vec<&str> = text
                .split("fn fuzz_")
                .skip(1)
                .filter_map(|rest| rest.split('(').next())
                .collect();
            found.sort_unstable();
            let name = match package {
                "belayer" => package.to_owned(),
                _ => format!("belayer-{package}"),
            };
            let mut listed: Vec<&str> = TARGETS
                .iter()
                .filter(|(_, of, _)| *of == name)
                .filter_map(|(.., test)| test.strip_prefix("fuzz_"))
                .collect();
            listed.sort_unstable();
            assert_eq!(found, listed, "{package}");
        }
    }
}
