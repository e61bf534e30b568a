//! Tests of the runner.

use std::time::Duration;

use anyhow::bail;
use belayer_sandbox::{Answer, Fault, Match, Verb};
use futures::future::BoxFuture;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;

use super::*;
use crate::harness::pod;
use crate::kinds;
use crate::providers::Sandbox;

/// One cluster for all scenarios, as with the providers whose clusters take long to start.
struct KeptSandbox;

impl Provider for KeptSandbox {
    fn name(&self) -> &'static str {
        "sandbox"
    }

    fn clusters(&self) -> Clusters {
        Clusters::Kept(1)
    }

    fn large(&self) -> usize {
        1
    }

    fn start(&self) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        Box::pin(async { Sandbox::default().start().await })
    }
}

const NODE: &str = "worker";

async fn fails_amid_a_drain(cluster: Cluster) -> Result<()> {
    let node: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE, "labels": { "e2e-room": "yes" } },
    }))?;
    let nodes = kinds::nodes(cluster.client());
    nodes.create(&PostParams::default(), &node).await?;
    cluster.create(&pod("a").held().on_node(NODE)).await?;
    let taint = json!({ "key": "e2e.belayer.dev/evict", "effect": "NoExecute" });
    let drained = json!({ "spec": { "unschedulable": true, "taints": [taint] } });
    nodes
        .patch(NODE, &PatchParams::default(), &Patch::Merge(drained))
        .await?;
    cluster.delete("a").await?;
    bail!("the drain does not end")
}

async fn finds_all_as_it_was(cluster: Cluster) -> Result<()> {
    let node = kinds::nodes(cluster.client()).get(NODE).await?;
    let spec = &node.data["spec"];
    ensure!(spec["unschedulable"].is_null(), "{spec}");
    ensure!(
        spec["taints"].as_array().is_none_or(Vec::is_empty),
        "{spec}"
    );
    ensure!(node.metadata.labels.is_none_or(|all| all.is_empty()));
    cluster.nothing_is_held().await
}

#[tokio::test]
async fn a_scenario_that_fails_amid_a_drain_does_not_fail_the_next_one() {
    // The longest deadline comes first.
    let all = vec![
        Scenario::alone("next", "", finds_all_as_it_was).within(Duration::from_secs(59)),
        Scenario::alone("drain", "", fails_amid_a_drain).within(Duration::from_secs(60)),
    ];
    let files = tempfile::tempdir().unwrap();
    let options = named(&[]);
    let run = run_in(files.path(), &KeptSandbox, all, &options);
    let summary = run.await.unwrap();
    assert_eq!((summary.passed, summary.failed), (1, 1));
}

const KEPT: &str = "e2e-first";

/// Its namespace is removed only with this ServiceAccount.
async fn leaves_an_object_with_a_finalizer(cluster: Cluster) -> Result<()> {
    let kept = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "kept", "finalizers": ["example.com/kept"] },
    });
    let accounts = kinds::service_accounts(cluster.client(), KEPT);
    let account = serde_json::from_value(kept)?;
    accounts.create(&PostParams::default(), &account).await?;
    Ok(())
}

async fn removes_it(cluster: Cluster) -> Result<()> {
    let namespace = kinds::namespaces(cluster.client()).get(KEPT).await?;
    ensure!(namespace.metadata.deletion_timestamp.is_some());
    let none = json!({ "metadata": { "finalizers": null } });
    kinds::service_accounts(cluster.client(), KEPT)
        .patch("kept", &PatchParams::default(), &Patch::Merge(none))
        .await?;
    Ok(())
}

#[tokio::test]
async fn the_next_scenario_does_not_wait_until_a_namespace_is_removed() {
    let all = vec![
        Scenario::alone("next", "", removes_it).within(Duration::from_secs(59)),
        Scenario::alone("first", "", leaves_an_object_with_a_finalizer)
            .within(Duration::from_secs(60)),
    ];
    let files = tempfile::tempdir().unwrap();
    let run = run_in(files.path(), &KeptSandbox, all, &named(&[])).await;
    let summary = run.unwrap();
    assert_eq!((summary.passed, summary.failed), (2, 0));
}

