//! All of pod-recreation on the embedded API server under paused time. The tests play the kubelet.

mod bounds;
mod clocks;
mod crash;
mod drained;
mod explained;
mod ignored;
mod late;
mod life;
mod many;
mod metadata;
mod names;
mod refused;
mod restored;
mod users;
mod wipes;
mod with_pod_finalizer;

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use belayer::operator::{Components, Operator};
use belayer_core::client;
use belayer_core::simulated::{Simulated, simulate};
use belayer_holds::names::POD_RECREATION_HOLD;
use belayer_pod_recreation::{Settings, crd};
use belayer_sandbox::simulated::{SimulatedController, SimulatedControllers};
use belayer_sandbox::{
    Actor, DeleteOptions, Gvr, ListOptions, Outcome, Sandbox, Subresource, Verb, Write,
    WriteOptions,
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::world::{BELAYER, World, next_check, options};

const YARD: &str = "yard";
const RECORDS: Gvr = Gvr {
    group: Cow::Borrowed("belayer.dev"),
    version: Cow::Borrowed("v1alpha1"),
    resource: Cow::Borrowed("podrecreations"),
};

/// The reaction of the played kubelet to a new pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Runs,
    Rejected(&'static str),
}

/// A cluster whose kubelet is played by the test.
struct Yard {
    world: World,
    _time: Simulated,
    /// How often each pod's name is rejected before it runs.
    rejections: Cell<usize>,
    reason: Cell<&'static str>,
    seen: RefCell<Vec<(String, String, Fate)>>,
}

/// pod-recreation, running.
struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }

    fn crash(self) {
        self.task.abort();
    }
}

impl Yard {
    fn new() -> Self {
        Self::with(
            SimulatedControllers::none()
                .with(SimulatedController::GarbageCollector)
                .with(SimulatedController::Namespaces),
        )
    }

    /// A cluster in which objects are not deleted with their owners.
    fn without_garbage_collection() -> Self {
        Self::with(SimulatedControllers::none().with(SimulatedController::Namespaces))
    }

