//! `explain` on an object for each row of every decision table, with Belayer down and up: the rule, the action,
//! the evidence or what is missing, and the next step.
//!
//! Each case is named after its row. A row without a case fails here: `explain` covers every row.

mod deployments;
mod pods;
mod pvcs;
mod recreations;
mod workflows;

use std::collections::BTreeSet;

use belayer_holds::decision::Rule;
use belayer_holds::names::{FIELD_MANAGER, RECREATION_ANNOTATION};
use belayer_sandbox::{Actor, Gvr, Patch, Subresource};
use rstest::{Context, rstest};
use serde_json::{Value, json};

use crate::world::World;

const WORKFLOW: &str = "workflows.argoproj.io/workflow";

const AT_ONCE: &str = "a running Belayer releases the hold at once";

/// The expected statement of a component.
struct Expected {
    component: &'static str,
    row: &'static Rule,
    action: &'static str,
    evidence: Option<&'static str>,
    /// Text of what is missing; `None` if nothing is.
    missing: Option<&'static str>,
    /// Text of the next step.
    next: &'static str,
}

impl Expected {
    /// Without evidence, and nothing missing.
    const fn of(
        component: &'static str,
        row: &'static Rule,
        action: &'static str,
        next: &'static str,
    ) -> Self {
        Self {
            component,
            row,
            action,
            evidence: None,
            missing: None,
            next,
        }
    }

    fn on(self, evidence: &'static str) -> Self {
        Self {
            evidence: Some(evidence),
            ..self
        }
    }

    fn without(self, missing: &'static str) -> Self {
        Self {
            missing: Some(missing),
            ..self
        }
    }

    /// Asserts that the case has the name of its row.
    fn is_named(&self, case: &Context) {
        let name = case.description.unwrap_or(case.name);
        let row = format!("row_{:02}_", self.row.number);
        assert!(name.starts_with(&row), "{name} shows {}", self.row);
    }

    /// The statement of the component, if it is this one.
    fn check<'a>(&self, explanation: &'a Value) -> &'a Value {
        let said = explanation["belayer"].as_array().unwrap();
        let said = said
            .iter()
            .find(|said| said["component"] == self.component)
            .unwrap_or_else(|| panic!("{} says nothing: {explanation:#}", self.component));
        assert_eq!(said["row"]["number"], self.row.number, "{said:#}");
        assert_eq!(said["row"]["name"], self.row.name, "{said:#}");
        assert_eq!(said["action"], self.action, "{said:#}");
        assert_eq!(said["evidence"].as_str(), self.evidence, "{said:#}");
        assert_ne!(said["row"]["says"], "see the decision table", "{said:#}");
        let missing = said["missing"]
            .as_array()
            .map(|missing| json!(missing).to_string());
        match (self.missing, missing) {
            (None, None) => {}
            (Some(words), Some(missing)) if missing.contains(words) => {}
            other => panic!("missing: {other:?} in {said:#}"),
        }
        let next = said["next"].as_str().unwrap();
        assert!(next.contains(self.next), "{said:#}");
        said
    }
}

/// Whether Belayer runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Down,
    Up,
}

impl Life {
    /// What keeps the object: if the evidence exists and Belayer is down, its absence; if something is missing, the
    /// hold.
    fn check(self, said: &Value, explanation: &Value) {
        let groups = explanation["groups"].as_array().unwrap();
        let Some(group) = groups
            .iter()
            .find(|group| group["finalizer"] == said["hold"])
        else {
            return;
        };
        let releases = said["action"] == "release";
        let verdict = match self {
            Self::Down if releases => "controller-down",
            Self::Down | Self::Up => "held-by-belayer",
        };
        assert_eq!(group["verdict"], verdict, "{self:?}: {group:#}");
        let first = group["next"][0].to_string();
        match self {
            Self::Down => assert!(first.contains("Make Belayer run again"), "{group:#}"),
            Self::Up => assert!(first.contains(said["next"].as_str().unwrap()), "{group:#}"),
        }
        if self == Self::Up && releases {
            // The API server may deny the release, and the controller may be switched off.
            let component = said["component"].as_str().unwrap();
            let steps = group["next"].to_string();
            let off = format!("--controllers of Belayer does not switch off {component}");
            assert!(steps.contains("ReleaseDenied"), "{group:#}");
            assert!(steps.contains(&off), "{group:#}");
            // Only the leader writes about an object.
            let log = "logs -l app.kubernetes.io/name=belayer --prefix --tail=-1";
            assert!(steps.contains(log), "{group:#}");
        }
    }
}

