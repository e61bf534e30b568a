//! Belayer itself, as a process that can be killed: it has a tokio runtime of its own, and a
//! crash takes that away with everything that runs on it.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use belayer_core::client;
use belayer_core::executor::{Bounds, Writes};
use belayer_holds::names;
use belayer_holds::runner::{Executed, Observer, What};
use belayer_pod_recreation::api::Policy;
use kube::Config;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Pace;
use belayer::operator::{Components, Operator, Options};

/// How long a crashed process may take until nothing of it is left, and a stopping one to stop.
const DEAD_WITHIN: Duration = Duration::from_secs(30);

/// What Belayer told of its work. It outlives every crash.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    releases: Mutex<Vec<Release>>,
}

/// A release, as Belayer told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Release {
    /// Name of the evidence.
    pub(super) evidence: &'static str,
    /// From knowing of the evidence to the server's answer.
    pub(super) took: Duration,
}

impl Ledger {
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

    /// How many releases there have been by each kind of evidence.
    pub(super) fn by_evidence(&self) -> BTreeMap<&'static str, usize> {
        by_evidence(&self.releases.lock())
    }
}

/// How many releases there are by each kind of evidence.
pub(super) fn by_evidence(releases: &[Release]) -> BTreeMap<&'static str, usize> {
    releases
        .iter()
        .fold(BTreeMap::new(), |mut counts, release| {
            *counts.entry(release.evidence).or_default() += 1;
            counts
        })
}

/// Tells the ledger, and by being alive that some of its process is.
struct Witness(Arc<Ledger>);

impl Observer for Witness {
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
    /// Before a rejected pod comes back, in seconds.
    backoff: u32,
    ledger: Arc<Ledger>,
    process: Option<Process>,
    /// How often it was killed.
    pub(super) crashes: usize,
}

struct Process {
    /// Only taken to be shut down.
    runtime: Option<Runtime>,
    stop: CancellationToken,
    ended: JoinHandle<()>,
    witness: Weak<Witness>,
}

impl Controller {
    /// A Belayer for this cluster. It does not run yet. Its bounds are the usual ones, in the
    /// story's time; the pause before a rejected pod comes back is short.
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
            ledger: Arc::default(),
            process: None,
            crashes: 0,
        }
    }

    /// What it tells.
    pub(super) fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Starts it, with nothing but the cluster to know anything from.
    pub(super) fn start(&mut self) -> Result<()> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .thread_name("belayer")
            .build()
            .context("a runtime for Belayer")?;
        let stop = CancellationToken::new();
        let witness = Arc::new(Witness(Arc::clone(&self.ledger)));
        let alive = Arc::downgrade(&witness);
        let ended = {
            // The client starts tasks of its own as soon as it is made.
            let _inside = runtime.enter();
            let options = Options {
                client: client::connect(self.cluster.clone()).context("a client for Belayer")?,
                namespace: names::DEFAULT_NAMESPACE.to_owned(),
                bounds: self.bounds,
                writes: Writes::Sent,
                leadership: belayer_core::election::Leadership::unlimited(),
                observer: witness,
            };
            let operator = Operator::new(options, self.components());
            runtime.spawn(operator.run(stop.clone()))
        };
        self.process = Some(Process {
            runtime: Some(runtime),
            stop,
            ended,
            witness: alive,
        });
        Ok(())
    }

    /// All controllers with their defaults, except that pvc-protection holds PVCs, which must be configured:
    /// by default it only reports.
    fn components(&self) -> Components {
        let policy = Policy {
            backoff_seconds: self.backoff,
            ..Policy::default()
        };
        Components::default()
            .with(belayer_pod_finalizer::Settings::default())
            .with(belayer_workflow_finalizer::Settings::default())
            .with(belayer_pvc_protection::Settings {
                mode: belayer_pvc_protection::Mode::Beside,
                ..Default::default()
            })
            .with(belayer_pod_recreation::Settings {
                policy,
                ..Default::default()
            })
    }

    /// Kills it where it stands, and waits until nothing of it is left in memory.
    pub(super) async fn crash(&mut self) -> Result<()> {
        let Some(mut process) = self.process.take() else {
            return Ok(());
        };
        self.crashes += 1;
        process.kill();
        let deadline = Instant::now() + DEAD_WITHIN;
        while process.witness.strong_count() > 0 {
            ensure!(
                Instant::now() < deadline,
                "something of the crashed controller lives on"
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    /// Stops it in good order.
    pub(super) async fn stop(&mut self) -> Result<()> {
        let Some(mut process) = self.process.take() else {
            return Ok(());
        };
        process.stop.cancel();
        tokio::time::timeout(DEAD_WITHIN, &mut process.ended)
            .await
            .context("Belayer did not stop in time")?
            .context("Belayer did not stop well")
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
    /// A runtime must not be dropped where others wait for nothing but tasks.
    fn drop(&mut self) {
        self.kill();
    }
}
