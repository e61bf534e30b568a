//! The cgroups of real nodes, and of containers on them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use super::signal;

const PREFIX: &str = "belayer-node-";

/// The cgroup of a node. Its pods are below it, instead of below one of the whole machine.
pub(super) fn cgroup(index: usize) -> String {
    format!("{PREFIX}{}", index + 1)
}

/// The folders below which cgroups are: one per hierarchy, or a single one.
fn hierarchies() -> Result<Vec<PathBuf>> {
    let top = PathBuf::from("/sys/fs/cgroup");
    if top.join("cgroup.procs").exists() {
        return Ok(vec![top]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(&top).context("list the cgroup hierarchies")? {
        let entry = entry?;
        // Some are links to others.
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

pub(super) fn create_cgroups(name: &str) -> Result<()> {
    for hierarchy in hierarchies()? {
        let group = hierarchy.join(name);
        if !group.exists() {
            fs::create_dir(&group).with_context(|| format!("create {}", group.display()))?;
        }
        // In a single hierarchy a group's children have only the controllers that it passes on.
        if let Ok(controllers) = fs::read_to_string(group.join("cgroup.controllers")) {
            for controller in controllers.split_whitespace() {
                fs::write(
                    group.join("cgroup.subtree_control"),
                    format!("+{controller}"),
                )?;
            }
        }
        // A group of the cpuset hierarchy has no CPUs until some are named.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if hierarchy.ends_with("cpuset") {
                let value = fs::read(hierarchy.join(file))?;
                fs::write(group.join(file), value)?;
            }
        }
    }
    Ok(())
}

/// The nodes' cgroups that exist.
pub fn cgroups_left() -> Result<Vec<PathBuf>> {
    let mut left = Vec::new();
    for hierarchy in hierarchies()? {
        for entry in fs::read_dir(hierarchy)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(PREFIX) {
                left.push(entry.path());
            }
        }
    }
    Ok(left)
}

/// Removes a cgroup and those below it.
pub(super) fn remove_cgroup(group: &Path) -> Result<()> {
    let mut groups = Vec::new();
    below(group, &mut groups);
    // A group is listed before those below it.
    for group in groups.iter().rev() {
        fs::remove_dir(group).with_context(|| format!("remove {}", group.display()))?;
    }
    Ok(())
}

/// The processes of all pods on real nodes.
pub fn processes_of_nodes() -> Result<Vec<u32>> {
    let mut groups = Vec::new();
    for node in cgroups_left()? {
        below(&node, &mut groups);
    }
    Container { groups }.processes()
}

/// The folder and all folders below it.
fn below(folder: &Path, found: &mut Vec<PathBuf>) {
    found.push(folder.to_owned());
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            below(&entry.path(), found);
        }
    }
}

/// A running container.
#[derive(Debug)]
pub struct Container {
    /// Its cgroups.
    groups: Vec<PathBuf>,
}

impl Container {
    pub(super) fn find(node: &str, id: &str) -> Result<Self> {
        let mut groups = Vec::new();
        for hierarchy in hierarchies()? {
            find(&hierarchy.join(node), id, &mut groups);
        }
        ensure!(!groups.is_empty(), "it has no cgroup");
        Ok(Self { groups })
    }

    /// Its processes.
    pub fn processes(&self) -> Result<Vec<u32>> {
        let mut pids = Vec::new();
        for group in &self.groups {
            let text = fs::read_to_string(group.join("cgroup.procs"))?;
            for pid in text.lines() {
                pids.push(pid.parse()?);
            }
        }
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    /// Kills its processes with SIGKILL.
    pub fn kill(&self) -> Result<()> {
        self.signal(Signal::KILL)
    }

    /// Stops its processes with SIGSTOP: they hang, as in a deadlock, until they are killed.
    pub fn stop(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    fn signal(&self, sent: Signal) -> Result<()> {
        let pids = self.processes()?;
        ensure!(!pids.is_empty(), "the container has no process");
        pids.into_iter().try_for_each(|pid| signal(pid, sent))
    }

    /// The memory limit that the kernel enforces, in bytes.
    pub fn memory_limit(&self) -> Result<u64> {
        self.memory(["memory.limit_in_bytes", "memory.max"])
    }

    /// The most memory that it had, in bytes: of its processes, and of the files that it read.
    pub fn peak_memory(&self) -> Result<u64> {
        self.memory(["memory.max_usage_in_bytes", "memory.peak"])
    }

    /// The number in the file of this name in version 1 and version 2.
    fn memory(&self, files: [&str; 2]) -> Result<u64> {
        let mut paths = self
            .groups
            .iter()
            .flat_map(|group| files.map(|file| group.join(file)));
        let path = paths.find(|path| path.exists());
        let text = fs::read_to_string(path.with_context(|| format!("no cgroup has {files:?}"))?)?;
        text.trim()
            .parse()
            .with_context(|| format!("{} is {text}", files[0]))
    }
}

fn find(folder: &Path, name: &str, found: &mut Vec<PathBuf>) {
    if folder.ends_with(name) {
        found.push(folder.to_owned());
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            find(&entry.path(), name, found);
        }
    }
}
