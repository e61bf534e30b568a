#![doc = include_str!("../README.md")]

mod checks;
mod cli;
mod coverage;
mod event;
mod fault;
mod nodes;
mod objects;
mod plan;
mod replica;
mod run;
mod shrink;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use clap::Parser as _;

/// A quarter of a run with the system's allocator is allocation.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::Simulate::parse().execute()
}
