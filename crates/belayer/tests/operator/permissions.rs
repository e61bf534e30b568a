//! Every permission of every component, removed one at a time: controllers that do not need it continue, the log
//! names it, and after it is granted again everything that waited is done.
//!
//! The tests of `check` cover that it names each of them.
//! That `check` names each of them is tested with that command.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use belayer::operator::{Components, Operator};
use belayer::server::Health as _;
use belayer_core::client;
use belayer_core::logged::Log;
use belayer_core::simulated::{Simulated, simulate};
use belayer_holds::names::POD_RECREATION_HOLD;
use belayer_holds::permissions::{self, Permission};
use belayer_pod_finalizer::outcome;
use belayer_pod_finalizer::profile::config::{PodFinalizerConfig, Settings};
use belayer_sandbox::simulated::{SimulatedController, SimulatedControllers};
use belayer_sandbox::{Answer, Fault, Gvr, ListOptions, Match, Sandbox, Subresource, Verb};
use belayer_workload::{WORKFLOWS, workflow_crd};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::world::{BELAYER, NAMESPACE, World, options, pod};

/// Longer than anything takes with all permissions.
const WORKS_WITHIN: Duration = Duration::from_secs(300);

/// Longer than several retries of a denied request, which come within ten minutes each.
const WORKS_AGAIN_WITHIN: Duration = Duration::from_secs(3_600);

const PVCS: Gvr = Gvr::PERSISTENTVOLUMECLAIMS;

/// A cluster with work for each component.
struct Stage {
    world: World,
    /// Warnings of the controllers.
    log: Log,
    _time: Simulated,
}

/// Work for a component, and whether it is done.
type Task<'a> = (&'static str, Pin<Box<dyn Future<Output = ()> + 'a>>);

