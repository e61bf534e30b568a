//! The embedded API server.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use belayer_sandbox::simulated::SimulatedControllers;
use belayer_sandbox::{Authorization, Faults, Listener, Outcome, Recording, Write};
use futures::future::BoxFuture;
use kube::Client;
use serde_json::json;
use tempfile::TempDir;

use super::bootstrap::{apply, ensure_workflow_crd, grant_permissions};
use super::{Backend, Capability, Clusters, Mark, Provider, Recorder, Request};
use crate::control_plane;
use crate::control_plane::Compactor;

/// The account of Belayer, which admission policies know, and under which its requests are recorded.
pub(crate) const BELAYER: &str = "system:serviceaccount:belayer-system:belayer";
/// Many clients send no token over plain HTTP: their user is their user agent, which may do everything here.
const CLIENTS: [&str; 9] = [
    "Helm",
    "OpenAPI-Generator",
    "builtins",
    "controller",
    "crd",
    "informer",
    "kopf",
    "kubectl",
    "node",
];
const AGENT: &str = "system:serviceaccount:belayer-node-agent:belayer-node-agent";

/// Starts sandboxes. Each listens on a loopback address, because Belayer is a separate process.
#[derive(Debug, Default)]
pub struct Sandbox {
    /// What their record keeps.
    pub recording: Recording,
}

impl Provider for Sandbox {
    fn name(&self) -> &'static str {
        "sandbox"
    }

    fn clusters(&self) -> Clusters {
        Clusters::Plenty
    }

    fn large(&self) -> usize {
        2_000
    }

    fn start(&self) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        Box::pin(async {
            let sandbox = belayer_sandbox::Sandbox::builder()
                .recording(self.recording)
                .controllers(SimulatedControllers::all())
                .authorization(Authorization::Rbac)
                .build();
            let listener = sandbox.listen_anywhere().await?;
            let dir = tempfile::Builder::new()
                .prefix("belayer-sandbox-")
                .tempdir()?;
            let write = |name: &str, user: &str| -> Result<PathBuf> {
                let path = dir.path().join(name);
                fs::write(&path, listener.kubeconfig_for(user))?;
                Ok(path)
            };
            let admin = write("admin.kubeconfig", "admin")?;
            let belayer = write("belayer.kubeconfig", BELAYER)?;
            let client = control_plane::client(&admin).await?;
            grant_permissions(&client).await?;
            apply(&client, &everything_to_clients()).await?;
            ensure_workflow_crd(&client).await?;
            let record = Record(sandbox.recorder().clone());
            let backend = SandboxBackend {
                client,
                admin,
                belayer,
                record,
                sandbox,
                listener,
                _dir: dir,
            };
            Ok(Arc::new(backend) as Arc<dyn Backend>)
        })
    }
}

fn everything_to_clients() -> String {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "e2e-clients"},
        "rules": [
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
            {"nonResourceURLs": ["*"], "verbs": ["*"]},
        ],
    });
    let subject =
        |name| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name});
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "e2e-clients"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "e2e-clients"},
        "subjects": CLIENTS.map(subject),
    });
    format!("{role}\n---\n{binding}")
}

struct SandboxBackend {
    client: Client,
    admin: PathBuf,
    belayer: PathBuf,
    record: Record,
    sandbox: belayer_sandbox::Sandbox,
    listener: Listener,
    _dir: TempDir,
}

impl Backend for SandboxBackend {
    fn capabilities(&self) -> Vec<Capability> {
        let mut can = vec![
            Capability::Kubelet,
            Capability::IdleDeployments,
            Capability::GarbageCollector,
            Capability::NamespaceDeletion,
            Capability::Rbac,
            Capability::UnprotectedPvcs,
            Capability::Recorder,
            Capability::Faults,
            Capability::AdmissionPolicies,
        ];
        can.extend(super::of_this_machine());
        // Its scenarios wait in vain here.
        can.retain(|capability| *capability != Capability::Helm);
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
        let written = fs::write(
            path,
            self.listener.kubeconfig_for(&format!("{AGENT}@{node}")),
        );
        Box::pin(std::future::ready(written.map_err(Into::into)))
    }

    fn recorder(&self) -> Option<&dyn Recorder> {
        Some(&self.record)
    }

    fn faults(&self) -> Option<&Faults> {
        Some(self.sandbox.faults())
    }

    fn compactor(&self) -> Option<Compactor> {
        let cluster = self.sandbox.cluster().clone();
        Some(Box::new(move || {
            cluster.compact(cluster.version());
            Box::pin(std::future::ready(Ok(())))
        }))
    }
}

struct Record(belayer_sandbox::Recorder);

impl Recorder for Record {
    fn mark(&self) -> Result<Mark> {
        Ok(Mark {
            position: u64::try_from(self.0.writes_by(BELAYER).len())?,
            ..Mark::default()
        })
    }

    fn writes_since(&self, mark: Mark) -> Result<Vec<Request>> {
        let writes = self.0.writes_by(BELAYER);
        Ok(writes
            .iter()
            .skip(usize::try_from(mark.position)?)
            .map(request)
            .collect())
    }

    fn count(&self, verb: &str, resource: &str) -> Result<u64> {
        let is_wanted = |found: &str| found.split('.').next() == Some(resource);
        let counts = self.0.requests_by(BELAYER);
        let wanted = counts
            .iter()
            .filter(|((sent, found), _)| sent.as_str() == verb && is_wanted(found));
        Ok(wanted.map(|(_, count)| count).sum())
    }
}

fn request(write: &Write) -> Request {
    let resource = match write.subresource {
        "" => write.resource.resource.to_string(),
        subresource => format!("{}/{subresource}", write.resource.resource),
    };
    let code = match write.outcome {
        Outcome::Applied | Outcome::NoOp => 200,
        Outcome::Refused(code) => code,
    };
    Request {
        verb: write.verb.as_str().to_owned(),
        resource,
        object: write.key.to_string(),
        code,
    }
}
