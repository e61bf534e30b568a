//! `belayer-sandbox`: an embedded Kubernetes API server on loopback, for kubectl and any controller.

mod cli;
mod serve;

use std::process::ExitCode;

use clap::Parser as _;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let cli::Arguments { command } = cli::Arguments::parse();
    let cli::Command::Serve(options) = command;
    match serve::serve(options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("belayer-sandbox: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
