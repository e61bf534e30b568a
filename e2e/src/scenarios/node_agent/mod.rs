//! The files of a rejected pod are removed from its node before a new pod can start there.

mod crash;
mod hostile;
mod last;
mod policy;
mod site;
mod successors;
mod tenant;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use belayer_sandbox::{Fault, Match};
use futures::StreamExt as _;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::{Value, json};

use crate::harness::{Cluster, SOON, Scenario, eventually, throughout};
use crate::kinds;
use crate::providers::Capability::{AdmissionPolicies, Kubelet, Rbac, Root};
use site::{Busy, Site, Timeout};

/// Delay of the events of lists of wipes.
const LAG: Duration = Duration::from_millis(500);

/// How many pods are wiped at the same time.
const MANY: usize = 200;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "node-agent-wipes-first",
            "a rejected pod is wiped and re-created: the old files are removed before the new pod exists",
            wipes_first,
        )
        .smoke(),
        Scenario::alone(
            "node-agent-sibling-a-kubelet",
            "the same with a kubelet that rejects the pod by NodeAffinity and runs its successor",
            beside_a_kubelet,
        )
        .needs([Kubelet, AdmissionPolicies]),
        Scenario::alone(
            "node-agent-absent-proceed",
            "without an agent the pod is re-created after the timeout, and not on that node",
            absent_proceed,
        ),
        Scenario::alone(
            "node-agent-absent-fail",
            "without an agent and with onWipeTimeout: fail the rejected pod stays",
            absent_fail,
        ),
        Scenario::alone(
            "node-agent-busy-mount",
            "a mount in use delays the new pod, is reported, and is not unmounted by force",
            busy_mount,
        )
        .needs([Root]),
        Scenario::alone(
            "node-agent-busy-past-the-time-out",
            "if the wipe exceeds the timeout, the new pod avoids that node, and the wipe continues",
            busy_past_the_time_out,
        )
        .needs([Root]),
        Scenario::alone(
            "node-agent-last-rejection",
            "the last rejected pod is wiped after its record is deleted and the agent was restarted (R6, R7)",
            last::rejection,
        )
        .needs([Root]),
        Scenario::alone(
            "node-agent-wipes-200",
            "200 rejected pods of one node are wiped concurrently",
            many,
        ),
        Scenario::alone(
            "node-agent-late-update",
            "a late update of a wiped pod changes nothing; its deletion is processed",
            successors::late_update,
        ),
        Scenario::alone(
            "node-agent-restarted-handlers",
            "after a restart of the agent handlers run again for a pod that has not started, and for no other",
            successors::restarted,
        ),
        Scenario::alone(
            "node-agent-same-name",
            "a pod of the same name on the same node starts only after the older one's wipe",
            successors::same_name,
        )
        .smoke()
        .needs([Root]),
        Scenario::alone(
            "node-agent-killed-at-each-step",
            "kill -9 during a handler, a hook, between tries and at random: the wipe completes",
            crash::at_each_step,
        )
        .needs([Root]),
        Scenario::alone(
            "node-agent-failing-hook",
            "a wipe whose hook fails is tried again with growing pauses, whatever the hook prints (R6)",
            crash::failing_hook,
        )
        .needs([Root]),
        Scenario::alone(
            "node-agent-hostile-pod",
            "a pod that names foreign paths and creates links and mounts changes no other files",
            hostile::hostile,
        )
        .needs([Root]),
        Scenario::alone(
            "hostile-wipe",
            "a tenant with all permissions in its namespace cannot have another tenant's running pod wiped",
            tenant::hostile_wipe,
        ),
        Scenario::alone(
            "node-agent-knows-its-place",
            "a compromised agent reads no pod and no record, and writes only the reports of its own node (T6)",
            policy::knows_its_place,
        )
        .needs([Rbac, AdmissionPolicies]),
    ]
}

