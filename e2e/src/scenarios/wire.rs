//! Protobuf and JSON decode to the same objects.

use anyhow::{Context as _, Result, ensure};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use belayer_core::http::Request;
use belayer_core::informer::{
    Decoder, Informer, JsonDecoder, Page, ProtobufDecoder, Reading, StreamingList,
};
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::slim::json::SlimJson;
use belayer_core::slim::protobuf::SlimProtobuf;
use belayer_core::slim::{DecodeContext, Keep, Namespace, OwnerMeta, Pod, Pvc};
use tokio_util::sync::CancellationToken;

use crate::harness::{Cluster, SOON, Scenario, eventually, pod};
use crate::kinds;
use crate::providers::Capability;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::shared(
            "protobuf-and-json-agree",
            "every pod, namespace and workflow decodes to the same object from both formats",
            agree,
        )
        .needs([Capability::Protobuf]),
        Scenario::shared(
            "protobuf-informer",
            "an informer lists and watches with protobuf, in a stream and in pages",
            follow,
        )
        .needs([Capability::Protobuf]),
    ]
}

fn context() -> DecodeContext {
    let keep = Keep::nothing()
        .labels([
            "workflows.argoproj.io/workflow",
            "kubernetes.io/metadata.name",
        ])
        .annotations(["belayer.dev/release", "example.org/note"]);
    DecodeContext {
        keep,
        ..DecodeContext::default()
    }
}

/// Pods with all fields that are decoded.
async fn different_pods(cluster: &Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    cluster
        .create(
            &pod("plain")
                .of(&workflow)
                .annotation("example.org/note", "a\"ß\n"),
        )
        .await?;
    let mut volumes = pod("volumes").held().build()?;
    volumes.data["spec"]["volumes"] = json!([
        { "name": "claim", "persistentVolumeClaim": { "claimName": "data" } },
        { "name": "scratch", "emptyDir": {} },
        { "name": "own", "ephemeral": { "volumeClaimTemplate": { "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } },
        } } } },
    ]);
    cluster
        .pods()
        .create(&PostParams::default(), &volumes)
        .await?;
    for (name, status) in [
        (
            "waiting",
            json!({ "waiting": { "reason": "ContainerCreating" } }),
        ),
        (
            "running",
            json!({ "running": { "startedAt": "2026-03-01T10:00:00Z" } }),
        ),
        (
            "ended",
            json!({ "terminated": {
            "exitCode": 3, "startedAt": "2026-03-01T10:00:00Z", "finishedAt": "2026-03-01T10:01:00Z",
        } }),
        ),
        ("rejected", json!({ "terminated": { "exitCode": 137 } })),
    ] {
        cluster.create(&pod(name).of(&workflow)).await?;
        let status = json!({ "status": {
            "phase": "Failed", "reason": "Evicted", "message": "The node was low on memory.",
            "podIP": "10.1.2.3", "podIPs": [{ "ip": "10.1.2.3" }],
            "startTime": "2026-03-01T09:59:59Z",
            "containerStatuses": [{
                "name": "main", "image": "x", "imageID": "", "ready": false,
                "restartCount": 0, "state": status,
            }],
        } });
        cluster
            .pods()
            .patch_status(name, &PatchParams::default(), &Patch::Strategic(status))
            .await?;
    }
    let pvc = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "data", "finalizers": ["example.org/keep"] },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } },
        },
    }))?;
    kinds::pvcs(cluster.client(), cluster.namespace())
        .create(&PostParams::default(), &pvc)
        .await?;
    let keeping = pod("deleting").finalizer("example.org/keep");
    cluster.create(&keeping).await?;
    cluster.delete("deleting").await
}

async fn agree(cluster: Cluster) -> Result<()> {
    different_pods(&cluster).await?;
    let pods = Resource::pods();
    let read = compare::<Pod>(&cluster, &pods).await?;
    ensure!(read >= 7, "only {read} pods");
    let namespaces = Resource::namespaces();
    let namespaces = compare::<Namespace>(&cluster, &namespaces).await?;
    let pvcs = Resource::pvcs();
    let pvcs = compare::<Pvc>(&cluster, &pvcs).await?;
    let workflows = Resource::new("argoproj.io", "v1alpha1", "Workflow", "workflows");
    let workflows = compare::<OwnerMeta>(&cluster, &workflows).await?;
    cluster.note(format!(
        "{read} pods, {pvcs} PVCs, {namespaces} namespaces and {workflows} workflows compared"
    ));
    drop_others(&cluster).await
}

