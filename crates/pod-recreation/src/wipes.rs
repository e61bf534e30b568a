//! The lists of wipes: removes the entries that are done. The others stay until the garbage collector deletes the list with
//! its node, because only that shows that nothing is left to remove. A record requests a wipe itself, and reads its report; see
//! [`decide`](crate::decide).

use std::convert::Infallible;
use std::sync::Arc;

use belayer_core::clock;
use belayer_core::executor::{Class, Sent, version_of};
use belayer_core::http::{PatchKind, Request, RequestError};
use belayer_core::informer::{Event, Lookup, Store, Stored};
use belayer_core::object::{ObjectKey, Uid};
use belayer_core::queries::Waiter;
use belayer_core::workqueue::{Priority, WorkQueue};
use belayer_holds::decision::{Decision, Write};
use belayer_holds::names::{FIELD_MANAGER, POD_RECREATION_HOLD};
use belayer_holds::node_wipe::{self, NodeWipe, Wipe};
use belayer_holds::rules;
use belayer_holds::runner::{Change, Component, StepContext, Stepped};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::api::ConditionType;
use crate::component::PodRecreation;
use crate::record::Record;
use crate::snapshot::UNKNOWN;

rules! {
    KEEP = 1, "keep", "every wipe of the node is pending, or its report is not in its record yet";
    FORGET = 2, "forget", "a wipe is complete and reported";
}

/// The component of the runner of lists.
pub(crate) struct Wipes {
    records: Store<Record>,
}

/// The wipes of a node.
#[derive(Debug, Clone, Default)]
pub(crate) struct WipesSnapshot {
    wipes: Vec<(Uid, Wipe, Reported)>,
}

/// Whether the record of a wipe has its report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reported {
    /// The store is not synced.
    Unknown,
    /// Not yet.
    No,
    /// It has, or there is no record that waits for it.
    Yes,
}

impl Wipes {
    /// The component; `records` are all records.
    pub(crate) fn new(records: Store<Record>) -> Self {
        Self { records }
    }
}

/// Whether this record of a wipe has the report about the pod with this UID.
fn reported(record: &Lookup<Record>, uid: &Uid) -> Reported {
    match record {
        Lookup::Unknown => Reported::Unknown,
        Lookup::Absent => Reported::Yes,
        Lookup::Found(record) => {
            let names_it = record.status.rejected_uid.as_deref() == Some(uid.as_str());
            if names_it && !record.status.is_true(ConditionType::StateWiped) {
                Reported::No
            } else {
                Reported::Yes
            }
        }
    }
}

/// The key of a wipe's record.
fn record_key(wipe: &Wipe) -> ObjectKey {
    ObjectKey::new(
        Arc::clone(wipe.pod.shared_namespace()),
        Arc::clone(&wipe.record),
    )
}

/// When the oldest wipe was requested that no agent has reported as complete.
pub(crate) fn oldest_pending(lists: &Store<NodeWipe>) -> Option<Timestamp> {
    let mut oldest = None;
    lists.for_each(|list| {
        let pending = list.wipes.values().filter(|wipe| !wipe.is_done());
        let requested = pending.filter_map(|wipe| wipe.requested);
        oldest = oldest.into_iter().chain(requested).min();
    });
    oldest
}

/// Publishes how long the oldest pending wipe has waited. The node agents do not report that while they are down.
pub(crate) fn report_oldest(lists: &Store<NodeWipe>) {
    let age = |since| clock::now().duration_since(since).as_secs_f64();
    let oldest = oldest_pending(lists).map_or(0.0, age).max(0.0);
    metrics::gauge!(belayer_metrics::OLDEST_WIPE).set(oldest);
}

/// Enqueues the records whose wipe has changed.
pub(crate) fn enqueue_records(event: &Event<NodeWipe>, recreation: &PodRecreation) {
    for record in changed(event) {
        recreation.enqueue(record);
    }
}

