//! Programs of other ecosystems that scenarios run against a cluster, built from one small pinned Go module.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::control_plane::cache_dir;
use crate::go;

/// What a program is built from: files of the module, by their paths in it.
const MODULE: [(&str, &str); 2] = [
    ("go.mod", include_str!("../peers/go.mod")),
    ("go.sum", include_str!("../peers/go.sum")),
];

/// A program of the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    name: &'static str,
    source: &'static str,
}

/// An ordinary client-go shared informer.
pub(crate) const INFORMER: Peer = Peer {
    name: "informer",
    source: include_str!("../peers/cmd/informer/main.go"),
};

/// The queues of client-go and controller-runtime.
pub(crate) const WORKQUEUE: Peer = Peer {
    name: "workqueue",
    source: include_str!("../peers/cmd/workqueue/main.go"),
};

impl Peer {
    /// Whether it is built already, or can be here. In continuous integration it always counts as there, so
    /// that a machine without Go fails instead of testing nothing.
    #[must_use]
    pub(crate) fn is_available(self) -> bool {
        self.path().is_file() || go::is_there() || crate::is_ci()
    }

    fn path(self) -> PathBuf {
        self.dir().join(self.name)
    }

    /// One folder per source: a change builds anew, a fresh clone finds the old.
    fn dir(self) -> PathBuf {
        let [(_, manifest), (_, sums)] = MODULE;
        let short = go::fingerprint(&[manifest, sums, self.source]);
        cache_dir()
            .join("peers")
            .join(format!("{}-{short}", self.name))
    }

    /// The program; built by Go when it is not in the cache yet (a minute or two, once per machine).
    ///
    /// # Errors
    /// When there is no Go, or it cannot build the module.
    pub(crate) fn find_or_build(self) -> Result<PathBuf> {
        let path = self.path();
        if path.is_file() {
            return Ok(path);
        }
        ensure!(
            go::is_there(),
            "no {} here: install Go 1.26 to build it",
            self.name
        );
        let dir = self.dir();
        fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        // A second builder waits for the first and finds its work done.
        let lock = File::create(dir.join("lock"))?;
        lock.lock().context("wait for the build lock")?;
        if !path.is_file() {
            self.build(&dir)?;
        }
        Ok(path)
    }

    fn build(self, dir: &Path) -> Result<()> {
        let module = tempfile::tempdir_in(dir).context("make a folder to build in")?;
        for (name, text) in MODULE {
            fs::write(module.path().join(name), text)?;
        }
        let package = format!("cmd/{}", self.name);
        fs::create_dir_all(module.path().join(&package))?;
        fs::write(module.path().join(&package).join("main.go"), self.source)?;
        let package = format!("./{package}");
        go::build(&package, self.name, module.path(), "-s -w", |_| {})?;
        // Renamed only when whole: an interrupted build leaves nothing that looks finished.
        fs::rename(module.path().join(self.name), dir.join(self.name))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_pins_one_release_of_client_go() {
        let (_, manifest) = MODULE[0];
        for module in ["api", "apimachinery", "client-go"] {
            assert!(
                manifest.contains(&format!("k8s.io/{module} v0.36.")),
                "{module}"
            );
        }
    }

    #[test]
    fn another_source_is_another_program() {
        let other = Peer {
            source: "package main",
            ..INFORMER
        };
        assert_ne!(other.dir(), INFORMER.dir());
    }
}
