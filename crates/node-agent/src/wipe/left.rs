//! The files and mounts that a wipe could not remove, and the reasons.

use std::collections::BTreeMap;
use std::fmt;

use rustix::io::Errno;

/// Largest number of paths in a message. Millions of files may be left.
const NAMED: usize = 6;

/// Largest length of a path in a message. A pod chooses its file names freely.
const SHOWN: usize = 96;

/// Why a path is left. The [crate's example](crate) wipes a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// A mount that is in use.
    MountBusy,
    /// A mount that the agent may not unmount.
    MountForbidden,
    /// A mount. Files behind a mount are never removed.
    Mounted,
    /// The file is immutable or append-only.
    Immutable,
    /// The path from the root contains a symbolic link.
    Symlink,
    /// The file system is mounted read-only.
    ReadOnly,
    /// Another process keeps writing.
    Written,
    /// The deadline passed.
    Time,
    /// The root does not exist.
    NoRoot,
    /// Another error of the operating system, by code.
    System(i32),
}

impl Why {
    pub(super) fn of(errno: Errno) -> Self {
        match errno {
            Errno::BUSY | Errno::XDEV => Self::Mounted,
            Errno::LOOP => Self::Symlink,
            Errno::ROFS => Self::ReadOnly,
            Errno::NOTEMPTY | Errno::EXIST => Self::Written,
            other => Self::System(other.raw_os_error()),
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MountBusy => "is a mount in use",
            Self::MountForbidden => "is a mount that the agent may not unmount",
            Self::Mounted => "is a mount",
            Self::Immutable => "is immutable",
            Self::Symlink => "leads through a symbolic link",
            Self::ReadOnly => "is read-only",
            Self::Written => "is still written to",
            Self::Time => "was not removed before the deadline",
            Self::NoRoot => "does not exist: a root must exist",
            Self::System(code) => {
                return write!(f, "cannot be removed: {}", Errno::from_raw_os_error(*code));
            }
        })
    }
}

/// The paths that are left, up to a bounded number. The [crate's example](crate) wipes a
/// directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Left {
    named: BTreeMap<String, Why>,
    more: bool,
}

impl Left {
    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// The most important reason.
    pub fn why(&self) -> Option<Why> {
        self.named.values().min().copied()
    }

    pub(super) fn note(&mut self, path: &[u8], why: Why) {
        let shown = shown(path);
        if self.named.len() < NAMED || self.named.contains_key(&shown) {
            self.named.insert(shown, why);
            return;
        }
        self.more = true;
        // A mount in use is more important than one of many files below it.
        let least = self.named.iter().max_by_key(|(_, have)| **have);
        let Some((name, have)) = least.map(|(name, have)| (name.clone(), *have)) else {
            return;
        };
        if why < have {
            self.named.remove(&name);
            self.named.insert(shown, why);
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.more |= other.more;
        for (path, why) in other.named {
            self.note(path.as_bytes(), why);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// A printable path, shortened in the middle if it is long.
fn shown(path: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(path)
        .chars()
        .flat_map(|c| {
            let plain = !c.is_control();
            let escaped = (!plain).then(|| c.escape_default());
            plain
                .then_some(c)
                .into_iter()
                .chain(escaped.into_iter().flatten())
        })
        .collect();
    let count = text.chars().count();
    if count <= SHOWN {
        return text;
    }
    let head: String = text.chars().take(SHOWN / 2).collect();
    let tail: String = text.chars().skip(count - SHOWN / 2).collect();
    format!("{head}...{tail}")
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (path, why)) in self.named.iter().enumerate() {
            let before = if index == 0 { "" } else { "; " };
            write!(f, "{before}{path} {why}")?;
        }
        if self.more {
            f.write_str("; and more")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_files_make_a_short_message() {
        let mut left = Left::default();
        for number in 0..1_000 {
            left.note(format!("/ws/u/{number}").as_bytes(), Why::Written);
        }
        left.note(b"/ws/u/mnt", Why::MountBusy);
        let text = left.to_string();
        assert!(text.len() < 1_000, "{text}");
        assert!(text.contains("/ws/u/mnt is a mount in use"), "{text}");
        assert!(text.ends_with("; and more"), "{text}");
        assert_eq!(left.why(), Some(Why::MountBusy));
    }

    #[test]
    fn control_characters_in_names_are_escaped() {
        let mut left = Left::default();
        left.note(b"/ws/u/\x1b[31m\n\xff", Why::Time);
        let long = [b"/ws/".as_slice(), &[b'x'; 5_000]].concat();
        left.note(&long, Why::Time);
        let text = left.to_string();
        assert!(!text.chars().any(char::is_control), "{text}");
        assert!(text.len() < 400, "{text}");
    }
}
