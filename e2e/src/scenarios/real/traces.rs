//! Names are resolved inside the shipped image, which has no more than the program and its libraries.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::nodes::in_phase;
use super::rejections::recreated;
use crate::harness::{Cluster, HOME, Installed, SOON, eventually, pod};

/// As a pod of a cluster names a Service of another namespace: the search list completes it.
const SHORT: &str = "collector.observability";
const WHOLE: &str = "collector.observability.svc.cluster.local";
/// A name that only /etc/hosts has.
const ALIAS: &str = "collector.example.com";

/// Row *image*: both Deployments send traces to a collector that they know by name: one by DNS, with a search list, and one
/// by an entry of /etc/hosts. A pod takes the place of the collector and of the DNS server; it ends once a client has
/// found it.
pub(super) async fn collector_by_name(belayer: Installed) -> Result<()> {
    let cluster = &belayer.cluster;
    let by_dns = collector(cluster, "by-dns").await?;
    let by_hosts = collector(cluster, "by-hosts").await?;
    let dns = json!({
        "dnsPolicy": "None",
        "dnsConfig": {
            "nameservers": [by_dns],
            "searches": [format!("{HOME}.svc.cluster.local"), "svc.cluster.local", "cluster.local"],
            "options": [{ "name": "ndots", "value": "5" }],
        },
    });
    let hosts = json!({ "hostAliases": [{ "ip": by_hosts, "hostnames": [ALIAS] }] });
    traces(cluster, "belayer", SHORT, dns).await?;
    traces(cluster, "belayer-pod-recreation", ALIAS, hosts).await?;
    belayer.is_rolled_out().await?;

    // Work for both, which they trace.
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("a").of(&workflow)).await?;
    cluster.create(&recreated("b")).await?;
    for name in ["by-dns", "by-hosts"] {
        in_phase(cluster, name, "Succeeded")
            .await
            .context("no traces were sent")?;
    }
    Ok(())
}

/// Starts a pod that answers as a collector, and as a DNS server that knows the collector. Returns its address.
async fn collector(cluster: &Cluster, name: &str) -> Result<String> {
    let runs = format!("collector {WHOLE}");
    cluster.create(&pod(name).scheduled().runs(&runs)).await?;
    eventually(&format!("{name} runs"), SOON, async || {
        let status = cluster.pods().get(name).await?.data["status"].clone();
        ensure!(status["phase"] == "Running", "{status}");
        Ok(status["podIP"].as_str().context("no address")?.to_owned())
    })
    .await
}

/// Sends the traces of a Deployment to this host, with further fields of its pods.
async fn traces(cluster: &Cluster, deployment: &str, host: &str, fields: Value) -> Result<()> {
    let mut spec = fields;
    spec["containers"] = json!([{ "name": "belayer", "env": [
        { "name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": format!("http://{host}:4317") },
        { "name": "OTEL_TRACES_SAMPLER", "value": "always_on" },
    ] }]);
    let patch = json!({ "spec": { "template": { "spec": spec } } });
    let script = format!("kubectl -n {HOME} patch deployment {deployment} --patch '{patch}'");
    cluster.sh(&script).await.map(drop)
}
