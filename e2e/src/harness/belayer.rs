//! Belayer as its users run it: a separate process of the built binary.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use tokio::net::{TcpSocket, TcpStream};

use crate::control_plane::Process;
use crate::control_plane::ports::free_ports;
use crate::wait::{SOON, eventually};

const STOP_DEADLINE: Duration = Duration::from_secs(40);

/// The configuration of the controllers, in the scenario's folder.
const CONFIG_FILE: &str = "config.yaml";

/// How to start Belayer.
#[derive(Debug, Clone, Default)]
pub struct BelayerOptions {
    arguments: Vec<String>,
    config: Option<String>,
    kubeconfig: Option<PathBuf>,
    server: Option<SocketAddr>,
    election: Election,
    name: Option<&'static str>,
    role: Role,
    binary: Option<PathBuf>,
}

/// Whether this Belayer takes part in leader election.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Election {
    /// No: after `kill -9` the next process would have to wait for the lease.
    #[default]
    Without,
    /// As the arguments set it.
    With,
}

/// The role of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Role {
    /// The controllers.
    #[default]
    Controllers,
    /// The agent of a node.
    NodeAgent,
}

impl BelayerOptions {
    /// As one of several replicas, with a folder of this name for its log and files.
    pub fn replica(mut self, name: &'static str) -> Self {
        self.election = Election::With;
        self.name = Some(name);
        self
    }

    /// With pvc-protection adding Belayer's own finalizer to PVCs, which it does only if configured.
    pub fn holding_pvcs() -> Self {
        Self::default().argument("--pvc-protection-finalizer=belayer.dev/pvc-protection")
    }

    /// The node agent of this node, instead of the controllers. It needs its own kubeconfig.
    pub fn node_agent(node: &str) -> Self {
        Self {
            role: Role::NodeAgent,
            ..Self::default()
        }
        .argument(&format!("--node-name={node}"))
    }

    /// With one more argument.
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Whether its arguments or its configuration say which controllers run; by default all do.
    fn names_controllers(&self) -> bool {
        let config = self.config.as_deref().unwrap_or_default();
        let mut arguments = self.arguments.iter();
        arguments.any(|argument| argument.starts_with("--controllers"))
            || config.contains("\ncontrollers:")
    }

    /// With this configuration file; the header is added.
    pub fn config(mut self, keys: &str) -> Self {
        self.config = Some(with_head(keys));
        self
    }

    /// With this kubeconfig, instead of that of Belayer's ServiceAccount.
    pub fn kubeconfig(mut self, path: impl Into<PathBuf>) -> Self {
        self.kubeconfig = Some(path.into());
        self
    }

    /// With another binary than the one under test.
    pub fn binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.binary = Some(path.into());
        self
    }

    /// Connects to the API server through this address.
    pub fn through(mut self, server: SocketAddr) -> Self {
        self.server = Some(server);
        self
    }
}

fn with_head(keys: &str) -> String {
    format!("apiVersion: config.belayer.dev/v1alpha1\n{keys}")
}

/// A running Belayer. Dropping it kills it.
#[derive(Debug)]
pub struct Belayer {
    process: Process,
    metrics: SocketAddr,
    debug: SocketAddr,
    dir: PathBuf,
}

impl Belayer {
    /// Starts `binary` without waiting. Its log and files are in `dir`.
    pub(super) fn spawn(
        binary: &Path,
        kubeconfig: &Path,
        dir: &Path,
        options: &BelayerOptions,
    ) -> Result<Self> {
        let dir = &options.name.map_or(dir.to_owned(), |name| dir.join(name));
        fs::create_dir_all(dir)?;
        let [metrics, debug] = free_ports()?;
        let [metrics, debug] =
            [metrics, debug].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let mut kubeconfig = options
            .kubeconfig
            .clone()
            .unwrap_or_else(|| kubeconfig.to_owned());
        if let Some(server) = options.server {
            kubeconfig = rerouted(&kubeconfig, server, dir)?;
        }
        let name = match options.role {
            Role::Controllers => "belayer",
            Role::NodeAgent => "node-agent",
        };
        let mut arguments = match options.role {
            Role::Controllers => vec!["run".to_owned(), format!("--debug-bind-address={debug}")],
            Role::NodeAgent => vec!["node-agent".to_owned()],
        };
        arguments.extend([
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--metrics-bind-address={metrics}"),
        ]);
        let mut own = options.arguments.iter();
        if !own.any(|argument| argument.starts_with("--log-level")) {
            arguments.push("--log-level=debug".to_owned());
        }
        if options.role == Role::Controllers && options.election == Election::Without {
            arguments.push("--leader-elect=false".to_owned());
        }
        if let Some(config) = &options.config {
            let path = dir.join(match options.role {
                Role::Controllers => CONFIG_FILE,
                Role::NodeAgent => "node-agent.yaml",
            });
            fs::write(&path, config)?;
            arguments.push(format!("--config={}", path.display()));
        }
        arguments.extend(options.arguments.iter().cloned());
        if options.role == Role::Controllers && !options.names_controllers() {
            arguments.push("--controllers=*,pod-recreation".to_owned());
        }
        let log = dir.join(format!("{name}.log"));
        let binary = options.binary.as_deref().unwrap_or(binary);
        let process = Process::start(name, binary, arguments, &log)?;
        Ok(Self {
            process,
            metrics,
            debug,
            dir: dir.to_owned(),
        })
    }

