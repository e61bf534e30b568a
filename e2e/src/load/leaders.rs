//! Kills of Belayer's leader.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::future::BoxFuture;
use kube::Client;
use kube::api::DeleteParams;

use crate::harness::{
    Belayer, BelayerOptions, Cluster, HOME, Installed, LEASE, eventually, lease_holder,
};
use crate::kinds;

/// After a kill the other replica waits until the lease has expired. On an overloaded machine it may not even run yet.
const SUCCESSION: Duration = Duration::from_secs(600);

/// The Lease of the Deployment that runs pod-recreation alone.
const RECREATION_LEASE: &str = "belayer-pod-recreation";

/// Disturbs Belayer again and again.
pub(crate) trait Disruptor: Send {
    /// Waits until Belayer works: a replica leads.
    fn settled(&mut self) -> BoxFuture<'_, Result<()>>;

    /// Disturbs it, for example kills the leader. Returns what was done.
    fn disrupt(&mut self) -> BoxFuture<'_, Result<String>>;
}

/// Two processes of this machine.
pub(crate) struct Processes {
    cluster: Cluster,
    options: BelayerOptions,
    running: [(&'static str, Belayer); 2],
}

impl Processes {
    pub(crate) async fn start(cluster: &Cluster, options: BelayerOptions) -> Result<Self> {
        let start = async |name| {
            let options = options.clone().replica(name);
            Ok::<_, anyhow::Error>((name, cluster.start_belayer_with(&options).await?))
        };
        Ok(Self {
            running: [start("a").await?, start("b").await?],
            cluster: cluster.clone(),
            options,
        })
    }

    /// Stops both.
    pub(crate) async fn stop(self) -> Result<()> {
        for (_, belayer) in self.running {
            belayer.stop().await?;
        }
        Ok(())
    }

    async fn leader(&self) -> Result<usize> {
        eventually("a replica leads", SUCCESSION, async || {
            for (at, (_, belayer)) in self.running.iter().enumerate() {
                // A replica that has just started does not answer yet.
                if belayer.leads().await.unwrap_or(false) {
                    return Ok(at);
                }
            }
            bail!("none does")
        })
        .await
    }
}

impl Disruptor for Processes {
    fn settled(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { self.leader().await.map(drop) })
    }

    fn disrupt(&mut self) -> BoxFuture<'_, Result<String>> {
        Box::pin(async {
            let at = self.leader().await?;
            let (name, killed) = self.running.get_mut(at).context("no such replica")?;
            let (name, options) = (*name, self.options.clone().replica(name));
            let next = self.cluster.spawn_belayer(&options)?;
            std::mem::replace(killed, next).kill().await?;
            Ok(format!("killed the leader, replica {name}"))
        })
    }
}

/// The pods of an installed Belayer.
pub(crate) struct Pods {
    /// Of an admin.
    pub(crate) client: Client,
    /// Belayer's namespace.
    pub(crate) namespace: String,
}

impl Pods {
    pub(crate) fn of(belayer: &Installed) -> Self {
        Self {
            client: belayer.cluster.client().clone(),
            namespace: HOME.to_owned(),
        }
    }

    /// The Lease of pod-recreation: a separate one if it has a separate Deployment, as in the shipped manifests.
    async fn lease(&self) -> Result<&'static str> {
        let leases = kinds::leases(&self.client, &self.namespace);
        let own = leases.get_opt(RECREATION_LEASE).await?;
        Ok(own.map_or(LEASE, |_| RECREATION_LEASE))
    }

    async fn leader(&self) -> Result<String> {
        let pods = kinds::pods(&self.client, &self.namespace);
        eventually("a replica leads", SUCCESSION, async || {
            let lease = self.lease().await?;
            let holder = lease_holder(&self.client, &self.namespace, lease).await?;
            let name = holder.split('_').next().unwrap_or_default();
            pods.get(name).await?;
            Ok(name.to_owned())
        })
        .await
    }
}

impl Disruptor for Pods {
    fn settled(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { self.leader().await.map(drop) })
    }

    fn disrupt(&mut self) -> BoxFuture<'_, Result<String>> {
        Box::pin(async {
            let leader = self.leader().await?;
            let pods = kinds::pods(&self.client, &self.namespace);
            // Without a grace period its containers get SIGKILL.
            let now = DeleteParams::default().grace_period(0);
            pods.delete(&leader, &now).await?;
            Ok(format!("killed the leader, pod {leader}"))
        })
    }
}
