//! A fifth controller, as CONTRIBUTING.md describes it: one value, and no other code refers to it.
//!
//! It holds ConfigMaps with the label `keep` until a client writes the annotation `done`.

use std::convert::Infallible;
use std::sync::Arc;

use belayer::operator::{Components, Operator};
use belayer_controller::config::{Key, Problem, Section};
use belayer_controller::context::{ControllerContext, Watched, WorkerGroup};
use belayer_controller::{Configured, Controller, Hold, InformerRequirements, Site};
use belayer_core::client;
use belayer_core::informer::Stored;
use belayer_core::object::Resource;
use belayer_core::queries::Waiter;
use belayer_core::slim::{Keep, ObjectMeta, OwnerMeta};
use belayer_core::workqueue::{Priority, WorkQueue};
use belayer_holds::decision::{Decision, Evidence, Write};
use belayer_holds::permissions::{FOLLOW, Permission};
use belayer_holds::runner::{Change, Component, Runner};
use belayer_holds::selection::Selected;
use belayer_inspect::explain::Explainer;
use belayer_inspect::preflight::Part;
use belayer_sandbox::{Gvr, Subresource};
use jiff::Timestamp;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::world::{World, eventually, gates, let_pass, options};

const NAME: &str = "keeper";
const HOLD: &str = "example.com/keeper";
const LABEL: &str = "keep";
const DONE: &str = "done";

const CONTROLLER: Controller = Controller {
    name: NAME,
    key: "keeper",
    default_on: true,
    keys: &[Key::live(
        "keeper.workers",
        "1 or more",
        "2",
        "ConfigMaps worked on at once.",
    )],
    crds: &[],
    finalizer: HOLD,
    switch: "holdConfigMaps",
    configure,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    workers: Option<usize>,
}

fn configure(section: &Section<'_>) -> Result<Arc<dyn Configured>, Problem> {
    Ok(Arc::new(section.read::<Settings>()?))
}

impl Configured for Settings {
    fn controller(&self) -> &'static Controller {
        &CONTROLLER
    }

    fn holds(&self) -> Vec<Hold> {
        vec![Hold {
            kind: Resource::config_maps(),
            finalizers: vec![HOLD],
        }]
    }

    fn requires(&self) -> Vec<Part> {
        let kind = Resource::config_maps();
        let follow = Permission::on(&kind, FOLLOW, "no ConfigMap is seen");
        vec![Part::new(NAME, "ClusterRole keeper", follow.collect())]
    }

    fn needs(&self) -> InformerRequirements {
        InformerRequirements::default()
    }

    fn selects(&self, _: &Resource, object: &ObjectMeta, _: bool) -> Selected {
        object.labels.get(LABEL).is_some().into()
    }

    fn join(&self, context: &mut ControllerContext) {
        let shared = &context.shared;
        let keep = Keep::nothing().labels([LABEL]).annotations([DONE]);
        let mut watched: Watched<OwnerMeta> = Watched::new(
            &shared.watches,
            Resource::config_maps(),
            shared.decoders(keep),
            |builder| builder,
        );
        let queue = WorkQueue::new("configmaps");
        let runner = Runner::builder(shared.runner(&watched, &queue, &[HOLD]))
            .component(Arc::new(Keeper))
            .build();
        watched.informer().add_handler(Arc::new(runner.clone()));
        let handle = watched.into_handle();
        let workers = self.workers.unwrap_or(2);
        context.worker_groups.push(WorkerGroup {
            name: "configmaps",
            queue,
            needs: vec![handle.state()],
            start: Box::new(move || runner.work(workers)),
            background: Vec::new(),
        });
        context.informers.push(handle);
        context
            .debug
            .add(NAME, &(), |()| json!({ "finalizer": HOLD }));
    }

    fn explainers(&self, _: &Site<'_>) -> Vec<Explainer> {
        Vec::new()
    }
}

struct Keeper;

/// The annotation exists: the version of the object that the patch names.
#[derive(Debug)]
struct Done;

impl Evidence for Done {
    fn name(&self) -> &'static str {
        "Done"
    }
}

belayer_holds::rules! {
    DONE_RULE = 1, "done", "held, and a client wrote the annotation";
    ADD_HOLD = 2, "add-hold", "labelled, and not held yet";
    WAIT = 3, "wait", "there is nothing to do";
}

impl Component<OwnerMeta> for Keeper {
    type Snapshot = ObjectMeta;
    type Evidence = Done;
    type Query = Infallible;
    type Step = ();

