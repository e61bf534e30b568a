//! pod-recreation as the component of the record runner, which executes the steps of the state machine.
//!
//! A step may be executed twice, late, or by a replica that is not the leader any more: statuses are written by
//! compare-and-swap, pods are deleted by UID after a live read of the record, and before a create the attempt is
//! reserved, and after it the record is read again.
//!
//! The records are named as in the [crate's example](crate).

mod create;
mod effects;
mod node_clock;
mod owners;
mod requests;
mod wipe;

pub use requests::status_patch;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use belayer_core::events::{EventRecorder, Regarding};
use belayer_core::http::RequestError;
use belayer_core::informer::{Decoders, Stored};
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::queries::Waiter;
use belayer_core::slim::Pod;
use belayer_core::ticks::Ticks;
use belayer_core::workqueue::Priority;
use belayer_holds::decision::{Decision, Write};
use belayer_holds::held_objects;
use belayer_holds::holding::{HoldSwitch, Holding};
use belayer_holds::names::POD_RECREATION_HOLD;
use belayer_holds::owner::OwnerReader;
use belayer_holds::runner::{Change, Component, StepContext, Stepped};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::api;
use crate::component::{PodRecreation, pod_key};
use crate::decide::{Effect, RecordSnapshot, decide};
use crate::rate_limit::RateLimiter;
use crate::record::Record;
use crate::snapshot::ObservedPod;
use crate::wipes;

/// The dependencies of the component. The records are named as in the [crate's example](crate).
pub struct RecreationsParts {
    /// The hold, the stores and the memory.
    pub component: Arc<PodRecreation>,
    /// Decoders of single pods.
    pub pod_decoders: Decoders<Pod>,
    /// Decoders of single records.
    pub record_decoders: Decoders<Record>,
    /// Live reads of owners.
    pub owners: OwnerReader,
    /// Records Events.
    pub events: EventRecorder,
    /// Whether holds may be added.
    pub switch: HoldSwitch,
}

/// The component of the record runner. The records are named as in the [crate's example](crate).
pub struct Recreations {
    parts: RecreationsParts,
    records: Resource,
    pods: Resource,
    rate_limiter: RateLimiter,
    lists: wipe::Lists,
}

/// A step in execution.
struct Execution<'a> {
    it: &'a Recreations,
    snapshot: &'a RecordSnapshot,
    context: &'a StepContext<'a>,
    /// What it writes, for messages.
    what: &'static str,
}

/// Requeue delay of a step that must wait until holds may be added.
const DRAINED: Duration = Duration::from_secs(5);

/// Requeue delay for changes that the caches do not show yet, in case that no event follows.
const SOON: Duration = Duration::from_secs(2);

/// Interval of the metrics, and of the check whether a drain has begun.
const INTERVAL: Duration = Duration::from_secs(5);

impl Recreations {
    /// The component with these dependencies.
    pub fn new(parts: RecreationsParts) -> Self {
        let rate_limiter = RateLimiter::new(parts.component.settings().rate_limits.clone());
        Self {
            parts,
            records: api::resource(),
            pods: Resource::pods(),
            rate_limiter,
            lists: wipe::Lists::default(),
        }
    }

    /// Until `stop` is cancelled: publishes metrics of the held pods, the pending wipes and the open breakers, which close
    /// with time, and enqueues the open records when a drain begins.
    pub async fn run_periodic_task(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = Ticks::every(INTERVAL, stop);
        let mut before = Holding::Unknown;
        while ticks.next().await.is_some() {
            self.report_breakers();
            wipes::report_oldest(&self.parts.component.parts.wipes);
            held_objects::publish(crate::NAME, [self.parts.component.held_objects()]);
            let now = self.parts.switch.now();
            if now == Holding::Draining && before != now {
                self.enqueue_open_records();
            }
            before = now;
        }
    }

    /// Enqueues the records that have not ended: during a drain there are no pauses.
    fn enqueue_open_records(&self) {
        let mut keys = Vec::new();
        self.parts.component.records().for_each(|record| {
            if !record.status.phase.is_some_and(api::Phase::is_final) {
                keys.push(record.meta.key.clone());
            }
        });
        self.parts.component.queue().add_all(keys, Priority::Normal);
    }

