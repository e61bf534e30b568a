//! SimKube's controller, a published operator with kube-rs: a Simulation becomes a Job, and its helpers go when that ends.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{installed, prints, start};
use crate::harness::{Cluster, SOON, eventually};
use crate::providers::apply;
use crate::third_party::ThirdParty;

/// The cluster-wide names of this run.
struct Names {
    simulation: String,
    driver_namespace: String,
    root: String,
    webhook: String,
    job: String,
    service: String,
}

impl Names {
    fn new(cluster: &Cluster) -> Self {
        let simulation = cluster.namespace().to_owned();
        Self {
            driver_namespace: format!("{simulation}-driver"),
            root: format!("sk-{simulation}-metaroot"),
            webhook: format!("sk-{simulation}-mutatepods"),
            job: format!("sk-{simulation}-driver"),
            service: format!("sk-{simulation}-driver-svc"),
            simulation,
        }
    }
}

pub(super) async fn run(cluster: Cluster) -> Result<()> {
    let folder = installed(ThirdParty::SimKube).await?;
    let kubectl = cluster.kubectl();
    let crds = folder.join("crds.yaml").display().to_string();
    kubectl.run(["apply", "-f", &crds]).await?;
    kubectl
        .run(["wait", "--for=condition=Established", "-f", &crds])
        .await?;
    let namespace = format!("CTRL_NAMESPACE={}", cluster.namespace());
    let program = folder.join("bin/sk-ctrl").display().to_string();
    let arguments = [&namespace, "POD_SVC_ACCOUNT=driver", &program];
    let mut controller = start(&cluster, Path::new("env"), &arguments)?;

    let names = Names::new(&cluster);
    starts(&cluster, &names).await?;
    ends(&cluster, &names).await?;
    controller.check_running()?;
    controller.kill().await?;
    kubectl
        .run(["delete", "simulation", &names.simulation])
        .await?;
    eventually("the driver's namespace is collected", SOON, async || {
        is_gone(&cluster, "namespace", &names.driver_namespace).await
    })
    .await?;
    kubectl.run(["delete", "-f", &crds]).await?;
    Ok(())
}

async fn starts(cluster: &Cluster, names: &Names) -> Result<()> {
    let kubectl = cluster.kubectl();
    let driver = names.driver_namespace.as_str();
    let simulation = json!({
        "apiVersion": "simkube.io/v1", "kind": "Simulation",
        "metadata": { "name": names.simulation },
        "spec": {
            "driver": {
                "image": "example.invalid/driver", "namespace": driver, "port": 8888,
                "tracePath": "https://example.invalid/trace",
            },
            // Without remote storage no Prometheus is needed, only its namespace.
            "lifecycleParams": {},
            "repetitions": 1,
        },
    });
    // The operator insists on it.
    let monitoring = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "monitoring" },
    });
    apply(cluster.client(), &monitoring.to_string()).await?;
    apply(cluster.client(), &simulation.to_string()).await?;

    let simulation = format!("simulation/{}", names.simulation);
    let state = "jsonpath={.status.state}";
    prints(cluster, ["get", &simulation, "-o", state], "Initializing").await?;
    let holder = "jsonpath={.spec.holderIdentity}";
    let lease = ["get", "lease", "sk-lease", "-o", holder];
    prints(cluster, lease, &names.simulation).await?;
    let owner = "jsonpath={.metadata.ownerReferences[0].name}";
    let service = ["get", "service", "-n", driver, &names.service, "-o", owner];
    prints(cluster, service, &names.root).await?;
    let secret = "jsonpath={.spec.secretName}";
    let certificate = [
        "get",
        "certificates.cert-manager.io",
        "-n",
        driver,
        "sk-driver-cert",
        "-o",
        secret,
    ];
    prints(cluster, certificate, "sk-driver-cert").await?;

    // What cert-manager would do.
    let signed = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": "sk-driver-cert", "namespace": driver,
            "labels": { "simkube.io/simulation": names.simulation },
        },
    });
    apply(cluster.client(), &signed.to_string()).await?;
    eventually("the webhook's authority can be set", SOON, async || {
        let authority = json!([
            { "op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": certificate_authority()? },
        ]);
        kubectl
            .run([
                "patch",
                "mutatingwebhookconfiguration",
                &names.webhook,
                "--type=json",
                "-p",
                &authority.to_string(),
            ])
            .await
    })
    .await?;
    let job = ["get", "job", "-n", driver, &names.job, "-o", owner];
    prints(cluster, job, &names.simulation).await?;
    prints(cluster, ["get", &simulation, "-o", state], "Running").await
}

fn certificate_authority() -> Result<String> {
    use base64::Engine as _;
    let made = rcgen::generate_simple_self_signed(["example.invalid".to_owned()])?;
    Ok(base64::engine::general_purpose::STANDARD.encode(made.cert.pem()))
}

async fn ends(cluster: &Cluster, names: &Names) -> Result<()> {
    let kubectl = cluster.kubectl();
    let driver = names.driver_namespace.as_str();
    let simulation = format!("simulation/{}", names.simulation);
    let get = ["get", "job", "-n", driver, &names.job, "-o", "json"];
    let job: Value = serde_json::from_str(&kubectl.run(get).await?).context("the Job")?;
    let now = job["metadata"]["creationTimestamp"].clone();
    // What the Job's controller would do; a server checks that it fits together.
    let condition = |kind: &str| json!({ "type": kind, "status": "True", "lastProbeTime": now, "lastTransitionTime": now });
    let status = json!({ "status": {
        "startTime": now, "completionTime": now, "succeeded": 1, "active": 0, "ready": 0, "terminating": 0,
        "uncountedTerminatedPods": {},
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
    }});
    kubectl
        .run([
            "patch",
            "job",
            "-n",
            driver,
            &names.job,
            "--subresource=status",
            "--type=merge",
            "-p",
            &status.to_string(),
        ])
        .await?;
    let state = "jsonpath={.status.state} {.status.completedRuns}";
    prints(cluster, ["get", &simulation, "-o", state], "Finished 1").await?;
    for (kind, name) in [
        ("simulationroot", &names.root),
        ("mutatingwebhookconfiguration", &names.webhook),
    ] {
        let what = format!("{kind} {name} is collected");
        eventually(&what, SOON, async || is_gone(cluster, kind, name).await).await?;
    }
    let left = [
        "get",
        "services,certificates.cert-manager.io",
        "-n",
        driver,
        "-o",
        "name",
    ];
    prints(cluster, left, "").await
}

async fn is_gone(cluster: &Cluster, kind: &str, name: &str) -> Result<()> {
    let get = ["get", kind, name, "--ignore-not-found", "-o", "name"];
    let printed = cluster.kubectl().run(get).await?;
    ensure!(printed.is_empty(), "{}", printed.trim());
    Ok(())
}
