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
use crate::providers::Mark;

/// The lease lasts 15 s, and the machine may be busy.
const HANDOVER: Duration = Duration::from_secs(60);
const PODS: usize = 300;
const FOREIGN: &str = "e2e.belayer.dev/keep";

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
async fn pair(
    cluster: &Cluster,
    first: BelayerOptions,
    second: BelayerOptions,
) -> Result<(Belayer, Belayer)> {
    let leader = start(cluster, first).await?;
    eventually("the first leads", HANDOVER, async || leads(&leader).await).await?;
    let standby = start(cluster, second).await?;
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
    let (leader, standby) = pair(&cluster, replica("a"), replica("b")).await?;
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("before").of(&workflow)).await?;
    cluster.is_held("before").await?;
    let lists = standby
        .metric("belayer_informer_relists_total", &[])
        .await?;
    ensure!(lists > 0.0, "the standby has listed nothing");
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
    let (leader, standby) = pair(&cluster, replica("a"), replica("b")).await?;
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

/// When the leader goes on, all that it had to release is still to be released, and the server would apply every
/// release: no other replica has changed these pods.
async fn frozen(cluster: Cluster) -> Result<()> {
    let pause = Duration::from_millis(300);
    let slow = Proxy::slow(cluster.server_address()?, pause).await?;
    let first = replica("a").through(slow.address());
    // The standby releases only a few pods before it is killed.
    let slow_too = Proxy::slow(cluster.server_address()?, pause).await?;
    let second = replica("b").through(slow_too.address());
    let (mut leader, standby) = pair(
        &cluster,
        first.argument("--concurrent-releases=8"),
        second.argument("--concurrent-releases=1"),
    )
    .await?;
    cluster.orphans(PODS, |pod| pod.finalizer(FOREIGN)).await?;
    eventually("the leader has released some", HANDOVER, async || {
        let held = cluster.held_count().await?;
        ensure!(held < PODS, "none");
        Ok(())
    })
    .await?;
    // It is frozen while it waits for responses, so that no request is about to be sent.
    slow.silence();
    tokio::time::sleep(Duration::from_secs(1)).await;
    leader.signal(Signal::STOP)?;
    let since = Instant::now();
    slow.restore();
    takes_over(&cluster, &standby, since, "after SIGSTOP").await?;
    standby.kill().await?;
    drop(slow_too);
    settled(&cluster).await?;
    let held = cluster.held_count().await?;
    ensure!(
        held > 0,
        "all pods were released: no late write can do harm"
    );
    let mark = cluster.recorder()?.mark()?;
    leader.signal(Signal::CONT)?;
    has_lost(&mut leader).await?;
    writes_nothing_but_leases(&cluster, mark, "after its lease had expired").await?;
    let now = cluster.held_count().await?;
    ensure!(now == held, "{held} were held before, {now} are held now");
    cluster.note(format!(
        "frozen for {} s, with {held} of {PODS} pods to release",
        since.elapsed().as_secs()
    ));
    let belayer = cluster.start_belayer().await?;
    nothing_is_held(&cluster).await?;
    belayer.stop().await
}

/// A replica that has ended has written nothing since the mark.
async fn writes_nothing_but_leases(cluster: &Cluster, mark: Mark, when: &str) -> Result<()> {
    let mut late = cluster.all_writes_since(mark).await?;
    late.retain(|write| write.resource != "leases");
    ensure!(
        late.is_empty(),
        "{} requests were sent {when}, such as {}",
        late.len(),
        late[0]
    );
    Ok(())
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
    let (mut leader, standby) = pair(&cluster, first, replica("b")).await?;
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
    writes_nothing_but_leases(&cluster, mark, "after it was reconnected").await?;
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
