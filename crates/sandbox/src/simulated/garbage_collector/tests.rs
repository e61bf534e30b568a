use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};

use super::decide::{GcStep, Served, decide};
use super::graph::{Graph, Wish};
use crate::address::Gvr;
use crate::cluster::{DeleteOptions, Propagation};
use crate::simulated::testing::{NS, World, bare_cluster, bound, map, world};
use crate::simulated::{SimulatedController, SimulatedControllers, object};

const MAPS: Gvr = Gvr::CONFIGMAPS;

// --- decisions ---

/// An object of the table: UID, namespace, UIDs of its owners (`!` prefix: blocking), finalizer
/// if it is being deleted (`-` for an unrelated one).
type Row = (
    &'static str,
    Option<&'static str>,
    &'static str,
    Option<&'static str>,
);

fn graph(rows: &[Row]) -> Graph {
    let mut graph = Graph::default();
    for (uid, namespace, owners, deleting) in rows {
        let owners: Vec<Value> = owners
            .split_whitespace()
            .map(|owner| {
                let (uid, blocks) = match owner.strip_prefix('!') {
                    Some(uid) => (uid, true),
                    None => (owner, false),
                };
                json!({
                    "apiVersion": "v1", "kind": "K", "name": uid, "uid": uid,
                    "blockOwnerDeletion": blocks,
                })
            })
            .collect();
        let mut object = json!({"metadata": {
            "name": uid, "uid": uid, "namespace": namespace, "ownerReferences": owners,
        }});
        if let Some(finalizer) = deleting {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            object["metadata"]["finalizers"] = json!([finalizer]);
        }
        graph.upsert(&MAPS, &object);
    }
    graph
}

const A: Option<&str> = Some("a");
const B: Option<&str> = Some("b");
const FOREGROUND: Option<&str> = Some("foregroundDeletion");
const ORPHAN: Option<&str> = Some("orphan");
const OTHER: Option<&str> = Some("-");

fn drop_owners(owners: &[&str]) -> GcStep {
    GcStep::DropOwners(owners.iter().map(|owner| (*owner).into()).collect())
}

#[rstest]
#[case::without_owners_it_stays(&[("x", A, "", None)], GcStep::Nothing)]
#[case::with_a_living_owner_too(&[("o", A, "", None), ("x", A, "o", None)], GcStep::Nothing)]
#[case::an_absent_owner_takes_it_along(&[("x", A, "o", None)], GcStep::Delete(Wish::Background))]
#[case::as_does_one_of_another_namespace(
    &[("o", B, "", None), ("x", A, "o", None)], GcStep::Delete(Wish::Background)
)]
#[case::a_cluster_scoped_owner_counts_everywhere(
    &[("o", None, "", None), ("x", A, "o", None)], GcStep::Nothing
)]
#[case::a_namespaced_owner_of_a_cluster_scoped_object_is_never_resolved(
    &[("o", A, "", None), ("x", None, "o", None)], GcStep::Nothing
)]
#[case::one_owner_of_two_is_enough_to_stay(
    &[("o", A, "", None), ("x", A, "o gone", None)], drop_owners(&["gone"])
)]
#[case::none_of_two_is_not(&[("x", A, "gone lost", None)], GcStep::Delete(Wish::Background))]
#[case::what_is_being_deleted_already_is_left_alone(&[("x", A, "gone", OTHER)], GcStep::Nothing)]
#[case::an_owner_that_waits_wants_it_gone(
    &[("o", A, "", FOREGROUND), ("x", A, "!o", None)], GcStep::Delete(Wish::Background)
)]
#[case::with_its_own_dependents_first(
    &[("o", A, "", FOREGROUND), ("x", A, "!o", None), ("y", A, "x", None)],
    GcStep::Delete(Wish::Foreground)
)]
#[case::unless_another_owner_keeps_it(
    &[("o", A, "", FOREGROUND), ("p", A, "", None), ("x", A, "!o p", None)], drop_owners(&["o"])
)]
#[case::a_ring_is_broken(
    &[("o", A, "x", FOREGROUND), ("x", A, "!o", None)], GcStep::Unblock
)]
#[case::a_broken_ring_goes(
    &[("o", A, "x", FOREGROUND), ("x", A, "o", None)], GcStep::Delete(Wish::Foreground)
)]
#[case::an_owner_waits_for_blocking_dependents(
    &[("x", A, "", FOREGROUND), ("d", A, "!x", OTHER)], GcStep::Nothing
)]
#[case::but_for_no_others(
    &[("x", A, "", FOREGROUND), ("d", A, "x", OTHER)], GcStep::EndForeground
)]
#[case::nor_for_those_of_another_namespace(
    &[("x", A, "", FOREGROUND), ("d", B, "!x", OTHER)], GcStep::EndForeground
)]
#[case::an_orphaning_owner_is_forgotten(
    &[("o", A, "", ORPHAN), ("x", A, "!o", None)], drop_owners(&["o"])
)]
#[case::even_by_what_is_being_deleted(
    &[("o", A, "", ORPHAN), ("x", A, "!o", OTHER)], drop_owners(&["o"])
)]
#[case::it_waits_until_it_is(&[("x", A, "", ORPHAN), ("d", A, "x", None)], GcStep::Nothing)]
#[case::then_it_goes(&[("x", A, "", ORPHAN)], GcStep::EndOrphaning)]
fn table(#[case] rows: &[Row], #[case] expected: GcStep) {
    assert_eq!(decide(&graph(rows), "x", |_| Served::Namespaced), expected);
}

