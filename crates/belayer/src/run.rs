//! `belayer run`.

use std::sync::Arc;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use belayer_core::client;
use belayer_core::executor::{Bounds, Writes};
use belayer_metrics::Exporter;

use crate::controllers::Controller;
use crate::exit::Failure;
use crate::operator::{self, Operator};
use crate::options::RunOptions;
use crate::server::{self, BindAddress, Endpoint};

/// Runs the controllers until it is told to stop by SIGTERM or SIGINT. An API server that cannot
/// be reached is waited for.
///
/// # Errors
/// If an address cannot be bound, or there is nothing to run.
pub async fn run(options: RunOptions) -> Result<(), Failure> {
    let exporter = Arc::new(Exporter::install().context("metrics")?);
    belayer_metrics::build_info(env!("CARGO_PKG_VERSION"));
    let stop = CancellationToken::new();
    stop_on_signal(&stop)?;
    if options.controllers.is_empty() {
        let known: Vec<_> = Controller::built().map(Controller::name).collect();
        return Err(Failure::configuration(anyhow::anyhow!(
            "--controllers: nothing is left to run; the controllers are {}",
            known.join(", ")
        )));
    }
    // With a credential plugin this is the first time that the certificates are read.
    let client = client::connect(options.cluster)
        .context("the cluster")
        .map_err(Failure::configuration)?;
    let operator = Operator::new(operator::Options {
        client,
        namespace: options.namespace,
        bounds: Bounds {
            qps: f64::from(options.limits.qps),
            burst: options.limits.burst,
            concurrent_releases: options.limits.concurrent_releases,
        },
        writes: if options.dry_run {
            Writes::DryRun
        } else {
            Writes::Sent
        },
        observer: Arc::new(()),
        components: options.components,
    });
    if options.dry_run {
        tracing::info!("dry run: nothing is sent that changes the cluster");
    }
    let mut tasks = JoinSet::new();
    let after = CancellationToken::new();
    tasks.spawn(server::upkeep(Arc::clone(&exporter), after.clone()));
    let vitals = Arc::clone(operator.vitals());
    if let Some(endpoint) = bind(&options.metrics_bind_address, "--metrics-bind-address").await? {
        tasks.spawn(server::serve(
            endpoint,
            server::public_routes(vitals, exporter),
            after.clone(),
        ));
    }
    if let Some(endpoint) = bind(&options.debug_bind_address, "--debug-bind-address").await? {
        let routes = server::debug_routes(operator.holds());
        tasks.spawn(server::serve(endpoint, routes, after.clone()));
    }
    operator.run(stop).await;
    after.cancel();
    while tasks.join_next().await.is_some() {}
    tracing::info!("stopped");
    Ok(())
}

async fn bind(address: &BindAddress, flag: &'static str) -> Result<Option<Endpoint>, Failure> {
    Endpoint::bind(address, flag)
        .await
        .map_err(|error| Failure::from(anyhow::Error::from(error)))
}

fn stop_on_signal(stop: &CancellationToken) -> Result<(), Failure> {
    let mut term = signal(SignalKind::terminate()).context("signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("signals")?;
    let stop = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = term.recv() => tracing::info!("SIGTERM"),
            _ = interrupt.recv() => tracing::info!("SIGINT"),
        }
        stop.cancel();
    });
    Ok(())
}
