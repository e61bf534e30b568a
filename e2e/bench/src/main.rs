//! Benchmarks against the peers, side by side in one run on one machine.
//!
//! A benchmark prepares the same work for every subject, round after round, and measures each in
//! turn, so that what the machine does meanwhile hits all of them. What counts is the ratio within
//! a run; absolute figures are those of this machine.

mod backlog;
mod chart;
mod cli;
mod drain;
mod etcd;
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
mod workqueue;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser as _;
use futures::future::BoxFuture;

use belayer_e2e::control_plane::{Binaries, ControlPlane, Options};
use belayer_e2e::harness::belayer::{get, sum};

use measure::Measured;
use report::{Goal, Report};
use server::Traffic;

/// Exit codes: 0 done, 1 something failed, 2 usage.
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

/// The components that watch all pods and need no kind of their own.
pub(crate) const COMPONENTS: &str = "--controllers=pod-finalizer,workflow-finalizer,pvc-protection";

/// One benchmark.
pub(crate) struct Bench {
    /// The name on the command line.
    pub(crate) name: &'static str,
    /// What is measured, against whom.
    pub(crate) about: &'static str,
    run: fn(Bed) -> BoxFuture<'static, Result<Report>>,
}

impl Bench {
    /// Runs it.
    ///
    /// # Errors
    /// When something that is measured fails: there is no figure without its work done.
    pub(crate) async fn run(&self, bed: Bed) -> Result<Report> {
        (self.run)(bed).await
    }
}

/// All of them, in the order in which they are listed.
#[must_use]
pub(crate) fn all() -> Vec<Bench> {
    vec![
        drain::many(),
        drain::one_workflow(),
        pvc::bench(),
        latency::bench(),
        backlog::bench(),
        informer::bench(),
        memory::bench(),
        scale::bench(),
        workqueue::bench(),
    ]
}

/// What a benchmark runs on, and how much of it.
#[derive(Debug, Clone)]
pub(crate) struct Bed {
    /// The programs of the control plane.
    pub(crate) binaries: Binaries,
    /// The `belayer` binary: a release build, or the figures say nothing.
    pub(crate) belayer: PathBuf,
    /// The `belayer-subject` binary, a release build too.
    pub(crate) subject: PathBuf,
    /// How often each subject is measured, after one round that is not counted.
    pub(crate) rounds: usize,
    /// How many objects, where the benchmark does not say.
    pub(crate) size: Option<usize>,
}

impl Bed {
    /// An API server with nothing beside it: whatever else runs would be measured too.
    pub(crate) async fn api_server(&self) -> Result<ControlPlane> {
        ControlPlane::start(&self.binaries, &Options::api_server_alone()).await
    }

    /// The binary.
    pub(crate) fn belayer(&self) -> &Path {
        &self.belayer
    }
}

/// Whether a Belayer whose metrics are on this port has complete caches.
pub(crate) async fn belayer_is_ready(port: u16) -> bool {
    belayer_readiness(port).await.is_ok()
}

/// The same, with what it says if it has not.
///
/// # Errors
/// When it has not.
pub(crate) async fn belayer_readiness(port: u16) -> Result<()> {
    get(loopback(port), "/readyz").await.map(drop)
}

/// The sum of the series of a metric of the Belayer whose metrics are on this port.
pub(crate) async fn belayer_says(port: u16, metric: &str) -> Result<f64> {
    let text = get(loopback(port), "/metrics").await?;
    Ok(sum(&text, metric, &[]))
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}
