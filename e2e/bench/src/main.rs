//! Benchmarks against other implementations, in one run on one machine.
//!
//! A benchmark prepares the same work for every subject, round after round, and measures each in
//! turn, so that other load of the machine affects all of them. Only the ratios within a run are
//! meaningful; absolute figures depend on the machine.

mod backlog;
mod binary;
mod chart;
mod cli;
mod drain;
mod etcd;
mod failover;
mod hostile;
mod informer;
mod instructions;
mod latency;
mod measure;
mod memory;
mod pvc;
mod raw;
mod report;
mod samples;
mod scale;
mod server;
mod status;
mod storm;
mod stuck;
mod workqueue;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser as _;
use futures::FutureExt as _;
use futures::future::BoxFuture;

use belayer_e2e::control_plane::{Binaries, ControlPlane, Options, Process};
use belayer_e2e::harness::belayer::{get, sum};

use measure::Measured;
use report::{Goal, Report};
use server::Traffic;

/// Exit codes: 0 success, 1 failure, 2 usage.
#[tokio::main]
async fn main() -> ExitCode {
    match cli::Measure::parse().execute().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            anstream::eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The controllers that watch all pods and need no CRD of their own.
pub(crate) const COMPONENTS: &str = "--controllers=pod-finalizer,workflow-finalizer,pvc-protection";

/// One benchmark.
pub(crate) struct Bench {
    /// The name on the command line.
    pub(crate) name: &'static str,
    /// What is measured, against which subjects.
    pub(crate) about: &'static str,
    run: fn(Testbed) -> BoxFuture<'static, Result<Report>>,
}

impl Bench {
    /// Runs it.
    pub(crate) async fn run(&self, testbed: Testbed) -> Result<Report> {
        (self.run)(testbed).await
    }
}

/// Benchmarks with the names of their modules.
macro_rules! benches {
    ($($module:ident: $about:literal;)+) => {
        [$(Bench {
            name: stringify!($module),
            about: $about,
            run: |testbed| $module::run(testbed).boxed(),
        }),+]
    };
}

/// All benchmarks, in the order of `--list`.
pub(crate) fn all() -> Vec<Bench> {
    let mut all = vec![drain::many(), drain::one_workflow(), drain::limited()];
    all.extend(benches! {
        pvc: "deleted PVCs that no pod uses, there at the start: Belayer from process start, against \
            kube-controller-manager's own controller and raw parallel PATCHes";
        latency: "one release on a busy API server: Belayer from the evidence until the pod is seen gone, against a \
            raw PATCH from its sending until the pod is seen gone";
        backlog: "one release while 10,000 live reads wait for their turn at 100 requests a second: Belayer from the \
            evidence until the pod is seen gone, against a raw PATCH sent to the same server at the same time";
        storm: "releases that the API server refuses with 429 for 30 seconds: the PATCHes that Belayer sends, and \
            the time from the end of the storm until the last pod is gone, against raw PATCHes";
        hostile: "attacks of one tenant: 100 releases of another one meanwhile, Belayer from the evidence until the \
            pod is seen gone, against raw PATCHes; its memory; the time until the attack has no more effect";
        informer: "pods of 5 KB until an informer is synced: Belayer, its informer alone, client-go's, kube-rs' \
            reflector and kube-controller-manager, and what each costs the API server";
        memory: "slim pods with the entries of all indexes, listed into a store: bytes per pod by a counting \
            allocator and by resident size, for growing numbers of pods";
        scale: "status heartbeats in a settled cluster of more and more pods: what each event costs Belayer, and how \
            many keys it queues, also when all pods change at once; client-go's informer and kube-rs' reflector \
            beside it";
        workqueue: "distinct keys by 8 producers and 8 consumers: Belayer's queue with priorities, ageing and \
            metrics, against client-go's FIFO and controller-runtime's priority queue";
        status: "running workflows of 500 nodes with 50 deleted pods each, whose statuses are written every 10 \
            seconds: CPU and memory of Belayer, beside kube-rs' reflector of whole workflows, and the time from a \
            status that releases a pod until the pod is seen gone";
        failover: "two replicas whose leader ends by SIGTERM or SIGKILL while a release becomes due every 20 ms: the \
            longest time from the evidence until a pod is seen gone";
        stuck: "`belayer stuck` on a cluster of 100 kinds of custom resources: time, memory and requests, against \
            listing each kind once";
        binary: "the size of the program with and without symbols (needs strip of binutils)";
    });
    all
}

/// The environment and the size of a benchmark.
#[derive(Debug, Clone)]
pub(crate) struct Testbed {
    /// The programs of the control plane.
    pub(crate) binaries: Binaries,
    /// The `belayer` binary, a release build.
    pub(crate) belayer: PathBuf,
    /// The `belayer-subject` binary, a release build.
    pub(crate) subject: PathBuf,
    /// How often each subject is measured, after one uncounted round.
    pub(crate) rounds: usize,
    /// How many objects, if the command line sets it.
    pub(crate) size: Option<usize>,
}

impl Testbed {
    /// An API server without other programs, which would be measured too.
    pub(crate) async fn api_server(&self) -> Result<ControlPlane> {
        ControlPlane::start(&self.binaries, &Options::api_server_alone()).await
    }

    /// The binary.
    pub(crate) fn belayer(&self) -> &Path {
        &self.belayer
    }
}

/// Waits until Belayer is ready. Fails if it ends before, or is not ready within two minutes.
pub(crate) async fn wait_until_ready(belayer: &mut Process, port: u16) -> Result<()> {
    let started = Instant::now();
    while let Err(why) = belayer_readiness(port).await {
        belayer.check_running()?;
        if started.elapsed() > READY_WITHIN {
            return Err(why.context(belayer.log_end()));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// How long a Belayer may take until its caches are synced.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// Whether the Belayer with this metrics port has synced caches.
pub(crate) async fn belayer_is_ready(port: u16) -> bool {
    belayer_readiness(port).await.is_ok()
}

/// The same, with the reason if it has not.
pub(crate) async fn belayer_readiness(port: u16) -> Result<()> {
    get(loopback(port), "/readyz").await.map(drop)
}

/// The sum of the series of a metric of the Belayer with this metrics port; zero before anything was counted.
pub(crate) async fn belayer_says(port: u16, metric: &str) -> Result<f64> {
    let text = get(loopback(port), "/metrics").await?;
    Ok(sum(&text, metric, &[]).unwrap_or_default())
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}
