//! Finds and unmounts mounts below a directory.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags};

use super::confined;
use super::left::{Left, Why};

/// The mounts of this process's mount namespace.
const MOUNTINFO: &str = "/proc/self/mountinfo";

/// One mount, from a line of `mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    id: u64,
    parent: u64,
    /// The mount point.
    pub(super) point: PathBuf,
    /// Its peer group: a mount or unmount on one member applies to all.
    group: Option<u64>,
}

impl Mount {
    /// Parses a line such as `36 35 98:0 /from /to rw,noatime shared:1 master:2 - ext3 /dev/root rw`.
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse().ok();
        let id = number(fields.next()?)?;
        let parent = number(fields.next()?)?;
        let point = unescaped(fields.nth(2)?);
        let tags = fields.skip(1).take_while(|field| *field != b"-");
        let group = tags
            .filter_map(|tag| tag.strip_prefix(b"shared:"))
            .find_map(number);
        Some(Self {
            id,
            parent,
            point: PathBuf::from(OsString::from_vec(point)),
            group,
        })
    }
}

/// Decodes spaces, tabs, newlines and backslashes, which are written as three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let code = digits.and_then(|digits| {
            let text = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(text, 8).ok()
        });
        match code {
            Some(code) => {
                out.push(code);
                rest = &after[3..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

/// All mounts in this process's mount namespace.
fn table() -> std::io::Result<Vec<Mount>> {
    Ok(mounts_of(&std::fs::read(MOUNTINFO)?))
}

fn mounts_of(mountinfo: &[u8]) -> Vec<Mount> {
    let lines = mountinfo.split(|byte| *byte == b'\n');
    lines.filter_map(Mount::parse).collect()
}

/// The mounts at or below `dir`, children before parents.
fn below(table: &[Mount], dir: &Path) -> Vec<Mount> {
    let parents: HashMap<u64, u64> = table.iter().map(|m| (m.id, m.parent)).collect();
    let depth = |mount: &Mount| {
        let mut depth = 0_usize;
        let mut at = mount.id;
        while let Some(parent) = parents.get(&at)
            && *parent != at
            && depth <= parents.len()
        {
            at = *parent;
            depth += 1;
        }
        depth
    };
    let mut found: Vec<(usize, Mount)> = table
        .iter()
        .filter(|mount| mount.point.starts_with(dir))
        .map(|mount| (depth(mount), mount.clone()))
        .collect();
    found.sort_by(|a, b| b.0.cmp(&a.0).then(b.1.id.cmp(&a.1.id)));
    found.into_iter().map(|(_, mount)| mount).collect()
}

/// Unmounts everything at or below `dir`, which is below the root `base`. Never lazily: a mount in use
/// stays mounted and is reported.
///
/// Mounts can be stacked and can hide each other, so this repeats until a pass unmounts nothing.
pub(super) fn unmount_below(
    base: (&OwnedFd, &Path),
    dir: &Path,
    deadline: Instant,
) -> std::io::Result<Left> {
    loop {
        let table = table()?;
        let mounts = below(&table, dir);
        let mut left = Left::default();
        let mut changed = false;
        for mount in &mounts {
            if Instant::now() >= deadline {
                left.note(dir.as_os_str().as_bytes(), Why::Time);
                return Ok(left);
            }
            keep_others_mounted(base, dir, mount, &table);
            match unmount(base, mount) {
                Ok(()) => changed = true,
                Err(why) => left.note(mount.point.as_os_str().as_bytes(), why),
            }
        }
        if mounts.is_empty() || !changed {
            return Ok(left);
        }
    }
}

fn unmount(base: (&OwnedFd, &Path), mount: &Mount) -> Result<(), Why> {
    let (parent, name) = located(base, mount).map_err(Why::of)?;
    // Unmount only the listed mount: another one may be on top of it by now.
    if confined::mount_of(&parent, name.as_os_str()) != Some(mount.id) {
        return Err(Why::Mounted);
    }
    let flags = UnmountFlags::NOFOLLOW;
    match rustix::mount::unmount(through(&parent, &name), flags) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(Why::MountBusy),
        Err(Errno::PERM) => Err(Why::MountForbidden),
        // No longer a mount, or a locked one of the parent mount namespace.
        Err(Errno::INVAL) => Err(Why::Mounted),
        Err(errno) => Err(Why::of(errno)),
    }
}

/// A bind mount can be a peer of its original: unmounting below one then unmounts below the other too.
/// A mount with peers outside of `dir` is made private first. (Peers in other mount namespaces are not
/// visible here, and there the same mounts are to be unmounted.)
fn keep_others_mounted(base: (&OwnedFd, &Path), dir: &Path, mount: &Mount, table: &[Mount]) {
    let Some(parent) = table.iter().find(|other| other.id == mount.parent) else {
        return;
    };
    let Some(group) = parent.group.filter(|_| parent.point.starts_with(dir)) else {
        return;
    };
    let elsewhere = |other: &Mount| other.group == Some(group) && !other.point.starts_with(dir);
    if !table.iter().any(elsewhere) {
        return;
    }
    let Ok((above, name)) = located(base, parent) else {
        return;
    };
    if confined::mount_of(&above, name.as_os_str()) == Some(parent.id) {
        let path = through(&above, &name);
        if let Err(errno) = rustix::mount::mount_change(path, MountPropagationFlags::PRIVATE) {
            tracing::debug!(point = %parent.point.display(), %errno, "could not make a mount private");
        }
    }
}

/// The open parent directory of a mount point, and the point's name in it. Opening the mount itself would
/// keep it in use.
fn located(base: (&OwnedFd, &Path), mount: &Mount) -> Result<(OwnedFd, OsString), Errno> {
    let (root, path) = base;
    let below = mount.point.strip_prefix(path).map_err(|_| Errno::NOENT)?;
    let (Some(parent), Some(name)) = (below.parent(), below.file_name()) else {
        return Err(Errno::NOENT);
    };
    let parent = confined::place_across_mounts(root, parent)?;
    Ok((parent, name.to_owned()))
}

/// A path through an open directory, because mount calls accept no directory handle.
fn through(dir: &OwnedFd, name: &OsString) -> PathBuf {
    let mut path = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
    path.push(name);
    path
}

#[cfg(test)]
mod tests {
    use belayer_core::damage::{Edit, damaged};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_of_mountinfo_is_read() {
        let line = b"36 35 98:0 /from /ws/a\\040b\\134\\012c rw,noatime master:2 shared:17 - ext3 /dev/r rw";
        let mount = Mount::parse(line).unwrap();
        assert_eq!((mount.id, mount.parent, mount.group), (36, 35, Some(17)));
        assert_eq!(mount.point, Path::new("/ws/a b\\\nc"));
        let plain = Mount::parse(b"1 1 0:1 / / rw - tmpfs shared:3 rw").unwrap();
        assert_eq!(plain.group, None);
        assert_eq!(Mount::parse(b""), None);
        assert_eq!(Mount::parse(b"x y"), None);
        assert_eq!(unescaped(b"a\\9\\04"), b"a\\9\\04");
    }

    #[test]
    fn children_come_before_parents_and_siblings_are_excluded() {
        let mount = |id, parent, point: &str| Mount {
            id,
            parent,
            point: point.into(),
            group: None,
        };
        let table = [
            mount(1, 1, "/"),
            mount(9, 1, "/ws/u"),
            mount(5, 9, "/ws/u/moved/here"),
            mount(7, 5, "/ws/u/moved/here/deep"),
            mount(8, 1, "/ws/ux"),
        ];
        let found = below(&table, Path::new("/ws/u"));
        let ids: Vec<u64> = found.iter().map(|m| m.id).collect();
        assert_eq!(ids, [7, 5, 9]);
    }

    proptest! {
        /// Whatever a pod can mount where, and whatever becomes of the lines: only mounts at or below the directory are
        /// found, each once.
        #[test]
        fn fuzz_a_damaged_mountinfo_is_read(edits in proptest::collection::vec(any::<Edit>(), 1..8)) {
            let whole = b"1 1 0:1 / / rw - tmpfs t rw\n\
                36 1 98:0 /from /ws/u rw,noatime shared:1 master:2 - ext3 /dev/root rw\n\
                37 36 98:0 / /ws/u/a\\040b\\134 rw shared:7 - ext3 /dev/root rw\n\
                38 37 98:0 / /ws/ux rw - ext3 /dev/root rw\n";
            let text = damaged(whole, &edits);
            let table = mounts_of(&text);
            let dir = Path::new("/ws/u");
            let found = below(&table, dir);
            prop_assert!(found.iter().all(|mount| mount.point.starts_with(dir)));
            let expected = table.iter().filter(|mount| mount.point.starts_with(dir)).count();
            prop_assert_eq!(found.len(), expected);
        }
    }
}
