//! What this build does with the objects of an earlier one, by name.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use futures::future::BoxFuture;
use kube::ResourceExt as _;

use super::left::{DELETED_PVCS, PVCS, RECREATION_HOLD, REJECTED};
use crate::harness::{Belayer, Cluster, HOLD, PVC_HOLD, SOON, finalizers, throughout};
use crate::kinds;

/// How long the absence of a change is observed.
const WINDOW: Duration = Duration::from_secs(3);

/// Which RBAC permissions and policies this build finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Build {
    /// Those of the earlier build.
    WithOldManifests,
    /// Its own.
    WithItsOwnManifests,
}

type Expectation = for<'a> fn(&'a Cluster, &'a Belayer) -> BoxFuture<'a, Result<()>>;

/// The expectations and their checks.
const EXPECTATIONS: &[(&str, Expectation)] = &[
    (
        "A3: a deleted agent pod is removed at once",
        |cluster, _| Box::pin(gone(cluster, "agent")),
    ),
    ("A3: a pod of artifact GC is released", |cluster, _| {
        Box::pin(free(cluster, "collector"))
    }),
    (
        "A6, A7: a deleted pod that never started is removed",
        |cluster, _| Box::pin(gone(cluster, "pending")),
    ),
    (
        "A1: an ended pod that Argo has not read keeps its hold",
        |cluster, _| Box::pin(held(cluster, "unread")),
    ),
    (
        "A1: the same for one that is being deleted",
        |cluster, _| Box::pin(held(cluster, "done")),
    ),
    (
        "A6: the same for one whose end was not observed",
        |cluster, _| Box::pin(held(cluster, "killed")),
    ),
    ("a pod that Argo has read is removed", |cluster, _| {
        Box::pin(gone(cluster, "read"))
    }),
    (
        "a deleted workflow and its pods are removed",
        |cluster, _| {
            Box::pin(async {
                gone(cluster, "going-0").await?;
                gone(cluster, "going-1").await?;
                let left = cluster.workflows().get_opt("going").await?;
                ensure!(left.is_none(), "{left:?}");
                Ok(())
            })
        },
    ),
    ("pods of a removed workflow are removed", |cluster, _| {
        Box::pin(async {
            gone(cluster, "gone-0").await?;
            gone(cluster, "gone-1").await
        })
    }),
    (
        "a pod that was to be re-created is re-created",
        |cluster, _| {
            Box::pin(async {
                cluster.pods().get(REJECTED).await?;
                Ok(())
            })
        },
    ),
    (
        "A18: PVCs that Kubernetes protects lose Belayer's finalizer",
        |cluster, _| {
            Box::pin(async {
                for name in PVCS {
                    let pvc = cluster.pvcs().get(name).await?;
                    ensure!(
                        !finalizers(&pvc).contains(&PVC_HOLD),
                        "{name}: {:?}",
                        pvc.finalizers()
                    );
                }
                Ok(())
            })
        },
    ),
    (
        "a deleted PVC is removed once no pod uses it",
        |cluster, _| {
            Box::pin(async {
                let left = cluster.pvcs().get_opt(DELETED_PVCS[1]).await?;
                ensure!(left.is_none(), "{left:?}");
                Ok(())
            })
        },
    ),
    (
        "a deleted PVC in use stays while only Belayer protects it",
        |cluster, _| {
            Box::pin(async {
                let pvc = cluster.pvcs().get(DELETED_PVCS[0]).await?;
                ensure!(finalizers(&pvc) == [PVC_HOLD], "{:?}", pvc.finalizers());
                Ok(())
            })
        },
    ),
    (
        "the namespace that the earlier build had closed is reopened",
        |cluster, _| Box::pin(switch(cluster, "hold", "on")),
    ),
    ("A18: the policy for PVCs is switched off", |cluster, _| {
        Box::pin(switch(cluster, "holdClaims", "switched-off"))
    }),
    ("A1: capture is a warning", |_, belayer| {
        Box::pin(async { warned(belayer, "capture") })
    }),
    (
        "A7: a Workflow among the owners is a warning",
        |_, belayer| Box::pin(async { warned(belayer, "owners") }),
    ),
    ("no write is refused", |_, belayer| {
        Box::pin(async {
            let refused = belayer
                .metric_or_zero("belayer_release_denied_total", &[])
                .await?;
            ensure!(refused == 0.0, "{refused} releases were refused");
            Ok(())
        })
    }),
    ("its log has no errors, and it is ready", |_, belayer| {
        Box::pin(async {
            let log = belayer.log()?;
            let error = log.lines().find(|line| line.contains(" ERROR "));
            ensure!(error.is_none(), "{error:?}");
            belayer.probe("/readyz").await?;
            belayer.probe("/livez").await?;
            Ok(())
        })
    }),
];

/// Waits until all expectations are met, and checks that they stay so.
pub(super) async fn are_met(cluster: &Cluster, belayer: &Belayer, build: Build) -> Result<()> {
    let started = Instant::now();
    loop {
        let broken = broken(cluster, belayer).await;
        if broken.is_empty() {
            break;
        }
        if started.elapsed() > SOON {
            bail!("{build:?}: not within {SOON:?}:\n{}", broken.join("\n"));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    throughout("the expectations stay met", WINDOW, async || {
        let broken = broken(cluster, belayer).await;
        ensure!(broken.is_empty(), "{build:?}:\n{}", broken.join("\n"));
        Ok(())
    })
    .await
}

async fn broken(cluster: &Cluster, belayer: &Belayer) -> Vec<String> {
    let mut broken = Vec::new();
    for (name, look) in EXPECTATIONS {
        if let Err(why) = look(cluster, belayer).await {
            broken.push(format!("{name}: {why:#}"));
        }
    }
    broken
}

async fn gone(cluster: &Cluster, pod: &str) -> Result<()> {
    match cluster.pods().get_opt(pod).await? {
        Some(left) => bail!("{pod} has {:?}", left.finalizers()),
        None => Ok(()),
    }
}

async fn free(cluster: &Cluster, pod: &str) -> Result<()> {
    let seen = cluster.pods().get(pod).await?;
    let belayers = [HOLD, RECREATION_HOLD];
    ensure!(
        !finalizers(&seen).iter().any(|name| belayers.contains(name)),
        "{pod} has {:?}",
        seen.finalizers()
    );
    Ok(())
}

async fn held(cluster: &Cluster, pod: &str) -> Result<()> {
    let seen = cluster.pods().get(pod).await?;
    ensure!(
        finalizers(&seen).contains(&HOLD),
        "{pod} has {:?}",
        seen.finalizers()
    );
    Ok(())
}

async fn switch(cluster: &Cluster, name: &str, value: &str) -> Result<()> {
    let gate = kinds::gates(cluster.client(), "belayer-system")
        .get("belayer-gate")
        .await?;
    let data = &gate.data["data"];
    ensure!(data[name] == value, "{data}");
    Ok(())
}

/// Its log has a warning about a key of its file.
fn warned(belayer: &Belayer, key: &str) -> Result<()> {
    let log = belayer.log()?;
    let mut warnings = log.lines().filter(|line| line.contains(" WARN "));
    ensure!(
        warnings.any(|line| line.contains(key)),
        "no warning names {key}"
    );
    Ok(())
}
