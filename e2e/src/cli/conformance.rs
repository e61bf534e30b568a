//! `belayer-e2e conformance`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;

use super::run::{ProviderName, own_belayer};
use crate::conformance::{self, Mode, Options, Server};
use crate::control_plane;
use crate::control_plane::compactor_beside;

/// Compare the responses of a server with recorded ones
#[derive(Debug, Args)]
pub(super) struct Conformance {
    /// Where to run them
    #[arg(long, value_enum, default_value = "sandbox")]
    provider: ProviderName,

    /// Print the cases
    #[arg(long)]
    list: bool,

    /// Kubeconfig of a running server; by default the provider starts one
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Folder of the cases, instead of the built-in ones
    #[arg(long, value_name = "DIR")]
    cases: Option<PathBuf>,

    /// Write the server's responses into the cases of --cases; requires a real server
    #[arg(long, requires = "cases")]
    record: bool,

    /// Only cases whose name contains one of these
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

impl Conformance {
    pub(super) async fn execute(self) -> Result<ExitCode> {
        let sandbox = matches!(self.provider, ProviderName::Sandbox);
        ensure!(
            !(sandbox && self.record),
            "--record requires a real server, not the sandbox"
        );
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
                conformance::run(&client, compactor_beside(path), &options).await?
            }
            None => {
                let Some(provider) = self.provider.provider(&own_belayer()?)? else {
                    return Ok(ExitCode::SUCCESS);
                };
                let backend = provider.start().await?;
                conformance::run(backend.client(), backend.compactor(), &options).await?
            }
        };
        anstream::println!("{summary}");
        Ok(super::exit(summary.failed == 0))
    }
}
