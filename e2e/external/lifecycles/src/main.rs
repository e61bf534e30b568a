//! Jobs of tenants on `belayer-lifecycles`: a job of a name begins only after its predecessor has ended.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use belayer_core::{ObjectKey, Uid};
use belayer_lifecycles::{Deadline, Identity, Lifecycle, Lifecycles, Options, Synced};
use tokio_util::sync::CancellationToken;

struct Jobs(Arc<Mutex<Vec<String>>>);

impl Jobs {
    fn log(&self, job: &Identity, what: &str) {
        if let Ok(mut log) = self.0.lock() {
            log.push(format!("{} {what}", job.uid));
        }
    }
}

impl Lifecycle for Jobs {
    type Snapshot = ();
    type Error = Infallible;

    async fn sync(
        &self,
        job: &Identity,
        (): &(),
        _: &CancellationToken,
    ) -> Result<Synced, Infallible> {
        self.log(job, "runs");
        Ok(Synced::Settled)
    }

    async fn terminate(
        &self,
        job: &Identity,
        (): &(),
        _: Deadline,
        _: &CancellationToken,
    ) -> Result<(), Infallible> {
        self.log(job, "stops");
        Ok(())
    }

    async fn terminated(
        &self,
        job: &Identity,
        (): &(),
        _: &CancellationToken,
    ) -> Result<(), Infallible> {
        self.log(job, "is cleaned up");
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let log = Arc::default();
    let jobs = Lifecycles::new(Jobs(Arc::clone(&log)), Options::new("jobs"));
    let job = |uid: &str| Identity::new(ObjectKey::new("tenant-a", "nightly"), Uid::new(uid));
    jobs.created(&job("first"), ());
    jobs.settled().await;
    jobs.deleted(&job("first"));
    jobs.created(&job("second"), ());
    jobs.settled().await;
    let log = log.lock().map(|log| log.clone()).unwrap_or_default();
    assert_eq!(
        log,
        [
            "first runs",
            "first stops",
            "first is cleaned up",
            "second runs"
        ]
    );
    jobs.shutdown().await;
    println!("lifecycles: {}", log.join(", "));
}
