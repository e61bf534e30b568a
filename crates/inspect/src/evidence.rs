//! Evidence: live reads of what the scan does not show, each once, and only if objects are stuck.

pub(crate) mod csi;
mod own_leases;
mod reads;
mod state;
mod webhooks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt as _;

use crate::argo::{self, WorkflowController};
use crate::controller_health::{Lease, Workload};
use crate::explain::{Belayer, ExplainError, Explained, Explainer};
use crate::known_finalizers::KnownFinalizers;
use crate::object::Terminating;
use crate::reader::{ReadResult, Reader};
use crate::scan::{Scan, Scope};
use csi::Drivers;
pub(crate) use own_leases::OwnLeases;
use reads::{attachments, dead_apis, namespace, node, pvc, volume, workloads};
pub(crate) use reads::{lease, pods};
pub(crate) use state::{
    AttachmentState, DeadApiService, DeadWebhook, Intercepts, NamespaceState, NodeState, PodState,
    VolumeState, Webhooks,
};
use webhooks::webhooks;

/// Maximum number of Belayer's holds that are explained individually.
const EXPLAINED: usize = 200;

/// Concurrent reads of single objects.
const PARALLEL: usize = 8;

/// The explanations of Belayer's components, or why there are none, by UID and hold.
pub(crate) type Explanations = BTreeMap<(String, String), Result<Explained, NotExplained>>;

/// Why a report does not have an explanation.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum NotExplained {
    /// Only so many are explained in a report.
    #[error("only the first {0} are explained here; see `belayer explain`")]
    AfterFirst(usize),
    /// The component could not explain it.
    #[error(transparent)]
    Failed(Arc<ExplainError>),
}

/// What to diagnose.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// The stuck objects.
    pub stuck: Vec<Terminating>,
    /// How many more are being deleted, within their grace period.
    pub within_grace: usize,
    /// How many more are stuck and left out by age or labels.
    pub left_out: usize,
    /// The scope of the scan.
    pub scope: Scope,
}

/// The complete input of a report: owned, no further I/O.
#[derive(Debug, Clone)]
pub(crate) struct World {
    /// The scan.
    pub scan: Scan,
    /// The stuck objects.
    pub stuck: Vec<Terminating>,
    /// The scope of the scan.
    pub scope: Scope,
    /// How many more are being deleted, within their grace period.
    pub within_grace: usize,
    /// How many more are stuck and left out by age or labels.
    pub left_out: usize,
    /// Namespaces being deleted.
    pub namespaces: BTreeMap<String, ReadResult<NamespaceState>>,
    /// The pods of namespaces with stuck pods or PVCs.
    pub pods: BTreeMap<String, ReadResult<Vec<PodState>>>,
    /// The nodes of stuck pods.
    pub nodes: BTreeMap<String, ReadResult<NodeState>>,
    /// Stuck volumes.
    pub volumes: BTreeMap<String, ReadResult<VolumeState>>,
    /// The UIDs of the PVCs that they are bound to, by `namespace/name`.
    pub pvcs: BTreeMap<String, ReadResult<String>>,
    /// All attachments, if a volume is stuck.
    pub attachments: ReadResult<Vec<AttachmentState>>,
    /// Aggregated APIs that do not answer.
    pub dead_apis: ReadResult<Vec<DeadApiService>>,
    /// Webhooks with `failurePolicy: Fail` and no ready endpoint, if objects are stuck.
    pub webhooks: Webhooks,
    /// All workloads, if objects are stuck.
    pub workloads: ReadResult<Vec<Workload>>,
    /// What ties the sidecars of CSI drivers to the drivers of stuck objects.
    pub drivers: Drivers,
    /// The workflow controllers of Argo, if a stuck object has a finalizer of theirs.
    pub argo: ReadResult<Vec<WorkflowController>>,
    /// The Leases of known controllers and Belayer's, by `namespace/name`.
    pub leases: BTreeMap<String, ReadResult<Lease>>,
    /// Which of them are Belayer's.
    pub own_leases: OwnLeases,
    /// What Belayer's components explain.
    pub belayers: Explanations,
    /// The known finalizers.
    pub known: Arc<KnownFinalizers>,
    /// The configuration file that was given.
    pub config: Option<String>,
    /// Number of requests that were sent.
    pub requests: u64,
}

