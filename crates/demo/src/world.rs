//! All participants of the demo, and what a chapter can do with them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use belayer_checker::BELAYER;
use belayer_sandbox::simulated::{KubeletConfig, RunPlan, SimulatedControllers};
use belayer_sandbox::{
    Actor, Epoch, FaultHandle, Gvr, ListOptions, Listener, Patch, Sandbox, Subresource,
    WriteOptions,
};
use belayer_workload::{
    Argo, PodGc, Profile, USER, User, WORKFLOWS, WorkflowScript, Workload, workflow,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::cluster_state::ClusterState;
use super::controller::Controller;
use super::other_operator::OtherOperator;
use super::tracked::{Existence, Pod, Workflow, text};
use super::{BATCH, Demo, Pace, objects, setup};

/// The namespaces of the demo. The last one is deleted in a chapter.
pub(super) const NAMESPACES: [&str; 4] = ["ci", "lab", "shop", "trial"];

/// How long any condition may take before the demo fails, in seconds: of real time plus the same
/// number of the demo's.
const PATIENCE: f64 = 60.0;

/// Polling interval of conditions.
const LOOK: Duration = Duration::from_millis(15);

/// Minimum run time of a pod, whatever the speed of the demo.
const LEAST_LIFE: Duration = Duration::from_millis(600);

/// Changes kept by the API server: more than a demo makes.
const LOG: usize = 4_000_000;

/// The API server and all its clients.
pub(super) struct World {
    pub(super) sandbox: Sandbox,
    pub(super) state: ClusterState,
    pub(super) controller: Controller,
    pub(super) other_operator: OtherOperator,
    pub(super) user: User,
    pub(super) argo: Argo,
    pub(super) pace: Pace,
    pub(super) seed: u64,
    /// Every fault that was injected, with its name.
    pub(super) faults: Vec<(&'static str, FaultHandle)>,
    directory: tempfile::TempDir,
    listener: Listener,
    _stop: DropGuard,
}

/// A workflow's pods, with times in seconds of the demo.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkflowShape {
    pub(super) pods: usize,
    /// How long its pods run.
    pub(super) run_time: (f64, f64),
    pub(super) pod_gc: PodGc,
}

/// The workflows of a chapter.
#[derive(Debug, Clone, Default)]
pub(super) struct WorkflowSet {
    workflows: Vec<(&'static str, &'static str)>,
    pub(super) pods: usize,
}

impl WorkflowSet {
    pub(super) fn has(&self, pod: &Pod) -> bool {
        self.workflows
            .iter()
            .any(|(namespace, name)| pod.object.namespace == *namespace && pod.workflow == *name)
    }

    pub(super) fn has_workflow(&self, workflow: &Workflow) -> bool {
        self.workflows.iter().any(|(namespace, name)| {
            workflow.object.namespace == *namespace && workflow.object.name == *name
        })
    }

    /// How many workflows there are.
    pub(super) fn len(&self) -> usize {
        self.workflows.len()
    }
}

/// An API server with the usual controllers of a cluster.
fn sandbox(seed: u64, pace: Pace) -> Sandbox {
    let kubelet = KubeletConfig {
        nodes: objects::nodes(),
        default_plan: RunPlan {
            start_delay: pace.of(0.3),
            stop_time: pace.of(0.3),
            ..RunPlan::default()
        },
        seed,
        ..KubeletConfig::default()
    };
    Sandbox::builder()
        .seed(seed)
        .epoch(Epoch::WallClock)
        .log_limit(LOG)
        .controllers(SimulatedControllers::all().kubelet(kubelet))
        .build()
}

/// A client configuration for the API server under Belayer's name, over loopback.
async fn as_belayer(listener: &Listener) -> Result<kube::Config> {
    let kubeconfig = Kubeconfig::from_yaml(&listener.kubeconfig_for(BELAYER))?;
    kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .context("Belayer's kubeconfig")
}

impl World {
    /// Builds the cluster, the workload's empty namespaces, and starts Belayer.
    pub(super) async fn build(arguments: &Demo) -> Result<Self> {
        let pace = Pace(arguments.speed);
        let sandbox = sandbox(arguments.seed, pace);
        let address = SocketAddr::from(([127, 0, 0, 1], arguments.port));
        let listener = sandbox
            .listen(address)
            .await
            .with_context(|| format!("--port: cannot listen on {address}"))?;
        let directory = tempfile::Builder::new()
            .prefix("belayer-demo-")
            .tempdir()
            .context("a directory")?;
        std::fs::write(directory.path().join("kubeconfig"), listener.kubeconfig())
            .context("the kubeconfig")?;

        let stop = CancellationToken::new();
        let state = ClusterState::follow(sandbox.cluster());
        let profile = Profile {
            namespaces: NAMESPACES.map(str::to_owned).to_vec(),
            workflows: 0,
            persist_delay: pace.of(0.8),
            seed: arguments.seed,
            ..Profile::default()
        };
        let mut workload = Workload::run(sandbox.cluster(), profile, &stop);
        let (user, argo) = (workload.user().clone(), workload.argo().clone());
        // The demo reads the cluster itself, so the events are only drained.
        tokio::spawn(async move { while workload.next_event().await.is_some() {} });
        setup::install(&user, setup::Tuning::default())?;
        let cluster = as_belayer(&listener).await?;
        let mut world = Self {
            other_operator: OtherOperator::start(sandbox.cluster(), pace, arguments.seed),
            controller: Controller::new(cluster, pace),
            sandbox,
            state,
            user,
            argo,
            pace,
            seed: arguments.seed,
            faults: Vec::new(),
            directory,
            listener,
            _stop: stop.drop_guard(),
        };
        world
            .until("the namespaces exist", |world| {
                let there = |name: &&str| world.state.namespace(name) == Existence::Exists;
                let crd = || world.sandbox.cluster().resource(&WORKFLOWS).is_some();
                NAMESPACES.iter().all(there) && crd()
            })
            .await?;
        world.controller.start()?;
        Ok(world)
    }

    /// Path of the kubeconfig for users.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    /// URL of the API server.
    pub(super) fn url(&self) -> String {
        self.listener.url()
    }

    /// Stops Belayer gracefully.
    pub(super) async fn end(&mut self) -> Result<()> {
        self.controller.stop().await
    }

    /// Waits for some seconds of the demo.
    pub(super) async fn pause(&self, seconds: f64) {
        tokio::time::sleep(self.pace.of(seconds)).await;
    }

    /// Waits until `condition` is true; returns how long that took.
    pub(super) async fn until(
        &self,
        what: &str,
        condition: impl Fn(&Self) -> bool,
    ) -> Result<Duration> {
        let begun = Instant::now();
        let patience = Duration::from_secs_f64(PATIENCE) + self.pace.of(PATIENCE);
        while !condition(self) {
            if begun.elapsed() > patience {
                bail!(
                    "timed out after {} s waiting until {what}",
                    patience.as_secs()
                );
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(begun.elapsed())
    }

    /// The user creates workflows.
    pub(super) fn create(
        &self,
        workflows: &[(&'static str, &'static str, WorkflowShape)],
    ) -> Result<WorkflowSet> {
        let mut set = WorkflowSet::default();
        for (namespace, name, shape) in workflows {
            let script = WorkflowScript {
                pods: shape.pods,
                pods_per_second: self.pace.rate(20.0),
                life: self.run_time(shape.run_time.0)..=self.run_time(shape.run_time.1),
                failure_ratio: 0.1,
                rejection_ratio: 0.0,
                pod_gc: shape.pod_gc,
                seed: self.seed,
            };
            let object = workflow(namespace, name, &script);
            self.user
                .create(&WORKFLOWS, namespace, object)
                .with_context(|| format!("creating the workflow {namespace}/{name}"))?;
            set.workflows.push((*namespace, *name));
            set.pods += shape.pods;
        }
        Ok(set)
    }

    /// A pod's run time in real time: long enough to get a hold at any speed.
    fn run_time(&self, seconds: f64) -> Duration {
        self.pace.of(seconds).max(LEAST_LIFE)
    }

    /// The user deletes pods by hand; pods that are already removed are skipped. Returns how many were deleted.
    pub(super) fn delete_pods<'a>(&self, pods: impl IntoIterator<Item = &'a Pod>) -> usize {
        let delete = |pod: &&Pod| {
            self.user
                .delete_pod(&pod.object.namespace, &pod.object.name, None)
                .is_ok()
        };
        pods.into_iter().filter(delete).count()
    }

    /// The user creates a pod.
    pub(super) fn create_pod(&self, namespace: &str, pod: Value) -> Result<()> {
        self.user
            .create(&Gvr::PODS, namespace, pod)
            .context("creating a pod")
    }

    /// The user patches an object with a merge patch.
    pub(super) fn patch(
        &self,
        gvr: &Gvr,
        namespace: Option<&str>,
        name: &str,
        patch: Value,
    ) -> Result<()> {
        self.sandbox
            .cluster()
            .patch(
                &Actor::new(USER),
                gvr,
                namespace,
                name,
                Patch::Merge(patch),
                Subresource::None,
                &WriteOptions::default(),
            )
            .map(drop)
            .with_context(|| format!("patching {} {name}", gvr.resource))
    }

    /// The second scheduler binds a pod to a node.
    pub(super) fn bind(&self, pod: &Pod, node: &str) -> Result<()> {
        let (namespace, name) = (&pod.object.namespace, &pod.object.name);
        self.sandbox
            .cluster()
            .bind(
                &Actor::new(BATCH),
                namespace,
                name,
                node,
                &WriteOptions::default(),
            )
            .map(drop)
            .with_context(|| format!("binding {name} to {node}"))
    }

    /// The message of an Event with this reason, if there is one in the namespace.
    pub(super) fn event(&self, namespace: &str, reason: &str) -> Option<String> {
        let events =
            self.sandbox
                .cluster()
                .list(&Gvr::EVENTS, Some(namespace), &ListOptions::default());
        let events = events.ok()?.items;
        let event = events
            .iter()
            .find(|event| text(event, "/reason") == reason)?;
        Some(text(event, "/message").to_owned())
    }

    /// Waits until every pod of the workflows has been created and got its hold.
    pub(super) async fn all_held(&self, set: &WorkflowSet) -> Result<Duration> {
        self.until("all pods have holds", |world| {
            world.state.count(|pod| set.has(pod) && pod.is_past_hold()) >= set.pods
        })
        .await
    }

    /// Waits until the workflows are finished or removed, and none of their pods has a hold or is
    /// Terminating.
    pub(super) async fn settled(&self, set: &WorkflowSet) -> Result<Duration> {
        self.until(
            "the workflows are finished or removed, and no pod has a hold",
            |world| {
                let state = &world.state;
                let open = |workflow: &Workflow| set.has_workflow(workflow) && workflow.is_open();
                let unsettled = |pod: &Pod| set.has(pod) && pod.object.is_unsettled();
                state.count_workflows(|workflow| set.has_workflow(workflow)) >= set.len()
                    && state.count_workflows(open) == 0
                    && state.count(unsettled) == 0
            },
        )
        .await
    }

    /// Waits until no pod, workflow, PVC or namespace has changed for a while, so that no event is in flight.
    pub(super) async fn still(&self) -> Result<()> {
        let since = std::cell::Cell::new((self.state.changes(), Instant::now()));
        self.until("nothing changes", |world| {
            let changes = world.state.changes();
            if since.get().0 != changes {
                since.set((changes, Instant::now()));
            }
            since.get().1.elapsed() > Duration::from_millis(400)
        })
        .await
        .map(drop)
    }
}
