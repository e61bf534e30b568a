//! The clusters for scenarios: the sandbox, a local control plane, the same with real nodes, kind.

mod bootstrap;
mod kind;
mod local;
mod restore;
mod sandbox;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::Result;
use belayer_sandbox::Faults;
use futures::future::BoxFuture;
use kube::Client;

use crate::control_plane::Compactor;
use crate::control_plane::{
    ArgoBinaries, HelmBinaries, Process, PvcController, RealNode, is_installed,
};
use crate::earlier;
use crate::kubectl::Kubectl;
use crate::peers::Peer;
use crate::third_party::ThirdParty;

pub use self::bootstrap::ensure_workflow_crd;
pub(crate) use self::bootstrap::{APART, apply, grant_permissions, manifest, open_gate};
pub use self::kind::Kind;
pub use self::local::Local;
pub use self::restore::OWN_NODE;
pub(crate) use self::restore::restore;
pub(crate) use self::sandbox::BELAYER;
pub use self::sandbox::Sandbox;

/// A capability that a scenario may require and a provider may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Capability {
    /// Pods are bound to nodes and run by a kubelet.
    Kubelet,
    /// Nodes can be added whose kubelets run no containers.
    MoreKubelets,
    /// Deployments start no pods: scenarios do in their place what the pods would do.
    IdleDeployments,
    /// Two nodes run containers, of the image under test among others.
    RealNode,
    /// These nodes and their containers can be killed and looked into from outside.
    NodeControl,
    /// Dependents are deleted with their owners, with all three propagation policies.
    GarbageCollector,
    /// The content of a deleted namespace is deleted.
    NamespaceDeletion,
    /// RBAC is checked for every request of Belayer's.
    Rbac,
    /// The server is kube-apiserver itself, with its bugs.
    KubeApiserver,
    /// The admission policies of Kubernetes 1.36 work.
    AdmissionPolicies,
    /// Belayer's requests are recorded, so that scenarios can assert what it wrote.
    Recorder,
    /// Faults can be injected into Belayer's requests.
    Faults,
    /// Objects can be read as protobuf.
    Protobuf,
    /// kubectl is installed.
    Kubectl,
    /// jq is installed.
    Jq,
    /// Helm 3 and Helm 4 are available.
    Helm,
    /// The real Argo Workflows are available.
    Argo,
    /// An earlier build of Belayer is available.
    EarlierBelayer,
    /// Programs with client-go can be run.
    ClientGo,
    /// Python programs can be run.
    Python,
    /// JavaScript programs can be run.
    Node,
    /// The same, and Chromium is installed.
    Browser,
    /// Prometheus is installed.
    Prometheus,
    /// The scenarios run as root, so that they can mount, and create namespaces.
    Root,
    /// PVCs can be without the protection of kube-controller-manager.
    UnprotectedPvcs,
    /// kube-controller-manager runs, and its PVC protection controller can be switched off.
    PvcController,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kubelet => "a kubelet",
            Self::MoreKubelets => "more kubelets",
            Self::IdleDeployments => "Deployments that start no pods",
            Self::RealNode => "real nodes",
            Self::NodeControl => "control of real nodes",
            Self::GarbageCollector => "the garbage collector",
            Self::NamespaceDeletion => "namespace deletion",
            Self::Rbac => "RBAC",
            Self::KubeApiserver => "kube-apiserver",
            Self::AdmissionPolicies => "admission policies",
            Self::Recorder => "a record of requests",
            Self::Faults => "fault injection",
            Self::Protobuf => "protobuf",
            Self::Kubectl => "kubectl",
            Self::Jq => "jq",
            Self::Helm => "Helm (Go builds it)",
            Self::Argo => "Argo Workflows (BELAYER_ARGO names a folder with its programs)",
            Self::EarlierBelayer => "an earlier build of Belayer (the repository's history has it)",
            Self::ClientGo => "client-go (Go builds it)",
            Self::Python => "python3",
            Self::Node => "node and npm",
            Self::Browser => "node, npm and Chromium (Debian's package chromium)",
            Self::Prometheus => "Prometheus (Debian's package prometheus)",
            Self::Root => "root",
            Self::UnprotectedPvcs => "PVCs that Kubernetes does not protect",
            Self::PvcController => "kube-controller-manager's PVC protection controller",
        })
    }
}

/// The clusters of exclusive scenarios.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clusters {
    /// A new one for each: starting one costs nothing.
    Plenty,
    /// This many clusters, each for scenarios one after the other, kept during the whole run.
    Kept(usize),
}

/// Starts clusters.
pub trait Provider: Send + Sync {
    /// The name on the command line.
    fn name(&self) -> &'static str;

    /// Whether each exclusive scenario gets a new cluster.
    fn clusters(&self) -> Clusters;

