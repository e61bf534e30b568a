//! The command line, usually run by `cargo xtask bench`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;

use crate::instructions::{self, Bounds};
use crate::{Bench, Testbed, workqueue};
use belayer_e2e::control_plane::{Binaries, BuildError};

/// Counted, not timed: the only benchmark that can fail.
const INSTRUCTIONS: &str = "instructions";

const INSTRUCTIONS_ABOUT: &str = "instructions and allocations of the hot paths, checked against the \
    bounds in e2e/instructions.json (asked for by name; needs valgrind)";

/// Relative to the root of the repository.
const BOUNDS: &str = "e2e/instructions.json";

/// Measure against other implementations
///
/// Every subject does the same work in the same run; only ratios are meaningful.
#[derive(Debug, Parser)]
#[command(name = "belayer-bench", version)]
pub(crate) struct Measure {
    /// Print the benchmarks and what each measures
    #[arg(long)]
    list: bool,

    /// How often each subject is measured, after one uncounted round
    #[arg(long, default_value_t = 3, value_name = "N")]
    rounds: usize,

    /// How many objects; each benchmark has its own default
    #[arg(long, value_name = "N")]
    size: Option<usize>,

    /// The `belayer` binary; by default the one in the folder of this program
    #[arg(long, env = "BELAYER_BIN", value_name = "PATH")]
    belayer: Option<PathBuf>,

    /// The `belayer-subject` binary, which measures one thing in a separate process; by default the one
    /// in the folder of this program
    #[arg(long, value_name = "PATH")]
    subject: Option<PathBuf>,

    /// Folder for tables and pictures
    #[arg(long, default_value = "target/bench", value_name = "DIR")]
    out: PathBuf,

    /// Also write the tables into this document
    #[arg(long, value_name = "FILE")]
    docs: Option<PathBuf>,

    /// For `instructions`: write the bounds instead of checking them
    #[arg(long)]
    bless: bool,

    /// Run Belayer's queue alone and print its cost (used by the benchmark)
    #[arg(long, hide = true)]
    queue_alone: bool,

    /// For --queue-alone
    #[arg(long, hide = true, default_value_t = 1_000_000)]
    keys: usize,

    /// Benchmarks to run; all if none is named
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

impl Measure {
    pub(crate) async fn execute(self) -> Result<()> {
        if self.queue_alone {
            return workqueue::alone(self.keys).await;
        }
        let all = crate::all();
        if self.list {
            for bench in &all {
                anstream::println!("{:<12} {}", bench.name, bench.about);
            }
            anstream::println!("{INSTRUCTIONS:<12} {INSTRUCTIONS_ABOUT}");
            return Ok(());
        }
        if self.names == [INSTRUCTIONS] {
            let bounds = if self.bless {
                Bounds::Bless
            } else {
                Bounds::Check
            };
            return instructions::run(
                &program(self.subject, "belayer-subject")?,
                Path::new(BOUNDS),
                bounds,
            );
        }
        let wanted = wanted(all, &self.names)?;
        ensure!(self.rounds > 0, "--rounds must be at least 1");
        if cfg!(debug_assertions) {
            anstream::eprintln!(
                "warning: a debug build measures nothing: cargo xtask bench builds a release"
            );
        }
        let binaries = Binaries::find_or_build().map_err(|error| match error {
            BuildError::Unavailable(why) => anyhow::anyhow!(why),
            BuildError::Failed(error) => error,
        })?;
        let testbed = Testbed {
            binaries,
            belayer: program(self.belayer, "belayer")?,
            subject: program(self.subject, "belayer-subject")?,
            rounds: self.rounds,
            size: self.size,
        };
        for bench in wanted {
            anstream::eprintln!("{}: {}", bench.name, bench.about);
            let report = bench
                .run(testbed.clone())
                .await
                .with_context(|| format!("the benchmark {}", bench.name))?;
            report.print();
            report.write(&self.out)?;
            if let Some(document) = &self.docs {
                report.write_into(document, self.size)?;
            }
        }
        anstream::eprintln!("tables and pictures are in {}", self.out.display());
        Ok(())
    }
}

/// The named program, or the one of this name in the folder of this program.
fn program(named: Option<PathBuf>, name: &str) -> Result<PathBuf> {
    let path = match named {
        Some(path) => path,
        None => std::env::current_exe()?.with_file_name(name),
    };
    path.canonicalize()
        .with_context(|| format!("find {}", path.display()))
}

fn wanted(all: Vec<Bench>, names: &[String]) -> Result<Vec<Bench>> {
    let known: Vec<&str> = all.iter().map(|bench| bench.name).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("unknown benchmark {unknown:?}; known: {}", known.join(", "));
    }
    let is_wanted = |bench: &Bench| names.is_empty() || names.iter().any(|name| name == bench.name);
    Ok(all.into_iter().filter(is_wanted).collect())
}
