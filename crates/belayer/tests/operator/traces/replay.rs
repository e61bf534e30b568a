//! Replays a recording on the embedded API server at its pace, while Belayer runs.
//!
//! Belayer's own finalizers in the recording are removed: the holds of a replay are those of the Belayer under test.
//! Recorded versions of an object that does not exist any more are skipped too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use belayer::operator::{Components, Operator, Options};
use belayer_core::{client, simulated};
use belayer_holds::names::{POD_STATUS_HOLD, WORKFLOW_HOLD};
use belayer_holds::runner::{Executed, Observer, What};
use belayer_sandbox::simulated::{SimulatedController, SimulatedControllers};
use belayer_sandbox::{
    Actor, ApiError, Cluster, DeleteOptions, Epoch, Gvr, ListOptions, Propagation, Sandbox,
    Subresource, WriteOptions,
};
use belayer_workload::{WORKFLOWS, workflow_crd};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::recorded::machine_lost;
use super::recording::{Recording, Version};
use crate::world::{BELAYER, options};

/// How the holds of a replay are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    /// By the admission policies of 9e06281 at creation, on agent pods as well.
    AtCreation,
    /// By Belayer when it first sees the object.
    ByBelayer,
}

/// The actions of Belayer on one object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Done {
    /// When it was created; `None` if a predecessor still had its name.
    pub(super) made: bool,
    pub(super) held: Option<Duration>,
    /// When the hold was removed, and the name of the evidence.
    pub(super) released: Vec<(Duration, &'static str)>,
}

/// The actions of Belayer in a replay.
#[derive(Debug, Default)]
pub(super) struct Replayed {
    /// By the UID in the recording.
    pub(super) objects: HashMap<String, Done>,
    /// Objects that have a finalizer of Belayer at the end, or are still being deleted.
    pub(super) left: Vec<String>,
}

/// The Node of the pods in a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Machine {
    /// It is lost when the recording shows it.
    AsRecorded,
    /// Its Node stays in the API until then.
    KeptUntil(Duration),
}

/// Time after the last recorded event in which Belayer must settle the rest.
const SETTLING: Duration = Duration::from_secs(5);

