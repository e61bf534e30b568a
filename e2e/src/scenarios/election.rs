//! Several replicas: one leads, and is killed, frozen, cut off or stopped.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use rustix::process::Signal;

use crate::harness::{
    Belayer, BelayerOptions, Cluster, Load, Proxy, SOON, Scenario, eventually, pod, throughout,
};
use crate::providers::Capability::Recorder;

/// The lease lasts 15 s, and the machine may be busy.
const HANDOVER: Duration = Duration::from_secs(60);
const PODS: usize = 300;
/// Default number of concurrent releases.
const RELEASES: usize = 64;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "leader-killed",
            "kill -9 of the leader: the standby takes over with synced caches",
            killed,
        )
        .with_load(Load::Punctual),
        Scenario::alone(
            "leader-stopped",
            "a stopped leader releases the lease and exits with code 0",
            stopped,
        )
        .with_load(Load::Punctual),
        Scenario::alone(
            "leader-frozen",
            "SIGSTOP of the leader past its lease: after SIGCONT it changes nothing and exits",
            frozen,
        )
        .needs([Recorder])
        .with_load(Load::Punctual),
        Scenario::alone(
            "leader-cut-off",
            "a leader without connection to the API server stops before its lease expires",
            cut_off,
        )
        .needs([Recorder])
        .with_load(Load::Punctual),
        Scenario::alone(
            "server-lost-and-back",
            "the API server stops and returns: the same process leads again",
            lost_and_back,
        )
        .with_load(Load::Punctual),
    ]
}

async fn leads(belayer: &Belayer) -> Result<()> {
    ensure!(belayer.leads().await?, "this replica is not the leader");
    Ok(())
}

async fn start(cluster: &Cluster, options: BelayerOptions) -> Result<Belayer> {
    cluster.start_belayer_with(&options).await
}

fn replica(name: &'static str) -> BelayerOptions {
    BelayerOptions::default().replica(name)
}

/// A leader and a standby, both ready.
async fn pair(cluster: &Cluster, first: BelayerOptions) -> Result<(Belayer, Belayer)> {
    let leader = start(cluster, first).await?;
    eventually("the first leads", HANDOVER, async || leads(&leader).await).await?;
    let standby = start(cluster, replica("b")).await?;
    ensure!(leads(&standby).await.is_err(), "there are two leaders");
    Ok((leader, standby))
}

async fn takes_over(
    cluster: &Cluster,
    standby: &Belayer,
    since: Instant,
    what: &str,
) -> Result<()> {
    eventually("the standby leads", HANDOVER, async || leads(standby).await).await?;
    let took = since.elapsed();
    cluster.note(format!("{what}: leads after {:.1} s", took.as_secs_f64()));
    Ok(())
}

async fn holder(cluster: &Cluster) -> Result<String> {
    let leases: Api<Lease> = Api::namespaced(cluster.client().clone(), "belayer-system");
    let lease = leases.get("belayer").await?;
    let spec = lease.spec.context("the lease has no spec")?;
    Ok(spec.holder_identity.unwrap_or_default())
}

async fn killed(cluster: Cluster) -> Result<()> {
    let (leader, standby) = pair(&cluster, replica("a")).await?;
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("before").of(&workflow)).await?;
    cluster.is_held("before").await?;
    let lists = standby
        .metric("belayer_informer_relists_total", &[])
        .await?;
    leader.kill().await?;
    let since = Instant::now();
    cluster.create(&pod("after").of(&workflow)).await?;
    takes_over(&cluster, &standby, since, "after kill -9").await?;
    cluster.is_held("after").await?;
    let work = since.elapsed();
    cluster.note(format!("works after {:.1} s", work.as_secs_f64()));
    // Its caches were synced before, so it lists nothing again.
    let lists_now = standby
        .metric("belayer_informer_relists_total", &[])
        .await?;
    ensure!(
        (lists_now - lists).abs() < 0.5,
        "{lists} lists before, {lists_now} after"
    );
    standby.stop().await
}

async fn stopped(cluster: Cluster) -> Result<()> {
    let (leader, standby) = pair(&cluster, replica("a")).await?;
    let before = holder(&cluster).await?;
    let since = Instant::now();
    leader.stop().await?;
    ensure!(
        holder(&cluster).await? != before,
        "{before} still holds the lease"
    );
    takes_over(&cluster, &standby, since, "after SIGTERM").await?;
    standby.stop().await?;
    let after = holder(&cluster).await?;
    ensure!(after.is_empty(), "{after} holds the lease after its end");
    Ok(())
}

/// Creates many pods to release, and waits until the leader has released some.
async fn busy(cluster: &Cluster) -> Result<()> {
    cluster.orphans(PODS, |pod| pod).await
}

async fn nothing_is_held(cluster: &Cluster) -> Result<()> {
    eventually("all pods are released", HANDOVER, async || {
        let held = cluster.held_count().await?;
        ensure!(held == 0, "{held} still have the hold");
        Ok(())
    })
    .await
}

