//! Another operator on the same pods: it puts finalizers and labels of its own on them, moves
//! them about, and takes them off some time after a pod was deleted.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use belayer_sandbox::{
    Actor, ApiError, Cluster, Gvr, ListOptions, Patch, SharedRng, Subresource, WriteOptions,
};
use belayer_workload::names;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{NEIGHBOUR, Pace};

/// What the names of its finalizers begin with.
pub(super) const DOMAIN: &str = "example.com/";
/// What it holds pods by.
const KEEP: &str = "example.com/keep";
/// What it puts on and takes off again while a pod lives.
const AUDIT: &str = "example.com/audit";
/// The label it writes.
const TOUCHED: &str = "example.com/touched";

/// One in so many pods is its business.
const ONE_IN: u64 = 4;
/// How many pods it changes at a time.
const EDITS: usize = 3;

/// What it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    /// Changes pods that live, and lets deleted ones go after a while.
    Busy,
    /// Writes nothing.
    Resting,
    /// Takes everything off that is its own.
    LettingGo,
}

/// The hand on the other operator. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Neighbour {
    mood: watch::Sender<Mood>,
}

impl Neighbour {
    /// Starts it.
    pub(super) fn start(cluster: &Cluster, pace: Pace, seed: u64) -> Self {
        let (mood, orders) = watch::channel(Mood::Busy);
        let worker = Worker {
            cluster: cluster.clone(),
            actor: Actor::new(NEIGHBOUR),
            rng: SharedRng::new(seed ^ 0x6e65_6967),
            patience: pace.of(0.8),
            deleting: BTreeMap::new(),
            edits: 0,
        };
        tokio::spawn(worker.work(orders, pace.of(0.15).max(Duration::from_millis(20))));
        Self { mood }
    }

    /// Changes what it does from its next turn on.
    pub(super) fn be(&self, mood: Mood) {
        self.mood.send_replace(mood);
    }
}

struct Worker {
    cluster: Cluster,
    actor: Actor,
    rng: SharedRng,
    /// How long it keeps a pod that is deleted.
    patience: Duration,
    /// Since when pods are seen to be deleted, by UID.
    deleting: BTreeMap<String, Instant>,
    edits: u64,
}

impl Worker {
    async fn work(mut self, mut orders: watch::Receiver<Mood>, every: Duration) {
        loop {
            tokio::select! {
                changed = orders.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(every) => {}
            }
            let mood = *orders.borrow();
            let Ok(page) =
                self.cluster
                    .list(&Gvr::PODS, None, &ListOptions::labels(names::WORKFLOW))
            else {
                continue;
            };
            for pod in &page.items {
                match mood {
                    Mood::Resting => {}
                    Mood::Busy if is_deleting(pod) => self.let_go_in_time(pod),
                    Mood::Busy => self.adopt(pod),
                    Mood::LettingGo => self.let_go(pod),
                }
            }
            if mood == Mood::Busy {
                self.edit_some(&page.items);
            }
        }
    }

    /// Puts its finalizer on in front of all others.
    fn adopt(&self, pod: &Value) {
        let finalizers = finalizers(pod);
        if !is_mine(pod) || finalizers.contains(&KEEP) {
            return;
        }
        let all: Vec<&str> = [KEEP].into_iter().chain(finalizers).collect();
        self.write(pod, &json!({ "finalizers": all }));
    }

    /// Moves its own finalizers about, around those of others, and writes a label.
    fn edit_some(&mut self, pods: &[std::sync::Arc<Value>]) {
        let mine: Vec<_> = pods
            .iter()
            .filter(|pod| is_mine(pod) && !is_deleting(pod))
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

    fn let_go_in_time(&mut self, pod: &Value) {
        let uid = pod
            .pointer("/metadata/uid")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let since = *self
            .deleting
            .entry(uid.to_owned())
            .or_insert_with(Instant::now);
        if since.elapsed() >= self.patience {
            self.let_go(pod);
        }
    }

    fn let_go(&self, pod: &Value) {
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

    /// Writes some metadata, at the version that was read.
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
        // Somebody else was first: next time.
        if let Err(ApiError { code, message, .. }) = written {
            tracing::debug!(code, message, "the neighbour was refused");
        }
    }
}

/// Which pods are its business: always the same ones of a seed.
fn is_mine(pod: &Value) -> bool {
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
