//! Where scenarios run: the sandbox, a local control plane, kind.

mod bootstrap;
mod kind;
mod local;
mod sandbox;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use belayer_sandbox::Faults;
use futures::future::BoxFuture;
use kube::Client;

use crate::conformance::Compactor;
use crate::control_plane::ClaimController;
use crate::harness::Kubectl;
use crate::peers::Peer;

pub use self::bootstrap::ensure_workflow_crd;
pub(crate) use self::bootstrap::{apply, grant_rights, manifest, restore};
pub use self::kind::Kind;
pub use self::local::Local;
pub(crate) use self::sandbox::BELAYER;
pub use self::sandbox::Sandbox;

/// What a scenario may need and a provider may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Capability {
    /// Pods are bound to nodes and run by a kubelet.
    Kubelet,
    /// Dependents go with their owners, in all three propagation policies.
    GarbageCollector,
    /// A deleted namespace is emptied.
    NamespaceDeletion,
    /// Belayer's rights are checked on every request.
    Rbac,
    /// The admission policies of Kubernetes 1.36 work.
    AdmissionPolicies,
    /// Belayer's requests are recorded, so that scenarios can assert what it wrote.
    Recorder,
    /// Faults can be injected into Belayer's requests.
    Faults,
    /// Objects travel as protobuf too.
    Protobuf,
    /// kubectl is installed here.
    Kubectl,
    /// Programs with client-go can be run here.
    ClientGo,
    /// Scenarios are run by root, who may mount.
    Root,
    /// kube-controller-manager runs, and its own controller of claims can be switched off.
    ClaimController,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kubelet => "a kubelet",
            Self::GarbageCollector => "the garbage collector",
            Self::NamespaceDeletion => "namespace deletion",
            Self::Rbac => "RBAC",
            Self::AdmissionPolicies => "admission policies",
            Self::Recorder => "a record of requests",
            Self::Faults => "fault injection",
            Self::Protobuf => "protobuf",
            Self::Kubectl => "kubectl",
            Self::ClientGo => "client-go (Go builds it)",
            Self::Root => "root",
            Self::ClaimController => "kube-controller-manager's controller of claims",
        })
    }
}

/// How scenarios that need a cluster to themselves get one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clusters {
    /// A new one each: they cost nothing.
    Plenty,
    /// One after the other on so many, which are kept for the whole run.
    Kept(usize),
}

/// A way to have clusters.
pub trait Provider: Send + Sync {
    /// The name on the command line.
    fn name(&self) -> &'static str;

    /// Whether clusters are dear.
    fn clusters(&self) -> Clusters;

    /// How many pods the scenarios about size make.
    fn large(&self) -> usize;

    /// A new cluster, with the Workflow kind installed and Belayer's namespace, account and rights.
    fn start(&self) -> BoxFuture<'_, Result<Arc<dyn Backend>>>;
}

/// A running cluster. Dropping it ends it.
pub trait Backend: Send + Sync {
    /// What it can do.
    fn capabilities(&self) -> Vec<Capability>;

    /// A client that may do everything.
    fn client(&self) -> &Client;

    /// The kubeconfig of an admin.
    fn admin_kubeconfig(&self) -> &Path;

    /// The kubeconfig of Belayer's ServiceAccount, with exactly the rights that are deployed.
    fn belayer_kubeconfig(&self) -> &Path;

    /// Writes the kubeconfig of the node agent of a node: of its ServiceAccount, with the rights that are
    /// deployed, and with a token that names the node.
    fn agent_kubeconfig<'a>(&'a self, node: &'a str, path: &'a Path) -> BoxFuture<'a, Result<()>>;

    /// The record of Belayer's requests, where there is one.
    fn recorder(&self) -> Option<&dyn Recorder> {
        None
    }

    /// Fault injection, where there is one.
    fn faults(&self) -> Option<&Faults> {
        None
    }

    /// Makes the server forget old versions, where that can be done.
    fn compactor(&self) -> Option<Compactor> {
        None
    }

    /// Starts one more kubelet, on a node of its own, which ends with the process.
    ///
    /// # Errors
    /// When there is none to be had.
    fn start_kubelet(&self, _node: &str) -> Result<crate::control_plane::Process> {
        anyhow::bail!("no kubelet can be started here")
    }

    /// Switches kube-controller-manager's own controller of claims; where there is none, it is off.
    fn switch_claim_controller(&self, _: ClaimController) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

/// What scenarios can do on this machine, whatever the provider.
fn of_this_machine() -> impl Iterator<Item = Capability> {
    [
        (rustix::process::geteuid().is_root(), Capability::Root),
        (Kubectl::is_installed(), Capability::Kubectl),
        (Peer::Informer.is_available(), Capability::ClientGo),
    ]
    .into_iter()
    .filter_map(|(can, capability)| can.then_some(capability))
}

/// A place in the record of Belayer's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark(pub(crate) u64);

/// One request of Belayer's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// In RBAC's words: `get`, `patch`, ...
    pub verb: String,
    /// The plural, with its subresource: `pods`, `pods/status`.
    pub resource: String,
    /// `namespace/name`.
    pub object: String,
    /// What the server answered.
    pub code: u16,
}

impl Request {
    /// Whether it may have changed anything.
    #[must_use]
    pub fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {} {}",
            self.verb, self.resource, self.object, self.code
        )
    }
}

/// What Belayer sent.
pub trait Recorder: Send + Sync {
    /// The place reached by now.
    ///
    /// # Errors
    /// When the record cannot be read.
    fn mark(&self) -> Result<Mark>;

    /// The mutating requests after a place, in the order they were answered.
    ///
    /// # Errors
    /// When the record cannot be read.
    fn writes_since(&self, mark: Mark) -> Result<Vec<Request>>;

    /// How many GETs of single objects of this plural there have been in all.
    ///
    /// # Errors
    /// When the record cannot be read.
    fn gets(&self, resource: &str) -> Result<u64>;
}
