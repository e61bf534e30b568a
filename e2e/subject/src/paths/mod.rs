//! The hot paths, prepared to be run repeatedly, so that their instructions and allocations can be
//! counted, and timed by `cargo bench`.

mod decisions;
mod queue;
mod watch;

use std::fmt;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use stats_alloc::INSTRUMENTED_SYSTEM;

use belayer_core::index;
use belayer_core::informer::{Decoder as _, ProtobufDecoder};
use belayer_core::slim::{DecodeContext, Pod, Slim as _};

use super::{Pods, server};
pub use watch::Watch;

/// Pods in the store of the measured updates and lookups.
const PODS: usize = 2000;

/// A hot path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Path {
    /// An event about a pod of 5 KB is decoded.
    Decode,
    /// Such an event comes through the watch and changes nothing that a decision reads; sending it
    /// is one allocation and a copy of its 5 KB.
    Heartbeat,
    /// Such an event comes through the watch and changes the pod's phase.
    Update,
    /// The pods of an owner are looked up.
    Find,
    /// A key is added, taken and done.
    Queue,
    /// A queued key is added again.
    Merge,
    /// A key is added with a delay, among a thousand others, then added without delay, taken and done.
    Delay,
    /// A key is taken, fails and is delayed; its failures are reset, and it is added without delay.
    Retry,
    /// The decision about a terminating PVC: a live read of its pods is required.
    DecidePvc,
    /// The decision about a pod of a terminating workflow: it is released.
    DecidePod,
    /// The decision about a terminating workflow: it waits for its pods.
    DecideWorkflow,
    /// The decision about the record of a rejected pod: another attempt.
    DecideRecord,
}

/// The cost of a path.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// How often it was run.
    pub times: usize,
    /// Allocations per run.
    pub allocations: f64,
    /// Bytes allocated per run.
    pub bytes: f64,
    /// Nanoseconds per run: printed, never compared.
    pub nanoseconds: f64,
}

/// A prepared path.
pub enum Walk {
    /// One run of it.
    Step(Box<dyn FnMut()>),
    /// Events through a watch.
    Watch(Watch),
}

impl Path {
    /// All paths.
    pub const ALL: [Self; 12] = [
        Self::Decode,
        Self::Heartbeat,
        Self::Update,
        Self::Find,
        Self::Queue,
        Self::Merge,
        Self::Delay,
        Self::Retry,
        Self::DecidePvc,
        Self::DecidePod,
        Self::DecideWorkflow,
        Self::DecideRecord,
    ];

    /// Its name on the command line and in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Decode => "decode",
            Self::Heartbeat => "heartbeat",
            Self::Update => "update",
            Self::Find => "find",
            Self::Queue => "queue",
            Self::Merge => "merge",
            Self::Delay => "delay",
            Self::Retry => "retry",
            Self::DecidePvc => "decide-pvc",
            Self::DecidePod => "decide-pod",
            Self::DecideWorkflow => "decide-workflow",
            Self::DecideRecord => "decide-record",
        }
    }

    /// Prepares everything.
    ///
    /// When the preparation fails.
    /// When something that must work does not.
    pub async fn ready(self) -> Result<Walk> {
        Ok(match self {
            Self::Decode => {
                let decoder = ProtobufDecoder::<Pod>::new(DecodeContext::default());
                let frame = Pods::usual().event("MODIFIED", 7, 9);
                Walk::step(move || {
                    black_box(decoder.decode_watch_event(black_box(&frame)));
                })
            }
            Self::Heartbeat => Walk::Watch(Watch::begin(&["Running"]).await?),
            Self::Update => Walk::Watch(Watch::begin(&["Running", "Unknown"]).await?),
            Self::Find => find().await?,
            Self::Queue => queue::through(),
            Self::Merge => queue::merge(),
            Self::Delay => queue::delay(),
            Self::Retry => queue::retry(),
            Self::DecidePvc => decisions::pvc(),
            Self::DecidePod => decisions::pod(),
            Self::DecideWorkflow => decisions::workflow(),
            Self::DecideRecord => decisions::record()?,
        })
    }

    /// Runs it this many times, and counts.
    pub async fn walk(self, times: usize) -> Result<Cost> {
        ensure!(times > 0, "`times` must be at least 1");
        let mut walk = self.ready().await?;
        let (started, before) = (std::time::Instant::now(), INSTRUMENTED_SYSTEM.stats());
        match &mut walk {
            Walk::Step(step) => (0..times).for_each(|_| step()),
            Walk::Watch(watch) => watch.events(times).await?,
        }
        let took = started.elapsed();
        Ok(cost(times, took, INSTRUMENTED_SYSTEM.stats() - before))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Walk {
    fn step(step: impl FnMut() + 'static) -> Self {
        Self::Step(Box::new(step))
    }
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(_) => f.write_str("Step"),
            Self::Watch(watch) => watch.fmt(f),
        }
    }
}

fn cost(times: usize, took: Duration, stats: stats_alloc::Stats) -> Cost {
    let each = |count: usize| count as f64 / times as f64;
    Cost {
        times,
        allocations: each(stats.allocations),
        bytes: each(stats.bytes_allocated),
        nanoseconds: took.as_nanos() as f64 / times as f64,
    }
}

async fn find() -> Result<Walk> {
    let store = watch::filled(server::client_of(Pods::small(), PODS)).await?;
    let mut owners = Vec::new();
    store.for_each(|pod| {
        if let Some(owner) = &pod.meta.controller {
            owners.push(owner.uid.as_str().to_owned());
        }
    });
    owners.dedup();
    ensure!(!owners.is_empty(), "no pod has an owner");
    let mut number = 0;
    Ok(Walk::step(move || {
        number += 1;
        let owner = &owners[number % owners.len()];
        let _ = store.scan_index(index::PODS_BY_OWNER, owner, |pod| {
            black_box(pod.uid());
            ControlFlow::Continue(())
        });
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_path_can_be_walked_on_and_on() {
        for path in Path::ALL {
            let mut walk = path.ready().await.unwrap();
            for _ in 0..3 {
                match &mut walk {
                    Walk::Step(step) => (0..700).for_each(|_| step()),
                    Walk::Watch(watch) => watch.events(700).await.unwrap(),
                }
            }
        }
    }
}
