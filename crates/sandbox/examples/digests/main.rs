//! Generates `src/kinds/types.json` and `src/kinds/numbers.json` from a real API server and from Kubernetes' Go
//! modules. It prints the new file.
//!
//! `cargo run -p belayer-sandbox --features serve --example digests -- types --kubeconfig FILE`
//! `cargo run -p belayer-sandbox --features serve --example digests -- numbers --protos DIR..`

mod numbers;
mod types;

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// Generates the sandbox's data on built-in kinds
#[derive(Debug, Parser)]
enum Digest {
    /// Print the digest of a server's OpenAPI types
    Types {
        /// Kubeconfig of the server
        #[arg(long, value_name = "FILE")]
        kubeconfig: PathBuf,
    },
    /// Print the digest of the protobuf field numbers
    Numbers {
        /// Folders of the Go modules k8s.io/api, apimachinery, apiextensions-apiserver and kube-aggregator
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
