//! T5: any pod may connect to the address of metrics. Who reads them is up to the API server, if that is switched on.

use std::fs;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use kube::{Client, Config};

use crate::harness::belayer::connect_from;
use crate::harness::{BelayerOptions, Cluster, SOON, Scenario, eventually, pod};
use crate::providers::Capability::{Kubectl, Rbac};
use crate::providers::{apply, manifest};

/// Connections that send nothing, and the addresses that they come from.
const CONNECTIONS: u16 = 5000;
const PEERS: u16 = 50;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "hostile-connections",
            "5,000 idle connections keep neither probes nor scrapes nor releases from being answered (T5)",
            connections,
        ),
        Scenario::alone(
            "metrics-are-authorized",
            "over TLS, and only for accounts that may get /metrics; probes are open (T5)",
            authorized,
        )
        .needs([Kubectl, Rbac]),
    ]
}

async fn connections(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer().await?;
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("a").of(&workflow)).await?;
    cluster.is_held("a").await?;
    let before = belayer.peak_memory()? >> 20;
    let mut idle = Vec::new();
    for index in 0..CONNECTIONS {
        idle.push(connect_from(index % PEERS, belayer.metrics_address()).await?);
        if index % 500 == 0 {
            belayer.probe("/livez").await?;
            belayer.metric("belayer_holds", &[]).await?;
        }
    }
    cluster.finish("a", "Succeeded").await?;
    cluster.consume("a").await?;
    cluster.delete("a").await?;
    cluster.is_not_held("a").await?;
    belayer.probe("/readyz").await?;
    let added = (belayer.peak_memory()? >> 20).saturating_sub(before);
    ensure!(added < 64, "{added} MiB resident more than before");
    cluster.note(format!("{added} MiB resident more than before"));
    drop(idle);
    belayer.stop().await
}

async fn authorized(cluster: Cluster) -> Result<()> {
    apply(cluster.client(), &manifest("rbac-metrics-authorization")?).await?;
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    let [certificate, key] = ["tls.crt", "tls.key"].map(|name| cluster.dir().join(name));
    fs::write(&certificate, made.cert.pem())?;
    fs::write(&key, made.signing_key.serialize_pem())?;
    let options = BelayerOptions::default()
        .argument(&format!("--tls-cert-file={}", certificate.display()))
        .argument(&format!("--tls-private-key-file={}", key.display()))
        .argument("--metrics-authorization");
    let belayer = cluster.spawn_belayer(&options)?;
    let namespace = cluster.namespace().to_owned();
    let role = format!("{namespace}-metrics");
    cluster
        .sh(&format!(
            "set -e; for name in prometheus other; do kubectl -n {namespace} create serviceaccount $name; done
            kubectl create clusterrole {role} --verb=get --non-resource-url=/metrics
            kubectl create clusterrolebinding {role} --clusterrole={role} --serviceaccount={namespace}:prometheus"
        ))
        .await?;
    let shown = each(&cluster, belayer.metrics_address(), made.cert.der()).await;
    cluster
        .sh(&format!(
            "kubectl delete clusterrolebinding,clusterrole {role}"
        ))
        .await?;
    shown?;
    belayer.stop().await
}

async fn each(cluster: &Cluster, address: SocketAddr, certificate: &[u8]) -> Result<()> {
    let client = |token: Option<String>| {
        let mut config = Config::new(format!("https://{address}").parse()?);
        config.root_cert = Some(vec![certificate.to_vec()]);
        config.auth_info.token = token.map(Into::into);
        anyhow::Ok(Client::try_from(config)?)
    };
    let anonymous = client(None)?;
    eventually("Belayer is ready", SOON, async || {
        ask(&anonymous, "/readyz")
            .await
            .and_then(|code| is(code, 200))
    })
    .await?;
    is(ask(&anonymous, "/metrics").await?, 401)?;
    for (account, code) in [("prometheus", 200), ("other", 403)] {
        let namespace = cluster.namespace();
        let token = cluster
            .sh(&format!("kubectl -n {namespace} create token {account}"))
            .await?;
        let client = client(Some(token.trim().to_owned()))?;
        is(ask(&client, "/metrics").await?, code)
            .with_context(|| format!("the account {account}"))?;
    }
    is(
        ask(&client(Some("invalid".to_owned()))?, "/metrics").await?,
        401,
    )
}

/// The status of the answer.
async fn ask(client: &Client, path: &str) -> Result<u16> {
    match client
        .request_text(http::Request::get(path).body(Vec::new())?)
        .await
    {
        Ok(_) => Ok(200),
        Err(kube::Error::Api(status)) => Ok(status.code),
        Err(error) => bail!("{path}: {error}"),
    }
}

fn is(code: u16, expected: u16) -> Result<()> {
    ensure!(code == expected, "{code} instead of {expected}");
    Ok(())
}
