//! Causes one fault after the other, and measures the recovery.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::future::BoxFuture;

use super::fault::Fault;
use super::replicas::Replicas;
use crate::harness::{Cluster, eventually};
use crate::load;

/// Until the API server answers after a fault.
const SERVER: Duration = Duration::from_secs(180);

/// How long Belayer took to work again after each fault, counted from the fault's end.
pub(super) type Recoveries = BTreeMap<Fault, Vec<Duration>>;

pub(super) struct Disruptor {
    cluster: Cluster,
    replicas: Replicas,
    seed: u64,
    caused: usize,
    /// The last fault, until Belayer has recovered from it.
    last: Option<(Fault, Instant)>,
    recoveries: Recoveries,
}

impl Disruptor {
    pub(super) fn new(cluster: &Cluster, replicas: Replicas, seed: u64) -> Self {
        Self {
            cluster: cluster.clone(),
            replicas,
            seed,
            caused: 0,
            last: None,
            recoveries: Recoveries::new(),
        }
    }

    pub(super) fn finish(self) -> (Recoveries, Replicas) {
        (self.recoveries, self.replicas)
    }

    async fn recovered(&mut self) -> Result<()> {
        eventually("the API server is ready", SERVER, async || {
            let ready = http::Request::get("/readyz").body(Vec::new())?;
            Ok(self.cluster.client().request_text(ready).await?)
        })
        .await?;
        self.replicas.recovered().await?;
        if let Some((fault, ended)) = self.last.take() {
            self.recoveries
                .entry(fault)
                .or_default()
                .push(ended.elapsed());
        }
        Ok(())
    }

    /// Starts replicas again that end, until the cluster does not recover.
    pub(super) async fn keep_running(&mut self) -> anyhow::Error {
        loop {
            if let Err(error) = self.recovered().await {
                return error;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn disturb(&mut self) -> Result<String> {
        let fault = Fault::of(self.seed, self.caused);
        self.caused += 1;
        fault
            .cause(&self.cluster, &mut self.replicas)
            .await
            .with_context(|| format!("fault {}: {fault}", self.caused))?;
        self.last = Some((fault, Instant::now()));
        Ok(format!("fault {}: {fault}", self.caused))
    }
}

impl load::Disruptor for Disruptor {
    fn settled(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.recovered())
    }

    fn disrupt(&mut self) -> BoxFuture<'_, Result<String>> {
        Box::pin(self.disturb())
    }
}