async fn wipes_first(cluster: Cluster) -> Result<()> {
    let site = Site::new(&cluster, "one").await?;
    let belayer = site.controllers(Timeout::Never).await?;
    // Where faults can be injected, the agent gets its own report late and the pod's deletion early.
    let _fault = cluster.faults().ok().map(|faults| {
        let records = Match::watches().resource("nodewipes");
        faults.inject(Fault::on(records).delay_events(LAG))
    });
    let agent = site.agent().await?;
    let uid = site.pod("web").await?;
    site.leave_state(&uid)?;
    let sibling = site.dir("00000000-0000-4000-8000-000000000000");
    std::fs::create_dir_all(&sibling)?;
    let mut events = cluster
        .pods()
        .watch(&WatchParams::default(), "0")
        .await?
        .boxed();
    site.reject("web").await?;
    let second = loop {
        let event = events.next().await.context("the watch ended")??;
        if let WatchEvent::Added(pod) = event
            && pod.uid().as_deref() != Some(&*uid)
        {
            break pod;
        }
    };
    ensure!(
        !site.dir(&uid).exists(),
        "the new pod exists while the old one's files still exist"
    );
    ensure!(sibling.exists(), "another pod's directory was removed");
    let status = site.record().await?.data["status"].clone();
    ensure!(site::wiped(&status) == "True", "{status}");
    site.report("web", json!({ "phase": "Running" })).await?;
    site.in_phase("Started").await?;
    let wipes = agent
        .metric("belayer_wipe_tries_total", &[("state", "complete")])
        .await?;
    ensure!((wipes - 1.0).abs() < f64::EPSILON, "{wipes} wipes");
    ensure!(
        second.annotations().contains_key("belayer.dev/wipe"),
        "it sends no more requests"
    );
    agent.stop().await?;
    belayer.stop().await
}

async fn beside_a_kubelet(cluster: Cluster) -> Result<()> {
    let nodes = kinds::nodes(cluster.client());
    let all = nodes.list(&Default::default()).await?;
    let ready = |node: &&kube::api::DynamicObject| {
        let conditions = node.data["status"]["conditions"].as_array();
        let is_ready = |c: &Value| c["type"] == "Ready" && c["status"] == "True";
        conditions.is_some_and(|all| all.iter().any(is_ready))
    };
    let node = all
        .iter()
        .find(ready)
        .context("no node is ready")?
        .name_any();
    let site = Site::on(&cluster, &node).await?;
    let belayer = site.controllers(Timeout::Never).await?;
    let agent = site.agent().await?;
    let label = format!("{}-room", cluster.namespace());
    let spec = json!({
        "nodeSelector": { label.as_str(): "yes" },
        "containers": [{ "name": "main", "image": "busybox" }],
    });
    let uid = site.create("web", spec, json!({})).await?;
    site.leave_state(&uid)?;
    // As in the race: bound to a node that does not have the label (any more or yet).
    site.bind("web").await?;
    site.successor("web", &uid).await?;
    ensure!(!site.dir(&uid).exists(), "the old pod's files still exist");
    let labelled = async |value: Value| -> Result<()> {
        let patch = Patch::Merge(json!({ "metadata": { "labels": { label.as_str(): value } } }));
        nodes.patch(&node, &PatchParams::default(), &patch).await?;
        Ok(())
    };
    labelled("yes".into()).await?;
    let record = site.in_phase("Started").await?;
    labelled(Value::Null).await?;
    let status = &record.data["status"];
    ensure!(
        status["reason"] == "NodeAffinity" && site::wiped(status) == "True",
        "{status}"
    );
    agent.stop().await?;
    belayer.stop().await
}

async fn absent_proceed(cluster: Cluster) -> Result<()> {
    let site = Site::new(&cluster, "one").await?;
    let belayer = site.controllers(Timeout::Proceed(2)).await?;
    let uid = site.pod("web").await?;
    site.leave_state(&uid)?;
    site.reject("web").await?;
    let second = site.successor("web", &uid).await?;
    site.is_kept_off(&second)?;
    let status = site.record().await?.data["status"].clone();
    ensure!(site::wiped(&status) == "False", "{status}");
    ensure!(site.dir(&uid).exists(), "the files were removed");
    belayer.stop().await
}

async fn absent_fail(cluster: Cluster) -> Result<()> {
    let site = Site::new(&cluster, "one").await?;
    let belayer = site.controllers(Timeout::Fail(2)).await?;
    let uid = site.pod("web").await?;
    site.reject("web").await?;
    site.in_phase("Ended").await?;
    cluster
        .stays_itself("web", &uid, Duration::from_secs(3))
        .await?;
    belayer.stop().await
}

