//! A scenario's view of its cluster.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use belayer_sandbox::Faults;
use kube::Client;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::process::Command;

use super::belayer::{Belayer, BelayerOptions};
use crate::control_plane::client;
use crate::kinds;
use crate::kubectl::Kubectl;
use crate::output::Output;
use crate::providers::{Backend, Capability, Mark, Recorder, Request};
use crate::wait::{SOON, eventually};

pub use crate::providers::OWN_NODE;

/// Belayer's namespace.
pub const HOME: &str = "belayer-system";

/// Timeout of a script.
const SCRIPT_DEADLINE: Duration = Duration::from_secs(600);

/// What all scenarios of a run have in common.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The built `belayer` binary.
    pub belayer: PathBuf,
    /// How long a settled cluster is watched for writes.
    pub quiet: Duration,
    /// How many pods the size scenarios create.
    pub large: usize,
}

/// The Belayer of scenarios that share one.
pub(super) enum Shared {
    /// An exclusive scenario starts its own.
    None,
    /// A process of the harness.
    Process(Arc<Belayer>),
    /// Pods of the shipped manifests.
    Pods,
}

/// One scenario's view of a cluster, with its own namespace.
#[derive(Clone)]
pub struct Cluster(Arc<Inner>);

struct Inner {
    backend: Arc<dyn Backend>,
    setting: Setting,
    namespace: String,
    /// Folder of the logs of this scenario's Belayers.
    dir: PathBuf,
    shared: Shared,
    more_namespaces: Mutex<Vec<String>>,
    notes: Mutex<Vec<String>>,
}

impl Cluster {
    pub(super) async fn new(
        backend: Arc<dyn Backend>,
        setting: Setting,
        shared: Shared,
        namespace: &str,
        dir: PathBuf,
    ) -> Result<Self> {
        std::fs::create_dir_all(&dir)?;
        let cluster = Self(Arc::new(Inner {
            backend,
            setting,
            namespace: namespace.to_owned(),
            dir,
            shared,
            more_namespaces: Mutex::default(),
            notes: Mutex::default(),
        }));
        cluster.create_namespace(namespace, json!({})).await?;
        Ok(cluster)
    }

    /// Another scenario's view of the same cluster, in which Belayer runs as pods.
    pub(crate) async fn beside(&self, name: &str) -> Result<Self> {
        let (backend, setting) = (self.shared_backend(), self.0.setting.clone());
        let dir = self.dir().join(name);
        Self::new(backend, setting, Shared::Pods, &format!("e2e-{name}"), dir).await
    }

    // ---- the cluster itself

    /// A client with all permissions.
    pub fn client(&self) -> &Client {
        self.0.backend.client()
    }

    /// The address of the API server, as Belayer's kubeconfig has it.
    pub fn server_address(&self) -> Result<SocketAddr> {
        let read = kube::config::Kubeconfig::read_from(self.0.backend.belayer_kubeconfig())?;
        let mut clusters = read.clusters.into_iter();
        let server = clusters.find_map(|named| named.cluster?.server);
        let server = server.context("the kubeconfig has no server")?;
        let address = server
            .trim_start_matches("https://")
            .trim_start_matches("http://");
        let address = address.trim_end_matches('/').parse();
        address.with_context(|| format!("invalid address of the API server: {server}"))
    }

    /// The scenario's namespace.
    pub fn namespace(&self) -> &str {
        &self.0.namespace
    }

    /// Creates a second namespace, removed with the first.
    pub async fn another_namespace(&self, suffix: &str, labels: Value) -> Result<String> {
        let name = format!("{}-{suffix}", self.namespace());
        self.create_namespace(&name, labels).await?;
        self.0.more_namespaces.lock().push(name.clone());
        Ok(name)
    }

    /// The data of the gate.
    pub async fn gate(&self) -> Result<Value> {
        let gate = kinds::gates(self.client(), HOME)
            .get("belayer-gate")
            .await?;
        Ok(gate.data["data"].clone())
    }

    /// Waits until this key of the gate has this value.
    pub async fn gate_shows(&self, key: &str, expected: &str) -> Result<()> {
        eventually(
            &format!("{key} of the gate is {expected}"),
            SOON,
            async || {
                let gate = self.gate().await?;
                ensure!(gate[key] == expected, "{gate}");
                Ok(())
            },
        )
        .await
    }

    /// All namespaces of the scenario.
    pub(super) fn all_namespaces(&self) -> Vec<String> {
        let mut namespaces = self.0.more_namespaces.lock().clone();
        namespaces.push(self.namespace().to_owned());
        namespaces
    }

