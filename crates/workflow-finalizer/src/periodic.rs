//! The periodic task: publishes metrics of the held objects, and enqueues workflows once the mass-release limit allows
//! their release.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use belayer_core::events::{EventRecorder, Regarding};
use belayer_core::informer::{Lookup, Store};
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::slim::Namespace;
use belayer_core::ticks::Ticks;
use belayer_holds::decision::{Notice, Severity};
use belayer_holds::held_objects::{self, Counts};
use belayer_holds::names;
use belayer_holds::selection::MassRelease;

use crate::component::{NAME, WorkflowFinalizer};

/// How often the held objects are checked.
const TICK: Duration = Duration::from_millis(500);

/// Acts on the held objects of all kinds.
pub struct PeriodicTask {
    kinds: Vec<Arc<WorkflowFinalizer>>,
    events: EventRecorder,
    namespaces: Store<Namespace>,
    /// Belayer's own namespace, on which Events about several workflows are recorded.
    namespace: ObjectKey,
    /// The exceeded limits of each kind at the last tick.
    kept: Vec<Exceeded>,
}

impl PeriodicTask {
    /// Creates the task for these components, one per kind. `namespace` is Belayer's own.
    pub fn new(
        kinds: Vec<Arc<WorkflowFinalizer>>,
        events: EventRecorder,
        namespaces: Store<Namespace>,
        namespace: &str,
    ) -> Self {
        Self {
            kept: vec![(MassRelease::Within, BTreeMap::new()); kinds.len()],
            kinds,
            events,
            namespaces,
            namespace: ObjectKey::cluster(namespace),
        }
    }

    /// Runs until `cancel` is cancelled.
    pub async fn run(mut self, cancel: CancellationToken) {
        let mut ticks = Ticks::every(TICK, cancel);
        while ticks.next().await.is_some() {
            self.tick();
        }
    }

    fn tick(&mut self) {
        publish(&self.kinds, belayer_core::clock::now());
        for (kind, before) in self.kinds.iter().zip(&mut self.kept) {
            let now = kind.held_objects().exceeded();
            if has_eased(before, &now) {
                kind.queue_unselected();
            }
            for message in kept_since(before, &now, &kind.rule().kind.plural) {
                report(&self.events, &self.namespaces, &self.namespace, message);
            }
            *before = now;
        }
    }
}

/// The mass-release limit of the cluster, and of each namespace whose own limit is exceeded.
type Exceeded = (MassRelease, BTreeMap<Arc<str>, MassRelease>);

/// At most this many namespaces are reported at once.
const REPORTED: usize = 10;

fn has_eased((cluster, namespaces): &Exceeded, now: &Exceeded) -> bool {
    let over_the_cluster = *cluster != MassRelease::Within && now.0 == MassRelease::Within;
    over_the_cluster || namespaces.keys().any(|name| !now.1.contains_key(name))
}

fn kept_since((cluster, namespaces): &Exceeded, now: &Exceeded, plural: &str) -> Vec<String> {
    let message = |kept: &MassRelease, place: &str| match kept {
        MassRelease::Within => None,
        MassRelease::Exceeded {
            unselected, held, ..
        } => Some(format!(
            "nothing selects {unselected} of {held} held {plural} {place} any more; they are kept, because that many \
             at once look like a mistyped selector"
        )),
    };
    let all = (*cluster == MassRelease::Within).then_some(&now.0);
    let all = all.and_then(|kept| message(kept, "in the cluster"));
    let new = now.1.iter();
    let new = new.filter(|(name, _)| !namespaces.contains_key(*name));
    let new = new.filter_map(|(name, kept)| message(kept, &format!("in namespace {name}")));
    all.into_iter().chain(new.take(REPORTED)).collect()
}

/// Records the Event on Belayer's own namespace, because it concerns many workflows.
fn report(
    events: &EventRecorder,
    namespaces: &Store<Namespace>,
    namespace: &ObjectKey,
    message: String,
) {
    let Lookup::Found(found) = namespaces.lookup(namespace) else {
        tracing::warn!("{message}");
        return;
    };
    let regarding = Regarding {
        resource: Resource::namespaces(),
        key: namespace.clone(),
        uid: found.object.meta.uid.clone(),
    };
    let notice = Notice {
        severity: Severity::Warning,
        reason: names::HELD_BACK,
        message: message.into(),
    };
    events.record(&regarding, &notice);
}

/// Reports the held objects of all kinds as metrics.
fn publish(kinds: &[Arc<WorkflowFinalizer>], now: Timestamp) {
    let gauge = |name, value: f64| metrics::gauge!(name, "controller" => NAME).set(value);
    let mut all = Counts::default();
    let (mut kept, mut remaining) = (0, 0);
    let mut oldest: Option<Timestamp> = None;
    for kind in kinds {
        let held_objects = kind.held_objects();
        let counts = held_objects.counts();
        all.held += counts.held;
        all.waiting += counts.waiting;
        kept += held_objects.kept();
        if counts.waiting > 0 {
            let pods = held_objects.waiting();
            let pods = pods
                .iter()
                .filter_map(|(_, workflow)| kind.pods_held(workflow));
            remaining += pods.sum::<usize>();
        }
        oldest = match (oldest, held_objects.oldest_waiting()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
    held_objects::publish(NAME, all, oldest, now);
    gauge(belayer_metrics::UNSELECTED_KEPT, kept as f64);
    gauge(belayer_metrics::PODS_REMAINING, remaining as f64);
}
