//! Everything that takes part, and what a chapter can do with it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use belayer_checker::BELAYER;
use belayer_holds::names;
use belayer_sandbox::companions::{Companions, KubeletConfig, RunPlan};
use belayer_sandbox::{
    Actor, Epoch, FaultHandle, Gvr, ListOptions, Listener, Patch, Sandbox, Subresource,
    WriteOptions,
};
use belayer_workload::{
    Argo, PodGc, Profile, USER, User, WORKFLOWS, WorkflowScript, Workload, workflow,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::chronicle::Chronicle;
use super::controller::Controller;
use super::life::{Flow, Now, Pod, text};
use super::neighbour::Neighbour;
use super::{BATCH, Demo, Pace, objects};

/// The namespaces of the story. The last one is deleted on the way.
pub(super) const NAMESPACES: [&str; 4] = ["ci", "lab", "shop", "trial"];

/// How long anything may take before the story is given up, in seconds: of real time, and of the
/// story's on top.
const PATIENCE: f64 = 60.0;

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(15);

/// No pod lives shorter, however fast the story is told.
const LEAST_LIFE: Duration = Duration::from_millis(600);

/// Changes that the API server remembers: more than a demo makes.
const LOG: usize = 4_000_000;

/// The API server and everybody around it.
pub(super) struct World {
    pub(super) sandbox: Sandbox,
    pub(super) chronicle: Chronicle,
    pub(super) controller: Controller,
    pub(super) neighbour: Neighbour,
    pub(super) user: User,
    pub(super) argo: Argo,
    pub(super) pace: Pace,
    pub(super) seed: u64,
    /// Every fault that there was, with what it is called.
    pub(super) faults: Vec<(&'static str, FaultHandle)>,
    directory: tempfile::TempDir,
    listener: Listener,
    _stop: DropGuard,
}

/// What a workflow looks like, in seconds of the story.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) pods: usize,
    /// How long its pods run.
    pub(super) life: (f64, f64),
    pub(super) pod_gc: PodGc,
}

/// The workflows that a chapter is about.
#[derive(Debug, Clone, Default)]
pub(super) struct Cast {
    flows: Vec<(&'static str, &'static str)>,
    pub(super) pods: usize,
}

impl Cast {
    pub(super) fn has(&self, pod: &Pod) -> bool {
        self.flows
            .iter()
            .any(|(namespace, name)| pod.life.namespace == *namespace && pod.workflow == *name)
    }

    pub(super) fn has_flow(&self, flow: &Flow) -> bool {
        self.flows
            .iter()
            .any(|(namespace, name)| flow.life.namespace == *namespace && flow.life.name == *name)
    }

    /// How many workflows there are.
    pub(super) fn len(&self) -> usize {
        self.flows.len()
    }
}

/// An API server with everything beside it that a cluster has.
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
        .companions(Companions::all().kubelet(kubelet))
        .build()
}

/// What an admin installs before Belayer starts.
fn install(sandbox: &Sandbox, user: &User) -> Result<()> {
    user.create_namespace(names::DEFAULT_NAMESPACE)
        .context("Belayer's namespace")?;
    let gate = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"hold": "on"},
        "metadata": {"name": names::GATE_CONFIG_MAP, "namespace": names::DEFAULT_NAMESPACE},
    });
    user.create(&Gvr::CONFIGMAPS, names::DEFAULT_NAMESPACE, gate)
        .context("the gate")?;
    let records = serde_saphyr::from_str(belayer_pod_recreation::crd::YAML)
        .context("the definition of PodRecreations")?;
    sandbox
        .cluster()
        .create(
            &Actor::new(USER),
            &Gvr::CUSTOMRESOURCEDEFINITIONS,
            None,
            records,
            &WriteOptions::default(),
        )
        .map(drop)
        .context("the definition of PodRecreations")
}

