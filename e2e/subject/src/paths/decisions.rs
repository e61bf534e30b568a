//! One decision of each controller: the most frequent one of a busy cluster.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::Timestamp;

use belayer_core::logical_time::LogicalTime;
use belayer_core::object::{ObjectKey, OwnerReference, Resource, ResourceVersion, Uid};
use belayer_core::slim::{self, ObjectMeta};
use belayer_holds::names::{KUBERNETES_PVC_PROTECTION, POD_RECREATION_HOLD};
use belayer_holds::namespace::{NamespaceQuery, NamespaceView};
use belayer_holds::owner::OwnerQuery;
use belayer_holds::selection::{MassRelease, Selection};
use belayer_pod_finalizer as pods;
use belayer_pod_recreation as recreation;
use belayer_pvc_protection as pvcs;
use belayer_workflow_finalizer as workflows;

use super::Walk;

const NAMESPACE: &str = "team-01";
const UID: &str = "0a1b2c3d-0000-4000-8000-00000000002a";
const WORKFLOW_UID: &str = "0a1b2c3d-0000-4000-8000-00000000002b";
const RESYNC: Duration = Duration::from_secs(600);

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH + Duration::from_secs(1_000_000)
}

pub(super) fn pvc() -> Walk {
    let (snapshot, now) = (deleted_pvc(), now());
    Walk::step(move || {
        black_box(pvcs::decide::decide(black_box(&snapshot), now));
    })
}

pub(super) fn pod() -> Walk {
    let (snapshot, now) = (pod_of_deleted_workflow(), now());
    Walk::step(move || {
        black_box(pods::decide::decide(black_box(&snapshot), now));
    })
}

pub(super) fn workflow() -> Walk {
    let (snapshot, now) = (deleted_workflow(), now());
    Walk::step(move || {
        black_box(workflows::decide::decide(black_box(&snapshot), now));
    })
}

pub(super) fn record() -> Result<Walk> {
    let (snapshot, now) = (record_of_rejected_pod()?, now());
    Ok(Walk::step(move || {
        black_box(recreation::decide::decide(black_box(&snapshot), now));
    }))
}

fn meta(name: &str, uid: &str) -> ObjectMeta {
    ObjectMeta::new(
        ObjectKey::new(NAMESPACE, name),
        Uid::new(uid),
        ResourceVersion::new(7),
    )
}

fn deleted(meta: ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        deletion_timestamp: Some(now()),
        ..meta
    }
}

fn namespace() -> NamespaceView {
    let meta = ObjectMeta::new(
        ObjectKey::cluster(NAMESPACE),
        Uid::new("0a1b2c3d-0000-4000-8000-000000000001"),
        ResourceVersion::new(3),
    );
    NamespaceView {
        query: NamespaceQuery::new(NAMESPACE),
        cached: Some(meta),
        answer: None,
    }
}

/// A terminating PVC without users in the cache, before the live read.
fn deleted_pvc() -> pvcs::snapshot::Snapshot {
    use pvcs::snapshot::{CachedUsers, Hold, PvcView, Snapshot};

    let meta = ObjectMeta {
        finalizers: Box::from([Arc::from(KUBERNETES_PVC_PROTECTION)]),
        ..deleted(meta("data-0", UID))
    };
    Snapshot {
        pvc: Some(PvcView {
            query: pvcs::pods_query::PodsQuery::new(NAMESPACE),
            mode: pvcs::Mode::InPlace,
            owner: None,
            hold: Hold::Present,
            deletion_seen: Some(LogicalTime::now()),
            cached: CachedUsers::Known {
                users: pvcs::uses::Users::default(),
                as_of: ResourceVersion::new(9),
            },
            pods_answer: None,
            list_error: None,
            meta,
        }),
    }
}

/// A terminating pod with a hold, whose workflow is terminating.
fn pod_of_deleted_workflow() -> pods::snapshot::Snapshot {
    use pods::snapshot::{
        BacklogLimit, CachedOwner, Owner, OwnerView, PodView, Selection, Snapshot,
    };

    let owner = OwnerReference {
        api_version: "argoproj.io/v1alpha1".into(),
        kind: "Workflow".into(),
        name: "checkout".into(),
        uid: Uid::new(WORKFLOW_UID),
    };
    let kind = Resource::new("argoproj.io", "v1alpha1", "Workflow", "workflows");
    let owner = OwnerView {
        query: OwnerQuery::new(kind, &NAMESPACE.into(), &owner),
        cached: CachedOwner::Present(deleted(meta("checkout", WORKFLOW_UID))),
        answer: None,
    };
    let selection = Selection::By {
        profile: Arc::new(pods::profile::argo::profile()),
        consumed: false,
    };
    Snapshot {
        pod: Some(PodView {
            uid: Uid::new(UID),
            version: belayer_core::object::ResourceVersion::new(1),
            held: true,
            deleting: Some(now()),
            watched: None,
            ended: true,
            shut_down: false,
            first_seen: LogicalTime::now(),
            admin_asked: false,
            recreated: false,
            adopted: Box::default(),
            selection,
            record: pods::outcome::RecordState::Unknown,
            node: None,
            cleanup: None,
            argo: Some(pods::snapshot::ArgoPod {
                pod: Arc::new(slim::Pod::new(deleted(meta("checkout-1", UID)))),
                node: None,
            }),
            namespace: namespace(),
            owner: Owner::Known(Box::new(owner)),
            deciding_profiles: Box::default(),
        }),
        backlog: BacklogLimit::NotReached,
        mass_release: MassRelease::Within,
        resync: RESYNC,
    }
}

