//! Removes a tree that other processes may change at the same time.
//!
//! Every step names one entry of a directory that is held open, so no path is resolved twice: replacing a
//! directory by a symbolic link, or moving it, does not change which directory is open. A tree may be deeper
//! than the limit of open files: a directory that is too deep is moved to the top of the tree and removed
//! there. Memory is bounded by that depth.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::fs::{AtFlags, FileType, RawDir, RenameFlags, SeekFrom};
use rustix::io::Errno;

use super::confined;
use super::left::{Left, Why};

/// Largest number of open directories.
const DEEPEST: usize = 24;

/// Size of the buffer for directory entries, in bytes.
const BATCH: usize = 8 << 10;

/// Prefix of the name of a directory that was moved to the top, followed by a number.
const MOVED: &str = ".belayer-wipe-";

/// The result of a removal.
pub(super) struct Removed {
    /// Entries that were removed.
    pub(super) count: u64,
    /// The remaining paths; empty if the directory itself was removed.
    pub(super) left: Left,
}

/// Removes `name` from `parent`, whatever it is, and everything below it on the same mount.
/// `shown` is its path in messages.
pub(super) fn remove(parent: &OwnedFd, name: &CStr, shown: &str, deadline: Instant) -> Removed {
    let mut removal = Removal {
        deadline,
        count: 0,
        moved: 0,
    };
    let mut left = Left::default();
    let mut was_empty = false;
    // A writer can add entries between the last read of the directory and its removal.
    loop {
        match unlink(parent.as_fd(), name, Hint::Directory) {
            Unlinked::Done => removal.count += 1,
            Unlinked::Gone => {}
            Unlinked::Refused(errno) => left.note(shown.as_bytes(), refusal(parent, name, errno)),
            Unlinked::Directory(errno) if was_empty && errno != Errno::NOTEMPTY => {
                left.note(shown.as_bytes(), refusal(parent, name, errno));
            }
            Unlinked::Directory(_) => match confined::listed(parent, name) {
                Ok(dir) => match removal.empty(dir, shown) {
                    Ok(()) => {
                        was_empty = true;
                        continue;
                    }
                    Err(remains) => left = remains,
                },
                Err(Errno::NOENT) => {}
                // It was replaced by a file or a link.
                Err(Errno::NOTDIR | Errno::LOOP) if !removal.is_late() => continue,
                Err(errno) => left.note(shown.as_bytes(), refusal(parent, name, errno)),
            },
        }
        return Removed {
            count: removal.count,
            left,
        };
    }
}

struct Removal {
    deadline: Instant,
    count: u64,
    /// Directories moved to the top so far.
    moved: u64,
}

/// A directory that is being emptied.
struct Level {
    dir: OwnedFd,
    /// Its name in its parent.
    name: CString,
    /// Entries that were read and not processed yet.
    batch: Vec<(CString, Hint)>,
    /// Whether this pass read any entry.
    seen: bool,
    /// Whether this pass changed anything.
    changed: bool,
    /// Paths that this pass could not remove.
    left: Left,
}

/// The type in a directory entry. It may be outdated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hint {
    Directory,
    Other,
}

enum Unlinked {
    Done,
    /// It did not exist any more.
    Gone,
    /// A directory that may have entries: `NOTEMPTY`, or the reason why it cannot be removed.
    Directory(Errno),
    Refused(Errno),
}

enum Next {
    Entry(CString, Hint),
    EndOfPass,
    Unreadable(Errno),
}

impl Level {
    fn new(dir: OwnedFd, name: CString) -> Self {
        Self {
            dir,
            name,
            batch: Vec::new(),
            seen: false,
            changed: false,
            left: Left::default(),
        }
    }

    fn next(&mut self) -> Next {
        if self.batch.is_empty()
            && let Err(errno) = self.read()
        {
            return Next::Unreadable(errno);
        }
        match self.batch.pop() {
            Some((name, hint)) => {
                self.seen = true;
                Next::Entry(name, hint)
            }
            None => Next::EndOfPass,
        }
    }

    /// Reads the next entries. The kernel keeps the position; a full buffer is always processed.
    fn read(&mut self) -> Result<(), Errno> {
        let mut buffer = [MaybeUninit::uninit(); BATCH];
        let mut entries = RawDir::new(&self.dir, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                let hint = match entry.file_type() {
                    FileType::Directory => Hint::Directory,
                    _ => Hint::Other,
                };
                self.batch.push((name.to_owned(), hint));
            }
            if entries.is_buffer_empty() && !self.batch.is_empty() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn begin_pass(&mut self) -> Result<(), Errno> {
        rustix::fs::seek(&self.dir, SeekFrom::Start(0))?;
        self.seen = false;
        self.changed = false;
        self.left.clear();
        Ok(())
    }
}

impl Removal {
    fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Empties a directory.
    fn empty(&mut self, top: OwnedFd, shown: &str) -> Result<(), Left> {
        let mut levels = vec![Level::new(top, CString::default())];
        while let Some(level) = levels.last_mut() {
            if self.is_late() {
                let mut left = Left::default();
                for level in levels {
                    left.merge(level.left);
                }
                left.note(shown.as_bytes(), Why::Time);
                return Err(left);
            }
            match level.next() {
                Next::Entry(name, hint) => {
                    if let Some(child) = self.entry(&mut levels, name, hint, shown) {
                        levels.push(child);
                    }
                }
                Next::Unreadable(errno) => {
                    let path = path(shown, &levels, None);
                    if let Some(level) = levels.last_mut() {
                        level.left.note(&path, Why::of(errno));
                    }
                    self.leave(&mut levels, shown)?;
                }
                Next::EndOfPass if level.seen && level.changed => {
                    // The removals may have hidden other entries from this pass.
                    if let Err(errno) = level.begin_pass() {
                        level.left.note(shown.as_bytes(), Why::of(errno));
                        self.leave(&mut levels, shown)?;
                    }
                }
                Next::EndOfPass => self.leave(&mut levels, shown)?,
            }
        }
        Ok(())
    }

