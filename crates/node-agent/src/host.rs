//! Reads from the node itself what of a pod still runs there: its cgroups and processes. While anything of
//! a pod runs, nothing of it is removed, whatever the API says (rule T1).
//!
//! All paths are below one root: `/`, or the mount point of the node's file system in a container. If a
//! tree cannot be read, the result is an error, never `Nothing`.
//!
//! The [crate's example](crate) proves that nothing of a pod runs.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::uid::PodUid;

/// The cgroup file system, below the root.
const CGROUPS: &str = "sys/fs/cgroup";

/// The proc file system, below the root.
const PROCESSES: &str = "proc";

/// The kubelet's directories of admitted pods, below the root. Optional: a container need not mount it.
const KUBELET_PODS: &str = "var/lib/kubelet/pods";

/// Deepest level of a pod's cgroup: a cgroup v1 controller, a kubelet in a container, its own cgroup, a
/// QoS class, the pod.
const DEEPEST: usize = 10;

/// The file systems of a node. The [crate's example](crate) proves that nothing of a pod runs.
#[derive(Debug, Clone)]
pub struct Host {
    root: PathBuf,
}

/// What of a pod is left on a node. The [crate's example](crate) proves that nothing of a pod
/// runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remains {
    /// No cgroup, process or kubelet directory.
    Nothing(NothingRuns),
    /// A cgroup of the pod.
    Cgroup(PathBuf),
    /// A process in a cgroup of the pod, by number.
    Process(String),
    /// The kubelet's directory of the pod: the kubelet has not finished with it.
    Kubelet(PathBuf),
}

/// Proof that the node has no cgroup, no process and no kubelet directory of the pod with this UID. Only
/// [`Host::remains_of`] creates one. The [crate's example](crate) proves that nothing of a pod
/// runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NothingRuns(PodUid);

impl NothingRuns {
    /// A proof for tests of wiping.
    #[cfg(test)]
    pub(crate) fn scripted(uid: PodUid) -> Self {
        Self(uid)
    }

    /// The pod that the proof is about.
    pub fn uid(&self) -> &PodUid {
        &self.0
    }
}

/// A path of the node that cannot be read. The [crate's example](crate) proves that nothing of a
/// pod runs.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: {reason}; see --host-root", path.display())]
pub struct HostError {
    /// The path.
    pub path: PathBuf,
    /// Error of the operating system.
    pub reason: io::Error,
}

impl HostError {
    fn of(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |reason| Self { path, reason }
    }
}

impl Host {
    /// The node whose `/` is at `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Checks that cgroups and processes can be read.
    ///
    /// # Errors
    ///
    /// If they cannot: no pod could ever be wiped, so the agent must not start.
    pub fn check(&self) -> Result<(), HostError> {
        for place in [CGROUPS, PROCESSES] {
            let path = self.root.join(place);
            fs::read_dir(&path).map_err(HostError::of(&path))?;
        }
        Ok(())
    }

    /// Reads what is left of a pod. Blocks.
    ///
    /// # Errors
    ///
    /// If a required path cannot be read: unknown is never nothing.
    pub fn remains_of(&self, uid: &PodUid) -> Result<Remains, HostError> {
        let names = Names::of(uid);
        let kubelet = self.root.join(KUBELET_PODS).join(uid.as_str());
        match fs::symlink_metadata(&kubelet) {
            Ok(_) => return Ok(Remains::Kubelet(kubelet)),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(HostError::of(&kubelet)(error)),
        }
        if let Some(group) = names.group_below(&self.root.join(CGROUPS), DEEPEST)? {
            return Ok(Remains::Cgroup(group));
        }
        if let Some(process) = names.process_below(&self.root.join(PROCESSES))? {
            return Ok(Remains::Process(process));
        }
        Ok(Remains::Nothing(NothingRuns(uid.clone())))
    }
}

/// Names that kubelets give to a pod's cgroup: `pod<uid>` with the cgroupfs driver, a slice with
/// underscores with the systemd driver.
struct Names([String; 2]);

impl Names {
    fn of(uid: &PodUid) -> Self {
        let plain = format!("pod{uid}");
        let slice = plain.replace('-', "_");
        Self([plain, slice])
    }

    fn are_in(&self, text: &str) -> bool {
        self.0.iter().any(|name| text.contains(name.as_str()))
    }

    /// A cgroup of the pod below `dir`. Cgroups may appear and disappear during the walk.
    fn group_below(&self, dir: &Path, depth: usize) -> Result<Option<PathBuf>, HostError> {
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) if depth < DEEPEST && is_gone(&error) => return Ok(None),
            Err(error) => return Err(HostError::of(dir)(error)),
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) if depth < DEEPEST && is_gone(&error) => return Ok(None),
                Err(error) => return Err(HostError::of(dir)(error)),
            };
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => {}
                // A link such as `cpu` to `cpu,cpuacct`, or a file.
                Ok(_) => continue,
                Err(error) if is_gone(&error) => continue,
                Err(error) => return Err(HostError::of(&path)(error)),
            }
            if self.are_in(&entry.file_name().to_string_lossy()) {
                return Ok(Some(path));
            }
            if depth > 1
                && let Some(found) = self.group_below(&path, depth - 1)?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// A process in a cgroup of the pod. A process that ends during the walk does not count.
    fn process_below(&self, dir: &Path) -> Result<Option<String>, HostError> {
        for entry in fs::read_dir(dir).map_err(HostError::of(dir))? {
            let name = entry.map_err(HostError::of(dir))?.file_name();
            let Some(number) = process(&name) else {
                continue;
            };
            let path = dir.join(number).join("cgroup");
            // The name of a cgroup need not be UTF-8.
            match fs::read(&path) {
                Ok(groups) if self.are_in(&String::from_utf8_lossy(&groups)) => {
                    return Ok(Some(number.to_owned()));
                }
                Ok(_) => {}
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(HostError::of(&path)(error)),
            }
        }
        Ok(None)
    }
}

