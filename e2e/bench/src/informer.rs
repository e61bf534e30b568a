//! The cost of caching 100,000 pods of 5 KB: for the process that reads them, and for the API server.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use belayer_subject::Pods;
use belayer_subject::informer::SYNCED;

use super::measure::cost_of;
use super::report::Limit;
use super::server::{API_SERVER, server_cpu, settled};
use super::{Goal, Report, Testbed, etcd};
use belayer_e2e::control_plane::ports::free_ports;
use belayer_e2e::control_plane::{ControlPlane, Process};
use belayer_e2e::peers::Peer;

const PODS: usize = 100_000;
const POLL: Duration = Duration::from_millis(20);
const DEADLINE: Duration = Duration::from_secs(300);

const OPERATOR: &str = "Belayer, all controllers";
const ALONE: &str = "Belayer's informer alone";
const CLIENT_GO: &str = "client-go informer";
const KUBE_RS: &str = "kube-rs reflector";
const IN_TREE: &str = "kube-controller-manager";

/// The cost of one subject.
struct Sync {
    /// Seconds; NaN if the subject does not report when it is synced.
    wall: f64,
    cpu: f64,
    resident: f64,
    peak: f64,
    server: f64,
}

pub(crate) async fn run(testbed: Testbed) -> Result<Report> {
    let pods = testbed.size.unwrap_or(PODS);
    let plane = testbed.api_server().await?;
    etcd::create_namespaces(&plane).await?;
    etcd::fill(&plane, Pods::usual().unheld(), 0..pods).await?;
    settled(&plane, API_SERVER).await?;
    let title = format!("{pods} pods of 5 KB, from process start to synced");
    let metrics = [
        ("CPU", "s"),
        ("resident", "MB"),
        ("peak resident", "MB"),
        ("CPU of the API server", "s"),
        ("wall", "s"),
    ];
    let mut report = Report::new("informer", title, &metrics);
    for round in 0..=testbed.rounds {
        for name in [OPERATOR, ALONE, CLIENT_GO, KUBE_RS, IN_TREE] {
            let Some(sync) = one(&testbed, &plane, name).await? else {
                if round == 0 {
                    report.note(format!(
                        "{name} was not measured: it cannot be built on this machine"
                    ));
                }
                continue;
            };
            if round > 0 {
                let figures = [
                    sync.cpu,
                    sync.resident / 1e6,
                    sync.peak / 1e6,
                    sync.server,
                    sync.wall,
                ];
                report.round(name, &figures);
            }
        }
    }
    for (metric, at_most) in [
        ("CPU", 0.8),
        ("resident", 60.0),
        ("CPU of the API server", 2.3),
    ] {
        report.limit(Limit {
            metric,
            of: OPERATOR.to_owned(),
            at_most,
        });
    }
    for metric in ["CPU", "resident", "CPU of the API server"] {
        report.goal(Goal {
            metric,
            of: OPERATOR.to_owned(),
            against: CLIENT_GO.to_owned(),
            at_most: 1.0,
        });
    }
    plane.stop().await?;
    Ok(report)
}

/// `None` if it cannot be built.
async fn one(testbed: &Testbed, plane: &ControlPlane, name: &str) -> Result<Option<Sync>> {
    let kubeconfig = plane.admin_path();
    let server = server_cpu(plane).await?;
    let started = Instant::now();
    if name == IN_TREE {
        plane.start_pvc_controller_alone().await?;
        settled(plane, name).await?;
        let pid = plane.pid_of(name).await.context("the process has exited")?;
        let mut sync = measure(plane, pid, started, server).await?;
        sync.wall = f64::NAN;
        plane.stop_controllers().await?;
        return Ok(Some(sync));
    }
    let [port] = free_ports()?;
    let Some((program, arguments)) = command(testbed, name, kubeconfig, port)? else {
        return Ok(None);
    };
    let log = plane.dir().join(format!("{port}.log"));
    let mut process = Process::start(name, &program, arguments, &log)?;
    let started = Instant::now();
    while !is_synced(&process, name, port).await {
        process.check_running()?;
        if started.elapsed() > DEADLINE {
            bail!(
                "{name} is not synced after {DEADLINE:?}\n{}",
                process.log_end()
            );
        }
        tokio::time::sleep(POLL).await;
    }
    let pid = process.pid().context("the process has exited")?;
    let sync = measure(plane, pid, started, server).await?;
    process.kill().await?;
    Ok(Some(sync))
}

fn command(
    testbed: &Testbed,
    name: &str,
    kubeconfig: &Path,
    port: u16,
) -> Result<Option<(PathBuf, Vec<String>)>> {
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    Ok(match name {
        OPERATOR => {
            let arguments = [
                "run".to_owned(),
                kubeconfig,
                format!("--metrics-bind-address=127.0.0.1:{port}"),
                "--debug-bind-address=0".to_owned(),
                super::COMPONENTS.to_owned(),
                "--log-level=warn".to_owned(),
            ];
            Some((testbed.belayer().to_owned(), arguments.to_vec()))
        }
        ALONE => Some((
            testbed.subject.clone(),
            vec!["informer".to_owned(), kubeconfig],
        )),
        CLIENT_GO => Peer::Sync
            .if_available()
            .map(|program| (program, vec![kubeconfig])),
        KUBE_RS => Peer::KubeRs
            .if_available()
            .map(|program| (program, vec!["reflector".to_owned(), kubeconfig])),
        _ => None,
    })
}

async fn is_synced(process: &Process, name: &str, port: u16) -> bool {
    if name == OPERATOR {
        return super::belayer_is_ready(port).await;
    }
    process.log().is_ok_and(|log| log.contains(SYNCED))
}

async fn measure(plane: &ControlPlane, pid: u32, started: Instant, server: f64) -> Result<Sync> {
    let cost = cost_of(pid, started)?;
    Ok(Sync {
        wall: cost.wall.as_secs_f64(),
        cpu: cost.cpu.as_secs_f64(),
        resident: belayer_subject::resident_of(pid)? as f64,
        peak: cost.peak_resident as f64,
        server: server_cpu(plane).await? - server,
    })
}
