//! kubectl commands behave the same on every provider.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::harness::{Cluster, HOLD, Kubectl as Tool, SOON, Scenario, pod};
use crate::providers::Capability::Kubectl;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::shared(
            "kubectl-everyday-commands",
            "get, describe, patch, delete, get -w",
            everyday,
        )
        .needs([Kubectl]),
        Scenario::shared(
            "kubectl-makes-and-mends-objects",
            "api-resources, apply, create, label, annotate, patch of three types, wait, delete --wait",
            objects,
        )
        .needs([Kubectl]),
        Scenario::shared(
            "kubectl-completes-the-plugin",
            "kubectl completes the commands of kubectl belayer, and the names of objects",
            completed,
        )
        .needs([Kubectl]),
    ]
}

/// kubectl 1.26 and later run `kubectl_complete-NAME` for a plugin.
async fn completed(cluster: Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("build-1").of(&workflow)).await?;
    let folder = cluster.dir().join("plugin");
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../deploy/krew/kubectl_complete-belayer"
    );
    let belayer = std::path::absolute(&cluster.setting().belayer)?;
    let lines = format!(
        "set -e; mkdir -p {folder}; ln -sf {belayer} {folder}/kubectl-belayer; cp {script} {folder}
        export PATH={folder}:$PATH
        kubectl __complete belayer st
        kubectl __complete belayer explain -n {namespace} pod/build",
        folder = folder.display(),
        belayer = belayer.display(),
        namespace = cluster.namespace(),
    );
    let printed = cluster.sh(&lines).await?;
    for word in ["status\t", "stuck\t", "pod/build-1\n", ":4\n"] {
        ensure!(printed.contains(word), "{word:?} is missing: {printed}");
    }
    Ok(())
}

async fn everyday(cluster: Cluster) -> Result<()> {
    let kubectl = cluster.kubectl();
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("a").of(&workflow)).await?;
    cluster.is_held("a").await?;
    // With a result that has not been consumed.
    cluster.finish("a", "Succeeded").await?;

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
    // An ended pod is never printed as Terminating.
    next_row(&mut rows, "a ").await?;
    cluster.stays_held("a").await?;

    let patch = r#"{"metadata":{"labels":{"workflows.argoproj.io/completed":"true"}}}"#;
    let patched = kubectl
        .run(["patch", "pod", "a", "--type=merge", "-p", patch])
        .await?;
    ensure!(patched.contains("patched"), "patch printed {patched}");
    cluster.is_removed("a").await?;
    let gone = kubectl
        .run(["get", "pod", "a"])
        .await
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    ensure!(
        gone.contains("NotFound"),
        "get of a removed pod printed {gone}"
    );
    watch.kill().await?;
    Ok(())
}

/// Runs a command whose output must contain some text.
async fn says<const N: usize>(kubectl: &Tool, arguments: [&str; N], wanted: &str) -> Result<()> {
    let printed = kubectl.run(arguments).await?;
    ensure!(
        printed.contains(wanted),
        "kubectl {} did not print {wanted:?} but\n{printed}",
        arguments.join(" ")
    );
    Ok(())
}

fn manifest(value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: app, labels: {{team: a}}}}\n\
         data: {{value: \"{value}\", old: \"{value}\"}}\n---\n\
         apiVersion: v1\nkind: Secret\nmetadata: {{name: app}}\nstringData: {{k: v}}\n"
    )
}