/// Reads everything that a report needs besides the scan.
pub(crate) async fn gather(
    reader: &Reader,
    scan: Scan,
    target: Target,
    belayer: &Belayer,
    explainers: &[Explainer],
) -> World {
    let Target {
        stuck,
        within_grace,
        left_out,
        scope,
    } = target;
    let is = |object: &Terminating, plural: &str| {
        object.object.kind.resource.group.is_empty()
            && *object.object.kind.resource.plural == *plural
    };
    let names = |plural: &str| -> Vec<String> {
        let these = stuck.iter().filter(|object| is(object, plural));
        these
            .map(|object| object.object.key.name().to_owned())
            .collect()
    };
    let pod_places: BTreeSet<String> = stuck
        .iter()
        .filter(|object| is(object, "pods") || is(object, "persistentvolumeclaims"))
        .filter_map(|object| object.object.key.namespace().map(str::to_owned))
        .collect();
    let any = !stuck.is_empty();
    let volumes_hang = stuck.iter().any(|object| {
        is(object, "persistentvolumes")
            || *object.object.kind.resource.plural == *"volumeattachments"
    });

    let of_argo = stuck.iter().any(|object| {
        let mut finalizers = object.finalizers.iter();
        finalizers.any(|name| argo::FINALIZERS.contains(&&**name))
    });

    let namespaces = each(names("namespaces"), |name| namespace(reader, name));
    let pods = each(pod_places.into_iter().collect(), |place| {
        pods(reader, place)
    });
    let volumes = each(names("persistentvolumes"), |name| volume(reader, name));
    let (
        namespaces,
        pods,
        volumes,
        attachments,
        dead_apis,
        webhooks,
        workloads,
        (argo, (own_leases, leases)),
    ) = futures::join!(
        namespaces,
        pods,
        volumes,
        when(volumes_hang, attachments(reader)),
        dead_apis(reader),
        async {
            if any {
                webhooks(reader).await
            } else {
                Webhooks::default()
            }
        },
        when(any, workloads(reader)),
        async {
            let argo = when(of_argo, argo::controllers(reader)).await;
            let leases = leases(reader, belayer, &stuck, &argo).await;
            (argo, leases)
        },
    );
    let node_names = relevant_nodes(&stuck, &pods, &attachments);
    let (nodes, drivers) = futures::join!(
        each(node_names, |name| node(reader, name)),
        Drivers::read(reader, &stuck, &belayer.known, &volumes, &attachments),
    );
    let bound = volumes.values().filter_map(ReadResult::found);
    let bound: BTreeSet<String> = bound
        .filter_map(|volume| Some(volume.bound_pvc()?.place()))
        .collect();
    let pvcs = each(bound.into_iter().collect(), |place| pvc(reader, place)).await;
    let belayers = belayers(reader, &stuck, explainers, EXPLAINED).await;
    World {
        scan,
        stuck,
        scope,
        within_grace,
        left_out,
        namespaces,
        pods,
        nodes,
        volumes,
        pvcs,
        attachments,
        dead_apis,
        webhooks,
        workloads,
        drivers,
        argo,
        leases,
        own_leases,
        belayers,
        known: Arc::clone(&belayer.known),
        config: belayer.config.clone(),
        requests: reader.requests(),
    }
}

async fn when<T>(needed: bool, read: impl Future<Output = ReadResult<T>>) -> ReadResult<T> {
    if needed {
        read.await
    } else {
        ReadResult::Absent
    }
}

