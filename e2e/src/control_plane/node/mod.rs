//! Real nodes: containerd and a kubelet, each in namespaces of its own, which die with this process.
//!
//! All nodes share the control plane's network namespace. A kubelet kills the processes of pods that it does
//! not know, so each node has its own cgroup, and its own /var and /run.

mod files;
mod images;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::Mutex;

use super::binaries::NodeBinaries;
use super::network::{Network, node_address};
use super::place::Place;
use super::process::Process;
use super::program::Program;
use crate::guard::Guard;
use crate::progress::Progress;
use crate::wait::eventually;

pub(super) use self::images::Images;
pub use self::images::STEP_IMAGE;

const START_DEADLINE: Duration = Duration::from_secs(30);
const STOP_DEADLINE: Duration = Duration::from_secs(20);

/// One cluster with real nodes at a time on a machine, as their cgroups have fixed names.
const LOCK: &str = "/tmp/belayer-real-node.lock";

/// Prefix of the nodes' cgroups.
const CGROUP: &str = "belayer-node-";

/// Removes cgroups and files once the processes in them have ended.
const CLEAN_UP: &str = r#"
for _ in $(seq 200); do
    find /sys/fs/cgroup -depth -type d -path '*/belayer-node-*' -exec rmdir {} + 2>/dev/null
    if [ -z "$(find /sys/fs/cgroup -maxdepth 2 -name 'belayer-node-*')" ]; then break; fi
    sleep 0.1
done
if [ -e "$1/keep" ]; then rm -rf "$1"/node-*; else rm -rf "$1"; fi
"#;

/// How to start real nodes.
#[derive(Debug, Clone)]
pub struct RealNodes {
    /// The programs.
    pub binaries: NodeBinaries,
    /// How many nodes.
    pub count: usize,
    /// The `belayer` binary of the image that every node has.
    pub belayer: PathBuf,
}

/// The name of a real node.
pub(super) fn real_node_name(index: usize) -> String {
    format!("node-{}", index + 1)
}

/// Waits for its turn, and then cleans up `dir` and what the nodes leave, at the end of this process at the
/// latest.
pub(super) fn guard(dir: &Path) -> Result<Guard> {
    let lock = File::options()
        .create(true)
        .append(true)
        .open(LOCK)
        .with_context(|| format!("open {LOCK}"))?;
    if lock.try_lock().is_err() {
        Progress::say("waiting for another cluster with real nodes to end");
        lock.lock().context("wait for the lock of real nodes")?;
    }
    let dir = dir.to_str().context("a path in another encoding")?;
    Guard::start(CLEAN_UP, &[dir], Some(lock))
}

/// A node. Dropping it kills everything on it.
#[derive(Debug)]
pub struct RealNode {
    name: String,
    index: usize,
    dir: PathBuf,
    log_dir: PathBuf,
    binaries: NodeBinaries,
    place: Place,
    kubelet: Mutex<Option<Process>>,
    containerd: Process,
    /// The first process of its namespaces. Everything on the node dies with it.
    init: Process,
}