    fn name(&self) -> &'static str {
        NAME
    }

    fn hold(&self) -> &'static str {
        HOLD
    }

    fn interest(&self, change: &Change<'_, OwnerMeta>) -> Option<Priority> {
        change.new.map(|_| Priority::Normal)
    }

    fn observe(&self, object: &Stored<OwnerMeta>) -> ObjectMeta {
        object.object.meta.clone()
    }

    fn decide(seen: &ObjectMeta, _: Timestamp) -> Decision<Done, Infallible> {
        let held = seen.has_finalizer(HOLD);
        if held && seen.annotations.get(DONE).is_some() {
            return Decision::write(DONE_RULE, Write::Release(Done));
        }
        if !held && seen.labels.get(LABEL).is_some() && !seen.is_deleting() {
            return Decision::write(ADD_HOLD, Write::AddHold);
        }
        Decision::nothing(WAIT)
    }

    fn ask(&self, query: Infallible, _: Waiter<'_>) {
        match query {}
    }
}

/// With two others, from the watch to the patch: only its own value was added.
#[tokio::test(start_paused = true)]
async fn a_fifth_controller_is_one_value() {
    let world = World::new();
    world.create_namespace("shop");
    let own = belayer_holds::names::DEFAULT_NAMESPACE;
    world.create_namespace(own);
    let components = Components::default()
        .with(belayer_pod_finalizer::Settings::default())
        .with(belayer_pvc_protection::Settings::default())
        .with(Settings::default());
    let operator = Operator::new(
        options(client::in_process(
            world.service(),
            belayer_holds::names::USER_AGENT,
        )),
        components,
    );
    assert_eq!(operator.holds().holds()[NAME]["finalizer"], HOLD);
    let stop = CancellationToken::new();
    let task = tokio::spawn(operator.run(stop.clone()));

    for name in ["kept", "plain"] {
        let labels = if name == "kept" {
            json!({ LABEL: "" })
        } else {
            json!({})
        };
        let map = json!({ "metadata": { "name": name, "labels": labels } });
        world.create(&Gvr::CONFIGMAPS, Some("shop"), map);
    }
    let finalizers = |name: &str| {
        let map = world.cluster().get(&Gvr::CONFIGMAPS, Some("shop"), name);
        map.ok().map(|map| map["metadata"]["finalizers"].clone())
    };
    eventually("it is held", || finalizers("kept") == Some(json!([HOLD]))).await;
    assert_eq!(finalizers("plain"), Some(json!(null)));

    // Of so many finalizers the store keeps only those that it knows by name.
    let others: Vec<_> = (0..60)
        .map(|n| format!("example.com/another-finalizer-{n}"))
        .collect();
    let all: Vec<_> = others.iter().map(String::as_str).chain([HOLD]).collect();
    let patch = |metadata| {
        let patch = json!({ "metadata": metadata });
        world.patch_in(
            &Gvr::CONFIGMAPS,
            Some("shop"),
            "kept",
            patch,
            Subresource::None,
        );
    };
    patch(json!({ "finalizers": all }));

    world.delete(&Gvr::CONFIGMAPS, Some("shop"), "kept");
    let_pass(std::time::Duration::from_secs(60)).await;
    assert_eq!(finalizers("kept"), Some(json!(all)), "it is not done");
    patch(json!({ "annotations": { DONE: "" } }));
    eventually("it is released", || {
        finalizers("kept") == Some(json!(others))
    })
    .await;
    patch(json!({ "finalizers": [] }));
    eventually("it is gone", || finalizers("kept").is_none()).await;

    let gate = |mode: &str| {
        let mode = json!({ "data": { "mode": mode } });
        world.patch_in(&gates(), Some(own), "belayer-gate", mode, Subresource::None);
    };
    gate("draining");
    let_pass(std::time::Duration::from_secs(5)).await;
    let late = json!({ "metadata": { "name": "late", "labels": { LABEL: "" } } });
    world.create(&Gvr::CONFIGMAPS, Some("shop"), late);
    let_pass(std::time::Duration::from_secs(60)).await;
    assert_eq!(finalizers("late"), Some(json!(null)), "Belayer is draining");
    gate("normal");
    eventually("it is held", || finalizers("late") == Some(json!([HOLD]))).await;
    stop.cancel();
    task.await.unwrap();
}

/// [`Section`] provides the message, line and correction for a mistyped key.
#[test]
fn its_key_is_checked() {
    let section = Section::new("a: 1\nkeeper:\n  worker: 2\n", "keeper");
    let problem = configure(&section).unwrap_err();
    assert_eq!(problem.line, Some(3));
    assert_eq!(problem.key.as_deref(), Some("keeper.worker"));
    assert!(
        problem.message.contains("did you mean `workers`?"),
        "{problem}"
    );
}
