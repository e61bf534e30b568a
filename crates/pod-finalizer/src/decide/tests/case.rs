//! A builder of snapshots for test cases.

use std::sync::Arc;
use std::time::Duration;

use belayer_core::logical_time::LogicalTime;
use belayer_core::object::{ObjectKey, OwnerReference, Resource, ResourceVersion, Uid};
use belayer_core::queries::LiveAnswer;
use belayer_core::slim::{Container, ContainerKind, ContainerState, ObjectMeta, Phase, Pod};
use belayer_core::workqueue::Backoff;
use belayer_holds::names;
use belayer_holds::namespace::{NamespaceQuery, NamespaceState, NamespaceView};
use belayer_holds::owner::{GoneProof, OwnerQuery, OwnerState};
use belayer_holds::selection::{MassRelease, Scope};

use super::{elapsed, now};
use crate::argo::{ArgoPod, NodeQuery, NodeState, NodeView as NodeOfPod};
use crate::cleanup::{PodEnd, PodGc, WorkflowEnd};
use crate::outcome::{Captured, RecordState};
use crate::profile::{Consumer, DeletedWhileRunning, Mode, OwnerStatus, Profile, Profiles};
use crate::snapshot::{
    BacklogLimit, CachedOwner, CleanupView, DecidingProfile, NodeView, Owner, OwnerView, PodView,
    Selection, Snapshot, Watched,
};
use crate::status::{NodeRef, Nodes, StatusQuery, StatusState};

/// A selected pod of a running workflow, not held, in a namespace that is not being deleted.
pub(crate) struct Case(pub(crate) Snapshot);

pub(crate) fn pod() -> Case {
    let first_seen = LogicalTime::now();
    let kind = Resource::new("argoproj.io", "v1alpha1", "Workflow", "workflows");
    let reference = OwnerReference {
        api_version: "argoproj.io/v1alpha1".into(),
        kind: "Workflow".into(),
        name: "build".into(),
        uid: Uid::new("wf-1"),
    };
    let namespace: Arc<str> = "ci".into();
    let owner = OwnerView {
        query: OwnerQuery::new(kind, &namespace, &reference),
        cached: CachedOwner::Present(owner_meta()),
        answer: None,
    };
    let profile = Arc::clone(Profiles::argo().iter().next().unwrap());
    Case(Snapshot {
        pod: Some(PodView {
            uid: Uid::new("pod-1"),
            version: ResourceVersion::new(10),
            adopted: Box::default(),
            record: RecordState::Unknown,
            node: None,
            cleanup: None,
            argo: Some(ArgoPod {
                pod: Arc::new(Pod {
                    phase: Phase::Running,
                    node_name: Some("n1".into()),
                    started: true,
                    ..Pod::new(pod_meta())
                }),
                node: None,
            }),
            held: false,
            deleting: None,
            watched: None,
            ended: false,
            shut_down: false,
            first_seen,
            admin_asked: false,
            recreated: false,
            selection: Selection::By {
                profile,
                consumed: false,
            },
            namespace: NamespaceView {
                query: NamespaceQuery::new(namespace),
                cached: Some(namespace_meta()),
                answer: None,
            },
            owner: Owner::Known(Box::new(owner)),
            deciding_profiles: Box::default(),
        }),
        backlog: BacklogLimit::NotReached,
        mass_release: MassRelease::Within,
        resync: Duration::from_secs(600),
    })
}

fn pod_meta() -> ObjectMeta {
    ObjectMeta::new(
        ObjectKey::new("ci", "step"),
        Uid::new("pod-1"),
        ResourceVersion::new(10),
    )
}

fn owner_meta() -> ObjectMeta {
    ObjectMeta::new(
        ObjectKey::new("ci", "build"),
        Uid::new("wf-1"),
        ResourceVersion::new(10),
    )
}

fn namespace_meta() -> ObjectMeta {
    ObjectMeta::new(
        ObjectKey::cluster("ci"),
        Uid::new("ns-1"),
        ResourceVersion::new(10),
    )
}

fn deleting(meta: ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        deletion_timestamp: Some(now()),
        ..meta
    }
}

fn finished(meta: ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        labels: [("workflows.argoproj.io/completed", "true")]
            .into_iter()
            .collect(),
        ..meta
    }
}

fn ignored(meta: ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        labels: [(names::IGNORE_LABEL, "true")].into_iter().collect(),
        ..meta
    }
}

