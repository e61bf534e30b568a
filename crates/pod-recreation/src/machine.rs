//! The runner of records: takes keys from their queue, decides, and takes the one step that was decided.
//!
//! Every step is safe to take twice, late, or by somebody who only thinks that they lead: statuses are
//! written by compare-and-swap, pods are deleted by UID after a live look at the record, and a create is
//! preceded by a reservation and followed by another look.

mod effects;
mod owners;
mod requests;
mod successor;

pub use requests::status_patch;

use std::sync::Arc;
use std::time::Duration;

use belayer_core::events::{EventRecorder, Regarding};
use belayer_core::executor::{Executor, Tickets};
use belayer_core::facts::LiveReader;
use belayer_core::freshness::OwnWrites;
use belayer_core::informer::{Decoders, Event, Handler, Lookup};
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::slim::Pod;
use belayer_core::workqueue::{Outcome, Priority, Workers};
use belayer_holds::decision::Notice;
use belayer_holds::holding::{HoldSwitch, Holding};
use belayer_holds::owner::OwnerQuery;
use belayer_holds::runner::Clock;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::api;
use crate::component::{PodRecreation, pod_key};
use crate::decide::{Effect, Snapshot, decide};
use crate::record::Record;
use crate::snapshot::Sight;
use crate::storm::Storm;

/// What the machine is made of.
pub struct Parts {
    /// Knows pods and records.
    pub component: Arc<PodRecreation>,
    /// Tokens for what is sent about the records in their queue.
    pub tickets: Tickets,
    /// Reads single pods.
    pub pod_decoders: Decoders<Pod>,
    /// Reads single records.
    pub record_decoders: Decoders<Record>,
    /// Reads owners of pods, with the executor of the tickets: a step that has begun does not wait.
    pub owners: Arc<dyn LiveReader<OwnerQuery>>,
    /// Tells people.
    pub events: EventRecorder,
    /// Whether Belayer is drained, or leaves.
    pub switch: HoldSwitch,
    /// Wall-clock time.
    pub clock: Clock,
}

/// Works on records. Cheap to clone; the clones are one machine.
#[derive(Clone)]
pub struct Machine {
    shared: Arc<Shared>,
}

struct Shared {
    parts: Parts,
    records: Resource,
    pods: Resource,
    own: OwnWrites,
    storm: Storm,
    /// Kinds of owners, by `apiVersion` and `kind`.
    kinds: Mutex<HashMap<(String, String), owners::Served>>,
}

/// How often the number of open breakers is published, because they close with time, and the gate is checked.
const TOLD_EVERY: Duration = Duration::from_secs(5);

impl Machine {
    /// A machine of these parts.
    pub fn new(parts: Parts) -> Self {
        let storm = Storm::new(parts.component.settings().storm);
        Self {
            shared: Arc::new(Shared {
                parts,
                records: api::resource(),
                pods: Resource::pods(),
                own: OwnWrites::default(),
                storm,
                kinds: Mutex::default(),
            }),
        }
    }

    /// Starts `count` workers. They end when the queue is shut down.
    pub fn work(&self, count: usize) -> Workers<ObjectKey> {
        let shared = Arc::clone(&self.shared);
        let queue = shared.parts.component.queue().clone();
        Workers::spawn(count, queue, move |key| {
            let shared = Arc::clone(&shared);
            async move { shared.work_on(key).await }
        })
    }

    /// How many nodes are given a rest.
    pub fn open_breakers(&self) -> usize {
        self.shared.storm.open_breakers()
    }

    /// Keeps the gauge of open breakers up to date, and enqueues what has to be finished when a drain begins,
    /// until `stop` is cancelled.
    pub async fn run_beside(self, stop: CancellationToken) {
        let tell = async {
            let mut before = Holding::Unknown;
            loop {
                self.shared.report_breakers();
                let now = self.shared.parts.switch.now();
                if now == Holding::Draining && before != now {
                    self.shared.hurry();
                }
                before = now;
                tokio::time::sleep(TOLD_EVERY).await;
            }
        };
        stop.run_until_cancelled(tell).await;
    }
}

