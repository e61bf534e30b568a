//! `serve`: a cluster on a loopback port, until a signal stops it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use belayer_sandbox::{FaultPlan, FaultPlanError, FixtureError, Listener, Sandbox};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{Name, Serve};

/// The first line of a kubeconfig that may be overwritten.
const MARK: &str = "# Written by belayer-sandbox; good for as long as it runs.";

/// Why the server cannot run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// The port cannot be bound.
    #[error("cannot listen on 127.0.0.1:{port}: {source}")]
    Listen { port: u16, source: io::Error },
    /// A file cannot be written.
    #[error("cannot write the kubeconfig {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// The signal handlers cannot be installed.
    #[error("cannot install signal handlers: {0}")]
    Signals(io::Error),
    /// The kubeconfig path is a file of another program.
    #[error("{} exists and was not written by belayer-sandbox: choose another file with --kubeconfig", .0.display())]
    OtherFile(PathBuf),
    /// The objects to load are invalid.
    #[error("--load: {0}")]
    Fixtures(#[from] FixtureError),
    /// The faults are invalid.
    #[error("--faults {}: {error}", path.display())]
    Faults {
        path: PathBuf,
        error: FaultPlanError,
    },
}

impl ServeError {
    /// 2 if the command line or a file has to be corrected, else 1.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Listen { .. } | Self::Write { .. } | Self::Signals(_) => 1,
            Self::OtherFile(_) | Self::Fixtures(_) | Self::Faults { .. } => 2,
        }
    }
}

pub(crate) async fn serve(options: Serve) -> Result<(), ServeError> {
    // Before the banner is printed: from then on a signal may arrive.
    let mut terminated = signal(SignalKind::terminate()).map_err(ServeError::Signals)?;
    let mut interrupted = signal(SignalKind::interrupt()).map_err(ServeError::Signals)?;
    let plan = match &options.faults {
        None => FaultPlan::default(),
        Some(path) => FaultPlan::read(path).map_err(|error| ServeError::Faults {
            path: path.clone(),
            error,
        })?,
    };
    check_kubeconfig(&options.kubeconfig)?;
    let seed = options.seed;
    let mut builder = Sandbox::builder().controllers(options.to_start());
    if let Some(seed) = seed {
        // Users of kubectl expect today's date even with a seed.
        builder = builder.seed(seed).epoch(belayer_sandbox::Epoch::WallClock);
    }
    let sandbox = builder.build();
    let mut loaded = 0;
    for path in &options.load {
        loaded += sandbox.load(path)?.len();
    }
    let address = SocketAddr::from(([127, 0, 0, 1], options.port));
    let listener = sandbox
        .listen(address)
        .await
        .map_err(|source| ServeError::Listen {
            port: options.port,
            source,
        })?;
    let kubeconfig = write_kubeconfig(&options.kubeconfig, &listener)?;
    sandbox.follow(&plan);
    let began = tokio::time::Instant::now();
    print!(
        "{}",
        banner(&options, &listener, loaded, &plan, &kubeconfig)
    );
    tokio::select! {
        biased;
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
    }
    let served = sandbox.recorder();
    let requests: u64 = served
        .actors()
        .iter()
        .flat_map(|actor| served.requests_by(actor.as_str()).into_values())
        .sum();
    println!(
        "\nstopped after {}: {requests} requests, {} writes",
        human(began.elapsed()),
        served.len()
    );
    Ok(())
}

fn human(time: std::time::Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

fn check_kubeconfig(path: &Path) -> Result<(), ServeError> {
    match fs::read_to_string(path) {
        Ok(text) if !text.starts_with(MARK) => Err(ServeError::OtherFile(path.to_owned())),
        _ => Ok(()),
    }
}

fn write_kubeconfig(path: &Path, listener: &Listener) -> Result<PathBuf, ServeError> {
    let failed = |source| ServeError::Write {
        path: path.to_owned(),
        source,
    };
    fs::write(path, format!("{MARK}\n{}", listener.kubeconfig())).map_err(failed)?;
    std::path::absolute(path).map_err(failed)
}

fn banner(
    options: &Serve,
    listener: &Listener,
    loaded: usize,
    plan: &FaultPlan,
    kubeconfig: &Path,
) -> String {
    let chosen = options.chosen();
    let controllers: Vec<String> = chosen
        .iter()
        .map(|name| match name {
            Name::Kubelet => format!("kubelet ({} nodes)", options.nodes),
            other => other.to_string(),
        })
        .collect();
    let controllers = if controllers.is_empty() {
        "none: pods stay pending and dependents are not collected".to_owned()
    } else {
        controllers.join(", ")
    };
    let mut lines = vec![
        format!("The sandbox serves at {}", listener.url()),
        format!("  controllers {controllers}"),
    ];
    if let Some(seed) = options.seed {
        lines.push(format!("  seed        {seed}"));
    }
    if !options.load.is_empty() {
        let s = if loaded == 1 { "" } else { "s" };
        lines.push(format!("  loaded      {loaded} object{s}"));
    }
    if options.faults.is_some() {
        lines.push(format!(
            "  faults      {} in force, {} planned",
            plan.faults(),
            plan.steps()
        ));
    }
    lines.push(String::new());
    lines.push(format!("  export KUBECONFIG={}", kubeconfig.display()));
    lines.push(String::new());
    lines.push("Ctrl-C stops it; nothing is kept.\n".to_owned());
    lines.join("\n")
}