    async fn create_namespace(&self, name: &str, labels: Value) -> Result<()> {
        let document = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": { "name": name, "labels": labels },
        });
        let namespace: DynamicObject = serde_json::from_value(document)?;
        let api = kinds::namespaces(self.client());
        api.create(&PostParams::default(), &namespace)
            .await
            .context("create a namespace")?;
        if !self.can(Capability::RealNode) {
            return Ok(());
        }
        let accounts = kinds::service_accounts(self.client(), name);
        let what = "pods can be created in the namespace";
        eventually(what, SOON, async || Ok(accounts.get("default").await?)).await?;
        Ok(())
    }

    /// Whether the provider has this capability.
    pub fn can(&self, capability: Capability) -> bool {
        self.0.backend.capabilities().contains(&capability)
    }

    /// The cluster behind this view.
    pub fn backend(&self) -> &dyn Backend {
        &*self.0.backend
    }

    pub(super) fn shared_backend(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.0.backend)
    }

    /// The record of Belayer's requests. A scenario that calls it must declare [`Capability::Recorder`].
    pub fn recorder(&self) -> Result<&dyn Recorder> {
        self.0
            .backend
            .recorder()
            .context("this provider has no record of requests")
    }

    /// All of Belayer's mutating requests since the mark, once its process has ended. The record may name a request later
    /// than its effect is visible: this sends one more with Belayer's account, which changes nothing, waits until the
    /// record has it, and leaves it out.
    pub async fn all_writes_since(&self, mark: Mark) -> Result<Vec<Request>> {
        let belayer = client(self.0.backend.belayer_kubeconfig()).await?;
        let name = format!("none-{}", jiff::Timestamp::now().as_nanosecond());
        let (options, nothing) = (PatchParams::default(), Patch::Merge(json!({})));
        let pods = kinds::pods(&belayer, self.namespace());
        let patched = pods.patch(&name, &options, &nothing).await;
        ensure!(
            matches!(&patched, Err(kube::Error::Api(status)) if status.code == 404),
            "a patch of a pod that does not exist returned {patched:?}"
        );
        let last = format!("{}/{name}", self.namespace());
        eventually("the record has the last request", SOON, async || {
            let mut writes = self.recorder()?.writes_since(mark)?;
            let at = writes.iter().position(|write| write.object == last);
            writes.remove(at.context("it does not")?);
            Ok(writes)
        })
        .await
    }

    /// Fault injection. A scenario that calls it must declare [`Capability::Faults`].
    pub fn faults(&self) -> Result<&Faults> {
        self.0
            .backend
            .faults()
            .context("this provider cannot inject faults")
    }

    /// Settings shared by all scenarios of this run.
    pub fn setting(&self) -> &Setting {
        &self.0.setting
    }

    /// kubectl, as an admin in the scenario's namespace.
    pub fn kubectl(&self) -> Kubectl {
        Kubectl {
            kubeconfig: self.0.backend.admin_kubeconfig().to_owned(),
            namespace: self.namespace().to_owned(),
        }
    }

    /// Runs a script with bash, as an admin. Returns its output.
    /// Fails if the script fails (the error contains its output) or does not exit within ten minutes.
    pub async fn sh(&self, script: &str) -> Result<String> {
        let mut bash = Command::new("bash");
        bash.args(["-u", "-c", script])
            .env("KUBECONFIG", self.0.backend.admin_kubeconfig())
            .env("KUBECACHEDIR", self.dir().join("kubectl-cache"));
        let output = Output::of(&mut bash, SCRIPT_DEADLINE).await?.success()?;
        Ok(output.printed())
    }

    /// A folder for the scenario's files.
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// Adds a figure or remark that is printed with the scenario's result.
    pub fn note(&self, text: impl Into<String>) {
        self.0.notes.lock().push(text.into());
    }

    pub(super) fn notes(&self) -> Vec<String> {
        self.0.notes.lock().clone()
    }

    // ---- Belayer

    /// Runs a command of the program that ends soon, with this kubeconfig.
    pub async fn belayer(&self, kubeconfig: &Path, arguments: &[&str]) -> Result<Output> {
        Output::of(&mut self.belayer_command(kubeconfig, arguments), SOON).await
    }

    /// A command of the program, with this kubeconfig.
    pub fn belayer_command(&self, kubeconfig: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.setting().belayer);
        command
            .args(arguments)
            .env("KUBECONFIG", kubeconfig)
            .env_remove("BELAYER_CONFIG");
        command
    }

    /// The Belayer of the shared scenarios. Fails in an exclusive scenario, and where Belayer runs as pods.
    pub fn shared_belayer(&self) -> Result<&Belayer> {
        match &self.0.shared {
            Shared::Process(belayer) => Ok(belayer),
            Shared::Pods => bail!("Belayer is not a process of the harness"),
            Shared::None => bail!("an exclusive scenario has to start its own Belayer"),
        }
    }

    /// Waits until the log of the Belayer of the shared scenarios says that this pod was released because of one of these
    /// kinds of evidence. Does nothing where Belayer runs as pods, which log less. Fails in an exclusive scenario.
    pub async fn released_for(&self, pod: &str, evidence: &[&str]) -> Result<()> {
        if let Shared::Pods = self.0.shared {
            return Ok(());
        }
        let belayer = self.shared_belayer()?;
        belayer.released_for(self.namespace(), pod, evidence).await
    }

    /// Starts a Belayer with the default configuration and waits until it is ready.
    pub async fn start_belayer(&self) -> Result<Belayer> {
        self.start_belayer_with(&BelayerOptions::default()).await
    }

    /// The same with other options.
    pub async fn start_belayer_with(&self, options: &BelayerOptions) -> Result<Belayer> {
        let mut belayer = self.spawn_belayer(options)?;
        belayer.ready().await?;
        Ok(belayer)
    }

    /// Starts a Belayer without waiting.
    pub fn spawn_belayer(&self, options: &BelayerOptions) -> Result<Belayer> {
        ensure!(
            matches!(self.0.shared, Shared::None),
            "a shared scenario must not start a second Belayer"
        );
        let kubeconfig = self.0.backend.belayer_kubeconfig();
        Belayer::spawn(&self.0.setting.belayer, kubeconfig, self.dir(), options)
    }
}
