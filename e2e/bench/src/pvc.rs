//! Deletes unused PVCs that exist when the controller starts: Belayer in place of
//! kube-controller-manager's own controller, that controller without rate limits, and raw PATCHes.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{DeleteParams, PostParams};
use kube::{Client, ResourceExt as _};

use belayer_core::object::{ObjectKey, Resource};

use super::measure::{Cost, cost_of};
use super::raw::{self, Release};
use super::server::server_cpu;
use super::{Goal, Measured, Report, Testbed, Traffic};
use belayer_e2e::control_plane::{ControlPlane, Process};
use belayer_e2e::harness::{KUBERNETES_PVC_HOLD, pvc};
use belayer_e2e::kinds;

const PVCS: usize = 10_000;
const NAMESPACES: usize = 10;
/// How many requests prepare the PVCs in parallel.
const PARALLEL: usize = 32;

/// How many PATCHes the raw senders have in flight.
const RAW: [usize; 3] = [16, 32, 64];

const BELAYER: &str = "Belayer";
const IN_TREE: &str = "kube-controller-manager";

pub(crate) async fn run(testbed: Testbed) -> Result<Report> {
    let pvcs = testbed.size.unwrap_or(PVCS);
    let plane = testbed.api_server().await?;
    for number in 0..NAMESPACES {
        let document = serde_json::from_value(serde_json::json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace(number) },
        }))?;
        kinds::namespaces(plane.client())
            .create(&PostParams::default(), &document)
            .await?;
    }
    let title = format!("{pvcs} unused PVCs that are being deleted, in {NAMESPACES} namespaces");
    let metrics = [
        ("wall", "s"),
        ("CPU", "s"),
        ("peak resident", "MB"),
        ("CPU of the API server", "s"),
    ];
    let mut report = Report::new("pvc", title, &metrics);
    let mut stage = Stage {
        testbed: &testbed,
        plane: &plane,
        pvcs,
    };
    for round in 0..=testbed.rounds {
        let counts = round > 0;
        for parallel in RAW {
            let (wall, server) = stage.raw(parallel).await?;
            if counts {
                let figures = [wall.as_secs_f64(), f64::NAN, f64::NAN, server];
                report.round(&format!("raw, {parallel} parallel"), &figures);
            }
        }
        for subject in [IN_TREE, BELAYER] {
            let Run {
                cost,
                server,
                traffic,
            } = stage.controller(subject).await?;
            if counts {
                let figures = [
                    cost.wall.as_secs_f64(),
                    cost.cpu.as_secs_f64(),
                    cost.peak_resident as f64 / 1e6,
                    server,
                ];
                report.round(subject, &figures);
            }
            if round == testbed.rounds {
                for (resource, traffic) in ["persistentvolumeclaims", "pods"].iter().zip(traffic) {
                    report.note(format!(
                        "requests of {subject} about {resource} in its last round: {}",
                        traffic.summary()
                    ));
                }
            }
        }
    }
    let raw = RAW.map(|parallel| format!("raw, {parallel} parallel"));
    let best = report.best("wall", &raw);
    for (metric, against, at_most) in [
        ("wall", best.as_deref().unwrap_or(&raw[0]), 1.03),
        ("wall", IN_TREE, 1.0 / 3.0),
        ("CPU", IN_TREE, 1.0 / 3.0),
    ] {
        report.goal(Goal {
            metric,
            of: BELAYER.to_owned(),
            against: against.to_owned(),
            at_most,
        });
    }
    plane.stop().await?;
    Ok(report)
}

fn namespace(number: usize) -> String {
    format!("bench-{}", number % NAMESPACES)
}

/// The cost of one controller.
struct Run {
    cost: Cost,
    /// CPU time of the API server, in seconds.
    server: f64,
    /// Requests for PVCs and for pods, including the benchmark's own watch.
    traffic: [Traffic; 2],
}

