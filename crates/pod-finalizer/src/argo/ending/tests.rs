//! What the recorded runs of Argo Workflows 4.1 show, and what lies beside them. Each case is one
//! version of a pod that is being deleted.

use jiff::Timestamp;
use rstest::rstest;

use belayer_core::object::{ObjectKey, ResourceVersion, Uid};
use belayer_core::slim::{
    BeforeDeletion, Container, ContainerKind, ContainerSet, ContainerState, Failure, ObjectMeta,
    Unstarted,
};

use super::*;
use crate::argo::NodeQuery;

/// When a container's end was seen.
#[derive(Clone, Copy)]
enum Seen {
    /// With the first version that has a deletion timestamp, or before.
    Before,
    /// In a later version.
    After,
}
use Seen::{After, Before};

struct Case(Pod);

fn pod(phase: Phase) -> Case {
    let meta = ObjectMeta {
        deletion_timestamp: Some(Timestamp::UNIX_EPOCH),
        ..ObjectMeta::new(
            ObjectKey::new("ci", "step"),
            Uid::new("u-1"),
            ResourceVersion::new(1),
        )
    };
    Case(Pod {
        phase,
        shutdown: Some(Box::default()),
        unstarted: Some(Box::new(Unstarted {
            seen_before_failure: phase != Phase::Failed,
            ..Unstarted::default()
        })),
        ..Pod::new(meta)
    })
}

impl Case {
    fn add(
        mut self,
        name: &str,
        kind: ContainerKind,
        state: ContainerState,
        started: Started,
    ) -> Self {
        let started = matches!(started, Started::Yes);
        let container = Container::new(name.into(), kind, state, started);
        let shutdown = self.0.shutdown.as_mut().unwrap();
        let all = shutdown.containers.iter().cloned().chain([container]);
        shutdown.containers = all.collect();
        self
    }

    fn waits(self, name: &str) -> Self {
        self.add(
            name,
            ContainerKind::Main,
            ContainerState::Waiting,
            Started::No,
        )
    }

    fn runs(self, name: &str) -> Self {
        self.add(
            name,
            ContainerKind::Main,
            ContainerState::Running,
            Started::Yes,
        )
    }

    fn ended(self, name: &str, exit_code: i32, seen: Seen) -> Self {
        self.end(name, ContainerKind::Main, exit_code, true, seen)
    }

    fn init(self, exit_code: i32, seen: Seen) -> Self {
        self.end("init", ContainerKind::Init, exit_code, true, seen)
    }

    fn init_waits(self) -> Self {
        self.add(
            "init",
            ContainerKind::Init,
            ContainerState::Waiting,
            Started::No,
        )
    }

    /// As the kubelet writes of a container whose fate it does not know.
    fn vanished(self, name: &str, seen: Seen) -> Self {
        self.end(name, ContainerKind::Main, 137, false, seen)
    }

    fn end(
        self,
        name: &str,
        kind: ContainerKind,
        exit_code: i32,
        finished: bool,
        seen: Seen,
    ) -> Self {
        let state = ContainerState::Terminated {
            exit_code,
            finished,
        };
        let mut case = self.add(name, kind, state, Started::Yes);
        if let Seen::After = seen {
            let shutdown = case.0.shutdown.as_mut().unwrap();
            shutdown
                .containers
                .last_mut()
                .unwrap()
                .unfinished_at_deletion = true;
        }
        case
    }

    /// A native sidecar: an init container that runs beside the others.
    fn native(self, name: &str, exit_code: i32, seen: Seen) -> Self {
        self.end(name, ContainerKind::Sidecar, exit_code, true, seen)
    }

    /// With what a kubelet writes about a pod that it rejects.
    fn rejected(mut self) -> Self {
        self.0.reason = Some("OutOfcpu".into());
        self.0.failure = Some(Box::new(Failure {
            message: Some("Pod was rejected".into()),
            start_time: Some(Timestamp::UNIX_EPOCH),
            ..Failure::default()
        }));
        self
    }

    /// Without a word of when it started.
    fn reported_ended(self, name: &str) -> Self {
        let state = ContainerState::Terminated {
            exit_code: 1,
            finished: false,
        };
        self.add(name, ContainerKind::Main, state, Started::No)
    }

    fn known(mut self, before: BeforeDeletion) -> Self {
        self.0.shutdown.as_mut().unwrap().before = before;
        self
    }

    /// The version just before its deletion was watched.
    fn watched(self) -> Self {
        self.known(BeforeDeletion::Watched)
    }

    fn set(mut self, set: ContainerSet) -> Self {
        self.0.shutdown.as_mut().unwrap().container_set = set;
        self
    }

