//! Scripted records, and their objects.

use std::sync::Arc;
use std::time::Duration;

use belayer_sandbox::{Actor, Gvr, ObjectKey, Outcome, Verb, Write};
use belayer_workload::{ARGO, ARGO_SERVER, USER, WORKFLOWS, names};
use serde_json::{Value, json};

use crate::{BELAYER, Evidence, Findings, POD_HOLD, Settings, check};

pub(super) const FOREIGN: &str = "example.com/keep";

/// A record under construction.
#[derive(Default)]
pub(super) struct Script {
    pub(super) writes: Vec<Write>,
    now: jiff::Timestamp,
    settings: Settings,
    healthy_from: Option<usize>,
}

impl Script {
    pub(super) fn write(mut self, actor: &str, verb: Verb, gvr: &Gvr, object: &Value) -> Self {
        let field = |name: &str| {
            object["metadata"][name]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let (namespace, name) = (field("namespace"), field("name"));
        self.writes.push(Write {
            index: self.writes.len(),
            at: self.now,
            actor: Actor::new(actor),
            verb,
            resource: gvr.clone(),
            subresource: "",
            key: ObjectKey::new(Some(&namespace), &name),
            uid: field("uid"),
            resource_version: 1,
            body: None,
            object: Some(Arc::new(object.clone())),
            dry_run: false,
            outcome: Outcome::Applied,
        });
        self
    }

    /// The next writes come this much later.
    pub(super) fn later(mut self, seconds: i64) -> Self {
        self.now += jiff::SignedDuration::from_secs(seconds);
        self
    }

    /// Nothing fails from now on.
    pub(super) fn healthy(mut self) -> Self {
        self.healthy_from = Some(self.writes.len());
        self
    }

    /// Belayer's configuration.
    pub(super) fn with(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Belayer patches a pod into this state, correctly: with UID and version.
    pub(super) fn belayer(self, pod: &Value) -> Self {
        self.belayer_patches(&Gvr::PODS, pod)
    }

    /// The same for any kind.
    pub(super) fn belayer_patches(self, gvr: &Gvr, object: &Value) -> Self {
        let finalizers = object["metadata"]["finalizers"].clone();
        let uid = object["metadata"]["uid"].clone();
        self.write(BELAYER, Verb::Patch, gvr, object).body(json!({
            "metadata": {"uid": uid, "resourceVersion": "1", "finalizers": finalizers},
        }))
    }

    pub(super) fn body(mut self, body: Value) -> Self {
        self.writes.last_mut().unwrap().body = Some(Arc::new(body));
        self
    }

    pub(super) fn refused(mut self, code: u16) -> Self {
        let last = self.writes.last_mut().unwrap();
        last.outcome = Outcome::Refused(code);
        last.object = None;
        last.uid = String::new();
        self
    }

    pub(super) fn pod(self, pod: &Value) -> Self {
        self.write(ARGO, Verb::Patch, &Gvr::PODS, pod)
    }

    pub(super) fn workflow(self, workflow: &Value) -> Self {
        self.write(ARGO, Verb::Patch, &WORKFLOWS, workflow)
    }

    pub(super) fn deleted(self, gvr: &Gvr, object: &Value) -> Self {
        self.write(USER, Verb::Delete, gvr, object)
    }

    /// The pod's step failed, and a user retries the workflow: its pod is deleted, its node removed, and the step runs again.
    pub(super) fn retried(self) -> Self {
        let mut without_nodes = running();
        without_nodes["status"]["nodes"] = json!({});
        let gone = deleting(exited(pod(&[POD_HOLD])));
        self.pod(&exited(pod(&[POD_HOLD])))
            .write(ARGO_SERVER, Verb::Delete, &Gvr::PODS, &gone)
            .write(ARGO_SERVER, Verb::Patch, &WORKFLOWS, &without_nodes)
    }

    pub(super) fn check_script(&self) -> Findings {
        self.check_with(&[], Duration::from_secs(1), &[])
    }

    pub(super) fn check_with(
        &self,
        left: &[Value],
        quiet: Duration,
        written_in_quiet: &[Write],
    ) -> Findings {
        let left: Vec<_> = left.iter().cloned().map(Arc::new).collect();
        check(&Evidence {
            writes: &self.writes,
            left: &left,
            quiet,
            written_in_quiet,
            others: &[],
            healthy_from: self.healthy_from,
            settings: self.settings,
        })
    }
}

/// The names of the checks that failed.
pub(super) fn failed(findings: &Findings) -> Vec<&'static str> {
    findings
        .checks
        .iter()
        .filter(|check| !check.broken.is_empty())
        .map(|check| check.name)
        .collect()
}

pub(super) fn pod(finalizers: &[&str]) -> Value {
    json!({
        "kind": "Pod",
        "metadata": {
            "namespace": "a", "name": "web-main-0", "uid": "p-1", "finalizers": finalizers,
            "annotations": { (names::NODE_ID): "web-0" },
            "ownerReferences": [{"kind": "Workflow", "name": "web", "uid": "w-1", "controller": true}],
        },
    })
}

pub(super) fn deleting(mut object: Value) -> Value {
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    object
}

/// It failed by itself.
pub(super) fn exited(mut pod: Value) -> Value {
    let state = json!({"terminated": {"exitCode": 1, "startedAt": "2026-01-01T00:00:00Z"}});
    pod["status"] =
        json!({"phase": "Failed", "containerStatuses": [{"name": "main", "state": state}]});
    pod
}

pub(super) fn workflow(node: &Value) -> Value {
    json!({
        "kind": "Workflow",
        "metadata": {"namespace": "a", "name": "web", "uid": "w-1"},
        "status": {"finishedAt": "2026-01-01T00:00:00Z", "nodes": {"web-0": node}},
    })
}

pub(super) fn running() -> Value {
    workflow(&json!({"phase": "Running"}))
}

pub(super) fn taken() -> Value {
    workflow(&json!({"phase": "Succeeded"}))
}

pub(super) fn lost() -> Value {
    workflow(&json!({"phase": "Error", "message": "pod deleted"}))
}

/// A pod with a hold, of a running workflow.
pub(super) fn held() -> Script {
    Script::default()
        .workflow(&running())
        .pod(&pod(&[]))
        .belayer(&pod(&[POD_HOLD]))
}
