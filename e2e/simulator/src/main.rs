#![doc = include_str!("../README.md")]

mod cli;
mod coverage;
mod event;
mod fault;
mod objects;
mod plan;
mod replica;
mod run;
mod shrink;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    cli::Simulate::parse().execute()
}
