//! Which events queue which PVCs: one case per rule, on the handlers themselves.

use std::sync::Arc;

use belayer_core::client;
use belayer_core::events;
use belayer_core::executor::{Bounds, Executor, Writes};
use belayer_core::informer::{Decoders, Event, Handler, Informer, JsonDecoder, Stored};
use belayer_core::logical_time::LogicalTime;
use belayer_core::object::{ObjectKey, Resource, ResourceVersion, Uid};
use belayer_core::queries::{LiveReader, LiveReads, Pace, QueryCache, ReadError};
use belayer_core::slim::{DecodeContext, ObjectMeta, Phase, Pod, Pvc};
use belayer_core::workqueue::{Priority, WorkQueue};
use belayer_holds::holding::HoldSwitch;
use belayer_holds::names::FIELD_MANAGER;
use belayer_holds::names::PVC_PROTECTION_HOLD;
use belayer_holds::owner::{OwnerQuery, OwnerState};
use belayer_holds::runner::{self, Runner};
use belayer_pvc_protection::component::{Parts, pace};
use belayer_pvc_protection::pods_query::{PodsAnswer, PodsQuery};
use belayer_pvc_protection::{Mode, PvcProtection};
use futures::future::BoxFuture;
use jiff::Timestamp;
use rstest::rstest;
use tokio_util::sync::CancellationToken;

use super::{SHOP, Shop};
use crate::world::BELAYER;

/// A reader that is never queried.
struct Nobody;

impl LiveReader<PodsQuery> for Nobody {
    fn read<'a>(&'a self, _: &'a PodsQuery) -> BoxFuture<'a, Result<PodsAnswer, ReadError>> {
        Box::pin(std::future::pending())
    }
}

impl LiveReader<OwnerQuery> for Nobody {
    fn read<'a>(&'a self, _: &'a OwnerQuery) -> BoxFuture<'a, Result<OwnerState, ReadError>> {
        Box::pin(std::future::pending())
    }
}

/// The handlers, and their queue without workers. The PVCs `waiting` and `waiting-too` are held and being deleted,
/// `quiet` is held.
struct Inbox {
    protection: Arc<PvcProtection>,
    runner: Runner<Pvc>,
    queue: WorkQueue<ObjectKey>,
    _informers: tokio_util::sync::DropGuard,
}

impl Inbox {
    async fn new() -> Self {
        let shop = Shop::new();
        for name in ["waiting", "waiting-too", "quiet"] {
            shop.held_pvc(name);
        }
        shop.delete_pvc("waiting");
        shop.delete_pvc("waiting-too");
        let client = client::in_process(
            shop.world.sandbox.service(BELAYER),
            belayer_holds::names::USER_AGENT,
        );
        let stop = CancellationToken::new();
        let resource = Resource::pvcs();
        let decoders = Decoders::new(JsonDecoder::<Pvc>::new(DecodeContext::default()));
        let (informer, pvcs) =
            Informer::builder(client.clone(), resource.clone(), decoders.clone()).build();
        tokio::spawn(informer.run(stop.clone()));
        pvcs.synced().await.unwrap();
        let pod_decoders = Decoders::new(JsonDecoder::<Pod>::new(DecodeContext::default()));
        let pods = Resource::pods();
        let (_, pods) = Informer::builder(client.clone(), pods, pod_decoders).build();
        let queue = WorkQueue::new("claims");
        let enqueue = Arc::new(|_| {});
        let protection: Arc<PvcProtection> = Arc::new(PvcProtection::new(
            Mode::Own,
            Parts {
                pvcs: pvcs.clone(),
                pods,
                pods_queries: QueryCache::new(
                    Arc::new(Nobody),
                    enqueue.clone(),
                    pace(),
                    LiveReads::default(),
                    stop.clone(),
                ),
                owners: QueryCache::new(
                    Arc::new(Nobody),
                    enqueue,
                    pace(),
                    LiveReads::default(),
                    stop.clone(),
                ),
                queue: queue.clone(),
            },
        ));
        assert!(pace().min_interval < Pace::default().min_interval);
        let executor = Arc::new(Executor::new(
            client,
            FIELD_MANAGER,
            Bounds::default(),
            Writes::Sent,
        ));
        let (events, _) = events::recorder(Arc::clone(&executor));
        let runner = Runner::builder(runner::RunnerParts {
            resource,
            finalizers: Mode::Own.finalizers().into(),
            store: pvcs,
            queue: queue.clone(),
            executor,
            decoders,
            events,
            clock: Arc::new(Timestamp::now),
            observer: Arc::new(()),
            switch: HoldSwitch::default(),
        })
        .component(Arc::clone(&protection))
        .build();
        Self {
            protection,
            runner,
            queue,
            _informers: stop.drop_guard(),
        }
    }

    /// The queued keys with their priority, by name.
    fn queued(&self) -> Vec<(String, Priority)> {
        let mut queued = Vec::new();
        while let Some(item) = self.queue.try_next() {
            queued.push((item.key().name().to_owned(), item.priority()));
            item.done();
        }
        queued.sort_by(|a, b| a.0.cmp(&b.0));
        queued
    }
}

fn meta(name: &str, uid: &str) -> ObjectMeta {
    ObjectMeta::new(
        ObjectKey::new(SHOP, name),
        Uid::new(uid),
        ResourceVersion::new(1),
    )
}

