//! A root with a pod's directory, and another owner's data next to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::IFlags;
use rustix::mount::UnmountFlags;
use tempfile::TempDir;

use crate::host::NothingRuns;
use crate::layout::Layout;
use crate::uid::PodUid;
use crate::wipe::{Wiped, Wiper};

pub(super) const UID: &str = "0b1a2c3d-4e5f-6071-8293-a4b5c6d7e8f9";
pub(super) const OTHER: &str = "ffffffff-4e5f-6071-8293-a4b5c6d7e8f9";

/// Content of the victim's files.
const PRECIOUS: &str = "precious";

pub(super) struct World {
    temp: TempDir,
    wiper: Wiper,
}

impl World {
    pub(super) fn new() -> Self {
        Self::with(["{root}/{podUID}"])
    }

    pub(super) fn with<const N: usize>(templates: [&str; N]) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(temp.path()).unwrap().join("root");
        fs::create_dir(&root).unwrap();
        let root = root.to_str().unwrap();
        let templates = templates.map(|template| template.replace("{root}", root));
        let layout = Layout::new([root], templates).unwrap();
        let wiper = Wiper::new(layout).unwrap();
        Self { temp, wiper }
    }

    pub(super) fn temp(&self) -> PathBuf {
        fs::canonicalize(self.temp.path()).unwrap()
    }

    pub(super) fn root(&self) -> PathBuf {
        self.temp().join("root")
    }

    /// The pod's directory.
    pub(super) fn dir(&self) -> PathBuf {
        self.root().join(UID)
    }

    pub(super) fn uid(&self) -> PodUid {
        PodUid::parse(UID).unwrap()
    }

    pub(super) fn wiper(&self) -> &Wiper {
        &self.wiper
    }

    pub(super) fn proof(&self) -> NothingRuns {
        NothingRuns::scripted(self.uid())
    }

    pub(super) fn wipe(&self) -> Wiped {
        self.wiper
            .wipe(&self.proof(), Instant::now() + Duration::from_secs(120))
    }

    /// Creates files in a directory of the pod.
    pub(super) fn fill(&self, dir: &str, files: usize) {
        let dir = self.dir().join(dir);
        fs::create_dir_all(&dir).unwrap();
        for number in 0..files {
            fs::write(dir.join(number.to_string()), "x").unwrap();
        }
    }

    /// Creates a directory of another owner.
    pub(super) fn victim(&self) -> PathBuf {
        let victim = self.temp().join("victim");
        if !victim.exists() {
            fs::create_dir_all(victim.join("deep/er")).unwrap();
            fs::write(victim.join("file"), PRECIOUS).unwrap();
            fs::write(victim.join("deep/er/file"), PRECIOUS).unwrap();
        }
        victim
    }

    pub(super) fn assert_victim_unharmed(&self) {
        let victim = self.temp().join("victim");
        for file in ["file", "deep/er/file"] {
            let text = fs::read_to_string(victim.join(file));
            assert_eq!(text.ok().as_deref(), Some(PRECIOUS), "{file} was harmed");
        }
    }

    /// The mount points below the temporary directory.
    pub(super) fn mounts(&self) -> Vec<PathBuf> {
        let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let points = text.lines().filter_map(|line| line.split(' ').nth(4));
        let temp = self.temp();
        points
            .map(PathBuf::from)
            .filter(|point| point.starts_with(&temp))
            .collect()
    }
}

impl Drop for World {
    /// Unmounts everything, also after a failed test.
    fn drop(&mut self) {
        while let Some(point) = self.mounts().pop() {
            if rustix::mount::unmount(&point, UnmountFlags::DETACH).is_err() {
                break;
            }
        }
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Prints why a test cannot run here. Continuous integration runs as root on file systems with attributes, so there it fails.
fn skip(why: &str) {
    let is_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    assert!(!is_ci, "{why}");
    eprintln!("skipped: {why}");
}

/// Whether this process may mount; prints a message if not.
pub(super) fn may_mount() -> bool {
    let world = World::new();
    let dir = world.temp().join("try");
    fs::create_dir(&dir).unwrap();
    let may = is_root() && mount_tmpfs(&dir).is_ok();
    if !may {
        skip("needs root and the right to mount");
    }
    may
}

/// Makes a file or directory immutable; prints a message if this process may not.
pub(super) fn make_immutable(file: &fs::File) -> bool {
    let can = is_root() && rustix::fs::ioctl_setflags(file, IFlags::IMMUTABLE).is_ok();
    if !can {
        skip("needs root and a file system with attributes");
    }
    can
}

pub(super) fn mount_tmpfs(at: &Path) -> rustix::io::Result<()> {
    let options: Option<&std::ffi::CStr> = None;
    rustix::mount::mount(
        "belayer",
        at,
        "tmpfs",
        rustix::mount::MountFlags::empty(),
        options,
    )
}