async fn drop_others(cluster: &Cluster) -> Result<()> {
    let off = json!({ "metadata": { "finalizers": null } });
    cluster.merge("deleting", off).await.map(drop)
}

/// Lists all objects in both formats at one resource version. Returns their number.
async fn compare<K>(cluster: &Cluster, resource: &Resource) -> Result<usize>
where
    K: SlimJson + SlimProtobuf + PartialEq,
{
    let (json, protobuf) = (
        JsonDecoder::<K>::new(context()),
        ProtobufDecoder::<K>::new(context()),
    );
    let now = Request::get(resource.path(None));
    let json = list(cluster, now, &json).await?;
    let version = json.resource_version.to_string();
    let same = Request::get(resource.path(None))
        .query("resourceVersion", version)
        .query("resourceVersionMatch", "Exact");
    let protobuf = list(cluster, same, &protobuf).await?;
    let (json, protobuf) = (objects(json)?, objects(protobuf)?);
    ensure!(
        json.len() == protobuf.len(),
        "the numbers of objects differ"
    );
    for (json, protobuf) in json.iter().zip(&protobuf) {
        ensure!(
            json == protobuf,
            "{json:?}\ndecodes from protobuf as\n{protobuf:?}"
        );
    }
    ensure!(!json.is_empty(), "the cluster has no {resource:?}");
    Ok(json.len())
}

fn objects<K>(page: Page<K>) -> Result<Vec<K>> {
    let all = page.items.into_iter();
    all.map(|item| item.map_err(|bad| anyhow::anyhow!("{bad:?}")))
        .collect()
}

async fn list<K: 'static>(
    cluster: &Cluster,
    request: Request,
    decoder: &dyn Decoder<K>,
) -> Result<Page<K>> {
    let answer = request
        .accept(decoder.accept(Reading::List))
        .send(cluster.client())
        .await?;
    let sent = answer.content_type.clone();
    ensure!(
        decoder
            .content_types()
            .iter()
            .any(|have| sent.starts_with(have)),
        "asked for {:?}, got {sent:?}",
        decoder.accept(Reading::List)
    );
    decoder
        .decode_page(&answer.body)
        .with_context(|| format!("decode a list in {sent}"))
}

async fn follow(cluster: Cluster) -> Result<()> {
    cluster.create(&pod("first")).await?;
    for streaming in [StreamingList::Auto, StreamingList::Never] {
        let decoder = ProtobufDecoder::<Pod>::new(context());
        let resource = Resource::pods();
        let (informer, store) = Informer::builder(
            cluster.client().clone(),
            resource,
            belayer_core::informer::Decoders::new(decoder),
        )
        .streaming_list(streaming)
        .page_size(2)
        .build();
        let stop = CancellationToken::new();
        let task = tokio::spawn(informer.run(stop.clone()));
        tokio::time::timeout(SOON, store.synced())
            .await
            .context("not synced in time")??;
        let has = |name: &str| {
            let key = ObjectKey::new(cluster.namespace(), name);
            store
                .lookup(&key)
                .found()
                .map(|stored| stored.object.meta.is_deleting())
        };
        ensure!(has("first") == Some(false), "the first list lacks a pod");
        let sees = |what: &'static str, wanted: Option<bool>| {
            let has = &has;
            eventually(what, SOON, move || async move {
                ensure!(has("second") == wanted, "it is {:?}", has("second"));
                Ok(())
            })
        };
        let keeping = pod("second").finalizer("example.org/keep");
        cluster.create(&keeping).await?;
        sees("the pod", Some(false)).await?;
        cluster.delete("second").await?;
        sees("its deletion", Some(true)).await?;
        let off: Value = json!({ "metadata": { "finalizers": null } });
        cluster.merge("second", off).await?;
        sees("its end", None).await?;
        stop.cancel();
        task.await?;
    }
    Ok(())
}
