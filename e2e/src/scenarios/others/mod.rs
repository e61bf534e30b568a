//! Controllers of other projects run unmodified.

mod controller_runtime;
mod simkube;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::control_plane::Process;
use crate::harness::{Cluster, SOON, Scenario, eventually};
use crate::providers::Capability::{ClientGo, GarbageCollector, Kubectl, Node, Python, Root};
use crate::third_party::{ThirdParty, sample_manifests};

/// The first run installs the program.
const INSTALL: Duration = Duration::from_secs(900);

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "others-sample-controller",
            "client-go's sample controller, unmodified: a Deployment per Foo, status, Events, repair",
            sample_controller,
        )
        .needs([ClientGo, Kubectl])
        .within(INSTALL)
        // Compiling client-go takes minutes.
        .nightly(),
        Scenario::alone(
            "others-controller-runtime",
            "controller-runtime's example for built-in kinds: labels ReplicaSets, changes and refuses pods by webhooks",
            controller_runtime::builtins,
        )
        // In a separate network namespace, because it listens on all addresses.
        .needs([ClientGo, Kubectl, Root])
        .within(INSTALL)
        .nightly(),
        Scenario::alone(
            "others-chaos-pods",
            "controller-runtime's example for a custom resource: creates and deletes a pod again and again",
            controller_runtime::chaos_pods,
        )
        .needs([ClientGo, Kubectl, Root])
        .within(INSTALL)
        .nightly(),
        Scenario::alone(
            "others-simkube",
            "a published operator with kube-rs, unmodified: a Job, a Lease and a webhook per Simulation, and clean-up",
            simkube::run,
        )
        .needs([Kubectl, GarbageCollector])
        .within(INSTALL)
        // Compiling it takes minutes.
        .nightly(),
        Scenario::alone(
            "others-kopf",
            "a Python operator with kopf and kubernetes_asyncio: finalizer, status, a ConfigMap per claim",
            kopf,
        )
        .needs([Python, Kubectl])
        .within(INSTALL),
        Scenario::alone(
            "others-devservers",
            "a published Python operator, unmodified: a namespace and roles for each user, update, clean-up",
            dev_servers,
        )
        .needs([Python, Kubectl])
        .within(INSTALL),
        Scenario::alone(
            "others-javascript",
            "an informer of JavaScript's client labels every ConfigMap",
            javascript,
        )
        .needs([Node, Kubectl])
        .within(INSTALL),
    ]
}

async fn installed(program: ThirdParty) -> Result<std::path::PathBuf> {
    tokio::task::spawn_blocking(move || program.installed()).await?
}

fn start(cluster: &Cluster, program: &Path, arguments: &[&str]) -> Result<Process> {
    let kubeconfig = cluster.backend().admin_kubeconfig().display().to_string();
    let set = format!("KUBECONFIG={kubeconfig}");
    let program = program.display().to_string();
    let mut all = vec![set.as_str(), "PYTHONUNBUFFERED=1", program.as_str()];
    all.extend(arguments);
    let log = cluster.dir().join("controller.log");
    Process::start("controller", Path::new("/usr/bin/env"), all, &log)
}

/// Waits until kubectl prints this.
async fn prints<const N: usize>(
    cluster: &Cluster,
    arguments: [&str; N],
    wanted: &str,
) -> Result<()> {
    let kubectl = cluster.kubectl();
    let what = format!("kubectl {} prints {wanted}", arguments.join(" "));
    eventually(&what, SOON, async || {
        let printed = kubectl.run(arguments).await?;
        ensure!(printed.trim() == wanted, "it printed {printed}");
        Ok(())
    })
    .await
}

async fn sample_controller(cluster: Cluster) -> Result<()> {
    let folder = installed(ThirdParty::SampleController).await?;
    let manifests = sample_manifests(&folder)?;
    let kubectl = cluster.kubectl();
    let file = |name: &str| manifests.join(name).display().to_string();
    let crd = file("crd-status-subresource.yaml");
    kubectl.run(["apply", "-f", &crd]).await?;
    let crd_name = "crd/foos.samplecontroller.k8s.io";
    kubectl
        .run(["wait", "--for=condition=Established", crd_name])
        .await?;
    let kubeconfig = cluster.backend().admin_kubeconfig().display().to_string();
    let arguments = ["-kubeconfig", &kubeconfig];
    let mut controller = start(&cluster, &folder.join("controller"), &arguments)?;
    kubectl
        .run(["apply", "-f", &file("example-foo.yaml")])
        .await?;
    let owner = "jsonpath={.metadata.ownerReferences[0].kind}";
    eventually("the deployment is there", SOON, async || {
        let deployment = ["get", "deploy", "example-foo", "-o", owner];
        let printed = kubectl.run(deployment).await?;
        ensure!(printed == "Foo", "its owner is {printed}");
        Ok(())
    })
    .await?;
    let status = "jsonpath={.status.availableReplicas}";
    prints(&cluster, ["get", "foo", "example-foo", "-o", status], "0").await?;
    let reasons = "jsonpath={.items[0].reason}";
    prints(&cluster, ["get", "events", "-o", reasons], "Synced").await?;
    // It repairs what others change.
    kubectl
        .run(["scale", "deploy", "example-foo", "--replicas=3"])
        .await?;
    let replicas = "jsonpath={.spec.replicas}";
    prints(
        &cluster,
        ["get", "deploy", "example-foo", "-o", replicas],
        "1",
    )
    .await?;
    controller.check_running()?;
    controller.kill().await?;
    kubectl.run(["delete", crd_name]).await?;
    Ok(())
}

