use std::time::Duration;

use serde_json::{Value, json};

use super::ACTOR;
use crate::address::{Gvr, Subresource};
use crate::cluster::{Patch, WriteOptions};
use crate::simulated::testing::{World, bare_cluster, bound, map, world};
use crate::simulated::{SimulatedController, SimulatedControllers, object};

const MAPS: Gvr = Gvr::CONFIGMAPS;
const DOOMED: Option<&str> = Some("doomed");

fn controller() -> SimulatedControllers {
    SimulatedControllers::none().with(SimulatedController::Namespaces)
}

fn namespace(world: &World) {
    let namespace = json!({"metadata": {"name": "doomed"}});
    world.create_in(&Gvr::NAMESPACES, None, namespace);
}

/// Replaces the finalizers.
fn hold(world: &World, gvr: &Gvr, name: &str, finalizers: Value) {
    let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    let options = WriteOptions::default();
    world
        .cluster
        .patch(
            &"user".into(),
            gvr,
            DOOMED,
            name,
            patch,
            Subresource::None,
            &options,
        )
        .unwrap();
}

fn condition(world: &World, kind: &str) -> (String, String) {
    let namespace = world.get(&Gvr::NAMESPACES, "doomed").unwrap();
    let conditions = object::items(&namespace, "/status/conditions");
    let condition = conditions.iter().find(|c| c["type"] == kind).unwrap();
    let text = |field: &str| condition[field].as_str().unwrap().to_owned();
    (text("status"), text("message"))
}

#[tokio::test(start_paused = true)]
async fn an_empty_namespace_is_deleted_at_once() {
    let world = world(controller());
    namespace(&world);
    world.delete(&Gvr::NAMESPACES, "doomed");
    world.settle().await;
    assert!(world.get(&Gvr::NAMESPACES, "doomed").is_none());
    assert_eq!(
        world.written_by(ACTOR),
        [
            "patch namespaces/status doomed",
            "update namespaces/finalize doomed"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn pods_are_deleted_before_anything_else() {
    let world = world(controller());
    namespace(&world);
    world.create_in(&Gvr::PODS, DOOMED, bound("p", "node-1", json!({})));
    world.create_in(&MAPS, DOOMED, map("m", &[]));
    hold(&world, &Gvr::PODS, "p", json!(["x/y"]));
    hold(&world, &MAPS, "m", json!(["x/y", "x/z"]));
    world.delete(&Gvr::NAMESPACES, "doomed");
    world.pass(Duration::from_secs(60)).await;
    let map_object = world.cluster.get(&MAPS, DOOMED, "m").unwrap();
    assert!(!object::is_deleting(&map_object));
    let pod = world.cluster.get(&Gvr::PODS, DOOMED, "p").unwrap();
    assert!(object::is_deleting(&pod));
    // Seen on a real cluster: the conditions claim that all content is gone.
    let removed = "All content successfully removed".to_owned();
    assert_eq!(
        condition(&world, "NamespaceContentRemaining"),
        ("False".to_owned(), removed.clone())
    );

    hold(&world, &Gvr::PODS, "p", Value::Null);
    let now = crate::cluster::DeleteOptions {
        grace_period_seconds: Some(0),
        ..Default::default()
    };
    world
        .cluster
        .delete(&"kubelet".into(), &Gvr::PODS, DOOMED, "p", &now)
        .unwrap();
    world.pass(Duration::from_secs(2)).await;
    let map_object = world.cluster.get(&MAPS, DOOMED, "m").unwrap();
    assert!(object::is_deleting(&map_object));
    assert_eq!(
        condition(&world, "NamespaceContentRemaining"),
        (
            "True".to_owned(),
            "Some resources are remaining: configmaps. has 1 resource instances".to_owned()
        )
    );
    assert_eq!(
        condition(&world, "NamespaceFinalizersRemaining"),
        (
            "True".to_owned(),
            "Some content in the namespace has finalizers remaining: x/y in 1 resource \
             instances, x/z in 1 resource instances"
                .to_owned()
        )
    );

    hold(&world, &MAPS, "m", Value::Null);
    world.settle().await;
    assert!(world.get(&Gvr::NAMESPACES, "doomed").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_waiting_namespace_causes_no_writes() {
    let world = world(controller());
    namespace(&world);
    world.create_in(&MAPS, DOOMED, map("m", &[]));
    hold(&world, &MAPS, "m", json!(["x/y"]));
    world.delete(&Gvr::NAMESPACES, "doomed");
    world.pass(Duration::from_secs(5)).await;
    let before = world.written_by(ACTOR).len();
    world.pass(Duration::from_secs(3_600)).await;
    assert_eq!(world.written_by(ACTOR).len(), before);
}

#[tokio::test(start_paused = true)]
async fn conditions_are_written_at_most_once_a_second() {
    let world = world(controller());
    namespace(&world);
    for i in 0..50 {
        world.create_in(&MAPS, DOOMED, map(&format!("m{i}"), &[]));
        hold(&world, &MAPS, &format!("m{i}"), json!(["x/y"]));
    }
    world.delete(&Gvr::NAMESPACES, "doomed");
    for i in 0..50 {
        world.pass(Duration::from_millis(100)).await;
        hold(&world, &MAPS, &format!("m{i}"), Value::Null);
    }
    world.settle().await;
    assert!(world.get(&Gvr::NAMESPACES, "doomed").is_none());
    let reports = world
        .written_by(ACTOR)
        .iter()
        .filter(|w| w.contains("namespaces/status"))
        .count();
    assert!((2..9).contains(&reports), "{reports}");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_from_before_the_start_is_carried_out() {
    let world = World::around(bare_cluster(), SimulatedControllers::none());
    namespace(&world);
    world.create_in(&MAPS, DOOMED, map("m", &[]));
    world.delete(&Gvr::NAMESPACES, "doomed");
    let world = World::around(world.cluster.clone(), controller());
    world.settle().await;
    assert!(world.get(&Gvr::NAMESPACES, "doomed").is_none());
}

#[tokio::test(start_paused = true)]
async fn eight_thousand_pods_are_deleted_with_their_namespace() {
    let world = world(controller());
    namespace(&world);
    for i in 0..8_000 {
        let pod = crate::simulated::testing::pod(&format!("p{i}"), json!({}));
        world.create_in(&Gvr::PODS, DOOMED, pod);
    }
    world.settle().await;
    world.delete(&Gvr::NAMESPACES, "doomed");
    world.settle().await;
    assert!(world.get(&Gvr::NAMESPACES, "doomed").is_none());
    let writes = world.written_by(super::ACTOR);
    let deletes = writes.iter().filter(|w| w.starts_with("delete")).count();
    assert_eq!(deletes, 8_000, "each pod is deleted once");
    assert!(writes.len() < 8_000 + 10, "{} writes", writes.len());
}