#[rstest]
#[case::a_kind_nobody_serves_proves_nothing(Served::No, A, GcStep::Nothing)]
#[case::a_served_one_does(Served::Namespaced, A, GcStep::Delete(Wish::Background))]
#[case::of_either_scope(Served::ClusterScoped, A, GcStep::Delete(Wish::Background))]
#[case::a_namespaced_owner_of_a_cluster_scoped_object_never(
    Served::Namespaced,
    None,
    GcStep::Nothing
)]
#[case::a_cluster_scoped_one_does(Served::ClusterScoped, None, GcStep::Delete(Wish::Background))]
fn an_owner_never_seen(
    #[case] served: Served,
    #[case] namespace: Option<&'static str>,
    #[case] expected: GcStep,
) {
    assert_eq!(
        decide(&graph(&[("x", namespace, "o", None)]), "x", |_| served),
        expected
    );
}

#[test]
fn an_owner_that_was_removed_together_with_its_kind_is_gone() {
    let mut graph = graph(&[("o", A, "", None), ("x", A, "o", None)]);
    assert_eq!(graph.remove("o"), ["x".into()]);
    assert_eq!(
        decide(&graph, "x", |_| Served::No),
        GcStep::Delete(Wish::Background)
    );
}

#[test]
fn unrelated_changes_queue_nothing() {
    let rows: &[Row] = &[("o", A, "", None), ("x", A, "o", None)];
    let mut graph = graph(rows);
    let same =
        json!({"metadata": {"name": "o", "uid": "o", "namespace": "a", "labels": {"a": "b"}}});
    assert_eq!(graph.upsert(&MAPS, &same), Vec::<super::graph::Uid>::new());
}

// --- the controller ---

fn collector() -> SimulatedControllers {
    SimulatedControllers::none().with(SimulatedController::GarbageCollector)
}