fn stored<K>(object: K) -> Stored<K> {
    Stored {
        object: Arc::new(object),
        first_seen: LogicalTime::now(),
        deletion_seen: None,
    }
}

/// A bound, running pod that refers to two PVCs that wait and to one that does not.
fn running() -> Pod {
    Pod {
        node_name: Some("node-1".into()),
        phase: Phase::Running,
        pvcs: Box::from(["waiting".into(), "quiet".into()]),
        ephemeral_pvcs: Box::from(["waiting-too".into(), "nobody-knows".into()]),
        ..Pod::new(meta("web", "p-1"))
    }
}

fn unbound() -> Pod {
    Pod {
        node_name: None,
        ..running()
    }
}

fn ended() -> Pod {
    Pod {
        phase: Phase::Succeeded,
        ..running()
    }
}

fn deleted(grace: i64) -> Pod {
    let mut pod = running();
    pod.meta.deletion_timestamp = Some(Timestamp::UNIX_EPOCH);
    pod.meta.deletion_grace_period = Some(grace);
    pod
}

fn added(pod: Pod) -> Vec<Event<Pod>> {
    vec![Event::Added {
        object: stored(pod),
        initial: false,
    }]
}

fn updated(old: Pod, new: Pod) -> Vec<Event<Pod>> {
    vec![Event::Updated {
        old: stored(old),
        new: stored(new),
    }]
}

fn gone(pod: Pod, final_state_known: bool) -> Vec<Event<Pod>> {
    vec![Event::Deleted {
        last: stored(pod),
        final_state_known,
    }]
}

/// Deleted and created again without watch events, and with no PVC any more.
fn masked() -> Vec<Event<Pod>> {
    let anew = Pod {
        meta: meta("web", "p-2"),
        pvcs: Box::default(),
        ephemeral_pvcs: Box::default(),
        ..running()
    };
    let mut events = gone(running(), false);
    events.extend(added(anew));
    events
}

#[rstest]
#[case::pod_added_that_is_not_bound(added(unbound()), true)]
#[case::pod_added_that_has_ended(added(ended()), true)]
#[case::pod_added_that_is_shut_down(added(deleted(0)), true)]
#[case::pod_added_that_runs(added(running()), false)]
#[case::pod_updated_that_is_not_bound(updated(unbound(), unbound()), true)]
#[case::pod_updated_that_was_bound_now(updated(unbound(), running()), true)]
#[case::pod_updated_that_ended_now(updated(running(), ended()), true)]
#[case::pod_updated_that_had_ended(updated(ended(), ended()), true)]
#[case::pod_updated_that_is_shut_down_now(updated(deleted(30), deleted(0)), true)]
#[case::pod_updated_whose_deletion_is_requested(updated(running(), deleted(30)), false)]
#[case::pod_updated_that_runs(updated(running(), running()), false)]
#[case::pod_deleted(gone(running(), true), true)]
#[case::pod_deleted_as_a_tombstone(gone(running(), false), true)]
#[case::pod_deleted_and_created_again_unwatched(masked(), true)]
#[tokio::test(start_paused = true)]
async fn a_pod_queues_its_waiting_pvcs(#[case] events: Vec<Event<Pod>>, #[case] queues: bool) {
    let inbox = Inbox::new().await;
    events
        .iter()
        .for_each(|event| inbox.protection.on_pod(event));
    let expected = ["waiting", "waiting-too"].map(|name| (name.to_owned(), Priority::Release));
    let expected = if queues { &expected[..] } else { &[] };
    assert_eq!(inbox.queued(), expected);
}

const HELD: &[&str] = &["example.com/other", PVC_PROTECTION_HOLD];
const FREE: &[&str] = &["example.com/other"];

fn pvc(finalizers: &[&str], deleting: Option<Timestamp>) -> Pvc {
    Pvc {
        meta: ObjectMeta {
            finalizers: finalizers.iter().map(|name| Arc::from(*name)).collect(),
            deletion_timestamp: deleting,
            ..meta("data", "c-1")
        },
    }
}

#[rstest]
#[case::without_hold(pvc(FREE, None), Some(Priority::Normal))]
#[case::with_hold(pvc(HELD, None), None)]
#[case::deleting_with_hold(pvc(HELD, Some(Timestamp::UNIX_EPOCH)), Some(Priority::Release))]
#[case::deleting_without_hold(pvc(FREE, Some(Timestamp::UNIX_EPOCH)), None)]
#[tokio::test(start_paused = true)]
async fn a_pvc_is_queued_if_there_may_be_work(
    #[case] now: Pvc,
    #[case] expected: Option<Priority>,
    #[values("added", "updated")] how: &str,
) {
    let inbox = Inbox::new().await;
    let event = match how {
        "added" => Event::Added {
            object: stored(now),
            initial: false,
        },
        _ => Event::Updated {
            old: stored(pvc(HELD, None)),
            new: stored(now),
        },
    };
    inbox.protection.on_pvc(&event);
    inbox.runner.on(&event);
    let queued: Vec<Priority> = inbox
        .queued()
        .into_iter()
        .map(|(_, priority)| priority)
        .collect();
    assert_eq!(queued, expected.into_iter().collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn unheld_pvcs_of_the_first_list_come_after_waiting_ones() {
    let inbox = Inbox::new().await;
    let event = Event::Added {
        object: stored(pvc(FREE, None)),
        initial: true,
    };
    inbox.runner.on(&event);
    assert_eq!(inbox.queued(), [("data".to_owned(), Priority::Resync)]);
}