/// All recorded actions, by the UID in the sandbox.
#[derive(Debug)]
struct Witness {
    start: Instant,
    seen: Mutex<Vec<(String, Duration, Option<&'static str>)>>,
}

impl Observer for Witness {
    fn executed(&self, executed: &Executed<'_>) {
        let evidence = match executed.what {
            What::Held => None,
            What::Released { evidence, .. } => Some(evidence),
            _ => return,
        };
        // Only holds of the components that ran while the traces were recorded are checked.
        if !["pod-finalizer", "workflow-finalizer"].contains(&executed.by.component) {
            return;
        }
        let seen = (
            executed.uid.as_str().to_owned(),
            self.start.elapsed(),
            evidence,
        );
        self.seen.lock().unwrap().push(seen);
    }
}

/// Replays a recording from its first event to its last.
pub(super) fn replay(recording: &Recording, holds: Holds, machine: Machine) -> Replayed {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(replayed(recording, holds, machine))
}

async fn replayed(recording: &Recording, holds: Holds, machine: Machine) -> Replayed {
    let controllers = SimulatedControllers::none()
        .with(SimulatedController::GarbageCollector)
        .with(SimulatedController::Namespaces);
    let sandbox = Sandbox::builder()
        .seed(17)
        .epoch(Epoch::Fixed(recording.epoch()))
        .controllers(controllers)
        .build();
    let clock = sandbox.cluster().clock().clone();
    let _simulated = simulated::simulate(17, move || clock.now());
    let mut stage = Stage::new(sandbox.cluster().clone(), recording, holds);
    let witness = Arc::new(Witness {
        start: Instant::now(),
        seen: Mutex::default(),
    });
    let stop = CancellationToken::new();
    let belayer = tokio::spawn(belayer(&sandbox, witness.clone()).run(stop.clone()));

    let lost = match machine {
        Machine::AsRecorded => machine_lost(recording),
        Machine::KeptUntil(then) => Some(then),
    };
    let lose = async {
        if let Some(then) = lost {
            tokio::time::sleep_until(witness.start + then).await;
            lose_machines(sandbox.cluster(), recording);
        }
    };
    let act = async {
        for version in &recording.versions {
            tokio::time::sleep_until(witness.start + version.at).await;
            stage.act(version);
        }
        tokio::time::sleep(SETTLING).await;
    };
    tokio::join!(lose, act);

    let left = stage.left();
    stop.cancel();
    belayer.await.unwrap();
    let mut objects = stage.objects;
    for (uid, at, evidence) in witness.seen.lock().unwrap().drain(..) {
        let Some(object) = stage.uids.get(&uid).and_then(|uid| objects.get_mut(uid)) else {
            continue;
        };
        match evidence {
            None => object.held = Some(at),
            Some(evidence) => object.released.push((at, evidence)),
        }
    }
    Replayed { objects, left }
}

/// Belayer as it runs by default.
pub(super) fn belayer(sandbox: &Sandbox, observer: Arc<dyn Observer>) -> Operator {
    let components = Components::default()
        .with(belayer_pod_finalizer::Settings::default())
        .with(belayer_workflow_finalizer::Settings::default())
        .with(belayer_pod_recreation::Settings::default())
        .with(belayer_pvc_protection::Settings::default());
    let client = client::in_process(sandbox.service(BELAYER), belayer_holds::names::USER_AGENT);
    let options = Options {
        observer,
        ..options(client)
    };
    Operator::new(options, components)
}

fn lose_machines(cluster: &Cluster, recording: &Recording) {
    for machine in recording.machines() {
        let now = DeleteOptions::default();
        cluster
            .delete(&recorded(), &Gvr::NODES, None, machine, &now)
            .unwrap();
    }
}

fn recorded() -> Actor {
    Actor::new("recorded")
}

/// The cluster of a replay.
struct Stage {
    cluster: Cluster,
    namespace: String,
    holds: Holds,
    /// The last version of each replayed object, by its UID in the recording.
    last: HashMap<String, Version>,
    /// UIDs in the recording, by those in the sandbox.
    uids: HashMap<String, String>,
    objects: HashMap<String, Done>,
}

impl Stage {
    fn new(cluster: Cluster, recording: &Recording, holds: Holds) -> Self {
        let stage = Self {
            cluster,
            namespace: recording.namespace().to_owned(),
            holds,
            last: HashMap::new(),
            uids: HashMap::new(),
            objects: HashMap::new(),
        };
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": stage.namespace },
        });
        stage.create_first(&Gvr::CUSTOMRESOURCEDEFINITIONS, workflow_crd());
        stage.create_first(&Gvr::NAMESPACES, namespace);
        for machine in recording.machines() {
            let node = json!({
                "apiVersion": "v1", "kind": "Node", "metadata": { "name": machine },
                "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
            });
            stage.create_first(&Gvr::NODES, node);
        }
        stage
    }

    fn create_first(&self, gvr: &Gvr, object: Value) {
        let options = WriteOptions::default();
        self.cluster
            .create(&recorded(), gvr, None, object, &options)
            .unwrap();
    }

    fn act(&mut self, version: &Version) {
        let uid = version.uid().to_owned();
        match self.last.insert(uid, version.clone()) {
            None => self.create(version),
            Some(last) if self.is_there(version) => self.change(&last, version),
            Some(_) => {}
        }
    }

    /// Whether the object of this recorded UID is in the sandbox.
    fn is_there(&self, version: &Version) -> bool {
        let found = self.find(version);
        let uid = found
            .as_ref()
            .and_then(|found| found["metadata"]["uid"].as_str());
        uid.and_then(|uid| self.uids.get(uid))
            .is_some_and(|uid| uid == version.uid())
    }

    fn find(&self, version: &Version) -> Option<Value> {
        let found = self
            .cluster
            .get(gvr(version), Some(&self.namespace), version.name());
        found.ok().map(|found| (*found).clone())
    }

    fn create(&mut self, version: &Version) {
        let mut object = version.object.clone();
        let metadata = object["metadata"].as_object_mut().unwrap();
        for field in [
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "generation",
            "finalizers",
        ] {
            metadata.remove(field);
        }
        if self.holds == Holds::AtCreation {
            let hold = if version.is_pod() {
                POD_STATUS_HOLD
            } else {
                WORKFLOW_HOLD
            };
            metadata.insert("finalizers".into(), json!([hold]));
        }
        for owner in metadata
            .get_mut("ownerReferences")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            let uid = self
                .uids
                .iter()
                .find(|(_, recorded)| owner["uid"] == **recorded);
            owner["uid"] = json!(uid.unwrap().0);
        }
        for list in ["containers", "initContainers"] {
            let containers = object["spec"].get_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                container["image"] = json!("not-recorded");
            }
        }
        let options = WriteOptions::default();
        let namespace = Some(&*self.namespace);
        let created = self
            .cluster
            .create(&recorded(), gvr(version), namespace, object, &options);
        let mut done = Done::default();
        match created {
            Ok(created) => {
                let uid = created["metadata"]["uid"].as_str().unwrap();
                self.uids.insert(uid.to_owned(), version.uid().to_owned());
                done.made = true;
            }
            // Its predecessor still exists.
            Err(error) => assert_eq!(error.code, 409, "{error:?}"),
        }
        self.objects.insert(version.uid().to_owned(), done);
    }

    /// Every recorded version is the result of one write: this repeats the write.
    fn change(&self, last: &Version, version: &Version) {
        let machine = &version.object["spec"]["nodeName"];
        if version.is_pod() && *machine != last.object["spec"]["nodeName"] {
            let (name, options) = (version.name(), WriteOptions::default());
            let machine = machine.as_str().unwrap();
            let bound = self
                .cluster
                .bind(&recorded(), &self.namespace, name, machine, &options);
            unless_deleting(bound.map(drop));
        }
        let metadata = ["labels", "annotations"];
        let of_metadata = metadata
            .iter()
            .any(|field| version.metadata(field) != last.metadata(field));
        let of_rest = ["spec", "status"]
            .iter()
            .any(|part| version.object[part] != last.object[part]);
        if !version.is_pod() && (of_metadata || of_rest) {
            self.update(version, &["spec", "status"], Subresource::None);
        }
        if version.is_pod() && of_metadata {
            self.update(version, &[], Subresource::None);
        }
        if version.is_pod() && version.object["status"] != last.object["status"] {
            self.update(version, &["status"], Subresource::Status);
        }
        // Without a hold a workflow is deleted without a version in deletion; for pods the server shows each deletion, also
        // the kubelet's final one.
        let gone = version.gone && !version.is_pod();
        let deleted = version.grace() != last.grace() || gone && last.grace().is_none();
        if deleted {
            self.delete(version);
        }
    }

    fn update(&self, version: &Version, parts: &[&str], face: Subresource) {
        let Some(mut object) = self.find(version) else {
            return;
        };
        for field in ["labels", "annotations"] {
            object["metadata"][field] = version.metadata(field).clone();
        }
        for part in parts {
            object[part] = version.object[part].clone();
        }
        let (namespace, options) = (Some(&*self.namespace), WriteOptions::default());
        self.cluster
            .update(
                &recorded(),
                gvr(version),
                namespace,
                version.name(),
                object,
                face,
                &options,
            )
            .unwrap();
    }

    fn delete(&self, version: &Version) {
        let finalizers = version.metadata("finalizers").as_array();
        let foreground = finalizers.is_some_and(|all| all.contains(&json!("foregroundDeletion")));
        let propagation = if foreground {
            Propagation::Foreground
        } else {
            Propagation::Background
        };
        let options = DeleteOptions {
            grace_period_seconds: version.grace(),
            propagation_policy: (!version.is_pod()).then_some(propagation),
            ..DeleteOptions::default()
        };
        let namespace = Some(&*self.namespace);
        self.cluster
            .delete(
                &recorded(),
                gvr(version),
                namespace,
                version.name(),
                &options,
            )
            .unwrap();
    }

    fn left(&self) -> Vec<String> {
        let objects = [&Gvr::PODS, &WORKFLOWS].into_iter().flat_map(|gvr| {
            let list = self.cluster.list(gvr, None, &ListOptions::default());
            list.unwrap().items
        });
        let waits = objects.filter(|object| {
            let metadata = &object["metadata"];
            let finalizers = metadata["finalizers"].to_string();
            finalizers.contains("belayer.dev/") || !metadata["deletionTimestamp"].is_null()
        });
        let name = |object: Arc<Value>| format!("{} {}", object["kind"], object["metadata"]);
        waits.map(name).collect()
    }
}

fn gvr(version: &Version) -> &'static Gvr {
    if version.is_pod() {
        &Gvr::PODS
    } else {
        &WORKFLOWS
    }
}

/// A pod that is being deleted cannot be bound to a node any more.
fn unless_deleting(bound: Result<(), ApiError>) {
    if let Err(error) = bound {
        assert_eq!(error.code, 409, "{error:?}");
    }
}
