//! kube-rs as its users use it: `kube-rs reflector|workflows|controller --kubeconfig=FILE`.

mod controller;
mod reflector;

use anyhow::{Context as _, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

const USAGE: &str = "usage: kube-rs reflector|workflows|controller --kubeconfig=FILE";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().context(USAGE)?;
    let argument = arguments.next().context(USAGE)?;
    let path = argument.strip_prefix("--kubeconfig=").context(USAGE)?;
    let read = Kubeconfig::read_from(path)?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    match what.as_str() {
        "reflector" => reflector::pods(client).await,
        "workflows" => reflector::workflows(client).await,
        "controller" => controller::run(client).await,
        _ => bail!(USAGE),
    }
}
