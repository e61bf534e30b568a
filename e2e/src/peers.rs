//! Other implementations that Belayer and the sandbox are compared with, in `e2e/peers`: small Go
//! programs on client-go and controller-runtime, and a small Rust program on kube-rs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::control_plane::{BuildError, cache_dir};
use crate::go;
use crate::progress::Progress;

const GO_MOD: &str = include_str!("../peers/go.mod");
const GO_SUM: &str = include_str!("../peers/go.sum");

/// All files of the kube-rs program.
const KUBE_RS: [(&str, &str); 5] = [
    ("Cargo.toml", include_str!("../peers/kube-rs/Cargo.toml")),
    ("Cargo.lock", include_str!("../peers/kube-rs/Cargo.lock")),
    ("src/main.rs", include_str!("../peers/kube-rs/src/main.rs")),
    (
        "src/reflector.rs",
        include_str!("../peers/kube-rs/src/reflector.rs"),
    ),
    (
        "src/controller.rs",
        include_str!("../peers/kube-rs/src/controller.rs"),
    ),
];

/// A program of `e2e/peers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// A client-go shared informer.
    Informer,
    /// The queues of client-go and controller-runtime.
    Workqueue,
    /// A client-go shared informer of all pods that reports when it is synced.
    Sync,
    /// kube-rs' reflector of all pods that reports when it is synced, and its `Controller` with a
    /// reconciler that removes a finalizer: a separate Rust program, selected by its first argument.
    KubeRs,
}

impl Peer {
    const fn name(self) -> &'static str {
        match self {
            Self::Informer => "informer",
            Self::Workqueue => "workqueue",
            Self::Sync => "sync",
            Self::KubeRs => "kube-rs",
        }
    }

    /// The one file of a Go program.
    const fn go_source(self) -> Option<&'static str> {
        match self {
            Self::Informer => Some(include_str!("../peers/cmd/informer/main.go")),
            Self::Workqueue => Some(include_str!("../peers/cmd/workqueue/main.go")),
            Self::Sync => Some(include_str!("../peers/cmd/sync/main.go")),
            Self::KubeRs => None,
        }
    }

    /// Whether it is built already, or can be built here. In continuous integration this is always true, so
    /// that a machine without Go fails instead of testing nothing.
    pub fn is_available(self) -> bool {
        self.place().is_file() || self.go_source().is_none() || go::is_there() || crate::is_ci()
    }

    fn folder(self) -> PathBuf {
        let fingerprint = match self.go_source() {
            Some(source) => go::fingerprint(&[GO_MOD, GO_SUM, source]),
            None => go::fingerprint(&KUBE_RS.map(|(_, text)| text)),
        };
        cache_dir().join("peers").join(fingerprint)
    }

    fn place(self) -> PathBuf {
        self.folder().join(self.name())
    }

    /// The program, from the cache or built into it.
    /// Fails with [`BuildError::Unavailable`] if Go is required and not installed.
    pub fn find_or_build(self) -> Result<PathBuf, BuildError> {
        let program = self.place();
        if program.is_file() {
            return Ok(program);
        }
        if self.go_source().is_some() && !go::is_there() {
            return Err(BuildError::Unavailable(format!(
                "cannot build the peer {}: install Go 1.26",
                self.name()
            )));
        }
        self.build(&self.folder()).map_err(BuildError::Failed)?;
        Ok(program)
    }

    /// The same for optional comparisons: without the program the reason is printed.
    pub fn if_available(self) -> Option<PathBuf> {
        match self.find_or_build() {
            Ok(program) => return Some(program),
            Err(BuildError::Unavailable(why)) => anstream::eprintln!("{why}"),
            Err(BuildError::Failed(error)) => anstream::eprintln!("{error:#}"),
        }
        None
    }

    /// A concurrent build waits for the first and uses its result.
    fn build(self, folder: &PathBuf) -> Result<()> {
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        let lock = File::create(folder.join("lock"))?;
        lock.lock().context("wait for the build lock")?;
        if folder.join(self.name()).is_file() {
            return Ok(());
        }
        let module = tempfile::tempdir_in(folder).context("create a build folder")?;
        let progress = Progress::steps(&format!("building the peer {}", self.name()), 1);
        progress.step(self.name());
        match self.go_source() {
            Some(source) => self.build_with_go(source, module.path(), &progress)?,
            None => self.build_with_cargo(module.path())?,
        }
        // Renamed when complete, so that an interrupted build leaves no partial program.
        fs::rename(module.path().join(self.name()), folder.join(self.name()))?;
        progress.finish(&format!(
            "the peer {} is in {}",
            self.name(),
            folder.display()
        ));
        Ok(())
    }

    fn build_with_go(self, source: &str, module: &Path, progress: &Progress) -> Result<()> {
        fs::write(module.join("go.mod"), GO_MOD)?;
        fs::write(module.join("go.sum"), GO_SUM)?;
        let package = format!("cmd/{}", self.name());
        fs::create_dir_all(module.join(&package))?;
        fs::write(module.join(&package).join("main.go"), source)?;
        let reported = |reported: &str| progress.detail(reported);
        go::Package {
            package: &format!("./{package}"),
            name: self.name(),
            module,
            linker_flags: "-s -w",
            tags: "",
            needs_c: false,
        }
        .build(reported)
    }

    fn build_with_cargo(self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder.join("src"))?;
        for (path, text) in KUBE_RS {
            fs::write(folder.join(path), text)?;
        }
        let target = folder.join("target");
        let status = Command::new("cargo")
            .args(["build", "--release", "--locked", "--quiet"])
            .env("CARGO_TARGET_DIR", &target)
            .current_dir(folder)
            .status()
            .context("start cargo")?;
        ensure!(
            status.success(),
            "the peer {} does not compile",
            self.name()
        );
        let built = target.join("release").join(self.name());
        fs::rename(built, folder.join(self.name()))?;
        Ok(())
    }
}
