//! kube-controller-manager, which can be restarted with other controllers.

use std::path::PathBuf;

use anyhow::Result;
use tokio::sync::Mutex;

use super::place::Place;
use super::ports::free_ports;
use super::process::Process;

/// The controllers of kube-controller-manager that scenarios use. Others would only cost time.
const CONTROLLERS: &str = "garbage-collector-controller,namespace-controller,\
    serviceaccount-controller,root-ca-certificate-publisher-controller,node-lifecycle-controller,\
    taint-eviction-controller,pod-garbage-collector-controller,job-controller,\
    persistentvolumeclaim-protection-controller,persistentvolume-protection-controller,\
    persistentvolume-binder-controller,statefulset-controller,\
    validatingadmissionpolicy-status-controller,clusterrole-aggregation-controller";

/// The controllers of workloads, where pods can run.
const WORKLOADS: &str = "deployment-controller,replicaset-controller,daemonset-controller,\
    disruption-controller,serviceaccount-token-controller";

/// kube-controller-manager's PVC protection controller, one of the above.
pub(super) const PVC_CONTROLLER: &str = "persistentvolumeclaim-protection-controller";

/// Whether kube-controller-manager's PVC protection controller runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PvcController {
    /// It runs, as by default.
    On,
    /// It does not run: Belayer replaces it.
    Off,
}

/// The default rate limits of kube-controller-manager.
pub(super) const USUAL_LIMITS: [&str; 2] = ["--kube-api-qps=500", "--kube-api-burst=1000"];

/// The controllers that scenarios use.
pub(super) fn usual_controllers() -> Vec<&'static str> {
    CONTROLLERS.split(',').map(str::trim).collect()
}

/// kube-controller-manager, which can be restarted with other controllers.
pub(super) struct Manager {
    place: Place,
    program: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
    workloads: bool,
    /// The running process and its arguments.
    running: Mutex<Option<Process>>,
    started_with: Mutex<Vec<String>>,
}

impl Manager {
    pub(super) fn new(
        place: Place,
        program: PathBuf,
        arguments: Vec<String>,
        log: PathBuf,
    ) -> Self {
        Self {
            place,
            program,
            arguments,
            log,
            workloads: false,
            running: Mutex::default(),
            started_with: Mutex::default(),
        }
    }

    /// With the controllers of workloads.
    pub(super) fn with_workloads(mut self) -> Self {
        self.workloads = true;
        self
    }

    /// The running process, with its id.
    pub(super) async fn running(&self) -> Option<(String, u32)> {
        self.running.lock().await.as_ref().and_then(Process::named)
    }

    /// Starts it with these controllers; does nothing if it runs with them already.
    pub(super) async fn run(&self, controllers: &[&str], limits: &[String]) -> Result<()> {
        let [port] = free_ports()?;
        let mut controllers = controllers.to_vec();
        controllers.extend(self.workloads.then_some(WORKLOADS));
        let mut arguments = vec![format!("--controllers={}", controllers.join(","))];
        arguments.extend_from_slice(limits);
        let mut started_with = self.started_with.lock().await;
        if *started_with == arguments {
            return Ok(());
        }
        self.kill().await?;
        *started_with = arguments.clone();
        arguments.extend_from_slice(&self.arguments);
        arguments.push(format!("--secure-port={port}"));
        let name = "kube-controller-manager";
        let process = self
            .place
            .start(name, &self.program, &arguments, &self.log)?;
        *self.running.lock().await = Some(process);
        Ok(())
    }

    pub(super) async fn stop(&self) -> Result<()> {
        self.started_with.lock().await.clear();
        self.kill().await
    }

    async fn kill(&self) -> Result<()> {
        match self.running.lock().await.take() {
            Some(mut process) => process.kill().await,
            None => Ok(()),
        }
    }
}
