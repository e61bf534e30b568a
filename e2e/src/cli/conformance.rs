//! `belayer-e2e conformance`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;

use super::run::ProviderName;
use crate::conformance::{self, Mode, Options, Server, beside};
use crate::control_plane;

/// Small cases of what a client sees, the same on every server
#[derive(Debug, Args)]
pub(super) struct Conformance {
    /// Where to run them
    #[arg(long, value_enum, default_value = "sandbox")]
    provider: ProviderName,

    /// Print the cases
    #[arg(long)]
    list: bool,

    /// A server that runs already; by default the provider starts one
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// A folder with the cases, instead of the built-in ones
    #[arg(long, value_name = "DIR")]
    cases: Option<PathBuf>,

    /// Write what the server answers into the cases of --cases; only a real server may be believed
    #[arg(long, requires = "cases")]
    record: bool,

    /// Only cases whose name contains one of these
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

impl Conformance {
    pub(super) async fn execute(self) -> Result<ExitCode> {
        let sandbox = matches!(self.provider, ProviderName::Sandbox);
        ensure!(!(sandbox && self.record), "the sandbox is no judge");
        let options = Options {
            names: self.names,
            server: if sandbox {
                Server::Sandbox
            } else {
                Server::Real
            },
            mode: if self.record {
                Mode::Record
            } else {
                Mode::Compare
            },
            folder: self.cases,
        };
        if self.list {
            conformance::list(&options)?;
            return Ok(ExitCode::SUCCESS);
        }
        let summary = match &self.kubeconfig {
            Some(path) => {
                let client = control_plane::client(path).await?;
                conformance::run(&client, beside(path), &options).await?
            }
            None => {
                let Some(provider) = self.provider.provider()? else {
                    return Ok(ExitCode::SUCCESS);
                };
                let backend = provider.start().await?;
                conformance::run(backend.client(), backend.compactor(), &options).await?
            }
        };
        anstream::println!("{summary}");
        Ok(if summary.failed == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}
