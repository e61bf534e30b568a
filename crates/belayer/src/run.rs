//! `belayer run`.

mod current;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use kube::Client;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use belayer_core::client;
use belayer_core::election::Leadership;
use belayer_core::executor::{Bounds, Writes};
use belayer_core::informer::Store;
use belayer_core::slim::Pod;
use belayer_inspect::status::Query;
use belayer_metrics::Exporter;

use crate::config::Source;
use crate::election::Running;
use crate::exit::Failure;
use crate::feature_gates::FeatureGate;
use crate::inspect::{self, status_page, status_query};
use crate::kubeconfig::{self, Sources};
use crate::operator::{self, Operator};
use crate::options::{RunOptions, Settings};
use crate::reload::{self, Changes, Watcher};
use crate::server::{self, Endpoint, Public};
use crate::signals;
use current::Current;

/// Runs the controllers until SIGTERM or SIGINT. Waits for an unreachable API server.
///
/// # Errors
/// If an address cannot be bound, or another replica takes over the lease.
pub async fn run(options: RunOptions) -> Result<(), Failure> {
    let exporter = Arc::new(Exporter::install().context("metrics")?);
    belayer_metrics::build_info(env!("CARGO_PKG_VERSION"));
    let stop = signals::stop()?;
    let RunOptions {
        cluster,
        settings,
        arguments,
        source,
    } = options;
    // With a credential plugin this reads the certificates for the first time.
    let client = kubeconfig::connect(cluster.clone())?;
    let watches = client::connect_apart(cluster.clone(), belayer_holds::names::USER_AGENT)
        .context("the cluster")
        .map_err(Failure::configuration)?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        server = %cluster.cluster_url,
        "starting"
    );
    let protected = settings.protection.clone().read(&watches).await;
    let protected = protected.map_err(Failure::configuration)?;
    let idle = settings.controllers.configured_but_off(source.value());
    let elsewhere = &arguments.controllers_elsewhere;
    for controller in idle.filter(|idle| !elsewhere.iter().any(|name| name == idle.name)) {
        tracing::warn!(
            key = controller.key,
            "{0} is configured, but does not run: name it (--controllers=*,{0})",
            controller.name
        );
    }
    if settings.dry_run {
        tracing::info!("dry run: sending no request that changes the cluster");
    }
    let mut election = match settings.candidacy() {
        Some(election) => Running::start(election, cluster)?,
        None => Running::alone(),
    };
    let watcher = if settings.gates.is_on(FeatureGate::ConfigReload) {
        Some(Watcher::new(&source, &arguments.set).context("signals")?)
    } else {
        signals::report_ignored_hangups("the feature gate ConfigReload is off")?;
        None
    };
    let current = Arc::new(Current::new(election.elector.clone()));
    let shown = watch::Sender::new(shown(&source, &settings)?);
    let mut supervisor = Supervisor {
        current: Arc::clone(&current),
        shown,
        client,
        watches,
        leadership: election.leadership.clone(),
        worker: None,
        source,
        resolve: Box::new(move |source| {
            Settings::resolve(&arguments, source, &Sources::from_env())
        }),
        watcher,
    };
    supervisor.begin(&settings);

    let mut tasks = JoinSet::new();
    let after = CancellationToken::new();
    let public = Public {
        probes: &settings.health_probe_bind_address,
        metrics: &settings.metrics_bind_address,
        protected,
        health: current.clone(),
        exporter,
    };
    public.serve(&mut tasks, &after).await?;
    let debug = Endpoint::bind(&settings.debug_bind_address, "--debug-bind-address").await;
    if let Some(endpoint) = debug.map_err(anyhow::Error::from)? {
        let (routes, reads) = supervisor.debug_endpoint(endpoint.address());
        tasks.spawn(server::serve(endpoint, routes, after.clone()));
        let after = after.clone();
        tasks.spawn(async move {
            after.run_until_cancelled(reads).await;
        });
    }
    tokio::select! {
        () = supervisor.run(&stop) => {}
        // Work in flight must not be completed: another replica may be the leader.
        failure = election.lost() => return Err(failure),
    }
    // The lease is renewed up to here, so that work in flight could be completed.
    election.resign().await;
    after.cancel();
    while tasks.join_next().await.is_some() {}
    tracing::info!("stopped");
    Ok(())
}

/// Checks a file together with the arguments.
type Resolve = Box<dyn Fn(&Source) -> Result<Settings, Failure> + Send + Sync>;

/// Runs one set of controllers after the other as the configuration changes.
struct Supervisor {
    current: Arc<Current>,
    /// What the status page of the debug address shows.
    shown: watch::Sender<Query>,
    client: Client,
    watches: Client,
    leadership: Leadership,
    worker: Option<Worker>,
    /// The active configuration.
    source: Source,
    resolve: Resolve,
    watcher: Option<Watcher>,
}

/// A running set of controllers.
struct Worker {
    stop: CancellationToken,
    ended: JoinHandle<()>,
    pods: Store<Pod>,
}

impl Worker {
    async fn finish(self) {
        self.stop.cancel();
        if let Err(error) = self.ended.await {
            tracing::error!(%error, "the controllers failed");
        }
    }
}

/// A file that was read.
type Read = Result<Source, crate::config::ConfigError>;

impl Supervisor {
    /// The routes of the debug address `bound`: `/debug/holds` and the status page; and the reads of the page.
    fn debug_endpoint(&self, bound: SocketAddr) -> (Router, impl Future<Output = ()> + use<>) {
        let query = self.shown.subscribe();
        let query = move || query.borrow().clone();
        let reader = inspect::reader(self.client.clone());
        let (page, reads) = status_page(bound, reader, query);
        let current: Arc<Current> = Arc::clone(&self.current);
        (server::debug_routes(bound, current).merge(page), reads)
    }