/// The pid, if a name below `/proc` is one.
fn process(name: &OsStr) -> Option<&str> {
    let name = name.to_str()?;
    (!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())).then_some(name)
}

/// Whether the path does not exist, or its process ended while it was read (`ESRCH`).
fn is_gone(error: &io::Error) -> bool {
    let ended = rustix::io::Errno::SRCH.raw_os_error();
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ended)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use tempfile::TempDir;

    use super::*;

    const UID: &str = "0b1a2c3d-4e5f-6071-8293-a4b5c6d7e8f9";
    const OTHER: &str = "11111111-4e5f-6071-8293-a4b5c6d7e8f9";

    /// A node that runs another pod.
    fn node() -> TempDir {
        let node = tempfile::tempdir().unwrap();
        group(&node, &format!("kubepods/burstable/pod{OTHER}/container"));
        process(&node, "1", "0::/init.scope\n");
        let other = format!("0::/kubepods/burstable/pod{OTHER}/container\n");
        process(&node, "17", &other);
        fs::create_dir_all(node.path().join("proc/sys/kernel")).unwrap();
        fs::create_dir_all(node.path().join(KUBELET_PODS).join(OTHER)).unwrap();
        node
    }

    fn group(node: &TempDir, path: &str) {
        fs::create_dir_all(node.path().join(CGROUPS).join(path)).unwrap();
    }

    fn process(node: &TempDir, number: &str, groups: &str) {
        let dir = node.path().join(PROCESSES).join(number);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("cgroup"), groups).unwrap();
    }

    fn remains(node: &TempDir) -> Remains {
        let uid = PodUid::parse(UID).unwrap();
        Host::at(node.path()).remains_of(&uid).unwrap()
    }

    #[test]
    fn t1_a_proof_names_its_pod() {
        match remains(&node()) {
            Remains::Nothing(proof) => assert_eq!(proof.uid().as_str(), UID),
            other => panic!("{other:?}"),
        }
    }

    /// A process of anyone may be in a cgroup whose name is not UTF-8.
    #[test]
    fn t1_a_cgroup_whose_name_is_no_text_blocks_no_wipe() {
        let node = node();
        let dir = node.path().join(PROCESSES).join("18");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("cgroup"), b"0::/user.slice/\xff\n").unwrap();
        assert!(matches!(remains(&node), Remains::Nothing(_)));
        let groups = format!("0::/\u{fffd}/pod{UID}\n");
        process(&node, "19", &groups);
        assert!(matches!(remains(&node), Remains::Process(_)));
    }

    #[rstest]
    #[case::by_the_kubelet("kubepods/besteffort/pod0b1a2c3d-4e5f-6071-8293-a4b5c6d7e8f9")]
    #[case::guaranteed("kubepods/pod0b1a2c3d-4e5f-6071-8293-a4b5c6d7e8f9/main")]
    #[case::by_systemd(
        "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0b1a2c3d_4e5f_6071_8293_a4b5c6d7e8f9.slice"
    )]
    #[case::kubelet_in_a_container(
        "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod0b1a2c3d_4e5f_6071_8293_a4b5c6d7e8f9.slice"
    )]
    #[case::cgroup_v1("memory/docker/abc/kubepods/pod0b1a2c3d-4e5f-6071-8293-a4b5c6d7e8f9")]
    fn t1_a_cgroup_of_the_pod_is_found(#[case] path: &str) {
        let node = node();
        group(&node, path);
        assert!(matches!(remains(&node), Remains::Cgroup(_)));
    }

    #[rstest]
    #[case::version_2("0::/kubepods/pod0b1a2c3d-4e5f-6071-8293-a4b5c6d7e8f9/main\n")]
    #[case::version_1("12:pids:/\n3:memory:/kubepods/pod0b1a2c3d-4e5f-6071-8293-a4b5c6d7e8f9\n")]
    #[case::seen_from_a_container(
        "0::/../../kubepods-pod0b1a2c3d_4e5f_6071_8293_a4b5c6d7e8f9.slice/x\n"
    )]
    fn t1_a_process_of_the_pod_is_found(#[case] groups: &str) {
        let node = node();
        process(&node, "4711", groups);
        assert_eq!(remains(&node), Remains::Process("4711".to_owned()));
    }

    #[test]
    fn t1_a_directory_of_the_kubelet_is_found() {
        let node = node();
        fs::create_dir_all(node.path().join(KUBELET_PODS).join(UID)).unwrap();
        assert!(matches!(remains(&node), Remains::Kubelet(_)));
    }

    #[test]
    fn t1_a_process_that_ended_meanwhile_does_not_count() {
        let node = node();
        fs::create_dir_all(node.path().join("proc/99")).unwrap();
        assert!(matches!(remains(&node), Remains::Nothing(_)));
    }

    #[rstest]
    #[case::no_control_groups(CGROUPS)]
    #[case::no_processes(PROCESSES)]
    fn t1_an_unreadable_tree_is_an_error(#[case] missing: &str) {
        let node = node();
        fs::remove_dir_all(node.path().join(missing)).unwrap();
        let host = Host::at(node.path());
        let error = host.remains_of(&PodUid::parse(UID).unwrap()).unwrap_err();
        assert!(error.to_string().contains("--host-root"), "{error}");
        assert!(host.check().is_err());
    }
}
