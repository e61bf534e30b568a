//! Causes one fault after the other, and measures the recovery.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::future::BoxFuture;

use super::fault::Fault;
use super::growth::Growth;
use super::replicas::Replicas;
use super::{Faults, Plan};
use crate::harness::{Cluster, eventually};
use crate::load;

/// Until the API server answers after a fault.
const SERVER: Duration = Duration::from_secs(180);

/// How long Belayer took to work again after each fault, counted from the fault's end.
pub(super) type Recoveries = BTreeMap<Fault, Vec<Duration>>;

pub(super) struct Disruptor {
    cluster: Cluster,
    replicas: Replicas,
    faults: Faults,
    seed: u64,
    begun: Instant,
    caused: usize,
    /// The last fault, until Belayer has recovered from it.
    last: Option<(Fault, Instant)>,
    recoveries: Recoveries,
    growth: Growth,
}

impl Disruptor {
    pub(super) fn new(cluster: &Cluster, replicas: Replicas, plan: &Plan) -> Self {
        Self {
            cluster: cluster.clone(),
            replicas,
            faults: plan.faults,
            seed: plan.seed,
            begun: Instant::now(),
            caused: 0,
            last: None,
            recoveries: Recoveries::new(),
            growth: Growth::default(),
        }
    }

    pub(super) fn finish(self) -> (Recoveries, Growth, Replicas) {
        (self.recoveries, self.growth, self.replicas)
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
        let before = self.caused;
        self.caused += 1;
        let fault = match self.faults {
            Faults::Every(_) => Fault::of(self.seed, before),
            Faults::LeaderKilled(_) => Fault::LeaderKilled,
            Faults::Soak(kills) => {
                let is_over = before >= kills;
                self.replicas
                    .measure(is_over, self.begun.elapsed(), &mut self.growth)
                    .await?;
                if is_over {
                    return Ok("measured".to_owned());
                }
                Fault::LeaderKilled
            }
        };
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
