//! What a command is to do: arguments and configuration, read and checked.

use belayer_core::names::DEFAULT_NAMESPACE;

use crate::cli::RunArguments;
use crate::config::Source;
use crate::controllers::Controllers;
use crate::drain::OnDisable;
use crate::drain::switched_off::SwitchedOff;
use crate::exit::Failure;
use crate::kubeconfig::{self, Sources};
use crate::operator::Components;
use crate::server::BindAddress;

/// What `belayer run` is to do.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The cluster, and who we are there.
    pub cluster: kube::Config,
    /// Belayer's own namespace.
    pub namespace: String,
    /// The controllers that run.
    pub controllers: Controllers,
    /// Whether anything is sent that changes the cluster.
    pub dry_run: bool,
    /// Bounds of requests.
    pub limits: Limits,
    /// Where metrics and health are served.
    pub metrics_bind_address: BindAddress,
    /// Where `/debug/holds` is served.
    pub debug_bind_address: BindAddress,
    /// What those that run do.
    pub components: Components,
}

/// How much may be asked of the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests per second, releases apart.
    pub qps: u32,
    /// Requests that may go at once after a pause, releases apart.
    pub burst: u32,
    /// Releases under way at once.
    pub concurrent_releases: usize,
}

impl RunOptions {
    /// Reads what the arguments name, and checks all of it before anything is touched.
    ///
    /// # Errors
    /// Wrong usage or configuration, as one line that says what to change.
    pub async fn resolve(arguments: RunArguments, sources: &Sources) -> Result<Self, Failure> {
        let controllers =
            Controllers::parse(&arguments.controllers).map_err(Failure::configuration)?;
        let namespace = namespace(arguments.namespace, sources)?;
        let source = match &arguments.config {
            Some(path) => Source::load(path).map_err(Failure::configuration)?,
            None => Source::default(),
        };
        let components = source
            .components(&controllers, arguments.workers.map(to_usize))
            .map_err(Failure::configuration)?;
        let components = Components {
            switched_off: match arguments.on_disable {
                OnDisable::Drain => {
                    SwitchedOff::all(&source, &controllers).map_err(Failure::configuration)?
                }
                OnDisable::Keep => Vec::new(),
            },
            ..components
        };
        #[cfg(feature = "pvc-protection")]
        let components = components.with_claims_held_by(arguments.pvc_protection_finalizer);
        let cluster = kubeconfig::load(
            arguments.kubeconfig.as_deref(),
            arguments.context.as_deref(),
            sources,
        )
        .await
        .map_err(Failure::configuration)?;
        Ok(Self {
            cluster,
            namespace,
            controllers,
            dry_run: arguments.dry_run,
            limits: Limits {
                qps: arguments.kube_api_qps,
                burst: arguments.kube_api_burst,
                concurrent_releases: to_usize(arguments.concurrent_releases),
            },
            metrics_bind_address: arguments.metrics_bind_address,
            debug_bind_address: arguments.debug_bind_address,
            components,
        })
    }
}

fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Belayer's own namespace: as it is given, as the pod says, or the default.
pub(crate) fn namespace(given: Option<String>, sources: &Sources) -> Result<String, Failure> {
    let namespace = given
        .or_else(|| sources.pod_namespace.clone())
        .unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let good = !namespace.is_empty()
        && namespace.len() <= 63
        && namespace.bytes().all(|b| plain(b) || b == b'-')
        && !namespace.starts_with('-')
        && !namespace.ends_with('-');
    if good {
        Ok(namespace)
    } else {
        Err(Failure::configuration(anyhow::anyhow!(
            "--namespace: {namespace:?} is no name of a namespace"
        )))
    }
}

/// What `belayer demo` is to do.
#[cfg(feature = "demo")]
#[derive(Debug, Clone, PartialEq)]
pub struct DemoOptions {
    /// How many times faster than usual, from 0.1 to 1000.
    pub speed: f64,
    /// Which workload.
    pub seed: u64,
    /// Whether the API server goes on after the end.
    pub keep_running: bool,
    /// Port of the API server on 127.0.0.1; 0 is any free one.
    pub port: u16,
}

#[cfg(feature = "demo")]
impl From<crate::cli::DemoArguments> for DemoOptions {
    fn from(arguments: crate::cli::DemoArguments) -> Self {
        let crate::cli::DemoArguments {
            speed,
            seed,
            keep_running,
            port,
        } = arguments;
        Self {
            speed,
            seed,
            keep_running,
            port,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::nothing_said(None, None, "belayer-system")]
    #[case::told_by_the_pod(None, Some("ops"), "ops")]
    #[case::a_flag_counts_more(Some("mine"), Some("ops"), "mine")]
    fn the_namespace_is_found(
        #[case] flag: Option<&str>,
        #[case] pod: Option<&str>,
        #[case] expected: &str,
    ) {
        let sources = Sources {
            pod_namespace: pod.map(str::to_owned),
            ..Sources::default()
        };
        assert_eq!(
            namespace(flag.map(str::to_owned), &sources).unwrap(),
            expected
        );
    }

    #[rstest]
    #[case("")]
    #[case("My-Namespace")]
    #[case("-a")]
    #[case("a/b")]
    fn what_is_no_namespace_is_refused(#[case] name: &str) {
        let failure = namespace(Some(name.to_owned()), &Sources::default()).unwrap_err();
        assert_eq!(failure.code(), 2);
        assert!(failure.to_string().contains("--namespace"), "{failure}");
    }
}