async fn each<T, F, Fut>(names: Vec<String>, read: F) -> BTreeMap<String, ReadResult<T>>
where
    F: Fn(String) -> Fut,
    Fut: Future<Output = ReadResult<T>>,
{
    futures::stream::iter(names)
        .map(|name| {
            let found = read(name.clone());
            async move { (name, found.await) }
        })
        .buffer_unordered(PARALLEL)
        .collect()
        .await
}

fn relevant_nodes(
    stuck: &[Terminating],
    pods: &BTreeMap<String, ReadResult<Vec<PodState>>>,
    attachments: &ReadResult<Vec<AttachmentState>>,
) -> Vec<String> {
    let of_pods = stuck
        .iter()
        .filter(|object| *object.object.kind.resource.plural == *"pods")
        .filter_map(|object| {
            let found = pods.get(object.object.key.namespace()?)?.found()?;
            found
                .iter()
                .find(|pod| pod.name == object.object.key.name())
        })
        .map(|pod| pod.node.clone());
    let names: BTreeSet<&str> = stuck
        .iter()
        .map(|object| object.object.key.name())
        .collect();
    // Of a stuck volume or attachment: a large cluster has thousands of others.
    let of_attachments = attachments
        .found()
        .into_iter()
        .flatten()
        .filter(|one| names.contains(&*one.name) || names.contains(&*one.volume))
        .map(|attachment| attachment.node.clone());
    let names: BTreeSet<String> = of_pods.chain(of_attachments).collect();
    names.into_iter().filter(|name| !name.is_empty()).collect()
}

/// The Leases of the known controllers of these objects' finalizers, and Belayer's own.
async fn leases(
    reader: &Reader,
    belayer: &Belayer,
    stuck: &[Terminating],
    argo: &ReadResult<Vec<WorkflowController>>,
) -> (OwnLeases, BTreeMap<String, ReadResult<Lease>>) {
    let own = OwnLeases::read(reader, belayer, stuck).await;
    let finalizers: BTreeSet<&str> = stuck
        .iter()
        .flat_map(|object| object.finalizers.iter().map(String::as_str))
        .chain(stuck.iter().any(is_namespace).then_some("kubernetes"))
        .collect();
    let of_argo = argo.found().into_iter().flatten();
    let places: BTreeSet<String> = finalizers
        .into_iter()
        .filter_map(|finalizer| belayer.known.find(finalizer))
        .flat_map(|entry| &entry.controllers)
        .filter_map(|controller| {
            let lease = controller.lease.as_ref()?;
            Some(format!("{}/{lease}", controller.namespace))
        })
        .chain(own.to_read(belayer, stuck))
        .chain(of_argo.filter_map(WorkflowController::lease))
        .collect();
    let leases = each(places.into_iter().collect(), |place| lease(reader, place)).await;
    (own, leases)
}

fn is_namespace(object: &Terminating) -> bool {
    *object.object.kind.resource.plural == *"namespaces"
}

/// The explanations of the first `limit` holds of these objects, and for the others that nothing was asked.
async fn belayers(
    reader: &Reader,
    stuck: &[Terminating],
    explainers: &[Explainer],
    limit: usize,
) -> Explanations {
    let held = stuck.iter().flat_map(|object| {
        let fitting = explainers.iter().filter(|explainer| {
            explainer.is_about(&object.object.kind.resource)
                && object
                    .finalizers
                    .iter()
                    .any(|name| explainer.holds.contains(&name.as_str()))
        });
        fitting.map(move |explainer| (object, explainer))
    });
    let mut held: Vec<_> = held.collect();
    let others = held.split_off(held.len().min(limit));
    let others = others.into_iter().flat_map(|(object, explainer)| {
        by_hold(
            object.object.uid.as_str(),
            explainer,
            Err(NotExplained::AfterFirst(limit)),
        )
    });
    let explained: Vec<_> = futures::stream::iter(held)
        .map(|(object, explainer)| async move {
            let kind = &object.object.kind.resource;
            let answer =
                (explainer.explain)(kind.clone(), object.object.key.clone(), reader.clone()).await;
            let answer = answer.map_err(|error| NotExplained::Failed(Arc::new(error)));
            by_hold(object.object.uid.as_str(), explainer, answer)
        })
        .buffer_unordered(PARALLEL)
        .collect()
        .await;
    others.chain(explained.into_iter().flatten()).collect()
}