/// The server refuses the next two writes to nodes: those that restore the cluster after this scenario, and before the
/// next one.
async fn fails_and_cannot_be_restored(cluster: Cluster) -> Result<()> {
    let failed = fails_amid_a_drain(cluster.clone()).await;
    let restored = Match::verb(Verb::Patch).resource("nodes").name(NODE);
    let refused = Fault::on(restored).answer(Answer::forbidden("no")).times(2);
    cluster.faults()?.inject(refused);
    failed
}

#[tokio::test]
async fn a_cluster_that_cannot_be_restored_fails_the_next_scenario_and_no_other() {
    let all = vec![
        Scenario::alone("third", "", finds_all_as_it_was).within(Duration::from_secs(58)),
        Scenario::alone("second", "", finds_all_as_it_was).within(Duration::from_secs(59)),
        Scenario::alone("first", "", fails_and_cannot_be_restored).within(Duration::from_secs(60)),
    ];
    let files = tempfile::tempdir().unwrap();
    let run = run_in(files.path(), &KeptSandbox, all, &named(&[])).await;
    let summary = run.unwrap();
    assert_eq!((summary.passed, summary.failed), (1, 2));
}

fn named(names: &[&str]) -> RunOptions {
    RunOptions {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        which: Which::Usual,
        keep: Keep::Nothing,
        setting: Setting {
            belayer: "belayer".into(),
            quiet: Duration::ZERO,
            large: 1,
        },
    }
}

fn scenarios() -> Vec<Scenario> {
    let nothing = |_| async { Ok(()) };
    vec![
        Scenario::shared("row-05-owner-gone", "", nothing),
        Scenario::alone("kill-9", "", nothing),
    ]
}

fn names(chosen: &[Scenario]) -> Vec<&str> {
    chosen.iter().map(Scenario::name).collect()
}

#[test]
fn without_names_all_are_chosen() {
    assert_eq!(
        names(&choose(scenarios(), &named(&[]), None).unwrap()),
        ["row-05-owner-gone", "kill-9"]
    );
}

#[test]
fn without_names_those_that_the_provider_is_made_for_are_chosen() {
    let mut all = scenarios();
    all.push(Scenario::alone("real", "", |_| async { Ok(()) }).needs([Capability::RealNode]));
    let real = Some(Capability::RealNode);
    assert_eq!(count(&all, &named(&[]), real), (1, 3));
    assert_eq!(count(&all, &named(&["kill"]), real), (1, 1));
    let chosen = choose(all, &named(&[]), real).unwrap();
    assert_eq!(names(&chosen), ["real"]);
}

#[test]
fn nightly_scenarios_run_by_name_or_if_requested() {
    let all = || {
        let slow = Scenario::alone("slow", "", |_| async { Ok(()) }).nightly();
        scenarios().into_iter().chain([slow]).collect()
    };
    let chosen = |options: &RunOptions| {
        let chosen = choose(all(), options, None).unwrap();
        names(&chosen).join(" ")
    };
    assert_eq!(chosen(&named(&[])), "row-05-owner-gone kill-9");
    assert_eq!(chosen(&named(&["slow"])), "slow");
    let nightly = RunOptions {
        which: Which::Nightly,
        ..named(&[])
    };
    assert_eq!(chosen(&nightly), "slow");
}

#[test]
fn the_smoke_test_is_chosen() {
    let marked = Scenario::shared("marked", "", |_| async { Ok(()) }).smoke();
    let all = scenarios().into_iter().chain([marked]).collect();
    let smoke = RunOptions {
        which: Which::Smoke,
        ..named(&[])
    };
    assert_eq!(names(&choose(all, &smoke, None).unwrap()), ["marked"]);
}

#[test]
fn a_part_of_a_name_chooses() {
    let chosen = choose(scenarios(), &named(&["row-"]), None).unwrap();
    assert_eq!(names(&chosen), ["row-05-owner-gone"]);
}

#[test]
fn an_unknown_name_is_refused() {
    let refused = choose(scenarios(), &named(&["rope"]), None)
        .err()
        .unwrap()
        .to_string();
    assert!(refused.contains("no scenario matches rope"), "{refused}");
}

#[test]
fn two_of_one_name_are_refused() {
    let twice = scenarios().into_iter().chain(scenarios()).collect();
    assert!(choose(twice, &named(&[]), None).is_err());
}
