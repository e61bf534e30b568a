//! Opens directories below a root, and no others.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::path::Arg;

/// No path component may leave the starting directory: no `..`, no symbolic link of any kind, no absolute
/// path.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// As [`BENEATH`], and no component may be on another mount.
const SAME_MOUNT: ResolveFlags = BENEATH.union(ResolveFlags::NO_XDEV);

/// A directory handle for `*at` calls; opening it is safe on a file system that hangs.
const PLACE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A directory handle for reading entries.
const LISTED: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Attempts of a path resolution that raced with a rename.
const TRIES: usize = 8;

fn open<P: Arg + Copy>(
    dir: impl AsFd,
    path: P,
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let mut tries = 0;
    loop {
        match rustix::fs::openat2(&dir, path, flags, Mode::empty(), resolve) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if tries < TRIES => tries += 1,
            other => return other,
        }
    }
}

/// Opens a root; its path must not contain symbolic links.
pub(super) fn root(path: &Path) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    open(CWD, path, PLACE, resolve)
}

/// Opens a directory below `dir` on the same mount, for `*at` calls.
pub(super) fn place(dir: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    if path.as_os_str().is_empty() {
        return open(dir, ".", PLACE, SAME_MOUNT);
    }
    open(dir, path, PLACE, SAME_MOUNT)
}

/// Opens a directory below `dir`, across mounts: only for inspecting and unmounting mounts.
pub(super) fn place_across_mounts(dir: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    if path.as_os_str().is_empty() {
        return open(dir, ".", PLACE, BENEATH);
    }
    open(dir, path, PLACE, BENEATH)
}

/// Opens a directory in `dir` on the same mount, for reading entries.
pub(super) fn listed<P: Arg + Copy>(dir: impl AsFd, name: P) -> Result<OwnedFd, Errno> {
    open(dir, name, LISTED, SAME_MOUNT)
}

/// The mount that a name in `dir` is on, without following it; `None` if the kernel does not report it.
pub(super) fn mount_of<P: Arg>(dir: impl AsFd, name: P) -> Option<u64> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::EMPTY_PATH;
    let seen = rustix::fs::statx(dir, name, flags, StatxFlags::MNT_ID).ok()?;
    (seen.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(seen.stx_mnt_id)
}

/// Whether a name in `dir`, or `dir` itself, is immutable or append-only.
pub(super) fn is_immutable<P: Arg>(dir: impl AsFd, name: P) -> bool {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let kept = StatxAttributes::IMMUTABLE | StatxAttributes::APPEND;
    let has = |seen: Result<rustix::fs::Statx, Errno>| {
        seen.is_ok_and(|seen| seen.stx_attributes.intersects(kept))
    };
    has(rustix::fs::statx(&dir, name, flags, StatxFlags::TYPE))
        || has(rustix::fs::statx(
            &dir,
            "",
            flags | AtFlags::EMPTY_PATH,
            StatxFlags::TYPE,
        ))
}