    /// A container set with these members.
    fn set_of(self, members: &[&str]) -> Self {
        let members = members.iter().map(|name| (*name).into());
        self.set(ContainerSet::Of(members.collect()))
    }

    fn by_pod_gc(mut self) -> Self {
        self.0.shutdown.as_mut().unwrap().by_pod_gc = true;
        self
    }

    fn not_deleted(mut self) -> Self {
        self.0.meta.deletion_timestamp = None;
        self
    }
}

enum Started {
    Yes,
    No,
}

#[rstest]
#[case::pod_deleted_running(pod(Phase::Failed).init(0, Before).ended("main", 143, After).ended("wait", 0, After))]
#[case::its_end_before_the_phase(pod(Phase::Running).init(0, Before).ended("main", 143, After).ended("wait", 0, After))]
#[case::killed_after_its_grace(pod(Phase::Failed).init(0, Before).ended("main", 137, After).ended("wait", 137, After))]
#[case::while_its_outputs_were_saved(pod(Phase::Failed).init(0, Before).ended("main", 0, Before).ended("wait", 2, After))]
#[case::with_a_sidecar(pod(Phase::Failed).ended("main", 143, After).ended("side", 143, After).ended("wait", 0, After))]
#[case::its_sidecar_had_ended(pod(Phase::Failed).ended("main", 143, After).ended("side", 0, Before).ended("wait", 0, After))]
#[case::of_argo_4(pod(Phase::Failed).ended("main", 143, After).ended("supervisor", 0, After))]
#[case::its_end_was_not_watched(pod(Phase::Failed).vanished("main", After).vanished("wait", After))]
#[case::while_it_was_prepared(pod(Phase::Failed).init(143, After).waits("main").waits("wait"))]
#[case::between_init_and_main(pod(Phase::Failed).init(0, Before).waits("main").waits("wait"))]
#[case::its_image_could_not_be_pulled(pod(Phase::Failed).init(0, Before).waits("main").ended("wait", 143, After))]
#[case::a_member_of_a_set(pod(Phase::Failed).ended("one", 0, Before).ended("main", 143, After).ended("wait", 0, After))]
#[case::a_sidecar_had_failed(pod(Phase::Failed).ended("main", 143, After).ended("side", 1, Before).ended("wait", 143, After).watched())]
#[case::a_sidecar_had_been_killed(pod(Phase::Failed).ended("main", 143, After).ended("side", 143, Before).ended("wait", 143, After).watched())]
#[case::a_native_sidecar_had_been_killed(
    pod(Phase::Failed).init(0, Before).native("proxy", 143, Before).ended("main", 143, After).ended("wait", 0, After).watched()
)]
#[case::a_native_sidecar_had_failed(
    pod(Phase::Failed).native("proxy", 1, Before).ended("main", 143, After).ended("wait", 143, After).watched()
)]
#[case::only_a_native_sidecar_had_started(
    pod(Phase::Failed).native("proxy", 143, Before).waits("main").waits("wait").watched()
)]
#[case::a_sidecar_of_a_set_had_failed(
    pod(Phase::Failed).ended("one", 143, After).ended("side", 1, Before).ended("wait", 143, After).set_of(&["one"]).watched()
)]
#[case::a_member_of_a_known_set(
    pod(Phase::Failed).ended("one", 0, Before).ended("two", 143, After).ended("wait", 0, After).set_of(&["one", "two"]).watched()
)]
#[case::a_set_without_main(pod(Phase::Failed).ended("one", 143, After).ended("two", 143, After).ended("wait", 0, After))]
#[case::a_set_that_was_not_saved(pod(Phase::Failed).ended("one", 0, Before).ended("two", 143, After).ended("wait", 143, After))]
#[case::unscheduled_deleted(pod(Phase::Pending))]
#[case::the_same_once_pod_gc_calls_it_failed(pod(Phase::Failed).by_pod_gc())]
#[case::the_same_on_a_node_that_never_reported_it(pod(Phase::Failed).forced())]
#[case::and_once_its_node_is_gone(pod(Phase::Failed).by_pod_gc().forced())]
#[case::argo_had_not_saved_it_as_a_native_sidecar(
    pod(Phase::Failed).init(0, Before).native("supervisor", 143, After).ended("main", 0, Before)
)]
#[case::a_native_sidecar_of_argo_had_failed(
    pod(Phase::Failed).native("supervisor", 1, Before).ended("main", 143, After).watched()
)]
#[case::a_kubelet_rejected_it_after_it_was_seen_pending(pod(Phase::Failed).rejected().forced().seen_pending())]
#[case::the_same_before_its_deletion(
    pod(Phase::Failed).rejected().forced().known(BeforeDeletion::Ended).seen_pending()
)]
#[case::while_it_waited_for_its_images(pod(Phase::Pending).init_waits().waits("main").waits("wait"))]
#[case::of_argo_4_while_it_waited_for_its_image(pod(Phase::Pending).waits("main").runs("supervisor"))]
fn a6_its_deletion_ended_it(#[case] case: Case) {
    assert!(
        matches!(Ending::of(&case.0), Ending::ByDeletion(_)),
        "{:?}",
        Ending::of(&case.0)
    );
}