async fn kopf(cluster: Cluster) -> Result<()> {
    let folder = installed(ThirdParty::Kopf).await?;
    let kubectl = cluster.kubectl();
    let file = |name: &str| folder.join(name).display().to_string();
    kubectl.run(["apply", "-f", &file("crd.yaml")]).await?;
    let crd_name = "crd/ephemeralvolumeclaims.foreign.e2e.belayer.dev";
    kubectl
        .run(["wait", "--for=condition=Established", crd_name])
        .await?;
    let operator = file("operator.py");
    let arguments = [
        "run",
        "--standalone",
        "--namespace",
        cluster.namespace(),
        &operator,
    ];
    let mut controller = start(&cluster, &folder.join("venv/bin/kopf"), &arguments)?;
    kubectl.run(["apply", "-f", &file("claim.yaml")]).await?;
    let size = "jsonpath={.data.size}";
    prints(&cluster, ["get", "cm", "my-claim", "-o", size], "1G").await?;
    let status = "jsonpath={.status.create.configmap}";
    prints(
        &cluster,
        ["get", "evc", "my-claim", "-o", status],
        "my-claim",
    )
    .await?;
    let finalizers = "jsonpath={.metadata.finalizers[0]}";
    let marker = "kopf.zalando.org/KopfFinalizerMarker";
    prints(
        &cluster,
        ["get", "evc", "my-claim", "-o", finalizers],
        marker,
    )
    .await?;
    let larger = r#"{"spec": {"size": "2G"}}"#;
    kubectl
        .run(["patch", "evc", "my-claim", "--type=merge", "-p", larger])
        .await?;
    prints(&cluster, ["get", "cm", "my-claim", "-o", size], "2G").await?;
    // kubectl waits until the operator has removed its finalizer.
    kubectl.run(["delete", "evc", "my-claim"]).await?;
    controller.check_running()?;
    controller.kill().await?;
    kubectl.run(["delete", crd_name]).await?;
    Ok(())
}

async fn dev_servers(cluster: Cluster) -> Result<()> {
    let folder = installed(ThirdParty::DevServers).await?;
    let kubectl = cluster.kubectl();
    let file = |name: &str| folder.join(name).display().to_string();
    let (crds, objects) = (file("crds.yaml"), file("objects.yaml"));
    kubectl.run(["apply", "-f", &crds]).await?;
    kubectl
        .run(["wait", "--for=condition=Established", "-f", &crds])
        .await?;
    let arguments = ["run", "--standalone", "-A", "-m", "devserver.operator"];
    let mut controller = start(&cluster, &folder.join("venv/bin/kopf"), &arguments)?;
    kubectl.run(["apply", "-f", &objects]).await?;

    let user = "devserveruser/e2e-jane";
    let phase = "jsonpath={.status.phase}";
    prints(&cluster, ["get", user, "-o", phase], "Ready").await?;
    let user_of = "jsonpath={.metadata.labels.devserver\\.io/user}";
    prints(
        &cluster,
        ["get", "ns", "dev-e2e-jane", "-o", user_of],
        "e2e-jane",
    )
    .await?;
    let can = [
        "auth",
        "can-i",
        "create",
        "devservers.devserver.io",
        "--as=e2e-jane",
        "--namespace=dev-e2e-jane",
    ];
    prints(&cluster, can, "yes").await?;

    // An update, which the operator answers with a patch of the role.
    let note = r#"{"spec": {"note": "x"}}"#;
    kubectl
        .run([
            "delete",
            "rolebinding",
            "devserver-user",
            "-n",
            "dev-e2e-jane",
        ])
        .await?;
    kubectl
        .run(["patch", user, "--type=merge", "-p", note])
        .await?;
    prints(&cluster, can, "yes").await?;
    // kubectl waits until the operator has removed its finalizer.
    kubectl.run(["delete", "-f", &objects]).await?;
    let left = [
        "get",
        "role,rolebinding",
        "-n",
        "dev-e2e-jane",
        "-o",
        "name",
    ];
    prints(&cluster, left, "").await?;
    controller.check_running()?;
    controller.kill().await?;
    kubectl.run(["delete", "ns", "dev-e2e-jane"]).await?;
    kubectl.run(["delete", "-f", &crds]).await?;
    Ok(())
}

async fn javascript(cluster: Cluster) -> Result<()> {
    let folder = installed(ThirdParty::JavaScript).await?;
    let kubectl = cluster.kubectl();
    kubectl.run(["create", "configmap", "first"]).await?;
    let program = folder.join("controller.mjs").display().to_string();
    let arguments = [program.as_str(), cluster.namespace()];
    let mut controller = start(&cluster, Path::new("node"), &arguments)?;
    let label = "jsonpath={.metadata.labels.seen}";
    prints(&cluster, ["get", "cm", "first", "-o", label], "yes").await?;
    // By the watch.
    kubectl.run(["create", "configmap", "second"]).await?;
    prints(&cluster, ["get", "cm", "second", "-o", label], "yes").await?;
    controller.check_running().context("the controller")?;
    controller.kill().await
}