struct Stage {
    world: World,
    dir: tempfile::TempDir,
}

impl Stage {
    /// A cluster with the kinds that Belayer uses, some namespaces, and a Belayer that is down.
    async fn new() -> Self {
        let stage = Self {
            world: World::new().await,
            dir: tempfile::tempdir().unwrap(),
        };
        for definition in [
            "e2e/manifests/workflow-crd.yaml",
            "deploy/manifests/podoutcome-crd.yaml",
            "deploy/manifests/crd-pod-recreation.yaml",
            "deploy/manifests/crd-node-wipe.yaml",
        ] {
            let path = format!("{}/../../{definition}", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(path).unwrap();
            for object in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
                if object["kind"] == "CustomResourceDefinition" {
                    stage
                        .world
                        .create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, object);
                }
            }
        }
        for (name, labels) in [
            ("belayer-system", json!({})),
            ("yard", json!({})),
            ("ignored", json!({ "belayer.dev/ignore": "true" })),
            ("doomed", json!({})),
        ] {
            let namespace = json!({ "metadata": { "name": name, "labels": labels } });
            stage.world.create(&Gvr::NAMESPACES, None, namespace);
        }
        stage.create(
            &deployments(),
            "belayer-system",
            json!({
                "metadata": { "name": "belayer" },
                "spec": { "replicas": 1, "selector": { "matchLabels": { "a": "b" } },
                    "template": { "metadata": { "labels": { "a": "b" } },
                        "spec": { "containers": [{ "name": "b", "image": "belayer/belayer:0.1.0" }] } } },
                "status": { "replicas": 1, "readyReplicas": 0 },
            }),
        );
        stage
    }

    /// Creates an object with its status; returns its UID.
    fn create(&self, gvr: &Gvr, namespace: &str, object: Value) -> String {
        let status = object.get("status").cloned();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        // Belayer creates the pods of an attempt.
        let is_of_attempt = object["metadata"]["annotations"][RECREATION_ANNOTATION].is_string();
        let manager = is_of_attempt.then_some(FIELD_MANAGER);
        self.world.create_by(manager, gvr, Some(namespace), object);
        if let Some(status) = status {
            self.status(gvr, namespace, &name, status);
        }
        let found = self
            .world
            .sandbox
            .cluster()
            .get(gvr, Some(namespace), &name)
            .unwrap();
        found["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    fn status(&self, gvr: &Gvr, namespace: &str, name: &str, status: Value) {
        let patch = json!({ "status": status });
        self.patch(gvr, namespace, name, patch, Subresource::Status);
    }

    fn patch(&self, gvr: &Gvr, namespace: &str, name: &str, patch: Value, part: Subresource) {
        let cluster = self.world.sandbox.cluster();
        let (actor, options) = (Actor::new("test"), Default::default());
        cluster
            .patch(
                &actor,
                gvr,
                Some(namespace),
                name,
                Patch::Merge(patch),
                part,
                &options,
            )
            .unwrap();
    }

    fn delete(&self, gvr: &Gvr, namespace: Option<&str>, name: &str) {
        let cluster = self.world.sandbox.cluster();
        let (actor, options) = (Actor::new("test"), Default::default());
        cluster
            .delete(&actor, gvr, namespace, name, &options)
            .unwrap();
    }

    fn workflow(&self, namespace: &str, mut metadata: Value) -> String {
        metadata["name"] = json!("build");
        let object = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": metadata, "spec": {},
        });
        self.create(&workflows(), namespace, object)
    }

    /// A pod `a`, unless named otherwise.
    fn pod(&self, namespace: &str, mut metadata: Value, status: Option<Value>) -> String {
        if metadata["name"].is_null() {
            metadata["name"] = json!("a");
        }
        let mut object = json!({
            "metadata": metadata,
            "spec": { "nodeName": "n1", "containers": [{ "name": "m", "image": "m" }] },
        });
        if let Some(status) = status {
            object["status"] = status;
        }
        self.create(&Gvr::PODS, namespace, object)
    }

    fn config(&self, keys: &str) -> String {
        let path = self.dir.path().join("belayer.yaml");
        std::fs::write(
            &path,
            format!("apiVersion: config.belayer.dev/v1alpha1\n{keys}"),
        )
        .unwrap();
        format!("--config={}", path.display())
    }

    /// Explains while Belayer is down and while it is up.
    async fn explain(&self, arguments: &[&str], expected: &Expected) {
        for life in [Life::Down, Life::Up] {
            let ready = json!({ "readyReplicas": u8::from(life == Life::Up) });
            self.status(&deployments(), "belayer-system", "belayer", ready);
            let mut all = vec!["explain"];
            all.extend(arguments);
            all.push("-ojson");
            let answer = self.world.run(&all).await;
            assert!(
                [0, 3].contains(&answer.code),
                "{}{}",
                answer.out,
                answer.err
            );
            let explanation = answer.json();
            life.check(expected.check(&explanation), &explanation);
            if life == Life::Up {
                // As text it fits 80 columns.
                all.pop();
                self.world.run(&all).await;
            }
        }
    }
}

