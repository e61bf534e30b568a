//! The configuration changes while Belayer runs.

use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::process::Signal;

use crate::harness::{
    Belayer, BelayerOptions, Cluster, SOON, Scenario, eventually, pod, throughout,
};

const FIRST: &str = "\
podFinalizer:
  profiles:
  - name: first
    selector: {matchLabels: {tier: first}}
    consumed: {labels: {done: 'true'}}
";

const BOTH: &str = "\
podFinalizer:
  profiles:
  - name: first
    selector: {matchLabels: {tier: first}}
    consumed: {labels: {done: 'true'}}
  - name: second
    selector: {matchLabels: {tier: second}}
    consumed: {labels: {done: 'true'}}
";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![Scenario::alone(
        "reload-takes-effect",
        "a changed selector adds holds to newly selected pods; an invalid file changes nothing",
        takes_effect,
    )]
}

async fn reloads(belayer: &Belayer, result: &str, at_least: f64) -> Result<()> {
    eventually(
        &format!("the result of a reload is {result}"),
        SOON,
        async || {
            let count = belayer
                .metric("belayer_config_reloads_total", &[("status", result)])
                .await?;
            ensure!(count >= at_least, "{count} reloads were {result}");
            Ok(())
        },
    )
    .await
}

async fn takes_effect(cluster: Cluster) -> Result<()> {
    let options = BelayerOptions::default().config(FIRST);
    let belayer = cluster.start_belayer_with(&options).await?;
    cluster.create(&pod("one").label("tier", "first")).await?;
    cluster.create(&pod("two").label("tier", "second")).await?;
    cluster.is_held("one").await?;
    // The other pod has been processed by then.
    cluster.is_not_held("two").await?;

    // The changed file is enough: no signal is sent.
    belayer.reconfigure(BOTH)?;
    cluster.is_held("two").await?;
    reloads(&belayer, "applied", 1.0).await?;
    ensure!(belayer.probe("/readyz").await? == "ok\n", "not ready");
    ensure!(belayer.probe("/livez").await? == "ok\n", "not alive");

    belayer.reconfigure("podFinalizer:\n  profile: []\n")?;
    belayer.signal(Signal::HUP)?;
    reloads(&belayer, "refused", 1.0).await?;
    let good = belayer
        .metric("belayer_config_last_reload_successful", &[])
        .await?;
    ensure!(good < 0.5, "the invalid file counts as valid");
    let log = belayer.log()?;
    ensure!(
        log.contains("did you mean `profiles`?"),
        "the log does not report the error"
    );
    cluster
        .create(&pod("three").label("tier", "second"))
        .await?;
    cluster.is_held("three").await?;

    belayer.reconfigure(&format!("{BOTH}leaderElection: {{retryPeriod: 1s}}\n"))?;
    belayer.signal(Signal::HUP)?;
    reloads(&belayer, "unchanged", 1.0).await?;
    ensure!(
        belayer.log()?.contains("leaderElection.retryPeriod"),
        "the log does not name the key that needs a restart"
    );
    throughout("the holds stay", Duration::from_secs(2), async || {
        let held = cluster.held_count().await?;
        ensure!(held == 3, "{held} have the hold");
        Ok(())
    })
    .await?;
    let done = serde_json::json!({ "metadata": { "labels": { "done": "true" } } });
    for name in ["one", "two", "three"] {
        cluster.merge(name, done.clone()).await?;
        cluster.is_not_held(name).await?;
    }
    belayer.stop().await
}
