//! Events of a watch, from the bytes to the handlers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures::Stream;
use futures::stream;
use futures::task::AtomicWaker;
use tokio_util::sync::CancellationToken;

use belayer_core::informer::{Informer, Store, StreamingList};
use belayer_core::object::ResourceVersion;
use belayer_core::slim::Pod;

use super::PODS;
use crate::{FIRST_VERSION, Pods, Template, memory, server};

/// A watch that sends events on request, and the store behind it.
pub struct Watch {
    store: Store<Pod>,
    tap: Arc<Tap>,
}

impl Watch {
    /// Events after which the pods are in each of these phases in turn. The pods are running
    /// before.
    pub(super) async fn begin(phases: &[&'static str]) -> Result<Self> {
        let in_phase = |phase: &'static str| {
            let pods = Pods::usual().in_phase(phase);
            (0..PODS).map(move |number| pods.template("MODIFIED", number))
        };
        let templates: Arc<[Template]> = phases.iter().rev().copied().flat_map(in_phase).collect();
        let tap = Arc::new(Tap::default());
        let opened = Arc::clone(&tap);
        let frames = move || {
            let templates = Arc::clone(&templates);
            Tap::stream(Arc::clone(&opened), move |event| {
                let template = &templates[event as usize % templates.len()];
                template.at(FIRST_VERSION + event)
            })
        };
        let client = server::client_that_watches(Pods::usual(), PODS, frames);
        let store = filled(client).await?;
        Ok(Self { store, tap })
    }

    /// Sends this many more, and waits until the store has the last one.
    pub async fn events(&mut self, more: usize) -> Result<()> {
        let last = FIRST_VERSION + self.tap.open(more as u64) - 1;
        self.store
            .wait_for(ResourceVersion::new(last))
            .await
            .context("the informer ended before the last event")
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

/// An informer's store with all pods, as in the operator.
pub(super) async fn filled(client: kube::Client) -> Result<Store<Pod>> {
    let builder = Informer::builder(client, memory::resource(), memory::decoders());
    let (informer, store) = memory::pods(builder)
        .streaming_list(StreamingList::Never)
        .build();
    tokio::spawn(informer.run(CancellationToken::new()));
    store.synced().await.context("the informer ended")?;
    ensure!(store.len() == PODS, "{} of {PODS} pods", store.len());
    Ok(store)
}

/// How many events may be sent.
#[derive(Default)]
struct Tap {
    events: AtomicU64,
    reader: AtomicWaker,
}

impl Tap {
    /// Permits this many more. Returns how many may be sent now.
    fn open(&self, more: u64) -> u64 {
        let now = self.events.fetch_add(more, Ordering::AcqRel) + more;
        self.reader.wake();
        now
    }

    /// The events, each created when it is permitted. The stream never ends.
    fn stream(tap: Arc<Self>, make: impl Fn(u64) -> Bytes) -> impl Stream<Item = Bytes> {
        let mut come = 0;
        stream::poll_fn(move |context| {
            if come == tap.events.load(Ordering::Acquire) {
                tap.reader.register(context.waker());
                // Events permitted before the reader was registered have woken no task.
                if come == tap.events.load(Ordering::Acquire) {
                    return Poll::Pending;
                }
            }
            come += 1;
            Poll::Ready(Some(make(come - 1)))
        })
    }
}
