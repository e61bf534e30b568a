//! Restores a cluster that earlier scenarios used, also one that failed before it cleaned up.

use anyhow::{Context as _, Result, bail};
use kube::api::{
    DeleteParams, DynamicObject, ListParams, ObjectList, Patch, PatchParams, PostParams,
};
use kube::{Client, ResourceExt as _};
use serde_json::{Map, Value, json};

use super::bootstrap::{
    APART, ensure_workflow_crd, grant_permissions, manifest, open_gate, opened_gate, remove,
};
use super::{Backend, Capability};
use crate::kinds::{self, Objects};
use crate::wait::{SOON, eventually, gone};

/// Label of a Node that a scenario made, with the scenario's namespace: removed with it.
pub const OWN_NODE: &str = "e2e.belayer.dev/namespace";

/// Labels and taints of scenarios begin with one of these.
const OF_SCENARIOS: [&str; 2] = ["e2e-", "e2e.belayer.dev/"];

/// Taints of nodes that are not ready, unreachable, cordoned, under pressure, or being initialised.
const OF_NODE_CONTROLLERS: &str = "node.";

/// The policy with Belayer's label that every cluster has.
const GRANTED: &str = "belayer-pod-recreation-records";

/// Restores nodes, the Workflow CRD, the gate and Belayer's permissions, and removes a Belayer that runs as pods.
///
/// Each Belayer writes into the gate which of its controllers are off.
pub(crate) async fn restore(backend: &dyn Backend) -> Result<()> {
    let client = backend.client();
    for node in backend.nodes() {
        node.repair().await?;
    }
    restore_nodes(client).await?;
    if backend.capabilities().contains(&Capability::RealNode) {
        nodes_are_ready(client).await?;
        remove_installation(client).await?;
    }
    for name in APART {
        remove(client, &manifest(name)?).await?;
    }
    ensure_workflow_crd(client).await?;
    restore_gate(client).await
}

/// Uncordons all nodes and removes what scenarios wrote into them.
async fn restore_nodes(client: &Client) -> Result<()> {
    let nodes = kinds::nodes(client);
    let own = ListParams::default().labels(OWN_NODE);
    nodes
        .delete_collection(&DeleteParams::default(), &own)
        .await
        .context("remove nodes of scenarios")?;
    for node in nodes.list(&ListParams::default()).await? {
        if let Some(patch) = undo(&node) {
            let name = node.name_any();
            nodes
                .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                .await
                .with_context(|| format!("restore the node {name}"))?;
        }
    }
    Ok(())
}

/// The patch that undoes what scenarios do to a node; `None` if there is nothing to undo.
fn undo(node: &DynamicObject) -> Option<Value> {
    let is_belayers = |key: &str| OF_SCENARIOS.iter().any(|prefix| key.starts_with(prefix));
    let labels: Map<String, Value> = node
        .labels()
        .keys()
        .filter(|key| is_belayers(key))
        .map(|key| (key.clone(), Value::Null))
        .collect();
    let taints = node.data["spec"]["taints"].as_array();
    let taints = taints.map(Vec::as_slice).unwrap_or_default();
    let others: Vec<&Value> = taints
        .iter()
        .filter(|taint| !taint["key"].as_str().is_some_and(is_belayers))
        .collect();
    let is_cordoned = node.data["spec"]["unschedulable"] == true;
    if !is_cordoned && labels.is_empty() && others.len() == taints.len() {
        return None;
    }
    Some(json!({
        "metadata": { "labels": labels },
        "spec": { "unschedulable": null, "taints": others },
    }))
}

/// Node controllers remove their taints when a node is back.
async fn nodes_are_ready(client: &Client) -> Result<()> {
    let nodes = kinds::nodes(client);
    eventually("all nodes are ready", SOON, async || {
        let nodes = nodes.list(&ListParams::default()).await?;
        nodes.iter().try_for_each(is_ready)
    })
    .await
}

