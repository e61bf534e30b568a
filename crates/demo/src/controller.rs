//! Belayer as a process that can be killed: it has its own tokio runtime, and a crash shuts the
//! runtime down with all its tasks.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use belayer_core::client;
use belayer_core::executor::{Bounds, Writes};
use belayer_holds::names;
use belayer_holds::runner::{Executed, Observer, What};
use kube::Config;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Pace, setup};
use belayer::operator::{Memory, Operator, Options};

/// Timeout for a crashed or stopping process to end.
const DEAD_WITHIN: Duration = Duration::from_secs(30);

/// Belayer's reported releases, across all crashes.
#[derive(Debug, Default)]
pub(super) struct ReleaseLog {
    releases: Mutex<Vec<Release>>,
}

/// A release reported by Belayer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Release {
    /// Name of the evidence.
    pub(super) evidence: &'static str,
    /// From the time the evidence was known to the server's response.
    pub(super) took: Duration,
}

impl ReleaseLog {
    /// How many releases there have been.
    pub(super) fn len(&self) -> usize {
        self.releases.lock().len()
    }

    /// The releases after the first `mark`.
    pub(super) fn since(&self, mark: usize) -> Vec<Release> {
        self.releases
            .lock()
            .get(mark..)
            .map(<[Release]>::to_vec)
            .unwrap_or_default()
    }

    /// The number of releases by evidence.
    pub(super) fn by_evidence(&self) -> BTreeMap<&'static str, usize> {
        by_evidence(&self.releases.lock())
    }
}

/// The number of releases by evidence.
pub(super) fn by_evidence(releases: &[Release]) -> BTreeMap<&'static str, usize> {
    releases
        .iter()
        .fold(BTreeMap::new(), |mut counts, release| {
            *counts.entry(release.evidence).or_default() += 1;
            counts
        })
}

/// Records releases. It is alive as long as any part of its process is.
struct ReleaseObserver(Arc<ReleaseLog>);

impl Observer for ReleaseObserver {
    fn executed(&self, executed: &Executed<'_>) {
        if let What::Released { evidence, took } = executed.what {
            self.0.releases.lock().push(Release { evidence, took });
        }
    }
}

/// Starts, kills and stops Belayer.
pub(super) struct Controller {
    cluster: Config,
    bounds: Bounds,
    /// Delay before a rejected pod is re-created, in seconds.
    backoff: u32,
    release_log: Arc<ReleaseLog>,
    process: Option<Process>,
    /// How often it was killed.
    pub(super) crashes: usize,
}

struct Process {
    /// Taken only for shutdown.
    runtime: Option<Runtime>,
    stop: CancellationToken,
    ended: JoinHandle<()>,
    observer: Weak<ReleaseObserver>,
}

impl Controller {
    /// A Belayer for this cluster, not started yet. Its rate limits are the defaults, scaled to the
    /// demo's speed; the delay before a re-creation is short.
    pub(super) fn new(cluster: Config, pace: Pace) -> Self {
        let usual = Bounds::default();
        let bounds = Bounds {
            qps: pace.rate(usual.qps).max(usual.qps),
            burst: usual.burst.saturating_mul(pace.times()),
            ..usual
        };
        Self {
            cluster,
            bounds,
            backoff: u32::from(pace.times() == 1),
            release_log: Arc::default(),
            process: None,
            crashes: 0,
        }
    }

    /// The releases that it reported.
    pub(super) fn release_log(&self) -> &Arc<ReleaseLog> {
        &self.release_log
    }

    /// Starts it without any state but the cluster's.
    pub(super) fn start(&mut self) -> Result<()> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .thread_name("belayer")
            .build()
            .context("creating a runtime for Belayer")?;
        let stop = CancellationToken::new();
        let observer = Arc::new(ReleaseObserver(Arc::clone(&self.release_log)));
        let alive = Arc::downgrade(&observer);
        let ended = {
            // The client starts tasks when it is created.
            let _inside = runtime.enter();
            let options = Options {
                client: client::connect(self.cluster.clone(), names::USER_AGENT)
                    .context("creating a client for Belayer")?,
                watches: client::connect_apart(self.cluster.clone(), names::USER_AGENT)
                    .context("creating a client for Belayer's watches")?,
                namespace: names::DEFAULT_NAMESPACE.to_owned(),
                bounds: self.bounds,
                writes: Writes::Sent,
                leadership: belayer_core::election::Leadership::unlimited(),
                lease: None,
                memory: Memory::default(),
                observer,
            };
            let operator = Operator::new(
                options,
                setup::components(setup::Tuning {
                    policy: setup::Policy {
                        backoff_seconds: self.backoff,
                        ..Default::default()
                    },
                    ..Default::default()
                }),
            );
            runtime.spawn(operator.run(stop.clone()))
        };
        self.process = Some(Process {
            runtime: Some(runtime),
            stop,
            ended,
            observer: alive,
        });
        Ok(())
    }

    /// Kills it at once, and waits until no part of it is left in memory.
    pub(super) async fn crash(&mut self) -> Result<()> {
        let Some(mut process) = self.process.take() else {
            return Ok(());
        };
        self.crashes += 1;
        process.kill();
        let deadline = Instant::now() + DEAD_WITHIN;
        while process.observer.strong_count() > 0 {
            ensure!(
                Instant::now() < deadline,
                "a part of the crashed Belayer is still running"
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    /// Stops it gracefully.
    pub(super) async fn stop(&mut self) -> Result<()> {
        let Some(mut process) = self.process.take() else {
            return Ok(());
        };
        process.stop.cancel();
        tokio::time::timeout(DEAD_WITHIN, &mut process.ended)
            .await
            .context("Belayer did not stop in time")?
            .context("Belayer did not stop cleanly")
    }
}

impl Process {
    fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Process {
    /// Dropping a runtime in an async context would panic, so it is shut down in the background.
    fn drop(&mut self) {
        self.kill();
    }
}
