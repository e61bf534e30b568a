use serde_json::{Value, json};

use super::*;
use crate::simulated::{SimulatedController, SimulatedControllers};
use crate::{DeleteOptions, Patch, Sandbox, Subresource, WriteOptions};

fn sandbox() -> Sandbox {
    Sandbox::builder().seed(1).build()
}

fn create(sandbox: &Sandbox, actor: &str, name: &str) {
    let map = json!({"metadata": {"name": name}});
    let options = WriteOptions::default();
    let _ = sandbox.cluster().create(
        &actor.into(),
        &Gvr::CONFIGMAPS,
        Some("default"),
        map,
        &options,
    );
}

fn failure(assertion: impl FnOnce()) -> String {
    let assertion = std::panic::AssertUnwindSafe(assertion);
    let panic = std::panic::catch_unwind(assertion).unwrap_err();
    panic.downcast_ref::<String>().unwrap().clone()
}

#[test]
fn a_filter_selects_by_actor_verb_object_and_result() {
    let sandbox = sandbox();
    create(&sandbox, "ann", "a");
    create(&sandbox, "ben", "a");
    create(&sandbox, "ben", "b");
    let count = |filter: WriteFilter| sandbox.recorder().count_of(&filter);
    assert_eq!(count(WriteFilter::any()), 3);
    assert_eq!(count(WriteFilter::any().by("ben")), 2);
    assert_eq!(count(WriteFilter::any().by("ben").applied()), 1);
    assert_eq!(count(WriteFilter::any().refused()), 1);
    assert_eq!(count(WriteFilter::any().verb(Verb::Patch)), 0);
    assert_eq!(
        count(WriteFilter::any().resource("configmaps").name("a")),
        2
    );
    assert_eq!(count(WriteFilter::any().resource("configmaps.x.dev")), 0);
    assert_eq!(count(WriteFilter::any().namespace("other")), 0);
    assert_eq!(count(WriteFilter::any().subresource("status")), 0);
    sandbox.recorder().assert_count(&WriteFilter::any(), 3);
}

#[test]
fn a_failed_assertion_shows_the_difference() {
    let sandbox = sandbox();
    let mark = sandbox.recorder().mark();
    create(&sandbox, "ann", "a");
    create(&sandbox, "ann", "b");
    let recorder = sandbox.recorder().clone();
    let expected = [
        "ann create v1/configmaps default/a applied",
        "ann create v1/configmaps default/c applied",
    ];
    let message = failure(move || recorder.assert_writes(mark, &WriteFilter::any(), expected));
    assert_eq!(
        message,
        "recorded writes differ (- expected, + written):\n  \
         ann create v1/configmaps default/a applied\n\
         - ann create v1/configmaps default/c applied\n\
         + ann create v1/configmaps default/b applied"
    );
    let recorder = sandbox.recorder().clone();
    let message = failure(move || recorder.assert_quiet_since(mark, &WriteFilter::any().by("ann")));
    assert!(
        message.starts_with("expected no writes, found 2:"),
        "{message}"
    );
    let now = sandbox.recorder().mark();
    sandbox
        .recorder()
        .assert_quiet_since(now, &WriteFilter::any());
}

fn crd() -> Value {
    json!({
        "metadata": {"name": "things.x.dev"},
        "spec": {
            "group": "x.dev", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

/// Writes of the server as a consequence of another write are recorded too.
#[test]
fn instances_deleted_with_their_definition_are_recorded() {
    let sandbox = sandbox();
    let cluster = sandbox.cluster();
    let user = Actor::new("user");
    let (definitions, things) = (
        Gvr::CUSTOMRESOURCEDEFINITIONS,
        Gvr::new("x.dev", "v1", "things"),
    );
    let options = WriteOptions::default();
    cluster
        .create(&user, &definitions, None, crd(), &options)
        .unwrap();
    for (name, finalizers) in [("free", json!([])), ("held", json!(["x.dev/hold"]))] {
        let thing = json!({
            "apiVersion": "x.dev/v1", "kind": "Thing",
            "metadata": {"name": name, "finalizers": finalizers},
        });
        cluster
            .create(&user, &things, Some("default"), thing, &options)
            .unwrap();
    }
    let mark = sandbox.recorder().mark();
    let delete = DeleteOptions::default();
    cluster
        .delete(&user, &definitions, None, "things.x.dev", &delete)
        .unwrap();
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    cluster
        .patch(
            &user,
            &things,
            Some("default"),
            "held",
            release,
            Subresource::None,
            &options,
        )
        .unwrap();
    sandbox.recorder().assert_writes(
        mark,
        &WriteFilter::any(),
        [
            "user delete apiextensions.k8s.io/v1/customresourcedefinitions things.x.dev applied",
            "kube-apiserver delete x.dev/v1/things default/free applied",
            "kube-apiserver delete x.dev/v1/things default/held applied",
            "user patch x.dev/v1/things default/held applied",
            "kube-apiserver update apiextensions.k8s.io/v1/customresourcedefinitions/status things.x.dev applied",
        ],
    );
}

/// Every change has its own version, so every version must be in the record.
#[tokio::test(start_paused = true)]
async fn every_change_of_the_store_is_in_the_record_with_its_actor() {
    let sandbox = Sandbox::builder()
        .seed(3)
        .controllers(SimulatedControllers::all().without(SimulatedController::PodGc))
        .build();
    let cluster = sandbox.cluster();
    let user = Actor::new("user");
    let from = cluster.version();
    let options = WriteOptions::default();
    cluster
        .create(
            &user,
            &Gvr::CUSTOMRESOURCEDEFINITIONS,
            None,
            crd(),
            &options,
        )
        .unwrap();
    let namespace = json!({"metadata": {"name": "n"}});
    cluster
        .create(&user, &Gvr::NAMESPACES, None, namespace, &options)
        .unwrap();
    let thing = json!({"apiVersion": "x.dev/v1", "kind": "Thing", "metadata": {"name": "t"}});
    cluster
        .create(
            &user,
            &Gvr::new("x.dev", "v1", "things"),
            Some("n"),
            thing,
            &options,
        )
        .unwrap();
    let pod = crate::simulated::testing::pod("p", json!({}));
    cluster
        .create(&user, &Gvr::PODS, Some("n"), pod, &options)
        .unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    let delete = DeleteOptions::default();
    for (gvr, name) in [
        (Gvr::CUSTOMRESOURCEDEFINITIONS, "things.x.dev"),
        (Gvr::NAMESPACES, "n"),
    ] {
        cluster.delete(&user, &gvr, None, name, &delete).unwrap();
    }
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    let mut log = cluster.subscribe(None, from);
    let mut changes = Vec::new();
    while let Some(event) = log.try_next().unwrap() {
        changes.push(format!("{} {}", event.resource.resource, event.key));
    }
    let recorded = sandbox.recorder().matching(&WriteFilter::any().applied());
    let mut written: Vec<String> = recorded
        .iter()
        .map(|w| format!("{} {}", w.resource.resource, w.key))
        .collect();
    // Some requests make two changes, so consecutive duplicates are removed.
    written.dedup();
    changes.dedup();
    for change in &changes {
        assert!(written.contains(change), "{change} is not in the record");
    }
}

#[test]
fn recording_counts_keeps_no_objects() {
    let clock = Clock::new(crate::Epoch::Fixed(Timestamp::UNIX_EPOCH));
    let recorder = Recorder::new(clock, Recording::Counts);
    recorder.count(&Actor::new("a"), Verb::Get, "pods");
    assert_eq!(recorder.requests("a", Verb::Get, "pods"), 1);
    assert!(recorder.writes().is_empty());
}
