//! Checks of this repository with tools from PyPI and of Go. They need no cluster, and are scenarios because of where the
//! tools come from.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::process::Command;

use crate::chart;
use crate::control_plane::HelmBinaries;
use crate::harness::{Cluster, Scenario};
use crate::output::Output;
use crate::providers::Capability::{ClientGo, Helm, Python};
use crate::third_party::ThirdParty;

/// With the build of promtool: some two minutes of two cores.
const VERY_LONG: Duration = Duration::from_secs(600);

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::shared(
            "argo-cd-health",
            "the health checks for Argo CD run in Lua on a record of every phase",
            health,
        )
        .needs([Python]),
        Scenario::shared(
            "records-kstatus",
            "kstatus, by which Flux and Helm judge objects, judges a record of every phase correctly",
            kstatus,
        )
        .needs([ClientGo]),
        Scenario::shared(
            "workflows-zizmor",
            "zizmor finds nothing in the workflows and in the configuration of Dependabot",
            zizmor,
        )
        .needs([Python]),
        Scenario::shared(
            "workflows-actionlint",
            "actionlint finds nothing in the workflows",
            actionlint,
        )
        .needs([ClientGo]),
        Scenario::shared(
            "alerts-promtool",
            "Prometheus' own tool accepts the alert rules; each fires when it must and stays silent else",
            alerts,
        )
        .needs([ClientGo])
        .within(VERY_LONG),
        Scenario::shared(
            "manifests-of-versions",
            "manifests and the whole chart match the schemas of Kubernetes 1.32 to 1.37",
            schemas,
        )
        .needs([Python, Helm]),
    ]
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

async fn health(_: Cluster) -> Result<()> {
    let page = repository().join("docs/src/install/gitops.md");
    let crd = repository().join("deploy/manifests/crd-pod-recreation.yaml");
    passes("python", &[Path::new("health.py"), &page, &crd, &records()]).await
}

async fn kstatus(_: Cluster) -> Result<()> {
    let program = installed(ThirdParty::Kstatus).await?.join("kstatus");
    succeeds(Command::new(program).arg(records())).await
}

/// Records of every phase, which a test of `belayer-pod-recreation` writes.
fn records() -> PathBuf {
    repository().join("e2e/fixtures/records.json")
}

async fn zizmor(_: Cluster) -> Result<()> {
    let workflows = repository().join(".github");
    let options = ["--offline", "--no-progress"].map(Path::new);
    passes("zizmor", &[options[0], options[1], &workflows]).await
}

async fn actionlint(_: Cluster) -> Result<()> {
    let folder = installed(ThirdParty::Actionlint).await?;
    let mut command = Command::new(folder.join("actionlint"));
    // Other linters would be used if they are installed: the result must not depend on that.
    command.args(["-no-color", "-shellcheck=", "-pyflakes="]);
    for workflow in std::fs::read_dir(repository().join(".github/workflows"))? {
        command.arg(workflow?.path());
    }
    succeeds(&mut command).await
}

async fn alerts(_: Cluster) -> Result<()> {
    let promtool = installed(ThirdParty::Promtool).await?.join("promtool");
    let rules = repository().join("deploy/charts/belayer/files/alerts.yaml");
    succeeds(Command::new(&promtool).args(["check", "rules"]).arg(rules)).await?;
    let tests = repository().join("e2e/third-party/promtool/alerts.test.yaml");
    succeeds(Command::new(&promtool).args(["test", "rules"]).arg(tests)).await
}

/// Releases of Kubernetes, as `1.MINOR`.
const MINORS: std::ops::RangeInclusive<u8> = 32..=37;

async fn schemas(cluster: Cluster) -> Result<()> {
    let helm = tokio::task::spawn_blocking(HelmBinaries::find_or_build).await??;
    let manifests = cluster.dir().join("manifests.yaml");
    std::fs::write(&manifests, chart::rendered_manifests()?)?;
    let mut arguments = vec![PathBuf::from("validate.py")];
    for minor in MINORS {
        let version = format!("1.{minor}");
        let chart = cluster.dir().join(format!("chart-{minor}.yaml"));
        std::fs::write(&chart, chart::everything(&helm, &version)?)?;
        for file in [&chart, &manifests] {
            arguments.push(PathBuf::from(format!("{version}={}", file.display())));
        }
    }
    let arguments: Vec<&Path> = arguments.iter().map(PathBuf::as_path).collect();
    passes("python", &arguments).await
}

/// Runs a program of the Python installation, which must succeed.
async fn passes(program: &str, arguments: &[&Path]) -> Result<()> {
    let folder = installed(ThirdParty::Lint).await?;
    let mut command = Command::new(folder.join("venv/bin").join(program));
    succeeds(command.args(arguments).current_dir(&folder)).await
}

async fn installed(tool: ThirdParty) -> Result<PathBuf> {
    tokio::task::spawn_blocking(move || tool.installed()).await?
}

async fn succeeds(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = output.await.with_context(|| format!("start {command:?}"))?;
    Output::from(output).success()?;
    Ok(())
}
