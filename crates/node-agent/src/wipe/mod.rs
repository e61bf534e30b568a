//! Wiping: unmounts and removes the directories that the configured templates give a pod.
//!
//! Nothing outside of these directories is touched, whatever the pod put into them: see
//! [`Wiper::wipe`].
//!
//! The [crate's example](crate) wipes a directory.

mod confined;
mod left;
mod mounts;
mod remove;
#[cfg(test)]
mod tests;

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::io::Errno;

pub use left::{Left, Why};

use crate::host::NothingRuns;
use crate::layout::{Layout, Place};
use crate::uid::PodUid;

/// Removes the directories of pods. Cheap to share; any number of pods can be wiped at once. The
/// [crate's example](crate) wipes a directory.
#[derive(Debug)]
pub struct Wiper {
    layout: Layout,
}

/// The result of one attempt. The [crate's example](crate) wipes a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wiped {
    /// Files and directories that were removed.
    pub removed: u64,
    /// The remaining paths; empty if the wipe is complete.
    pub left: Left,
}

/// A root that cannot be used. The [crate's example](crate) wipes a directory.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// The root does not exist.
    #[error("the root {} does not exist", .0.display())]
    Absent(PathBuf),
    /// The path contains a symbolic link.
    #[error("the root {} contains a symbolic link: use the real path", .0.display())]
    Symlink(PathBuf),
    /// The root is not a directory.
    #[error("the root {} is not a directory", .0.display())]
    NoDirectory(PathBuf),
    /// The kernel has no `openat2`.
    #[error("this kernel has no openat2: the node agent requires Linux 5.8 or later")]
    Kernel,
    /// Another error.
    #[error("cannot open the root {}: {reason}", path.display())]
    System {
        /// The root.
        path: PathBuf,
        /// Error of the operating system.
        reason: io::Error,
    },
}

impl RootError {
    fn new(path: &Path, errno: Errno) -> Self {
        let path = path.to_owned();
        match errno {
            Errno::NOENT => Self::Absent(path),
            Errno::LOOP => Self::Symlink(path),
            Errno::NOTDIR => Self::NoDirectory(path),
            Errno::NOSYS => Self::Kernel,
            errno => Self::System {
                path,
                reason: errno.into(),
            },
        }
    }
}

impl Wiper {
    /// Creates a wiper of these directories.
    ///
    /// # Errors
    ///
    /// If a root is missing, not a directory, or reached by a symbolic link: otherwise a wipe of nothing
    /// would count as complete.
    pub fn new(layout: Layout) -> Result<Self, RootError> {
        for root in layout.roots() {
            confined::root(root).map_err(|errno| RootError::new(root, errno))?;
        }
        Ok(Self { layout })
    }

    /// The directories that belong to a pod. They may not exist.
    pub fn places(&self, uid: &PodUid) -> Vec<Place> {
        self.layout.places(uid).collect()
    }

    /// One attempt, until `deadline`: unmounts what is mounted at or below the pod's directories, deepest
    /// first, and removes them. The next attempt continues from there; if nothing exists, the wipe is
    /// complete.
    ///
    /// Confined to the root: no symbolic link and no `..` is followed, no file on another mount is removed,
    /// and no path is resolved twice, so a process that renames, links or mounts at the same time has no
    /// effect. Blocks: do not call it on a thread of the async runtime.
    ///
    /// Requires the proof that nothing of the pod runs on the node (rule T1).
    pub fn wipe(&self, pod: &NothingRuns, deadline: Instant) -> Wiped {
        let mut wiped = Wiped::default();
        for place in self.layout.places(pod.uid()) {
            let one = wipe_place(&place, deadline);
            wiped.removed += one.removed;
            wiped.left.merge(one.left);
        }
        wiped
    }
}

fn wipe_place(place: &Place, deadline: Instant) -> Wiped {
    match try_place(place, deadline) {
        Ok(wiped) => wiped,
        Err((path, why)) => {
            let mut left = Left::default();
            left.note(path.as_os_str().as_bytes(), why);
            Wiped { removed: 0, left }
        }
    }
}

fn try_place(place: &Place, deadline: Instant) -> Result<Wiped, (PathBuf, Why)> {
    let path = place.path();
    let root = confined::root(&place.root).map_err(|errno| match errno {
        Errno::NOENT => (place.root.clone(), Why::NoRoot),
        errno => (place.root.clone(), Why::of(errno)),
    })?;
    let Some(parent) = parent_of(&root, place)? else {
        return Ok(Wiped::default());
    };
    let mounted = mounts::unmount_below((&root, &place.root), &path, deadline)
        .map_err(|error| (path.clone(), Why::System(error.raw_os_error().unwrap_or(0))))?;
    let name = CString::new(place.name.as_bytes()).map_err(|_| (path.clone(), Why::System(0)))?;
    let shown = path.display().to_string();
    let removed = remove::remove(&parent, &name, &shown, deadline);
    // Report mounts, whose reasons are more precise, only if they prevented the removal.
    let mut left = removed.left;
    if !left.is_empty() {
        left.merge(mounted);
    }
    Ok(Wiped {
        removed: removed.count,
        left,
    })
}

/// Opens the parent of the pod's directory; `None` if it does not exist.
fn parent_of(root: &OwnedFd, place: &Place) -> Result<Option<OwnedFd>, (PathBuf, Why)> {
    match confined::place(root, &place.parent) {
        Ok(parent) => Ok(Some(parent)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err((place.root.join(&place.parent), Why::of(errno))),
    }
}
