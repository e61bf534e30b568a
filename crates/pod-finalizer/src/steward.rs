//! The steward: acts on what the census says as a whole.
//!
//! It opens and closes the admission policy's gate with the backlog, queues what waited for
//! either limit to ease, says when a selector looks mistyped, and publishes the census.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use belayer_core::decision::{Notice, Severity};
use belayer_core::events::{EventRecorder, Regarding};
use belayer_core::executor::{Class, Executor};
use belayer_core::http::{ErrorClass, PatchKind, Request, RequestError};
use belayer_core::names;
use belayer_core::object::{ObjectKey, Resource, Uid};
use belayer_core::ticks::Ticks;

use crate::component::{NAME, PodFinalizer};
use crate::profile::Mode;
use crate::snapshot::{Gate, MassRelease};

/// How often the census is looked at. It costs a look at a few numbers.
const TICK: Duration = Duration::from_millis(500);

/// A gate that could not be written is tried again after this time.
const RETRY: Duration = Duration::from_secs(5);

/// A gate that is not there, or may not be touched, is looked for again after this time.
const ABSENT_RETRY: Duration = Duration::from_secs(300);

/// Key of the gate ConfigMap that the admission policy reads: `on`, or off by any other word.
pub const GATE_KEY: &str = "hold";

/// Key of the gate ConfigMap that says that the backlog turned [`GATE_KEY`] off. An `off` without
/// it is an admin's, and not ours to turn on.
pub const BACKLOG_KEY: &str = "backlog";

/// The value of [`GATE_KEY`] while every profile only observes: then nothing is written to pods, and
/// the policy must not do it either.
pub const OBSERVING: &str = "observing";

/// The value of [`BACKLOG_KEY`] while the backlog gate is closed.
pub const BACKLOG_CLOSED: &str = "closed";

/// Acts on the census.
pub struct Steward {
    finalizer: Arc<PodFinalizer>,
    executor: Arc<Executor>,
    events: EventRecorder,
    /// The gate ConfigMap.
    gate: ObjectKey,
    shown: Option<Gate>,
    next_try: Option<Instant>,
    last_gate: Gate,
    last_mass: MassRelease,
}

impl Steward {
    /// A steward of `finalizer`. The gate ConfigMap lies in Belayer's own `namespace`.
    pub fn new(
        finalizer: Arc<PodFinalizer>,
        executor: Arc<Executor>,
        events: EventRecorder,
        namespace: &str,
    ) -> Self {
        Self {
            finalizer,
            executor,
            events,
            gate: ObjectKey::new(namespace, names::GATE_CONFIG_MAP),
            shown: None,
            next_try: None,
            last_gate: Gate::Open,
            last_mass: MassRelease::Within,
        }
    }

    /// Runs until `cancel` is cancelled. To be started once the informers are synced: before that
    /// the census knows only a part.
    pub async fn run(mut self, cancel: CancellationToken) {
        let mut ticks = Ticks::every(TICK, cancel);
        while ticks.next().await.is_some() {
            self.look().await;
        }
    }

    async fn look(&mut self) {
        let census = self.finalizer.census();
        let (gate, mass) = (census.gate(), census.mass_release());
        publish(&self.finalizer, belayer_core::ambient::now());
        if gate != self.last_gate {
            match gate {
                Gate::Closed => tracing::warn!(
                    backlog = census.counts().backlog,
                    "backlog gate closed: no new holds"
                ),
                Gate::Open => tracing::info!("backlog gate open again"),
            }
            self.last_gate = gate;
            if gate == Gate::Open {
                self.finalizer.queue_unheld();
            }
        }
        if self.last_mass != MassRelease::Within && mass == MassRelease::Within {
            self.finalizer.queue_unselected();
        }
        if let MassRelease::Exceeded { unselected, held } = mass {
            self.tell_mass_release(unselected, held).await;
        }
        self.last_mass = mass;
        self.show(gate).await;
    }

    /// The Event goes to the gate ConfigMap: the pods are many, and they are not at fault.
    async fn tell_mass_release(&self, unselected: usize, held: usize) {
        if self.last_mass != MassRelease::Within {
            return;
        }
        tracing::warn!(
            unselected,
            held,
            "kept: so many unselected pods at once look like a mistyped selector"
        );
        let uid = match self.read_gate().await {
            Ok(gate) => gate.uid,
            Err(_) => return,
        };
        let message = format!(
            "{unselected} of {held} held pods are selected by no profile any more; they are kept, because that many \
             at once look like a mistyped selector, or an admission policy reaches further than the profiles: \
             `belayer check` compares them; if it is meant, `belayer drain --unselected` lets them go"
        );
        let regarding = Regarding {
            resource: Resource::config_maps(),
            key: self.gate.clone(),
            uid: Uid::new(uid),
        };
        let notice = Notice {
            severity: Severity::Warning,
            reason: "MassReleaseHeldBack",
            message: message.into(),
        };
        self.events.tell(&regarding, &notice);
    }

    /// Brings the gate ConfigMap to `gate`, if it is not there yet.
    async fn show(&mut self, gate: Gate) {
        // While Belayer is drained the switch is not ours; afterwards it is looked at anew.
        if !self.executor.holding().allows() {
            self.shown = None;
            return;
        }
        let waits = self.next_try.is_some_and(|next| Instant::now() < next);
        if self.shown == Some(gate) || waits {
            return;
        }
        match self.write_gate(gate).await {
            Ok(()) => {
                self.shown = Some(gate);
                self.next_try = None;
            }
            Err(error) => {
                let absent = matches!(error.class(), ErrorClass::NotFound | ErrorClass::Forbidden);
                let delay = if absent { ABSENT_RETRY } else { RETRY };
                tracing::info!(gate = %self.gate, %error, ?delay, "the gate ConfigMap could not be brought up to date");
                self.next_try =
                    Some(Instant::now() + delay.max(error.retry_after().unwrap_or_default()));
            }
        }
    }

