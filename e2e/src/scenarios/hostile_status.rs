//! T3: a tenant whose workflows decompress to more than Belayer's memory limit.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::{Compress, Compression, FlushCompress, Status};
use futures::future::try_join_all;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use serde_json::json;

use crate::harness::{
    BelayerOptions, Cluster, NODE_ID, PodBuilder, SOON, Scenario, TenantPermissions, Workflow,
    eventually, largest_nodes, pod,
};
use crate::kinds;

/// Seen on a real node: nine of these made each replica run out of memory in a loop.
const WORKFLOWS: usize = 9;
/// The memory limit of the process, as in the chart.
const LIMIT: u64 = 512 << 20;
/// Maximum of its peak memory, in MiB.
pub(super) const PEAK: u64 = 300;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![Scenario::alone(
        "hostile-workflow-status",
        "nine workflows of 480,000 nodes each, and one decompression bomb, in a process of 512 MiB (T3)",
        statuses,
    )]
}

async fn statuses(cluster: Cluster) -> Result<()> {
    let options =
        BelayerOptions::default().config("podFinalizer:\n  backlogThreshold: 1\n  workers: 32\n");
    let belayer = cluster.start_belayer_with(&options).await?;
    belayer.limit_memory(LIMIT)?;
    let released = attack(&cluster, WORKFLOWS).await?;
    // The pod of the bomb would reach a limit of 1; it is not counted.
    let workflow = cluster.workflow("other").await?;
    for name in ["other-1", "other-2"] {
        cluster.create(&pod(name).of(&workflow)).await?;
        cluster.is_held(name).await?;
    }

    let peak = belayer.peak_memory()? >> 20;
    cluster.note(format!(
        "{peak} MiB resident at most; released after {:.1} s",
        released.as_secs_f64()
    ));
    ensure!(peak < PEAK, "peak memory was {peak} MiB");
    belayer.stop().await
}

/// A tenant creates this many workflows of the maximum size with a pod each, deletes the pods, and does the same with one
/// decompression bomb. Returns the time from the deletion of the pods until all of them are released.
pub(super) async fn attack(cluster: &Cluster, workflows: usize) -> Result<Duration> {
    let tenant = cluster.tenant(TenantPermissions::Edit).await?;
    let packed = largest_nodes()?;
    let names: Vec<String> = (0..workflows).map(|n| format!("w{n}")).collect();
    let each = names
        .iter()
        .map(|name| held(cluster, &tenant, name, &packed));
    try_join_all(each).await?;
    let pods = kinds::pods(&tenant, cluster.namespace());
    let now = DeleteParams::default();
    let since = Instant::now();
    try_join_all(names.iter().map(|name| pods.delete(name, &now))).await?;
    // Their nodes are fulfilled, so all their pods are released: a large status is valid.
    for name in &names {
        eventually(
            "the pods of large workflows are released",
            // A debug build reads megabytes of statuses: a minute on an overloaded machine.
            2 * SOON,
            async || {
                let left = cluster.pods().get_opt(name).await?;
                ensure!(left.is_none(), "{name} still exists");
                Ok(())
            },
        )
        .await?;
    }
    let released = since.elapsed();

    held(cluster, &tenant, "bomb", &bomb()?).await?;
    pods.delete("bomb", &now).await?;
    let events = kinds::events(cluster.client(), cluster.namespace());
    eventually("the decompression bomb is reported", SOON, async || {
        let all = events.list(&Default::default()).await?;
        let reported = all.iter().any(|event| {
            event.data["reason"] == "WorkflowStatusTooLarge"
                && event.data["involvedObject"]["name"] == "bomb"
        });
        ensure!(reported, "no Event about it");
        Ok(())
    })
    .await?;
    let left = cluster.pods().get("bomb").await?;
    ensure!(
        !crate::harness::finalizers(&left).is_empty(),
        "the pod of the bomb has lost its hold"
    );
    Ok(released)
}

/// A workflow with these compressed nodes, and a pod with a hold for its node `aaaa`, both the tenant's.
async fn held(cluster: &Cluster, tenant: &kube::Client, name: &str, packed: &str) -> Result<()> {
    let workflow: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow",
        "metadata": { "name": name }, "spec": { "entrypoint": "main" },
        "status": { "compressedNodes": packed },
    }))?;
    let created = kinds::workflows(tenant, cluster.namespace())
        .create(&PostParams::default(), &workflow)
        .await
        .with_context(|| format!("{name}, packed into {} bytes", packed.len()))?;
    let step: PodBuilder = pod(name)
        .of(&Workflow::of(&created)?)
        .annotation(NODE_ID, "aaaa");
    kinds::pods(tenant, cluster.namespace())
        .create(&PostParams::default(), &step.build()?)
        .await?;
    cluster.is_held(name).await?;
    // With a result, so that its deletion alone does not release it.
    cluster.finish(name, "Succeeded").await
}

/// Decompresses to 300 MiB of one repeated text, which is compressed once.
fn bomb() -> Result<String> {
    let mut all = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let mut packed = |text: &[u8], times: usize| -> Result<()> {
        let mut block = Vec::with_capacity(text.len() + 1024);
        let mut compress = Compress::new(Compression::best(), false);
        let status = compress.compress_vec(text, &mut block, FlushCompress::Full)?;
        ensure!(status == Status::Ok, "{status:?}");
        for _ in 0..times {
            all.extend_from_slice(&block);
        }
        Ok(())
    };
    packed(br#"{"aaaa":""#, 1)?;
    packed(&vec![b'x'; 1 << 20], 300)?;
    Ok(STANDARD.encode(all))
}
