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

    fn reported(&self, uid: &Uid, wipe: &Wipe) -> Reported {
        match self.records.lookup(&record_key(wipe)) {
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
    let (old, new) = match event {
        Event::Added { object, .. } => (None, Some(object)),
        Event::Updated { old, new } => (Some(old), Some(new)),
        Event::Deleted { last, .. } => (Some(last), None),
        _ => return,
    };
    let of = |list: Option<&Stored<NodeWipe>>, uid: &Uid| -> Option<Wipe> {
        list.and_then(|list| list.wipes.get(uid)).cloned()
    };
    let all = old.into_iter().chain(new).flat_map(|list| &list.wipes);
    let changed = all.filter(|(uid, _)| of(old, uid) != of(new, uid));
    for (_, wipe) in changed {
        recreation.enqueue(record_key(wipe));
    }
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
            let reported = self.reported(uid, wipe);
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
    use belayer_holds::node_wipe::{Report, WipeState};
    use rstest::rstest;

    use super::*;

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

    #[test]
    fn an_empty_list_needs_no_timer() {
        let decision = decide(&WipesSnapshot::default());
        assert_eq!((decision.row.name, decision.due), (KEEP.name, None));
    }
}
