//! What a scenario sees of its cluster.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use belayer_sandbox::Faults;
use kube::Client;
use kube::api::{DynamicObject, PostParams};
use serde_json::{Value, json};

use super::belayer::{Belayer, BelayerOptions};
use super::kubectl::Kubectl;
use crate::kinds;
use crate::providers::{Backend, Capability, Recorder};

/// Label of a Node that a scenario made, with the scenario's namespace: removed with it.
pub const OWN_NODE: &str = "e2e.belayer.dev/namespace";

/// What all scenarios of a run have in common.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The built `belayer` binary.
    pub belayer: PathBuf,
    /// A `belayer` binary of an earlier build, for the scenario about upgrades.
    pub old_belayer: Option<PathBuf>,
    /// How long a settled cluster is watched for writes.
    pub quiet: Duration,
    /// How many pods the scenarios about size make.
    pub large: usize,
}

/// One scenario's view of a cluster: a namespace of its own and what can be done in it.
#[derive(Clone)]
pub struct Cluster(Arc<Inner>);

struct Inner {
    backend: Arc<dyn Backend>,
    setting: Setting,
    namespace: String,
    /// Where this scenario's Belayers write their logs.
    dir: PathBuf,
    shared: Option<Arc<Belayer>>,
    more_namespaces: Mutex<Vec<String>>,
    notes: Mutex<Vec<String>>,
}

impl Cluster {
    pub(super) async fn new(
        backend: Arc<dyn Backend>,
        setting: Setting,
        shared: Option<Arc<Belayer>>,
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

    // ---- the cluster itself

    /// A client that may do everything.
    #[must_use]
    pub fn client(&self) -> &Client {
        self.0.backend.client()
    }

    /// The scenario's namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.0.namespace
    }

    /// A second namespace, removed with the first.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn another_namespace(&self, suffix: &str, labels: Value) -> Result<String> {
        let name = format!("{}-{suffix}", self.namespace());
        self.create_namespace(&name, labels).await?;
        lock(&self.0.more_namespaces).push(name.clone());
        Ok(name)
    }

    /// All of them.
    pub(super) fn all_namespaces(&self) -> Vec<String> {
        let mut namespaces = lock(&self.0.more_namespaces).clone();
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
        Ok(())
    }

    /// Whether the provider can do this.
    #[must_use]
    pub fn can(&self, capability: Capability) -> bool {
        self.0.backend.capabilities().contains(&capability)
    }

    /// The cluster behind this view.
    #[must_use]
    pub fn backend(&self) -> &dyn Backend {
        &*self.0.backend
    }

    /// The record of what Belayer sent.
    ///
    /// # Errors
    /// Where there is none: the scenario must name [`Capability::Recorder`] as a need.
    pub fn recorder(&self) -> Result<&dyn Recorder> {
        self.0
            .backend
            .recorder()
            .context("this provider has no record of requests")
    }

    /// Fault injection.
    ///
    /// # Errors
    /// Where there is none: the scenario must name [`Capability::Faults`] as a need.
    pub fn faults(&self) -> Result<&Faults> {
        self.0
            .backend
            .faults()
            .context("this provider cannot inject faults")
    }

    /// What all scenarios of this run have in common.
    #[must_use]
    pub fn setting(&self) -> &Setting {
        &self.0.setting
    }

    /// kubectl, as an admin in the scenario's namespace.
    #[must_use]
    pub fn kubectl(&self) -> Kubectl {
        Kubectl {
            kubeconfig: self.0.backend.admin_kubeconfig().to_owned(),
            namespace: self.namespace().to_owned(),
        }
    }

    /// A folder for the scenario's files.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// A figure or remark that is printed beside the scenario's result.
    pub fn note(&self, text: impl Into<String>) {
        lock(&self.0.notes).push(text.into());
    }

    pub(super) fn notes(&self) -> Vec<String> {
        lock(&self.0.notes).clone()
    }

    // ---- Belayer

    /// The Belayer that shared scenarios have in common.
    ///
    /// # Errors
    /// In a scenario that runs alone.
    pub fn shared_belayer(&self) -> Result<&Belayer> {
        self.0
            .shared
            .as_deref()
            .context("a scenario that runs alone starts its own Belayer")
    }

    /// Starts a Belayer with the default configuration and waits until it is ready.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start_belayer(&self) -> Result<Belayer> {
        self.start_belayer_with(&BelayerOptions::default()).await
    }

    /// The same with other options.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start_belayer_with(&self, options: &BelayerOptions) -> Result<Belayer> {
        let mut belayer = self.spawn_belayer(options)?;
        belayer.ready().await?;
        Ok(belayer)
    }

    /// Starts a Belayer and waits for nothing.
    ///
    /// # Errors
    /// When the binary cannot be run.
    pub fn spawn_belayer(&self, options: &BelayerOptions) -> Result<Belayer> {
        ensure!(
            self.0.shared.is_none(),
            "a second Belayer beside the shared one"
        );
        let kubeconfig = self.0.backend.belayer_kubeconfig();
        Belayer::spawn(&self.0.setting.belayer, kubeconfig, self.dir(), options)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