/// Wakes records when they change, and when the store has seen our own writes.
impl Handler<Record> for Machine {
    fn on(&self, event: &Event<Record>) {
        let shared = &*self.shared;
        let queue = shared.parts.component.queue();
        match event {
            Event::Added { object, initial } => {
                let band = if *initial {
                    Priority::Resync
                } else {
                    Priority::Normal
                };
                queue.add(object.meta.key.clone(), band);
            }
            Event::Updated { new, .. } => queue.add(new.meta.key.clone(), Priority::Normal),
            Event::Deleted { last, .. } => {
                shared.own.forget(&last.meta.key);
                queue.forget(&last.meta.key);
                queue.add(last.meta.key.clone(), Priority::Normal);
            }
            Event::Advanced { resource_version } => shared.free(shared.own.seen(*resource_version)),
            Event::Skipped { key: Some(key) } if shared.own.forget(key) => {
                shared.free(vec![key.clone()]);
            }
            Event::Skipped { key: None } | Event::Relisted { regressed: true } => {
                shared.free(shared.own.forget_all());
            }
            _ => {}
        }
    }
}

impl Shared {
    /// Enqueues the records that have not ended: a drain waits for no pause.
    fn hurry(&self) {
        let mut keys = Vec::new();
        self.parts.component.records().for_each(|record| {
            if !record.status.phase.is_some_and(api::Phase::is_final) {
                keys.push(record.meta.key.clone());
            }
        });
        self.free(keys);
    }

    fn free(&self, keys: Vec<ObjectKey>) {
        for key in keys {
            self.parts.component.queue().add(key, Priority::Normal);
        }
    }

    fn executor(&self) -> &Executor {
        self.parts.tickets.executor()
    }

    async fn work_on(&self, key: ObjectKey) -> Outcome {
        let mut work = self.parts.tickets.begin(&key);
        let records = self.parts.component.records();
        if matches!(records.lookup(&key), Lookup::Unknown) {
            return Outcome::Again {
                after: effects::UNKNOWN,
            };
        }
        if self.own.park(&key, records.resource_version()) {
            self.free(self.own.seen(records.resource_version()));
            return Outcome::Done;
        }
        let holding = self.parts.switch.now();
        let snapshot = Snapshot {
            holding,
            ..self.parts.component.observe_record(&key)
        };
        let verdict = decide(&snapshot, (self.parts.clock)());
        tracing::debug!(record = %key, row = %verdict.row, effect = verdict.effect.as_ref().map_or("none", Effect::name), "decided");
        let again = verdict.again;
        let is_allowed = verdict.is_allowed(holding);
        let Some(effect) = verdict.effect else {
            if let Some(notice) = &verdict.notice {
                self.tell(&snapshot, notice);
            }
            return again.map_or(Outcome::Done, |after| Outcome::Again { after });
        };
        // A pod is created with our hold on it, and everything before leads there.
        if !is_allowed {
            return Outcome::Again {
                after: effects::DRAINED,
            };
        }
        // A step is several requests. It begins when there is a token, and then waits for no other.
        if !work.may_send() {
            return Outcome::Waiting;
        }
        let outcome = self
            .take(&key, &snapshot, effect, verdict.notice.as_ref())
            .await;
        match (outcome, again) {
            (Outcome::Done, Some(after)) => Outcome::Again { after },
            (outcome, _) => outcome,
        }
    }

    /// On the pod if there is one, else on the record.
    fn tell(&self, snapshot: &Snapshot, notice: &Notice) {
        let record = snapshot.record.as_deref();
        let regarding = match (&snapshot.pod, record) {
            (Sight::Present(pod), Some(record)) if is_in_chain(record, pod.uid.as_str()) => {
                Regarding {
                    resource: self.pods.clone(),
                    key: pod_key(record),
                    uid: pod.uid.clone(),
                }
            }
            (_, Some(record)) => Regarding {
                resource: self.records.clone(),
                key: record.meta.key.clone(),
                uid: record.meta.uid.clone(),
            },
            (_, None) => return,
        };
        self.parts.events.tell(&regarding, notice);
    }
}

fn is_in_chain(record: &Record, pod: &str) -> bool {
    let status = &record.status;
    record.first_uid == pod
        || status.rejected_uid.as_deref() == Some(pod)
        || status.pod_uid.as_deref() == Some(pod)
        || matches!(status.phase, Some(api::Phase::Creating))
}
