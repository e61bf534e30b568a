//! The same decisions for a person: both tables on live looks, and their rows in words.

use std::time::Duration;

use belayer_core::decision::Row;
use belayer_core::facts::{Fact, OwnerQuestion, OwnerState};
use belayer_core::moment::Moment;
use belayer_core::object::OwnerReference;
use belayer_core::slim::{Phase, Pod};

use crate::api;
use crate::component::record_key;
use crate::config::Settings;
use crate::decide::{Effect, NamespaceSight, Snapshot};
use crate::holds::{HoldSnapshot, RecordSight};
use crate::proof::FirstSight;
use crate::record::Record;
use crate::row;
use crate::snapshot::{Asked, PodView, Sight};

/// A pod as a controller sees it that has just started.
pub fn view(pod: &Pod, settings: &Settings) -> PodView {
    let sight = if pod.phase == Phase::Failed {
        FirstSight::Rejected
    } else {
        FirstSight::Earlier
    };
    PodView::of(pod, settings, sight)
}

/// What is to be asked about the record that a re-created pod names; `None` for others.
pub fn question(pod: &Pod, view: &PodView) -> Option<OwnerQuestion> {
    let mark = view.mark.as_ref()?;
    let reference = OwnerReference {
        api_version: api::resource().api_version().into(),
        kind: api::KIND.into(),
        name: mark.record.clone(),
        uid: mark.record_uid.clone(),
    };
    debug_assert_eq!(record_key(pod).name(), &*mark.record);
    let namespace = pod.meta.key.shared_namespace();
    Some(OwnerQuestion::new(api::resource(), namespace, &reference))
}

/// All that is read about a pod's hold, of looks that began after `seen`.
pub fn hold_snapshot(
    view: PodView,
    seen: Moment,
    record: RecordSight,
    look: Option<(OwnerQuestion, Option<Fact<OwnerState>>)>,
) -> HoldSnapshot {
    HoldSnapshot {
        pod: view,
        first_seen: seen,
        record,
        // Only a process that saw it knows of a record that was deleted before its time.
        cancelled: Asked::No,
        look,
    }
}

/// All that is read about a record, or about a pod that is to have one.
pub fn record_snapshot(
    record: Option<Record>,
    pod: Option<PodView>,
    namespace: NamespaceSight,
    record_ttl: Duration,
) -> Snapshot {
    Snapshot {
        record: record.map(Box::new),
        pod: pod.map_or(Sight::Absent, |pod| Sight::Present(Box::new(pod))),
        namespace,
        cancelled: Asked::No,
        record_ttl,
    }
}

/// What a row of either table says, for people.
pub fn says(row: Row) -> &'static str {
    match row {
        row::NOT_OURS => "not held, and not to be held",
        row::ADMIN_ASKED => "held, and the annotation belayer.dev/release asks for its release",
        row::ADD_HOLD => "asks for re-creation and is not held yet",
        row::RECORD_GONE => "held, and the record that it was re-created by is gone",
        row::RECORD_ENDED => "held, and its record has come to its end",
        row::RECREATING => "held, rejected, safe in its record, and deleted by Belayer",
        row::LEFTOVER => "held, deleted, and made by an attempt that was given up",
        row::DELETED => "held, and deleted before a rejection was recorded",
        row::STARTED => "held, and it has started",
        row::ENDED => "held, and it has ended otherwise than by a rejection worth another try",
        row::UNSELECTED => "held, and nothing asks for its re-creation any more",
        row::KEEP => "held until it starts, or its record comes to its end",
        row::NOTHING => "nothing to do",
        row::REJECTED => "rejected by its node, and without a record yet",
        row::BEGIN => "recorded, and the record says nothing yet",
        row::ORPHAN => "a record without its pod that says nothing: restored, or made by hand",
        row::EXHAUSTED => "rejected on every allowed try",
        row::WIPING => "its node has to be wiped first",
        row::INTEND => "the API server is asked whether it would take the pod again",
        row::DELETE => "the rejected pod is to be deleted",
        row::FREE => "the rejected pod is gone, and its name free",
        row::BACKOFF => "the pause before the next attempt runs",
        row::RESERVE => "the next attempt is to be reserved",
        row::CREATE => "an attempt is reserved, and its pod is to be created",
        row::RECREATED => "the pod of the attempt is there",
        row::POD_STARTED => "the re-created pod has started, or is about to",
        row::REJECTED_AGAIN => "the re-created pod was rejected too",
        row::CANCELLED => "somebody else deleted the pod, or has its name",
        row::DENIED => "the API server has refused the pod for too long",
        row::OLD_ATTEMPT => "the pod of an earlier attempt stands in the way",
        row::MARK => "come to its end: the rejected pod is to be told why it stays",
        row::EXPIRED => "come to its end, and kept for long enough",
        row::REPORTED => {
            "rejected, and not to be re-created: it may have run, or the reason is for good"
        }
        _ => "see the decision table",
    }
}

/// What a step is, for people.
pub fn step(effect: &Effect) -> &'static str {
    match effect {
        Effect::CreateRecord { .. } => "writes the record of the rejected pod",
        Effect::Status(_) => "writes down how far it has come",
        Effect::Intend { .. } => "tries by a dry run, and writes down that it will delete the pod",
        Effect::Reserve { .. } => "reserves the attempt, as soon as the bounds on storms allow",
        Effect::DeletePod { .. } => "deletes the pod, by its UID",
        Effect::CreatePod { .. } => "creates the pod",
        Effect::LookAtNode { .. } => "asks whether the node is still there, and waits for its wipe",
        Effect::Mark { .. } => "writes on the rejected pod why it is left alone",
        Effect::DeleteRecord => "deletes the record",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_both_tables_has_its_words() {
        let source = include_str!("row.rs");
        let rows = source.lines().filter(|line| line.starts_with("pub const"));
        let mut count = 0;
        for line in rows {
            let (number, name) = line
                .split_once("row(")
                .and_then(|(_, rest)| rest.split_once(", \""))
                .unwrap();
            let name: &'static str = name.split('"').next().unwrap().to_owned().leak();
            let row = Row {
                number: number.parse().unwrap(),
                name,
            };
            assert_ne!(says(row), "see the decision table", "{row}");
            count += 1;
        }
        assert!(count > 30, "the rows were not found");
    }
}