    async fn write_gate(&self, gate: Gate) -> Result<(), RequestError> {
        let current = self.read_gate().await?;
        let Some(data) = current.switched(gate, self.finalizer.mode()) else {
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
        #[derive(Deserialize)]
        struct ConfigMap {
            metadata: Metadata,
            #[serde(default)]
            data: Option<std::collections::BTreeMap<String, String>>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            uid: String,
            resource_version: String,
        }
        let request = Request::get(Resource::config_maps().object_path(&self.gate));
        let found: ConfigMap = self
            .executor
            .read(&request, Class::Evidence)
            .await?
            .json()?;
        let mut data = found.data.unwrap_or_default();
        Ok(GateObject {
            uid: found.metadata.uid,
            resource_version: found.metadata.resource_version,
            hold: data.remove(GATE_KEY),
            backlog: data.remove(BACKLOG_KEY),
        })
    }
}

struct GateObject {
    uid: String,
    resource_version: String,
    hold: Option<String>,
    backlog: Option<String>,
}

impl GateObject {
    /// What to write so that the policy's switch follows the profiles and the backlog gate; `None` if
    /// nothing is.
    fn switched(&self, gate: Gate, profiles: Mode) -> Option<Value> {
        let (hold, backlog) = (self.hold.as_deref(), self.backlog.as_deref());
        match (profiles, hold) {
            (Mode::Observe, Some("on")) => return Some(json!({ GATE_KEY: OBSERVING })),
            (Mode::Observe, _) => return None,
            (Mode::Enforce, Some(OBSERVING)) => return Some(json!({ GATE_KEY: "on" })),
            (Mode::Enforce, _) => {}
        }
        match gate {
            Gate::Closed => (hold == Some("on"))
                .then(|| json!({ GATE_KEY: "off", BACKLOG_KEY: BACKLOG_CLOSED })),
            Gate::Open if backlog != Some(BACKLOG_CLOSED) => None,
            Gate::Open if hold == Some("off") => Some(json!({ GATE_KEY: "on", BACKLOG_KEY: null })),
            // Somebody turned it off by another word meanwhile.
            Gate::Open => Some(json!({ BACKLOG_KEY: null })),
        }
    }
}

/// Publishes the census as metrics.
fn publish(finalizer: &PodFinalizer, now: Timestamp) {
    let census = finalizer.census();
    let counts = census.counts();
    let gauge = |name, value: f64| metrics::gauge!(name, "controller" => NAME).set(value);
    gauge(belayer_metrics::HOLDS, counts.held as f64);
    gauge(belayer_metrics::WAITING, counts.waiting as f64);
    let oldest = census
        .oldest_waiting()
        .map_or(0.0, |since| now.duration_since(since).as_secs_f64());
    gauge(belayer_metrics::OLDEST_WAITING, oldest.max(0.0));
    gauge(
        belayer_metrics::BACKLOG_GATE,
        if census.gate() == Gate::Closed {
            1.0
        } else {
            0.0
        },
    );
    let kept = match census.mass_release() {
        MassRelease::Within => 0,
        MassRelease::Exceeded { unselected, .. } => unselected,
    };
    gauge(belayer_metrics::UNSELECTED_KEPT, kept as f64);
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::the_backlog_closes(Some("on"), None, Gate::Closed, Some(json!({"hold": "off", "backlog": "closed"})))]
    #[case::it_is_closed(Some("off"), Some("closed"), Gate::Closed, None)]
    #[case::it_opens_again(Some("off"), Some("closed"), Gate::Open, Some(json!({"hold": "on", "backlog": null})))]
    #[case::it_is_open(Some("on"), None, Gate::Open, None)]
    #[case::an_admins_off_stays(Some("off"), None, Gate::Open, None)]
    #[case::nor_does_it_become_the_backlogs(Some("off"), None, Gate::Closed, None)]
    #[case::a_component_that_was_switched_off(Some("switched-off"), Some("closed"), Gate::Open, Some(json!({"backlog": null})))]
    #[case::an_admin_took_the_switch_out(None, None, Gate::Open, None)]
    fn the_policys_switch_follows_the_backlog_and_obeys_an_admin(
        #[case] hold: Option<&str>,
        #[case] backlog: Option<&str>,
        #[case] gate: Gate,
        #[case] expected: Option<Value>,
    ) {
        let object = gate_of(hold, backlog);
        assert_eq!(object.switched(gate, Mode::Enforce), expected);
    }

    fn gate_of(hold: Option<&str>, backlog: Option<&str>) -> GateObject {
        GateObject {
            uid: String::new(),
            resource_version: String::new(),
            hold: hold.map(str::to_owned),
            backlog: backlog.map(str::to_owned),
        }
    }

    #[rstest]
    #[case::nothing_is_tied_while_all_observe(Mode::Observe, "on", Some("observing"))]
    #[case::which_is_said_once(Mode::Observe, "observing", None)]
    #[case::an_admins_off_stays(Mode::Observe, "off", None)]
    #[case::enforcing_ties_again(Mode::Enforce, "observing", Some("on"))]
    fn the_policys_switch_follows_the_profiles(
        #[case] profiles: Mode,
        #[case] hold: &str,
        #[case] expected: Option<&str>,
    ) {
        let written = gate_of(Some(hold), None).switched(Gate::Open, profiles);
        assert_eq!(written, expected.map(|word| json!({ "hold": word })));
    }
}