impl RealNode {
    /// Starts the node's namespaces and containerd.
    pub(super) async fn start(
        network: &Network,
        binaries: &NodeBinaries,
        logs: &Path,
        index: usize,
    ) -> Result<Self> {
        let name = real_node_name(index);
        let dir = logs.join(&name);
        fs::create_dir_all(dir.join("cni"))?;
        create_cgroups(&cgroup(index))?;
        let runc = binaries.path(Program::PlainRunc);
        let config = files::containerd(&dir, &runc, binaries.plugins());
        fs::write(dir.join("containerd.toml"), config)?;
        let write =
            |file: &str, value| fs::write(dir.join(file), serde_json::Value::to_string(&value));
        write("cni/pods.conflist", files::cni(&dir, index))?;
        write("kubelet.json", files::kubelet(&dir, index, &cgroup(index)))?;

        let mut init = start_init(network, &binaries.path(Program::Pause), &dir, &name)?;
        let first = eventually("the node's namespaces exist", START_DEADLINE, async || {
            ensure!(dir.join("ready").exists(), "not yet");
            child_of(init.pid().context("it has exited")?)
        });
        let first = first.await;
        init.check_running()?;
        let place = Place::namespaces_of(first?);
        let containerd = place.start(
            "containerd",
            &binaries.path(Program::Containerd),
            &[format!("--config={}/containerd.toml", dir.display())],
            &logs.join(format!("{name}-containerd.log")),
        )?;
        Ok(Self {
            name,
            index,
            dir,
            log_dir: logs.to_owned(),
            binaries: binaries.clone(),
            place,
            kubelet: Mutex::default(),
            containerd,
            init,
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Imports images, as soon as containerd answers.
    pub(super) async fn import(&mut self, archives: &[PathBuf]) -> Result<()> {
        let socket = self.dir.join("containerd.sock");
        let ctr = |arguments: &[&str]| {
            let mut command = tokio::process::Command::new(self.binaries.path(Program::Ctr));
            command
                .arg("--address")
                .arg(&socket)
                .args(["--namespace", "k8s.io"])
                .args(arguments)
                .kill_on_drop(true);
            command
        };
        let answers = eventually("containerd answers", START_DEADLINE, async || {
            let output = ctr(&["version"]).output().await?;
            let error = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{}", error.trim());
            Ok(())
        });
        let answers = answers.await;
        self.containerd.check_running()?;
        answers.with_context(|| self.containerd.log_end())?;
        for archive in archives {
            let archive = archive.to_str().context("a path in another encoding")?;
            let output = ctr(&["images", "import", archive]).output().await?;
            let error = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "import {archive}: {error}");
        }
        Ok(())
    }

    /// Starts the kubelet.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn start_kubelet(&self) -> Result<()> {
        let dir = self.dir.display();
        let arguments = [
            format!("--config={dir}/kubelet.json"),
            format!(
                "--kubeconfig={}/{}.kubeconfig",
                self.log_dir.display(),
                self.name
            ),
            format!("--hostname-override={}", self.name),
            format!("--node-ip={}", node_address(self.index)),
            format!("--root-dir={dir}/kubelet"),
            format!("--cert-dir={dir}/certificates"),
            format!("--node-labels=kubernetes.io/hostname={}", self.name),
            "--v=2".to_owned(),
        ];
        let log = self.log_dir.join(format!("{}-kubelet.log", self.name));
        let program = self.binaries.path(Program::Kubelet);
        let started = self.place.start("kubelet", &program, &arguments, &log)?;
        *self.kubelet.lock().await = Some(started);
        Ok(())
    }

    /// Stops the kubelet. Its pods keep running.
    ///
    /// # Errors
    /// When it does not end.
    pub async fn stop_kubelet(&self) -> Result<()> {
        let Some(mut kubelet) = self.kubelet.lock().await.take() else {
            bail!("the kubelet of {} is not running", self.name);
        };
        let pid = child_of(kubelet.pid().context("the kubelet has exited")?)?;
        signal(pid, Signal::TERM)?;
        kubelet.wait(STOP_DEADLINE).await?;
        Ok(())
    }

    /// Kills everything on the node at once: kubelet, containerd and all containers.
    ///
    /// # Errors
    /// When it has been killed already.
    pub fn power_off(&self) -> Result<()> {
        self.init.signal(Signal::KILL)
    }

    /// Kills all processes of a container with SIGKILL. `id` is its `containerID` without the scheme.
    ///
    /// # Errors
    /// When it has none on this node.
    pub fn kill_container(&self, id: &str) -> Result<()> {
        let group = find_cgroup(&cgroup(self.index), id)?
            .with_context(|| format!("no cgroup of the container {id} on {}", self.name))?;
        let pids = fs::read_to_string(group.join("cgroup.procs"))?;
        ensure!(!pids.is_empty(), "the container {id} has no process");
        for pid in pids.lines() {
            signal(pid.parse()?, Signal::KILL)?;
        }
        Ok(())
    }

    /// A path of the node's own file system, as seen from here.
    ///
    /// # Errors
    /// When the node has been killed.
    pub fn path(&self, path: &str) -> Result<PathBuf> {
        let first = child_of(self.init.pid().context("the node has been killed")?)?;
        Ok(PathBuf::from(format!("/proc/{first}/root{path}")))
    }

    /// Its programs with their process ids.
    pub(super) async fn programs(&self) -> Vec<(String, u32)> {
        let kubelet = self.kubelet.lock().await;
        let kubelet = kubelet.as_ref().and_then(Process::named);
        let named = self.containerd.named().into_iter().chain(kubelet);
        named
            .map(|(name, pid)| (format!("{} {name}", self.name), pid))
            .collect()
    }

    /// The end of the logs, for an error message.
    pub(super) async fn log_end(&self) -> String {
        let kubelet = self.kubelet.lock().await;
        let kubelet = kubelet.as_ref().map(Process::log_end).unwrap_or_default();
        format!("{}\n{kubelet}", self.containerd.log_end())
    }
}

/// Starts a process that creates a node's namespaces and mounts and then only waits, in its own process
/// namespace: all processes in it are killed with it.
fn start_init(network: &Network, pause: &Path, dir: &Path, name: &str) -> Result<Process> {
    // Kubelets and container runtimes write into /var and /run. The folder of the node agent is shared, as
    // mounts in it have to reach the agent's container.
    let script = format!(
        "set -e
        mount -t tmpfs tmpfs /run
        mount -t tmpfs tmpfs /var
        ln -s /run /var/run
        mkdir -p /var/lib/kubelet /var/lib/cni /var/log /var/lib/workspaces /var/tmp
        mount --bind /var/lib/workspaces /var/lib/workspaces
        mount --make-shared /var/lib/workspaces
        : >{}/ready
        exec {}",
        dir.display(),
        pause.display()
    );
    let options = [
        "--pid",
        "--mount",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--",
    ];
    let mut arguments = options.map(String::from).to_vec();
    arguments.extend(["/bin/sh".into(), "-c".into(), script]);
    let log = dir.with_extension("log");
    network
        .place()?
        .start(name, Path::new("unshare"), &arguments, &log)
}

fn cgroup(index: usize) -> String {
    format!("{CGROUP}{}", index + 1)
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

fn create_cgroups(name: &str) -> Result<()> {
    for hierarchy in hierarchies()? {
        let group = hierarchy.join(name);
        if !group.exists() {
            fs::create_dir(&group).with_context(|| format!("create {}", group.display()))?;
        }
        // A group of the cpuset hierarchy has no CPUs until some are named.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if hierarchy.ends_with("cpuset") {
                fs::copy(hierarchy.join(file), group.join(file))?;
            }
        }
    }
    Ok(())
}

/// The cgroup with this last name below the node's.
fn find_cgroup(node: &str, name: &str) -> Result<Option<PathBuf>> {
    for hierarchy in hierarchies()? {
        let mut todo = vec![hierarchy.join(node)];
        while let Some(folder) = todo.pop() {
            if folder.ends_with(name) && folder.join("cgroup.procs").exists() {
                return Ok(Some(folder));
            }
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            todo.extend(
                entries
                    .map(|entry| entry.path())
                    .filter(|path| path.is_dir()),
            );
        }
    }
    Ok(None)
}

/// The only child of a process.
fn child_of(pid: u32) -> Result<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    let child = children.split_whitespace().next();
    child
        .and_then(|child| child.parse().ok())
        .with_context(|| format!("process {pid} has no child"))
}

fn signal(pid: u32, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(i32::try_from(pid)?).context("invalid process id")?;
    kill_process(pid, signal).with_context(|| format!("signal process {}", pid.as_raw_nonzero()))
}