    fn with(controllers: SimulatedControllers) -> Self {
        let sandbox = Sandbox::builder().seed(7).controllers(controllers).build();
        let cluster = sandbox.cluster().clone();
        let time = simulate(7, move || cluster.clock().now());
        let world = World { sandbox };
        for text in [belayer_holds::gate::CRD, crd::YAML, crd::NODE_WIPE_YAML] {
            let definition: Value = serde_saphyr::from_str(text).unwrap();
            world.create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, definition);
        }
        world.create_namespace(YARD);
        Self {
            world,
            _time: time,
            rejections: Cell::new(1),
            reason: Cell::new("OutOfcpu"),
            seen: RefCell::default(),
        }
    }

    /// A kubelet that rejects each pod this many times.
    fn rejecting(times: usize) -> Self {
        let yard = Self::new();
        yard.rejections.set(times);
        yard
    }

    fn run(&self) -> Running {
        self.run_as(BELAYER, Settings::default())
    }

    fn run_as(&self, name: &str, settings: Settings) -> Running {
        self.run_components(name, Self::components(settings))
    }

    fn components(settings: Settings) -> Components {
        Components::default().with(settings)
    }

    fn run_components(&self, name: &str, components: Components) -> Running {
        let operator = self.operator(name, components);
        let stop = CancellationToken::new();
        let task = tokio::spawn(operator.run(stop.clone()));
        Running { stop, task }
    }

    /// Belayer, not running.
    fn operator(&self, name: &str, components: Components) -> Operator {
        let client = client::in_process(
            self.world.sandbox.service(name),
            belayer_holds::names::USER_AGENT,
        );
        Operator::new(options(client), components)
    }

    /// Creates a pod that requests re-creation.
    fn pod(&self, name: &str) -> String {
        self.pod_with(name, json!({}))
    }

    fn pod_with(&self, name: &str, metadata: Value) -> String {
        let mut object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "namespace": YARD, "name": name, "labels": { "app": name },
                "annotations": { "belayer.dev/recreate": "true" },
            },
            "spec": { "containers": [{ "name": "main", "image": "busybox" }] },
        });
        for (field, value) in metadata.as_object().unwrap() {
            object["metadata"][field] = value.clone();
        }
        let pod = self.world.create(&Gvr::PODS, Some(YARD), object);
        uid(&pod)
    }

    /// Creates a pod that requests re-creation, with more in its spec.
    fn pod_on(&self, name: &str, more: Value) {
        self.pod_in(YARD, name, more);
    }

    fn pod_in(&self, namespace: &str, name: &str, more: Value) {
        let mut spec = json!({ "containers": [{ "name": "main", "image": "busybox" }] });
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "namespace": namespace, "name": name,
                "annotations": { "belayer.dev/recreate": "true" } },
            "spec": spec,
        });
        self.world.create(&Gvr::PODS, Some(namespace), object);
    }

    /// Binds a pod as the scheduler does: nobody owns the field then. Who creates a pod with a node owns it, and the
    /// re-created pod stays on that node.
    fn bind(&self, name: &str, node: &str) {
        let (scheduler, options) = (Actor::new("scheduler"), WriteOptions::default());
        let cluster = self.world.cluster();
        cluster
            .bind(&scheduler, YARD, name, node, &options)
            .unwrap();
    }

    fn find(&self, name: &str) -> Option<Arc<Value>> {
        let found = self.world.cluster().get(&Gvr::PODS, Some(YARD), name);
        found.ok()
    }

    fn list(&self, gvr: &Gvr) -> Vec<Arc<Value>> {
        let all = self
            .world
            .cluster()
            .list(gvr, Some(YARD), &ListOptions::default());
        all.map(|all| all.items).unwrap_or_default()
    }

    fn records(&self) -> Vec<Arc<Value>> {
        self.list(&RECORDS)
    }

    /// The only record.
    fn record(&self) -> Value {
        let records = self.records();
        assert_eq!(records.len(), 1, "{records:#?}");
        (*records[0]).clone()
    }

    fn phase(&self) -> String {
        let records = self.records();
        let phase = records
            .first()
            .map(|record| record["status"]["phase"].clone());
        phase
            .as_ref()
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    }

    /// One step of the kubelet: it accepts or rejects new pods.
    fn play(&self) {
        for pod in self.list(&Gvr::PODS) {
            let (name, uid) = (text(&pod, "/metadata/name"), uid(&pod));
            if self.seen.borrow().iter().any(|(_, seen, _)| *seen == uid) {
                continue;
            }
            let held = text(&pod, "/metadata/finalizers/0") == POD_RECREATION_HOLD;
            if !held || !pod["metadata"]["deletionTimestamp"].is_null() {
                // The kubelet reads a pod later than Belayer.
                continue;
            }
            let before = self
                .seen
                .borrow()
                .iter()
                .filter(|(seen, ..)| *seen == name)
                .count();
            let fate = if before < self.rejections.get() {
                Fate::Rejected(self.reason.get())
            } else {
                Fate::Runs
            };
            self.report(&name, fate);
            self.seen.borrow_mut().push((name, uid, fate));
        }
    }

    /// The kubelet writes a pod's status.
    fn report(&self, name: &str, fate: Fate) {
        self.report_in(YARD, name, fate);
    }

    fn report_in(&self, namespace: &str, name: &str, fate: Fate) {
        let status = match fate {
            Fate::Rejected(reason) => json!({
                "phase": "Failed", "reason": reason,
                "message": format!("Pod was rejected: {reason}"),
            }),
            Fate::Runs => json!({
                "phase": "Running", "podIP": "10.0.0.1",
                "containerStatuses": [{
                    "name": "main", "started": true, "ready": true, "restartCount": 0,
                    "image": "busybox", "imageID": "",
                    "state": { "running": { "startedAt": "2026-01-01T00:00:00Z" } },
                }],
            }),
        };
        let status = json!({ "status": status });
        self.world.patch_in(
            &Gvr::PODS,
            Some(namespace),
            name,
            status,
            Subresource::Status,
        );
    }

    /// All pods that ever had this name.
    fn pods_seen(&self, name: &str) -> usize {
        let seen = self.seen.borrow();
        seen.iter().filter(|(seen, ..)| seen == name).count()
    }

    fn started(&self, name: &str) -> usize {
        let seen = self.seen.borrow();
        let runs = |(seen, _, fate): &&(String, String, Fate)| seen == name && *fate == Fate::Runs;
        seen.iter().filter(runs).count()
    }

    /// The user deletes a pod.
    fn delete(&self, name: &str) {
        let options = DeleteOptions {
            grace_period_seconds: Some(0),
            ..DeleteOptions::default()
        };
        let user = belayer_sandbox::Actor::new("user");
        let _ = self
            .world
            .cluster()
            .delete(&user, &Gvr::PODS, Some(YARD), name, &options);
    }

    /// Plays until `condition` holds; fails after ten minutes of paused time.
    async fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let begun = Instant::now();
        let (mut version, mut changed) = (0, begun);
        while !condition() {
            if begun.elapsed() >= Duration::from_secs(600) {
                let writes: Vec<String> = self
                    .world
                    .sandbox
                    .recorder()
                    .writes()
                    .iter()
                    .map(Write::summary)
                    .collect();
                panic!(
                    "not within ten minutes: {what}\n{writes:#?}\n{:#?}\n{:#?}",
                    self.records(),
                    self.list(&Gvr::PODS)
                );
            }
            let newest = self.world.cluster().version();
            if version != newest {
                (version, changed) = (newest, Instant::now());
                self.play();
                self.no_loss();
            }
            tokio::time::sleep(next_check(changed.elapsed(), Duration::from_millis(20))).await;
        }
    }

    /// Waits until `condition` holds while the kubelet does nothing.
    async fn wait(&self, what: &str, condition: impl Fn() -> bool) {
        crate::world::within(Duration::from_secs(600), what, condition).await;
    }

    /// Lets time pass while the kubelet does nothing.
    async fn wait_for(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Plays for a while.
    async fn pass(&self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.play();
            self.no_loss();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// NO-LOSS: if a pod was rejected and does not exist, its spec is in a record.
    fn no_loss(&self) {
        let seen = self.seen.borrow();
        let names: BTreeSet<&str> = seen.iter().map(|(name, ..)| name.as_str()).collect();
        for name in names {
            if self.find(name).is_some() {
                continue;
            }
            let recorded = self
                .records()
                .iter()
                .any(|record| record["spec"]["podName"] == name);
            assert!(recorded, "neither pod nor record of {name}");
        }
    }

    fn is_running(&self, name: &str) -> bool {
        self.find(name)
            .is_some_and(|pod| pod["status"]["phase"] == "Running")
    }

    fn is_held(&self, name: &str) -> bool {
        self.find(name).is_some_and(|pod| {
            let all = pod["metadata"]["finalizers"].as_array();
            all.is_some_and(|all| all.iter().any(|name| name == POD_RECREATION_HOLD))
        })
    }

    /// Settled: the record shows that a pod started, and the pod has no hold.
    fn is_settled(&self, name: &str) -> bool {
        self.phase() == "Started" && self.is_running(name) && !self.is_held(name)
    }

    /// Successful creates of pods by Belayer.
    fn creates(&self) -> usize {
        self.writes_of(&Gvr::PODS)
            .iter()
            .filter(|write| write.verb == Verb::Create && write.changed())
            .count()
    }

    /// Every write of Belayer to a kind.
    fn writes_of(&self, gvr: &Gvr) -> Vec<Write> {
        let all = self.world.sandbox.recorder().writes();
        all.into_iter()
            .filter(|write| write.resource == *gvr && write.actor.to_string().starts_with(BELAYER))
            .collect()
    }

    fn applied(&self, gvr: &Gvr) -> usize {
        self.writes_of(gvr)
            .iter()
            .filter(|write| write.outcome == Outcome::Applied)
            .count()
    }
}

fn uid(object: &Value) -> String {
    text(object, "/metadata/uid")
}

fn text(object: &Value, pointer: &str) -> String {
    let value = object.pointer(pointer).and_then(Value::as_str);
    value.unwrap_or_default().to_owned()
}

/// The pod `web` was rejected once, and has not started since.
async fn re_created() -> (Yard, Running) {
    let yard = Yard::new();
    let belayer = yard.run();
    yard.pod("web");
    yard.until("it is rejected", || !yard.phase().is_empty())
        .await;
    yard.wait("it is re-created", || yard.phase() == "Recreated")
        .await;
    (yard, belayer)
}