impl Case {
    fn with(mut self, change: impl FnOnce(&mut PodView)) -> Self {
        change(self.0.pod.as_mut().unwrap());
        self
    }

    fn with_owner(self, change: impl FnOnce(&mut OwnerView)) -> Self {
        self.with(|pod| match &mut pod.owner {
            Owner::Known(owner) => change(owner),
            _ => panic!("the case has no owner"),
        })
    }

    fn owner_answer(self, state: OwnerState) -> Self {
        self.with_owner(|owner| {
            owner.answer = Some(LiveAnswer::scripted(state, LogicalTime::now()));
        })
    }

    fn namespace_answer(self, meta: ObjectMeta) -> Self {
        self.with(|pod| {
            pod.namespace.answer = Some(LiveAnswer::scripted(
                NamespaceState::Present(meta),
                LogicalTime::now(),
            ));
        })
    }

    pub(crate) fn absent(mut self) -> Self {
        self.0.pod = None;
        self
    }

    pub(crate) fn held(self) -> Self {
        self.with(|pod| pod.held = true)
    }

    pub(crate) fn ended(self) -> Self {
        self.with(|pod| pod.ended = true).shown_by_argo()
    }

    pub(crate) fn deleting(self, time: &str) -> Self {
        let at = format!("2026-11-21T{time}Z").parse().unwrap();
        self.with(|pod| pod.deleting = Some(at)).shown_by_argo()
    }

    /// Created an hour ago; its workflow was retried five minutes ago, and has no node of it yet.
    pub(crate) fn of_earlier_run(self) -> Self {
        let minutes = |minutes: u64| now() - Duration::from_secs(60 * minutes);
        let case = self.node(&[]).with_argo(|pod| {
            if let Some(shutdown) = &mut pod.shutdown {
                shutdown.created = Some(minutes(60));
            }
        });
        case.with(|pod| {
            let view = pod.node.as_mut().unwrap();
            let StatusState::Read(nodes) = view.answer.as_ref().unwrap().answer() else {
                panic!("the case has a status");
            };
            let nodes = Arc::clone(nodes).retried_at(minutes(5));
            view.answer = Some(LiveAnswer::scripted(
                StatusState::Read(nodes),
                LogicalTime::now(),
            ));
        })
    }

    fn with_argo(self, change: impl FnOnce(&mut Pod)) -> Self {
        self.with(|pod| change(Arc::make_mut(&mut pod.argo.as_mut().unwrap().pod)))
    }

    /// A step that ended by itself, or one that runs.
    fn shown_by_argo(self) -> Self {
        let view = self.0.pod.as_ref().unwrap();
        let (ended, deleting) = (view.ended, view.deleting);
        let (phase, state) = match ended {
            true => (
                Phase::Failed,
                ContainerState::Terminated {
                    exit_code: 1,
                    finished: true,
                },
            ),
            false => (Phase::Running, ContainerState::Running),
        };
        let containers = ["main", "wait"]
            .map(|name| Container::new(name.into(), ContainerKind::Main, state, true));
        self.with_argo(|pod| {
            pod.phase = phase;
            pod.meta.deletion_timestamp = deleting;
            pod.shutdown = deleting.map(|_| Box::default());
            if let Some(shutdown) = &mut pod.shutdown {
                shutdown.containers = Box::new(containers);
            }
        })
    }

    /// Its containers had not ended when its deletion was seen.
    pub(crate) fn by_its_deletion(self) -> Self {
        self.with_argo(|pod| {
            for container in &mut pod.shutdown.as_mut().unwrap().containers {
                container.unfinished_at_deletion = true;
            }
        })
    }

    /// No container of it ever started.
    pub(crate) fn never_started(self) -> Self {
        self.with_argo(|pod| {
            pod.phase = Phase::Pending;
            pod.started = false;
            pod.shutdown = Some(Box::default());
        })
    }

    pub(crate) fn held_though_deleted(self) -> Self {
        self.with_profile(|profile| profile.deleted_while_running = DeletedWhileRunning::Hold)
    }

    pub(crate) fn agent(self) -> Self {
        self.with_argo(|pod| {
            let labels = [(crate::profile::argo::COMPONENT_LABEL, "agent")];
            pod.meta.labels = labels.into_iter().collect();
        })
    }

