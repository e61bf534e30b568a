//! Programs of others that Belayer and the sandbox are held against, in `e2e/peers`: small Go
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
const CARGO_TOML: &str = include_str!("../peers/reflector/Cargo.toml");
const CARGO_LOCK: &str = include_str!("../peers/reflector/Cargo.lock");

/// A program of `e2e/peers/cmd`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// A client-go shared informer.
    Informer,
    /// The queues of client-go and controller-runtime.
    Workqueue,
    /// A client-go shared informer of all pods that says when it is synced.
    Sync,
    /// kube-rs' reflector of all pods that says when it is synced: a Rust program of its own.
    Reflector,
}

impl Peer {
    const fn name(self) -> &'static str {
        match self {
            Self::Informer => "informer",
            Self::Workqueue => "workqueue",
            Self::Sync => "sync",
            Self::Reflector => "reflector",
        }
    }

    const fn source(self) -> &'static str {
        match self {
            Self::Informer => include_str!("../peers/cmd/informer/main.go"),
            Self::Workqueue => include_str!("../peers/cmd/workqueue/main.go"),
            Self::Sync => include_str!("../peers/cmd/sync/main.go"),
            Self::Reflector => include_str!("../peers/reflector/src/main.rs"),
        }
    }

    /// Whether it is built already, or can be here. In continuous integration it always counts as there, so
    /// that a machine without Go fails instead of testing nothing.
    #[must_use]
    pub fn is_available(self) -> bool {
        self.place().is_file() || go::is_there() || crate::is_ci()
    }

    /// What it is built from, besides its source: `go.mod` and `go.sum`, or what Cargo calls them.
    const fn module(self) -> [&'static str; 2] {
        match self {
            Self::Reflector => [CARGO_TOML, CARGO_LOCK],
            _ => [GO_MOD, GO_SUM],
        }
    }

    fn folder(self) -> PathBuf {
        let [module, sums] = self.module();
        let fingerprint = go::fingerprint(&[module, sums, self.source()]);
        cache_dir().join("peers").join(fingerprint)
    }

    fn place(self) -> PathBuf {
        self.folder().join(self.name())
    }

    /// The program, from the cache or built into it.
    ///
    /// # Errors
    /// [`BuildError::Unavailable`] where there is no Go for those that need it.
    pub fn find_or_build(self) -> Result<PathBuf, BuildError> {
        let program = self.place();
        if program.is_file() {
            return Ok(program);
        }
        if self != Self::Reflector && !go::is_there() {
            return Err(BuildError::Unavailable(format!(
                "no peer {} here: install Go 1.26",
                self.name()
            )));
        }
        self.build(&self.folder()).map_err(BuildError::Failed)?;
        Ok(program)
    }

    /// A second builder waits for the first and finds its work done.
    fn build(self, folder: &PathBuf) -> Result<()> {
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        let lock = File::create(folder.join("lock"))?;
        lock.lock().context("wait for the build lock")?;
        if folder.join(self.name()).is_file() {
            return Ok(());
        }
        let module = tempfile::tempdir_in(folder).context("make a folder to build in")?;
        let progress = Progress::steps(&format!("building the peer {}", self.name()), 1);
        progress.step(self.name());
        if self == Self::Reflector {
            build_reflector(module.path())?;
        } else {
            self.build_with_go(module.path(), &progress)?;
        }
        // Renamed only when whole: an interrupted build leaves nothing that looks finished.
        fs::rename(module.path().join(self.name()), folder.join(self.name()))?;
        progress.finish(&format!(
            "the peer {} is in {}",
            self.name(),
            folder.display()
        ));
        Ok(())
    }

    fn build_with_go(self, module: &Path, progress: &Progress) -> Result<()> {
        fs::write(module.join("go.mod"), GO_MOD)?;
        fs::write(module.join("go.sum"), GO_SUM)?;
        let package = format!("cmd/{}", self.name());
        fs::create_dir_all(module.join(&package))?;
        fs::write(module.join(&package).join("main.go"), self.source())?;
        let told = |told: &str| progress.detail(told);
        go::build(&format!("./{package}"), self.name(), module, "-s -w", told)
    }
}

fn build_reflector(folder: &Path) -> Result<()> {
    fs::write(folder.join("Cargo.toml"), CARGO_TOML)?;
    fs::write(folder.join("Cargo.lock"), CARGO_LOCK)?;
    fs::create_dir_all(folder.join("src"))?;
    fs::write(folder.join("src/main.rs"), Peer::Reflector.source())?;
    let target = folder.join("target");
    let status = Command::new("cargo")
        .args(["build", "--release", "--locked", "--quiet"])
        .env("CARGO_TARGET_DIR", &target)
        .current_dir(folder)
        .status()
        .context("start cargo")?;
    ensure!(status.success(), "the peer reflector does not compile");
    fs::rename(target.join("release/reflector"), folder.join("reflector"))?;
    Ok(())
}