/// Other taints stay: kind's control plane has one, for example.
fn is_ready(node: &DynamicObject) -> Result<()> {
    let taints = node.data["spec"]["taints"].as_array();
    let mut keys = taints.into_iter().flatten().map(|taint| &taint["key"]);
    let of_a_controller = keys.find(|key| {
        key.as_str()
            .is_some_and(|key| key.starts_with(OF_NODE_CONTROLLERS))
    });
    match of_a_controller {
        Some(key) => bail!("{} has the taint {key}", node.name_any()),
        None => Ok(()),
    }
}

/// Removes Belayer's pods and policies, if a scenario left some.
async fn remove_installation(client: &Client) -> Result<()> {
    let belayer = ListParams::default().labels("app.kubernetes.io/part-of=belayer");
    let agent = ListParams::default().labels("app.kubernetes.io/name=belayer-node-agent");
    let mut left = Vec::new();
    for (kind, labels) in [
        (("Deployment", "deployments"), &belayer),
        (("DaemonSet", "daemonsets"), &agent),
    ] {
        let all = kinds::all_workloads(client, kind);
        for object in listed(&all, labels).await? {
            let namespace = object.namespace().unwrap_or_default();
            left.push((
                kinds::workloads(client, &namespace, kind),
                object.name_any(),
            ));
        }
    }
    let mut policies = Vec::new();
    for policy in kinds::policies(client) {
        for object in listed(&policy, &belayer).await? {
            policies.push((policy.clone(), object.name_any()));
        }
    }
    if left.is_empty() && policies.iter().all(|(_, name)| name == GRANTED) {
        return Ok(());
    }
    for (objects, name) in left.iter().chain(&policies) {
        objects
            .delete(name, &DeleteParams::background())
            .await
            .map(drop)
            .or_else(gone)
            .with_context(|| format!("remove {name}"))?;
    }
    grant_permissions(client).await
}

async fn listed(objects: &Objects, labels: &ListParams) -> Result<ObjectList<DynamicObject>> {
    objects
        .list(labels)
        .await
        .context("look for a Belayer that was left")
}