/// The records whose wipe has changed.
fn changed(event: &Event<NodeWipe>) -> Vec<ObjectKey> {
    let (old, new) = match event {
        Event::Added { object, .. } => (None, Some(object)),
        Event::Updated { old, new } => (Some(old), Some(new)),
        Event::Deleted { last, .. } => (Some(last), None),
        _ => return Vec::new(),
    };
    let of = |list: Option<&Stored<NodeWipe>>, uid: &Uid| -> Option<Wipe> {
        list.and_then(|list| list.wipes.get(uid)).cloned()
    };
    let all = old.into_iter().chain(new).flat_map(|list| &list.wipes);
    let changed = all.filter(|(uid, _)| of(old, uid) != of(new, uid));
    changed.map(|(_, wipe)| record_key(wipe)).collect()
}

/// Enqueues the lists of the nodes that a record names or named, when the record changes.
pub(crate) fn enqueue_node(event: &Event<Record>, queue: &WorkQueue<ObjectKey>) {
    let records = match event {
        Event::Updated { old, new } => [Some(old), Some(new)],
        Event::Deleted { last, .. } => [Some(last), None],
        _ => return,
    };
    for status in records.into_iter().flatten().map(|record| &record.status) {
        if let Some(node) = &status.node_name
            && status.condition(ConditionType::StateWiped).is_some()
        {
            queue.add(ObjectKey::cluster(node.as_str()), Priority::Normal);
        }
    }
}

fn decide(snapshot: &WipesSnapshot) -> Decision<Infallible, Infallible, Vec<Uid>> {
    let done = snapshot.wipes.iter().filter(|(_, wipe, _)| wipe.is_done());
    let over: Vec<Uid> = done
        .clone()
        .filter(|(.., reported)| *reported == Reported::Yes)
        .map(|(uid, ..)| uid.clone())
        .collect();
    if !over.is_empty() {
        return Decision {
            write: Some(Write::Step(over)),
            ..Decision::nothing(FORGET)
        };
    }
    let mut unknown = done.filter(|(.., reported)| *reported == Reported::Unknown);
    Decision {
        due: unknown.next().map(|_| UNKNOWN),
        ..Decision::nothing(KEEP)
    }
}

/// Removes entries. One patch of their keys conflicts with no other entry.
async fn forget(context: &StepContext<'_>, over: &[Uid]) -> Result<Stepped, RequestError> {
    let none = over.iter().map(|uid| (uid.to_string(), Value::Null));
    let body = json!({ "spec": { "wipes": none.collect::<Map<_, _>>() } });
    let wipes = node_wipe::resource();
    let request = Request::patch(
        wipes.object_path(context.key),
        PatchKind::Merge,
        body.to_string(),
    )
    .query("fieldManager", FIELD_MANAGER);
    match context.executor.write(&request, Class::Write).await {
        Ok(Sent::Applied(answer)) => {
            if let Some(version) = version_of(&answer) {
                context.wrote(version);
            }
            Ok(Stepped::Done)
        }
        Ok(Sent::DryRun) => Ok(Stepped::Done),
        Err(error) if error.is_gone(&wipes, context.key) => Ok(Stepped::Done),
        Err(error) => Err(error),
    }
}

impl Component<NodeWipe> for Wipes {
    type Snapshot = WipesSnapshot;
    type Evidence = Infallible;
    type Query = Infallible;
    type Step = Vec<Uid>;