    fn operator(&self, settings: &Settings) -> Operator {
        let limits = settings.limits;
        let options = operator::Options {
            client: self.client.clone(),
            watches: self.watches.clone(),
            namespace: settings.namespace.clone(),
            bounds: Bounds {
                qps: f64::from(limits.qps),
                burst: limits.burst,
                concurrent_releases: limits.concurrent_releases,
            },
            writes: if settings.dry_run {
                Writes::DryRun
            } else {
                Writes::Sent
            },
            leadership: self.leadership.clone(),
            lease: settings
                .candidacy()
                .map(|election| election.lease.to_string()),
            memory: self.current.memory.clone(),
            observer: Arc::new(()),
        };
        Operator::new(options, settings.components.clone())
    }

    /// Starts the first set of controllers.
    fn begin(&mut self, settings: &Settings) {
        let operator = self.operator(settings);
        self.current.set_operator(&operator);
        self.worker = Some(start(operator));
        metrics::gauge!(belayer_metrics::CONFIG_GOOD).set(1.0);
    }

    /// Runs until `stop` is cancelled and the work in flight is done.
    async fn run(mut self, stop: &CancellationToken) {
        let mut next = self.changed(stop).await;
        while let Some(read) = next {
            let applied = match read.map_err(Failure::configuration) {
                Ok(source) => self.apply(source, stop).await,
                Err(failure) => Err(failure),
            };
            next = match applied {
                Ok(Some(newer)) => Some(newer),
                Ok(None) => self.changed(stop).await,
                Err(failure) => {
                    reloaded("refused");
                    tracing::error!(
                        "configuration not reloaded, keeping the previous one: {failure}"
                    );
                    self.changed(stop).await
                }
            };
        }
        if let Some(worker) = self.worker.take() {
            worker.finish().await;
        }
    }

    /// The next file; `None` to stop.
    async fn changed(&mut self, stop: &CancellationToken) -> Option<Read> {
        match &mut self.watcher {
            Some(watcher) => stop.run_until_cancelled(watcher.changed()).await,
            None => {
                stop.cancelled().await;
                None
            }
        }
    }

    /// Applies the changes that can be applied, if the whole file is valid. The running controllers go on until the new
    /// ones have the caches that the running ones have. Returns a newer file if that is read before.
    async fn apply(
        &mut self,
        source: Source,
        stop: &CancellationToken,
    ) -> Result<Option<Read>, Failure> {
        (self.resolve)(&source)?;
        let changes = Changes::between(&self.source, &source);
        if !changes.restart.is_empty() {
            tracing::warn!(
                keys = changes.restart.join(", "),
                "these keys take effect after a restart"
            );
        }
        if changes.live.is_empty() {
            tracing::info!("configuration reloaded: no change");
            reloaded("unchanged");
            return Ok(None);
        }
        let text = source.text().to_owned();
        // Keys that require a restart keep their running values, also for the next comparison.
        let source = source
            .keeping(&changes.restart, &self.source)
            .map_err(Failure::configuration)?;
        let settings = (self.resolve)(&source)?;
        tracing::info!(
            keys = changes.live.join(", "),
            "configuration reloaded: the new controllers fill their caches"
        );
        let mut operator = self.operator(&settings);
        let turn = operator.wait_for_turn();
        if let Some(old) = &self.worker {
            operator.pods().take_over(&old.pods);
        }
        let next = Current::new(None);
        next.set_operator(&operator);
        let successor = operator_parts(&operator);
        let worker = start(operator);
        let current = Arc::clone(&self.current);
        let mut warm = std::pin::pin!(reload::warm(&next, &*current));
        let newer = loop {
            tokio::select! {
                () = &mut warm => break None,
                newer = self.changed(stop) => match newer {
                    // SIGHUP without a change.
                    Some(Ok(same)) if same.text() == text => {}
                    newer => break Some(newer),
                },
            }
        };
        if let Some(newer) = newer {
            worker.finish().await;
            return Ok(newer);
        }
        if let Some(old) = self.worker.take() {
            old.finish().await;
        }
        self.current.set(successor);
        self.worker = Some(worker);
        self.shown.send_replace(shown(&source, &settings)?);
        self.source = source;
        turn.cancel();
        reloaded("applied");
        tracing::info!("the new configuration is active");
        Ok(None)
    }
}

/// The query of the status page, with the Lease that flags and file name.
fn shown(source: &Source, settings: &Settings) -> Result<Query, Failure> {
    let election = settings.election.as_ref();
    let lease = election.map(|election| election.lease.to_string());
    Ok(Query {
        // The path is one of this process: who reads the page has the file in another place.
        config: None,
        ..status_query(source, settings.namespace.clone(), lease)?
    })
}

fn operator_parts(operator: &Operator) -> current::OperatorParts {
    current::OperatorParts {
        vitals: Arc::clone(operator.vitals()),
        holds: operator.holds(),
    }
}

fn start(operator: Operator) -> Worker {
    let stop = CancellationToken::new();
    Worker {
        pods: operator.pods().clone(),
        ended: tokio::spawn(operator.run(stop.clone())),
        stop,
    }
}

fn reloaded(result: &'static str) {
    metrics::counter!(belayer_metrics::CONFIG_RELOADS, "status" => result).increment(1);
    let good = f64::from(u8::from(result != "refused"));
    metrics::gauge!(belayer_metrics::CONFIG_GOOD).set(good);
}

#[cfg(test)]
#[cfg(feature = "pod-finalizer")]
mod tests;
