//! The program `belayer-demo`.

use std::process::ExitCode;

use belayer_demo::Demo;
use clap::Parser as _;

fn main() -> ExitCode {
    match run(&Demo::parse()) {
        Ok(code) => code,
        Err(error) => {
            anstream::eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(demo: &Demo) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let done = runtime.block_on(belayer_demo::run(demo));
    // Remaining tasks must not keep the process alive.
    runtime.shutdown_background();
    done
}
