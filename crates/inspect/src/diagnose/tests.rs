//! Reports about objects of a sandbox, in which only the test changes objects.

use std::collections::BTreeSet;

use belayer_core::executor::Bounds;
use belayer_sandbox::{
    Actor, DeleteOptions, Gvr, Patch, Propagation, Sandbox, Subresource, WriteOptions,
};
use jiff::ToSpan as _;
use rstest::rstest;
use serde_json::{Value, json};

use super::{Diagnosis, Like, STEPS, group};
use crate::explain::Belayer;
use crate::reader::Reader;
use crate::report::{Cause, Group, Report, Step, Verdict};
use crate::scan::Silent;
use crate::stuck::{Query, stuck};

struct World(Sandbox);

impl World {
    fn new(objects: &[Value]) -> Self {
        let world = Self(Sandbox::builder().build());
        let namespaces = objects.iter();
        let namespaces: BTreeSet<_> = namespaces
            .filter_map(|object| object["metadata"]["namespace"].as_str())
            .filter(|name| *name != "default")
            .collect();
        let namespaces = namespaces.into_iter().map(
            |name| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }),
        );
        for object in namespaces.chain(objects.iter().cloned()) {
            world.0.load_yaml(&object.to_string()).unwrap();
        }
        world
    }

    fn delete(&self, gvr: &Gvr, namespace: Option<&str>, name: &str, how: Option<Propagation>) {
        let options = DeleteOptions {
            propagation_policy: how,
            ..DeleteOptions::default()
        };
        let (cluster, actor) = (self.0.cluster(), Actor::new("test"));
        cluster
            .delete(&actor, gvr, namespace, name, &options)
            .unwrap();
    }

    async fn report(&self) -> Report {
        let reader = Reader::new(self.0.client(), Bounds::default());
        let later = || belayer_core::clock::now() + 60.seconds();
        let (query, belayer) = (Query::default(), Belayer::default());
        stuck(&reader, &query, &belayer, &Silent, later)
            .await
            .unwrap()
    }

    /// The only group.
    async fn group(&self) -> Group {
        let mut groups = self.report().await.groups;
        assert_eq!(groups.len(), 1, "{groups:#?}");
        groups.remove(0)
    }
}

/// A Deployment of Argo's workflow controller in the namespace of its name, with its instance ID and Lease.
fn workflow_controller(place: &str, id: Option<&str>, ready: i64, renewed: &str) -> Vec<Value> {
    let name = match id {
        Some(id) => format!("workflow-controller-{id}"),
        None => "workflow-controller".to_owned(),
    };
    vec![
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "workflow-controller", "namespace": place },
            "spec": { "replicas": 1, "selector": { "matchLabels": { "app": "a" } }, "template": {
                "metadata": { "labels": { "app": "a" } },
                "spec": { "containers": [{ "name": "a", "image": "quay.io/argoproj/workflow-controller:v4" }] },
            } },
            "status": { "replicas": 1, "readyReplicas": ready },
        }),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "workflow-controller-configmap", "namespace": place },
            "data": { "instanceID": id.unwrap_or_default() },
        }),
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": name, "namespace": place },
            "spec": { "holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": renewed },
        }),
    ]
}

/// Each instance has a Lease; that of a controller without an instance ID stays behind when it gets one.
#[rstest]
#[case::with_an_old_lease(Some("b"), &[("argo", Some("b"), 1)], Verdict::ControllerAlive)]
#[case::is_down(Some("b"), &[("argo", None, 1), ("team-b", Some("b"), 0)], Verdict::ControllerDown)]
#[case::of_another_instance(None, &[("argo", None, 0), ("team-b", Some("b"), 1)], Verdict::ControllerDown)]
#[case::does_not_exist(Some("c"), &[("argo", None, 1), ("team-b", Some("b"), 1)], Verdict::ControllerGone)]
#[tokio::test]
async fn a22_the_controller_of_the_instance_id_counts(
    #[case] id: Option<&str>,
    #[case] controllers: &[(&str, Option<&str>, i64)],
    #[case] expected: Verdict,
) {
    let now = belayer_core::clock::now();
    let mut objects = workflow_controller("argo", None, 0, "2026-01-01T00:00:00.000000Z");
    for (place, id, ready) in controllers {
        let renewed = match ready {
            0 => "2026-01-01T00:00:00.000000Z".to_owned(),
            _ => format!("{now:.6}"),
        };
        let new = workflow_controller(place, *id, *ready, &renewed);
        let key = |object: &Value| (object["kind"].clone(), object["metadata"].clone());
        objects.retain(|old| !new.iter().any(|new| key(new) == key(old)));
        objects.extend(new);
    }
    let mut labels = json!({});
    if let Some(id) = id {
        labels["workflows.argoproj.io/controller-instanceid"] = json!(id);
    }
    objects.push(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "w", "namespace": "ci", "labels": labels,
            "finalizers": ["workflows.argoproj.io/artifact-gc"] },
    }));
    let world = World::new(&objects);
    world.delete(&Gvr::CONFIGMAPS, Some("ci"), "w", None);
    let group = world.group().await;
    assert_eq!(group.verdict, expected, "{group:#?}");
    if expected == Verdict::ControllerGone {
        let others = "controllers of other objects (deployment argo/workflow-controller, deployment team-b/workflow-controller)";
        assert!(group.proof[0].contains(others), "{group:#?}");
    }
}