    /// Waits until its caches are synced. Fails if it exits or is not ready within 30 s; the error contains its log.
    pub async fn ready(&mut self) -> Result<()> {
        let (metrics, process) = (self.metrics, &mut self.process);
        let ended = async {
            let status = process.wait(SOON * 2).await;
            status.map(|status| status.to_string())
        };
        let ready = eventually("belayer is ready", SOON, async || {
            get(metrics, "/readyz").await.map(drop)
        });
        tokio::select! {
            ready = ready => ready.with_context(|| self.process.log_end()),
            status = ended => bail!("belayer exited: {}\n{}", status?, self.process.log_end()),
        }
    }

    /// Sends SIGTERM, as Kubernetes does, and waits for the exit.
    /// Fails if it does not exit within its grace period, or not with exit code 0.
    pub async fn stop(mut self) -> Result<()> {
        self.process.signal(Signal::TERM)?;
        let status = self.process.wait(STOP_DEADLINE).await?;
        ensure!(
            status.success(),
            "belayer exited with {status}\n{}",
            self.process.log_end()
        );
        ensure!(
            !self.log()?.contains("panicked at"),
            "belayer panicked\n{}",
            self.process.log_end()
        );
        Ok(())
    }

    /// Kills it with SIGKILL.
    pub async fn kill(mut self) -> Result<()> {
        self.process.kill().await
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    /// Limits its memory from now on (`RLIMIT_DATA`): an allocation beyond the limit aborts it, like a
    /// cgroup's limit.
    pub fn limit_memory(&self, bytes: u64) -> Result<()> {
        let pid = self.process.pid().context("belayer has exited")?;
        let pid = Pid::from_raw(i32::try_from(pid)?).context("invalid process id")?;
        let limit = Rlimit {
            current: Some(bytes),
            maximum: Some(bytes),
        };
        prlimit(Some(pid), Resource::Data, limit)?;
        Ok(())
    }

    /// Its peak resident memory, in bytes.
    pub fn peak_memory(&self) -> Result<u64> {
        self.memory("VmHWM:")
    }

    /// Its resident memory, in bytes, and the number of its open file descriptors.
    pub fn usage(&self) -> Result<(u64, usize)> {
        let pid = self.process.pid().context("belayer has exited")?;
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))?.count();
        Ok((self.memory("VmRSS:")?, descriptors))
    }

    fn memory(&self, field: &str) -> Result<u64> {
        let pid = self.process.pid().context("belayer has exited")?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kib = line
            .with_context(|| format!("{field} is missing"))?
            .trim()
            .trim_end_matches(" kB");
        Ok(kib.parse::<u64>()? << 10)
    }

    /// The response of `/livez` or `/readyz`.
    pub async fn probe(&self, path: &str) -> Result<String> {
        get(self.metrics, path).await
    }

    /// Replaces its configuration file as an editor or a mounted ConfigMap does, with a new file of the
    /// same name.
    pub fn reconfigure(&self, keys: &str) -> Result<()> {
        let new = self.dir.join("config.yaml.new");
        fs::write(&new, with_head(keys))?;
        fs::rename(&new, self.dir.join(CONFIG_FILE))?;
        Ok(())
    }

    /// Checks that it is running. If it has exited, the error contains the end of its log.
    pub fn check_running(&mut self) -> Result<()> {
        self.process.check_running()
    }

    /// Waits until it exits by itself.
    pub async fn ended(&mut self, deadline: Duration) -> Result<ExitStatus> {
        self.process.wait(deadline).await
    }

    /// Its log so far.
    pub fn log(&self) -> Result<String> {
        self.process.log()
    }

    /// Waits until its log says that this pod was released because of one of these kinds of evidence.
    pub async fn released_for(&self, namespace: &str, pod: &str, evidence: &[&str]) -> Result<()> {
        let what = format!("the log says why {pod} was released");
        let says =
            |line: &str, key: &str, value: &str| line.contains(&format!("{key}=\"{value}\""));
        eventually(&what, SOON, async || {
            let log = self.log()?;
            let of_pod = |line: &&str| line.contains(&format!(" object={namespace}/{pod} "));
            let mut lines = log.lines().filter(of_pod);
            let reported = lines.any(|line| evidence.iter().any(|one| says(line, "evidence", one)));
            ensure!(reported, "no log line about it names {evidence:?}");
            Ok(())
        })
        .await
    }

    /// The sum of all series of a metric with these labels; an error if there is none.
    pub async fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
        let found = self.found(name, labels).await?;
        found.with_context(|| format!("there is no series {name} with the labels {labels:?}"))
    }

    /// The same for a metric whose series exist only once there is something to count; zero if there is none.
    pub async fn metric_or_zero(&self, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
        Ok(self.found(name, labels).await?.unwrap_or_default())
    }

    async fn found(&self, name: &str, labels: &[(&str, &str)]) -> Result<Option<f64>> {
        let text = get(self.metrics, "/metrics").await?;
        Ok(sum(&text, name, labels))
    }

    /// Whether it is the leader, by its metric; an error if it does not answer.
    pub async fn leads(&self) -> Result<bool> {
        let own = [("name", "belayer")];
        let status = self.metric("leader_election_master_status", &own).await?;
        Ok(status > 0.5)
    }

    /// Waits until a metric has this value: an effect may be seen before it is counted.
    pub async fn counts(&self, name: &str, labels: &[(&str, &str)], value: f64) -> Result<()> {
        eventually(&format!("{name} is {value}"), SOON, async || {
            let now = self.metric(name, labels).await?;
            ensure!((now - value).abs() < f64::EPSILON, "it is {now}");
            Ok(())
        })
        .await
    }

    /// Where its metrics are scraped.
    pub fn metrics_address(&self) -> SocketAddr {
        self.metrics
    }

    /// The response of `/debug/holds`.
    pub async fn holds(&self) -> Result<serde_json::Value> {
        let text = get(self.debug, "/debug/holds").await?;
        serde_json::from_str(&text).with_context(|| format!("/debug/holds returned {text:?}"))
    }
}

