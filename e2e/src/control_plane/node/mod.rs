//! Real nodes: containerd and a kubelet, each in namespaces of its own, which die with this process.
//!
//! All nodes share the control plane's network namespace. A kubelet kills the processes of pods that it does
//! not know, so each node has its own cgroup, and its own /var and /run.

mod cgroups;
mod files;
mod images;
mod left;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::sync::Mutex;

use super::binaries::NodeBinaries;
use super::network::node_address;
use super::place::Place;
use super::process::Process;
use super::program::Program;
use crate::guard::Guard;
use crate::output::Output;
use crate::progress::Progress;
use crate::wait::eventually;

pub use self::cgroups::{Container, cgroups_left, processes_of_nodes};
use self::cgroups::{cgroup, create_cgroups};
pub use self::images::{STEP_IMAGE, write_images};
pub use self::left::{FOLDER, folders_left, remove_leftovers};

const START_DEADLINE: Duration = Duration::from_secs(120);
const STOP_DEADLINE: Duration = Duration::from_secs(60);

/// One cluster with real nodes at a time on a machine, as their cgroups have fixed names.
const LOCK: &str = "/tmp/belayer-real-node.lock";

const OFF: &str = "the node is off";

/// What a node's first process does. Kubelets and container runtimes write into /var and /run. The folder of
/// the node agent is shared, as mounts in it have to reach the agent's container.
const INIT: &str = "set -e
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var
ln -s /run /var/run
mkdir -p /var/lib/kubelet /var/lib/cni /var/log /var/lib/workspaces /var/tmp
mount --bind /var/lib/workspaces /var/lib/workspaces
mount --make-shared /var/lib/workspaces
: >READY
exec \"$1\"";

/// Removes cgroups and files once the processes in them have ended.
const CLEAN_UP: &str = r#"
for _ in $(seq 200); do
    find /sys/fs/cgroup -depth -type d -path '*/belayer-node-*' -exec rmdir {} + 2>/dev/null
    if [ -z "$(find /sys/fs/cgroup -maxdepth 2 -name 'belayer-node-*')" ]; then break; fi
    sleep 0.1
done
if [ -e "$1/keep" ]; then rm -rf "$1/nodes"; else rm -rf "$1"; fi
"#;

/// Removes the files of a control plane, whose programs may be about to end.
const REMOVE: &str = r#"
for _ in $(seq 100); do
    if [ -e "$1/keep" ] || rm -rf "$1"; then break; fi
    sleep 0.1
done
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

/// Waits until no other cluster with real nodes runs on this machine.
pub fn lock() -> Result<File> {
    let lock = File::options()
        .create(true)
        .append(true)
        .open(LOCK)
        .with_context(|| format!("open {LOCK}"))?;
    if lock.try_lock().is_err() {
        Progress::say("waiting for another cluster with real nodes to end");
        lock.lock().context("wait for the lock of real nodes")?;
    }
    Ok(lock)
}

/// Cleans up `dir` and what real nodes leave, at the end of this process at the latest, and then unlocks.
pub(super) fn guard(dir: &Path, lock: Option<File>) -> Result<Guard> {
    let dir = dir.to_str().context("a path in another encoding")?;
    let script = match &lock {
        Some(_) => CLEAN_UP,
        None => REMOVE,
    };
    Guard::start(script, &[dir], lock)
}

/// A node. Dropping it kills everything on it.
#[derive(Debug)]
pub struct RealNode {
    name: String,
    index: usize,
    dir: PathBuf,
    log_dir: PathBuf,
    binaries: NodeBinaries,
    network: Place,
    machine: Mutex<Option<Machine>>,
}

/// The processes of a node.
#[derive(Debug)]
struct Machine {
    place: Place,
    kubelet: Option<Process>,
    containerd: Process,
    /// The first process of its namespaces. Everything on the node dies with it.
    init: Process,
}

