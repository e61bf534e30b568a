//! Argo workflows on `belayer-workload`, and `belayer-checker` over the record of all writes.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use belayer_checker::{Evidence, Settings, check};
use belayer_sandbox::Sandbox;
use belayer_sandbox::simulated::SimulatedControllers;
use belayer_workload::{Profile, Tally, Workload};
use tokio_util::sync::CancellationToken;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let controllers = SimulatedControllers::all();
    let sandbox = Sandbox::builder().seed(7).controllers(controllers).build();
    let cancel = CancellationToken::new();
    let moment = Duration::from_millis(50);
    let profile = Profile {
        workflows: 2,
        pods_per_workflow: 3,
        pods_per_second: 0.0,
        life: moment..=moment,
        persist_delay: moment,
        ..Profile::default()
    };
    let mut workload = Workload::run(sandbox.cluster(), profile, &cancel);
    let mut tally = Tally::default();
    while tally.workflows_finished < 2 {
        let event = tokio::time::timeout(Duration::from_secs(20), workload.next_event()).await?;
        tally.add(&event.context("the workload has stopped")?);
    }
    cancel.cancel();
    workload.stopped().await;

    // Belayer did not run: every rule was kept, and every pod could be lost.
    let recorder = sandbox.recorder();
    let mark = recorder.mark();
    tokio::time::sleep(moment).await;
    let findings = check(&Evidence {
        writes: &recorder.writes(),
        left: &[],
        quiet: moment,
        written_in_quiet: &recorder.since(mark),
        others: &[],
        healthy_from: None,
        settings: Settings::default(),
    });
    ensure!(findings.all_kept(), "{:?}", findings.checks);
    ensure!(findings.pods == 6 && findings.taken == 6, "{findings:?}");
    println!(
        "workload: {} pods, {} results",
        findings.pods, findings.taken
    );
    Ok(())
}