async fn busy_mount(cluster: Cluster) -> Result<()> {
    let site = Site::new(&cluster, "one").await?;
    let belayer = site.controllers(Timeout::Never).await?;
    let agent = site.agent().await?;
    let uid = site.pod("web").await?;
    site.leave_state(&uid)?;
    let busy = Busy::mount(&site.dir(&uid).join("mnt"))?;
    site.reject("web").await?;
    eventually("the remaining files are reported", SOON, async || {
        let status = site.record().await?.data["status"].clone();
        let reported = site::wiped_message(&status);
        ensure!(
            reported.contains("/mnt is a mount in use") && site::wiped(&status) == "False",
            "{status}"
        );
        Ok(())
    })
    .await?;
    throughout("the new pod waits", Duration::from_secs(4), async || {
        let pod = cluster.pods().get("web").await?;
        ensure!(pod.uid().as_deref() == Some(&*uid), "it was re-created");
        ensure!(busy.is_there(), "the mount was unmounted by force");
        Ok(())
    })
    .await?;
    busy.release();
    site.successor("web", &uid).await?;
    ensure!(!site.dir(&uid).exists(), "the old pod's files still exist");
    agent.stop().await?;
    belayer.stop().await
}

async fn busy_past_the_time_out(cluster: Cluster) -> Result<()> {
    let site = Site::new(&cluster, "one").await?;
    let belayer = site.controllers(Timeout::Proceed(5)).await?;
    let agent = site.agent().await?;
    let uid = site.pod("web").await?;
    site.leave_state(&uid)?;
    let busy = Busy::mount(&site.dir(&uid).join("mnt"))?;
    site.reject("web").await?;
    let second = site.successor("web", &uid).await?;
    site.is_kept_off(&second)?;
    ensure!(busy.is_there(), "the mount was unmounted by force");
    // The record proceeds; the node is wiped all the same, even after the agent's restart.
    agent.kill().await?;
    let agent = site.agent().await?;
    busy.release();
    site.is_wiped(&uid).await?;
    agent.stop().await?;
    belayer.stop().await
}

/// Runs an action for each name, in parallel.
async fn in_parallel<T, F>(names: &[String], each: impl Fn(String) -> F) -> Result<Vec<T>>
where
    F: Future<Output = Result<T>>,
{
    let all = futures::stream::iter(names.to_vec())
        .map(each)
        .buffer_unordered(16);
    all.collect::<Vec<_>>().await.into_iter().collect()
}

async fn many(cluster: Cluster) -> Result<()> {
    let site = Site::new(&cluster, "one").await?;
    let belayer = site.controllers(Timeout::Never).await?;
    let agent = site.agent().await?;
    let names: Vec<String> = (0..MANY).map(|number| format!("p{number}")).collect();
    let uids = in_parallel(&names, |name| {
        let site = &site;
        async move { site.pod(&name).await }
    })
    .await?;
    for uid in &uids {
        site.leave_state(uid)?;
    }
    let started = std::time::Instant::now();
    in_parallel(&names, |name| {
        let site = &site;
        async move { site.reject(&name).await }
    })
    .await?;
    let patience = SOON * 3;
    eventually("all are wiped and reported", patience, async || {
        let there = uids.iter().filter(|uid| site.dir(uid).exists()).count();
        let records = site.records().list(&Default::default()).await?;
        let done = records
            .iter()
            .filter(|record| site::wiped(&record.data["status"]) == "True")
            .count();
        ensure!(
            there == 0 && done == MANY,
            "{there} directories exist, {done} records report them as wiped"
        );
        Ok(())
    })
    .await?;
    cluster.note(format!(
        "{MANY} wiped {:.1} s after the first rejection",
        started.elapsed().as_secs_f64()
    ));
    agent.stop().await?;
    belayer.stop().await?;
    let all = DeleteParams::default().grace_period(0);
    cluster
        .pods()
        .delete_collection(&all, &Default::default())
        .await?;
    Ok(())
}
