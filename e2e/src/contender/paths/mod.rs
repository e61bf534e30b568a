//! The hot paths, each done over and over, so that their instructions and allocations can be
//! counted.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stats_alloc::INSTRUMENTED_SYSTEM;
use tokio_util::sync::CancellationToken;

use belayer_core::index;
use belayer_core::informer::{Decoder as _, Informer, ProtobufDecoder, Store, StreamingList};
use belayer_core::moment::Moment;
use belayer_core::names::KUBERNETES_PVC_PROTECTION;
use belayer_core::object::{ObjectKey, ResourceVersion, Uid};
use belayer_core::slim::{DecodeContext, ObjectMeta, Pod, Slim as _};
use belayer_core::workqueue::{Band, Metering, Options, WorkQueue};
use belayer_pvc_protection::decide::decide;
use belayer_pvc_protection::look::PodsQuestion;
use belayer_pvc_protection::snapshot::{CachedUsers, ClaimView, Hold, Snapshot};
use belayer_pvc_protection::uses::Users;

use super::{FIRST_VERSION, Pods, Template, memory, server};

/// Pods in the store whose updates and look-ups are measured.
const PODS: usize = 2000;

/// What is done over and over.
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
    /// A claim that is being deleted is decided on.
    Decide,
}

/// What it cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// How often it was done.
    pub times: usize,
    /// Allocations each time.
    pub allocations: f64,
    /// Bytes asked for each time.
    pub bytes: f64,
    /// Nanoseconds each time: printed, never compared.
    pub nanoseconds: f64,
}

impl Path {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Decode,
        Self::Heartbeat,
        Self::Update,
        Self::Find,
        Self::Queue,
        Self::Decide,
    ];

    /// As it is called on the command line and in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Decode => "decode",
            Self::Heartbeat => "heartbeat",
            Self::Update => "update",
            Self::Find => "find",
            Self::Queue => "queue",
            Self::Decide => "decide",
        }
    }

    /// Does it so many times.
    ///
    /// # Errors
    /// When something that must work does not.
    pub async fn walk(self, times: usize) -> Result<Cost> {
        match self {
            Self::Decode => {
                let decoder = ProtobufDecoder::<Pod>::new(DecodeContext::default());
                let frame = Pods::usual().event("MODIFIED", 7, 9);
                measured(times, || {
                    for _ in 0..times {
                        black_box(decoder.decode_watch_event(black_box(&frame)));
                    }
                })
            }
            Self::Heartbeat | Self::Update => {
                let phases: &[&str] = match self {
                    Self::Update => &["Running", "Unknown"],
                    _ => &["Running"],
                };
                watch(times, phases).await
            }
            Self::Find => {
                let store = filled(server::client_of(Pods::small(), PODS)).await?;
                let owners: Vec<String> = owners(&store);
                measured(times, || {
                    for number in 0..times {
                        let owner = &owners[number % owners.len()];
                        let _ = store.scan_index(index::PODS_BY_OWNER, owner, |pod| {
                            black_box(pod.uid());
                            ControlFlow::Continue(())
                        });
                    }
                })
            }
            Self::Queue => queue(times),
            Self::Decide => {
                let snapshot = snapshot();
                let now = Timestamp::UNIX_EPOCH + Duration::from_secs(1_000_000);
                measured(times, || {
                    for _ in 0..times {
                        black_box(decide(black_box(&snapshot), now));
                    }
                })
            }
        }
    }
}

fn measured(times: usize, work: impl FnOnce()) -> Result<Cost> {
    let (started, before) = (std::time::Instant::now(), INSTRUMENTED_SYSTEM.stats());
    work();
    let took = started.elapsed();
    cost(times, took, before)
}

fn cost(times: usize, took: Duration, before: stats_alloc::Stats) -> Result<Cost> {
    ensure!(times > 0, "nothing was done");
    let stats = INSTRUMENTED_SYSTEM.stats() - before;
    let each = |count: usize| count as f64 / times as f64;
    Ok(Cost {
        times,
        allocations: each(stats.allocations),
        bytes: each(stats.bytes_allocated),
        nanoseconds: took.as_nanos() as f64 / times as f64,
    })
}

/// Events of a watch from the bytes to the handlers.
async fn watch(times: usize, phases: &'static [&'static str]) -> Result<Cost> {
    let in_phase = |phase: &'static str| {
        let pods = Pods::usual().in_phase(phase);
        (0..PODS).map(move |number| pods.template("MODIFIED", number))
    };
    let templates: Arc<[Template]> = phases.iter().rev().copied().flat_map(in_phase).collect();
    let frames = move || {
        let templates = Arc::clone(&templates);
        (0..times)
            .map(move |event| templates[event % templates.len()].at(FIRST_VERSION + event as u64))
    };
    let client = server::client_that_watches(Pods::usual(), PODS, frames);
    let store = filled(client).await?;
    let before = INSTRUMENTED_SYSTEM.stats();
    let started = std::time::Instant::now();
    let last = ResourceVersion::new(FIRST_VERSION + times as u64 - 1);
    store
        .wait_for(last)
        .await
        .context("the informer ended before the last event")?;
    cost(times, started.elapsed(), before)
}

async fn filled(client: kube::Client) -> Result<Store<Pod>> {
    let builder = Informer::builder(client, memory::resource(), memory::decoders());
    let (informer, store) = memory::pods(builder)
        .streaming_list(StreamingList::Never)
        .build();
    tokio::spawn(informer.run(CancellationToken::new()));
    store.synced().await.context("the informer ended")?;
    ensure!(store.len() == PODS, "{} of {PODS} pods", store.len());
    Ok(store)
}

fn owners(store: &Store<Pod>) -> Vec<String> {
    let mut owners = Vec::new();
    store.for_each(|pod| {
        if let Some(owner) = &pod.meta.controller {
            owners.push(owner.uid.as_str().to_owned());
        }
    });
    owners.dedup();
    owners
}

fn queue(times: usize) -> Result<Cost> {
    let options = Options {
        metering: Metering::Off,
        ..Options::default()
    };
    let queue: WorkQueue<Arc<str>> = WorkQueue::with_options("path", options);
    let keys: Vec<Arc<str>> = (0..1000)
        .map(|number| format!("team-{}/pod-{number}", number % 10).into())
        .collect();
    measured(times, || {
        for round in 0..times {
            // Some wait: a queue of one would be all too friendly to the caches.
            queue.add(Arc::clone(&keys[round % keys.len()]), Band::ALL[round % 3]);
            if round >= keys.len() / 2
                && let Some(item) = queue.try_next()
            {
                item.succeeded();
            }
        }
    })
}

fn snapshot() -> Snapshot {
    let meta = ObjectMeta {
        deletion_timestamp: Some(Timestamp::UNIX_EPOCH),
        finalizers: Box::from([Arc::from(KUBERNETES_PVC_PROTECTION)]),
        ..ObjectMeta::new(
            ObjectKey::new("team-01", "data-0"),
            Uid::new("0a1b2c3d-0000-4000-8000-00000000002a"),
            ResourceVersion::new(7),
        )
    };
    Snapshot {
        claim: Some(ClaimView {
            question: PodsQuestion::new("team-01"),
            hold: Hold::Present,
            deletion_seen: Some(Moment::now()),
            cached: CachedUsers::Known {
                users: Users::default(),
                as_of: ResourceVersion::new(9),
            },
            look: None,
            look_error: None,
            meta,
        }),
    }
}
