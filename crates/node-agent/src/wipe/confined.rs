//! Opening what is below a root, and nothing else.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::path::Arg;

/// No step of a path may leave the directory it starts at, by `..`, a symbolic link of any kind, or an
/// absolute path.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// Nor may it enter another mount.
const SAME_MOUNT: ResolveFlags = BENEATH.union(ResolveFlags::NO_XDEV);

/// A place in the tree, for `*at` calls; it can be on a file system that hangs without harm.
const PLACE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A directory whose entries are read.
const LISTED: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// The kernel retries a look-up that raced with a rename, but not for ever.
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

/// A root: its whole path must be free of symbolic links.
pub(super) fn root(path: &Path) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    open(CWD, path, PLACE, resolve)
}

/// A directory below `dir` on the same mount, as a place.
pub(super) fn place(dir: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    if path.as_os_str().is_empty() {
        return open(dir, ".", PLACE, SAME_MOUNT);
    }
    open(dir, path, PLACE, SAME_MOUNT)
}

/// A directory below `dir`, mounts in between allowed: only to look at mounts.
pub(super) fn place_across_mounts(dir: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    if path.as_os_str().is_empty() {
        return open(dir, ".", PLACE, BENEATH);
    }
    open(dir, path, PLACE, BENEATH)
}

/// A directory in `dir` on the same mount, to be listed.
pub(super) fn listed<P: Arg + Copy>(dir: impl AsFd, name: P) -> Result<OwnedFd, Errno> {
    open(dir, name, LISTED, SAME_MOUNT)
}

/// The mount that a name in `dir` leads into, itself not followed; nothing where the kernel does not say.
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
