//! `belayer node-agent`: arguments, configuration and endpoints of the node agent.

mod arguments;

use std::sync::Arc;

use anyhow::Context as _;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use belayer_core::executor::Bounds;
use belayer_metrics::{Exporter, Known, KnownValues};
use belayer_node_agent::agent::{self, Agent};
use belayer_node_agent::config::{ConfigError, Flags, Settings};

use crate::config::Source;
use crate::config::process::EndpointsConfig;
use crate::exit::Failure;
use belayer_controller::context::Seen;

use crate::health::{Needed, Vitals};
use crate::kubeconfig::{self, Sources};
use crate::server::{BindAddress, Protection, Public};
use crate::signals;

pub use arguments::{HELP, NodeAgentArguments};

/// Longest node name.
const NODE_NAME_LIMIT: usize = 253;

/// Options of `belayer node-agent`.
#[derive(Debug, Clone)]
pub struct NodeAgentOptions {
    cluster: kube::Config,
    node: String,
    settings: Settings,
    bounds: Bounds,
    metrics_bind_address: BindAddress,
    health_probe_bind_address: BindAddress,
    protection: Protection,
}

impl NodeAgentOptions {
    /// Reads and checks arguments and configuration before anything is changed.
    ///
    /// # Errors
    /// Wrong usage or configuration, as a one-line message that names the correction.
    pub async fn resolve(
        arguments: NodeAgentArguments,
        sources: &Sources,
    ) -> Result<Self, Failure> {
        let node = node_name(arguments.node_name)?;
        let source = Source::of(arguments.config.as_deref(), &[]);
        let source = source.map_err(Failure::configuration)?;
        let flags = Flags {
            roots: arguments.root,
            paths: arguments.path,
            host_root: arguments.host_root,
        };
        let settings = settings(&source, flags)?;
        // The keys `endpoints` are those of the controllers, which may share the file.
        let protection = arguments.protection.resolve(&EndpointsConfig::default())?;
        let cluster = arguments.cluster.find(sources).await?;
        Ok(Self {
            cluster,
            node,
            settings,
            bounds: Bounds {
                qps: f64::from(arguments.kube_api_qps),
                burst: arguments.kube_api_burst,
                ..Bounds::default()
            },
            metrics_bind_address: arguments.metrics_bind_address,
            health_probe_bind_address: arguments.health_probe_bind_address,
            protection,
        })
    }
}

fn settings(source: &Source, flags: Flags) -> Result<Settings, Failure> {
    let config = source.config.node_agent.clone().unwrap_or_default();
    config.settings(flags).map_err(|error| {
        let ConfigError { path, message } = error;
        // Without a file the flags are invalid or missing.
        if path.starts_with("--") || !source.is_file() {
            return Failure::configuration(anyhow::anyhow!("{path}: {message}"));
        }
        Failure::configuration(source.error(path, message))
    })
}

/// Checks the node name, which becomes part of field selectors.
fn node_name(given: Option<String>) -> Result<String, Failure> {
    let wrong = |message: String| Failure::configuration(anyhow::anyhow!("--node-name: {message}"));
    let name = given.filter(|name| !name.is_empty()).ok_or_else(|| {
        wrong("no node name: pass this flag, or set NODE_NAME (fieldRef spec.nodeName)".to_owned())
    })?;
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    if name.len() <= NODE_NAME_LIMIT && name.bytes().all(plain) {
        return Ok(name);
    }
    Err(wrong(format!("invalid node name {name:?}")))
}

/// Runs the agent until SIGTERM or SIGINT. Waits for an unreachable API server.
///
/// # Errors
/// If a root, a program or an address cannot be used.
pub async fn run(options: NodeAgentOptions) -> Result<(), Failure> {
    let exporter = Arc::new(Exporter::install().context("metrics")?);
    belayer_metrics::build_info(env!("CARGO_PKG_VERSION"));
    let stop = signals::stop()?;
    signals::report_ignored_hangups("the node agent reads its configuration only at its start")?;
    let client = kubeconfig::connect(options.cluster)?;
    let protected = options.protection.read(&client).await;
    let protected = protected.map_err(Failure::configuration)?;
    let node = options.node.clone();
    let agent = Agent::new(agent::Options {
        client,
        node: options.node,
        settings: options.settings,
        bounds: options.bounds,
    })
    .map_err(Failure::configuration)?;
    let mut vitals = Vitals::default();
    let mut kinds = vec!["NodeWipe"];
    if let Some(pods) = agent.pods() {
        vitals.informer(Seen::new("pods", pods), Needed::Yes);
        kinds.push("Pod");
    }
    vitals.informer(Seen::new("nodewipes", agent.wipes()), Needed::Yes);
    KnownValues::new()
        .with(Known::Controller, [agent::NAME])
        .with(Known::Queue, [agent::NAME])
        .with(Known::Kind, kinds)
        .write_zeros();
    let mut tasks = JoinSet::new();
    let after = CancellationToken::new();
    let public = Public {
        probes: &options.health_probe_bind_address,
        metrics: &options.metrics_bind_address,
        protected,
        health: Arc::new(vitals),
        exporter,
    };
    public.serve(&mut tasks, &after).await?;
    tracing::info!(node, "watching the wipes of this node");
    agent.run(stop).await;
    after.cancel();
    while tasks.join_next().await.is_some() {}
    tracing::info!("stopped");
    Ok(())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::missing(None, "NODE_NAME")]
    #[case::empty(Some(""), "NODE_NAME")]
    #[case::a_selector(Some("n,metadata.namespace=x"), "invalid node name")]
    #[case::upper_case(Some("Node-1"), "invalid node name")]
    fn an_invalid_node_name_is_rejected(#[case] name: Option<&str>, #[case] says: &str) {
        let failure = node_name(name.map(str::to_owned)).unwrap_err();
        assert_eq!(failure.code(), 2);
        let text = failure.to_string();
        assert!(
            text.starts_with("--node-name: ") && text.contains(says),
            "{text}"
        );
    }

    #[test]
    fn a_root_is_required() {
        let failure = settings(&Source::default(), Flags::default()).unwrap_err();
        assert_eq!(failure.code(), 2);
        assert!(failure.to_string().contains("give --root"), "{failure}");
    }
}