/// The way to the API server under Belayer's own name, over the loopback as anywhere.
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
            .with_context(|| format!("--port: {address} cannot be listened on"))?;
        let directory = tempfile::Builder::new()
            .prefix("belayer-demo-")
            .tempdir()
            .context("a directory")?;
        std::fs::write(directory.path().join("kubeconfig"), listener.kubeconfig())
            .context("the kubeconfig")?;

        let stop = CancellationToken::new();
        let chronicle = Chronicle::follow(sandbox.cluster());
        let profile = Profile {
            namespaces: NAMESPACES.map(str::to_owned).to_vec(),
            workflows: 0,
            persist_delay: pace.of(0.8),
            seed: arguments.seed,
            ..Profile::default()
        };
        let mut workload = Workload::run(sandbox.cluster(), profile, &stop);
        let (user, argo) = (workload.user().clone(), workload.argo().clone());
        // Its story is told from the cluster itself; nobody else empties the line.
        tokio::spawn(async move { while workload.next_event().await.is_some() {} });
        install(&sandbox, &user)?;
        let cluster = as_belayer(&listener).await?;
        let mut world = Self {
            neighbour: Neighbour::start(sandbox.cluster(), pace, arguments.seed),
            controller: Controller::new(cluster, pace),
            sandbox,
            chronicle,
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
            .until("the namespaces are there", |world| {
                let there = |name: &&str| world.chronicle.namespace(name) == Now::There;
                let crd = || world.sandbox.cluster().resource(&WORKFLOWS).is_some();
                NAMESPACES.iter().all(there) && crd()
            })
            .await?;
        world.controller.start()?;
        Ok(world)
    }

    /// Where the kubeconfig for people is.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    /// Where the API server is.
    pub(super) fn url(&self) -> String {
        self.listener.url()
    }

    /// Stops Belayer in good order.
    pub(super) async fn end(&mut self) -> Result<()> {
        self.controller.stop().await
    }

    /// Lets some seconds of the story pass.
    pub(super) async fn pause(&self, seconds: f64) {
        tokio::time::sleep(self.pace.of(seconds)).await;
    }

    /// Waits until `condition` is true; says how long that took.
    ///
    /// # Errors
    /// If it does not come true in a long time.
    pub(super) async fn until(
        &self,
        what: &str,
        condition: impl Fn(&Self) -> bool,
    ) -> Result<Duration> {
        let begun = Instant::now();
        let patience = Duration::from_secs_f64(PATIENCE) + self.pace.of(PATIENCE);
        while !condition(self) {
            if begun.elapsed() > patience {
                bail!("waited {} s in vain until {what}", patience.as_secs());
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(begun.elapsed())
    }

    /// The user creates workflows.
    pub(super) fn create(&self, flows: &[(&'static str, &'static str, Shape)]) -> Result<Cast> {
        let mut cast = Cast::default();
        for (namespace, name, shape) in flows {
            let script = WorkflowScript {
                pods: shape.pods,
                pods_per_second: self.pace.rate(20.0),
                life: self.life(shape.life.0)..=self.life(shape.life.1),
                failure_ratio: 0.1,
                rejection_ratio: 0.0,
                pod_gc: shape.pod_gc,
                seed: self.seed,
            };
            let object = workflow(namespace, name, &script);
            self.user
                .create(&WORKFLOWS, namespace, object)
                .with_context(|| format!("creating the workflow {namespace}/{name}"))?;
            cast.flows.push((*namespace, *name));
            cast.pods += shape.pods;
        }
        Ok(cast)
    }

    /// How long a pod lives in real time: however fast the story is told, there is time to hold it.
    fn life(&self, seconds: f64) -> Duration {
        self.pace.of(seconds).max(LEAST_LIFE)
    }

    /// The user deletes pods by hand; those that are gone already are none of their business.
    pub(super) fn delete_pods<'a>(&self, pods: impl IntoIterator<Item = &'a Pod>) -> usize {
        let delete = |pod: &&Pod| {
            self.user
                .delete_pod(&pod.life.namespace, &pod.life.name, None)
                .is_ok()
        };
        pods.into_iter().filter(delete).count()
    }

    /// A user creates a pod.
    pub(super) fn create_pod(&self, namespace: &str, pod: Value) -> Result<()> {
        self.user
            .create(&Gvr::PODS, namespace, pod)
            .context("creating a pod")
    }

    /// A user changes something by a merge patch.
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

    /// The second scheduler puts a pod on a node.
    pub(super) fn bind(&self, pod: &Pod, node: &str) -> Result<()> {
        let (namespace, name) = (&pod.life.namespace, &pod.life.name);
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

    /// What an Event of this reason says, if there is one in the namespace.
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

    /// Waits until every pod of a cast has been created and held.
    pub(super) async fn all_held(&self, cast: &Cast) -> Result<Duration> {
        self.until("all pods are held", |world| {
            world
                .chronicle
                .count(|pod| cast.has(pod) && pod.had_its_chance())
                >= cast.pods
        })
        .await
    }

    /// Waits until the workflows of a cast are finished or gone, and nothing of it is held or
    /// Terminating.
    pub(super) async fn settled(&self, cast: &Cast) -> Result<Duration> {
        self.until(
            "the workflows are finished or gone, and nothing is held",
            |world| {
                let chronicle = &world.chronicle;
                let open = |flow: &Flow| cast.has_flow(flow) && flow.is_open();
                let unsettled = |pod: &Pod| cast.has(pod) && pod.life.is_unsettled();
                chronicle.count_flows(|flow| cast.has_flow(flow)) >= cast.len()
                    && chronicle.count_flows(open) == 0
                    && chronicle.count(unsettled) == 0
            },
        )
        .await
    }

    /// Waits until no pod, workflow or namespace has changed for a while: no event is on its way.
    pub(super) async fn still(&self) -> Result<()> {
        let since = std::cell::Cell::new((self.chronicle.changes(), Instant::now()));
        self.until("nothing moves", |world| {
            let changes = world.chronicle.changes();
            if since.get().0 != changes {
                since.set((changes, Instant::now()));
            }
            since.get().1.elapsed() > Duration::from_millis(400)
        })
        .await
        .map(drop)
    }
}