/// A terminating workflow with a hold and remaining pods.
fn deleted_workflow() -> workflows::snapshot::Snapshot {
    use workflows::snapshot::{Deletion, PodsView, Snapshot, WorkflowView};

    let query = workflows::pods_query::PodsQuery::new(NAMESPACE.into(), None);
    Snapshot {
        workflow: Some(WorkflowView {
            uid: Uid::new(WORKFLOW_UID),
            kept_running: None,
            is_to_be_archived: false,
            held: true,
            deletion: Some(Deletion {
                since: now(),
                seen: LogicalTime::now(),
            }),
            first_seen: LogicalTime::now(),
            selection: Selection::Yes,
            namespace: namespace(),
            pods: PodsView {
                query,
                held: Some(17),
                answer: None,
            },
        }),
        mass_release: MassRelease::Within,
        resync: RESYNC,
    }
}

/// The record of a pod that its node rejected a second time, with attempts left.
fn record_of_rejected_pod() -> Result<recreation::decide::RecordSnapshot> {
    use belayer_holds::holding::Holding;
    use recreation::api::{Phase, Policy, Status};
    use recreation::decide::RecordSnapshot;
    use recreation::proof::{FirstSeen, NeverRan};
    use recreation::reason::Class;
    use recreation::snapshot::{ObservedPod, PodState, PodView, Rejection};

    let mut failed = slim::Pod::new(ObjectMeta {
        finalizers: Box::from([Arc::from(POD_RECREATION_HOLD)]),
        ..meta("web-0", UID)
    });
    failed.phase = slim::Phase::Failed;
    let never_ran = NeverRan::prove(&failed, FirstSeen::Rejected);
    never_ran.context("it may have run")?;
    let settings = recreation::Settings::default();
    let pod = PodView {
        node: Some("node-1".into()),
        held: true,
        selection: Selection::Yes,
        state: PodState::Rejected(Rejection {
            reason: "OutOfcpu".into(),
            message: Some("Pod was rejected: Node didn't have enough resource: cpu".into()),
            class: Class::Race,
            never_ran,
        }),
        ..PodView::of(&failed, &settings, FirstSeen::Rejected)
    };
    let record = recreation::record::Record {
        meta: meta("web-0-2a", WORKFLOW_UID),
        created: None,
        pod_name: "web-0".to_owned(),
        first_uid: UID.to_owned(),
        policy: Policy::default(),
        status: Status {
            phase: Some(Phase::Rejected),
            attempts: 1,
            pod_starts: 2,
            rejected_uid: Some(UID.to_owned()),
            node_name: Some("node-1".to_owned()),
            reason: Some("OutOfcpu".to_owned()),
            ..Status::default()
        },
    };
    Ok(RecordSnapshot {
        wipe: belayer_pod_recreation::decide::ObservedWipe::NotRequested,
        record: Some(Box::new(record)),
        pod: ObservedPod::Present(Box::new(pod)),
        namespace_terminating: false,
        replaced: false,
        cancelled: false,
        created: None,
        watched: None,
        holding: Holding::Allowed,
        record_ttl: RESYNC,
    })
}

#[cfg(test)]
mod tests {
    use belayer_holds::decision::Write;

    use super::*;

    /// A path that does not do what its name says would be counted in vain.
    #[test]
    fn each_decision_is_the_one_that_is_meant() {
        let pvc = pvcs::decide::decide(&deleted_pvc(), now());
        assert!(pvc.write.is_none() && !pvc.missing.is_empty(), "{pvc:?}");
        let pod = pods::decide::decide(&pod_of_deleted_workflow(), now());
        assert!(matches!(pod.write, Some(Write::Release(_))), "{pod:?}");
        let workflow = workflows::decide::decide(&deleted_workflow(), now());
        assert_eq!(workflow.row, workflows::row::PODS_HELD);
        let record = recreation::decide::decide(&record_of_rejected_pod().unwrap(), now());
        assert_eq!(record.row, recreation::row::INTEND);
    }
}
