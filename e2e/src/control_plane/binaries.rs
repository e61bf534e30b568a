//! The programs on this machine: built from the pinned modules, or taken from `KUBEBUILDER_ASSETS`.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::kubernetes::Kubernetes;
use super::program::{Module, Program};
use crate::go;
use crate::progress::Progress;

/// Why a control plane cannot be started on this machine.
#[derive(Debug)]
pub enum BuildError {
    /// A prerequisite is missing: scenarios that need it are skipped by name.
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

/// A folder with the programs of a control plane.
#[derive(Debug, Clone)]
pub struct Binaries {
    dir: PathBuf,
    /// The folder of etcd.
    store: PathBuf,
}

impl Binaries {
    /// The programs of `KUBEBUILDER_ASSETS` if that is set, else those in the cache, built with Go if they
    /// are missing (about seven minutes on two cores, once per machine).
    /// Fails with [`BuildError::Unavailable`] when the programs are neither available nor can be built.
    pub fn find_or_build() -> Result<Self, BuildError> {
        if let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS") {
            return Self::assets(PathBuf::from(assets));
        }
        let lack = "cannot start a control plane: install Go 1.26 or set KUBEBUILDER_ASSETS to a folder \
                    with etcd and kube-apiserver";
        let dir = built(
            Module::ControlPlane(Kubernetes::MAIN),
            &Program::PLANE,
            lack,
        )?;
        Ok(Self::in_folder(dir))
    }

    /// The same for another release, built if they are missing, with the same etcd.
    /// Fails as [`Binaries::find_or_build`] does.
    pub fn of(kubernetes: Kubernetes) -> Result<Self, BuildError> {
        if kubernetes == Kubernetes::MAIN {
            return Self::find_or_build();
        }
        let lack = "cannot build another release of Kubernetes: install Go 1.26";
        let main = Module::ControlPlane(Kubernetes::MAIN);
        let module = Module::ControlPlane(kubernetes);
        Ok(Self {
            store: built(main, &[Program::Etcd], lack)?,
            dir: built(module, &Program::OF_KUBERNETES, lack)?,
        })
    }

    fn in_folder(dir: PathBuf) -> Self {
        Self {
            store: dir.clone(),
            dir,
        }
    }

    /// Whether the programs are there or can be built.
    pub fn are_available() -> bool {
        std::env::var_os("KUBEBUILDER_ASSETS").is_some()
            || Program::PLANE.iter().all(|program| program.is_built())
            || go::is_there()
    }