impl Stage {
    fn new() -> Self {
        let controllers = SimulatedControllers::none()
            .with(SimulatedController::GarbageCollector)
            .with(SimulatedController::Namespaces);
        let sandbox = Sandbox::builder().seed(7).controllers(controllers).build();
        let cluster = sandbox.cluster().clone();
        let time = simulate(7, move || cluster.clock().now());
        let world = World { sandbox };
        let recreations: Value = serde_saphyr::from_str(belayer_pod_recreation::crd::YAML).unwrap();
        for definition in [workflow_crd(), outcome::crd(), recreations] {
            world.create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, definition);
        }
        world.create_namespace(NAMESPACE);
        world.create_namespace("belayer-system");
        Self {
            world,
            log: Log::kept_from(tracing::Level::WARN),
            _time: time,
        }
    }

    fn operator(&self) -> Operator {
        let components = Components::default()
            .with(pod_finalizer())
            .with(belayer_workflow_finalizer::Settings::default())
            .with(belayer_pod_recreation::Settings::default())
            .with(belayer_pvc_protection::Settings {
                mode: belayer_pvc_protection::Mode::Own,
                ..Default::default()
            });
        let client = client::in_process(self.world.service(), belayer_holds::names::USER_AGENT);
        Operator::new(options(client), components)
    }

    /// Denies this one request with RBAC's message.
    fn refuse(&self, permission: &Permission) -> Fault {
        let message = refusal(permission);
        let requests = Match::verb(verb(permission))
            .group(&*permission.group)
            .resource(&*permission.resource)
            .subresource(permission.subresource)
            .client(BELAYER);
        Fault::on(requests).answer(Answer::forbidden(message))
    }

    /// Whether the log contains this text.
    fn warned(&self, words: &str) -> bool {
        // Text fields are quoted in the log.
        self.log.text().replace("\\\"", "\"").contains(words)
    }

    fn exists(&self, gvr: &Gvr, name: &str) -> bool {
        self.find(gvr, name).is_some()
    }

    fn find(&self, gvr: &Gvr, name: &str) -> Option<Arc<Value>> {
        self.world.cluster().get(gvr, Some(NAMESPACE), name).ok()
    }

    fn has(&self, gvr: &Gvr, name: &str, finalizer: &str) -> bool {
        self.find(gvr, name).is_some_and(|object| {
            let all = object["metadata"]["finalizers"].as_array();
            all.is_some_and(|all| all.iter().any(|have| have == finalizer))
        })
    }

    fn status(&self, pod: &str, status: Value) {
        let status = json!({ "status": status });
        self.world.patch_in(
            &Gvr::PODS,
            Some(NAMESPACE),
            pod,
            status,
            Subresource::Status,
        );
    }

    fn tasks(&self) -> Vec<Task<'_>> {
        vec![
            ("pod-finalizer", Box::pin(self.a_pod_is_held_and_released())),
            (
                "workflow-finalizer",
                Box::pin(self.a_workflow_is_held_and_deleted()),
            ),
            ("pvc-protection", Box::pin(self.a_pvc_is_held_and_deleted())),
            (
                "pod-recreation",
                Box::pin(self.a_rejected_pod_is_recreated()),
            ),
        ]
    }

    async fn a_pod_is_held_and_released(&self) {
        let uid = self.world.workflow("build");
        let mut step = pod("step", "build", &uid);
        step["metadata"]["annotations"] =
            json!({ "workflows.argoproj.io/pod-gc-strategy": "OnPodCompletion/0s" });
        self.world.create(&Gvr::PODS, Some(NAMESPACE), step);
        until(|| self.world.is_held("step")).await;
        self.world.end("step");
        self.world.consume("step");
        until(|| !self.world.is_held("step")).await;
        // As its annotation requests.
        until(|| !self.exists(&Gvr::PODS, "step")).await;
    }

    async fn a_workflow_is_held_and_deleted(&self) {
        self.world.workflow("flow");
        until(|| self.has(&WORKFLOWS, "flow", "belayer.dev/workflow-cleanup")).await;
        self.world.delete(&WORKFLOWS, Some(NAMESPACE), "flow");
        until(|| !self.exists(&WORKFLOWS, "flow")).await;
    }

    async fn a_pvc_is_held_and_deleted(&self) {
        let pvc = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "name": "data", "namespace": NAMESPACE },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
        });
        self.world.create(&PVCS, Some(NAMESPACE), pvc);
        until(|| self.has(&PVCS, "data", "belayer.dev/pvc-protection")).await;
        self.world.delete(&PVCS, Some(NAMESPACE), "data");
        until(|| !self.exists(&PVCS, "data")).await;
    }

    async fn a_rejected_pod_is_recreated(&self) {
        let again = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "again", "namespace": NAMESPACE,
                "annotations": { "belayer.dev/recreate": "true" } },
            "spec": { "containers": [{ "name": "main", "image": "busybox" }] },
        });
        let first = self.world.create(&Gvr::PODS, Some(NAMESPACE), again);
        let is_held = || self.has(&Gvr::PODS, "again", POD_RECREATION_HOLD);
        until(is_held).await;
        self.status(
            "again",
            json!({ "phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: x" }),
        );
        let is_another = || {
            let now = self.find(&Gvr::PODS, "again");
            now.is_some_and(|now| now["metadata"]["uid"] != first["metadata"]["uid"])
        };
        until(|| is_another() && is_held()).await;
        self.status("again", json!({ "phase": "Running", "podIP": "10.0.0.1" }));
        until(|| !is_held()).await;
    }

    /// Whether an Event contains this text.
    fn told(&self, words: &str) -> bool {
        let all = self
            .world
            .cluster()
            .list(&Gvr::EVENTS, None, &ListOptions::default());
        all.unwrap()
            .items
            .iter()
            .any(|event| event.to_string().contains(words))
    }
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        sleep(Duration::from_millis(20)).await;
    }
}

fn pod_finalizer() -> Settings {
    let profile = json!({ "builtIn": "argo", "capture": true, "cleanup": "argo" });
    let config: PodFinalizerConfig =
        serde_json::from_value(json!({ "profiles": [profile] })).unwrap();
    config.try_into().unwrap()
}

/// Each component with its required permissions.
fn needs() -> Vec<(&'static str, Vec<Permission>)> {
    let profiles = pod_finalizer().profiles;
    let mut of_pods = belayer_pod_finalizer::permissions::permissions(&profiles);
    of_pods.extend(belayer_pod_finalizer::permissions::permissions_to_capture(
        &profiles,
    ));
    of_pods.extend(belayer_pod_finalizer::permissions::permissions_to_clean_up(
        &profiles,
    ));
    let of_workflows = belayer_workflow_finalizer::permissions::permissions(&Default::default());
    vec![
        ("pod-finalizer", of_pods),
        ("workflow-finalizer", of_workflows),
        (
            "pvc-protection",
            belayer_pvc_protection::permissions::permissions(),
        ),
        (
            "pod-recreation",
            belayer_pod_recreation::permissions::permissions(),
        ),
    ]
}

