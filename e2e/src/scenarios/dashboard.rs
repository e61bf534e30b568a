//! The dashboard's queries on a real Prometheus that scrapes a running Belayer.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::control_plane::Process;
use crate::control_plane::ports::free_ports;
use crate::harness::belayer::get;
use crate::harness::{Cluster, SOON, Scenario, eventually, pod};
use crate::providers::Capability::Prometheus;

/// Metrics without a series as long as nothing of their kind has happened: their labels are not known before. The
/// Belayer of shared scenarios takes part in no election, and no node agent is scraped.
const EMPTY: [&str; 4] = [
    "belayer_release_denied_total",
    "belayer_unread_pods_total",
    "belayer_wipes_pending",
    "leader_election_master_status",
];

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::shared(
            "dashboard-prometheus",
            "Prometheus answers every query of the dashboard with series of a running Belayer",
            dashboard,
        )
        .needs([Prometheus]),
    ]
}

async fn dashboard(cluster: Cluster) -> Result<()> {
    let belayer = cluster.shared_belayer()?.metrics_address();
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("held").of(&workflow)).await?;
    cluster.is_held("held").await?;
    let (prometheus, _running) = start(&cluster, belayer)?;
    // A rate needs two samples.
    let scrapes = r#"count_over_time(up{job="belayer"}[1m])"#;
    eventually("Prometheus has scraped Belayer", SOON, async || {
        let scraped = query(prometheus, scrapes).await?;
        ensure!(value(&scraped) >= 3.0, "{scraped:?}");
        Ok(())
    })
    .await?;
    let expressions = expressions()?;
    ensure!(expressions.len() > 50, "{} queries", expressions.len());
    let mut empty = Vec::new();
    for expression in &expressions {
        let asked = expression
            .replace("$__rate_interval", "10s")
            .replace("$job", ".*");
        // On a busy machine an answer may come too late.
        let found = eventually(&asked, SOON, async || query(prometheus, &asked).await).await?;
        let may_be_empty = EMPTY.iter().any(|metric| asked.contains(metric));
        if found.is_empty() && !may_be_empty {
            empty.push(asked);
        }
    }
    ensure!(empty.is_empty(), "without a result: {empty:#?}");
    let held = query(prometheus, "sum(belayer_holds)").await?;
    ensure!(value(&held) >= 1.0, "{held:?}");
    cluster.note(format!("{} queries", expressions.len()));
    Ok(())
}

/// Prometheus, which scrapes every second, and its address.
fn start(cluster: &Cluster, belayer: SocketAddr) -> Result<(SocketAddr, Process)> {
    let folder = cluster.dir().join("prometheus");
    std::fs::create_dir_all(&folder)?;
    let config = folder.join("prometheus.yml");
    let text = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: belayer\n  static_configs:\n  - targets: [\"{belayer}\"]\n    \
         labels: {{pod: belayer-0}}\n"
    );
    std::fs::write(&config, text)?;
    let [port] = free_ports()?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let arguments = [
        format!("--config.file={}", config.display()),
        format!("--storage.tsdb.path={}", folder.join("data").display()),
        format!("--web.listen-address={address}"),
    ];
    let log = cluster.dir().join("prometheus.log");
    let running = Process::start("prometheus", Path::new("prometheus"), arguments, &log)?;
    Ok((address, running))
}

/// The expressions of all panels.
fn expressions() -> Result<Vec<String>> {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/charts/belayer/files/dashboard.json");
    let dashboard: Value = serde_json::from_slice(&std::fs::read(file)?)?;
    let mut found = Vec::new();
    collect(&dashboard["panels"], &mut found);
    Ok(found)
}

fn collect(panels: &Value, into: &mut Vec<String>) {
    for panel in panels.as_array().into_iter().flatten() {
        let targets = panel["targets"].as_array().into_iter().flatten();
        into.extend(targets.filter_map(|target| target["expr"].as_str().map(str::to_owned)));
        collect(&panel["panels"], into);
    }
}

/// The series of an instant query.
async fn query(prometheus: SocketAddr, expression: &str) -> Result<Vec<Value>> {
    let encoded: String = expression
        .bytes()
        .map(|byte| format!("%{byte:02X}"))
        .collect();
    let answer = get(prometheus, &format!("/api/v1/query?query={encoded}")).await?;
    let answer: Value = serde_json::from_str(&answer)?;
    ensure!(answer["status"] == "success", "{answer}");
    let series = answer["data"]["result"].as_array();
    Ok(series.context("no result")?.clone())
}

fn value(series: &[Value]) -> f64 {
    let first = series.first().and_then(|one| one["value"][1].as_str());
    first.and_then(|text| text.parse().ok()).unwrap_or(0.0)
}
