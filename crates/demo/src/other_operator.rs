//! Another operator on the same pods: it adds its own finalizers and labels, reorders its finalizers,
//! and removes them some time after a pod was deleted.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use belayer_sandbox::{
    Actor, ApiError, Cluster, Gvr, ListOptions, Patch, SharedRng, Subresource, WriteOptions,
};
use belayer_workload::names;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{OTHER_OPERATOR, Pace};

/// Prefix of its finalizers.
pub(super) const DOMAIN: &str = "example.com/";
/// The finalizer that it keeps until a pod's deletion.
const KEEP: &str = "example.com/keep";
/// The finalizer that it adds and removes while a pod is running.
const AUDIT: &str = "example.com/audit";
/// The label that it writes.
const TOUCHED: &str = "example.com/touched";

/// It handles one in this many pods.
const ONE_IN: u64 = 4;
/// How many pods it changes at a time.
const EDITS: usize = 3;

/// What it does at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Changes running pods, and releases deleted ones after a delay.
    Busy,
    /// Writes nothing.
    Resting,
    /// Removes all its finalizers.
    Releasing,
}

/// Handle of the other operator, which stops when this is dropped.
#[derive(Debug)]
pub(super) struct OtherOperator {
    mode: watch::Sender<Mode>,
}

impl OtherOperator {
    /// Starts it.
    pub(super) fn start(cluster: &Cluster, pace: Pace, seed: u64) -> Self {
        let (mode, modes) = watch::channel(Mode::Busy);
        let worker = Worker {
            cluster: cluster.clone(),
            actor: Actor::new(OTHER_OPERATOR),
            rng: SharedRng::new(seed ^ 0x6e65_6967),
            delay: pace.of(0.8),
            deleting: BTreeMap::new(),
            edits: 0,
        };
        tokio::spawn(worker.work(modes, pace.of(0.15).max(Duration::from_millis(20))));
        Self { mode }
    }

    /// Changes its mode from the next iteration on.
    pub(super) fn set_mode(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

struct Worker {
    cluster: Cluster,
    actor: Actor,
    rng: SharedRng,
    /// How long it keeps its finalizers on a deleted pod.
    delay: Duration,
    /// When each deleted pod was first seen, by UID.
    deleting: BTreeMap<String, Instant>,
    edits: u64,
}

impl Worker {
    async fn work(mut self, mut modes: watch::Receiver<Mode>, every: Duration) {
        loop {
            tokio::select! {
                changed = modes.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(every) => {}
            }
            let mode = *modes.borrow();
            let Ok(page) =
                self.cluster
                    .list(&Gvr::PODS, None, &ListOptions::labels(names::WORKFLOW))
            else {
                continue;
            };
            for pod in &page.items {
                match mode {
                    Mode::Resting => {}
                    Mode::Busy if is_deleting(pod) => self.release_after_delay(pod),
                    Mode::Busy => self.add_finalizer(pod),
                    Mode::Releasing => self.release(pod),
                }
            }
            if mode == Mode::Busy {
                self.edit_some(&page.items);
            }
        }
    }

    /// Adds its finalizer before all others.
    fn add_finalizer(&self, pod: &Value) {
        let finalizers = finalizers(pod);
        if !is_handled(pod) || finalizers.contains(&KEEP) {
            return;
        }
        let all: Vec<&str> = [KEEP].into_iter().chain(finalizers).collect();
        self.write(pod, &json!({ "finalizers": all }));
    }

    /// Reorders its own finalizers around those of others, and writes a label.
    fn edit_some(&mut self, pods: &[std::sync::Arc<Value>]) {
        let mine: Vec<_> = pods
            .iter()
            .filter(|pod| is_handled(pod) && !is_deleting(pod))
            .collect();
        for _ in 0..EDITS.min(mine.len()) {
            let number = self.rng.below(mine.len() as u64);
            let Some(pod) = usize::try_from(number)
                .ok()
                .and_then(|number| mine.get(number))
            else {
                continue;
            };
            self.edits += 1;
            let others = finalizers(pod)
                .into_iter()
                .filter(|one| ![KEEP, AUDIT].contains(one));
            let all: Vec<&str> = match self.rng.below(3) {
                0 => [KEEP].into_iter().chain(others).chain([AUDIT]).collect(),
                1 => [AUDIT, KEEP].into_iter().chain(others).collect(),
                _ => others.chain([KEEP]).collect(),
            };
            let labels = json!({ (TOUCHED): self.edits.to_string() });
            self.write(pod, &json!({ "finalizers": all, "labels": labels }));
        }
    }

    fn release_after_delay(&mut self, pod: &Value) {
        let uid = pod
            .pointer("/metadata/uid")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let since = *self
            .deleting
            .entry(uid.to_owned())
            .or_insert_with(Instant::now);
        if since.elapsed() >= self.delay {
            self.release(pod);
        }
    }

    fn release(&self, pod: &Value) {
        let before = finalizers(pod);
        let rest: Vec<&str> = before
            .iter()
            .copied()
            .filter(|one| ![KEEP, AUDIT].contains(one))
            .collect();
        if rest.len() < before.len() {
            self.write(pod, &json!({ "finalizers": rest }));
        }
    }

    /// Patches metadata, with the version that was read.
    fn write(&self, pod: &Value, metadata: &Value) {
        let field = |name: &str| pod["metadata"][name].as_str().unwrap_or_default();
        let mut metadata = metadata.clone();
        metadata["uid"] = json!(field("uid"));
        metadata["resourceVersion"] = json!(field("resourceVersion"));
        let written = self.cluster.patch(
            &self.actor,
            &Gvr::PODS,
            Some(field("namespace")),
            field("name"),
            Patch::Merge(json!({ "metadata": metadata })),
            Subresource::None,
            &WriteOptions::default(),
        );
        // A concurrent write came first: retry in the next iteration.
        if let Err(ApiError { code, message, .. }) = written {
            tracing::debug!(code, message, "the other operator's patch was refused");
        }
    }
}

/// Whether the operator handles this pod; the same pods for each seed.
fn is_handled(pod: &Value) -> bool {
    let name = pod
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let sum = name.bytes().fold(7_u64, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(byte))
    });
    sum.is_multiple_of(ONE_IN)
}

fn is_deleting(pod: &Value) -> bool {
    pod.pointer("/metadata/deletionTimestamp").is_some()
}

fn finalizers(pod: &Value) -> Vec<&str> {
    let all = pod
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array);
    all.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}
