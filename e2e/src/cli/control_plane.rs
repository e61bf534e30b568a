//! `belayer-e2e control-plane`: one control plane in the background, owned by a separate process.
//!
//! `up` starts this program again as `serve`, detached. That process owns the programs, writes a state
//! file once all are ready, and stops everything on SIGTERM; if it crashes, the programs are killed
//! with it. `down` ends it by the recorded process id, after checking that this id still belongs to the
//! process that `up` started.

mod leftovers;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

use self::leftovers::leftovers;
use super::run::own_belayer;
use crate::control_plane::{
    Binaries, ControlPlane, Kubernetes, NodeBinaries, Options, RealNodes, cache_dir,
    remove_leftovers,
};
use crate::harness::eventually;

const UP_DEADLINE: Duration = Duration::from_secs(150);
const DOWN_DEADLINE: Duration = Duration::from_secs(60);

/// A real Kubernetes control plane on this machine, without containers
///
/// etcd, kube-apiserver, kube-controller-manager, kube-scheduler and hollow kubelets, which do not
/// run containers. Needs Go 1.26, or KUBEBUILDER_ASSETS with a folder that has the programs. The
/// first build takes about seven minutes on two cores; the programs are kept in $BELAYER_CACHE
/// (by default ~/.cache/belayer) and used by every clone.
#[derive(Debug, Args)]
pub(super) struct ControlPlaneCommand {
    #[command(subcommand)]
    action: Action,

    /// Name of the control plane, if several run at the same time
    #[arg(long, global = true, default_value = "up", value_parser = name, value_name = "NAME")]
    name: String,

    /// The minor version of Kubernetes, from 1.32 to 1.37
    #[arg(long, global = true, default_value = Kubernetes::MAIN.minor(), value_parser = Kubernetes::of, value_name = "MINOR")]
    kubernetes: Kubernetes,
}

fn name(text: &str) -> Result<String> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '-';
    ensure!(
        !text.is_empty() && text.chars().all(good),
        "the name may contain letters, digits and dashes only"
    );
    Ok(text.to_owned())
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Start one in the background and print its kubeconfig
    Up {
        /// Nodes with a hollow kubelet, which does not run containers
        #[arg(long, default_value_t = 1, value_name = "N")]
        nodes: usize,
        /// Real nodes, which run containers; needs root
        #[arg(long)]
        real: bool,
    },
    /// Stop it and remove everything it wrote
    Down,
    /// Print what is running
    Status,
    /// Print `export KUBECONFIG=...`
    Env,
    /// Build the programs, or print their paths
    Build,
    /// Check that no run of real nodes left anything, also one that is ended by a signal
    Leftovers,
    /// Run one in the foreground (started by `up`)
    #[command(hide = true)]
    Serve {
        #[arg(long)]
        state: PathBuf,
        #[arg(long)]
        nodes: usize,
        #[arg(long)]
        real: bool,
    },
}

/// The state that `up` writes for `down`, `status` and `env`.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    /// The process that owns the programs.
    pid: i32,
    kubeconfig: PathBuf,
    dir: PathBuf,
    /// Name and process id of each program.
    programs: Vec<(String, u32)>,
    /// How long the start took.
    #[serde(default)]
    ready_after_seconds: f64,
}

impl ControlPlaneCommand {
    pub(super) async fn execute(self) -> Result<()> {
        let file = format!("{}.json", self.name);
        let file = cache_dir().join("control-plane").join(file);
        let of = |count, real| Nodes {
            count,
            real,
            kubernetes: self.kubernetes,
        };
        match self.action {
            Action::Up { nodes, real } => up(&file, of(nodes, real)).await,
            Action::Down => down(&file).await,
            Action::Status => status(&file).await,
            Action::Env => env(&file),
            Action::Leftovers => leftovers(&file.with_file_name("leftovers.json")).await,
            Action::Build => {
                let binaries = Binaries::of(self.kubernetes)?;
                anstream::println!("{}", binaries.dir().display());
                Ok(())
            }
            Action::Serve { state, nodes, real } => serve(&state, of(nodes, real)).await,
        }
    }
}

/// The nodes of a control plane.
#[derive(Debug, Clone, Copy)]
struct Nodes {
    count: usize,
    real: bool,
    kubernetes: Kubernetes,
}

impl Nodes {
    /// Builds missing programs.
    fn options(self) -> Result<Options> {
        ensure!(
            !self.real || self.kubernetes == Kubernetes::MAIN,
            "real nodes have only one release of Kubernetes, {}",
            Kubernetes::MAIN.minor()
        );
        if !self.real {
            return Ok(Options {
                hollow_nodes: self.count,
                ..Options::default()
            });
        }
        Ok(Options::real(RealNodes {
            binaries: NodeBinaries::find_or_build()?,
            count: self.count,
            belayer: own_belayer()?,
        }))
    }
}

