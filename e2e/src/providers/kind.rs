//! A kind cluster: real nodes in containers.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use futures::future::BoxFuture;
use kube::Client;
use serde_json::json;
use tempfile::TempDir;

use super::bootstrap::{
    MUTATING_POLICIES, apply, belayer_kubeconfig, ensure_workflow_crd, grant_permissions, minor,
};
use super::{Backend, Capability, Clusters, Provider};
use crate::control_plane::{
    self, Kubeconfig, NodeBinaries, dies_with_parent, node_agent_kubeconfig, write_images,
};
use crate::guard::Guard;

/// The image of the nodes, as kind 0.32.0 pins it. Belayer's MutatingAdmissionPolicies need 1.36.
const NODE_IMAGE: &str =
    "kindest/node:v1.36.1@sha256:3489c7674813ba5d8b1a9977baea8a6e553784dab7b84759d1014dbd78f7ebd5";

/// Deletes the cluster `$1`, whose kubeconfig is in the folder `$2`, and the folder. A container that was being created
/// when this process was killed may appear after the first deletion.
const CLEAN_UP: &str = r#"
for _ in 1 2 3 4 5; do
    kind delete cluster --name "$1" --kubeconfig "$2/admin.kubeconfig"
    sleep 1
    if [ -z "$(kind get nodes --name "$1" 2>/dev/null)" ]; then break; fi
done
rm -rf "$2"
"#;

/// Creates a cluster with the `kind` program and deletes it afterwards, however this process ends.
///
/// The nodes have the image under test, for scenarios that install the shipped manifests. For the others
/// Belayer runs outside the cluster with the permissions of its ServiceAccount, as with the local control plane.
#[derive(Debug)]
pub struct Kind {
    belayer: PathBuf,
}

impl Kind {
    /// The provider, if Docker is running and kind is installed. The error names the one that is missing.
    pub fn new(belayer: &Path) -> Result<Self> {
        if run("docker", &["info", "--format", "{{.ServerVersion}}"]).is_err() {
            bail!("the provider kind requires a running Docker: `docker info` failed");
        }
        if run("kind", &["version"]).is_err() {
            bail!("the provider kind requires the program kind, which is not installed");
        }
        Ok(Self {
            belayer: belayer.to_owned(),
        })
    }

    async fn create(&self) -> Result<KindBackend> {
        let dir = tempfile::Builder::new().prefix("belayer-kind-").tempdir()?;
        let name = format!("belayer-e2e-{}", std::process::id());
        let admin = dir.path().join("admin.kubeconfig");
        let config = dir.path().join("kind.json");
        fs::write(&config, cluster_config().to_string())?;
        let text = |path: &Path| path.display().to_string();
        // From here on the cluster and its files are deleted at the end, however this process ends.
        let folder = text(dir.path());
        let guard = Guard::start(CLEAN_UP, &[&name, &folder], None)?;
        let create = [
            "create",
            "cluster",
            "--name",
            &name,
            "--config",
            &text(&config),
            "--kubeconfig",
            &text(&admin),
            "--wait",
            "180s",
        ];
        run("kind", &create)?;
        for archive in write_images(dir.path(), &NodeBinaries::pause()?, &self.belayer)? {
            let load = ["load", "image-archive", "--name", &name, &text(&archive)];
            run("kind", &load)?;
            fs::remove_file(archive)?;
        }
        let client = control_plane::client(&admin).await?;
        let minor = minor(&client).await?;
        ensure!(
            minor >= MUTATING_POLICIES,
            "the image {NODE_IMAGE} is Kubernetes 1.{minor}, but the scenarios need 1.{MUTATING_POLICIES}"
        );
        let belayer = dir.path().join("belayer.kubeconfig");
        grant_permissions(&client).await?;
        ensure_workflow_crd(&client).await?;
        apply(&client, include_str!("../../manifests/policy-anchor.yaml")).await?;
        let server = server_of(&admin)?;
        belayer_kubeconfig(&client, &server, &belayer).await?;
        Ok(KindBackend {
            client,
            admin,
            belayer,
            _cluster: guard,
            _dir: dir,
        })
    }
}

/// Two nodes for pods.
fn cluster_config() -> serde_json::Value {
    let node = |role: &str| json!({ "role": role, "image": NODE_IMAGE });
    json!({
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "nodes": [node("control-plane"), node("worker"), node("worker")],
    })
}

impl Provider for Kind {
    fn name(&self) -> &'static str {
        "kind"
    }

    fn clusters(&self) -> Clusters {
        Clusters::Kept(1)
    }

    fn made_for(&self) -> Option<Capability> {
        Some(Capability::RealNode)
    }

    fn large(&self) -> usize {
        1_000
    }

    fn start(&self) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        Box::pin(async { Ok(Arc::new(self.create().await?) as Arc<dyn Backend>) })
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
    _cluster: Guard,
    _dir: TempDir,
}

impl Backend for KindBackend {
    fn capabilities(&self) -> Vec<Capability> {
        let mut can = vec![
            Capability::Kubelet,
            Capability::RealNode,
            Capability::GarbageCollector,
            Capability::NamespaceDeletion,
            Capability::Rbac,
            Capability::KubeApiserver,
            Capability::AdmissionPolicies,
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

/// Runs a program, which ends with this process: a killed run must not go on creating a cluster.
fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = dies_with_parent(Path::new(program))
        .as_std_mut()
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// A `kind` that writes down its arguments, and names a node until the second deletion.
    const LATE_NODE: &str = r#"#!/bin/sh
folder=$(dirname "$0")
echo "$*" >>"$folder/calls"
if [ "$1" = get ] && [ "$(grep -c ^delete "$folder/calls")" -lt 2 ]; then echo late-worker; fi
"#;

    #[test]
    fn a_node_that_appears_after_the_deletion_is_deleted_too() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("kind");
        fs::write(&program, LATE_NODE).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let files = dir.path().join("files");
        fs::create_dir(&files).unwrap();
        let path = std::env::var("PATH").unwrap();
        let ended = std::process::Command::new("/bin/sh")
            .args(["-c", CLEAN_UP, "guard", "c"])
            .arg(&files)
            .env("PATH", format!("{}:{path}", dir.path().display()))
            .status();
        assert!(ended.unwrap().success());
        let calls = fs::read_to_string(dir.path().join("calls")).unwrap();
        let delete = format!(
            "delete cluster --name c --kubeconfig {}/admin.kubeconfig",
            files.display()
        );
        let get = "get nodes --name c";
        let calls: Vec<_> = calls.lines().collect();
        assert_eq!(calls, [&delete, get, &delete, get]);
        assert!(!files.exists());
    }
}
