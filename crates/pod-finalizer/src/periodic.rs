//! The periodic task: acts on what the held objects are as a whole.
//!
//! It opens and closes the admission policy's gate with the backlog, queues what waited for
//! either limit to ease, reports that a namespace is closed or a selector looks mistyped, and publishes
//! the held objects.

mod switch;
mod telling;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use belayer_core::events::EventRecorder;
use belayer_core::executor::{Class, Executor};
use belayer_core::http::{ErrorClass, PatchKind, Request, RequestError};
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::ticks::Ticks;
use belayer_holds::held_objects;
use belayer_holds::holding::HoldSwitch;
use belayer_holds::names;

use crate::NAME;
use crate::component::PodFinalizer;
use crate::held_objects::Standing;
use crate::snapshot::{Gate, MassRelease};
use switch::{GateObject, Wanted};

pub use switch::{GATE_KEY, OBSERVING};

/// How often the held objects are looked at, which costs a look at a few numbers.
const TICK: Duration = Duration::from_millis(500);

/// A gate that could not be written is tried again after this time.
const RETRY: Duration = Duration::from_secs(5);

/// A gate that is not there, or may not be touched, is looked for again after this time.
const ABSENT_RETRY: Duration = Duration::from_secs(300);

/// While something is closed, the ConfigMap is read again after this time: if someone has replaced its data
/// in the meantime, the policy adds holds although they are closed.
const REREAD: Duration = Duration::from_secs(60);

/// Acts on the held objects.
pub struct PeriodicTask {
    finalizer: Arc<PodFinalizer>,
    executor: Arc<Executor>,
    switch: HoldSwitch,
    events: EventRecorder,
    /// The gate ConfigMap.
    gate: ObjectKey,
    shown: Option<Wanted>,
    /// When a failed write is tried again.
    next_try: Option<Instant>,
    /// When the ConfigMap is read again.
    reread: Instant,
    last: Standing,
}

impl PeriodicTask {
    /// A periodic task of `finalizer`. The gate ConfigMap lies in Belayer's own `namespace`.
    pub fn new(
        finalizer: Arc<PodFinalizer>,
        executor: Arc<Executor>,
        switch: HoldSwitch,
        events: EventRecorder,
        namespace: &str,
    ) -> Self {
        Self {
            finalizer,
            executor,
            switch,
            events,
            gate: ObjectKey::new(namespace, names::GATE_CONFIG_MAP),
            shown: None,
            next_try: None,
            reread: Instant::now(),
            last: Standing::default(),
        }
    }

    /// Runs until `cancel` is cancelled. To be started once the informers are synced: before that
    /// the held objects are known only in part.
    pub async fn run(mut self, cancel: CancellationToken) {
        // What an earlier leader closed stays closed until it may open again. If the ConfigMap cannot be
        // read, only the counts decide.
        match self.read_gate().await {
            Ok(gate) => {
                let held_objects = self.finalizer.held_objects();
                held_objects.adopt_closed(gate.closed(), gate.gate());
            }
            Err(error) => {
                tracing::info!(gate = %self.gate, %error, "could not read which namespaces were closed before");
            }
        }
        self.finalizer.held_objects().settle();
        self.finalizer.begin_to_hold();
        let mut ticks = Ticks::every(TICK, cancel);
        while ticks.next().await.is_some() {
            self.look().await;
        }
    }

    async fn look(&mut self) {
        let now = self.finalizer.held_objects().settle();
        publish(&self.finalizer, &now, belayer_core::ambient::now());
        if now != self.last {
            self.queue_what_eased(&now);
            self.report_changes(&now).await;
        }
        self.show(&now).await;
        self.last = now;
    }

    /// Enqueues what waited for a limit.
    fn queue_what_eased(&self, now: &Standing) {
        if self.last.gate == Gate::Closed && now.gate == Gate::Open {
            self.finalizer.queue_unheld();
        } else if now.gate == Gate::Open {
            for namespace in self.last.closed.keys() {
                if !now.closed.contains_key(namespace) {
                    self.finalizer.queue_unheld_in(namespace);
                }
            }
        }
        let was_kept = |before: &Standing| {
            let over_the_cluster = before.mass_release != MassRelease::Within
                && now.mass_release == MassRelease::Within;
            let mut namespaces = before.kept_in.keys();
            over_the_cluster || namespaces.any(|name| !now.kept_in.contains_key(name))
        };
        if was_kept(&self.last) {
            self.finalizer.queue_unselected();
        }
    }

