//! The programs of a control plane and of real nodes, Helm, and the Go modules that pin them.

use std::fmt;
use std::path::PathBuf;

use super::cache::cache_dir;
use super::kubernetes::Kubernetes;
use crate::go;

/// Major version and release of each Helm that `helm/go.mod` pins, which are set at build time.
pub(super) const HELM_VERSIONS: [(u8, &str); 2] = [(3, "3.22.0"), (4, "4.3.1")];

/// A Go module that pins programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Module {
    ControlPlane(Kubernetes),
    Node,
    Helm,
}

impl Module {
    /// What is built, for progress and errors.
    pub(super) fn title(self) -> String {
        match self {
            Self::ControlPlane(kubernetes) => format!("Kubernetes {}", kubernetes.release()),
            Self::Node => "containerd, runc and CNI plugins".to_owned(),
            Self::Helm => "Helm 3 and Helm 4".to_owned(),
        }
    }

    /// How long a build takes on two cores.
    pub(super) const fn minutes(self) -> u8 {
        match self {
            Self::ControlPlane(_) => 7,
            Self::Node => 3,
            Self::Helm => 5,
        }
    }

    /// Path and text of each file.
    pub(super) fn files(self) -> Vec<(&'static str, &'static str)> {
        match self {
            Self::ControlPlane(kubernetes) => kubernetes.files(),
            Self::Node => vec![
                ("go.mod", include_str!("../../node/go.mod")),
                ("go.sum", include_str!("../../node/go.sum")),
                (
                    "cmd/pause/main.go",
                    include_str!("../../node/cmd/pause/main.go"),
                ),
                (
                    "cmd/pause/collector.go",
                    include_str!("../../node/cmd/pause/collector.go"),
                ),
                (
                    "cmd/runc/main.go",
                    include_str!("../../node/cmd/runc/main.go"),
                ),
            ],
            Self::Helm => vec![
                ("go.mod", include_str!("../../helm/go.mod")),
                ("go.sum", include_str!("../../helm/go.sum")),
            ],
        }
    }

    pub(super) fn linker_flags(self) -> String {
        let release = match self {
            Self::ControlPlane(kubernetes) => kubernetes.release(),
            Self::Node => return "-s -w".to_owned(),
            Self::Helm => {
                let stamps = HELM_VERSIONS.map(|(major, version)| {
                    format!(" -X helm.sh/helm/v{major}/internal/version.version=v{version}")
                });
                return format!("-s -w{}", stamps.concat());
            }
        };
        let stamp = "k8s.io/component-base/version";
        let mut parts = release.split('.');
        let major = parts.next().unwrap_or_default();
        let minor = parts.next().unwrap_or_default();
        format!(
            "-s -w -X {stamp}.gitVersion=v{release} -X {stamp}.gitMajor={major} -X {stamp}.gitMinor={minor}"
        )
    }

    /// One cache folder per content: a change builds again, a new clone uses the cache.
    pub(super) fn folder(self) -> PathBuf {
        let flags = self.linker_flags();
        let files = self.files();
        let mut parts: Vec<&str> = files.iter().map(|(_, text)| *text).collect();
        parts.push(&flags);
        let short = go::fingerprint(&parts);
        match self {
            Self::ControlPlane(kubernetes) => cache_dir()
                .join("control-plane")
                .join(format!("{}-{short}", kubernetes.release())),
            Self::Node => cache_dir().join("node").join(short),
            Self::Helm => cache_dir().join("helm").join(short),
        }
    }
}

/// A program of the control plane or of a real node, or a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// The store.
    Etcd,
    /// The API server.
    ApiServer,
    /// Garbage collector, namespace deletion, node lifecycle and the like.
    ControllerManager,
    /// Binds pods to nodes.
    Scheduler,
    /// The kubelet's code with a simulated container runtime.
    HollowKubelet,
    /// The kubelet.
    Kubelet,
    /// The container runtime.
    Containerd,
    /// Its process beside each pod.
    Shim,
    /// Its client, which imports images.
    Ctr,
    /// What creates containers.
    Runc,
    /// Calls runc without seccomp filters.
    PlainRunc,
    /// The CNI plugin for the network of pods.
    Bridge,
    /// The CNI plugin for a pod's loopback address.
    Loopback,
    /// The CNI plugin for addresses.
    HostLocal,
    /// Waits for SIGTERM: the program of sandbox containers and of pods in scenarios.
    Pause,
    /// The package manager, in the version that most clusters have.
    Helm3,
    /// The version that renders the manifests.
    Helm4,
}

impl Program {
    /// All versions of Helm.
    pub const HELM: [Self; 2] = [Self::Helm3, Self::Helm4];

