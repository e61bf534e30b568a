//! From the model's states to the snapshots of pod-finalizer, and back from its decisions. The planted faults that change a
//! decision are here.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use belayer_core::logical_time::LogicalTime;
use belayer_core::object::{ObjectKey, OwnerReference, Resource, ResourceVersion, Uid};
use belayer_core::queries::LiveAnswer;
use belayer_core::slim::ObjectMeta;
use belayer_holds::decision::{Missing, Write};
use belayer_holds::namespace::{NamespaceQuery, NamespaceView};
use belayer_holds::owner::{GoneProof, OwnerQuery, OwnerState};
use belayer_holds::selection::MassRelease;
use belayer_pod_finalizer::decide::decide;
use belayer_pod_finalizer::outcome::RecordState;
use belayer_pod_finalizer::profile::argo;
use belayer_pod_finalizer::query::PodQuery;
use belayer_pod_finalizer::snapshot::{
    BacklogLimit, CachedOwner, Owner as OwnerOf, OwnerView, PodView, Selection, Snapshot,
};
use jiff::Timestamp;

use super::{Demand, Fault, Pod, Pods, Replica, Workflow, workflow};

impl Pods {
    /// What the controller's own decision demands, by what the replica has.
    pub(super) fn demand(&self, replica: &Replica, name: usize) -> Demand {
        type Key = (
            Option<Fault>,
            Pod,
            Option<Option<Workflow>>,
            Option<(Option<Workflow>, bool)>,
        );
        thread_local! {
            static KNOWN: RefCell<HashMap<Key, Demand>> = RefCell::default();
        }
        let Some(pod) = replica.pods[name] else {
            return Demand::Nothing;
        };
        let answer = replica.answers[usize::from(pod.owner) - 1];
        let answer = answer.map(|answer| (answer.state, answer.late[name]));
        let key = (self.fault, pod, replica.workflow, answer);
        KNOWN.with_borrow_mut(|known| {
            *known.entry(key).or_insert_with(|| {
                let snapshot = self.observe(pod, replica.workflow, answer);
                demand_of(&snapshot)
            })
        })
    }

    /// The snapshot that the controller would take. The planted faults are here.
    fn observe(
        &self,
        pod: Pod,
        cached: Option<Option<Workflow>>,
        answer: Option<(Option<Workflow>, bool)>,
    ) -> Snapshot {
        let (early, first_seen, late) =
            (LogicalTime::now(), LogicalTime::now(), LogicalTime::now());
        let is = |fault| self.fault == Some(fault);
        let (namespace, uid): (Arc<str>, _) = ("ci".into(), format!("wf-{}", pod.owner));
        let reference = OwnerReference {
            api_version: "argoproj.io/v1alpha1".into(),
            kind: "Workflow".into(),
            name: "build".into(),
            uid: Uid::new(&uid),
        };
        let kind = Resource::new("argoproj.io", "v1alpha1", "Workflow", "workflows");
        let same = |owner: &Workflow| owner.uid == pod.owner || is(Fault::OwnerByName);
        let meta = |owner: Workflow| ObjectMeta {
            deletion_timestamp: (owner.deleting && !is(Fault::OwnerDeletionIgnored)).then(now),
            labels: owner
                .finished
                .then_some((argo::COMPLETED_LABEL, "true"))
                .into_iter()
                .collect(),
            ..ObjectMeta::new(
                ObjectKey::new("ci", "build"),
                Uid::new(&uid),
                ResourceVersion::new(owner.version.into()),
            )
        };
        let cached = match cached {
            None if is(Fault::UnknownIsAbsent) => CachedOwner::Absent,
            None => CachedOwner::Unknown,
            Some(owner) => match owner.filter(same) {
                Some(owner) => CachedOwner::Present(meta(owner)),
                None => CachedOwner::Absent,
            },
        };
        let gone = || OwnerState::Gone(GoneProof::scripted());
        let mut answer = answer.map(|(state, is_late)| {
            let begun = if is_late || is(Fault::EarlyRead) {
                late
            } else {
                early
            };
            let state = state.map_or_else(gone, |owner| OwnerState::Present(meta(owner)));
            LiveAnswer::scripted(state, begun)
        });
        if is(Fault::UnknownIsAbsent) && cached == CachedOwner::Absent {
            answer = Some(LiveAnswer::scripted(gone(), late));
        }
        let owner = OwnerView {
            query: OwnerQuery::new(kind, &namespace, &reference),
            cached,
            answer,
        };
        Snapshot {
            pod: Some(PodView {
                uid: Uid::new(format!("pod-{}", pod.uid)),
                version: ResourceVersion::new(1),
                held: pod.held,
                deleting: pod.deleting.then(now),
                watched: None,
                ended: pod.ended,
                shut_down: false,
                first_seen,
                admin_asked: false,
                recreated: false,
                adopted: Box::default(),
                selection: Selection::By {
                    profile: Arc::new(argo::profile()),
                    consumed: pod.taken || (is(Fault::EndedIsConsumed) && pod.ended),
                },
                record: RecordState::Unknown,
                node: None,
                cleanup: None,
                // Rules 16 to 19 need more of a pod than this model has.
                argo: None,
                namespace: NamespaceView {
                    query: NamespaceQuery::new(namespace),
                    cached: None,
                    answer: None,
                },
                owner: OwnerOf::Known(Box::new(owner)),
                deciding_profiles: Box::default(),
            }),
            backlog: BacklogLimit::NotReached,
            mass_release: MassRelease::Within,
            resync: Duration::from_secs(600),
        }
    }
}

fn demand_of(snapshot: &Snapshot) -> Demand {
    let decision = decide(snapshot, now());
    let asks = |missing: &Missing<PodQuery>| {
        matches!(
            missing,
            Missing::Answer {
                query: PodQuery::Owner(_),
                ..
            }
        )
    };
    match decision.write {
        Some(Write::AddHold) => Demand::AddHold,
        Some(Write::Release(_)) => Demand::Release,
        _ if decision.missing.iter().any(asks) => Demand::Read,
        _ => Demand::Nothing,
    }
}

/// Whether a running pod of a running workflow gets a hold.
pub(crate) fn would_hold(held: bool, deleting: bool) -> bool {
    thread_local! {
        static KNOWN: RefCell<HashMap<(bool, bool), bool>> = RefCell::default();
    }
    let model = Pods {
        names: 1,
        replicas: 1,
        workflows: 1,
        retries: 0,
        crashes: 0,
        policy: false,
        fault: None,
    };
    let pod = Pod {
        uid: 1,
        owner: 1,
        ended: false,
        deleting,
        held,
        taken: false,
    };
    KNOWN.with_borrow_mut(|known| {
        *known.entry((held, deleting)).or_insert_with(|| {
            let snapshot = model.observe(pod, Some(Some(workflow(1))), None);
            demand_of(&snapshot) == Demand::AddHold
        })
    })
}

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH + Duration::from_secs(1_000_000)
}