/// ConfigMaps that own each other or themselves: the place of each in the list, and that of its owner.
#[rstest]
#[case::each_other(&["b", "a"], true)]
#[case::in_a_ring(&["b", "c", "a"], true)]
#[case::itself(&["a"], true)]
#[case::in_a_chain(&["", "a", "b"], false)]
#[tokio::test]
async fn objects_that_wait_for_each_other_are_a_cycle(
    #[case] owners: &[&str],
    #[case] is_cycle: bool,
) {
    let names: Vec<_> = ["a", "b", "c"].into_iter().take(owners.len()).collect();
    let objects = names.iter().map(|name| {
        json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name, "namespace": "st" } })
    });
    let world = World::new(&objects.collect::<Vec<_>>());
    let (cluster, actor) = (world.0.cluster(), Actor::new("test"));
    let uid = |name: &str| {
        let found = cluster.get(&Gvr::CONFIGMAPS, Some("st"), name).unwrap();
        found["metadata"]["uid"].clone()
    };
    for (name, owner) in names
        .iter()
        .zip(owners)
        .filter(|(_, owner)| !owner.is_empty())
    {
        let patch = json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap",
            "name": owner, "uid": uid(owner), "blockOwnerDeletion": true }] } });
        cluster
            .patch(
                &actor,
                &Gvr::CONFIGMAPS,
                Some("st"),
                name,
                Patch::Merge(patch),
                Subresource::None,
                &WriteOptions::default(),
            )
            .unwrap();
    }
    for name in &names {
        let foreground = Some(Propagation::Foreground);
        world.delete(&Gvr::CONFIGMAPS, Some("st"), name, foreground);
    }
    let report = world.report().await;
    let text = format!("{report:#?}");
    assert_eq!(text.contains("Nothing to do"), !is_cycle, "{text}");
    if is_cycle {
        let group = &report.groups[0];
        assert_eq!((report.groups.len(), group.objects.len()), (1, names.len()));
        assert_eq!(group.verdict, Verdict::Waiting);
        let commands = group.next.iter();
        let commands: Vec<_> = commands
            .filter_map(|step| step.command.as_deref())
            .collect();
        assert_eq!(commands, ["kubectl -n st edit configmaps a"], "{text}");
    }
}

/// Each of thousands of objects may have another step.
#[test]
fn steps_beyond_the_limit_are_counted_and_not_stored() {
    let mut like = Like::new(Diagnosis::new(Cause::Finalizer, Verdict::ControllerGone));
    for number in 0..1_000 {
        like.add_steps(vec![
            Step::say("Install it again"),
            Step::run("Remove it", format!("kubectl patch {number}")),
        ]);
    }
    assert_eq!(like.diagnosis.next.len(), STEPS);
    let steps = group(1, like).next;
    let says: Vec<_> = steps.iter().map(|step| &*step.say).collect();
    let more = "and 998 more steps of the same kind";
    assert_eq!(says, ["Install it again", "Remove it", "Remove it", more]);
}

/// The attacher keeps its finalizer while any attachment names the volume.
#[rstest]
#[case::attached(true, "pv is attached to n1")]
#[case::not_attached(false, "pv is not attached to n1")]
#[tokio::test]
async fn a_volume_waits_for_every_attachment(#[case] attached: bool, #[case] says: &str) {
    let world = World::new(&[
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": { "name": "pv", "finalizers": ["external-attacher/csi-example-com"] },
            "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
                "csi": { "driver": "csi.example.com", "volumeHandle": "v" } },
        }),
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": "va" },
            "spec": { "attacher": "csi.example.com", "nodeName": "n1",
                "source": { "persistentVolumeName": "pv" } },
            "status": { "attached": attached },
        }),
    ]);
    let volumes = Gvr::new("", "v1", "persistentvolumes");
    world.delete(&volumes, None, "pv", None);
    let group = world.group().await;
    assert_eq!(group.cause, Cause::VolumeAttached, "{group:#?}");
    assert!(group.proof[0].contains(says), "{group:#?}");
}