async fn up(file: &Path, nodes: Nodes) -> Result<()> {
    let folder = file.parent().context("the state file has no folder")?;
    fs::create_dir_all(folder)?;
    // Two concurrent calls would each start one, and one of them would be orphaned.
    let turn = File::create(file.with_extension("lock"))?;
    turn.lock()?;
    if let Some(state) = State::running(file)? {
        anstream::eprintln!("already running");
        state.print_env();
        return Ok(());
    }
    // Built in this process, so that its progress is visible.
    Binaries::of(nodes.kubernetes)?;
    nodes.options()?;
    if nodes.real {
        // In this process, so that one sees why it waits, and before the deadline begins.
        remove_leftovers()?;
    }
    let log_path = file.with_extension("log");
    let log = File::create(&log_path)?;
    let mut server = tokio::process::Command::new(std::env::current_exe()?)
        .args([
            "control-plane",
            "serve",
            "--nodes",
            &nodes.count.to_string(),
            "--kubernetes",
            nodes.kubernetes.minor(),
            "--state",
        ])
        .arg(file)
        .args(nodes.real.then_some("--real"))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        // Ctrl-C in this terminal must not reach it.
        .process_group(0)
        .spawn()
        .context("start the control plane process")?;
    let up = eventually("the control plane is up", UP_DEADLINE, async || {
        State::read(file)?.context("the control plane is starting")
    });
    let state = tokio::select! {
        state = up => match state {
            Ok(state) => state,
            Err(error) => {
                // Otherwise it would stay behind as an orphan.
                server.kill().await?;
                return Err(error);
            }
        },
        status = server.wait() => {
            let log = fs::read_to_string(&log_path).unwrap_or_default();
            bail!("the control plane exited with {}\n{log}", status?);
        }
    };
    anstream::eprintln!("ready after {:.1} s", state.ready_after_seconds);
    state.print_env();
    Ok(())
}

async fn down(file: &Path) -> Result<()> {
    let Some(state) = State::running(file)? else {
        anstream::eprintln!("no control plane is running");
        return Ok(());
    };
    state.signal(Signal::TERM)?;
    let ended = eventually("the control plane has stopped", DOWN_DEADLINE, async || {
        ensure!(
            !state.is_belayers(file)?,
            "process {} is running",
            state.pid
        );
        Ok(())
    });
    if ended.await.is_err() {
        // Its programs are killed with it.
        state.signal(Signal::KILL)?;
        fs::remove_dir_all(&state.dir).ok();
    }
    fs::remove_file(file).ok();
    anstream::eprintln!("down");
    Ok(())
}

async fn status(file: &Path) -> Result<()> {
    let Some(state) = State::running(file)? else {
        anstream::println!("down");
        return Ok(());
    };
    let client = crate::control_plane::client(&state.kubeconfig).await?;
    let version = client
        .apiserver_version()
        .await
        .context("the API server does not respond")?;
    anstream::println!(
        "up: Kubernetes {}, KUBECONFIG={}",
        version.git_version,
        state.kubeconfig.display()
    );
    for (name, pid) in &state.programs {
        anstream::println!("  {name:<26} pid {pid}");
    }
    anstream::println!("  logs in {}", state.dir.display());
    Ok(())
}

fn env(file: &Path) -> Result<()> {
    match State::running(file)? {
        Some(state) => state.print_env(),
        None => bail!("no control plane is running: run `cargo xtask control-plane up`"),
    }
    Ok(())
}

async fn serve(file: &Path, nodes: Nodes) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let binaries = Binaries::of(nodes.kubernetes)?;
    let plane = ControlPlane::start(&binaries, &nodes.options()?).await?;
    let state = State {
        pid: i32::try_from(std::process::id())?,
        kubeconfig: plane.admin_path().to_owned(),
        dir: plane.dir().to_owned(),
        programs: plane.programs().await,
        ready_after_seconds: plane.started_in().as_secs_f64(),
    };
    state.write(file)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    fs::remove_file(file).ok();
    plane.stop().await
}

impl State {
    fn read(file: &Path) -> Result<Option<Self>> {
        match fs::read(file) {
            Ok(bytes) => Ok(Some(
                serde_json::from_slice(&bytes).context("read the state file")?,
            )),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The state, unless its process has exited. A stale file is removed.
    fn running(file: &Path) -> Result<Option<Self>> {
        let Some(state) = Self::read(file)? else {
            return Ok(None);
        };
        if state.is_belayers(file)? {
            return Ok(Some(state));
        }
        fs::remove_file(file).ok();
        Ok(None)
    }

    /// Renamed into place, so that readers never see a partial file.
    fn write(&self, file: &Path) -> Result<()> {
        let unfinished = file.with_extension("tmp");
        fs::write(&unfinished, serde_json::to_vec_pretty(self)?)?;
        fs::rename(unfinished, file).context("write the state file")
    }

    /// Whether the recorded process id belongs to the process that was started for this state file,
    /// and not to a later process with the same id.
    fn is_belayers(&self, file: &Path) -> Result<bool> {
        let pid = self.pid.to_string();
        let output = std::process::Command::new("ps")
            .args(["-ww", "-o", "command=", "-p", &pid])
            .output();
        let command = String::from_utf8_lossy(&output.context("run ps")?.stdout).into_owned();
        Ok(
            command.contains("control-plane serve")
                && command.contains(&file.display().to_string()),
        )
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.pid).context("the state file has no valid process id")?;
        kill_process(pid, signal).context("signal the control plane process")
    }

    fn print_env(&self) {
        anstream::println!("export KUBECONFIG={}", self.kubeconfig.display());
    }
}