    /// The capability for which the provider is made: unless scenarios are named, only those run that require
    /// it.
    fn made_for(&self) -> Option<Capability> {
        None
    }

    /// How many pods the size scenarios create.
    fn large(&self) -> usize;

    /// A new cluster, with the Workflow CRD and Belayer's namespace, account and RBAC permissions.
    fn start(&self) -> BoxFuture<'_, Result<Arc<dyn Backend>>>;
}

/// A running cluster. Dropping it stops it.
pub trait Backend: Send + Sync {
    /// Its capabilities.
    fn capabilities(&self) -> Vec<Capability>;

    /// A client with all permissions.
    fn client(&self) -> &Client;

    /// The kubeconfig of an admin.
    fn admin_kubeconfig(&self) -> &Path;

    /// The kubeconfig of Belayer's ServiceAccount, with exactly the deployed permissions.
    fn belayer_kubeconfig(&self) -> &Path;

    /// Writes the kubeconfig of a node's agent: its ServiceAccount, with the deployed permissions, and a
    /// token that is bound to the node.
    fn agent_kubeconfig<'a>(&'a self, node: &'a str, path: &'a Path) -> BoxFuture<'a, Result<()>>;

    /// The record of Belayer's requests, if there is one.
    fn recorder(&self) -> Option<&dyn Recorder> {
        None
    }

    /// Fault injection, if supported.
    fn faults(&self) -> Option<&Faults> {
        None
    }

    /// Compacts old versions, if supported.
    fn compactor(&self) -> Option<Compactor> {
        None
    }

    /// The real nodes.
    fn nodes(&self) -> &[RealNode] {
        &[]
    }

    /// Starts another kubelet with its own node, which stops with the process.
    fn start_kubelet<'a>(&'a self, _node: &'a str) -> BoxFuture<'a, Result<Process>> {
        Box::pin(async { anyhow::bail!("this provider cannot start a kubelet") })
    }

    /// Kills a program of the control plane, such as `etcd`, without warning, and after a pause starts it again.
    fn restart<'a>(&'a self, _program: &'a str, _pause: Duration) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { anyhow::bail!("this provider cannot restart programs") })
    }

    /// Switches kube-controller-manager's PVC protection controller; where there is none, it counts as off.
    fn switch_pvc_controller(&self, _: PvcController) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

/// Capabilities of this machine, for every provider. Each is found out by starting a program, and scenarios ask often.
fn of_this_machine() -> impl Iterator<Item = Capability> {
    static FOUND: LazyLock<Vec<Capability>> = LazyLock::new(|| find_out().collect());
    FOUND.iter().copied()
}

fn find_out() -> impl Iterator<Item = Capability> {
    [
        (rustix::process::geteuid().is_root(), Capability::Root),
        (Kubectl::is_installed(), Capability::Kubectl),
        (is_installed("jq"), Capability::Jq),
        (HelmBinaries::are_available(), Capability::Helm),
        (ArgoBinaries::are_available(), Capability::Argo),
        (earlier::is_available(), Capability::EarlierBelayer),
        (Peer::Informer.is_available(), Capability::ClientGo),
        (ThirdParty::Kopf.is_available(), Capability::Python),
        (ThirdParty::JavaScript.is_available(), Capability::Node),
        (ThirdParty::Browser.is_available(), Capability::Browser),
        (is_installed("prometheus"), Capability::Prometheus),
    ]
    .into_iter()
    .filter_map(|(can, capability)| can.then_some(capability))
}

/// A position in the record of Belayer's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark {
    position: u64,
    /// Requests from before do not count, although the record may name them after the position.
    time: jiff::Timestamp,
}

/// One request of Belayer's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The verb as in RBAC: `get`, `patch`, ...
    pub verb: String,
    /// The plural, with its subresource: `pods`, `pods/status`.
    pub resource: String,
    /// `namespace/name`.
    pub object: String,
    /// The status code of the response.
    pub code: u16,
}

impl Request {
    /// Whether it is a mutating request.
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

/// The record of Belayer's requests.
pub trait Recorder: Send + Sync {
    /// The current position.
    fn mark(&self) -> Result<Mark>;

    /// The mutating requests after a position, in the order of their responses. A request may be missing for a moment
    /// after its effect is visible: who looks for one waits for it with `eventually`.
    fn writes_since(&self, mark: Mark) -> Result<Vec<Request>>;

    /// The total number of requests with this verb for this resource: `get` reads single objects.
    fn count(&self, verb: &str, resource: &str) -> Result<u64>;

    /// The total number of GETs of single objects of this resource.
    fn gets(&self, resource: &str) -> Result<u64> {
        self.count("get", resource)
    }
}
