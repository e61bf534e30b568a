//! Other clients: a client-go informer behaves the same on every provider.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use belayer_sandbox::{Answer, Fault, Match};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::harness::{Cluster, NO_SCHEDULER, Proxy, SOON, Scenario};
use crate::peers::Peer;
use crate::providers::Capability::ClientGo;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "client-go-informer",
            "a client-go shared informer with resync, through a lost watch and a 410",
            informer,
        )
        .needs([ClientGo])
        // The first run builds it.
        .within(Duration::from_secs(900)),
    ]
}

/// A line that the informer prints.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Seen {
    event: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    data: String,
    #[serde(default)]
    resync: bool,
}

struct Running {
    _child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    async fn start(cluster: &Cluster, proxy: &Proxy) -> Result<Self> {
        let program = tokio::task::spawn_blocking(|| Peer::Informer.find_or_build()).await??;
        let kubeconfig = through(cluster, proxy)?;
        let path = cluster.dir().join("informer.kubeconfig");
        std::fs::write(&path, kubeconfig)?;
        let mut child = Command::new(program)
            .args(["--namespace", cluster.namespace(), "--resync", "5s"])
            .env("KUBECONFIG", &path)
            // It exits when its standard input is closed.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(cluster.dir().join("informer.log"))?)
            .kill_on_drop(true)
            .spawn()
            .context("start the informer")?;
        let out = child.stdout.take().context("the informer's output")?;
        Ok(Self {
            _child: child,
            lines: BufReader::new(out).lines(),
        })
    }

    /// Reads until this event. Resyncs in between are skipped; any other event of the object is an error.
    async fn sees(&mut self, event: &str, name: &str, data: &str) -> Result<()> {
        let wanted = format!("{event} {name} {data}");
        let search = async {
            while let Some(line) = self.lines.next_line().await? {
                let seen: Seen = serde_json::from_str(&line).context(line)?;
                if seen.resync || seen.name != name {
                    continue;
                }
                if seen.event == event && seen.data == data {
                    return Ok(());
                }
                // A deletion may be preceded by an update.
                if event == "delete" && seen.event == "update" {
                    continue;
                }
                bail!("the informer saw {seen:?} instead of {wanted}");
            }
            bail!("the informer ended before it saw {wanted}")
        };
        let found = tokio::time::timeout(SOON, search).await;
        found.with_context(|| format!("the informer did not see {wanted}"))?
    }

    async fn resyncs(&mut self, name: &str) -> Result<()> {
        let search = async {
            while let Some(line) = self.lines.next_line().await? {
                let seen: Seen = serde_json::from_str(&line).context(line)?;
                if seen.resync && seen.name == name {
                    return Ok(());
                }
            }
            bail!("the informer ended before a resync")
        };
        let found = tokio::time::timeout(SOON, search).await;
        found.context("no resync")?
    }
}

/// The admin's kubeconfig, with the proxy as the server.
fn through(cluster: &Cluster, proxy: &Proxy) -> Result<String> {
    let text = std::fs::read_to_string(cluster.backend().admin_kubeconfig())?;
    let server = server_of(&text)?;
    Ok(text.replace(&server.to_string(), &proxy.address().to_string()))
}

fn server_of(kubeconfig: &str) -> Result<SocketAddr> {
    let kubeconfig: Value = serde_saphyr::from_str(kubeconfig)?;
    let url = kubeconfig["clusters"][0]["cluster"]["server"]
        .as_str()
        .context("the kubeconfig has no server")?;
    let address = url.rsplit('/').next().unwrap_or_default();
    address
        .parse()
        .with_context(|| format!("invalid address in {url}"))
}

struct Maps(Api<DynamicObject>);

impl Maps {
    fn of(cluster: &Cluster) -> Self {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
        let client = cluster.client().clone();
        Self(Api::namespaced_with(client, cluster.namespace(), &kind))
    }

    async fn create(&self, name: &str) -> Result<()> {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name }, "data": { "value": "1" },
        });
        let map = serde_json::from_value(map)?;
        self.0.create(&PostParams::default(), &map).await?;
        Ok(())
    }

    async fn set(&self, name: &str, value: &str) -> Result<()> {
        let patch = Patch::Merge(json!({ "data": { "value": value } }));
        self.0.patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.0.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }
}

async fn informer(cluster: Cluster) -> Result<()> {
    let maps = Maps::of(&cluster);
    maps.create("before").await?;
    maps.create("short").await?;
    let text = std::fs::read_to_string(cluster.backend().admin_kubeconfig())?;
    let proxy = Proxy::start(server_of(&text)?).await?;
    let mut informer = Running::start(&cluster, &proxy).await?;
    informer.sees("add", "before", "1").await?;

    // Add, update, delete, of both kinds.
    maps.create("live").await?;
    informer.sees("add", "live", "1").await?;
    maps.set("live", "2").await?;
    informer.sees("update", "live", "2").await?;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "pod" },
        "spec": {
            "automountServiceAccountToken": false,
            "schedulerName": NO_SCHEDULER,
            "containers": [{ "name": "main", "image": "busybox" }],
        },
    });
    let pods = cluster.pods();
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?)
        .await?;
    informer.sees("add", "pod", "Pending").await?;
    pods.delete("pod", &DeleteParams::default()).await?;
    informer.sees("delete", "pod", "Pending").await?;
    informer.resyncs("live").await?;

    // The watch is lost; changes in the meantime are still seen.
    proxy.cut();
    maps.set("live", "3").await?;
    maps.delete("short").await?;
    maps.create("meanwhile").await?;
    proxy.restore();
    informer.sees("update", "live", "3").await?;
    informer.sees("delete", "short", "1").await?;
    informer.sees("add", "meanwhile", "1").await?;

    // The server has compacted its version: it lists again and finds the deletion.
    match cluster.faults() {
        Err(_) => cluster.note("without a 410: this provider cannot inject one"),
        Ok(faults) => {
            let watches = Match::watches()
                .resource("configmaps")
                .namespace(cluster.namespace());
            let expired = faults.inject(Fault::on(watches).times(1).answer(Answer::gone()));
            proxy.cut();
            maps.delete("meanwhile").await?;
            maps.set("live", "4").await?;
            proxy.restore();
            informer.sees("delete", "meanwhile", "1").await?;
            ensure!(expired.hits() == 1, "no request got the 410");
        }
    }
    maps.delete("live").await?;
    Ok(())
}
