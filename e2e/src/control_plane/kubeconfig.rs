//! Kubeconfigs for the users of a control plane.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig as ClientConfig};

/// The user and the server of a kubeconfig.
#[derive(Debug, Clone)]
pub struct Kubeconfig {
    /// The API server's address, for example `https://127.0.0.1:6443`.
    pub server: String,
    /// The certificate authority as PEM; `None` for plain http.
    pub authority_pem: Option<String>,
    /// The bearer token; `None` if the server requires none.
    pub token: Option<String>,
}

impl Kubeconfig {
    /// Writes the kubeconfig, readable by its owner only.
    pub fn write(&self, path: &Path) -> Result<()> {
        fs::write(path, self.render()?).with_context(|| format!("write {}", path.display()))?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        }
        Ok(())
    }

    /// The text: JSON, which is valid YAML for every reader of kubeconfigs.
    fn render(&self) -> Result<String> {
        let mut cluster = serde_json::json!({ "server": self.server });
        if let Some(pem) = &self.authority_pem {
            let data = k8s_openapi::ByteString(pem.clone().into_bytes());
            cluster["certificate-authority-data"] = serde_json::to_value(data)?;
        }
        let user = match &self.token {
            Some(token) => serde_json::json!({ "token": token }),
            None => serde_json::json!({}),
        };
        let text = serde_json::to_string_pretty(&serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "belayer-e2e", "cluster": cluster }],
            "users": [{ "name": "user", "user": user }],
            "contexts": [{
                "name": "belayer-e2e",
                "context": { "cluster": "belayer-e2e", "user": "user" }
            }],
            "current-context": "belayer-e2e",
        }))?;
        Ok(text)
    }
}

/// A client for the kubeconfig at `path`, without the client's own retries, so that scenarios see
/// every response.
pub(crate) async fn client(path: &Path) -> Result<Client> {
    let read = ClientConfig::read_from(path)?;
    let mut config =
        kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    Client::try_from(config).context("create a client")
}