/// The environment of all subjects.
struct Stage<'a> {
    testbed: &'a Testbed,
    plane: &'a ControlPlane,
    pvcs: usize,
}

impl Stage<'_> {
    async fn raw(&mut self, parallel: usize) -> Result<(Duration, f64)> {
        let client = self.plane.client();
        let releases = prepare(client, self.pvcs).await?;
        let server = server_cpu(self.plane).await?;
        let pvcs = kinds::all_pvcs(client);
        let wall = raw::release_all(client, &pvcs, &releases, parallel).await?;
        let server = server_cpu(self.plane).await? - server;
        Ok((wall, server))
    }

    async fn controller(&mut self, subject: &str) -> Result<Run> {
        let client = self.plane.client();
        prepare(client, self.pvcs).await?;
        let before = self.traffic().await?;
        let server = server_cpu(self.plane).await?;
        let cost = if subject == BELAYER {
            self.belayer().await?
        } else {
            self.in_tree().await?
        };
        let server = server_cpu(self.plane).await? - server;
        let [pvcs, pods] = self.traffic().await?;
        Ok(Run {
            cost,
            server,
            traffic: [pvcs.since(&before[0]), pods.since(&before[1])],
        })
    }

    async fn traffic(&self) -> Result<[Traffic; 2]> {
        let client = self.plane.client();
        Ok([
            Traffic::of(client, "persistentvolumeclaims").await?,
            Traffic::of(client, "pods").await?,
        ])
    }

    async fn in_tree(&self) -> Result<Cost> {
        let started = Instant::now();
        self.plane.start_pvc_controller_alone().await?;
        raw::until_gone(&kinds::all_pvcs(self.plane.client())).await?;
        let pid = self.plane.pid_of("kube-controller-manager").await;
        let cost = cost_of(pid.context("kube-controller-manager has ended")?, started)?;
        self.plane.stop_controllers().await?;
        Ok(cost)
    }

    async fn belayer(&self) -> Result<Cost> {
        let arguments = [
            "run".to_owned(),
            format!("--kubeconfig={}", self.plane.admin_path().display()),
            "--controllers=pvc-protection".to_owned(),
            format!("--pvc-protection-finalizer={KUBERNETES_PVC_HOLD}"),
            "--metrics-bind-address=0".to_owned(),
            "--debug-bind-address=0".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        let log = self.plane.dir().join("belayer.log");
        let start = || Process::start("belayer", self.testbed.belayer(), arguments, &log);
        let mut belayer = Measured::start(start)?;
        let gone = raw::until_gone(&kinds::all_pvcs(self.plane.client())).await;
        gone.inspect_err(|_| anstream::eprintln!("{}", belayer.process().log_end()))?;
        let cost = belayer.cost()?;
        belayer.end().await?;
        Ok(cost)
    }
}

/// Creates the PVCs, to which the API server itself adds Kubernetes' finalizer, and deletes them. Returns
/// the patches that release them.
async fn prepare(client: &Client, pvcs: usize) -> Result<Vec<Release>> {
    let resource = Resource::new("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims");
    futures::stream::iter(0..pvcs)
        .map(|number| {
            let resource = &resource;
            async move {
                let (namespace, name) = (namespace(number), format!("c{number}"));
                let api = kinds::pvcs(client, &namespace);
                let document = pvc(&name, serde_json::json!({}))?;
                api.create(&PostParams::default(), &document).await?;
                let deleted = api.delete(&name, &DeleteParams::default()).await?;
                let pvc = deleted
                    .left()
                    .context("a PVC with a finalizer was removed at once")?;
                let uid = pvc.uid().context("the PVC has no UID")?;
                let version = pvc.resource_version();
                let version = version.context("the PVC has no resourceVersion")?;
                let key = ObjectKey::new(namespace, &*name);
                anyhow::Ok(Release::new(resource, &key, &uid, &version, &[]))
            }
        })
        .buffer_unordered(PARALLEL)
        .try_collect()
        .await
}