/// Removes duplicates that differ in purpose only.
fn is_same(one: &Permission, other: &Permission) -> bool {
    one.to_string() == other.to_string() && one.place == other.place
}

/// All permissions, each once, without those on namespaces, which everything needs.
fn each() -> Vec<Permission> {
    let common = permissions::common();
    let mut each: Vec<Permission> = Vec::new();
    for permission in needs().into_iter().flat_map(|(_, permissions)| permissions) {
        let known = each
            .iter()
            .chain(&common)
            .any(|known| is_same(known, &permission));
        if !known {
            each.push(permission);
        }
    }
    each
}

fn verb(permission: &Permission) -> Verb {
    match permission.verb {
        "get" => Verb::Get,
        "list" => Verb::List,
        "watch" => Verb::Watch,
        "create" => Verb::Create,
        "patch" => Verb::Patch,
        "delete" => Verb::Delete,
        verb => panic!("{verb}"),
    }
}

fn refusal(permission: &Permission) -> String {
    let resource = match permission.subresource {
        "" => permission.resource.to_string(),
        part => format!("{}/{part}", permission.resource),
    };
    format!(
        "User \"{BELAYER}\" cannot {} resource \"{resource}\" in API group \"{}\"",
        permission.verb, permission.group
    )
}

/// The effect of one missing permission.
struct Seen {
    permission: String,
    /// Number of denied requests.
    refused: u64,
    said: bool,
    works: Vec<&'static str>,
}

async fn without(permission: &Permission) -> Seen {
    let stage = Stage::new();
    let fault = stage
        .world
        .sandbox
        .faults()
        .inject(stage.refuse(permission));
    let operator = stage.operator();
    let vitals = Arc::clone(operator.vitals());
    let stop = CancellationToken::new();
    let running = tokio::spawn(operator.run(stop.clone()));
    let mut tasks = stage.tasks();
    let done = futures::future::join_all(tasks.iter_mut().map(|(name, task)| async move {
        let done = timeout(WORKS_WITHIN, task).await.is_ok();
        done.then_some(*name)
    }));
    let works: Vec<&'static str> = done.await.into_iter().flatten().collect();
    assert_eq!(vitals.wedged(), Vec::<String>::new(), "{permission}");
    let said = stage.warned(&refusal(permission)) || stage.told(&refusal(permission));
    let refused = fault.hits();
    fault.remove();
    let rest = tasks
        .into_iter()
        .filter(|(name, _)| !works.contains(name))
        .map(|(name, task)| async move {
            let done = timeout(WORKS_AGAIN_WITHIN, task).await;
            assert!(done.is_ok(), "{name} does not work again with {permission}");
        });
    futures::future::join_all(rest).await;
    stop.cancel();
    running.await.unwrap();
    Seen {
        permission: permission.to_string(),
        refused,
        said,
        works,
    }
}

#[tokio::test(start_paused = true)]
async fn with_all_permissions_everything_works() {
    let stage = Stage::new();
    let stop = CancellationToken::new();
    let running = tokio::spawn(stage.operator().run(stop.clone()));
    for (name, task) in stage.tasks() {
        assert!(timeout(WORKS_WITHIN, task).await.is_ok(), "{name}");
    }
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_missing_permission_is_reported_and_other_controllers_work() {
    let mut met = 0;
    let mut problems = Vec::new();
    for permission in each() {
        let seen = without(&permission).await;
        for (component, permissions) in needs() {
            let needed = permissions.iter().any(|need| is_same(need, &permission));
            if !needed && !seen.works.contains(&component) {
                problems.push(format!(
                    "without {}: {component} does not work",
                    seen.permission
                ));
            }
        }
        if seen.refused > 0 {
            met += 1;
            if !seen.said {
                problems.push(format!("nobody says that {} is missing", seen.permission));
            }
        }
    }
    assert_eq!(problems, Vec::<String>::new());
    assert!(met > 15, "only {met} of them were ever asked for");
}
