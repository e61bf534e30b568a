//! How `/metrics` is protected: TLS, and only for clients that the API server allows to read it.

use std::sync::Arc;

use belayer_metrics::Exporter;
use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::authorization::Authorization;
use super::bind::Endpoint;
use super::routes::public_routes;
use super::tls::{CertificateError, CertificateFiles, Tls};
use super::{Health, serve};

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
