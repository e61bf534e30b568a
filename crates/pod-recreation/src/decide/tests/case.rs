//! Records and pods for the cases.

use super::*;

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub(crate) fn meta(name: &str, uid: &str) -> ObjectMeta {
    ObjectMeta::new(
        ObjectKey::new("yard", name),
        Uid::new(uid),
        ResourceVersion::new(1),
    )
}

pub(crate) fn pod(uid: &str) -> PodView {
    let pod = Pod::new(meta("web", uid));
    PodView {
        held: true,
        selection: Selection::Yes,
        ..PodView::of(&pod, &Settings::default(), FirstSeen::Earlier)
    }
}

pub(crate) fn never_ran() -> Result<NeverRan, MayHaveRun> {
    let failed = Pod {
        phase: belayer_core::slim::Phase::Failed,
        ..Pod::new(meta("web", "x"))
    };
    NeverRan::prove(&failed, FirstSeen::Rejected)
}

pub(crate) fn with(class: Class, never_ran: Result<NeverRan, MayHaveRun>, pod: PodView) -> PodView {
    PodView {
        node: Some("node-1".into()),
        state: PodState::Rejected(Rejection {
            reason: "OutOfcpu".into(),
            message: Some("Pod was rejected: x".into()),
            class,
            never_ran,
        }),
        ..pod
    }
}

pub(crate) fn rejected_pod(uid: &str) -> PodView {
    with(Class::Race, never_ran(), pod(uid))
}

pub(crate) fn being_deleted(pod: PodView) -> PodView {
    PodView {
        deleting: true,
        ..pod
    }
}

pub(crate) fn of_attempt(attempt: u32, pod: PodView) -> PodView {
    PodView {
        origin: Some(Origin {
            record: "web-u-1".into(),
            record_uid: Uid::new("r-1"),
            attempt,
            annotated: true,
        }),
        ..pod
    }
}

pub(crate) fn started(pod: PodView) -> PodView {
    PodView {
        state: PodState::Started,
        ..pod
    }
}

pub(crate) fn record(phase: Option<Phase>) -> Record {
    Record {
        meta: meta("web-u-1", "r-1"),
        created: None,
        pod_name: "web".into(),
        first_uid: "u-1".into(),
        policy: Policy::default(),
        status: Status {
            phase,
            rejected_uid: Some("u-1".into()),
            node_name: Some("node-1".into()),
            pod_starts: 1,
            conditions: vec![Condition {
                r#type: ConditionType::HoldKept.as_str().to_owned(),
                status: ConditionStatus::True,
                reason: String::new(),
                message: String::new(),
                last_transition_time: at(0),
            }],
            ..Status::default()
        },
    }
}

pub(crate) fn attempts(attempts: u32, mut record: Record) -> Record {
    record.status.attempts = attempts;
    record
}

pub(crate) fn recreated_as(uid: &str, mut record: Record) -> Record {
    record.status.pod_uid = Some(uid.to_owned());
    record
}

pub(crate) fn created_at(second: i64, mut record: Record) -> Record {
    record.created = Some(at(second));
    record
}

pub(crate) fn deleted_at(second: i64, mut record: Record) -> Record {
    record.status.pod_deletion_time = Some(at(second));
    record
}

pub(crate) fn ended_at(second: i64, mut record: Record) -> Record {
    record.status.finished_at = Some(at(second));
    record.status.message = Some("why".into());
    record
}

pub(crate) fn denied_since(second: i64, mut record: Record) -> Record {
    record.status.set(
        ConditionType::CreateDenied,
        ConditionStatus::True,
        ("Refused", "quota"),
        at(second),
    );
    record
}

pub(crate) fn wipe(policy: OnWipeTimeout, mut record: Record) -> Record {
    record.policy.wipe = Wipe::Required;
    record.policy.on_wipe_timeout = policy;
    record.status.set(
        ConditionType::PodRejected,
        ConditionStatus::True,
        ("OutOfcpu", ""),
        at(1_000),
    );
    record
}

pub(crate) fn snapshot(
    record: impl Into<Option<Record>>,
    pod: impl Into<Option<PodView>>,
) -> RecordSnapshot {
    RecordSnapshot {
        record: record.into().map(Box::new),
        pod: match pod.into() {
            Some(pod) => ObservedPod::Present(Box::new(pod)),
            None => ObservedPod::Absent,
        },
        namespace_terminating: false,
        replaced: false,
        cancelled: false,
        created: None,
        watched: None,
        holding: Holding::Allowed,
        wipe: ObservedWipe::Requested(None),
        record_ttl: TTL,
    }
}