#[rstest]
#[case::it_is_not_being_deleted(pod(Phase::Pending).not_deleted(), Held::NotDeleted)]
#[case::it_still_runs(pod(Phase::Running).init(0, Before).runs("main").runs("wait"), Held::Running)]
#[case::argo_still_saves(pod(Phase::Running).ended("main", 143, After).runs("wait"), Held::Running)]
#[case::it_is_still_being_prepared(pod(Phase::Pending).init(0, Before).waits("main").waits("wait"), Held::Running)]
#[case::a_node_that_pod_gc_cannot_see(pod(Phase::Failed).by_pod_gc().runs("main").runs("wait"), Held::Running)]
#[case::the_same_before_it_began(pod(Phase::Failed).by_pod_gc().init(0, Before).waits("main").waits("wait"), Held::Running)]
#[case::a_shutdown_that_was_cut_off(pod(Phase::Failed).runs("main").runs("wait"), Held::Running)]
#[case::it_had_failed(pod(Phase::Failed).init(0, Before).ended("main", 1, Before).ended("wait", 0, After).watched(), Held::Failed)]
#[case::its_init_container_had_failed(pod(Phase::Failed).init(7, Before).waits("main").waits("wait").watched(), Held::Failed)]
#[case::a_member_had_failed(
    pod(Phase::Failed).ended("one", 1, Before).ended("main", 143, After).ended("wait", 0, After).set_of(&["one", "main"]).watched(),
    Held::Failed
)]
#[case::a_member_or_a_sidecar_had_failed(
    pod(Phase::Failed).ended("one", 1, Before).ended("main", 143, After).ended("wait", 0, After).set(ContainerSet::Unknown).watched(),
    Held::Failed
)]
#[case::it_failed_before_it_was_listed(
    pod(Phase::Failed).ended("main", 143, Before).ended("wait", 143, Before).known(BeforeDeletion::Ended),
    Held::Failed
)]
#[case::it_failed_and_the_order_was_not_watched(pod(Phase::Failed).ended("main", 143, Before).ended("wait", 143, Before), Held::Undecided)]
#[case::so_it_did_while_argo_still_saved(pod(Phase::Running).ended("main", 143, Before).runs("wait"), Held::Undecided)]
#[case::its_sidecar_was_killed_and_the_order_was_not_watched(
    pod(Phase::Failed).ended("main", 0, Before).ended("side", 137, Before).ended("wait", 0, Before),
    Held::Succeeded
)]
#[case::the_same_where_the_sidecar_may_be_a_member(
    pod(Phase::Failed).ended("main", 0, Before).ended("side", 137, Before).ended("wait", 0, Before).set(ContainerSet::Unknown),
    Held::Succeeded
)]
#[case::a_kubelet_had_rejected_it(pod(Phase::Failed).rejected().forced().known(BeforeDeletion::Ended), Held::Undecided)]
#[case::it_was_marked_failed_before(pod(Phase::Failed).forced().known(BeforeDeletion::Ended), Held::Undecided)]
#[case::argo_had_not_saved_it_and_a_sidecar_runs(
    pod(Phase::Running).ended("main", 0, Before).ended("wait", 64, Before).runs("side").watched(),
    Held::Ended
)]
#[case::the_same_where_the_order_was_not_watched(
    pod(Phase::Running).ended("main", 0, Before).ended("wait", 64, Before).runs("side"),
    Held::Undecided
)]
#[case::a_virtual_node_rejected_it(pod(Phase::Failed).forced().because("ProviderFailed"), Held::Undecided)]
#[case::its_report_is_gone(pod(Phase::Failed).forced().had_run(), Held::Undecided)]
#[case::argo_saved_it_as_a_native_sidecar(
    pod(Phase::Failed).init(0, Before).native("supervisor", 0, After).ended("main", 0, Before).ended("side", 143, After),
    Held::Succeeded
)]
#[case::sidecar_deleted_late(
    pod(Phase::Failed).init(0, Before).ended("main", 0, Before).ended("side", 137, After).ended("wait", 0, Before),
    Held::Succeeded
)]
#[case::it_ended_well_within_its_grace(pod(Phase::Succeeded).ended("main", 0, After).ended("wait", 0, After), Held::Succeeded)]
#[case::so_it_did_but_for_a_sidecar(pod(Phase::Failed).ended("main", 0, After).ended("side", 137, After).ended("wait", 0, After), Held::Succeeded)]
#[case::a_set_whose_members_are_not_known(pod(Phase::Failed).ended("one", 0, Before).ended("two", 143, After).ended("wait", 0, After), Held::Succeeded)]
#[case::ended_deleted_while_down(pod(Phase::Succeeded).ended("main", 0, Before).ended("wait", 0, Before), Held::Succeeded)]
#[case::its_deletion_was_not_watched(pod(Phase::Failed).vanished("main", Before).vanished("wait", Before), Held::Undecided)]
#[case::an_end_is_a_start(pod(Phase::Failed).reported_ended("main"), Held::Undecided)]
#[case::a_kubelet_rejected_it(pod(Phase::Failed).rejected().forced(), Held::Undecided)]
fn a6_it_may_have_a_result(#[case] case: Case, #[case] why: Held) {
    assert_eq!(Ending::of(&case.0), Ending::Held(why));
}

