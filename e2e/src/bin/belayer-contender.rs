//! `belayer-contender`: one thing at a time, measured from outside by `belayer-e2e bench`.

use std::alloc::System;
use std::process::ExitCode;

use clap::Parser;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

use belayer_e2e::contender::memory;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Does one thing and prints what it cost as JSON
#[derive(Debug, Parser)]
#[command(name = "belayer-contender")]
enum Contender {
    /// Lists pods into a store and weighs them
    Memory {
        /// How many
        #[arg(long, default_value_t = 100_000)]
        objects: usize,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Contender::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            anstream::eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(contender: Contender) -> anyhow::Result<()> {
    match contender {
        Contender::Memory { objects } => {
            let weight = memory::weigh(objects).await?;
            anstream::println!("{}", serde_json::to_string(&weight)?);
        }
    }
    Ok(())
}