/// It exits by itself, with exit code 1, because another replica leads.
async fn has_lost(belayer: &mut Belayer) -> Result<()> {
    let status = belayer.ended(SOON).await?;
    let log = belayer.log()?;
    ensure!(status.code() == Some(1), "it exited with {status}\n{log}");
    ensure!(
        log.contains("the leader election was lost"),
        "its log does not say why it exited"
    );
    ensure!(!log.contains("panicked at"), "it panicked");
    Ok(())
}

async fn frozen(cluster: Cluster) -> Result<()> {
    let (mut leader, standby) = pair(&cluster, replica("a")).await?;
    busy(&cluster).await?;
    leader.signal(Signal::STOP)?;
    let since = Instant::now();
    takes_over(&cluster, &standby, since, "after SIGSTOP").await?;
    nothing_is_held(&cluster).await?;
    // Only the frozen replica can make further writes: the other has nothing left to do.
    settled(&cluster).await?;
    let mark = cluster.recorder()?.mark()?;
    leader.signal(Signal::CONT)?;
    has_lost(&mut leader).await?;
    let writes = cluster.recorder()?.writes_since(mark)?;
    let late: Vec<_> = writes
        .iter()
        .filter(|write| write.resource != "leases")
        .collect();
    // Requests in flight when it was frozen cannot be recalled: the server refuses them because of the
    // version and the UID. No further request may follow.
    if let Some(harm) = late.iter().find(|write| write.code < 400) {
        bail!("written after its lease had expired: {harm}");
    }
    ensure!(
        late.len() <= RELEASES,
        "{} requests were sent after its lease had expired, more than could be in flight, such as {}",
        late.len(),
        late[0]
    );
    cluster.note(format!(
        "frozen for {} s; sent late and refused: {}",
        since.elapsed().as_secs(),
        late.len()
    ));
    standby.stop().await
}

/// Waits until there are no writes but those of the lease.
async fn settled(cluster: &Cluster) -> Result<()> {
    let deadline = Instant::now() + HANDOVER;
    loop {
        let mark = cluster.recorder()?.mark()?;
        let quiet = throughout("nothing is written", Duration::from_secs(4), async || {
            let writes = cluster.recorder()?.writes_since(mark)?;
            let other = writes.iter().find(|write| write.resource != "leases");
            if let Some(other) = other {
                bail!("{other}");
            }
            Ok(())
        })
        .await;
        if quiet.is_ok() {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "the cluster does not settle: {quiet:?}"
        );
    }
}

async fn cut_off(cluster: Cluster) -> Result<()> {
    let proxy = Proxy::start(cluster.server_address()?).await?;
    let first = replica("a").through(proxy.address());
    let (mut leader, standby) = pair(&cluster, first).await?;
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("before").of(&workflow)).await?;
    cluster.is_held("before").await?;
    proxy.silence();
    let since = Instant::now();
    eventually("the first has stopped", HANDOVER, async || {
        ensure!(
            leads(&leader).await.is_err(),
            "it still reports that it leads"
        );
        Ok(())
    })
    .await?;
    let stopped = since.elapsed();
    // Ten seconds; a busy machine sees it late.
    ensure!(
        stopped < Duration::from_secs(40),
        "it stopped only after {stopped:?}"
    );
    cluster.note(format!("stopped after {:.1} s", stopped.as_secs_f64()));
    takes_over(&cluster, &standby, since, "cut off").await?;
    cluster.create(&pod("after").of(&workflow)).await?;
    cluster.is_held("after").await?;
    settled(&cluster).await?;
    let mark = cluster.recorder()?.mark()?;
    proxy.restore();
    has_lost(&mut leader).await?;
    let writes = cluster.recorder()?.writes_since(mark)?;
    let late = writes.iter().find(|write| write.resource != "leases");
    ensure!(late.is_none(), "it wrote {late:?} after it was reconnected");
    standby.stop().await
}

async fn lost_and_back(cluster: Cluster) -> Result<()> {
    let proxy = Proxy::start(cluster.server_address()?).await?;
    let leader = start(&cluster, replica("a").through(proxy.address())).await?;
    eventually("it leads", HANDOVER, async || leads(&leader).await).await?;
    let before = holder(&cluster).await?;
    let workflow = cluster.workflow("w").await?;
    proxy.cut();
    eventually("it has stopped", HANDOVER, async || {
        ensure!(
            leads(&leader).await.is_err(),
            "it still reports that it leads"
        );
        Ok(())
    })
    .await?;
    cluster.create(&pod("meanwhile").of(&workflow)).await?;
    proxy.restore();
    eventually("it leads again", HANDOVER, async || leads(&leader).await).await?;
    cluster.is_held("meanwhile").await?;
    ensure!(holder(&cluster).await? == before, "it is another process");
    leader.stop().await
}
