//! `belayer-e2e envtest`: the sandbox beside the programs that controller-runtime's envtest starts.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::process::Command;

use crate::control_plane::{self, Binaries, ControlPlane, Options};

const RECONCILES: usize = 1_000;
/// Requests that the controller has open at the same time.
const AT_ONCE: usize = 8;
/// Longest start in-process and as a program.
const LIMITS: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(50)];
const BEGIN: &str = "<!-- table of `cargo xtask envtest --write`: begin -->\n";
const END: &str = "<!-- end -->";

/// Measure the sandbox beside etcd and kube-apiserver, which envtest runs: start, 1,000 reconciles, memory
///
/// The sandbox is built as tests build it, without optimizations; the other programs are release builds. Fails if the
/// sandbox starts in more than 2 ms in-process (not counting the first start of a process) or 50 ms as a program.
#[derive(Debug, Args)]
pub(super) struct Envtest {
    /// How often each is measured; the table shows the medians
    #[arg(long, default_value_t = 3, value_name = "N")]
    rounds: usize,

    /// Write the table into crates/sandbox/README.md
    #[arg(long)]
    write: bool,

    /// Measure the sandbox in-process, in a separate process, and print the figures as JSON
    #[arg(long, hide = true)]
    alone: bool,
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Measured {
    /// The first start in its process, if others can follow.
    first: Option<Duration>,
    start: Duration,
    reconciles: Duration,
    /// Bytes.
    memory: u64,
}

impl Envtest {
    pub(super) async fn execute(self) -> Result<ExitCode> {
        ensure!(self.rounds > 0, "--rounds must be at least 1");
        if self.alone {
            anstream::println!("{}", serde_json::to_string(&in_process().await?)?);
            return Ok(ExitCode::SUCCESS);
        }
        let (mut inside, mut program, mut envtest) = (Vec::new(), Vec::new(), Vec::new());
        let binaries = Binaries::find_or_build()?;
        // Once uncounted: the first start reads the programs from the disk.
        for round in 0..=self.rounds {
            let all = [
                alone().await?,
                as_a_program().await?,
                beside(&binaries).await?,
            ];
            if round > 0 {
                let [first, second, third] = all;
                inside.push(first);
                program.push(second);
                envtest.push(third);
            }
        }
        let rows = [
            ("sandbox, in-process", median(&inside)),
            ("sandbox, as a program", median(&program)),
            ("etcd and kube-apiserver", median(&envtest)),
        ];
        let table = table(&rows);
        anstream::print!("{table}");
        if self.write {
            let page = Path::new("crates/sandbox/README.md");
            let text = fs::read_to_string(page)
                .with_context(|| format!("{}: run this in the repository", page.display()))?;
            fs::write(page, with_table(&text, &table)?)?;
        }
        for ((name, measured), limit) in rows.iter().zip(LIMITS) {
            ensure!(
                measured.start <= limit,
                "{name}: start took {:?}, more than {limit:?}",
                measured.start
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn alone() -> Result<Measured> {
    let own = std::env::current_exe()?;
    let output = Command::new(own).args(["envtest", "--alone"]).output();
    let output = output.await?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "in-process: {text}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

async fn in_process() -> Result<Measured> {
    let before = resident("self")?;
    let started = async || {
        let began = Instant::now();
        let sandbox = belayer_sandbox::Sandbox::builder().build();
        let client = sandbox.client();
        client.apiserver_version().await?;
        Ok::<_, anyhow::Error>((began.elapsed(), sandbox, client))
    };
    // The first one also reads the tables of the built-in kinds.
    let (first, ..) = started().await?;
    let (start, _sandbox, client) = started().await?;
    let reconciles = reconcile(&client).await?;
    Ok(Measured {
        first: Some(first),
        start,
        reconciles,
        memory: resident("self")?.saturating_sub(before),
    })
}

async fn as_a_program() -> Result<Measured> {
    let program = std::env::current_exe()?.with_file_name("belayer-sandbox");
    let dir = tempfile::tempdir()?;
    let kubeconfig = dir.path().join("kubeconfig");
    let began = Instant::now();
    let mut child = Command::new(&program)
        .args(["serve", "--without", "kubelet,scheduler", "--kubeconfig"])
        .arg(&kubeconfig)
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| program.display().to_string())?;
    let client = reachable(&kubeconfig).await?;
    let start = began.elapsed();
    let reconciles = reconcile(&client).await?;
    let pid = child.id().context("the sandbox has ended")?;
    let memory = resident(&pid.to_string())?;
    child.kill().await?;
    Ok(Measured {
        first: None,
        start,
        reconciles,
        memory,
    })
}

/// A client of the server of a kubeconfig, once it answers.
async fn reachable(kubeconfig: &Path) -> Result<Client> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Ok(client) = control_plane::client(kubeconfig).await
            && client.apiserver_version().await.is_ok()
        {
            return Ok(client);
        }
        ensure!(Instant::now() < deadline, "the sandbox does not answer");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn beside(binaries: &Binaries) -> Result<Measured> {
    let began = Instant::now();
    let plane = ControlPlane::start(binaries, &Options::api_server_alone()).await?;
    plane.client().apiserver_version().await?;
    let start = began.elapsed();
    let reconciles = reconcile(plane.client()).await?;
    let mut memory = 0;
    for (_, pid) in plane.programs().await {
        memory += resident(&pid.to_string())?;
    }
    plane.stop().await?;
    Ok(Measured {
        first: None,
        start,
        reconciles,
        memory,
    })
}

/// Runs a controller that reads and patches every ConfigMap of a watch; returns how long it took for all of them.
async fn reconcile(client: &Client) -> Result<Duration> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let labels = json!({"envtest": "yes"});
    let create = |index: usize| {
        let metadata = json!({"name": format!("envtest-{index}"), "labels": labels});
        let map = serde_json::from_value(json!({"metadata": metadata, "data": {"k": "v"}}));
        let maps = &maps;
        async move { Ok::<_, anyhow::Error>(maps.create(&PostParams::default(), &map?).await?) }
    };
    let created = stream::iter(0..RECONCILES).map(create);
    created
        .buffer_unordered(AT_ONCE)
        .try_for_each(|_| async { Ok(()) })
        .await?;
    let began = Instant::now();
    let selected = WatchParams::default().labels("envtest=yes");
    let events = maps.watch(&selected, "0").await?;
    let names = events.try_filter_map(async |event| {
        Ok(match event {
            WatchEvent::Added(map) => map.metadata.name,
            _ => None,
        })
    });
    let reconciled = names.map(|name| {
        let maps = &maps;
        async move {
            let name = name?;
            let found = maps.get(&name).await?;
            let seen = found.data.and_then(|data| data.get("k").cloned());
            let patch = Patch::Merge(json!({"metadata": {"annotations": {"seen": seen}}}));
            maps.patch(&name, &PatchParams::default(), &patch).await?;
            Ok::<_, anyhow::Error>(())
        }
    });
    let done = reconciled.buffer_unordered(AT_ONCE).take(RECONCILES);
    let done = done.try_fold(0, async |count, ()| Ok(count + 1));
    let count = tokio::time::timeout(Duration::from_secs(120), done).await??;
    ensure!(count == RECONCILES, "only {count} reconciles");
    Ok(began.elapsed())
}

/// Resident memory of a process, in bytes.
fn resident(pid: &str) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next());
    let kilobytes: u64 = kilobytes.context("no VmRSS")?.parse()?;
    Ok(kilobytes * 1024)
}

/// Each median by itself.
fn median(all: &[Measured]) -> Measured {
    fn middle<T: Ord + Copy>(all: &[Measured], of: impl Fn(&Measured) -> T) -> T {
        let mut values: Vec<T> = all.iter().map(of).collect();
        values.sort_unstable();
        values[values.len() / 2]
    }
    Measured {
        first: middle(all, |one| one.first),
        start: middle(all, |one| one.start),
        reconciles: middle(all, |one| one.reconciles),
        memory: middle(all, |one| one.memory),
    }
}

fn table(rows: &[(&str, Measured)]) -> String {
    let mut text = String::from(
        "| server | start | 1,000 reconciles | memory after them |\n| --- | ---: | ---: | ---: |\n",
    );
    for (name, measured) in rows {
        let _ = writeln!(
            text,
            "| {name} | {}{:.1} ms | {:.2} s | {:.0} MiB |",
            measured.first.map_or_else(String::new, |first| {
                format!("first {:.1} ms, then ", first.as_secs_f64() * 1e3)
            }),
            measured.start.as_secs_f64() * 1e3,
            measured.reconciles.as_secs_f64(),
            measured.memory as f64 / f64::from(1 << 20),
        );
    }
    text
}

/// The page with another table.
fn with_table(text: &str, table: &str) -> Result<String> {
    let (before, rest) = text.split_once(BEGIN).context("the page has no table")?;
    let (_, after) = rest.split_once(END).context("the table has no end")?;
    Ok(format!("{before}{BEGIN}{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row *sandbox: speed and size*.
    #[test]
    fn crates_speed_and_size_the_readme_has_the_table_of_the_command() {
        let page = include_str!("../../../crates/sandbox/README.md");
        let changed = with_table(page, "| new |\n").unwrap();
        assert!(changed.contains(&format!("{BEGIN}| new |\n{END}")));
        let rows = [
            "sandbox, in-process",
            "sandbox, as a program",
            "etcd and kube-apiserver",
        ];
        for row in rows {
            assert!(page.contains(&format!("| {row} | ")), "{row}");
        }
        assert!(with_table("no table", "").is_err());
    }

    #[test]
    fn medians_are_of_each_figure() {
        let one = |millis: u64, memory: u64| Measured {
            first: None,
            start: Duration::from_millis(millis),
            reconciles: Duration::from_secs(millis),
            memory,
        };
        let found = median(&[one(3, 1), one(1, 2), one(2, 3)]);
        assert_eq!(found, one(2, 2));
        let text = table(&[("a", found)]);
        assert!(
            text.ends_with("| a | 2.0 ms | 2.00 s | 0 MiB |\n"),
            "{text}"
        );
    }
}