    /// Although its profile names another owner kind.
    pub(crate) fn of_argo(self) -> Self {
        let argo = pod().0.pod.unwrap().argo;
        self.with(|pod| pod.argo = argo)
    }

    /// Of another owner than a Workflow.
    pub(crate) fn not_of_argo(self) -> Self {
        self.with(|pod| pod.argo = None)
    }

    pub(crate) fn forced(self) -> Self {
        self.with_argo(|pod| pod.meta.deletion_grace_period = Some(0))
            .looks_lost()
    }

    /// Deleted by force, of whatever owner.
    pub(crate) fn shut_down(self) -> Self {
        self.with(|pod| pod.shut_down = true)
    }

    pub(crate) fn by_pod_gc(self) -> Self {
        self.with_argo(|pod| {
            pod.phase = Phase::Failed;
            pod.shutdown.as_mut().unwrap().by_pod_gc = true;
        })
        .looks_lost()
    }

    fn looks_lost(self) -> Self {
        self.with(|pod| {
            let argo = pod.argo.as_mut().unwrap();
            argo.node = NodeQuery::about(&argo.pod).map(|query| NodeOfPod {
                query,
                answer: None,
                suspected: LogicalTime::now(),
                lost_for: None,
            });
        })
    }

    fn with_node(self, change: impl FnOnce(&mut NodeOfPod)) -> Self {
        self.with(|pod| change(pod.argo.as_mut().unwrap().node.as_mut().unwrap()))
    }

    pub(crate) fn node_is(self, state: NodeState) -> Self {
        self.with_node(|node| node.answer = Some(LiveAnswer::scripted(state, LogicalTime::now())))
    }

    pub(crate) fn node_read_too_early(self) -> Self {
        self.with_node(|node| node.suspected = LogicalTime::now())
    }

    pub(crate) fn suspected_when_the_read_began(self) -> Self {
        self.with_node(|node| node.suspected = node.answer.as_ref().unwrap().begun())
    }

    pub(crate) fn lost_since(self, time: &str) -> Self {
        let at = format!("2026-11-21T{time}Z").parse().unwrap();
        self.with_node(|node| node.lost_for = Some(elapsed(at, now())))
    }

    pub(crate) fn node_lost_delay(self, delay: Duration) -> Self {
        self.with_profile(|profile| profile.node_lost_delay = delay)
    }

    /// Its consumer reads records.
    pub(crate) fn read_as_record(self) -> Self {
        self.not_of_argo()
            .with_profile(|profile| profile.consumer = Consumer::PodOutcome)
    }

    pub(crate) fn admin_asked(self) -> Self {
        self.with(|pod| pod.admin_asked = true)
    }

    pub(crate) fn recreated(self) -> Self {
        self.with(|pod| pod.recreated = true)
    }

    pub(crate) fn adopted(self) -> Self {
        self.with(|pod| pod.adopted = Box::new(["theirs.io/status".into()]))
    }

    pub(crate) fn without_owner_status(self) -> Self {
        self.with_profile(|profile| profile.owner_status = OwnerStatus::None)
    }

    pub(crate) fn captured(self) -> Self {
        self.with_profile(|profile| profile.capture = true)
    }

    pub(crate) fn written(self) -> Self {
        self.with(|pod| pod.record = RecordState::Written(Captured::scripted("pod-1")))
    }

    pub(crate) fn not_final(self, time: &str) -> Self {
        let at = format!("2026-11-21T{time}Z").parse().unwrap();
        self.with(|pod| {
            pod.record = RecordState::NotFinal {
                why: "main runs".into(),
                version: pod.version,
                at,
            };
        })
    }

    pub(crate) fn changed(self) -> Self {
        self.with(|pod| pod.version = ResourceVersion::new(11))
    }

    pub(crate) fn recorded_as_it_is(self) -> Self {
        self.with(|pod| pod.record = RecordState::Incomplete(pod.version))
    }

    pub(crate) fn refused(self, time: &str) -> Self {
        let at = format!("2026-11-21T{time}Z").parse().unwrap();
        self.with(|pod| {
            let why = "no quota".into();
            pod.record = RecordState::Refused {
                why,
                at,
                pause: Backoff::DENIED.cap(),
            };
        })
    }

    /// Rejected `times` times, the last time now.
    pub(crate) fn refused_before(self, times: u32) -> Self {
        let (why, at) = ("no quota".into(), super::now());
        let next = |pause, _| Some(Backoff::DENIED.ceiling_after(pause));
        let pause = (0..times).fold(None, next).unwrap_or_default();
        self.with(|pod| pod.record = RecordState::Refused { why, at, pause })
    }

