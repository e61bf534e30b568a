//! controller-runtime's examples. `builtins` is a controller of ReplicaSets with two webhooks for pods, `crd` one of a
//! custom resource.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{installed, prints};
use crate::control_plane::{Network, Process};
use crate::harness::{Cluster, SOON, eventually};
use crate::providers::apply;
use crate::third_party::ThirdParty;

/// Where the example's webhook server listens, on every address.
const WEBHOOKS: u16 = 9443;
/// Where it searches its certificate, under the folder for temporary files.
const CERTIFICATES: &str = "k8s-webhook-server/serving-certs";
const ANNOTATION: &str = "example-mutating-admission-webhook";

pub(super) async fn builtins(cluster: Cluster) -> Result<()> {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    let certificates = cluster.dir().join(CERTIFICATES);
    fs::create_dir_all(&certificates)?;
    fs::write(certificates.join("tls.crt"), made.cert.pem())?;
    fs::write(
        certificates.join("tls.key"),
        made.signing_key.serialize_pem(),
    )?;
    let (network, mut controller) = start(&cluster, "builtins").await?;
    let hooks = network.relay((Ipv4Addr::LOCALHOST, WEBHOOKS).into())?;

    labels_replica_sets(&cluster).await?;
    let names = ["mutate", "validate"].map(|verb| format!("{verb}-{}", cluster.namespace()));
    let bundle = STANDARD.encode(made.cert.pem());
    let configurations = configurations(&cluster, hooks, &bundle, &names);
    for configuration in configurations {
        apply(cluster.client(), &configuration.to_string()).await?;
    }
    let judged = judges_pods(&cluster).await;
    let [mutate, validate] = &names;
    let kubectl = cluster.kubectl();
    let kinds = [
        "mutatingwebhookconfiguration",
        "validatingwebhookconfiguration",
    ];
    for (kind, name) in kinds.into_iter().zip([mutate, validate]) {
        kubectl.run(["delete", kind, name]).await?;
    }
    judged?;
    controller.check_running()?;
    controller.kill().await
}

/// Starts an example in a separate network namespace, because it listens on all addresses.
async fn start(cluster: &Cluster, example: &str) -> Result<(Network, Process)> {
    let folder = installed(ThirdParty::ControllerRuntime).await?;
    let network = Network::create(cluster.dir(), "sleep infinity", 0).await?;
    network.let_out(cluster.server_address()?)?;
    let kubeconfig = cluster.backend().admin_kubeconfig().display();
    let arguments = [
        format!("KUBECONFIG={kubeconfig}"),
        format!("TMPDIR={}", cluster.dir().display()),
        folder.join(example).display().to_string(),
    ];
    let log = cluster.dir().join("controller.log");
    let env = Path::new("/usr/bin/env");
    let controller = network.start("controller", env, &arguments, &log)?;
    Ok((network, controller))
}

async fn labels_replica_sets(cluster: &Cluster) -> Result<()> {
    let labels = json!({ "app": "web" });
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": { "name": "web", "namespace": cluster.namespace() },
        "spec": {
            "replicas": 0,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "web", "image": "example.invalid/web" }] },
            },
        },
    });
    apply(cluster.client(), &set.to_string()).await?;
    let label = "jsonpath={.metadata.labels.hello}";
    prints(cluster, ["get", "rs", "web", "-o", label], "world").await?;
    // It repairs what others change.
    cluster
        .kubectl()
        .run(["label", "rs", "web", "hello-"])
        .await?;
    prints(cluster, ["get", "rs", "web", "-o", label], "world").await
}

fn configurations(cluster: &Cluster, port: u16, bundle: &str, names: &[String; 2]) -> [Value; 2] {
    let [mutate, validate] = names;
    let hook = |path: &str, operations: &[&str]| {
        json!({
            "name": "pods.example.invalid",
            "clientConfig": {
                "url": format!("https://127.0.0.1:{port}/{path}--v1-pod"),
                "caBundle": bundle,
            },
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": operations,
            }],
            "namespaceSelector": {
                "matchLabels": { "kubernetes.io/metadata.name": cluster.namespace() },
            },
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        })
    };
    let configuration = |kind: &str, name: &str, hook: Value| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": { "name": name },
            "webhooks": [hook],
        })
    };
    [
        configuration(
            "MutatingWebhookConfiguration",
            mutate,
            hook("mutate", &["CREATE"]),
        ),
        configuration(
            "ValidatingWebhookConfiguration",
            validate,
            hook("validate", &["CREATE", "UPDATE"]),
        ),
    ]
}

async fn judges_pods(cluster: &Cluster) -> Result<()> {
    let kubectl = cluster.kubectl();
    // A server reads new configurations after a moment: a pod that came before is not annotated.
    let annotation = format!("jsonpath={{.metadata.annotations.{ANNOTATION}}}");
    eventually("a new pod is annotated", SOON, async || {
        kubectl
            .run(["delete", "pod", "judged", "--ignore-not-found", "--now"])
            .await?;
        kubectl
            .run(["run", "judged", "--image=example.invalid/judged"])
            .await?;
        let printed = kubectl
            .run(["get", "pod", "judged", "-o", &annotation])
            .await?;
        ensure!(printed == "foo", "the annotation is {printed:?}");
        Ok(())
    })
    .await?;
    let other = format!("{ANNOTATION}=bar");
    eventually("a wrong annotation is denied", SOON, async || {
        let tried = kubectl
            .run(["annotate", "pod", "judged", "--overwrite", &other])
            .await;
        let denial = tried.err().context("it was accepted")?.to_string();
        let wanted = format!(
            "admission webhook \"pods.example.invalid\" denied the request: annotation {ANNOTATION} did not have value \"foo\""
        );
        ensure!(denial.contains(&wanted), "{denial}");
        Ok(())
    })
    .await
}

/// A pod per ChaosPod, which the example deletes and creates again after at most 20 s.
pub(super) async fn chaos_pods(cluster: Cluster) -> Result<()> {
    let folder = installed(ThirdParty::ControllerRuntime).await?;
    let kubectl = cluster.kubectl();
    let crd = folder.join("chaospods.yaml").display().to_string();
    kubectl.run(["apply", "-f", &crd]).await?;
    kubectl
        .run(["wait", "--for=condition=Established", "-f", &crd])
        .await?;
    let (_network, mut controller) = start(&cluster, "crd").await?;
    let chaos = json!({
        "apiVersion": "chaosapps.metamagical.io/v1", "kind": "ChaosPod",
        "metadata": { "name": "chaos", "namespace": cluster.namespace() },
        "spec": { "template": { "spec": {
            "containers": [{ "name": "main", "image": "example.invalid/main" }],
            // No kubelet starts or stops it.
            "nodeSelector": { "belayer.dev/no-node": "" },
        }}},
    });
    apply(cluster.client(), &chaos.to_string()).await?;
    let owner = "jsonpath={.metadata.ownerReferences[0].kind}";
    prints(&cluster, ["get", "pod", "chaos", "-o", owner], "ChaosPod").await?;
    let uid = ["get", "pod", "chaos", "-o", "jsonpath={.metadata.uid}"];
    let first = kubectl.run(uid).await?;
    eventually("the pod is another", SOON, async || {
        let now = kubectl.run(uid).await?;
        ensure!(now != first, "it is still the first");
        Ok(())
    })
    .await?;
    controller.check_running()?;
    controller.kill().await?;
    kubectl.run(["delete", "chaospod", "chaos"]).await?;
    kubectl.run(["delete", "-f", &crd]).await?;
    Ok(())
}
