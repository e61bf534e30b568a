//! A control plane: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelets.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Error, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use tokio::time::{Instant, sleep};

use super::binaries::Binaries;
use super::kubeconfig::Kubeconfig;
use super::manager::{Manager, PVC_CONTROLLER, PvcController, USUAL_LIMITS, usual_controllers};
use super::node::RealNode;
use super::options::Options;
use super::process::Process;
use super::starter::{POLL, START_DEADLINE, Started, Starter, kubelet_arguments};

/// How often the start is retried when a free port was taken before it was used.
const START_ATTEMPTS: usize = 3;

/// A running control plane. Dropping it kills every program and removes its folder; so does the end of this process, however
/// it ends.
pub struct ControlPlane {
    admin_path: PathBuf,
    audit_log: PathBuf,
    started: Started,
}

impl ControlPlane {
    /// Starts all programs and waits until the API server, the controllers and the nodes are ready.
    /// The error contains the log of the program that exited early or was not ready in time; the folder with all logs
    /// is kept and named.
    pub async fn start(binaries: &Binaries, options: &Options) -> Result<Self> {
        let mut attempt = 1;
        loop {
            let error = match Starter::start(binaries, options).await {
                Ok(started) => return Ok(Self::of(started)),
                Err(error) => error,
            };
            if !port_was_taken(&error) || attempt == START_ATTEMPTS {
                return Err(error);
            }
            attempt += 1;
        }
    }

    fn of(started: Started) -> Self {
        Self {
            admin_path: started.dir.path().join("admin.kubeconfig"),
            audit_log: started.dir.path().join("audit.log"),
            started,
        }
    }

    /// How long the start took until everything was ready.
    pub fn started_in(&self) -> Duration {
        self.started.took
    }

    /// A client with all permissions.
    pub fn client(&self) -> &Client {
        &self.started.client
    }

    /// The kubeconfig of an admin.
    pub fn admin(&self) -> &Kubeconfig {
        &self.started.admin
    }

    /// The same as a file, for kubectl.
    pub fn admin_path(&self) -> &Path {
        &self.admin_path
    }

    /// One JSON object per line: the requests of Belayer's ServiceAccount.
    pub fn audit_log(&self) -> &Path {
        &self.audit_log
    }

    /// The folder of all files.
    pub fn dir(&self) -> &Path {
        self.started.dir.path()
    }

    /// How many nodes with a kubelet there are.
    pub fn hollow_nodes(&self) -> usize {
        self.started.hollow_nodes
    }

    /// Whether [`ControlPlane::start_extra_kubelet`] can start one.
    pub fn has_hollow_kubelet(&self) -> bool {
        self.started.kubelet.is_some()
    }

    /// The real nodes.
    pub fn nodes(&self) -> &[RealNode] {
        &self.started.nodes
    }

    /// Whether garbage collection and namespace deletion work.
    pub fn has_controller_manager(&self) -> bool {
        self.started.has_controller_manager
    }

    /// Whether pods without a node are bound to one.
    pub fn has_scheduler(&self) -> bool {
        self.started.has_scheduler
    }

    /// Starts another hollow kubelet, which the caller stops, and waits until it has renewed the Lease of its node.
    /// The error contains the end of its log.
    pub async fn start_extra_kubelet(&self, node: &str) -> Result<Process> {
        let program = self
            .started
            .kubelet
            .as_ref()
            .context("the hollow kubelet is missing")?;
        let mut attempt = 1;
        loop {
            let started = self.start_kubelet_once(program, node).await;
            match started {
                Err(error) if port_was_taken(&error) && attempt < START_ATTEMPTS => attempt += 1,
                started => return started,
            }
        }
    }

    async fn start_kubelet_once(&self, program: &Path, node: &str) -> Result<Process> {
        let leases: Api<Lease> = Api::namespaced(self.client().clone(), "kube-node-lease");
        let renewed = async || -> Result<Option<String>> {
            let lease = leases.get_opt(node).await?.and_then(|lease| lease.spec);
            let time = lease.and_then(|spec| spec.renew_time);
            Ok(time.map(|time| time.0.to_string()))
        };
        let before = renewed().await?;
        let kubeconfig = self.admin_path.display().to_string();
        let arguments = kubelet_arguments(self.dir(), node, &kubeconfig)?;
        let log = self.dir().join(format!("{node}.log"));
        let mut kubelet = Process::start(node, program, arguments, &log)?;
        let begun = Instant::now();
        loop {
            kubelet.check_running()?;
            if renewed().await? != before {
                return Ok(kubelet);
            }
            ensure!(
                begun.elapsed() < START_DEADLINE,
                "the Lease of node {node} was not renewed within {START_DEADLINE:?}\n{}",
                kubelet.log_end()
            );
            sleep(POLL).await;
        }
    }

    /// The running programs, with their process ids.
    pub async fn programs(&self) -> Vec<(String, u32)> {
        let processes = self.started.processes.lock().await;
        let mut programs: Vec<_> = processes.iter().filter_map(Process::named).collect();
        drop(processes);
        if let Some(manager) = &self.started.manager {
            programs.extend(manager.running().await);
        }
        for node in &self.started.nodes {
            programs.extend(node.programs().await);
        }
        programs
    }

    /// The process id of a program, by its name.
    pub async fn pid_of(&self, program: &str) -> Option<u32> {
        let programs = self.programs().await;
        let found = programs.into_iter().find(|(name, _)| name == program);
        found.map(|(_, pid)| pid)
    }

    /// Kills a program, such as `etcd`, without warning, and after a pause starts it again. Does not wait until it is
    /// ready.
    pub async fn restart(&self, program: &str, pause: Duration) -> Result<()> {
        let mut processes = self.started.processes.lock().await;
        let process = processes
            .iter_mut()
            .find(|process| process.name() == program);
        let process = process.with_context(|| format!("no program is named {program}"))?;
        process.restart(pause).await
    }

    /// Restarts kube-controller-manager with or without its PVC protection controller; does nothing if it
    /// runs so already.
    pub async fn switch_pvc_controller(&self, pvcs: PvcController) -> Result<()> {
        let wanted: Vec<&str> = usual_controllers()
            .into_iter()
            .filter(|name| pvcs == PvcController::On || *name != PVC_CONTROLLER)
            .collect();
        let manager = self.manager()?;
        manager.run(&wanted, &USUAL_LIMITS.map(String::from)).await
    }

    /// Restarts kube-controller-manager with its PVC protection controller only, without rate
    /// limits. Fails as [`ControlPlane::switch_pvc_controller`] does.
    pub async fn start_pvc_controller_alone(&self) -> Result<()> {
        let limits = ["--kube-api-qps=5000", "--kube-api-burst=5000"].map(String::from);
        self.manager()?.run(&[PVC_CONTROLLER], &limits).await
    }

    /// Stops kube-controller-manager.
    pub async fn stop_controllers(&self) -> Result<()> {
        self.manager()?.stop().await
    }

    fn manager(&self) -> Result<&Manager> {
        self.started
            .manager
            .as_ref()
            .context("kube-controller-manager is missing")
    }

    /// Stops every program, the last started first.
    pub async fn stop(mut self) -> Result<()> {
        self.started.nodes.clear();
        if let Some(manager) = &self.started.manager {
            manager.stop().await?;
        }
        let processes = self.started.processes.get_mut();
        while let Some(mut process) = processes.pop() {
            process.kill().await?;
        }
        Ok(())
    }
}

fn port_was_taken(error: &Error) -> bool {
    format!("{error:#}").contains("address already in use")
}