impl RealNode {
    /// Starts the node's namespaces and containerd.
    pub(super) async fn start(
        network: Place,
        binaries: &NodeBinaries,
        logs: &Path,
        index: usize,
    ) -> Result<Self> {
        let name = real_node_name(index);
        let dir = logs.join("nodes").join(&name);
        fs::create_dir_all(dir.join("cni"))?;
        create_cgroups(&cgroup(index))?;
        let runc = binaries.path(Program::PlainRunc);
        let config = files::containerd(&dir, &runc, binaries.plugins());
        fs::write(dir.join("containerd.toml"), config)?;
        let write = |file: &str, value: Value| fs::write(dir.join(file), value.to_string());
        write("cni/pods.conflist", files::cni(&dir, index))?;
        write("kubelet.json", files::kubelet(&dir, index, &cgroup(index)))?;
        let node = Self {
            name,
            index,
            dir,
            log_dir: logs.to_owned(),
            binaries: binaries.clone(),
            network,
            machine: Mutex::default(),
        };
        *node.machine.lock().await = Some(node.boot().await?);
        Ok(node)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    async fn boot(&self) -> Result<Machine> {
        fs::remove_file(self.dir.join("ready")).ok();
        fs::remove_dir_all(self.dir.join("state")).ok();
        let mut init = self.start_init()?;
        let what = "the node's namespaces exist";
        let first = eventually(what, START_DEADLINE, async || {
            ensure!(self.dir.join("ready").exists(), "not yet");
            child_of(&init)
        });
        let first = first.await;
        init.check_running()?;
        let place = Place::namespaces_of(first?);
        let config = format!("--config={}/containerd.toml", self.dir.display());
        let program = self.binaries.path(Program::Containerd);
        let containerd = place.start("containerd", &program, &[config], &self.log("containerd"))?;
        Ok(Machine {
            place,
            kubelet: None,
            containerd,
            init,
        })
    }

    /// Starts a process that creates the node's namespaces and mounts and then only waits, in its own process
    /// namespace: all processes in it are killed with it.
    fn start_init(&self) -> Result<Process> {
        let script = INIT.replace("READY", &self.dir.join("ready").display().to_string());
        let options = [
            "--pid",
            "--mount",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--",
        ];
        let mut arguments = options.map(String::from).to_vec();
        let pause = self.binaries.path(Program::Pause);
        arguments.extend(["/bin/sh", "-c", &script, "init"].map(String::from));
        arguments.push(pause.display().to_string());
        let unshare = Path::new("unshare");
        self.network
            .start(&self.name, unshare, &arguments, &self.log("init"))
    }

    fn log(&self, program: &str) -> PathBuf {
        self.log_dir.join(format!("{}-{program}.log", self.name))
    }

    /// Imports images, as soon as containerd answers.
    pub async fn import(&self, archives: &[PathBuf]) -> Result<()> {
        let answers = eventually("containerd answers", START_DEADLINE, async || {
            self.ctr(&["version"]).await
        });
        if let Err(error) = answers.await {
            return Err(error.context(self.log_end().await));
        }
        for archive in archives {
            let archive = archive.to_str().context("a path in another encoding")?;
            // As kind does it on its nodes, so that these archives are known to work there.
            let import = [
                "images",
                "import",
                "--all-platforms",
                "--digests",
                "--snapshotter=overlayfs",
            ];
            let arguments: Vec<&str> = import.into_iter().chain([archive]).collect();
            self.ctr(&arguments).await?;
        }
        Ok(())
    }

    async fn ctr(&self, arguments: &[&str]) -> Result<()> {
        let output = tokio::process::Command::new(self.binaries.path(Program::Ctr))
            .arg("--address")
            .arg(self.dir.join("containerd.sock"))
            .args(["--namespace", "k8s.io"])
            .args(arguments)
            .kill_on_drop(true)
            .output()
            .await?;
        let output = Output::from(output).success();
        output.with_context(|| format!("ctr {}", arguments.join(" ")))?;
        Ok(())
    }

    /// Starts the kubelet.
    pub async fn start_kubelet(&self) -> Result<()> {
        let dir = self.dir.display();
        let kubeconfig = self.log_dir.join(format!("{}.kubeconfig", self.name));
        let arguments = [
            format!("--config={dir}/kubelet.json"),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--hostname-override={}", self.name),
            format!("--node-ip={}", node_address(self.index)),
            format!("--root-dir={dir}/kubelet"),
            format!("--cert-dir={dir}/certificates"),
            "--v=2".to_owned(),
        ];
        let mut machine = self.machine.lock().await;
        let machine = machine.as_mut().context(OFF)?;
        let program = self.binaries.path(Program::Kubelet);
        let log = self.log("kubelet");
        let kubelet = machine.place.start("kubelet", &program, &arguments, &log)?;
        machine.kubelet = Some(kubelet);
        Ok(())
    }

    /// Stops the kubelet. Its pods keep running.
    pub async fn stop_kubelet(&self) -> Result<()> {
        let mut machine = self.machine.lock().await;
        let kubelet = machine.as_mut().context(OFF)?.kubelet.take();
        let mut kubelet = kubelet.context("the kubelet is not running")?;
        signal(child_of(&kubelet)?, Signal::TERM)?;
        kubelet.wait(STOP_DEADLINE).await?;
        Ok(())
    }

    /// Kills everything on the node at once: kubelet, containerd and all containers.
    pub async fn power_off(&self) -> Result<()> {
        if let Some(mut machine) = self.machine.lock().await.take() {
            machine.init.kill().await?;
        }
        Ok(())
    }

    /// Starts the node again after [`RealNode::power_off`]; does nothing while it is on.
    pub async fn power_on(&self) -> Result<()> {
        if self.machine.lock().await.is_some() {
            return Ok(());
        }
        let machine = self.boot().await?;
        *self.machine.lock().await = Some(machine);
        self.import(&[]).await?;
        self.start_kubelet().await
    }

    /// Starts what a failed scenario left off: the node, or its kubelet.
    pub async fn repair(&self) -> Result<()> {
        self.power_on().await?;
        let runs = {
            let mut machine = self.machine.lock().await;
            let kubelet = machine.as_mut().and_then(|on| on.kubelet.as_mut());
            kubelet.is_some_and(|kubelet| kubelet.check_running().is_ok())
        };
        if runs {
            return Ok(());
        }
        self.start_kubelet().await
    }

    /// Starts a program in the network of all nodes.
    pub fn start_in_network(&self, name: &str, arguments: &[String]) -> Result<Process> {
        let (program, arguments) = arguments.split_first().context("no program")?;
        let log = self.log_dir.join(format!("{name}.log"));
        self.network
            .start(name, Path::new(program), arguments, &log)
    }

    /// A container on the node. `id` is its `containerID` without the scheme.
    pub fn container(&self, id: &str) -> Result<Container> {
        Container::find(&cgroup(self.index), id)
            .with_context(|| format!("no container {id} on {}", self.name))
    }

    /// A path of the node's own file system, as seen from here.
    pub async fn path(&self, path: &str) -> Result<PathBuf> {
        let machine = self.machine.lock().await;
        let first = child_of(&machine.as_ref().context(OFF)?.init)?;
        Ok(PathBuf::from(format!("/proc/{first}/root{path}")))
    }

    /// Runs a script with the node's mounts and processes. Returns what it printed.
    pub async fn sh(&self, script: &str) -> Result<String> {
        let first = {
            let machine = self.machine.lock().await;
            child_of(&machine.as_ref().context(OFF)?.init)?
        };
        let output = tokio::process::Command::new("nsenter")
            .arg(format!("--target={first}"))
            .args(["--mount", "--pid", "--"])
            .args(["/bin/sh", "-c", script])
            .kill_on_drop(true)
            .output()
            .await
            .context("start nsenter")?;
        Ok(Output::from(output).success()?.out)
    }

    /// Its programs with their process ids.
    pub(super) async fn programs(&self) -> Vec<(String, u32)> {
        let machine = self.machine.lock().await;
        let Some(machine) = &*machine else {
            return Vec::new();
        };
        let programs = [Some(&machine.containerd), machine.kubelet.as_ref()];
        let named = programs.into_iter().flatten().filter_map(Process::named);
        named
            .map(|(name, pid)| (format!("{} {name}", self.name), pid))
            .collect()
    }

    /// The end of the logs, for an error message.
    pub(super) async fn log_end(&self) -> String {
        let machine = self.machine.lock().await;
        let Some(machine) = &*machine else {
            return format!("{} is off", self.name);
        };
        let logs = [Some(&machine.containerd), machine.kubelet.as_ref()];
        let ends: Vec<_> = logs.into_iter().flatten().map(Process::log_end).collect();
        ends.join("\n")
    }
}

/// The only child of a process.
fn child_of(process: &Process) -> Result<u32> {
    let pid = process.pid().context("it has exited")?;
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    let child = children.split_whitespace().next();
    child
        .and_then(|child| child.parse().ok())
        .with_context(|| format!("process {pid} has no child"))
}

fn signal(pid: u32, signal: Signal) -> Result<()> {
    let raw = Pid::from_raw(i32::try_from(pid)?).context("invalid process id")?;
    kill_process(raw, signal).with_context(|| format!("signal process {pid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guard_removes_the_files_unless_they_are_kept() {
        for is_kept in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let files = dir.path().join("files");
            fs::create_dir_all(files.join("etcd")).unwrap();
            if is_kept {
                fs::write(files.join("keep"), "").unwrap();
            }
            drop(guard(&files, None).unwrap());
            assert_eq!(files.exists(), is_kept);
        }
    }
}
