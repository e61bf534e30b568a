//! `belayer-subject`: does one thing, measured from outside by `belayer-bench`.

use std::alloc::System;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use serde::Serialize;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::runtime;

use belayer_subject::{informer, memory, paths};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Does one thing and prints its cost
#[derive(Debug, Parser)]
#[command(name = "belayer-subject")]
enum Subject {
    /// List pods into a store and measure its memory
    Memory {
        /// How many
        #[arg(long, default_value_t = 100_000)]
        objects: usize,
    },
    /// Watch the pods of a cluster until killed; print a line when the first list is complete
    Informer {
        /// The cluster
        #[arg(long, value_name = "FILE")]
        kubeconfig: PathBuf,
    },
    /// Run one hot path repeatedly, on one thread
    Path {
        /// Which
        path: paths::Path,
        /// How often
        #[arg(long, default_value_t = 1000)]
        times: usize,
    },
}

fn main() -> ExitCode {
    match run(Subject::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            anstream::eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(subject: Subject) -> anyhow::Result<()> {
    let mut threads = match subject {
        // The counts must not depend on the scheduling of threads.
        Subject::Path { .. } => runtime::Builder::new_current_thread(),
        _ => runtime::Builder::new_multi_thread(),
    };
    let runtime = threads.enable_all().build()?;
    runtime.block_on(async {
        match subject {
            Subject::Memory { objects } => print(&memory::weigh(objects).await?),
            Subject::Informer { kubeconfig } => informer::watch(&kubeconfig).await,
            Subject::Path { path, times } => print(&path.walk(times).await?),
        }
    })
}

fn print(cost: &impl Serialize) -> anyhow::Result<()> {
    anstream::println!("{}", serde_json::to_string(cost)?);
    Ok(())
}
