//! `belayer-e2e load`.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use belayer_core::duration;
use clap::{Args, ValueEnum};
use kube::config::KubeConfigOptions;
use kube::{Client, Config};

use super::run::{ProviderName, binary};
use crate::control_plane::STEP_IMAGE;
use crate::harness::{Cluster, Setting, on_new_cluster};
use crate::load::{self, Keep, Plan, Pods, Rejector, Summary};

/// Of the pods, if no other is named.
const NAMESPACE: &str = "belayer-load";

/// Each has room for 110 pods.
const HOLLOW_NODES: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table
    Text,
    /// JSON
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RejectBy {
    /// The program writes the status, on Node objects of its own that have no kubelet
    Status,
    /// The kubelets: a pod is bound to a node that it does not select. Needs two nodes
    Kubelet,
}

/// Create pods of which a share is rejected, and check that each runs exactly once
///
/// Runs on a cluster with Belayer, or starts one (--provider). The pods are judged by a watch; nothing that Belayer
/// reports is read. A pod is deleted once it has started, so that the nodes have room. Exit codes: 0 if every pod
/// ran exactly once or was rejected as often as allowed, 1 if not, 2 for an invalid command.
#[derive(Debug, Args)]
pub(super) struct Load {
    /// Start a cluster and Belayer; by default a cluster with Belayer is used
    #[arg(long, value_enum, conflicts_with_all = ["kubeconfig", "context"])]
    provider: Option<ProviderName>,

    /// Kubeconfig of a cluster with Belayer; by default that of kubectl. Needs the permissions of an admin
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// How many pods
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = super::count)]
    pods: usize,

    /// Pods per second
    #[arg(long, default_value_t = 10.0, value_name = "N")]
    rate: f64,

    /// The most pods that use a node at a time; by default 80 % of what the nodes allow
    #[arg(long, value_name = "N")]
    at_once: Option<usize>,

    /// Namespaces of the pods, used in turn; those that do not exist are created, and deleted at the end
    #[arg(
        long = "namespace",
        default_value = NAMESPACE,
        value_delimiter = ',',
        value_name = "NAME"
    )]
    namespaces: Vec<String>,

    /// The share of pods that are rejected, also of those that are re-created: from 0 to 1; 0.3 without a value
    #[arg(long, default_value_t = 0.0, default_missing_value = "0.3", num_args = 0..=1, value_name = "SHARE")]
    rejector: f64,

    /// Who rejects pods; by default the kubelets with --provider node, else status
    #[arg(long, value_enum)]
    reject_by: Option<RejectBy>,

    /// Kill the leader at this interval, such as 30s
    #[arg(long, value_parser = duration::parse, value_name = "EVERY")]
    kill_leader: Option<Duration>,

    /// Image of the pods; required without --provider. It should run until it gets a signal, as a pause image does
    #[arg(long, required_unless_present = "provider", value_name = "IMAGE")]
    image: Option<String>,

    /// `maxRetries` of the configuration of Belayer
    #[arg(long, default_value_t = 3, value_name = "N")]
    max_retries: usize,

    /// With --provider: the configuration file of Belayer. By default a pause of one second and no effective limits
    #[arg(long, requires = "provider", value_name = "FILE")]
    config: Option<PathBuf>,

    /// Belayer's namespace, for --kill-leader
    #[arg(long, default_value = "belayer-system", value_name = "NAME")]
    belayer_namespace: String,

    /// Decides which pods are rejected; by default random
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Without any change for so long the run ends, and pods that are missing are lost
    #[arg(long, default_value = "5m", value_parser = duration::parse, value_name = "DURATION")]
    patience: Duration,

    /// How long the pods are watched after the last change, for pods that start a second time
    #[arg(long, default_value = "10s", value_parser = duration::parse, value_name = "DURATION")]
    settle: Duration,

    /// Do not delete what the run created; with --provider: keep the cluster until Ctrl-C
    #[arg(long)]
    keep: bool,

    /// Format of the summary
    #[arg(short, long, value_enum, default_value = "text", value_name = "FORMAT")]
    output: Format,

    /// The `belayer` binary; by default the one in the folder of this program
    #[arg(long, env = "BELAYER_BIN", requires = "provider", value_name = "PATH")]
    belayer: Option<PathBuf>,
}

impl Load {
    pub(super) async fn execute(self) -> Result<ExitCode> {
        ensure!(
            (0.0..=1.0).contains(&self.rejector),
            "--rejector must be from 0 to 1, not {}",
            self.rejector
        );
        let summary = match self.provider {
            None => self.existing().await?,
            Some(name) => match self.started(name).await? {
                Some(summary) => summary,
                None => return Ok(ExitCode::SUCCESS),
            },
        };
        match self.output {
            Format::Text => anstream::println!("{summary}"),
            Format::Json => anstream::println!("{:#}", summary.json()),
        }
        Ok(super::exit(summary.is_good()))
    }

    fn plan(&self) -> Plan {
        let rejector = match (self.reject_by, self.provider) {
            (Some(RejectBy::Kubelet), _) | (None, Some(ProviderName::Node)) => Rejector::Kubelet,
            _ => Rejector::Status,
        };
        Plan {
            pods: self.pods,
            rate: self.rate,
            at_once: self.at_once,
            namespaces: self.namespaces.clone(),
            rejected: self.rejector,
            rejector,
            kill_leader: self.kill_leader,
            disruptions: None,
            max_retries: self.max_retries,
            image: self.image.clone().unwrap_or_else(|| STEP_IMAGE.to_owned()),
            seed: self.seed.unwrap_or_else(|| u64::from(std::process::id())),
            patience: self.patience,
            settle: self.settle,
        }
    }

    async fn existing(&self) -> Result<Summary> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        let config = match &self.kubeconfig {
            Some(path) => {
                let read = kube::config::Kubeconfig::read_from(path)?;
                Config::from_custom_kubeconfig(read, &options).await?
            }
            None => Config::from_kubeconfig(&options).await?,
        };
        let client = Client::try_from(config)?;
        let mut leaders = Pods {
            client: client.clone(),
            namespace: self.belayer_namespace.clone(),
        };
        let keep = if self.keep { Keep::All } else { Keep::Nothing };
        load::run(&client, &self.plan(), &mut leaders, keep).await
    }

    /// On a new cluster; `None` if this machine lacks a prerequisite and that is not a failure.
    async fn started(&self, name: ProviderName) -> Result<Option<Summary>> {
        let belayer = binary(self.belayer.as_deref())?;
        let Some(provider) = name.with_hollow_nodes(&belayer, HOLLOW_NODES)? else {
            return Ok(None);
        };
        let config = self.config.as_deref().map(fs::read_to_string);
        let config = config.transpose().context("read --config")?;
        let setting = Setting {
            belayer,
            quiet: Duration::ZERO,
            large: self.pods,
        };
        let steps = async |cluster: Cluster| {
            let summary = load::with_own_belayer(&cluster, &self.plan(), config.as_deref()).await?;
            if self.keep {
                let path = cluster.backend().admin_kubeconfig().display();
                anstream::eprintln!("kept until Ctrl-C: export KUBECONFIG={path}");
                tokio::signal::ctrl_c().await?;
            }
            Ok(summary)
        };
        let name = NAMESPACE;
        on_new_cluster(&*provider, name, setting, steps)
            .await
            .map(Some)
    }
}
