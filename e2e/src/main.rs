//! `belayer-e2e`: runs the scenarios, and a local control plane.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    belayer_e2e::cli::main().await
}
