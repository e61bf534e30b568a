//! The programs of a control plane: built from the pinned manifest, or taken from `KUBEBUILDER_ASSETS`.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::cache::cache_dir;
use crate::go;
use crate::progress::Progress;

const GO_MOD: &str = include_str!("../../control-plane/go.mod");
const GO_SUM: &str = include_str!("../../control-plane/go.sum");
/// The release that `go.mod` pins. It is set at build time, as the programs cannot determine it.
const KUBERNETES_VERSION: &str = "1.36.3";

/// A program of the control plane.
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
}

impl Program {
    /// All programs, the required ones first.
    pub const ALL: [Self; 5] = [
        Self::Etcd,
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
        Self::HollowKubelet,
    ];

    /// The file name, as in setup-envtest.
    #[must_use]
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::HollowKubelet => "kubemark",
        }
    }

    /// The Go package, a `tool` of the manifest.
    const fn package(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::ApiServer => "k8s.io/kubernetes/cmd/kube-apiserver",
            Self::ControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
            Self::Scheduler => "k8s.io/kubernetes/cmd/kube-scheduler",
            Self::HollowKubelet => "k8s.io/kubernetes/cmd/kubemark",
        }
    }

    /// Whether a cluster can run without it.
    const fn indispensable(self) -> bool {
        matches!(self, Self::Etcd | Self::ApiServer)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.file_name())
    }
}

/// Why a control plane cannot be started on this machine.
#[derive(Debug)]
pub enum BuildError {
    /// Neither Go nor `KUBEBUILDER_ASSETS` is available: scenarios that need a control plane are skipped by name.
    Unavailable(String),
    /// The build failed.
    Failed(anyhow::Error),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(why) => f.write_str(why),
            Self::Failed(error) => write!(f, "{error:#}"),
        }
    }
}

impl std::error::Error for BuildError {}

/// A folder with the programs.
#[derive(Debug, Clone)]
pub struct Binaries {
    dir: PathBuf,
}

impl Binaries {
    /// The programs of `KUBEBUILDER_ASSETS` if that is set, else those in the cache, built with Go if they
    /// are missing (about seven minutes on two cores, once per machine).
    ///
    /// # Errors
    /// [`BuildError::Unavailable`] when the programs are neither available nor can be built.
    pub fn find_or_build() -> Result<Self, BuildError> {
        if let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS") {
            return Self::assets(PathBuf::from(assets));
        }
        let dir = build_dir();
        let binaries = Self { dir };
        if Program::ALL
            .iter()
            .all(|program| binaries.path(*program).is_some())
        {
            return Ok(binaries);
        }
        if !go::is_there() {
            return Err(BuildError::Unavailable(
                "cannot start a control plane: install Go 1.26 or set KUBEBUILDER_ASSETS to a folder \
                 with etcd and kube-apiserver"
                    .to_owned(),
            ));
        }
        build(&binaries.dir).map_err(BuildError::Failed)?;
        Ok(binaries)
    }

    fn assets(dir: PathBuf) -> Result<Self, BuildError> {
        let binaries = Self { dir };
        let lacking = Program::ALL
            .into_iter()
            .find(|program| program.indispensable() && binaries.path(*program).is_none());
        match lacking {
            None => Ok(binaries),
            Some(program) => Err(BuildError::Unavailable(format!(
                "KUBEBUILDER_ASSETS is {}, which does not contain {program}",
                binaries.dir.display()
            ))),
        }
    }

    /// The path of a program, if it exists.
    #[must_use]
    pub fn path(&self, program: Program) -> Option<PathBuf> {
        let path = self.dir.join(program.file_name());
        path.is_file().then_some(path)
    }

    /// The path of a required program.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn require(&self, program: Program) -> Result<PathBuf> {
        self.path(program)
            .with_context(|| format!("no {program} in {}", self.dir.display()))
    }

    /// The folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

fn linker_flags() -> String {
    let stamp = "k8s.io/component-base/version";
    let mut parts = KUBERNETES_VERSION.split('.');
    let major = parts.next().unwrap_or_default();
    let minor = parts.next().unwrap_or_default();
    format!(
        "-s -w -X {stamp}.gitVersion=v{KUBERNETES_VERSION} -X {stamp}.gitMajor={major} -X {stamp}.gitMinor={minor}"
    )
}

/// One cache folder per manifest and flags: a change of either builds again, a new clone uses the cache.
fn build_dir() -> PathBuf {
    let short = go::fingerprint(&[GO_MOD, GO_SUM, &linker_flags()]);
    cache_dir()
        .join("control-plane")
        .join(format!("{KUBERNETES_VERSION}-{short}"))
}

/// Builds missing programs in `dir`. A concurrent build waits for the first and uses its result.
fn build(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    let lock = File::create(dir.join("lock"))?;
    if lock.try_lock().is_err() {
        Progress::say("waiting for another build of the control plane");
        lock.lock().context("wait for the build lock")?;
    }
    let module = tempfile::tempdir_in(dir).context("create a build folder")?;
    fs::write(module.path().join("go.mod"), GO_MOD)?;
    fs::write(module.path().join("go.sum"), GO_SUM)?;

    let missing = |program: &Program| !dir.join(program.file_name()).is_file();
    let todo: Vec<Program> = Program::ALL.into_iter().filter(missing).collect();
    let progress = Progress::steps(
        &format!(
            "building Kubernetes {KUBERNETES_VERSION} (once per machine, about 7 minutes on 2 cores)"
        ),
        todo.len(),
    );
    for program in todo {
        progress.step(program.file_name());
        go::build(
            program.package(),
            program.file_name(),
            module.path(),
            &linker_flags(),
            |reported| {
                progress.detail(reported);
            },
        )?;
        // Renamed when complete, so that an interrupted build leaves no partial program.
        let whole = module.path().join(program.file_name());
        fs::rename(whole, dir.join(program.file_name()))?;
    }
    progress.finish(&format!(
        "Kubernetes {KUBERNETES_VERSION} is in {}",
        dir.display()
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stamped_version_is_the_pinned_one() {
        assert!(GO_MOD.contains(&format!("k8s.io/kubernetes v{KUBERNETES_VERSION} ")));
        assert!(
            linker_flags().ends_with("gitMajor=1 -X k8s.io/component-base/version.gitMinor=36")
        );
    }

    #[test]
    fn every_program_is_a_tool_of_the_manifest() {
        for program in Program::ALL {
            assert!(
                GO_MOD.contains(&format!("\t{}\n", program.package())),
                "{program}"
            );
        }
    }

    #[test]
    fn assets_without_an_api_server_are_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("etcd"), "").unwrap();
        let refused = Binaries::assets(dir.path().to_owned())
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("does not contain kube-apiserver"),
            "{refused}"
        );
        fs::write(dir.path().join("kube-apiserver"), "").unwrap();
        let found = Binaries::assets(dir.path().to_owned()).unwrap();
        assert!(found.path(Program::HollowKubelet).is_none());
    }
}