    fn report_breakers(&self) {
        let (nodes, namespaces) = self.rate_limiter.open_breakers();
        for (scope, open) in [("node", nodes), ("namespace", namespaces)] {
            metrics::gauge!(belayer_metrics::BREAKER_OPEN, "scope" => scope).set(open as f64);
        }
    }

    fn observe_key(&self, key: &ObjectKey) -> RecordSnapshot {
        RecordSnapshot {
            holding: self.parts.switch.now(),
            ..self.parts.component.observe_record(key)
        }
    }
}

impl Component<Record> for Recreations {
    type Snapshot = RecordSnapshot;
    type Evidence = Infallible;
    type Query = Infallible;
    type Step = Effect;

    fn name(&self) -> &'static str {
        crate::NAME
    }

    fn hold(&self) -> &'static str {
        POD_RECREATION_HOLD
    }

    fn interest(&self, change: &Change<'_, Record>) -> Option<Priority> {
        if change.new.is_none() {
            return self
                .parts
                .component
                .candidate(change.key())
                .map(|_| Priority::Normal);
        }
        // The next attempt after a denial comes when its pause is over, and not because the denial was written: its message
        // may differ every time.
        let denial = change.old.zip(change.new).is_some_and(|(old, new)| {
            new.status.is_true(api::ConditionType::CreateDenied)
                && !new.meta.differs(&old.meta)
                && new.status.without_denial() == old.status.without_denial()
        });
        (!denial).then(|| change.source.quiet())
    }

    fn observe(&self, record: &Stored<Record>) -> RecordSnapshot {
        self.observe_key(&record.meta.key)
    }

    fn observe_absent(&self, key: &ObjectKey) -> Option<RecordSnapshot> {
        let component = &self.parts.component;
        component.candidate(key)?;
        let snapshot = self.observe_key(key);
        let is_candidate = match &snapshot.pod {
            ObservedPod::Present(pod) => pod.is_candidate(),
            ObservedPod::Unknown => true,
            ObservedPod::Absent => false,
        };
        if !is_candidate {
            component.forget_candidate(key);
        }
        Some(snapshot)
    }

    fn decide(
        snapshot: &RecordSnapshot,
        now: Timestamp,
    ) -> Decision<Infallible, Infallible, Effect> {
        let decision = decide(snapshot, now);
        // The pod is created with a hold, so while no holds may be added the steps before are not executed either.
        if !decision.is_allowed(snapshot.holding) {
            return Decision::nothing(decision.row).with_requeue_after(DRAINED);
        }
        Decision {
            write: decision.effect.map(Write::Step),
            notices: decision.notice.into_iter().collect(),
            due: decision.again,
            ..Decision::nothing(decision.row)
        }
    }

    fn ask(&self, query: Infallible, _: Waiter<'_>) {
        match query {}
    }

    /// The pod if it exists, otherwise the record.
    fn regarding(&self, snapshot: &RecordSnapshot) -> Option<Regarding> {
        let record = snapshot.record.as_deref()?;
        let (resource, key, uid) = match &snapshot.pod {
            ObservedPod::Present(pod) if is_in_chain(record, pod.uid.as_str()) => {
                (&self.pods, pod_key(record), &pod.uid)
            }
            _ => (&self.records, record.meta.key.clone(), &record.meta.uid),
        };
        Some(Regarding {
            resource: resource.clone(),
            key,
            uid: uid.clone(),
        })
    }

    fn step<'a>(
        &'a self,
        _: Option<&'a Stored<Record>>,
        snapshot: &'a RecordSnapshot,
        effect: Effect,
        context: &'a StepContext<'a>,
    ) -> BoxFuture<'a, Result<Stepped, RequestError>> {
        let execution = Execution {
            it: self,
            snapshot,
            context,
            what: effect.what(),
        };
        execution.execute(effect).boxed()
    }
}

fn is_in_chain(record: &Record, pod: &str) -> bool {
    let status = &record.status;
    record.first_uid == pod
        || status.rejected_uid.as_deref() == Some(pod)
        || status.pod_uid.as_deref() == Some(pod)
        || matches!(status.phase, Some(api::Phase::Creating))
}