async fn restore_gate(client: &Client) -> Result<()> {
    let deployed = opened_gate()?;
    let gates = kinds::gates(client, "belayer-system");
    let name = deployed.name_any();
    let Some(current) = gates.get_opt(&name).await? else {
        return open_gate(client).await;
    };
    if current.data["data"] == deployed.data["data"] {
        return Ok(());
    }
    let mut restored = deployed;
    restored.metadata.resource_version = current.metadata.resource_version;
    gates
        .replace(&name, &PostParams::default(), &restored)
        .await
        .context("restore the gate")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use belayer_sandbox::{Answer, Fault, Match, Verb};
    use rstest::rstest;

    use super::*;
    use crate::providers::{Provider as _, Sandbox, apply};

    fn node(labels: Value, spec: Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n", "labels": labels }, "spec": spec,
        }))
        .unwrap()
    }

    #[rstest]
    #[case::untouched(json!({ "kubernetes.io/os": "linux" }), json!({}))]
    #[case::of_others(json!({}), json!({ "taints": [{ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" }] }))]
    fn a_node_as_it_should_be_stays(#[case] labels: Value, #[case] spec: Value) {
        assert_eq!(undo(&node(labels, spec)), None);
    }

    #[rstest]
    #[case::none(json!([]), None)]
    #[case::of_a_control_plane(json!([{ "key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule" }]), None)]
    #[case::not_ready(
        json!([{ "key": "node-role.kubernetes.io/control-plane" }, { "key": "node.kubernetes.io/not-ready" }]),
        Some("n has the taint \"node.kubernetes.io/not-ready\"")
    )]
    #[case::not_initialised(
        json!([{ "key": "node.cloudprovider.kubernetes.io/uninitialized" }]),
        Some("n has the taint \"node.cloudprovider.kubernetes.io/uninitialized\"")
    )]
    fn a_node_with_a_taint_of_a_controller_is_not_ready(
        #[case] taints: Value,
        #[case] expected: Option<&str>,
    ) {
        let ready = is_ready(&node(json!({}), json!({ "taints": taints })));
        let refused = ready.err().map(|error| error.to_string());
        assert_eq!(refused.as_deref(), expected);
    }

    #[test]
    fn a_drained_and_marked_node_is_restored() {
        let other = json!({ "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule" });
        let taints = json!([{ "key": "e2e.belayer.dev/evict", "effect": "NoExecute" }, other]);
        let left = node(
            json!({ "e2e-room": "yes", "kubernetes.io/os": "linux" }),
            json!({ "unschedulable": true, "taints": taints }),
        );
        let undone = json!({
            "metadata": { "labels": { "e2e-room": null } },
            "spec": { "unschedulable": null, "taints": [other] },
        });
        assert_eq!(undo(&left), Some(undone));
    }

    /// A sandbox with a cordoned node, which refuses requests of this kind.
    async fn refusing(requests: Match) -> Arc<dyn Backend> {
        let backend = Sandbox::default().start().await.unwrap();
        let nodes = kinds::nodes(backend.client());
        let cordoned = node(json!({}), json!({ "unschedulable": true }));
        nodes
            .create(&PostParams::default(), &cordoned)
            .await
            .unwrap();
        let refused = Fault::on(requests).answer(Answer::forbidden("no"));
        backend.faults().unwrap().inject(refused);
        backend
    }

    #[rstest]
    #[case::nodes_of_scenarios(Verb::DeleteCollection, "nodes", "remove nodes of scenarios")]
    #[case::a_node(Verb::Patch, "nodes", "restore the node n")]
    #[case::the_gate(Verb::Update, "gates", "restore the gate")]
    #[tokio::test]
    async fn what_cannot_be_restored_is_named_and_restored_later(
        #[case] verb: Verb,
        #[case] resource: &str,
        #[case] expected: &str,
    ) {
        let backend = refusing(Match::verb(verb).resource(resource)).await;
        let client = backend.client();
        let gates = kinds::gates(client, "belayer-system");
        let draining = Patch::Merge(json!({ "data": { "mode": "draining" } }));
        let name = opened_gate().unwrap().name_any();
        gates
            .patch(&name, &PatchParams::default(), &draining)
            .await
            .unwrap();

        let refused = restore(&*backend).await.unwrap_err();
        assert_eq!(refused.to_string(), expected);

        backend.faults().unwrap().clear();
        restore(&*backend).await.unwrap();
        let node = kinds::nodes(client).get("n").await.unwrap();
        assert!(node.data["spec"]["unschedulable"].is_null());
        let gate = gates.get(&name).await.unwrap();
        assert_eq!(gate.data["data"]["mode"], "normal");
    }

    #[tokio::test]
    async fn rights_of_options_are_removed() {
        let backend = Sandbox::default().start().await.unwrap();
        let client = backend.client();
        let bindings = kinds::cluster_role_bindings(client);
        for name in APART {
            apply(client, &manifest(name).unwrap()).await.unwrap();
        }
        let cleanup = "belayer-pod-cleanup";
        assert!(bindings.get_opt(cleanup).await.unwrap().is_some());

        restore(&*backend).await.unwrap();
        assert!(bindings.get_opt(cleanup).await.unwrap().is_none());
        let core = bindings.get_opt("belayer-core").await.unwrap();
        assert!(core.is_some(), "a right of every cluster was removed");
    }

    #[tokio::test]
    async fn an_installation_that_cannot_be_removed_is_named() {
        let requests = Match::verb(Verb::Delete).resource("validatingadmissionpolicies");
        let backend = refusing(requests.name("left")).await;
        let client = backend.client();
        let policies = kinds::policies(client);
        let left: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": { "name": "left", "labels": { "app.kubernetes.io/part-of": "belayer" } },
            "spec": {
                "matchConstraints": { "resourceRules": [] },
                "validations": [{ "expression": "true" }],
            },
        }))
        .unwrap();
        let kind = policies.iter().find(|kind| {
            kind.resource_url()
                .ends_with("/validatingadmissionpolicies")
        });
        let kind = kind.unwrap();
        kind.create(&PostParams::default(), &left).await.unwrap();

        let refused = remove_installation(client).await.unwrap_err();
        assert_eq!(refused.to_string(), "remove left");

        backend.faults().unwrap().clear();
        remove_installation(client).await.unwrap();
        assert!(kind.get_opt("left").await.unwrap().is_none());
    }
}
