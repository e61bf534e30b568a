//! TLS of an endpoint, by a certificate from files that are read again when they change.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use belayer_core::ticks::Ticks;
use tokio::sync::watch;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_util::sync::CancellationToken;

/// How often the files are read.
const INTERVAL: Duration = Duration::from_secs(10);

/// The files of a certificate and its private key, both PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate with its chain.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// A certificate that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file that cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A file without a certificate, or without a private key.
    #[error("{} contains no {what} in PEM: {error}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What it should contain.
        what: &'static str,
        /// What is wrong.
        error: pem::Error,
    },
    /// A certificate and a key that do not fit together, or that TLS cannot use.
    #[error("{} and {} cannot be used: {error}", files.certificate.display(), files.key.display())]
    Unusable {
        /// Both files.
        files: CertificateFiles,
        /// What is wrong.
        error: rustls::Error,
    },
}

/// What both files contain.
#[derive(PartialEq, Eq)]
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// The TLS of an endpoint.
pub struct Tls {
    files: CertificateFiles,
    contents: Contents,
    config: watch::Sender<Arc<ServerConfig>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&self.files).finish()
    }
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// If they cannot be read or used.
    pub async fn read(files: CertificateFiles) -> Result<Self, CertificateError> {
        let contents = files.contents().await?;
        let config = files.config(&contents)?;
        Ok(Self {
            files,
            contents,
            config: watch::Sender::new(Arc::new(config)),
        })
    }

    /// What a new connection uses.
    pub(super) fn config(&self) -> watch::Receiver<Arc<ServerConfig>> {
        self.config.subscribe()
    }

    /// Takes over changed files until `stop`. Files that cannot be used are reported once, and the last good certificate
    /// stays.
    pub async fn renew(mut self, stop: CancellationToken) {
        let mut ticks = Ticks::every(INTERVAL, stop);
        let mut is_reported = false;
        while ticks.next().await.is_some() {
            match self.renewed().await {
                Ok(false) => {}
                Ok(true) => {
                    is_reported = false;
                    tracing::info!(file = %self.files.certificate.display(), "read a new certificate");
                }
                Err(error) if !is_reported => {
                    is_reported = true;
                    tracing::error!("keeping the previous certificate: {error}");
                }
                Err(_) => {}
            }
        }
    }

    /// Whether the files have changed and are taken over.
    pub(super) async fn renewed(&mut self) -> Result<bool, CertificateError> {
        let contents = self.files.contents().await?;
        if contents == self.contents {
            return Ok(false);
        }
        // A certificate and a key of two writes do not fit; the next reading finds both.
        let config = self.files.config(&contents)?;
        self.contents = contents;
        self.config.send_replace(Arc::new(config));
        Ok(true)
    }
}

impl CertificateFiles {
    async fn contents(&self) -> Result<Contents, CertificateError> {
        Ok(Contents {
            certificate: read(&self.certificate).await?,
            key: read(&self.key).await?,
        })
    }

    fn config(&self, contents: &Contents) -> Result<ServerConfig, CertificateError> {
        let invalid = |path: &PathBuf, what| {
            let path = path.clone();
            move |error| CertificateError::Invalid { path, what, error }
        };
        let unusable = |error| CertificateError::Unusable {
            files: self.clone(),
            error,
        };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&contents.certificate)
            .collect::<Result<_, _>>()
            .map_err(invalid(&self.certificate, "certificate"))?;
        if chain.is_empty() {
            return Err(invalid(&self.certificate, "certificate")(
                pem::Error::NoItemsFound,
            ));
        }
        let key = PrivateKeyDer::from_pem_slice(&contents.key)
            .map_err(invalid(&self.key, "private key"))?;
        ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(unusable)
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    tokio::fs::read(path)
        .await
        .map_err(|error| CertificateError::Unreadable {
            path: path.to_owned(),
            error,
        })
}