    fn assets(dir: PathBuf) -> Result<Self, BuildError> {
        let binaries = Self::in_folder(dir);
        let lacking = Program::PLANE
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
    pub fn path(&self, program: Program) -> Option<PathBuf> {
        let dir = match program {
            Program::Etcd => &self.store,
            _ => &self.dir,
        };
        let path = dir.join(program.file_name());
        path.is_file().then_some(path)
    }

    /// The path of a required program.
    pub fn require(&self, program: Program) -> Result<PathBuf> {
        self.path(program)
            .with_context(|| format!("no {program} in {}", self.dir.display()))
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// The programs of real nodes.
#[derive(Debug, Clone)]
pub struct NodeBinaries {
    kubernetes: PathBuf,
    node: PathBuf,
}

/// Programs of the system that a real node needs, with their Debian packages.
const TOOLS: [(&str, &str); 6] = [
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("setpriv", "util-linux"),
    ("mount", "mount"),
    ("ip", "iproute2"),
    ("ldd", "libc-bin"),
];

impl NodeBinaries {
    /// Whether this machine can run a real node, apart from the programs that are built.
    /// The error names what is missing and how to get it.
    pub fn prerequisites() -> Result<(), BuildError> {
        let refuse = |why: String| {
            Err(BuildError::Unavailable(format!(
                "cannot start a real node: {why}"
            )))
        };
        if !cfg!(target_os = "linux") {
            return refuse("it needs Linux".to_owned());
        }
        if !rustix::process::geteuid().is_root() {
            return refuse("it needs root, for namespaces, mounts and cgroups".to_owned());
        }
        let is_built = Program::Runc.is_built();
        let c = (!is_built).then_some(("gcc", "gcc and libc6-dev"));
        for (tool, package) in TOOLS.into_iter().chain(c) {
            if !is_installed(tool) {
                return refuse(format!(
                    "install the program {tool} (Debian: apt-get install {package})"
                ));
            }
        }
        Ok(())
    }

    /// The programs in the cache, built with Go if they are missing (about three minutes on two cores, once
    /// per machine). Fails with [`BuildError::Unavailable`] when something is missing that cannot be built.
    pub fn find_or_build() -> Result<Self, BuildError> {
        Self::prerequisites()?;
        let lack = "cannot start a real node: install Go 1.26.6 or later";
        let of = |module: Module| {
            let programs: Vec<Program> = Program::NODE
                .into_iter()
                .filter(|program| program.module() == module)
                .collect();
            built(module, &programs, lack)
        };
        Ok(Self {
            kubernetes: of(Module::ControlPlane(Kubernetes::MAIN))?,
            node: of(Module::Node)?,
        })
    }

    /// The program of pods in scenarios alone, for clusters that bring their own nodes.
    /// Fails with [`BuildError::Unavailable`] when it is not in the cache and cannot be built.
    pub fn pause() -> Result<PathBuf, BuildError> {
        let lack = "cannot build the image of pods: install Go 1.26.6 or later";
        let dir = built(Module::Node, &[Program::Pause], lack)?;
        Ok(dir.join(Program::Pause.file_name()))
    }

    /// The path of a program.
    pub fn path(&self, program: Program) -> PathBuf {
        let dir = match program.module() {
            Module::ControlPlane(_) => &self.kubernetes,
            _ => &self.node,
        };
        dir.join(program.file_name())
    }

    /// The folder of the CNI plugins.
    pub(super) fn plugins(&self) -> &Path {
        &self.node
    }
}

/// Helm 3 and Helm 4.
#[derive(Debug, Clone)]
pub struct HelmBinaries {
    dir: PathBuf,
}

impl HelmBinaries {
    /// The programs in the cache, built with Go if they are missing (about five minutes on two cores, once per
    /// machine). Fails with [`BuildError::Unavailable`] when they are neither available nor can be built.
    pub fn find_or_build() -> Result<Self, BuildError> {
        let lack = "cannot render the chart: install Go 1.26.6 or later";
        let dir = built(Module::Helm, &Program::HELM, lack)?;
        Ok(Self { dir })
    }

    /// Whether they are in the cache.
    pub fn are_built() -> bool {
        Program::HELM.iter().all(|program| program.is_built())
    }

    /// Whether they are there or can be built.
    pub fn are_available() -> bool {
        Self::are_built() || go::is_there() || crate::is_ci()
    }

    /// The path of a version.
    pub fn path(&self, program: Program) -> PathBuf {
        self.dir.join(program.file_name())
    }
}

/// The controller of Argo Workflows, and what runs the steps of its workflows.
#[derive(Debug, Clone)]
pub struct ArgoBinaries {
    /// `workflow-controller`.
    pub controller: PathBuf,
    /// `argoexec`.
    pub executor: PathBuf,
}

impl ArgoBinaries {
    /// Whether the user has named a folder with the programs: `BELAYER_ARGO`. They are built from a checkout of Argo
    /// Workflows; its Go module lacks some files.
    pub fn are_available() -> bool {
        std::env::var_os("BELAYER_ARGO").is_some()
    }

    /// The programs in that folder.
    pub fn find() -> Result<Self> {
        let dir = std::env::var_os("BELAYER_ARGO").context("BELAYER_ARGO is not set")?;
        let find = |name: &str| {
            let path = Path::new(&dir).join(name);
            path.canonicalize()
                .with_context(|| format!("BELAYER_ARGO: {}", path.display()))
        };
        Ok(Self {
            controller: find("workflow-controller")?,
            executor: find("argoexec")?,
        })
    }
}

impl Program {
    fn is_built(self) -> bool {
        self.module().folder().join(self.file_name()).is_file()
    }
}

/// Whether a program is in a folder of `PATH`.
pub(crate) fn is_installed(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

/// The folder with these programs, built if one is missing.
fn built(module: Module, programs: &[Program], lack: &str) -> Result<PathBuf, BuildError> {
    let dir = module.folder();
    let is_built = |program: &Program| dir.join(program.file_name()).is_file();
    if programs.iter().all(is_built) {
        return Ok(dir);
    }
    if !go::is_there() {
        return Err(BuildError::Unavailable(lack.to_owned()));
    }
    build(&dir, module, programs).map_err(BuildError::Failed)?;
    Ok(dir)
}

/// Builds missing programs in `dir`. A concurrent build waits for the first and uses its result.
fn build(dir: &Path, module: Module, programs: &[Program]) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    let lock = File::create(dir.join("lock"))?;
    let title = module.title();
    if lock.try_lock().is_err() {
        Progress::say(&format!("waiting for another build of {title}"));
        lock.lock().context("wait for the build lock")?;
    }
    let sources = tempfile::tempdir_in(dir).context("create a build folder")?;
    for (path, text) in module.files() {
        let path = sources.path().join(path);
        fs::create_dir_all(path.parent().unwrap_or(sources.path()))?;
        fs::write(path, text)?;
    }
    let missing = |program: &&Program| !dir.join(program.file_name()).is_file();
    let todo: Vec<&Program> = programs.iter().filter(missing).collect();
    let progress = Progress::steps(
        &format!(
            "building {title} (once per machine, about {} minutes on 2 cores)",
            module.minutes()
        ),
        todo.len(),
    );
    let flags = module.linker_flags();
    for program in todo {
        let name = program.file_name();
        progress.step(name);
        let package = go::Package {
            package: program.package(),
            name,
            module: sources.path(),
            linker_flags: &flags,
            tags: program.tags(),
            needs_c: program.needs_c(),
        };
        package.build(|reported| progress.detail(reported))?;
        // Renamed when complete, so that an interrupted build leaves no partial program.
        fs::rename(sources.path().join(name), dir.join(name))?;
    }
    progress.finish(&format!("{title}: in {}", dir.display()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
