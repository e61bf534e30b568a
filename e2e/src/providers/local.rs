//! A real control plane on this machine, without containers or with real nodes.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::Client;
use serde::Deserialize;

use super::bootstrap::{
    MUTATING_POLICIES, apply, belayer_kubeconfig, ensure_workflow_crd, grant_permissions, minor,
};
use super::{Backend, Capability, Clusters, Mark, Provider, Recorder, Request};
use crate::control_plane::{
    Binaries, ControlPlane, Options, Process, PvcController, RealNode, RealNodes,
    node_agent_kubeconfig,
};
use crate::control_plane::{Compactor, compactor_beside};

/// Starts control planes with these programs.
#[derive(Debug)]
pub struct Local {
    binaries: Binaries,
    options: Options,
}

impl Local {
    /// A provider with these programs.
    pub fn new(binaries: Binaries) -> Self {
        Self {
            binaries,
            options: Options::default(),
        }
    }

    /// With so many hollow nodes.
    pub fn hollow_nodes(mut self, count: usize) -> Self {
        self.options.hollow_nodes = count;
        self
    }

    /// The same with real nodes, which run containers: the provider `node`.
    pub fn with_nodes(binaries: Binaries, nodes: RealNodes) -> Self {
        Self {
            binaries,
            options: Options::real(nodes),
        }
    }
}

impl Provider for Local {
    fn name(&self) -> &'static str {
        match self.options.real {
            None => "local",
            Some(_) => "node",
        }
    }

    fn clusters(&self) -> Clusters {
        match self.options.real {
            // A scenario mostly waits, and a control plane needs about 700 MB.
            None => Clusters::Kept(4),
            Some(_) => Clusters::Kept(1),
        }
    }

    fn made_for(&self) -> Option<Capability> {
        self.options.real.as_ref().map(|_| Capability::RealNode)
    }

    fn large(&self) -> usize {
        1_000
    }

    fn start(&self) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        Box::pin(async {
            let plane = ControlPlane::start(&self.binaries, &self.options).await?;
            let backend = LocalBackend::prepare(plane).await?;
            Ok(Arc::new(backend) as Arc<dyn Backend>)
        })
    }
}

struct LocalBackend {
    plane: ControlPlane,
    belayer: PathBuf,
    audit: AuditLog,
    has_mutating_policies: bool,
}

impl LocalBackend {
    async fn prepare(plane: ControlPlane) -> Result<Self> {
        let client = plane.client();
        grant_permissions(client).await?;
        ensure_workflow_crd(client).await?;
        let has_mutating_policies = minor(client).await? >= MUTATING_POLICIES;
        if has_mutating_policies {
            apply(client, include_str!("../../manifests/policy-anchor.yaml")).await?;
        }
        let belayer = plane.dir().join("belayer.kubeconfig");
        belayer_kubeconfig(client, plane.admin(), &belayer).await?;
        let audit = AuditLog(plane.audit_log().to_owned());
        Ok(Self {
            belayer,
            audit,
            plane,
            has_mutating_policies,
        })
    }
}

impl Backend for LocalBackend {
    fn capabilities(&self) -> Vec<Capability> {
        let mut can = vec![
            Capability::Rbac,
            Capability::KubeApiserver,
            Capability::Recorder,
            Capability::Protobuf,
            Capability::UnprotectedPvcs,
        ];
        if self.has_mutating_policies {
            can.push(Capability::AdmissionPolicies);
        }
        if self.plane.has_controller_manager() {
            can.extend([
                Capability::GarbageCollector,
                Capability::NamespaceDeletion,
                Capability::PvcController,
            ]);
        }
        let real = !self.plane.nodes().is_empty();
        if (real || self.plane.hollow_nodes() > 0) && self.plane.has_scheduler() {
            can.push(Capability::Kubelet);
        }
        if self.plane.has_hollow_kubelet() && self.plane.has_scheduler() {
            can.push(Capability::MoreKubelets);
        }
        can.extend(if real {
            vec![Capability::RealNode, Capability::NodeControl]
        } else {
            vec![Capability::IdleDeployments]
        });
        can.extend(super::of_this_machine());
        can
    }

    fn client(&self) -> &Client {
        self.plane.client()
    }

    fn admin_kubeconfig(&self) -> &Path {
        self.plane.admin_path()
    }

    fn belayer_kubeconfig(&self) -> &Path {
        &self.belayer
    }

