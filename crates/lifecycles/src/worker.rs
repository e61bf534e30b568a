//! One task per name with work: the kubelet's pod worker loop.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::object::Identity;
use super::shared::Shared;
use super::slots::Next;
use super::step::{Ended, Pace, Run, Work};
use super::work::{Lifecycle, Synced};
use belayer_core::object::ObjectKey;
use belayer_core::rng;
use belayer_core::workqueue::Backoff;

/// By how much of its interval a resync may be delayed, as in the kubelet.
const JITTER: f64 = 0.5;

pub(super) async fn work<L: Lifecycle>(
    shared: Arc<Shared<L>>,
    key: ObjectKey,
    signal: Arc<Notify>,
) {
    loop {
        let next = shared.slots.begin(&key, Instant::now());
        match next {
            Next::Run(run, cancel) => {
                let ended = execute(&shared, &key, run, &cancel).await;
                let pace = Pace {
                    resync: shared
                        .resync
                        .map(|every| every.saturating_add(every.mul_f64(JITTER * rng::unit()))),
                    draw: rng::unit(),
                };
                let effects = shared.slots.complete(&key, ended, pace, Instant::now());
                shared.report(&key, effects);
                // Work that never waits would otherwise never yield to its runtime.
                tokio::task::coop::consume_budget().await;
            }
            Next::Sleep(due) => {
                shared.changed.notify_waiters();
                tokio::select! {
                    () = signal.notified() => {}
                    () = sleep_until(due) => {}
                    () = shared.stop.cancelled() => return,
                }
            }
            Next::Exit => {
                shared.changed.notify_waiters();
                return;
            }
        }
    }
}

async fn execute<L: Lifecycle>(
    shared: &Shared<L>,
    key: &ObjectKey,
    run: Run<Arc<L::Snapshot>>,
    cancel: &CancellationToken,
) -> Ended {
    let object = Identity::new(key.clone(), run.uid);
    // The block also catches a panic before the first await, or in `backoff`. The unwinding touches
    // no state of the slots.
    let work = AssertUnwindSafe(async {
        let result = dispatch(&shared.work, &object, &run.work, cancel).await;
        result.map_err(|error| (shared.work.backoff(&error), error))
    });
    match work.catch_unwind().await {
        Ok(Ok(ended)) => ended,
        Ok(Err((backoff, error))) => {
            let controller = &*shared.controller;
            if cancel.is_cancelled() {
                tracing::debug!(controller, %object, %error, "cancelled");
            } else {
                tracing::warn!(controller, %object, %error, failures = run.failures + 1, "failed, retrying");
            }
            Ended::Failed(backoff)
        }
        Err(panic) => {
            shared.panicked(&object, &*panic);
            Ended::Failed(Backoff::ERROR)
        }
    }
}

async fn dispatch<L: Lifecycle>(
    lifecycle: &L,
    object: &Identity,
    work: &Work<Arc<L::Snapshot>>,
    cancel: &CancellationToken,
) -> Result<Ended, L::Error> {
    match work {
        Work::Sync { snapshot } => lifecycle
            .sync(object, snapshot, cancel)
            .await
            .map(Ended::from),
        Work::Terminate { snapshot, deadline } => lifecycle
            .terminate(object, snapshot, *deadline, cancel)
            .await
            .map(|()| Ended::Done),
        Work::TerminateFound { deadline } => lifecycle
            .terminate_found(object, *deadline, cancel)
            .await
            .map(|()| Ended::Done),
        Work::CleanUp { snapshot } => lifecycle
            .terminated(object, snapshot, cancel)
            .await
            .map(|()| Ended::Done),
    }
}

impl From<Synced> for Ended {
    fn from(synced: Synced) -> Self {
        match synced {
            Synced::Settled => Self::Settled,
            Synced::Again { after } => Self::Again { after },
            Synced::Terminal => Self::Terminal,
        }
    }
}