fn workflows() -> Gvr {
    Gvr::new("argoproj.io", "v1alpha1", "workflows")
}

fn deployments() -> Gvr {
    Gvr::new("apps", "v1", "deployments")
}

/// Metadata of a pod of the workflow with this UID.
fn of(workflow: &str, more: Value) -> Value {
    let mut metadata = json!({
        "labels": { WORKFLOW: "build" },
        "finalizers": ["belayer.dev/pod-status"],
        "ownerReferences": [{
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "build",
            "uid": workflow, "controller": true,
        }],
    });
    for (key, value) in more.as_object().unwrap() {
        metadata[key] = value.clone();
    }
    metadata
}

/// The rows in the case names of a file.
fn shown(source: &str) -> BTreeSet<u8> {
    let named = source.split("row_").skip(1);
    named
        .filter_map(|rest| rest.get(..2)?.parse().ok())
        .collect()
}

#[rstest]
#[case::pod_finalizer(belayer_pod_finalizer::row::ALL, include_str!("pods.rs"))]
#[case::workflow_finalizer(belayer_workflow_finalizer::row::ALL, include_str!("workflows.rs"))]
#[case::pvc_protection(belayer_pvc_protection::row::ALL, include_str!("pvcs.rs"))]
#[case::pod_recreation(belayer_pod_recreation::row::ALL, include_str!("recreations.rs"))]
fn every_row_has_a_case(#[case] rows: &[&'static Rule], #[case] source: &str) {
    let shown = shown(source);
    let hidden: Vec<String> = rows
        .iter()
        .filter(|row| !shown.contains(&row.number))
        .map(ToString::to_string)
        .collect();
    assert_eq!(hidden, Vec::<String>::new(), "not explained by any case");
}

/// If the evidence exists, a stuck object is kept because no Belayer runs.
#[tokio::test(flavor = "multi_thread")]
async fn the_cause_of_a_stuck_object_has_a_proof() {
    let stage = Stage::new().await;
    // Not bound to a node, so that it has no grace period.
    let mut metadata = of("another", json!({}));
    metadata["name"] = json!("a");
    let pod = json!({
        "metadata": metadata, "spec": { "containers": [{ "name": "m", "image": "m" }] },
    });
    stage.create(&Gvr::PODS, "yard", pod);
    stage.delete(&Gvr::PODS, Some("yard"), "a");
    for (ready, verdict, proof) in [
        (0, "controller-down", "0 of 1 pods ready"),
        (1, "held-by-belayer", "rule 5 (owner-gone)"),
    ] {
        let status = json!({ "readyReplicas": ready });
        stage.status(&deployments(), "belayer-system", "belayer", status);
        let answer = stage
            .world
            .run(&["explain", "pod/a", "-n", "yard", "-ojson"])
            .await;
        let group = &answer.json()["groups"][0];
        assert_eq!(group["verdict"], verdict, "{group:#}");
        assert!(group["proof"].to_string().contains(proof), "{group:#}");
    }
}
