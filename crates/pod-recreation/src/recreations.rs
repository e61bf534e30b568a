//! The records on their runner: what is decided about one becomes a step.
//!
//! Every step is safe to take twice, late, or by somebody who only thinks that they lead: statuses are
//! written by compare-and-swap, pods are deleted by UID after a live look at the record, and a create is
//! preceded by a reservation and followed by another look.

mod effects;
mod owners;
mod requests;
mod successor;

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
use belayer_core::workqueue::Priority;
use belayer_holds::decision::{Decision, Write};
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
use crate::decide::{Effect, Snapshot, decide};
use crate::record::Record;
use crate::snapshot::Sight;
use crate::storm::Storm;

/// What the steps are taken with.
pub struct Parts {
    /// Knows pods and records.
    pub component: Arc<PodRecreation>,
    /// Reads single pods.
    pub pod_decoders: Decoders<Pod>,
    /// Reads single records.
    pub record_decoders: Decoders<Record>,
    /// Reads owners of pods.
    pub owners: OwnerReader,
    /// Tells people.
    pub events: EventRecorder,
    /// Whether Belayer is drained, or leaves.
    pub switch: HoldSwitch,
}

/// pod-recreation as the component of the records' runner.
pub struct Recreations {
    parts: Parts,
    records: Resource,
    pods: Resource,
    storm: Storm,
}

/// A step that is being taken.
struct Taking<'a> {
    it: &'a Recreations,
    snapshot: &'a Snapshot,
    context: &'a StepContext<'a>,
}

/// Whether holds may be added again is asked after this time.
const DRAINED: Duration = Duration::from_secs(5);

/// How often the number of open breakers is published, because they close with time, and the gate is checked.
const TOLD_EVERY: Duration = Duration::from_secs(5);

impl Recreations {
    /// The component of these parts.
    pub fn new(parts: Parts) -> Self {
        let storm = Storm::new(parts.component.settings().storm);
        Self {
            parts,
            records: api::resource(),
            pods: Resource::pods(),
            storm,
        }
    }

    /// Keeps the gauge of open breakers up to date, and enqueues what has to be finished when a drain begins,
    /// until `stop` is cancelled.
    pub async fn run_in_background(self: Arc<Self>, stop: CancellationToken) {
        let tell = async {
            let mut before = Holding::Unknown;
            loop {
                self.report_breakers();
                let now = self.parts.switch.now();
                if now == Holding::Draining && before != now {
                    self.hurry();
                }
                before = now;
                tokio::time::sleep(TOLD_EVERY).await;
            }
        };
        stop.run_until_cancelled(tell).await;
    }

    /// Enqueues the records that have not ended: a drain waits for no pause.
    fn hurry(&self) {
        let mut keys = Vec::new();
        self.parts.component.records().for_each(|record| {
            if !record.status.phase.is_some_and(api::Phase::is_final) {
                keys.push(record.meta.key.clone());
            }
        });
        self.parts.component.queue().add_all(keys, Priority::Normal);
    }

    fn report_breakers(&self) {
        let open = self.storm.open_breakers();
        metrics::gauge!(belayer_metrics::BREAKER_OPEN, "scope" => "node").set(open as f64);
    }

    fn observe_key(&self, key: &ObjectKey) -> Snapshot {
        Snapshot {
            holding: self.parts.switch.now(),
            ..self.parts.component.observe_record(key)
        }
    }
}

impl Component<Record> for Recreations {
    type Snapshot = Snapshot;
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
        Some(change.source.quiet())
    }

    fn observe(&self, record: &Stored<Record>) -> Snapshot {
        self.observe_key(&record.meta.key)
    }

    fn observe_absent(&self, key: &ObjectKey) -> Option<Snapshot> {
        Some(self.observe_key(key))
    }

    fn decide(snapshot: &Snapshot, now: Timestamp) -> Decision<Infallible, Infallible, Effect> {
        let verdict = decide(snapshot, now);
        // A pod is created with our hold on it, and everything before leads there.
        if !verdict.is_allowed(snapshot.holding) {
            return Decision::nothing(verdict.row).looking_again_within(DRAINED);
        }
        Decision {
            write: verdict.effect.map(Write::Step),
            notices: verdict.notice.into_iter().collect(),
            due: verdict.again,
            ..Decision::nothing(verdict.row)
        }
    }

    fn ask(&self, query: Infallible, _: Waiter<'_>) {
        match query {}
    }

    /// The pod if there is one, else the record.
    fn regarding(&self, snapshot: &Snapshot) -> Option<Regarding> {
        let record = snapshot.record.as_deref()?;
        let (resource, key, uid) = match &snapshot.pod {
            Sight::Present(pod) if is_in_chain(record, pod.uid.as_str()) => {
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
        snapshot: &'a Snapshot,
        effect: Effect,
        context: &'a StepContext<'a>,
    ) -> BoxFuture<'a, Result<Stepped, RequestError>> {
        let taking = Taking {
            it: self,
            snapshot,
            context,
        };
        taking.take(effect).boxed()
    }
}

fn is_in_chain(record: &Record, pod: &str) -> bool {
    let status = &record.status;
    record.first_uid == pod
        || status.rejected_uid.as_deref() == Some(pod)
        || status.pod_uid.as_deref() == Some(pod)
        || matches!(status.phase, Some(api::Phase::Creating))
}
