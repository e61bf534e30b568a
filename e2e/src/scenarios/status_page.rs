//! The status page in a browser: `e2e/third-party/browser` looks at it. It has its own sandbox, because 10,000 objects
//! are created there within a second.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result};
use belayer_sandbox::{Actor, Gvr, Sandbox, WriteOptions};
use serde_json::json;
use tokio::process::Command;

use crate::control_plane::Process;
use crate::control_plane::ports::free_ports;
use crate::harness::belayer::get;
use crate::harness::{Cluster, HOLD, Load, SOON, Scenario, eventually};
use crate::output::Output;
use crate::providers::Capability::Browser;
use crate::third_party::{ThirdParty, chromium};

/// As many as the page lists.
const OBJECTS: usize = 10_000;
const NAMESPACES: usize = 20;
/// More than the page lists.
const RECREATIONS: usize = 201;
const RECORDS_CRD: &str = include_str!("../../../deploy/manifests/crd-pod-recreation.yaml");

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::shared(
            "status-page-browser",
            "the status page in Chromium: 10,000 rows, re-creations, filters, keyboard, axe-core, light and dark, no other host",
            browser,
        )
        .needs([Browser])
        .with_load(Load::Heavy)
        // With 10,000 objects for most of a minute.
        .nightly(),
    ]
}

async fn browser(cluster: Cluster) -> Result<()> {
    let folder = tokio::task::spawn_blocking(|| ThirdParty::Browser.installed()).await??;
    let sandbox = Sandbox::builder().build();
    let listener = sandbox.listen_anywhere().await?;
    held_pods(&sandbox)?;
    recreations(&sandbox)?;
    let kubeconfig = cluster.dir().join("held.kubeconfig");
    std::fs::write(&kubeconfig, listener.kubeconfig_for("viewer"))?;
    let (page, _serving) = serving(&cluster, &kubeconfig).await?;
    let (debug, _running) = running(&cluster, &kubeconfig).await?;
    let pictures = pictures()?;
    let mut script = Command::new("node");
    script
        .args(["page.mjs", chromium()?])
        .args([format!("http://{page}/"), format!("http://{debug}/")])
        .arg(listener.url())
        .arg(&pictures)
        .current_dir(&folder)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = script.output().await.context("start node")?;
    let output = Output::from(output).success()?;
    let passed = output
        .out
        .lines()
        .filter(|line| line.starts_with("ok "))
        .count();
    let pictures = pictures.display();
    cluster.note(format!("{passed} checks; pictures in {pictures}"));
    Ok(())
}

/// The folder of the pictures, which a person looks at.
fn pictures() -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/status-page");
    std::fs::create_dir_all(&folder)?;
    Ok(folder.canonicalize()?)
}

fn held_pods(sandbox: &Sandbox) -> Result<()> {
    let (actor, options) = (Actor::new("fixture"), WriteOptions::default());
    let create = |gvr: &Gvr, namespace: Option<&str>, object| {
        let cluster = sandbox.cluster();
        cluster.create(&actor, gvr, namespace, object, &options)
    };
    let name = |number: usize| format!("team-{:02}", number % NAMESPACES);
    for number in 0..NAMESPACES {
        let namespace = json!({ "metadata": { "name": name(number) } });
        create(&Gvr::NAMESPACES, None, namespace)?;
    }
    for number in 0..OBJECTS {
        let pod = json!({
            "metadata": { "name": format!("step-{number:05}"), "finalizers": [HOLD] },
            "spec": { "containers": [{ "name": "main", "image": "registry.example/main" }] },
        });
        create(&Gvr::PODS, Some(&name(number)), pod)?;
    }
    Ok(())
}

/// One re-creation in progress, and many that have ended.
fn recreations(sandbox: &Sandbox) -> Result<()> {
    sandbox.load_yaml(RECORDS_CRD)?;
    for number in 0..RECREATIONS {
        let pod = format!("rejected-{number:03}");
        let status = match number {
            7 => {
                json!({ "phase": "Waiting", "attempts": 1, "nodeName": "node-1", "reason": "OutOfcpu" })
            }
            _ => json!({ "phase": "Started", "attempts": 1, "finishedAt": "2026-01-01T00:00:00Z" }),
        };
        let record = json!({
            "apiVersion": "belayer.dev/v1alpha1", "kind": "PodRecreation",
            "metadata": {
                "name": format!("{pod}-60e00000"), "namespace": format!("team-{:02}", number % NAMESPACES),
            },
            "spec": {
                "podName": pod, "firstUID": "60e00000-0000-4000-8000-000000000000", "policy": { "maxRetries": 3 },
                "pod": {},
            },
            "status": status,
        });
        sandbox.load_yaml(&record.to_string())?;
    }
    Ok(())
}

/// `belayer status --serve`, and its address.
async fn serving(cluster: &Cluster, kubeconfig: &Path) -> Result<(String, Process)> {
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let arguments = ["status", &kubeconfig, "--serve=127.0.0.1:0"];
    let log = cluster.dir().join("status.log");
    let belayer = &cluster.setting().belayer;
    let serving = Process::start("status page", belayer, arguments, &log)?;
    let address = eventually("the status page is served", SOON, async || {
        let log = serving.log()?;
        let address = log
            .split("http://")
            .nth(1)
            .and_then(|rest| rest.split('/').next());
        address.map(str::to_owned).context("no address")
    })
    .await?;
    Ok((address, serving))
}

/// `belayer run`, which writes nothing and serves the page on its debug address.
async fn running(cluster: &Cluster, kubeconfig: &Path) -> Result<(String, Process)> {
    let [debug] = free_ports()?;
    let debug = std::net::SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, debug));
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let address = format!("--debug-bind-address={debug}");
    let arguments = [
        "run",
        &kubeconfig,
        &address,
        "--dry-run",
        "--metrics-bind-address=0",
    ];
    let log = cluster.dir().join("run.log");
    let belayer = &cluster.setting().belayer;
    let running = Process::start("belayer", belayer, arguments, &log)?;
    eventually("the debug address answers", SOON, async || {
        get(debug, "/").await
    })
    .await?;
    Ok((debug.to_string(), running))
}
