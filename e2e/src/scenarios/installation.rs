//! An installation in a cluster whose pods do not run: what scenarios do in place of a kubelet, and how they remove it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::harness::{Belayer, BelayerOptions, Cluster, HOME, SOON, eventually};
use crate::providers::grant_permissions;

/// A kubeconfig of an account of the installation.
pub(super) async fn kubeconfig(
    cluster: &Cluster,
    namespace: &str,
    account: &str,
) -> Result<PathBuf> {
    let path = cluster.dir().join(format!("{account}.kubeconfig"));
    let script = format!(
        "set -e; token=$(kubectl -n {namespace} create token {account})
        cp \"$KUBECONFIG\" {path}; export KUBECONFIG={path}
        kubectl config set-credentials {account} --token=\"$token\"
        kubectl config set-context --current --user={account}",
        path = path.display()
    );
    cluster.sh(&script).await?;
    Ok(path)
}

/// The options with which a Deployment starts Belayer, with its account. Only the arguments that begin with one of
/// `kept`: not those that are for a container, such as addresses.
pub(super) async fn options(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    kept: &[&str],
) -> Result<BelayerOptions> {
    let options = BelayerOptions::default().kubeconfig(kubeconfig(cluster, namespace, name).await?);
    let options = options.argument(&format!("--own-namespace={namespace}"));
    let script = format!(
        "kubectl -n {namespace} get deployment {name} \
         -o jsonpath='{{range .spec.template.spec.containers[0].args[*]}}{{@}}{{\"\\n\"}}{{end}}'"
    );
    let arguments = cluster.sh(&script).await?;
    let arguments = arguments.lines();
    let arguments = arguments.filter(|argument| kept.iter().any(|kept| argument.starts_with(kept)));
    Ok(arguments.fold(options, BelayerOptions::argument))
}

/// Starts Belayer as a Deployment of the shipped manifests does.
pub(super) async fn deployed(
    cluster: &Cluster,
    name: &str,
    replica: &'static str,
) -> Result<Belayer> {
    deployed_with(cluster, name, replica, &[]).await
}

/// The same with further arguments.
pub(super) async fn deployed_with(
    cluster: &Cluster,
    name: &str,
    replica: &'static str,
    arguments: &[String],
) -> Result<Belayer> {
    let kept = ["--controllers", "--on-disable", "--leader-elect"];
    let options = options(cluster, HOME, name, &kept).await?;
    let options = arguments
        .iter()
        .fold(options, |options, argument| options.argument(argument));
    cluster.start_belayer_with(&options.replica(replica)).await
}

/// Exit code and output of a command of the program with `-o json`.
pub(super) async fn printed(
    cluster: &Cluster,
    kubeconfig: &Path,
    arguments: &[&str],
) -> Result<(i32, Value)> {
    let arguments = [arguments, &["-o", "json"]].concat();
    let output = cluster.belayer(kubeconfig, &arguments).await?;
    let read = output.json();
    Ok((
        output.code,
        read.with_context(|| format!("exit code {}", output.code))?,
    ))
}

/// The guard denies the deletion of Belayer's namespace: a dry run.
pub(super) async fn is_denied(cluster: &Cluster, what: &str) -> Result<()> {
    eventually(&format!("the guard denies {what}"), SOON, async || {
        let script = "kubectl delete namespace belayer-system --dry-run=server";
        let tried = cluster.sh(script).await;
        let why = tried.err().context("it is allowed")?.to_string();
        ensure!(why.contains("belayer-namespace-guard"), "{why}");
        Ok(())
    })
    .await
}

/// Removes what other scenarios on this cluster do not expect: they create the policies that they need.
pub(super) async fn remove(cluster: &Cluster) -> Result<()> {
    let script = String::from(
        "set -e
        for kind in mutatingadmissionpolicybindings mutatingadmissionpolicies \\
            validatingadmissionpolicybindings validatingadmissionpolicies; do
            kubectl delete $kind -l app.kubernetes.io/part-of=belayer
        done
        kubectl delete deployment -n belayer-system --ignore-not-found belayer belayer-pod-recreation
        kubectl delete daemonset -n belayer-node-agent --ignore-not-found belayer-node-agent
        if kubectl get crd gates.belayer.dev >&2; then
            kubectl delete gate -n belayer-system --ignore-not-found belayer-gate
        fi"
    );
    cluster.sh(&script).await?;
    grant_permissions(cluster.client()).await
}

/// The same after Belayer's namespace was deleted: its account is another one now.
pub(super) async fn remove_and_renew(cluster: &Cluster) -> Result<()> {
    remove(cluster).await?;
    let path = cluster.backend().belayer_kubeconfig();
    let script = format!(
        "set -e; token=$(kubectl -n belayer-system create token belayer --duration=24h)
        export KUBECONFIG={}; kubectl config set-credentials $(kubectl config view -o jsonpath='{{.users[0].name}}') --token=$token",
        path.display()
    );
    cluster.sh(&script).await.map(drop)
}