    pub(crate) fn node_unasked(self) -> Self {
        let kind = crate::profile::argo::workflow();
        self.with(|pod| {
            pod.node = Some(NodeView {
                node: NodeRef::Id("node-1".into()),
                query: StatusQuery::new(kind, ObjectKey::new("ci", "build"), Uid::new("wf-1")),
                answer: None,
            });
        })
    }

    fn status_answer(self, state: StatusState) -> Self {
        self.node_unasked().with(|pod| {
            let answer = LiveAnswer::scripted(state, LogicalTime::now());
            pod.node.as_mut().unwrap().answer = Some(answer);
        })
    }

    pub(crate) fn node(self, fulfilled: &[&str]) -> Self {
        self.status_answer(StatusState::Read(Nodes::scripted(
            10,
            &["node-1"],
            fulfilled,
        )))
    }

    pub(crate) fn nodes_of_others(self) -> Self {
        let nodes = Nodes::scripted(10, &["node-2"], &["node-2"]);
        self.status_answer(StatusState::Read(nodes))
    }

    pub(crate) fn status_too_large(self) -> Self {
        self.status_answer(StatusState::TooLarge("300 MiB".into()))
    }

    pub(crate) fn node_offloaded(self) -> Self {
        self.status_answer(StatusState::Offloaded("offloaded to a database".into()))
    }

    pub(crate) fn owner_changed(self) -> Self {
        let newer = ObjectMeta {
            resource_version: ResourceVersion::new(11),
            ..owner_meta()
        };
        self.with_owner(|owner| owner.cached = CachedOwner::Present(newer))
    }

    fn with_gc(self, annotation: &str, workflow: WorkflowEnd) -> Self {
        let gc = PodGc::parse(annotation).unwrap();
        self.with(|pod| {
            pod.cleanup = Some(CleanupView {
                gc,
                pod: PodEnd::Succeeded,
                workflow,
                due_for: None,
            });
        })
    }

    pub(crate) fn gc(self, annotation: &str) -> Self {
        self.with_gc(annotation, WorkflowEnd::NotYet)
    }

    pub(crate) fn gc_orphan(self, annotation: &str) -> Self {
        self.with_gc(annotation, WorkflowEnd::Gone)
    }

    pub(crate) fn due_since(self, time: &str) -> Self {
        let at = format!("2026-11-21T{time}Z").parse().unwrap();
        self.with(|pod| pod.cleanup.as_mut().unwrap().due_for = Some(elapsed(at, now())))
    }

    pub(crate) fn unselected(self) -> Self {
        self.with(|pod| {
            pod.selection = Selection::None;
            pod.owner = Owner::NotRequired;
        })
    }

    /// As [`Case::unselected`], but the pod's controller is of a kind that owns pods of the profile.
    pub(crate) fn unselected_and_owned(self) -> Self {
        self.with(|pod| {
            let Selection::By { profile, consumed } = pod.selection.clone() else {
                panic!("the case is selected");
            };
            pod.selection = Selection::None;
            pod.deciding_profiles = Box::new([DecidingProfile { profile, consumed }]);
        })
    }

    pub(crate) fn ignored(self) -> Self {
        self.with(|pod| {
            pod.selection = Selection::Ignored;
            pod.owner = Owner::NotRequired;
            pod.namespace.cached = Some(ignored(namespace_meta()));
        })
    }

    pub(crate) fn ignored_confirmed(self) -> Self {
        self.namespace_answer(ignored(namespace_meta()))
    }

    /// A live read shows that the namespace is not ignored any more.
    pub(crate) fn ignored_before(self) -> Self {
        self.namespace_answer(namespace_meta())
    }

    pub(crate) fn consumed(self) -> Self {
        self.with(|pod| {
            if let Selection::By { consumed, .. } = &mut pod.selection {
                *consumed = true;
            }
        })
    }

    pub(crate) fn observed(self) -> Self {
        self.with_profile(|profile| profile.mode = Mode::Observe)
    }

    /// This process first looked at its deletion `waited` ago, when it had waited for `before` by the wall clock.
    pub(crate) fn watched(self, before: Duration, waited: Duration) -> Self {
        self.with(|pod| pod.watched = Some(Watched { waited, before }))
    }

