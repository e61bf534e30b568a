//! A cluster with Argo-like pods, and Belayer on it.

use std::sync::Arc;
use std::time::Duration;

use belayer::operator::{Components, Memory, Operator, Options};
use belayer_core::client;
use belayer_core::election::{Leadership, LeaseGuard};
use belayer_core::executor::{Bounds, Writes};
use belayer_holds::names::POD_STATUS_HOLD;
use belayer_pod_finalizer::PodFinalizer;
use belayer_pod_finalizer::profile::config::Settings;
use belayer_sandbox::simulated::{SimulatedController, SimulatedControllers};
use belayer_sandbox::{
    Actor, Answer, Cluster, DeleteOptions, Fault, FaultHandle, Gvr, ListOptions, Match, Outcome,
    Patch, Propagation, Sandbox, Subresource, Verb, WatchEnd, Write, WriteOptions,
};
use belayer_workload::{WORKFLOWS, workflow_crd};
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) const NAMESPACE: &str = "ci";
pub(crate) const BELAYER: &str = "belayer";

pub(crate) struct World {
    pub(crate) sandbox: Sandbox,
}

/// Belayer, running.
pub(crate) struct Running {
    pub(crate) finalizer: Arc<PodFinalizer>,
    pub(crate) stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    /// Stops it as SIGTERM does.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }

    /// Ends it in the middle of whatever it does.
    pub(crate) fn crash(self) {
        self.task.abort();
    }
}

/// Belayer with these components, and without request limits.
pub(crate) fn options(client: Client) -> Options {
    Options {
        watches: client.clone(),
        client,
        namespace: "belayer-system".into(),
        bounds: Bounds {
            qps: 10_000.0,
            burst: 10_000,
            ..Bounds::default()
        },
        writes: Writes::Sent,
        leadership: Leadership::unlimited(),
        lease: None,
        memory: Memory::default(),
        observer: Arc::new(()),
    }
}

/// Belayer's gates.
pub(crate) fn gates() -> Gvr {
    Gvr::new("belayer.dev", "v1alpha1", "gates")
}

fn user() -> Actor {
    Actor::new("user")
}