    fn agent_kubeconfig<'a>(&'a self, node: &'a str, path: &'a Path) -> BoxFuture<'a, Result<()>> {
        Box::pin(node_agent_kubeconfig(
            self.plane.client(),
            self.plane.admin(),
            node,
            path,
        ))
    }

    fn recorder(&self) -> Option<&dyn Recorder> {
        Some(&self.audit)
    }

    fn compactor(&self) -> Option<Compactor> {
        compactor_beside(self.plane.admin_path())
    }

    fn nodes(&self) -> &[RealNode] {
        self.plane.nodes()
    }

    fn start_kubelet<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<Process>> {
        Box::pin(self.plane.start_extra_kubelet(node))
    }

    fn restart<'a>(&'a self, program: &'a str, pause: Duration) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.plane.restart(program, pause))
    }

    fn switch_pvc_controller(&self, pvcs: PvcController) -> BoxFuture<'_, Result<()>> {
        if !self.plane.has_controller_manager() {
            return Box::pin(async { Ok(()) });
        }
        Box::pin(self.plane.switch_pvc_controller(pvcs))
    }
}

/// kube-apiserver's audit log: one JSON object per line for each answered request of Belayer's.
#[derive(Debug)]
struct AuditLog(PathBuf);

impl AuditLog {
    fn since(&self, mark: Mark) -> Result<Vec<Request>> {
        let mut file = fs::File::open(&self.0).context("open the audit log")?;
        file.seek(SeekFrom::Start(mark.position))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        // The last line may be incomplete: it is read by the next call.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole
            .lines()
            .map(|line| read_line(line, mark.time))
            .filter_map(Result::transpose)
            .collect()
    }
}

impl Recorder for AuditLog {
    fn mark(&self) -> Result<Mark> {
        Ok(Mark {
            position: fs::metadata(&self.0).context("the audit log")?.len(),
            // A line is written after its response: the effect of a request may be seen before.
            time: Timestamp::now(),
        })
    }

    fn writes_since(&self, mark: Mark) -> Result<Vec<Request>> {
        let mut requests = self.since(mark)?;
        requests.retain(Request::is_write);
        Ok(requests)
    }

    fn count(&self, verb: &str, resource: &str) -> Result<u64> {
        let requests = self.since(Mark::default())?;
        let counted = requests
            .iter()
            .filter(|request| request.verb == verb && request.resource == resource);
        Ok(u64::try_from(counted.count())?)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuditEvent {
    verb: String,
    request_received_timestamp: Timestamp,
    object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct ObjectRef {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize, Default)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

/// `None` for requests without an object, such as discovery, and for those from before `begin`.
fn read_line(line: &str, begin: Timestamp) -> Result<Option<Request>> {
    let event: AuditEvent =
        serde_json::from_str(line).with_context(|| format!("an audit line: {line}"))?;
    if event.request_received_timestamp < begin {
        return Ok(None);
    }
    let Some(object) = event.object_ref else {
        return Ok(None);
    };
    let resource = match object.subresource.as_str() {
        "" => object.resource,
        subresource => format!("{}/{subresource}", object.resource),
    };
    Ok(Some(Request {
        verb: event.verb,
        resource,
        object: format!("{}/{}", object.namespace, object.name),
        code: event.response_status.unwrap_or_default().code,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(received: Timestamp) -> String {
        let event = serde_json::json!({
            "kind": "Event",
            "verb": "patch",
            "user": {"username": "system:serviceaccount:belayer-system:belayer"},
            "objectRef": {"resource": "pods", "namespace": "a", "name": "p", "apiVersion": "v1"},
            "responseStatus": {"code": 409},
            "requestReceivedTimestamp": received,
        });
        event.to_string()
    }

    #[test]
    fn an_audit_line_is_read() {
        let line = line(Timestamp::now());
        let request = read_line(&line, Timestamp::default()).unwrap().unwrap();
        assert_eq!(request.to_string(), "patch pods a/p 409");
        assert!(request.is_write());
    }

    #[test]
    fn a_half_written_line_waits_for_the_next_look() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let line = line(Timestamp::now());
        fs::write(&path, format!("{line}\n{}", &line[..20])).unwrap();
        let log = AuditLog(path);
        assert_eq!(log.count("patch", "pods").unwrap(), 1);
        assert_eq!(log.writes_since(Mark::default()).unwrap().len(), 1);
    }

    #[test]
    fn a_request_before_the_mark_does_not_count_although_its_line_comes_after() {
        let dir = tempfile::tempdir().unwrap();
        let log = AuditLog(dir.path().join("audit.log"));
        fs::write(&log.0, "").unwrap();
        let before = Timestamp::now();
        let mark = log.mark().unwrap();
        let after = Timestamp::now();
        let lines = [before, after].map(|time| line(time) + "\n");
        fs::write(&log.0, lines.concat()).unwrap();
        assert_eq!(log.writes_since(mark).unwrap().len(), 1);
    }
}