    pub(crate) fn release_after(self, limit: Duration) -> Self {
        self.with_profile(|profile| profile.release_after = Some(limit))
    }

    fn with_profile(self, change: impl FnOnce(&mut Profile)) -> Self {
        self.with(|pod| {
            if let Selection::By { profile, .. } = &mut pod.selection {
                change(Arc::make_mut(profile));
            }
        })
    }

    pub(crate) fn namespace_deleting(self) -> Self {
        self.with(|pod| pod.namespace.cached = Some(deleting(namespace_meta())))
    }

    /// The cache is newer than the last live read.
    pub(crate) fn namespace_deleting_since(self) -> Self {
        let newer = ObjectMeta {
            resource_version: ResourceVersion::new(11),
            ..deleting(namespace_meta())
        };
        self.with(|pod| pod.namespace.cached = Some(newer))
    }

    pub(crate) fn namespace_confirmed(self) -> Self {
        self.namespace_answer(deleting(namespace_meta()))
    }

    pub(crate) fn namespace_lives(self) -> Self {
        self.namespace_answer(ObjectMeta {
            uid: Uid::new("ns-2"),
            ..namespace_meta()
        })
    }

    pub(crate) fn ownerless(self) -> Self {
        self.with(|pod| pod.owner = Owner::Missing)
    }

    pub(crate) fn owner_absent(self) -> Self {
        self.with_owner(|owner| owner.cached = CachedOwner::Absent)
    }

    pub(crate) fn owner_unknown(self) -> Self {
        self.with_owner(|owner| owner.cached = CachedOwner::Unknown)
    }

    pub(crate) fn owner_deleting(self) -> Self {
        self.with_owner(|owner| owner.cached = CachedOwner::Present(deleting(owner_meta())))
    }

    pub(crate) fn owner_deleting_live(self) -> Self {
        self.owner_answer(OwnerState::Present(deleting(owner_meta())))
    }

    /// Argo goes on running it until it has collected its artifacts.
    pub(crate) fn owner_deleting_live_but_kept_running(self) -> Self {
        let finalizers = ["workflows.argoproj.io/artifact-gc"].map(Into::into).into();
        self.owner_answer(OwnerState::Present(ObjectMeta {
            finalizers,
            ..deleting(owner_meta())
        }))
    }

    pub(crate) fn owner_gone(self) -> Self {
        self.owner_answer(OwnerState::Gone(GoneProof::scripted()))
    }

    pub(crate) fn owner_lives(self) -> Self {
        self.owner_answer(OwnerState::Present(owner_meta()))
    }

    pub(crate) fn owner_not_served(self) -> Self {
        self.owner_answer(OwnerState::Unknown(
            "workflows.argoproj.io is not served at v1alpha1".into(),
        ))
    }

    pub(crate) fn owner_finished(self) -> Self {
        self.with_owner(|owner| owner.cached = CachedOwner::Present(finished(owner_meta())))
    }

    pub(crate) fn owner_finished_live(self) -> Self {
        self.owner_answer(OwnerState::Present(finished(owner_meta())))
    }

    /// The pod is a successor of the same name: it was seen only after all live reads began.
    pub(crate) fn seen_after_the_reads(self) -> Self {
        self.with(|pod| pod.first_seen = LogicalTime::now())
    }

    /// It was seen at the logical time at which its live read began.
    pub(crate) fn seen_when_the_read_began(self) -> Self {
        self.with(|pod| {
            let namespace = pod.namespace.answer.as_ref().map(LiveAnswer::begun);
            let status = pod.node.as_ref().and_then(|node| node.answer.as_ref());
            let owner = match &pod.owner {
                Owner::Known(owner) => owner.answer.as_ref().map(LiveAnswer::begun),
                _ => None,
            };
            let begun = namespace.or(owner).or(status.map(LiveAnswer::begun));
            pod.first_seen = begun.unwrap();
        })
    }

    pub(crate) fn mass_release(mut self) -> Self {
        self.0.mass_release = MassRelease::Exceeded {
            unselected: 50,
            held: 100,
            scope: Scope::Namespace,
        };
        self
    }

    pub(crate) fn gate_closed(mut self) -> Self {
        self.0.backlog = BacklogLimit::Reached;
        self
    }

    pub(crate) fn namespace_closed(mut self) -> Self {
        self.0.backlog = BacklogLimit::ReachedInNamespace;
        self
    }
}