impl World {
    /// An API server with garbage collector and namespace controller, and no kubelet: pods end
    /// when a test says so.
    pub(crate) fn new() -> Self {
        let controllers = SimulatedControllers::none()
            .with(SimulatedController::GarbageCollector)
            .with(SimulatedController::Namespaces);
        let sandbox = Sandbox::builder().seed(7).controllers(controllers).build();
        let world = Self { sandbox };
        world.create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, workflow_crd());
        let gates = serde_saphyr::from_str(belayer_holds::gate::CRD).unwrap();
        world.create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, gates);
        world.create_namespace(NAMESPACE);
        world
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        self.sandbox.cluster()
    }

    /// The server as Belayer reaches it.
    pub(crate) fn service(&self) -> belayer_sandbox::SandboxService {
        self.sandbox.service(BELAYER)
    }

    pub(crate) fn run(&self) -> Running {
        self.run_with(Settings::default(), Writes::Sent)
    }

    /// Belayer, not running.
    pub(crate) fn operator(&self, pod_finalizer: Settings, writes: Writes) -> Operator {
        let components = Components::default().with(pod_finalizer);
        let client = client::in_process(self.service(), belayer_holds::names::USER_AGENT);
        let options = Options {
            writes,
            ..options(client)
        };
        Operator::new(options, components)
    }

    /// With workflow-finalizer.
    pub(crate) fn run_with_workflows(&self) -> Running {
        self.run_with_owners(belayer_workflow_finalizer::Settings::default())
    }

    pub(crate) fn run_with_owners(&self, owners: belayer_workflow_finalizer::Settings) -> Running {
        self.run_with_both(Settings::default(), owners)
    }

    pub(crate) fn run_with_both(
        &self,
        pod_finalizer: Settings,
        owners: belayer_workflow_finalizer::Settings,
    ) -> Running {
        self.run_components(Components::default().with(pod_finalizer).with(owners))
    }

    /// Belayer with these controllers, of which one is pod-finalizer.
    pub(crate) fn run_components(&self, components: Components) -> Running {
        let client = client::in_process(self.service(), belayer_holds::names::USER_AGENT);
        Self::spawn(Operator::new(options(client), components))
    }

    /// Another replica, which never becomes the leader while the guard exists.
    pub(crate) fn standby(&self) -> (LeaseGuard, Running) {
        let (guard, leadership) = Leadership::elected();
        let client = client::in_process(self.service(), belayer_holds::names::USER_AGENT);
        let options = Options {
            leadership,
            ..options(client)
        };
        let components = Components::default().with(Settings::default());
        (guard, Self::spawn(Operator::new(options, components)))
    }

    pub(crate) fn run_with(&self, pod_finalizer: Settings, writes: Writes) -> Running {
        Self::spawn(self.operator(pod_finalizer, writes))
    }

    /// The controllers after a reload, or the first ones: with what those before them remember.
    pub(crate) fn run_remembering(&self, pod_finalizer: Settings, memory: &Memory) -> Running {
        let client = client::in_process(self.service(), belayer_holds::names::USER_AGENT);
        let options = Options {
            memory: memory.clone(),
            ..options(client)
        };
        let components = Components::default().with(pod_finalizer);
        Self::spawn(Operator::new(options, components))
    }

    fn spawn(operator: Operator) -> Running {
        let stop = CancellationToken::new();
        let finalizer = operator.provided().unwrap();
        let task = tokio::spawn(operator.run(stop.clone()));
        Running {
            finalizer,
            stop,
            task,
        }
    }

    pub(crate) fn create(&self, gvr: &Gvr, namespace: Option<&str>, object: Value) -> Value {
        let created =
            self.cluster()
                .create(&user(), gvr, namespace, object, &WriteOptions::default());
        (*created.unwrap()).clone()
    }

    pub(crate) fn create_namespace(&self, name: &str) {
        self.create(
            &Gvr::NAMESPACES,
            None,
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }),
        );
    }

    /// Creates a workflow; returns its UID.
    pub(crate) fn workflow(&self, name: &str) -> String {
        let object = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow",
            "metadata": { "namespace": NAMESPACE, "name": name }, "spec": {},
        });
        let created = self.create(&WORKFLOWS, Some(NAMESPACE), object);
        created["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// Creates a pod of a workflow, as Argo does.
    pub(crate) fn pod(&self, name: &str, workflow: &str, uid: &str) -> Value {
        self.create(&Gvr::PODS, Some(NAMESPACE), pod(name, workflow, uid))
    }

    /// The same, with Belayer's hold.
    pub(crate) fn held_pod(&self, name: &str, workflow: &str, uid: &str) -> Value {
        let mut object = pod(name, workflow, uid);
        object["metadata"]["finalizers"] = json!([POD_STATUS_HOLD]);
        self.create(&Gvr::PODS, Some(NAMESPACE), object)
    }

    pub(crate) fn patch(&self, gvr: &Gvr, name: &str, patch: Value) {
        self.patch_in(gvr, Some(NAMESPACE), name, patch, Subresource::None);
    }

    pub(crate) fn patch_in(
        &self,
        gvr: &Gvr,
        namespace: Option<&str>,
        name: &str,
        patch: Value,
        face: Subresource,
    ) {
        let options = WriteOptions::default();
        self.cluster()
            .patch(
                &user(),
                gvr,
                namespace,
                name,
                Patch::Merge(patch),
                face,
                &options,
            )
            .unwrap();
    }

    /// The consumer reads the pod's result.
    pub(crate) fn consume(&self, pod: &str) {
        let label =
            json!({ "metadata": { "labels": { "workflows.argoproj.io/completed": "true" } } });
        self.patch(&Gvr::PODS, pod, label);
    }

    pub(crate) fn end(&self, pod: &str) {
        let status = json!({ "status": { "phase": "Succeeded" } });
        self.patch_in(
            &Gvr::PODS,
            Some(NAMESPACE),
            pod,
            status,
            Subresource::Status,
        );
    }

    pub(crate) fn delete(&self, gvr: &Gvr, namespace: Option<&str>, name: &str) {
        self.delete_with(gvr, namespace, name, None);
    }

    pub(crate) fn delete_with(
        &self,
        gvr: &Gvr,
        namespace: Option<&str>,
        name: &str,
        policy: Option<Propagation>,
    ) {
        let options = DeleteOptions {
            grace_period_seconds: Some(0),
            propagation_policy: policy,
            ..DeleteOptions::default()
        };
        self.cluster()
            .delete(&user(), gvr, namespace, name, &options)
            .unwrap();
    }

    /// Deletes the CRD of a kind, and with it its objects, while Belayer can neither list nor watch them.
    pub(crate) async fn delete_kind_unseen(&self, plural: &'static str, group: &str) {
        let down = self.hide(plural);
        let definition = format!("{plural}.{group}");
        self.delete(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, &definition);
        let_pass(Duration::from_secs(30)).await;
        down.iter().for_each(FaultHandle::remove);
    }

    /// Ends Belayer's watches of a kind, and fails its lists and watches until the faults are removed.
    pub(crate) fn hide(&self, plural: &'static str) -> [FaultHandle; 2] {
        let faults = self.sandbox.faults();
        let reads = |verb| Match::verb(verb).resource(plural).client(BELAYER);
        let down = [Verb::List, Verb::Watch]
            .map(|verb| faults.inject(Fault::on(reads(verb)).answer(Answer::internal_error())));
        faults.end_watches(&reads(Verb::Watch), WatchEnd::Break);
        down
    }

    pub(crate) fn find(&self, pod: &str) -> Option<Arc<Value>> {
        self.cluster().get(&Gvr::PODS, Some(NAMESPACE), pod).ok()
    }

    pub(crate) fn pods(&self) -> Vec<Arc<Value>> {
        self.cluster()
            .list(&Gvr::PODS, None, &ListOptions::default())
            .unwrap()
            .items
    }

    pub(crate) fn is_held(&self, pod: &str) -> bool {
        self.find(pod).is_some_and(|pod| has_hold(&pod))
    }

    pub(crate) fn held_pods(&self) -> usize {
        self.pods().iter().filter(|pod| has_hold(pod)).count()
    }

    /// Every write of Belayer to pods, also denied ones.
    pub(crate) fn pod_writes(&self) -> Vec<Write> {
        let writes = self.sandbox.recorder().writes_by(BELAYER);
        writes
            .into_iter()
            .filter(|write| write.resource == Gvr::PODS)
            .collect()
    }

    pub(crate) fn applied_pod_writes(&self) -> usize {
        self.pod_writes()
            .iter()
            .filter(|write| write.outcome == Outcome::Applied)
            .count()
    }

    pub(crate) fn events(&self, reason: &str) -> usize {
        let all = self
            .cluster()
            .list(&Gvr::EVENTS, None, &ListOptions::default())
            .unwrap()
            .items;
        all.iter().filter(|event| event["reason"] == reason).count()
    }

    pub(crate) fn requests(&self, verb: Verb, resource: &str) -> u64 {
        self.sandbox.recorder().requests(BELAYER, verb, resource)
    }
}

pub(crate) fn pod(name: &str, workflow: &str, uid: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": NAMESPACE, "name": name,
            "labels": { "workflows.argoproj.io/workflow": workflow },
            "ownerReferences": [{
                "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": workflow, "uid": uid,
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": { "containers": [{ "name": "main", "image": "busybox" }] },
    })
}

pub(crate) fn has_hold(pod: &Value) -> bool {
    pod["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|all| all.iter().any(|f| f == POD_STATUS_HOLD))
}

/// Waits until `condition` holds; fails after a minute of (paused) time.
pub(crate) async fn eventually(what: &str, condition: impl Fn() -> bool) {
    within(Duration::from_secs(60), what, condition).await;
}

pub(crate) async fn within(limit: Duration, what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        let waited = begun.elapsed();
        assert!(waited < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(next_check(waited, Duration::from_millis(5))).await;
    }
}

/// When to check a condition again after `waited`: at most one percent late. Every few milliseconds of simulated minutes
/// would be most of a test's work.
pub(crate) fn next_check(waited: Duration, shortest: Duration) -> Duration {
    shortest.max(waited / 100)
}

/// Lets this (paused) time pass.
pub(crate) async fn let_pass(time: Duration) {
    tokio::time::sleep(time).await;
}
