//! How long releases wait when the leader ends: by SIGTERM, by SIGKILL, and not at all.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use belayer_subject::Pods;
use futures::future::try_join_all;
use kube::api::PostParams;
use rustix::process::Signal;
use serde_json::json;

use belayer_core::http::Request;
use belayer_core::object::{ObjectKey, Resource};

use super::latency::{self, Held, Waiting};
use super::report::Limit;
use super::{Report, Testbed, belayer_says, etcd, wait_until_ready};
use belayer_e2e::control_plane::ports::free_ports;
use belayer_e2e::control_plane::{ControlPlane, Process};
use belayer_e2e::kinds;
use belayer_e2e::providers::ensure_workflow_crd;

/// Cached by both replicas throughout.
const PODS: usize = 100_000;
/// Releases of each round, one after the other becomes due.
const RELEASES: usize = 50;
/// Between two of them.
const PACE: Duration = Duration::from_millis(20);
/// The leader ends when this many are due.
const BEFORE: usize = 10;
/// Default of `--leader-elect-lease-duration`, in seconds.
const LEASE: f64 = 15.0;
/// Where the Lease is.
const OWN_NAMESPACE: &str = "belayer-system";
const DEADLINE: Duration = Duration::from_secs(120);

/// How the leader ends.
#[derive(Clone, Copy)]
enum End {
    None,
    Stopped,
    Killed,
}

const ENDS: [(End, &str); 3] = [
    (End::None, "the leader stays"),
    (End::Stopped, "SIGTERM of the leader"),
    (End::Killed, "SIGKILL of the leader"),
];

pub(crate) async fn run(testbed: Testbed) -> Result<Report> {
    let pods = testbed.size.unwrap_or(PODS);
    let plane = testbed.api_server().await?;
    let client = plane.client();
    ensure_workflow_crd(client).await?;
    latency::create_namespace(client).await?;
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": OWN_NAMESPACE } });
    kinds::namespaces(client)
        .create(&PostParams::default(), &serde_json::from_value(namespace)?)
        .await?;
    etcd::create_namespaces(&plane).await?;
    etcd::fill(&plane, Pods::usual().unheld(), 0..pods).await?;
    let waiting = Waiting::default();
    latency::watch(client, &waiting);

    let title = format!("A new leader in a cluster of {pods} pods");
    let metrics = [
        ("longest wait", "s"),
        ("median wait", "s"),
        ("lists of the standby", "count"),
        ("resident of the standby", "MB"),
    ];
    let mut report = Report::new("failover", title, &metrics);
    for round in 0..testbed.rounds {
        for (index, (end, name)) in ENDS.into_iter().enumerate() {
            let mut leader = Replica::start(&testbed, &plane)?;
            leader.wait_until_ready().await?;
            leader.wait_until_leading().await?;
            let mut standby = Replica::start(&testbed, &plane)?;
            standby.wait_until_ready().await?;
            let lists = standby.lists().await?;
            let prepared = latency::prepare(client, RELEASES, &format!("f{index}-{round}")).await?;
            let delete = |held| Held::delete_owner(held, client, &waiting);
            // The leader works.
            let (first, rest) = prepared.split_at(BEFORE);
            try_join_all(first.iter().map(delete)).await?;
            leader.end(end).await?;
            let due = rest.iter().enumerate().map(|(number, held)| async move {
                tokio::time::sleep(PACE * number as u32).await;
                delete(held).await
            });
            let took = try_join_all(due).await;
            let mut took = took.with_context(|| standby.process.log_end())?;
            took.sort_unstable();
            let seconds = |at: usize| took[at].as_secs_f64();
            let figures = [
                seconds(took.len() - 1),
                seconds(took.len() / 2),
                standby.lists().await? - lists,
                standby.resident()?,
            ];
            report.round(name, &figures);
            leader.process.kill().await?;
            standby.process.kill().await?;
            for held in &prepared {
                held.forget_owner(client).await?;
            }
            forget_lease(&plane).await?;
        }
    }
    for (of, at_most) in [(ENDS[1].1, 0.5), (ENDS[2].1, LEASE + 1.0)] {
        report.limit(Limit {
            metric: "longest wait",
            of: of.to_owned(),
            at_most,
        });
    }
    for (_, of) in ENDS {
        report.limit(Limit {
            metric: "lists of the standby",
            of: of.to_owned(),
            at_most: 0.0,
        });
    }
    report.note(format!("the lease lasts {LEASE} s, as by default"));
    plane.stop().await?;
    Ok(report)
}

/// One of two replicas.
struct Replica {
    process: Process,
    port: u16,
}

impl Replica {
    fn start(testbed: &Testbed, plane: &ControlPlane) -> Result<Self> {
        let [port] = free_ports()?;
        let arguments = [
            "run".to_owned(),
            format!("--kubeconfig={}", plane.admin_path().display()),
            format!("--leader-elect-resource-namespace={OWN_NAMESPACE}"),
            "--controllers=pod-finalizer".to_owned(),
            format!("--metrics-bind-address=127.0.0.1:{port}"),
            "--debug-bind-address=0".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        let log = plane.dir().join(format!("replica-{port}.log"));
        let process = Process::start("belayer", testbed.belayer(), arguments, &log)?;
        Ok(Self { process, port })
    }

    async fn wait_until_ready(&mut self) -> Result<()> {
        wait_until_ready(&mut self.process, self.port).await
    }

    async fn wait_until_leading(&mut self) -> Result<()> {
        let started = Instant::now();
        while belayer_says(self.port, belayer_metrics::LEADER).await? < 1.0 {
            self.process.check_running()?;
            ensure!(started.elapsed() < DEADLINE, "there is no leader");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    async fn end(&mut self, end: End) -> Result<()> {
        match end {
            End::None => Ok(()),
            End::Stopped => self.process.signal(Signal::TERM),
            End::Killed => self.process.kill().await,
        }
    }

    /// How many lists its informers have sent.
    async fn lists(&self) -> Result<f64> {
        belayer_says(self.port, belayer_metrics::INFORMER_RELISTS).await
    }

    /// In MB.
    fn resident(&self) -> Result<f64> {
        let pid = self.process.pid().context("the standby has exited")?;
        Ok(belayer_subject::resident_of(pid)? as f64 / 1e6)
    }
}

/// Otherwise the next round would wait until it expires.
async fn forget_lease(plane: &ControlPlane) -> Result<()> {
    let lease = Resource::new("coordination.k8s.io", "v1", "Lease", "leases");
    let path = lease.object_path(&ObjectKey::new(OWN_NAMESPACE, "belayer"));
    Request::delete(path, "{}").send(plane.client()).await?;
    Ok(())
}