/// The explanation of a component for an object, under each of its finalizers.
pub(crate) fn by_hold(
    uid: &str,
    explainer: &Explainer,
    answer: Result<Explained, NotExplained>,
) -> impl Iterator<Item = ((String, String), Result<Explained, NotExplained>)> {
    let holds = explainer.holds.iter();
    holds.map(move |hold| ((uid.to_owned(), (*hold).to_owned()), answer.clone()))
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::time::Duration;

    use belayer_core::executor::Bounds;
    use belayer_core::object::{ObjectKey, Resource, Uid};
    use belayer_core::slim::Labels;
    use belayer_sandbox::Sandbox;

    use super::*;
    use crate::diagnose::report;
    use crate::explain::{Action, Row};
    use crate::kinds::Kind;
    use crate::object::ObjectRef;
    use crate::report::Verdict;

    const HOLD: &str = "belayer.dev/pod-status";

    fn held(name: &str) -> Terminating {
        let kind = Kind {
            resource: Resource::pods(),
            namespaced: true,
            singular: "pod".to_owned(),
            short_names: Vec::new(),
            deletable: true,
            versions: Vec::new(),
        };
        Terminating {
            object: ObjectRef {
                kind: Arc::new(kind),
                key: ObjectKey::new("yard", name),
                uid: Uid::new(name),
            },
            since: belayer_core::clock::now() - Duration::from_secs(60),
            finalizers: vec![HOLD.to_owned()],
            set_by: BTreeMap::new(),
            labels: Labels::default(),
        }
    }

    fn explainer() -> Explainer {
        let explained = Explained {
            component: "pod-finalizer",
            hold: HOLD,
            held: true,
            row: Row {
                number: 13,
                name: "unread",
                says: "its result is not read".to_owned(),
            },
            action: Action::Keep,
            evidence: None,
            missing: Vec::new(),
            why_not: None,
            next: "waits".to_owned(),
            requeue_after_seconds: None,
            notes: Vec::new(),
        };
        let explain = move |_, _, _, _| ready(Ok(explained.clone()));
        Explainer::new(
            "pod-finalizer",
            &[HOLD],
            vec![Resource::pods()],
            (),
            explain,
        )
    }

    #[tokio::test]
    async fn a_hold_that_is_not_explained_is_unknown_and_never_without_a_rule() {
        let sandbox = Sandbox::builder().build();
        let reader = Reader::new(sandbox.client(), Bounds::default());
        let stuck = vec![held("a"), held("b"), held("c")];
        let belayers = belayers(&reader, &stuck, &[explainer()], 2).await;
        let target = Target {
            stuck,
            within_grace: 0,
            left_out: 0,
            scope: Scope::Cluster,
        };
        let (scan, belayer) = (Scan::default(), Belayer::default());
        let world = World {
            belayers,
            ..gather(&reader, scan, target, &belayer, &[]).await
        };
        let groups = report(&world, belayer_core::clock::now()).groups;
        let found: Vec<_> = groups
            .iter()
            .map(|group| (group.verdict, group.objects.len()))
            .collect();
        let expected = [(Verdict::HeldByBelayer, 2), (Verdict::Unknown, 1)];
        assert_eq!(found, expected, "{groups:#?}");
        let unasked = format!("{:?}", groups[1]);
        assert!(unasked.contains("belayer explain"), "{unasked}");
        assert!(!unasked.contains("--unselected"), "{unasked}");
    }
}