async fn objects(cluster: Cluster) -> Result<()> {
    let kubectl = cluster.kubectl();
    let file = cluster.dir().join("app.yaml");
    let path = file.to_str().context("a path in UTF-8")?;
    let write = |text: String| std::fs::write(&file, text);

    says(&kubectl, ["api-resources"], "configmaps").await?;
    says(
        &kubectl,
        ["api-resources", "--api-group=argoproj.io"],
        "Workflow",
    )
    .await?;
    says(&kubectl, ["explain", "pods"], "KIND:       Pod").await?;

    made(&cluster, &kubectl).await?;

    // Client-side apply, with default validation.
    write(manifest("1"))?;
    says(&kubectl, ["apply", "-f", path], "configmap/app created").await?;
    says(&kubectl, ["apply", "-f", path], "configmap/app unchanged").await?;
    write(manifest("2"))?;
    says(&kubectl, ["apply", "-f", path], "configmap/app configured").await?;
    let data = ["get", "cm", "app", "-o", "jsonpath={.data.value}"];
    says(&kubectl, data, "2").await?;
    // A field removed from the file is removed from the object.
    write(manifest("2").replace(", old: \"2\"", ""))?;
    says(&kubectl, ["apply", "-f", path], "configmap/app configured").await?;
    let left = kubectl
        .run(["get", "cm", "app", "-o", "jsonpath={.data}"])
        .await?;
    ensure!(left == "{\"value\":\"2\"}", "the data is {left}");

    says(
        &kubectl,
        ["get", "cm,secrets", "-o", "wide"],
        "configmap/app",
    )
    .await?;
    says(
        &kubectl,
        ["get", "cm", "-l", "team=a", "-o", "name"],
        "configmap/app",
    )
    .await?;
    says(&kubectl, ["describe", "cm", "app"], "Labels:       team=a").await?;
    says(
        &kubectl,
        ["label", "cm", "app", "x=y"],
        "configmap/app labeled",
    )
    .await?;
    says(
        &kubectl,
        ["label", "cm", "app", "x-"],
        "configmap/app unlabeled",
    )
    .await?;
    says(
        &kubectl,
        ["annotate", "cm", "app", "n=1"],
        "configmap/app annotated",
    )
    .await?;
    for (kind, patch) in [
        ("--type=merge", r#"{"data":{"merge":"1"}}"#),
        (
            "--type=json",
            r#"[{"op":"add","path":"/data/json","value":"1"}]"#,
        ),
        ("--type=strategic", r#"{"data":{"strategic":"1"}}"#),
    ] {
        let patched = "configmap/app patched";
        says(&kubectl, ["patch", "cm", "app", kind, "-p", patch], patched).await?;
    }
    let strategic = "--for=jsonpath={.data.strategic}=1";
    says(
        &kubectl,
        ["wait", strategic, "cm/app", "--timeout=120s"],
        "condition met",
    )
    .await?;
    says(&kubectl, ["replace", "-f", path], "configmap/app replaced").await?;

    says(
        &kubectl,
        ["delete", "-f", path, "--wait"],
        "\"app\" deleted",
    )
    .await?;
    let gone = ["wait", "--for=delete", "cm/app", "--timeout=120s"];
    kubectl.run(gone).await?;
    let found = kubectl
        .run(["get", "cm", "app", "--ignore-not-found"])
        .await?;
    ensure!(found.is_empty(), "it is still there:\n{found}");
    Ok(())
}

/// The generators of `kubectl create` send protobuf.
async fn made(cluster: &Cluster, kubectl: &Tool) -> Result<()> {
    let namespace = format!("{}-made", cluster.namespace());
    let created = format!("namespace/{namespace} created");
    says(kubectl, ["create", "namespace", &namespace], &created).await?;
    let phase = "--for=jsonpath={.status.phase}=Active";
    let active = ["wait", phase, "ns", &namespace, "--timeout=120s"];
    says(kubectl, active, "condition met").await?;

    let literal = ["--from-literal=k=v", "--from-literal=empty="];
    let map = ["create", "configmap", "made", literal[0], literal[1]];
    says(kubectl, map, "configmap/made created").await?;
    let data = ["get", "cm", "made", "-o", "jsonpath={.data}"];
    says(kubectl, data, r#"{"empty":"","k":"v"}"#).await?;
    let secret = ["create", "secret", "generic", "made", "--from-literal=k=v"];
    says(kubectl, secret, "secret/made created").await?;
    let data = ["get", "secret", "made", "-o", "jsonpath={.type} {.data}"];
    says(kubectl, data, r#"Opaque {"k":"dg=="}"#).await?;
    let account = ["create", "serviceaccount", "made"];
    says(kubectl, account, "serviceaccount/made created").await?;

    let all = ["delete", "cm/made", "secret/made", "sa/made"];
    says(kubectl, all, "deleted").await?;
    let gone = ["delete", "namespace", &namespace, "--timeout=120s"];
    says(kubectl, gone, "deleted").await
}

type Rows = tokio::io::Lines<BufReader<tokio::process::ChildStdout>>;

async fn next_row(rows: &mut Rows, wanted: &str) -> Result<()> {
    let search = async {
        while let Some(row) = rows.next_line().await? {
            if row.contains(wanted) {
                return Ok(());
            }
        }
        anyhow::bail!("get -w exited before it printed {wanted:?}")
    };
    let found = tokio::time::timeout(SOON, search).await;
    found.with_context(|| format!("get -w did not print {wanted:?}"))?
}
