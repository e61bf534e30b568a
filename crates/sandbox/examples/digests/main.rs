//! Makes `src/kinds/types.json` and `src/kinds/numbers.json` anew, from a real API server and from Kubernetes' Go
//! modules. What it prints is the new file.
//!
//! `cargo run -p belayer-sandbox --example digests -- types --kubeconfig FILE`
//! `cargo run -p belayer-sandbox --example digests -- numbers --protos DIR..`

mod numbers;
mod types;

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// The data from which the sandbox knows its built-in kinds
#[derive(Debug, Parser)]
enum Digest {
    /// Print the digest of a server's types that the sandbox is built with
    Types {
        /// The server
        #[arg(long, value_name = "FILE")]
        kubeconfig: PathBuf,
    },
    /// Print the digest of the numbers of fields in protobuf that the sandbox is built with
    Numbers {
        /// A folder of the Go modules k8s.io/api, apimachinery, apiextensions-apiserver and kube-aggregator
        #[arg(long = "protos", value_name = "DIR", required = true)]
        protos: Vec<PathBuf>,
    },
}

#[tokio::main]
async fn main() -> Result<()> {
    let digest = match Digest::parse() {
        Digest::Types { kubeconfig } => {
            let read = Kubeconfig::read_from(kubeconfig)?;
            let config =
                Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
            types::digest(&Client::try_from(config)?).await?
        }
        Digest::Numbers { protos } => numbers::digest(&protos)?,
    };
    print!("{digest}");
    Ok(())
}
