//! Programs of others that Belayer and the sandbox are held against: small Go programs on client-go
//! and controller-runtime, in `e2e/peers`.

use std::fs::{self, File};
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::control_plane::{BuildError, cache_dir};
use crate::go;
use crate::progress::Progress;

const GO_MOD: &str = include_str!("../peers/go.mod");
const GO_SUM: &str = include_str!("../peers/go.sum");

/// A program of `e2e/peers/cmd`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// A client-go shared informer.
    Informer,
    /// The queues of client-go and controller-runtime.
    Workqueue,
}

impl Peer {
    const fn name(self) -> &'static str {
        match self {
            Self::Informer => "informer",
            Self::Workqueue => "workqueue",
        }
    }

    const fn source(self) -> &'static str {
        match self {
            Self::Informer => include_str!("../peers/cmd/informer/main.go"),
            Self::Workqueue => include_str!("../peers/cmd/workqueue/main.go"),
        }
    }

    /// Whether it is built already, or can be here. In continuous integration it always counts as there, so
    /// that a machine without Go fails instead of testing nothing.
    #[must_use]
    pub fn is_available(self) -> bool {
        self.place().is_file() || go::is_there() || crate::is_ci()
    }

    fn place(self) -> PathBuf {
        let fingerprint = go::fingerprint(&[GO_MOD, GO_SUM, self.source()]);
        let folder = cache_dir().join("peers").join(fingerprint);
        folder.join(self.name())
    }

    /// The program, from the cache or built by Go into it.
    ///
    /// # Errors
    /// [`BuildError::Unavailable`] where there is no Go.
    pub fn find_or_build(self) -> Result<PathBuf, BuildError> {
        let fingerprint = go::fingerprint(&[GO_MOD, GO_SUM, self.source()]);
        let folder = cache_dir().join("peers").join(fingerprint);
        let program = folder.join(self.name());
        if program.is_file() {
            return Ok(program);
        }
        if !go::is_there() {
            return Err(BuildError::Unavailable(format!(
                "no peer {} here: install Go 1.26",
                self.name()
            )));
        }
        self.build(&folder).map_err(BuildError::Failed)?;
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
        fs::write(module.path().join("go.mod"), GO_MOD)?;
        fs::write(module.path().join("go.sum"), GO_SUM)?;
        let package = format!("cmd/{}", self.name());
        fs::create_dir_all(module.path().join(&package))?;
        fs::write(module.path().join(&package).join("main.go"), self.source())?;
        let progress = Progress::steps(&format!("building the peer {}", self.name()), 1);
        progress.step(self.name());
        go::build(
            &format!("./{package}"),
            self.name(),
            module.path(),
            "-s -w",
            |told| {
                progress.detail(told);
            },
        )?;
        // Renamed only when whole: an interrupted build leaves nothing that looks finished.
        fs::rename(module.path().join(self.name()), folder.join(self.name()))?;
        progress.finish(&format!(
            "the peer {} is in {}",
            self.name(),
            folder.display()
        ));
        Ok(())
    }
}
