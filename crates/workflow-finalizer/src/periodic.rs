//! The periodic task: publishes metrics of the held objects, and enqueues workflows once the mass-release limit allows
//! their release.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use belayer_core::events::{EventRecorder, Regarding};
use belayer_core::informer::{Lookup, Store};
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::slim::Namespace;
use belayer_core::ticks::Ticks;
use belayer_holds::decision::Notice;
use belayer_holds::held_objects;
use belayer_holds::names;
use belayer_holds::selection::Exceeded;

use crate::component::{NAME, WorkflowFinalizer};

/// Acts on the held objects of all kinds.
pub(crate) struct PeriodicTask {
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
    pub(crate) fn new(
        kinds: Vec<Arc<WorkflowFinalizer>>,
        events: EventRecorder,
        namespaces: Store<Namespace>,
        namespace: &str,
    ) -> Self {
        Self {
            kept: vec![Exceeded::default(); kinds.len()],
            kinds,
            events,
            namespaces,
            namespace: ObjectKey::cluster(namespace),
        }
    }

    /// Runs until `cancel` is cancelled.
    pub(crate) async fn run(mut self, cancel: CancellationToken) {
        let mut ticks = Ticks::every(held_objects::EVERY, cancel);
        while ticks.next().await.is_some() {
            self.tick();
        }
    }

    fn tick(&mut self) {
        publish(&self.kinds);
        for (kind, before) in self.kinds.iter().zip(&mut self.kept) {
            let now = kind.held_objects().exceeded();
            if kind.held_objects().has_eased() {
                kind.queue_unselected();
            }
            let plural = &kind.rule().kind.plural;
            for (place, unselected, held) in now.new_since(before) {
                let message = held_back(&format!("{unselected} of {held} held {plural} {place}"));
                report(&self.events, &self.namespaces, &self.namespace, message);
            }
            *before = now;
        }
    }
}

fn held_back(what: &str) -> String {
    format!(
        "nothing selects {what} any more; they are kept, because that many at once look like a mistyped selector. If the \
         change was intended, {}",
        names::RELEASE_UNSELECTED
    )
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
    let notice = Notice::warning(names::HELD_BACK, message);
    events.record(&regarding, &notice);
}

/// Reports the held objects of all kinds as metrics.
fn publish(kinds: &[Arc<WorkflowFinalizer>]) {
    held_objects::publish(NAME, kinds.iter().map(|kind| kind.held_objects()));
    let gauge = |name, value: f64| metrics::gauge!(name, "controller" => NAME).set(value);
    let (mut kept, mut remaining) = (0, 0);
    for kind in kinds {
        let held_objects = kind.held_objects();
        kept += held_objects.kept();
        let waiting = held_objects.waiting();
        let pods = waiting.iter();
        let pods = pods.filter_map(|(_, workflow)| kind.pods_held(workflow));
        remaining += pods.sum::<usize>();
    }
    gauge(belayer_metrics::UNSELECTED_KEPT, kept as f64);
    gauge(belayer_metrics::PODS_REMAINING, remaining as f64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_back_names_the_way_out() {
        let text = held_back("30 of 40 held workflows in namespace ci");
        assert!(text.starts_with("nothing selects 30 of 40 held workflows in namespace ci"));
        // Without the configuration, the default one would decide what is released.
        assert!(
            text.contains("`belayer drain --unselected --config FILE` releases them"),
            "{text}"
        );
    }
}
