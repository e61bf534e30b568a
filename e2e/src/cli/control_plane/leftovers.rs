//! `belayer-e2e control-plane leftovers`: what real nodes leave on this machine, after the run before and after kills.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::PostParams;
use rustix::process::Signal;

use super::{DOWN_DEADLINE, Nodes, State, up};
use crate::control_plane::{
    FOLDER, Kubernetes, NodeBinaries, Program, cgroups_left, client, folders_left, lock_nodes,
    processes_of_nodes,
};
use crate::harness::{eventually, pod};
use crate::kinds;
use crate::wait::SOON;

/// A start takes about ten seconds; this machine may be busy.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Checks that the run before left nothing, and that a program which is ended by a signal, as by an impatient user,
/// leaves nothing of its control plane, its real nodes and their pods.
pub(super) async fn leftovers(file: &Path) -> Result<()> {
    if let Err(error) = NodeBinaries::prerequisites() {
        ensure!(!crate::is_ci(), "{error}");
        anstream::println!("skipped: {error}");
        return Ok(());
    }
    {
        // A run that has not cleaned up yet still has the lock.
        let _lock = lock_nodes()?;
        nothing_is_left().context("after an earlier run")?;
    }
    for signal in [Signal::KILL, Signal::INT, Signal::TERM] {
        killed_by(signal, NodeKind::Real, file)
            .await
            .with_context(|| format!("after {signal:?}"))?;
    }
    killed_by(Signal::KILL, NodeKind::Hollow, file)
        .await
        .context("without real nodes")?;
    anstream::println!("nothing is left");
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeKind {
    Real,
    Hollow,
}

async fn killed_by(signal: Signal, node: NodeKind, file: &Path) -> Result<()> {
    let nodes = Nodes {
        count: 1,
        real: node == NodeKind::Real,
        kubernetes: Kubernetes::MAIN,
    };
    up(file, nodes).await?;
    let state = State::running(file)?.context("it has exited already")?;
    let took = Duration::from_secs_f64(state.ready_after_seconds);
    ensure!(
        took < START_LIMIT,
        "the nodes were ready after {took:?} only"
    );
    let programs = state.programs.clone();
    ensure!(programs.len() > 4, "only {programs:?} run");
    let in_pods = match node {
        NodeKind::Real => {
            run_a_pod(&state.kubeconfig).await?;
            let in_pods = processes_of_nodes()?;
            ensure!(in_pods.len() > 1, "no process of the pod runs");
            in_pods
        }
        NodeKind::Hollow => Vec::new(),
    };
    state.signal(signal)?;
    eventually("nothing is left", DOWN_DEADLINE, async || {
        for (name, pid) in &programs {
            ensure!(!runs(*pid), "{name} (process {pid}) is running");
        }
        for pid in &in_pods {
            ensure!(!runs(*pid), "process {pid} of a pod is running");
        }
        ensure!(!state.dir.exists(), "{} exists", state.dir.display());
        nothing_is_left()
    })
    .await?;
    fs::remove_file(file).ok();
    Ok(())
}

async fn run_a_pod(kubeconfig: &Path) -> Result<()> {
    let pods = kinds::pods(&client(kubeconfig).await?, "default");
    let built = pod("runs").on_node("node-1").build()?;
    eventually("a pod can be created", SOON, async || {
        // Its ServiceAccount comes a moment after the namespace.
        Ok(pods.create(&PostParams::default(), &built).await?)
    })
    .await?;
    eventually("the pod runs", SOON, async || {
        let phase = &pods.get("runs").await?.data["status"]["phase"];
        ensure!(phase == "Running", "its phase is {phase}");
        Ok(())
    })
    .await
}

/// No cgroup, program or folder of real nodes exists on this machine. Only while no such nodes run.
fn nothing_is_left() -> Result<()> {
    let left = cgroups_left()?;
    ensure!(left.is_empty(), "cgroups {left:?} exist");
    let left = programs_left()?;
    ensure!(left.is_empty(), "programs of real nodes run: {left:?}");
    let left = folders_left(&std::env::temp_dir())?;
    ensure!(left.is_empty(), "folders of real nodes exist: {left:?}");
    Ok(())
}

/// Command lines of programs of real nodes.
fn programs_left() -> Result<Vec<String>> {
    let mut left = Vec::new();
    for entry in fs::read_dir("/proc")? {
        // Most processes are others', and may end meanwhile.
        let line = fs::read(entry?.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if is_of_a_node(&line) {
            left.push(line);
        }
    }
    Ok(left)
}

fn is_of_a_node(line: &str) -> bool {
    let program = line.split(' ').next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default();
    let mut nodes = Program::NODE.into_iter();
    let known = nodes.any(|known| known.file_name() == program);
    known && (program == Program::Pause.file_name() || line.contains(FOLDER))
}

/// Whether a process exists and is not a zombie.
fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(
        "/root/.cache/belayer/node/1/containerd --config=/tmp/belayer-control-plane-a/nodes/node-1/containerd.toml",
        true
    )]
    #[case("/root/.cache/belayer/node/1/belayer-pause", true)]
    #[case("/usr/bin/containerd", false)]
    #[case(
        "tail -f /tmp/belayer-control-plane-a/nodes/node-1/containerd.toml",
        false
    )]
    #[case("", false)]
    fn programs_of_nodes_are_recognised(#[case] line: &str, #[case] expected: bool) {
        assert_eq!(is_of_a_node(line), expected);
    }
}