#[tokio::test(start_paused = true)]
async fn background_deletion_deletes_dependents_level_by_level() {
    let world = world(collector());
    let a = world.create(&MAPS, map("a", &[]));
    let b = world.create(&MAPS, map("b", &[("a", &a, true)]));
    world.create(&MAPS, map("c", &[("b", &b, true)]));
    world.create(&MAPS, map("stranger", &[]));
    world.settle().await;
    world.delete(&MAPS, "a");
    world.settle().await;
    assert_eq!(world.names(&MAPS), ["stranger"]);
    assert_eq!(
        world.written_by(super::ACTOR),
        ["delete configmaps b", "delete configmaps c"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_dependent_created_after_its_owner_was_deleted_is_collected() {
    let world = world(collector());
    world.create(&MAPS, map("late", &[("a", "no-such-uid", true)]));
    world.settle().await;
    assert!(world.names(&MAPS).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_recreated_owner_of_the_same_name_is_a_different_owner() {
    let world = world(collector());
    let a = world.create(&MAPS, map("a", &[]));
    world.create(&MAPS, map("b", &[("a", &a, false)]));
    world.delete(&MAPS, "a");
    world.create(&MAPS, map("a", &[]));
    world.settle().await;
    assert_eq!(world.names(&MAPS), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn foreground_deletion_deletes_the_owner_last() {
    let world = world(collector());
    let a = world.create(&MAPS, map("a", &[]));
    world.create(&MAPS, map("b", &[("a", &a, true)]));
    world.create(&MAPS, map("held", &[("a", &a, true)]));
    world.patch(&MAPS, "held", json!({"metadata": {"finalizers": ["x/y"]}}));
    world.delete_by(&MAPS, "a", Propagation::Foreground);
    world.settle().await;
    assert_eq!(world.names(&MAPS), ["a", "held"]);
    world.patch(&MAPS, "held", json!({"metadata": {"finalizers": null}}));
    world.settle().await;
    assert!(world.names(&MAPS).is_empty());
    assert_eq!(
        world.written_by(super::ACTOR).last().map(String::as_str),
        Some("patch configmaps a")
    );
}

#[tokio::test(start_paused = true)]
async fn orphans_lose_their_owner_reference_and_stay() {
    let world = world(collector());
    let a = world.create(&MAPS, map("a", &[]));
    let p = world.create(&MAPS, map("p", &[]));
    world.create(&MAPS, map("b", &[("a", &a, true)]));
    world.create(&MAPS, map("c", &[("a", &a, true), ("p", &p, false)]));
    world.delete_by(&MAPS, "a", Propagation::Orphan);
    world.settle().await;
    assert_eq!(world.names(&MAPS), ["b", "c", "p"]);
    let owners = |name| {
        let object = world.get(&MAPS, name).unwrap();
        object::items(&object, "/metadata/ownerReferences").to_vec()
    };
    assert!(owners("b").is_empty());
    assert_eq!(owners("c").len(), 1);
    assert_eq!(owners("c")[0]["uid"], json!(p));
}

#[tokio::test(start_paused = true)]
async fn a_dependent_with_two_owners_stays_until_the_last_is_gone() {
    let world = world(collector());
    let a = world.create(&MAPS, map("a", &[]));
    let b = world.create(&MAPS, map("b", &[]));
    world.create(&MAPS, map("c", &[("a", &a, true), ("b", &b, true)]));
    world.delete(&MAPS, "a");
    world.settle().await;
    assert_eq!(world.names(&MAPS), ["b", "c"]);
    world.delete(&MAPS, "b");
    world.settle().await;
    assert!(world.names(&MAPS).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cycle_in_foreground_deletion_does_not_hang() {
    let world = world(collector());
    let a = world.create(&MAPS, map("a", &[]));
    let b = world.create(&MAPS, map("b", &[("a", &a, true)]));
    let owner = map("a", &[("b", &b, true)]);
    world.patch(&MAPS, "a", owner);
    world.delete_by(&MAPS, "a", Propagation::Foreground);
    world.pass(Duration::from_secs(60)).await;
    assert!(world.names(&MAPS).is_empty());
}

#[tokio::test(start_paused = true)]
async fn changes_before_its_start_or_lost_to_compaction_are_found() {
    let world = World::around(bare_cluster(), SimulatedControllers::none());
    let a = world.create(&MAPS, map("a", &[]));
    world.create(&MAPS, map("b", &[("a", &a, true)]));
    world.delete(&MAPS, "a");
    let world = World::around(world.cluster.clone(), collector());
    world.settle().await;
    assert!(world.names(&MAPS).is_empty());

    let a = world.create(&MAPS, map("a", &[]));
    world.create(&MAPS, map("b", &[("a", &a, true)]));
    world.settle().await;
    world.delete(&MAPS, "a");
    world.cluster.compact(u64::MAX);
    world.settle().await;
    assert!(world.names(&MAPS).is_empty());
}

#[tokio::test(start_paused = true)]
async fn eight_thousand_pods_behind_one_owner_are_deleted_once_each() {
    let world = world(collector());
    let owner = world.create(&MAPS, map("owner", &[]));
    for i in 0..8_000 {
        let mut pod = bound(&format!("pod-{i}"), "node-1", json!({}));
        pod["metadata"]["finalizers"] = json!(["x/y"]);
        pod["metadata"]["ownerReferences"] =
            map("", &[("owner", &owner, true)])["metadata"]["ownerReferences"].clone();
        world.create(&Gvr::PODS, pod);
    }
    world.settle().await;
    world.delete(&MAPS, "owner");
    world.settle().await;
    let page = world
        .cluster
        .list(&Gvr::PODS, Some(NS), &Default::default())
        .unwrap();
    assert!(page.items.iter().all(|pod| object::is_deleting(pod)));
    assert_eq!(world.written_by(super::ACTOR).len(), 8_000);
}

#[tokio::test(start_paused = true)]
async fn eight_thousand_dependents_cost_one_write_each() {
    for policy in [Propagation::Foreground, Propagation::Orphan] {
        let world = world(collector());
        let owner = world.create(&MAPS, map("owner", &[]));
        for i in 0..8_000 {
            world.create(&MAPS, map(&format!("map-{i}"), &[("owner", &owner, true)]));
        }
        world.settle().await;
        world.delete_by(&MAPS, "owner", policy);
        world.settle().await;
        let left = if policy == Propagation::Orphan {
            8_000
        } else {
            0
        };
        assert_eq!(world.names(&MAPS).len(), left);
        // One write for each dependent, and a few for the owner.
        let writes = world.written_by(super::ACTOR).len();
        assert!((8_000..8_010).contains(&writes), "{writes}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_collected_pod_gets_its_grace_period() {
    let world = world(collector());
    let owner = world.create(&MAPS, map("owner", &[]));
    let mut pod = bound("p", "node-1", json!({}));
    pod["metadata"]["ownerReferences"] =
        map("", &[("owner", &owner, true)])["metadata"]["ownerReferences"].clone();
    world.create(&Gvr::PODS, pod);
    world.delete_with(&MAPS, "owner", DeleteOptions::default());
    world.settle().await;
    assert_eq!(
        world.pod("p")["metadata"]["deletionGracePeriodSeconds"],
        json!(30)
    );
}