    /// Writes the wanted state into the gate ConfigMap, unless it is there already.
    async fn show(&mut self, now: &Standing) {
        // While Belayer is drained the switch is not ours; afterwards it is looked at anew.
        if !self.switch.allows() {
            self.shown = None;
            return;
        }
        let wanted = Wanted {
            gate: now.gate,
            closed: now.closed.keys().cloned().collect(),
        };
        if self.next_try.is_some_and(|next| Instant::now() < next) {
            return;
        }
        let open = wanted.gate == Gate::Open && wanted.closed.is_empty();
        let is_current = open || Instant::now() < self.reread;
        if self.shown.as_ref() == Some(&wanted) && is_current {
            return;
        }
        match self.write_gate(&wanted).await {
            Ok(()) => {
                self.shown = Some(wanted);
                self.next_try = None;
                self.reread = Instant::now() + REREAD;
            }
            Err(error) => {
                let absent = matches!(error.class(), ErrorClass::NotFound | ErrorClass::Forbidden);
                let delay = if absent { ABSENT_RETRY } else { RETRY };
                tracing::info!(gate = %self.gate, %error, retry_in_seconds = delay.as_secs(), "the gate ConfigMap could not be brought up to date");
                self.next_try =
                    Some(Instant::now() + delay.max(error.retry_after().unwrap_or_default()));
            }
        }
    }

    async fn write_gate(&self, wanted: &Wanted) -> Result<(), RequestError> {
        let current = self.read_gate().await?;
        let Some(data) = current.switched(wanted, self.finalizer.mode()) else {
            return Ok(());
        };
        let body = json!({
            "metadata": { "uid": current.uid, "resourceVersion": current.resource_version },
            "data": data,
        });
        let path = Resource::config_maps().object_path(&self.gate);
        let request = Request::patch(path, PatchKind::Merge, body.to_string())
            .query("fieldManager", names::FIELD_MANAGER);
        self.executor.write(&request, Class::Write).await?;
        tracing::info!(gate = %self.gate, %data, "gate written");
        Ok(())
    }

    async fn read_gate(&self) -> Result<GateObject, RequestError> {
        read_gate(&self.executor, &self.gate).await
    }
}

/// The gate ConfigMap.
pub(crate) async fn read_gate(
    executor: &Executor,
    gate: &ObjectKey,
) -> Result<GateObject, RequestError> {
    #[derive(Deserialize)]
    struct ConfigMap {
        metadata: Metadata,
        #[serde(default)]
        data: Option<BTreeMap<String, String>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        uid: String,
        resource_version: String,
    }
    let request = Request::get(Resource::config_maps().object_path(gate));
    let found: ConfigMap = executor.read(&request, Class::Evidence).await?.json()?;
    Ok(GateObject {
        uid: found.metadata.uid,
        resource_version: found.metadata.resource_version,
        data: found.data.unwrap_or_default(),
    })
}

/// Reports the held objects as metrics.
fn publish(finalizer: &PodFinalizer, standing: &Standing, now: Timestamp) {
    let held_objects = finalizer.held_objects();
    let (counts, oldest) = (held_objects.counts(), held_objects.oldest_waiting());
    held_objects::publish(NAME, counts, oldest, now);
    let gauge = |name, value: f64| metrics::gauge!(name, "controller" => NAME).set(value);
    let all = if standing.gate == Gate::Closed {
        1.0
    } else {
        0.0
    };
    gauge(belayer_metrics::BACKLOG_GATE, all);
    gauge(
        belayer_metrics::BACKLOG_NAMESPACES,
        standing.closed.len() as f64,
    );
    gauge(belayer_metrics::UNSELECTED_KEPT, held_objects.kept() as f64);
}
