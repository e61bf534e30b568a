//! `belayer stuck` and `belayer explain` on real causes, one fixture each, and with missing RBAC
//! permissions.

use anyhow::{Result, ensure};
use belayer_sandbox::{Answer, Fault, Match, Verb};

use crate::harness::{Cluster, Output, SOON, Scenario, eventually};
use crate::providers::Capability::{GarbageCollector, NamespaceDeletion, Recorder};
use crate::stuck::{FIXTURES, Tool, play};

pub(super) fn scenarios() -> Vec<Scenario> {
    let fixtures = FIXTURES.iter().map(|file| {
        Scenario::alone(file.name, file.shows, move |cluster| async move {
            play(&cluster, file).await
        })
        .needs([NamespaceDeletion, GarbageCollector, Recorder])
    });
    fixtures
        .chain([Scenario::alone(
            "stuck-permission-missing",
            "kinds that may not be listed are named",
            permission_missing,
        )
        .needs([Recorder])])
        .collect()
}

async fn permission_missing(cluster: Cluster) -> Result<()> {
    let tool = Tool::with_rights_but(&cluster, &["secrets"]).await?;
    // Where there is no RBAC, a fault denies the request.
    let _fault = cluster.faults().ok().map(|faults| {
        let secrets = Match::verb(Verb::List)
            .resource("secrets")
            .client("belayer");
        faults.inject(
            Fault::on(secrets).answer(Answer::forbidden("secrets are none of its business")),
        )
    });
    let looked = read_without_permissions(&cluster, &tool).await;
    tool.put_away().await?;
    looked
}

async fn read_without_permissions(cluster: &Cluster, tool: &Tool) -> Result<()> {
    eventually("the server knows its permissions", SOON, async || {
        let Output { code, out, err } = tool.run(&["stuck".to_owned()]).await?;
        ensure!(code == 4, "exit code {code}: {out}{err}");
        Ok(())
    })
    .await?;
    let mark = cluster.recorder()?.mark()?;
    let Output { code, out, err } = tool.run(&["stuck".to_owned()]).await?;
    ensure!(code == 4, "exit code {code}: {out}{err}");
    ensure!(
        out.starts_with(
            "No object is stuck in Terminating among the kinds that could be listed.\n"
        ),
        "{out}"
    );
    ensure!(
        out.contains("\nNot listed, permission denied: secrets\n"),
        "{out}"
    );
    let Output { code, out, err } = tool.run(&["stuck".to_owned(), "-ojson".to_owned()]).await?;
    ensure!(code == 4, "exit code {code}: {out}{err}");
    let report: serde_json::Value = serde_json::from_str(&out)?;
    ensure!(report["unseen"][0]["resource"] == "secrets", "{report}");
    ensure!(report["unseen"][0]["reason"] == "not-allowed", "{report}");
    let writes = cluster.recorder()?.writes_since(mark)?;
    ensure!(writes.is_empty(), "it wrote: {writes:?}");
    Ok(())
}