impl Case {
    /// Its status has a reason, and no time at which a kubelet took it.
    fn because(mut self, reason: &str) -> Self {
        self.0.reason = Some(reason.into());
        self
    }

    /// An earlier version was Pending, and none since showed that a container had started.
    fn seen_pending(mut self) -> Self {
        self.0.unstarted.as_mut().unwrap().seen_before_failure = true;
        self
    }

    /// An earlier version showed that it had run.
    fn had_run(mut self) -> Self {
        self.0.unstarted = None;
        self
    }

    /// Bound to a node, and without any grace left.
    fn forced(mut self) -> Self {
        self.0.node_name = Some("n1".into());
        self.0.meta.deletion_grace_period = Some(0);
        self
    }
}

#[rstest]
#[case::node_lost(pod(Phase::Failed).by_pod_gc().init(0, Before).runs("main").runs("wait"), true)]
#[case::before_it_began(pod(Phase::Failed).by_pod_gc().init(0, Before).waits("main").waits("wait"), true)]
#[case::nothing_was_ever_reported(pod(Phase::Failed).by_pod_gc(), true)]
#[case::the_same_without_a_word_of_pod_gc(pod(Phase::Failed), true)]
#[case::marked_failed_before_its_deletion(pod(Phase::Failed).known(BeforeDeletion::Ended), true)]
#[case::a_kubelet_rejected_it(pod(Phase::Failed).rejected(), false)]
#[case::a_virtual_node_rejected_it(pod(Phase::Failed).because("ProviderFailed"), false)]
#[case::a_shutdown_that_was_cut_off(pod(Phase::Failed).runs("main").runs("wait"), true)]
#[case::pod_force_deleted(pod(Phase::Running).runs("main").runs("wait"), true)]
#[case::argo_had_not_saved_it(pod(Phase::Failed).by_pod_gc().ended("main", 1, Before).runs("wait"), true)]
#[case::its_result_can_be_read(pod(Phase::Failed).by_pod_gc().ended("main", 0, Before).runs("side").ended("wait", 0, Before), false)]
#[case::a_set_whose_result_was_saved(pod(Phase::Failed).by_pod_gc().ended("one", 0, Before).runs("proxy").ended("wait", 0, Before), false)]
#[case::its_init_container_had_failed(pod(Phase::Failed).init(7, Before).waits("main").waits("wait"), false)]
#[case::it_succeeded(pod(Phase::Succeeded).runs("main"), false)]
fn a2_the_node_of_a_pod_without_an_end_is_read(#[case] case: Case, #[case] asks: bool) {
    assert_eq!(NodeQuery::about(&case.forced().0).is_some(), asks);
}

#[test]
fn a2_only_the_node_of_an_abandoned_pod_is_read() {
    let mut kept = pod(Phase::Running).runs("main").runs("wait").forced();
    kept.0.meta.deletion_grace_period = Some(30);
    assert_eq!(NodeQuery::about(&kept.0), None);
    assert!(NodeQuery::about(&kept.by_pod_gc().0).is_some());
    let mut nowhere = pod(Phase::Failed).by_pod_gc().forced();
    nowhere.0.node_name = None;
    assert_eq!(NodeQuery::about(&nowhere.0), None);
}