/// A copy of the kubeconfig with another server address.
pub(super) fn rerouted(kubeconfig: &Path, server: SocketAddr, dir: &Path) -> Result<PathBuf> {
    let mut read = kube::config::Kubeconfig::read_from(kubeconfig)?;
    for cluster in read
        .clusters
        .iter_mut()
        .filter_map(|named| named.cluster.as_mut())
    {
        let scheme = match &cluster.server {
            Some(old) if old.starts_with("http://") => "http",
            _ => "https",
        };
        cluster.server = Some(format!("{scheme}://{server}"));
    }
    let path = dir.join("rerouted.kubeconfig");
    fs::write(&path, serde_json::to_string(&read)?)?;
    Ok(path)
}

/// The response of an endpoint.
pub async fn get(address: SocketAddr, path: &str) -> Result<String> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let url = format!("http://{address}{path}").parse()?;
    let exchange = async {
        let answer = client.get(url).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        let text = String::from_utf8_lossy(&body).into_owned();
        ensure!(status.is_success(), "{path} returned {status}: {text}");
        Ok(text)
    };
    match tokio::time::timeout(SOON, exchange).await {
        Ok(text) => text,
        Err(_) => bail!("{path} did not respond"),
    }
}

/// The sum of the series of one metric in the text format; `None` if there is no series with these labels.
pub fn sum(text: &str, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let value = |line: &str| -> Option<f64> {
        let (series, value) = line.rsplit_once(' ')?;
        let (own_name, own_labels) = series.split_once('{').unwrap_or((series, ""));
        let has = |(key, value): &(&str, &str)| {
            let pair = format!("{key}=\"{value}\"");
            own_labels
                .trim_end_matches('}')
                .split(',')
                .any(|own| own == pair)
        };
        (own_name == name && labels.iter().all(has)).then(|| value.parse().ok())?
    };
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(value)
        .reduce(|sum, value| sum + value)
}

/// A connection from one of the addresses of this machine's loopback, as from another pod.
pub async fn connect_from(peer: u16, to: SocketAddr) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    let from = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 0, 1, 0)) + u32::from(peer));
    socket.bind((from, 0).into())?;
    socket.connect(to).await.context("connect")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const TEXT: &str = "\
# HELP belayer_holds now held
belayer_holds{controller=\"pod-finalizer\"} 7
belayer_releases_total{controller=\"pod-finalizer\",evidence=\"OwnerGone\"} 3
belayer_releases_total{controller=\"pod-finalizer\",evidence=\"Consumed\"} 2
belayer_holds_added_total 11
";

    #[rstest]
    #[case::one_series("belayer_holds", &[("controller", "pod-finalizer")], Some(7.0))]
    #[case::all_series_are_added_up("belayer_releases_total", &[], Some(5.0))]
    #[case::a_label_picks_one("belayer_releases_total", &[("evidence", "Consumed")], Some(2.0))]
    #[case::a_longer_name_is_another("belayer_holds_added", &[], None)]
    #[case::no_series_has_the_label("belayer_releases_total", &[("evidence", "NoOwner")], None)]
    #[case::without_labels("belayer_holds_added_total", &[], Some(11.0))]
    fn series_are_found(
        #[case] name: &str,
        #[case] labels: &[(&str, &str)],
        #[case] expected: Option<f64>,
    ) {
        assert_eq!(sum(TEXT, name, labels), expected);
    }
}
