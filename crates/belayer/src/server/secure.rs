//! How `/metrics` is protected: TLS, and only for clients that the API server allows to read it.

use std::sync::Arc;

use belayer_metrics::Exporter;
use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::authorization::Authorization;
use super::bind::{BindAddress, Endpoint};
use super::routes::{probe_routes, public_routes};
use super::tls::{CertificateError, CertificateFiles, Tls};
use super::{Health, serve, upkeep};

/// How the address of metrics is protected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Protection {
    /// The certificate; without one the address is served without TLS.
    pub certificate: Option<CertificateFiles>,
    /// Whether the API server is asked who may read the metrics.
    pub authorization: bool,
}

impl Protection {
    /// Reads the certificate. `client` asks the API server who may read the metrics.
    ///
    /// # Errors
    /// If the certificate cannot be read or used.
    pub async fn read(self, client: &Client) -> Result<Protected, CertificateError> {
        let tls = match self.certificate {
            Some(files) => Some(Tls::read(files).await?),
            None => None,
        };
        let authorization = self
            .authorization
            .then(|| Authorization::new(client.clone()));
        Ok(Protected { tls, authorization })
    }
}

/// A protection that is ready to be used.
#[derive(Debug)]
pub struct Protected {
    tls: Option<Tls>,
    authorization: Option<Authorization>,
}

impl Protected {
    /// Serves `/metrics` and the probes until `stop`, in separate tasks.
    pub fn serve(
        self,
        mut endpoint: Endpoint,
        health: Arc<dyn Health>,
        exporter: Arc<Exporter>,
        tasks: &mut JoinSet<()>,
        stop: &CancellationToken,
    ) {
        if let Some(tls) = self.tls {
            endpoint = endpoint.with_tls(&tls);
            tasks.spawn(tls.renew(stop.clone()));
        }
        let routes = public_routes(health, exporter, self.authorization);
        tasks.spawn(serve(endpoint, routes, stop.clone()));
    }
}

/// What a process of Belayer serves to probes and to Prometheus.
pub struct Public<'a> {
    /// The address of the probes alone.
    pub probes: &'a BindAddress,
    /// The address of `/metrics`, and of the probes again.
    pub metrics: &'a BindAddress,
    /// The protection of that address.
    pub protected: Protected,
    /// The state behind the probes.
    pub health: Arc<dyn Health>,
    /// The metrics.
    pub exporter: Arc<Exporter>,
}

impl Public<'_> {
    /// Binds both addresses, and serves them until `stop` in separate tasks.
    ///
    /// # Errors
    /// If an address cannot be bound.
    pub async fn serve(
        self,
        tasks: &mut JoinSet<()>,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        tasks.spawn(upkeep(Arc::clone(&self.exporter), stop.clone()));
        let probes = Endpoint::bind(self.probes, "--health-probe-bind-address").await?;
        if let Some(endpoint) = probes {
            let routes = probe_routes(Arc::clone(&self.health));
            tasks.spawn(serve(endpoint, routes, stop.clone()));
        }
        if let Some(endpoint) = Endpoint::bind(self.metrics, "--metrics-bind-address").await? {
            let Self {
                protected,
                health,
                exporter,
                ..
            } = self;
            protected.serve(endpoint, health, exporter, tasks, stop);
        }
        Ok(())
    }
}
