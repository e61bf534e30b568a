//! A kind cluster: real nodes in containers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use futures::future::BoxFuture;
use kube::Client;
use tempfile::TempDir;

use super::bootstrap::{belayer_kubeconfig, ensure_workflow_crd, grant_rights};
use super::{Backend, Capability, Clusters, Provider};
use crate::control_plane::{self, Kubeconfig, node_agent_kubeconfig};

/// Creates a cluster with the `kind` program and deletes it afterwards.
///
/// Belayer runs outside the cluster with the permissions of its ServiceAccount, as with the local control
/// plane, because there is no image of it yet.
#[derive(Debug)]
pub struct Kind(());

impl Kind {
    /// The provider, if Docker is running and kind is installed.
    ///
    /// # Errors
    /// Names the one that is missing.
    pub fn new() -> Result<Self> {
        if run("docker", &["info", "--format", "{{.ServerVersion}}"]).is_err() {
            bail!("the provider kind requires a running Docker: `docker info` failed");
        }
        if run("kind", &["version"]).is_err() {
            bail!("the provider kind requires the program kind, which is not installed");
        }
        Ok(Self(()))
    }
}

impl Provider for Kind {
    fn name(&self) -> &'static str {
        "kind"
    }

    fn clusters(&self) -> Clusters {
        Clusters::Kept(1)
    }

    fn large(&self) -> usize {
        1_000
    }

    fn start(&self) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        Box::pin(async {
            let dir = tempfile::Builder::new().prefix("belayer-kind-").tempdir()?;
            let name = format!("belayer-e2e-{}", std::process::id());
            let admin = dir.path().join("admin.kubeconfig");
            let admin_text = admin.display().to_string();
            let create = [
                "create",
                "cluster",
                "--name",
                &name,
                "--kubeconfig",
                &admin_text,
                "--wait",
                "180s",
            ];
            run("kind", &create)?;
            // From here on the cluster is deleted on drop.
            let cluster = Running { name };
            let client = control_plane::client(&admin).await?;
            let belayer = dir.path().join("belayer.kubeconfig");
            grant_rights(&client).await?;
            ensure_workflow_crd(&client).await?;
            let server = server_of(&admin)?;
            belayer_kubeconfig(&client, &server, &belayer).await?;
            Ok(Arc::new(KindBackend {
                client,
                admin,
                belayer,
                _cluster: cluster,
                _dir: dir,
            }) as Arc<dyn Backend>)
        })
    }
}

/// Address and certificate authority of an admin's kubeconfig, without the admin's credentials.
fn server_of(admin: &Path) -> Result<Kubeconfig> {
    let read = kube::config::Kubeconfig::read_from(admin)?;
    let named = read
        .clusters
        .into_iter()
        .next()
        .context("the kubeconfig has no cluster")?;
    let cluster = named
        .cluster
        .context("the cluster of the kubeconfig is empty")?;
    let authority_pem = match cluster.certificate_authority_data {
        None => None,
        Some(data) => {
            let bytes: k8s_openapi::ByteString = serde_json::from_value(data.into())?;
            Some(String::from_utf8(bytes.0)?)
        }
    };
    let server = cluster.server.context("the kubeconfig has no server")?;
    Ok(Kubeconfig {
        server,
        authority_pem,
        token: None,
    })
}

struct KindBackend {
    client: Client,
    admin: PathBuf,
    belayer: PathBuf,
    // Dropped in this order: the cluster, then its files.
    _cluster: Running,
    _dir: TempDir,
}

impl Backend for KindBackend {
    fn capabilities(&self) -> Vec<Capability> {
        let mut can = vec![
            Capability::Kubelet,
            Capability::GarbageCollector,
            Capability::NamespaceDeletion,
            Capability::Rbac,
            Capability::Protobuf,
        ];
        can.extend(super::of_this_machine());
        can
    }

    fn client(&self) -> &Client {
        &self.client
    }

    fn admin_kubeconfig(&self) -> &Path {
        &self.admin
    }

    fn belayer_kubeconfig(&self) -> &Path {
        &self.belayer
    }

    fn agent_kubeconfig<'a>(&'a self, node: &'a str, path: &'a Path) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let server = server_of(&self.admin)?;
            node_agent_kubeconfig(&self.client, &server, node, path).await
        })
    }
}

/// A kind cluster that is deleted when this is dropped.
struct Running {
    name: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error cannot be reported here.
        let _ = run("kind", &["delete", "cluster", "--name", &self.name]);
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("start {program}"))?;
    if !output.status.success() {
        bail!(
            "{program} {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}