    /// Removes one entry of the last level; returns a directory that must be emptied first.
    fn entry(
        &mut self,
        levels: &mut [Level],
        name: CString,
        hint: Hint,
        shown: &str,
    ) -> Option<Level> {
        let depth = levels.len();
        let level = levels.last_mut()?;
        let why = match unlink(level.dir.as_fd(), &name, hint) {
            Unlinked::Done => {
                self.count += 1;
                level.changed = true;
                return None;
            }
            Unlinked::Gone => {
                level.changed = true;
                return None;
            }
            Unlinked::Directory(_) if depth >= DEEPEST => match self.move_up(levels, &name) {
                Ok(()) => return None,
                Err(errno) => Why::of(errno),
            },
            Unlinked::Directory(_) => match confined::listed(&level.dir, name.as_c_str()) {
                Ok(dir) => return Some(Level::new(dir, name)),
                // It was removed or replaced: the next pass reads it again.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                    level.changed = true;
                    return None;
                }
                Err(errno) => refusal(&level.dir, &name, errno),
            },
            Unlinked::Refused(errno) => refusal(&level.dir, &name, errno),
        };
        let path = path(shown, levels, Some(&name));
        if let Some(level) = levels.last_mut() {
            level.left.note(&path, why);
        }
        None
    }

    /// Closes the last level, and removes its directory if that is empty.
    fn leave(&mut self, levels: &mut Vec<Level>, shown: &str) -> Result<(), Left> {
        let Some(done) = levels.pop() else {
            return Ok(());
        };
        let is_empty = !done.seen && done.left.is_empty();
        let path = path(shown, levels, Some(&done.name));
        let Some(above) = levels.last_mut() else {
            return if is_empty { Ok(()) } else { Err(done.left) };
        };
        if !is_empty {
            above.left.merge(done.left);
            return Ok(());
        }
        match unlink(above.dir.as_fd(), &done.name, Hint::Directory) {
            Unlinked::Done => {
                self.count += 1;
                above.changed = true;
            }
            // Not empty any more, moved, or replaced: the next pass reads it again.
            Unlinked::Gone | Unlinked::Directory(Errno::NOTEMPTY) => above.changed = true,
            Unlinked::Directory(errno) | Unlinked::Refused(errno) => {
                let why = refusal(&above.dir, &done.name, errno);
                above.left.note(&path, why);
            }
        }
        Ok(())
    }

    /// Moves a directory from the last level to the first.
    fn move_up(&mut self, levels: &mut [Level], name: &CStr) -> Result<(), Errno> {
        let [top, .., level] = levels else {
            return Err(Errno::LOOP);
        };
        loop {
            self.moved += 1;
            let to = format!("{MOVED}{}", self.moved);
            let mut moved =
                rustix::fs::renameat_with(&level.dir, name, &top.dir, &to, RenameFlags::NOREPLACE);
            // The file system knows no such flag. All that could be replaced is to be removed anyway.
            if moved == Err(Errno::INVAL) {
                moved = rustix::fs::renameat(&level.dir, name, &top.dir, &to);
            }
            match moved {
                Ok(()) | Err(Errno::NOENT) => {
                    level.changed = true;
                    top.changed = true;
                    top.seen = true;
                    return Ok(());
                }
                // The name is taken by an earlier attempt.
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) if !self.is_late() => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

fn unlink(dir: rustix::fd::BorrowedFd<'_>, name: &CStr, hint: Hint) -> Unlinked {
    let first = match hint {
        Hint::Directory => AtFlags::REMOVEDIR,
        Hint::Other => AtFlags::empty(),
    };
    let mut flags = first;
    loop {
        return match rustix::fs::unlinkat(dir, name, flags) {
            Ok(()) => Unlinked::Done,
            Err(Errno::INTR) => continue,
            Err(Errno::NOENT) => Unlinked::Gone,
            // The type in the entry was wrong or is outdated.
            Err(Errno::ISDIR | Errno::NOTDIR) if flags == first => {
                flags = flags.symmetric_difference(AtFlags::REMOVEDIR);
                continue;
            }
            Err(Errno::NOTEMPTY | Errno::EXIST) => Unlinked::Directory(Errno::NOTEMPTY),
            // The directory cannot be removed, but perhaps its entries can.
            Err(errno @ (Errno::PERM | Errno::ACCESS)) if flags == AtFlags::REMOVEDIR => {
                Unlinked::Directory(errno)
            }
            Err(errno) => Unlinked::Refused(errno),
        };
    }
}

fn refusal(dir: &OwnedFd, name: &CStr, errno: Errno) -> Why {
    match errno {
        Errno::PERM if confined::is_immutable(dir, name) => Why::Immutable,
        other => Why::of(other),
    }
}

fn path(shown: &str, levels: &[Level], name: Option<&CStr>) -> Vec<u8> {
    let mut path = shown.as_bytes().to_vec();
    let names = levels.iter().skip(1).map(|level| level.name.as_c_str());
    for name in names.chain(name) {
        path.push(b'/');
        path.extend_from_slice(name.to_bytes());
    }
    path
}
