//! What a person does with kubectl behaves the same everywhere.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::harness::{Cluster, HOLD, Scenario, pod};
use crate::providers::Capability::Kubectl;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::shared(
            "kubectl-everyday-commands",
            "get, describe, patch, delete, get -w",
            everyday,
        )
        .needs([Kubectl]),
    ]
}

async fn everyday(cluster: Cluster) -> Result<()> {
    let kubectl = cluster.kubectl();
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("a").of(&workflow)).await?;
    cluster.is_held("a").await?;

    let table = kubectl.run(["get", "pods"]).await?;
    ensure!(
        table.starts_with("NAME") && table.contains("\na "),
        "get pods printed\n{table}"
    );
    let everywhere = kubectl.run(["get", "pods", "-A"]).await?;
    ensure!(
        everywhere.contains(cluster.namespace()),
        "get pods -A printed\n{everywhere}"
    );
    let held = kubectl
        .run(["get", "pod", "a", "-o", "jsonpath={.metadata.finalizers}"])
        .await?;
    ensure!(held == format!("[\"{HOLD}\"]"), "the finalizers are {held}");
    let described = kubectl.run(["describe", "pod", "a"]).await?;
    ensure!(
        described.contains("Controlled By:  Workflow/w"),
        "describe printed\n{described}"
    );
    let workflows = kubectl.run(["get", "wf"]).await?;
    ensure!(workflows.contains("\nw "), "get wf printed\n{workflows}");

    let mut watch = kubectl
        .command()
        .args(["get", "pods", "-w"])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut rows = BufReader::new(watch.stdout.take().context("kubectl's output")?).lines();
    next_row(&mut rows, "a ").await?;

    let deleted = kubectl.run(["delete", "pod", "a", "--wait=false"]).await?;
    ensure!(deleted.contains("deleted"), "delete printed {deleted}");
    next_row(&mut rows, "Terminating").await?;
    cluster.stays_held("a").await?;

    let patch = r#"{"metadata":{"labels":{"workflows.argoproj.io/completed":"true"}}}"#;
    let patched = kubectl
        .run(["patch", "pod", "a", "--type=merge", "-p", patch])
        .await?;
    ensure!(patched.contains("patched"), "patch printed {patched}");
    cluster.is_gone("a").await?;
    let gone = kubectl
        .run(["get", "pod", "a"])
        .await
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    ensure!(
        gone.contains("NotFound"),
        "get of a pod that is gone said {gone}"
    );
    watch.kill().await?;
    Ok(())
}

type Rows = tokio::io::Lines<BufReader<tokio::process::ChildStdout>>;

async fn next_row(rows: &mut Rows, wanted: &str) -> Result<()> {
    let search = async {
        while let Some(row) = rows.next_line().await? {
            if row.contains(wanted) {
                return Ok(());
            }
        }
        anyhow::bail!("get -w ended before it showed {wanted:?}")
    };
    let found = tokio::time::timeout(Duration::from_secs(20), search).await;
    found.with_context(|| format!("get -w did not show {wanted:?}"))?
}
