//! The API server's own metrics of requests and CPU time.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kube::api::{DynamicObject, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use super::measure::cpu_of;
use belayer_core::client;
use belayer_e2e::control_plane::{ControlPlane, service_account_kubeconfig};
use belayer_e2e::kinds::{self, Objects};

/// Its name in a control plane.
pub(crate) const API_SERVER: &str = "kube-apiserver";

/// For how long a program that is idle uses little CPU time.
pub(crate) const QUIET: Duration = Duration::from_secs(3);

/// How often that is measured.
const SECOND: Duration = Duration::from_secs(1);

/// How long a program may take until it is idle.
const DEADLINE: Duration = Duration::from_secs(300);

/// Requests and bytes by verb, since the server's start or as a difference.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Traffic {
    requests: BTreeMap<String, f64>,
    bytes: BTreeMap<String, f64>,
}

impl Traffic {
    /// All requests so far for one resource, such as `pods`.
    pub(crate) async fn of(client: &Client, resource: &str) -> Result<Self> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let text = client.request_text(request).await.context("/metrics")?;
        Ok(Self::read(&text, resource))
    }

    fn read(text: &str, resource: &str) -> Self {
        let mut traffic = Self::default();
        for line in text.lines() {
            let Some((series, value)) = line.rsplit_once(' ') else {
                continue;
            };
            let into = if series.starts_with("apiserver_request_total{") {
                &mut traffic.requests
            } else if series.starts_with("apiserver_response_sizes_sum{") {
                &mut traffic.bytes
            } else {
                continue;
            };
            if label(series, "resource") != Some(resource) {
                continue;
            }
            if let (Some(verb), Ok(value)) = (label(series, "verb"), value.parse::<f64>()) {
                *into.entry(verb.to_owned()).or_default() += value;
            }
        }
        traffic
    }

    /// The difference since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let difference = |now: &BTreeMap<String, f64>, then: &BTreeMap<String, f64>| {
            now.iter()
                .map(|(verb, count)| (verb.clone(), count - then.get(verb).copied().unwrap_or(0.0)))
                .filter(|(_, count)| *count > 0.0)
                .collect()
        };
        Self {
            requests: difference(&self.requests, &before.requests),
            bytes: difference(&self.bytes, &before.bytes),
        }
    }

    /// How many requests of a verb, such as `PATCH`.
    pub(crate) fn requests(&self, verb: &str) -> f64 {
        self.requests.get(verb).copied().unwrap_or(0.0)
    }

    /// Such as `9999 PATCH, 20 LIST; 12.3 MB`.
    pub(crate) fn summary(&self) -> String {
        let requests: Vec<_> = self
            .requests
            .iter()
            .map(|(verb, count)| format!("{count} {verb}"))
            .collect();
        let bytes: f64 = self.bytes.values().sum();
        format!("{}; {:.1} MB", requests.join(", "), bytes / 1e6)
    }
}

fn label<'a>(series: &'a str, name: &str) -> Option<&'a str> {
    let (_, labels) = series.split_once('{')?;
    labels.trim_end_matches('}').split(',').find_map(|pair| {
        let (have, value) = pair.split_once('=')?;
        (have == name).then(|| value.trim_matches('"'))
    })
}

/// The name of the [`Account`].
pub(crate) const ACCOUNT: &str = "releaser";

/// A ServiceAccount with all permissions: priority and fairness never limits the admin.
pub(crate) struct Account {
    pub(crate) kubeconfig: PathBuf,
    pub(crate) client: Client,
}

impl Account {
    /// Creates it in this namespace.
    pub(crate) async fn create(plane: &ControlPlane, namespace: &str) -> Result<Self> {
        let admin = plane.client();
        let account = json!({ "metadata": { "name": ACCOUNT } });
        create(&kinds::service_accounts(admin, namespace), account).await?;
        let binding = json!({
            "metadata": { "name": ACCOUNT },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace }],
        });
        create(&kinds::cluster_role_bindings(admin), binding).await?;
        let kubeconfig = plane.dir().join("account.kubeconfig");
        service_account_kubeconfig(admin, plane.admin(), namespace, ACCOUNT, &kubeconfig).await?;
        let known = Kubeconfig::read_from(&kubeconfig)?;
        let config = Config::from_custom_kubeconfig(known, &KubeConfigOptions::default()).await?;
        let client = client::connect_apart(config, "belayer-bench")?;
        Ok(Self { kubeconfig, client })
    }
}

/// Creates an object.
pub(crate) async fn create(objects: &Objects, object: Value) -> Result<DynamicObject> {
    let object = serde_json::from_value(object)?;
    Ok(objects.create(&PostParams::default(), &object).await?)
}

/// CPU time of the API server so far, in seconds.
pub(crate) async fn server_cpu(plane: &ControlPlane) -> Result<f64> {
    let programs = plane.programs().await;
    let server = programs.iter().find(|(name, _)| *name == API_SERVER);
    let (_, pid) = server.context("kube-apiserver is not running")?;
    cpu_of(*pid).map(|cpu| cpu.as_secs_f64())
}

/// Waits until a program of the control plane is idle: it used less than a tenth of a CPU for [`QUIET`].
pub(crate) async fn settled(plane: &ControlPlane, program: &str) -> Result<()> {
    let pid = plane
        .pid_of(program)
        .await
        .context("the process has exited")?;
    let started = Instant::now();
    let mut quiet = Duration::ZERO;
    let mut before = cpu_of(pid)?;
    while quiet < QUIET {
        tokio::time::sleep(SECOND).await;
        let now = cpu_of(pid)?;
        let idle = now.saturating_sub(before) < SECOND / 10;
        quiet = if idle { quiet + SECOND } else { Duration::ZERO };
        before = now;
        if started.elapsed() > DEADLINE {
            bail!("{program} does not become idle");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = r#"
apiserver_request_total{code="200",resource="pods",verb="PATCH"} 3
apiserver_request_total{code="200",resource="claims",verb="PATCH"} 100
"#;
    const AFTER: &str = r#"
# HELP x
apiserver_request_total{code="200",resource="pods",verb="PATCH"} 10
apiserver_request_total{code="409",resource="pods",verb="PATCH"} 2
apiserver_request_total{code="200",resource="pods",verb="LIST"} 1
apiserver_request_total{code="200",resource="claims",verb="PATCH"} 200
apiserver_response_sizes_sum{group="",resource="pods",verb="LIST"} 2.5e+06
"#;

    #[test]
    fn requests_are_counted_by_verb_since_before() {
        let traffic = Traffic::read(AFTER, "pods").since(&Traffic::read(BEFORE, "pods"));
        assert_eq!(traffic.requests("PATCH"), 9.0);
        assert_eq!(traffic.requests("DELETE"), 0.0);
        assert_eq!(traffic.summary(), "1 LIST, 9 PATCH; 2.5 MB");
    }
}