    fn name(&self) -> &'static str {
        crate::NAME
    }

    fn hold(&self) -> &'static str {
        POD_RECREATION_HOLD
    }

    fn interest(&self, change: &Change<'_, NodeWipe>) -> Option<Priority> {
        change.new.map(|_| change.source.quiet())
    }

    fn observe(&self, list: &Stored<NodeWipe>) -> WipesSnapshot {
        let wipes = list.wipes.iter().map(|(uid, wipe)| {
            let reported = reported(&self.records.lookup(&record_key(wipe)), uid);
            (uid.clone(), wipe.clone(), reported)
        });
        WipesSnapshot {
            wipes: wipes.collect(),
        }
    }

    fn decide(
        snapshot: &WipesSnapshot,
        _now: Timestamp,
    ) -> Decision<Infallible, Infallible, Vec<Uid>> {
        decide(snapshot)
    }

    fn ask(&self, query: Infallible, _: Waiter<'_>) {
        match query {}
    }

    fn step<'a>(
        &'a self,
        _: Option<&'a Stored<NodeWipe>>,
        _: &'a WipesSnapshot,
        over: Vec<Uid>,
        context: &'a StepContext<'a>,
    ) -> BoxFuture<'a, Result<Stepped, RequestError>> {
        async move { forget(context, &over).await }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use belayer_core::LogicalTime;
    use belayer_core::slim::Slim;
    use belayer_holds::node_wipe::{Report, WipeState};
    use rstest::rstest;

    use super::*;
    use crate::api::ConditionStatus;
    use crate::decide::tests::case;

    const NOW: i64 = 200_000;

    fn wipe(requested: i64, state: Option<WipeState>) -> Wipe {
        Wipe {
            pod: ObjectKey::new("shop", "web"),
            record: "web-1".into(),
            requested: Timestamp::from_second(requested).ok(),
            report: state.map(|state| Report {
                state,
                reason: String::new(),
                message: String::new(),
                paths: Vec::new(),
            }),
        }
    }

    const DONE: Option<WipeState> = Some(WipeState::Wiped);
    const LEFT: Option<WipeState> = Some(WipeState::NotWiped);

    #[rstest]
    #[case::keep_a_new_entry(wipe(NOW, None), Reported::No, KEEP)]
    #[case::keep_what_is_left(wipe(NOW - 3_600, LEFT), Reported::Yes, KEEP)]
    #[case::keep_until_the_record_has_the_report(wipe(NOW, DONE), Reported::No, KEEP)]
    #[case::keep_while_records_are_unknown(wipe(NOW, DONE), Reported::Unknown, KEEP)]
    #[case::keep_after_a_jump_of_the_clock(wipe(NOW + 86_400, LEFT), Reported::Yes, KEEP)]
    #[case::l9_keep_after_a_jump_ahead(wipe(NOW - 86_400, LEFT), Reported::No, KEEP)]
    #[case::keep_without_a_time(Wipe { requested: None, ..wipe(0, None) }, Reported::No, KEEP)]
    #[case::forget_a_reported_wipe(wipe(NOW, DONE), Reported::Yes, FORGET)]
    fn t6_an_entry_stays_until_it_is_done(
        #[case] wipe: Wipe,
        #[case] reported: Reported,
        #[case] expected: &'static belayer_holds::decision::Rule,
    ) {
        let uid = Uid::new("u-1");
        let waits_for_the_store = reported == Reported::Unknown;
        let snapshot = WipesSnapshot {
            wipes: vec![(uid.clone(), wipe, reported)],
        };
        let decision = decide(&snapshot);
        assert_eq!(decision.row.name, expected.name);
        match decision.write {
            Some(Write::Step(over)) => assert_eq!(over, [uid]),
            _ => assert_eq!(decision.due.is_some(), waits_for_the_store),
        }
    }

    /// A record whose pod `u-1` was rejected on `node-1`.
    fn record(wiped: Option<ConditionStatus>) -> Record {
        let mut record = case::record(None);
        record.status.conditions.clear();
        if let Some(status) = wiped {
            let kind = ConditionType::StateWiped;
            record
                .status
                .set(kind, status, ("", ""), Timestamp::UNIX_EPOCH);
        }
        record
    }

    fn stored<K: Slim>(object: K) -> Stored<K> {
        Stored::fresh(Arc::new(object), LogicalTime::now())
    }

    #[rstest]
    #[case::not_known(Lookup::Unknown, "u-1", Reported::Unknown)]
    #[case::no_record(Lookup::Absent, "u-1", Reported::Yes)]
    #[case::waits(
        Lookup::Found(stored(record(Some(ConditionStatus::False)))),
        "u-1",
        Reported::No
    )]
    #[case::has_not_asked(Lookup::Found(stored(record(None))), "u-1", Reported::No)]
    #[case::has_it(
        Lookup::Found(stored(record(Some(ConditionStatus::True)))),
        "u-1",
        Reported::Yes
    )]
    #[case::waits_for_a_later_pod(
        Lookup::Found(stored(record(Some(ConditionStatus::False)))),
        "u-0",
        Reported::Yes
    )]
    fn whether_a_record_has_its_report(
        #[case] record: Lookup<Record>,
        #[case] uid: &str,
        #[case] expected: Reported,
    ) {
        assert_eq!(reported(&record, &Uid::new(uid)), expected);
    }

    fn list(wipes: &[(&str, Wipe)]) -> Stored<NodeWipe> {
        stored(NodeWipe {
            meta: case::meta("node-1", "n-1"),
            wipes: wipes
                .iter()
                .map(|(uid, wipe)| (Uid::new(*uid), wipe.clone()))
                .collect(),
            forgotten: Vec::new(),
        })
    }

    #[test]
    fn records_whose_wipe_changed_are_worked_on() {
        let of = |record: &str, state| Wipe {
            record: record.into(),
            ..wipe(NOW, state)
        };
        let (old, new) = (
            list(&[
                ("u-1", of("same", None)),
                ("u-2", of("reported", None)),
                ("u-3", of("removed", DONE)),
            ]),
            list(&[
                ("u-1", of("same", None)),
                ("u-2", of("reported", DONE)),
                ("u-4", of("new", None)),
            ]),
        );
        let names = |event: &Event<NodeWipe>| {
            let mut names: Vec<_> = changed(event)
                .iter()
                .map(|key| key.name().to_owned())
                .collect();
            names.sort_unstable();
            names.dedup();
            names
        };
        let added = Event::Added {
            object: new.clone(),
            initial: false,
        };
        assert_eq!(names(&added), ["new", "reported", "same"]);
        let deleted = Event::Deleted {
            last: old.clone(),
            final_state_known: true,
        };
        assert_eq!(names(&deleted), ["removed", "reported", "same"]);
        assert_eq!(
            names(&Event::Updated { old, new }),
            ["new", "removed", "reported"]
        );
    }

    #[test]
    fn a_changed_record_has_the_lists_of_its_nodes_worked_on() {
        let on = |node: &str, wiped| {
            let mut record = record(wiped);
            record.status.node_name = Some(node.into());
            stored(record)
        };
        let names = |event: &Event<Record>| {
            let queue = WorkQueue::new("lists");
            enqueue_node(event, &queue);
            let mut names = Vec::new();
            while let Some(item) = queue.try_next() {
                names.push(item.key().name().to_owned());
            }
            names.sort_unstable();
            names
        };
        let waits = Some(ConditionStatus::False);
        let moved = Event::Updated {
            old: on("node-1", waits),
            new: on("node-2", waits),
        };
        assert_eq!(names(&moved), ["node-1", "node-2"]);
        let deleted = Event::Deleted {
            last: on("node-1", waits),
            final_state_known: true,
        };
        assert_eq!(names(&deleted), ["node-1"]);
        let without = Event::Deleted {
            last: on("node-1", None),
            final_state_known: true,
        };
        assert_eq!(names(&without), [""; 0]);
    }

    #[test]
    fn an_empty_list_needs_no_timer() {
        let decision = decide(&WipesSnapshot::default());
        assert_eq!((decision.row.name, decision.due), (KEEP.name, None));
    }
}