    /// The programs of a control plane, the required ones first.
    pub const PLANE: [Self; 5] = [
        Self::Etcd,
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
        Self::HollowKubelet,
    ];

    /// Those of Kubernetes itself.
    pub const OF_KUBERNETES: [Self; 4] = [
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
        Self::HollowKubelet,
    ];

    /// The programs of a real node.
    pub const NODE: [Self; 10] = [
        Self::Kubelet,
        Self::Containerd,
        Self::Shim,
        Self::Ctr,
        Self::Runc,
        Self::PlainRunc,
        Self::Bridge,
        Self::Loopback,
        Self::HostLocal,
        Self::Pause,
    ];

    /// The file name, as in setup-envtest and as other programs look for it.
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::HollowKubelet => "kubemark",
            Self::Kubelet => "kubelet",
            Self::Containerd => "containerd",
            Self::Shim => "containerd-shim-runc-v2",
            Self::Ctr => "ctr",
            Self::Runc => "runc",
            Self::PlainRunc => "belayer-runc",
            Self::Bridge => "bridge",
            Self::Loopback => "loopback",
            Self::HostLocal => "host-local",
            Self::Pause => "belayer-pause",
            Self::Helm3 => "helm3",
            Self::Helm4 => "helm4",
        }
    }

    /// The module that pins it for [`Kubernetes::MAIN`].
    pub(super) const fn module(self) -> Module {
        match self {
            Self::Etcd
            | Self::ApiServer
            | Self::ControllerManager
            | Self::Scheduler
            | Self::HollowKubelet
            | Self::Kubelet => Module::ControlPlane(Kubernetes::MAIN),
            Self::Helm3 | Self::Helm4 => Module::Helm,
            _ => Module::Node,
        }
    }

    /// The Go package: a `tool` of the module, or part of it.
    pub(super) const fn package(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::ApiServer => "k8s.io/kubernetes/cmd/kube-apiserver",
            Self::ControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
            Self::Scheduler => "k8s.io/kubernetes/cmd/kube-scheduler",
            Self::HollowKubelet => "k8s.io/kubernetes/cmd/kubemark",
            Self::Kubelet => "k8s.io/kubernetes/cmd/kubelet",
            Self::Containerd => "github.com/containerd/containerd/v2/cmd/containerd",
            Self::Shim => "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
            Self::Ctr => "github.com/containerd/containerd/v2/cmd/ctr",
            Self::Runc => "github.com/opencontainers/runc",
            Self::PlainRunc => "./cmd/runc",
            Self::Bridge => "github.com/containernetworking/plugins/plugins/main/bridge",
            Self::Loopback => "github.com/containernetworking/plugins/plugins/main/loopback",
            Self::HostLocal => "github.com/containernetworking/plugins/plugins/ipam/host-local",
            Self::Pause => "./cmd/pause",
            Self::Helm3 => "helm.sh/helm/v3/cmd/helm",
            Self::Helm4 => "helm.sh/helm/v4/cmd/helm",
        }
    }

    /// Build tags: snapshotters that nothing uses are left out.
    pub(super) const fn tags(self) -> &'static str {
        match self {
            Self::Containerd | Self::Shim | Self::Ctr => {
                "no_btrfs,no_zfs,no_devmapper,netgo,osusergo,static_build"
            }
            Self::Runc => "netgo,osusergo",
            _ => "",
        }
    }

    /// Whether it contains C code. In runc that enters the namespaces of a container.
    pub(super) const fn needs_c(self) -> bool {
        matches!(self, Self::Runc)
    }

    /// Whether a control plane can run without it.
    pub(super) const fn indispensable(self) -> bool {
        matches!(self, Self::Etcd | Self::ApiServer)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.file_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stamped_version_is_the_pinned_one() {
        assert!(
            Module::ControlPlane(Kubernetes::MAIN)
                .linker_flags()
                .ends_with("gitMajor=1 -X k8s.io/component-base/version.gitMinor=36")
        );
        let (_, go_mod) = Module::Helm.files()[0];
        for (major, version) in HELM_VERSIONS {
            assert!(go_mod.contains(&format!("helm.sh/helm/v{major} v{version} ")));
        }
    }

    #[test]
    fn every_program_is_a_tool_of_its_module() {
        let all = Program::PLANE.into_iter().chain(Program::NODE);
        for program in all.chain(Program::HELM) {
            let files = program.module().files();
            let package = program.package();
            let known = match package.strip_prefix("./") {
                Some(own) => files
                    .iter()
                    .any(|(path, _)| *path == format!("{own}/main.go")),
                None => files[0].1.contains(&format!("\t{package}\n")),
            };
            assert!(known, "{program}");
        }
    }
}
