//! Owners of other kinds, whose own status shows by a CEL expression that the results of their pods were read.

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::{Value, json};

use crate::harness::{BelayerOptions, Cluster, PodBuilder, SOON, Scenario, eventually, pod};
use crate::kinds;
use crate::providers::apply;
use crate::scenarios::other_owners_kinds::{KINDS, Kind};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![Scenario::alone(
        "a15-owners-of-other-kinds",
        "pods of Tekton, Spark, Ray, JobSet, Kubeflow and Jobs are held until their owner has ended, or is gone",
        other_owners,
    )]
}

impl Kind {
    fn is_custom(&self) -> bool {
        self.group != "batch"
    }

    fn api(&self, cluster: &Cluster) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk(self.group, self.version, self.kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, self.plural);
        Api::namespaced_with(cluster.client().clone(), cluster.namespace(), &resource)
    }

    fn definition(&self) -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{}.{}", self.plural, self.group),
                "annotations": { "api-approved.kubernetes.io": "unapproved, for a test" },
            },
            "spec": {
                "group": self.group, "scope": "Namespaced",
                "names": { "kind": self.kind, "plural": self.plural, "singular": self.kind.to_lowercase() },
                "versions": [{ "name": self.version, "served": true, "storage": true,
                    "schema": { "openAPIV3Schema": self.schema() }, "subresources": { "status": {} } }],
            },
        })
    }

    fn profile(&self) -> Value {
        json!({
            "name": self.plural, "selector": { "matchLabels": { "kind": self.plural } },
            "owner": { "group": self.group, "version": self.version, "kind": self.kind, "resource": self.plural },
            "consumedWhen": self.when,
        })
    }

    fn pod(&self, name: &str, owner: &DynamicObject) -> Result<PodBuilder> {
        let api_version = format!("{}/{}", self.group, self.version);
        let name_of_owner = owner.metadata.name.clone().context("no name")?;
        let uid = owner.metadata.uid.clone().context("no UID")?;
        Ok(pod(format!("{}-{name}", self.plural))
            .label("kind", self.plural)
            .controlled_by(&api_version, self.kind, (&name_of_owner, &uid)))
    }

    async fn owner(&self, cluster: &Cluster, name: &str) -> Result<DynamicObject> {
        let mut spec = json!({});
        if !self.is_custom() {
            // No controller acts on it.
            spec = json!({ "managedBy": "example.com/scenario", "template": { "spec": {
                "restartPolicy": "Never", "containers": [{ "name": "main", "image": "registry.invalid/step:1" }],
            } } });
        }
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": format!("{}/{}", self.group, self.version), "kind": self.kind,
            "metadata": { "name": name }, "spec": spec,
        }))?;
        let api = self.api(cluster);
        eventually("the kind is served", SOON, async || {
            Ok(api.create(&Default::default(), &object).await?)
        })
        .await
    }

    async fn status(&self, cluster: &Cluster, name: &str, status: Value) -> Result<()> {
        let patch = Patch::Merge(json!({ "status": status.clone() }));
        let api = self.api(cluster);
        let patched = api
            .patch_status(name, &PatchParams::default(), &patch)
            .await
            .with_context(|| format!("the status of {} {name}", self.kind))?;
        // A real server drops the fields that the schema does not have.
        ensure!(
            patched.data["status"] == status,
            "{} {name} has the status {}, not {status}",
            self.kind,
            patched.data["status"]
        );
        Ok(())
    }
}

async fn other_owners(cluster: Cluster) -> Result<()> {
    let definitions = kinds::definitions(cluster.client());
    for kind in KINDS.iter().filter(|kind| kind.is_custom()) {
        let definition = serde_json::from_value(kind.definition())?;
        definitions.create(&Default::default(), &definition).await?;
    }
    let shown = all_kinds(&cluster).await;
    for kind in KINDS.iter().filter(|kind| kind.is_custom()) {
        let name = format!("{}.{}", kind.plural, kind.group);
        definitions.delete(&name, &DeleteParams::default()).await?;
    }
    shown
}

async fn all_kinds(cluster: &Cluster) -> Result<()> {
    apply(cluster.client(), &permissions()).await?;
    let mut profiles = vec![json!({ "builtIn": "argo" })];
    profiles.extend(KINDS.iter().map(Kind::profile));
    let config = json!({ "profiles": profiles });
    let options = BelayerOptions::default().config(&format!("podFinalizer: {config}"));
    let mut owners = Vec::new();
    for kind in KINDS {
        let mut its = Vec::new();
        for name in ["done", "deleted"] {
            its.push(kind.owner(cluster, name).await?);
            kind.status(cluster, name, (kind.runs)()).await?;
        }
        owners.push(its);
    }
    let belayer = cluster.start_belayer_with(&options).await?;
    for (kind, its) in KINDS.iter().zip(&owners) {
        for (name, owner) in ["done", "deleted"].into_iter().zip(its) {
            cluster.create(&kind.pod(name, owner)?).await?;
            let pod = format!("{}-{name}", kind.plural);
            cluster.is_held(&pod).await?;
            cluster.finish(&pod, "Succeeded").await?;
            cluster.delete(&pod).await?;
        }
    }
    cluster.belayer_has_caught_up().await?;
    for kind in KINDS {
        let (done, deleted) = (
            format!("{}-done", kind.plural),
            format!("{}-deleted", kind.plural),
        );
        cluster.keeps_hold(&done).await?;
        cluster.keeps_hold(&deleted).await?;
        kind.status(cluster, "done", (kind.ended)()).await?;
        cluster.is_removed(&done).await?;
        kind.api(cluster)
            .delete("deleted", &DeleteParams::background())
            .await?;
        cluster.is_removed(&deleted).await?;
    }
    let log = belayer.log()?;
    ensure!(!log.contains("panic"), "the log reports a panic");
    belayer.stop().await
}

/// What a user grants for further kinds of owners.
fn permissions() -> String {
    let groups: Vec<&str> = KINDS.iter().map(|kind| kind.group).collect();
    let plurals: Vec<&str> = KINDS.iter().map(|kind| kind.plural).collect();
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "e2e-other-owners" },
        "rules": [{ "apiGroups": groups, "resources": plurals, "verbs": ["get", "list", "watch"] }],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": "e2e-other-owners" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "e2e-other-owners" },
        "subjects": [{ "kind": "ServiceAccount", "name": "belayer", "namespace": "belayer-system" }],
    });
    format!("{role}\n---\n{binding}\n")
}
