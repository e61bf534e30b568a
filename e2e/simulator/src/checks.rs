//! What the simulator itself checks: the objects that are left, and the Lease. The other invariants are those of `belayer-checker`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use belayer_checker::BELAYER;
use belayer_holds::names::{GATE_BACKLOG, GATE_CLOSED_PREFIX, POD_STATUS_HOLD};
use belayer_pod_recreation::api::Phase;
use belayer_pod_recreation::transitions::{State, is_declared};
use belayer_sandbox::{Gvr, Write};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize as _;
use serde_json::Value;

use crate::coverage::{Coverage, transition};
use crate::event::{GATES, RECORDS, Stage};
use crate::plan::Plan;

/// How long a record may be kept after its time to live.
const GRACE: Duration = Duration::from_secs(120);

/// How long Belayer may take to notice that more pods than the limit wait.
const KNOWN: SignedDuration = SignedDuration::from_secs(5);

/// Every violation in a settled cluster, as a sentence.
pub(crate) fn all(plan: &Plan, stage: &Stage, writes: &[Write]) -> Vec<String> {
    let mut violations = written_by_others(writes);
    violations.extend(records_kept(plan, stage, writes));
    if plan.limits_backlog() && !plan.has_faults() {
        violations.extend(held_above_limit(plan.tuning.backlog_threshold, writes));
    }
    let (pods, gates) = (stage.list(&Gvr::PODS, None), stage.list(&GATES, None));
    violations.extend(gates.iter().find_map(|gate| closed_gate(gate, &pods)));
    violations
}

/// LEADER: the writes of replicas while another replica held the Lease. A request that is on its way cannot be recalled.
fn written_by_others(writes: &[Write]) -> Vec<String> {
    let mut leader = None;
    let mut broken = Vec::new();
    for write in writes.iter().filter(|write| write.changed()) {
        if write.resource.resource == "leases" {
            leader = write.object.as_ref().and_then(|lease| {
                let holder = lease.pointer("/spec/holderIdentity")?.as_str()?;
                let (replica, _) = holder.strip_prefix("belayer-")?.split_once('_')?;
                replica.parse::<usize>().ok()
            });
            continue;
        }
        if write.actor.is_late() {
            continue;
        }
        let writer = write.actor.as_str().strip_prefix(BELAYER);
        let writer = writer.and_then(|instance| instance.strip_prefix('/')?.parse::<usize>().ok());
        if let (Some(writer), Some(leader)) = (writer, leader)
            && writer != leader
        {
            broken.push(format!(
                "LEADER: replica {leader} led when replica {writer} wrote: {}",
                write.summary()
            ));
        }
    }
    broken
}

/// TRANSITION: the changes of the phase of a record that no rule makes. Counts all changes.
pub(crate) fn transitions(writes: &[Write], violations: &mut Vec<String>) -> Coverage {
    let mut coverage = Coverage::default();
    let mut states: HashMap<&str, State> = HashMap::new();
    for write in writes.iter().filter(|write| write.resource == RECORDS) {
        let Some(object) = write.object.as_ref().filter(|_| write.changed()) else {
            continue;
        };
        let phase = Phase::deserialize(&object["status"]["phase"]).ok();
        let now = phase.map_or(State::New, State::In);
        let before = states.insert(&write.uid, now).unwrap_or(State::New);
        let State::In(phase) = now else { continue };
        if before == now {
            continue;
        }
        let name = transition(before, phase);
        if !is_declared(before, now) {
            violations.push(format!("TRANSITION: {name}: {}", write.summary()));
        }
        coverage.add(name, 1);
    }
    coverage
}

/// RECORDS: the records that are kept after their time to live. One whose pod was denied while it existed only in the record is kept
/// until a pod has its name.
fn records_kept(plan: &Plan, stage: &Stage, writes: &[Write]) -> Vec<String> {
    let now = stage.cluster().clock().now();
    // By the clock of the API server: that of Belayer may jump.
    let is_over = |record: &Value| {
        let mut of_it = writes.iter().rev().filter(|write| write.changed());
        let last = of_it.find(|write| record["metadata"]["uid"] == *write.uid);
        last.is_some_and(|last| {
            let kept = Duration::try_from(now.duration_since(last.at)).unwrap_or_default();
            kept > plan.tuning.record_ttl + GRACE
        })
    };
    let records = stage.list(&RECORDS, None);
    let is_only_copy = |record: &Value| {
        let conditions = record["status"]["conditions"].as_array();
        let is_given_up = |one: &Value| one["type"] == "CreateDenied" && one["reason"] == "GivenUp";
        let name = &record["spec"]["podName"];
        let namespace = &record["metadata"]["namespace"];
        conditions.into_iter().flatten().any(is_given_up)
            && stage.list(&Gvr::PODS, None).iter().all(|pod| {
                let meta = &pod["metadata"];
                (&meta["namespace"], &meta["name"]) != (namespace, name)
            })
    };
    let kept = records.iter().filter(|record| {
        if is_only_copy(record) {
            return false;
        }
        // A record without a phase has not begun: its pod is gone.
        let phase = &record["status"]["phase"];
        (phase.is_null() || record["status"]["finishedAt"].is_string()) && is_over(record)
    });
    kept.map(|record| {
        let meta = &record["metadata"];
        let text = |field: &str| meta[field].as_str().unwrap_or_default().to_owned();
        format!("RECORDS: {}/{} is kept", text("namespace"), text("name"))
    })
    .collect()
}

/// LIMIT: the pods that got a finalizer although more pods of their namespace than the limit had been waiting for some time. Without
/// faults Belayer knows of them.
fn held_above_limit(limit: usize, writes: &[Write]) -> Vec<String> {
    let mut places: HashMap<&str, Waiting<'_>> = HashMap::new();
    let mut broken = Vec::new();
    for write in writes.iter().filter(|write| write.changed()) {
        let Some(pod) = write
            .object
            .as_ref()
            .filter(|_| write.resource == Gvr::PODS)
        else {
            continue;
        };
        let place = places.entry(&write.key.namespace).or_default();
        let adds = write.actor.program() == BELAYER
            && write.body.as_ref().is_some_and(|body| is_held(body));
        let is_known = |since| write.at.duration_since(since) > KNOWN;
        if adds && place.above_since.is_some_and(is_known) {
            broken.push(format!(
                "LIMIT: more than {limit} pods waited: {}",
                write.summary()
            ));
        }
        if waits(pod) {
            place.pods.insert(&write.uid);
        } else {
            place.pods.remove(&*write.uid);
        }
        let above = place.pods.len() > limit;
        place.above_since = above.then(|| place.above_since.unwrap_or(write.at));
    }
    broken
}

/// The pods of a namespace that wait for their release.
#[derive(Default)]
struct Waiting<'a> {
    pods: HashSet<&'a str>,
    /// Since when they are more than the limit.
    above_since: Option<Timestamp>,
}

/// Whether the pod is being deleted, and Belayer's finalizer keeps it.
fn waits(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null() && is_held(pod)
}

fn is_held(pod: &Value) -> bool {
    let finalizers = pod["metadata"]["finalizers"].as_array();
    let mut finalizers = finalizers.into_iter().flatten();
    finalizers.any(|finalizer| finalizer == POD_STATUS_HOLD)
}

/// GATE: the key that keeps the gate closed although no pod waits for its release. Pods whose result Argo never reads wait for ever.
fn closed_gate(gate: &Value, pods: &[Arc<Value>]) -> Option<String> {
    if pods.iter().any(|pod| waits(pod)) {
        return None;
    }
    let mut data = gate["data"].as_object()?.iter();
    let closes = |key: &str| key.starts_with(GATE_CLOSED_PREFIX) || key == GATE_BACKLOG;
    let (key, value) = data.find(|(key, _)| closes(key))?;
    Some(format!("GATE: it is still closed: {key}: {value}"))
}

#[cfg(test)]
mod tests {
    use belayer_sandbox::{Actor, DeleteOptions, Sandbox, WriteOptions};
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::the_leader(1, 0)]
    #[case::another(2, 1)]
    fn only_the_leader_may_write(#[case] writer: usize, #[case] broken: usize) {
        let sandbox = Sandbox::default();
        let create = |actor: &str, gvr: &Gvr, object: Value| {
            let (actor, options) = (Actor::new(actor), WriteOptions::default());
            let created = sandbox
                .cluster()
                .create(&actor, gvr, Some("default"), object, &options);
            created.expect("a valid object");
        };
        let event = |name: &str| {
            json!({
                "metadata": { "name": name },
                "involvedObject": { "namespace": "default" },
            })
        };
        // Before there is a leader.
        create(&format!("{BELAYER}/2"), &Gvr::EVENTS, event("first"));
        let lease = json!({
            "metadata": { "name": "belayer" },
            "spec": { "holderIdentity": "belayer-1_a3" },
        });
        create("belayer-election/1", &Gvr::LEASES, lease);
        create(
            &format!("{BELAYER}/{writer}"),
            &Gvr::EVENTS,
            event("second"),
        );
        create("user", &Gvr::EVENTS, event("third"));
        let found = written_by_others(&sandbox.recorder().writes());
        assert_eq!(found.len(), broken, "{found:?}");
    }

    #[rstest]
    #[case::at_the_limit(2, 6, 0)]
    #[case::before_belayer_knows(1, 4, 0)]
    #[case::above(1, 6, 1)]
    fn no_finalizer_is_added_above_the_limit(
        #[case] limit: usize,
        #[case] seconds: i64,
        #[case] broken: usize,
    ) {
        let sandbox = Sandbox::default();
        let cluster = sandbox.cluster();
        let pod = |name: &str, finalizers: &[&str]| {
            json!({
                "metadata": { "name": name, "finalizers": finalizers },
                "spec": { "containers": [{ "name": "main", "image": "main" }] },
            })
        };
        for (namespace, name) in [("default", "a"), ("default", "b"), ("kube-public", "c")] {
            let (user, options) = (Actor::new("user"), WriteOptions::default());
            let pod = pod(name, &[POD_STATUS_HOLD]);
            let namespace = Some(namespace);
            let created = cluster.create(&user, &Gvr::PODS, namespace, pod, &options);
            created.expect("a valid pod");
            let options = DeleteOptions::default();
            let deleted = cluster.delete(&user, &Gvr::PODS, namespace, name, &options);
            deleted.expect("a pod");
        }
        let mut writes = sandbox.recorder().writes();
        let mut adds = writes.last().expect("a write").clone();
        adds.actor = Actor::new(BELAYER);
        adds.key = writes[0].key.clone();
        adds.at += SignedDuration::from_secs(seconds);
        adds.body = Some(Arc::new(pod("d", &[POD_STATUS_HOLD])));
        writes.push(adds);
        let found = held_above_limit(limit, &writes);
        assert_eq!(found.len(), broken, "{found:?}");
    }

    #[rstest]
    #[case::open(json!({"hold": "on"}), &[], false)]
    #[case::a_namespace(json!({"closed.ci": "backlog"}), &[], true)]
    #[case::the_cluster(json!({"hold": "off", "backlog": "closed"}), &[], true)]
    #[case::a_pod_that_is_not_deleted(json!({"closed.ci": "backlog"}), &[(false, POD_STATUS_HOLD)], true)]
    #[case::a_pod_that_others_keep(json!({"closed.ci": "backlog"}), &[(true, "example.com/keep")], true)]
    #[case::a_pod_that_waits(json!({"closed.ci": "backlog"}), &[(true, POD_STATUS_HOLD)], false)]
    fn the_gate_is_open_unless_a_pod_waits(
        #[case] data: Value,
        #[case] pods: &[(bool, &str)],
        #[case] broken: bool,
    ) {
        let pod = |(deleted, finalizer): &(bool, &str)| {
            let deleted = deleted.then_some("2026-01-01T00:00:00Z");
            Arc::new(json!({ "metadata": {
                "deletionTimestamp": deleted, "finalizers": [finalizer],
            } }))
        };
        let pods: Vec<_> = pods.iter().map(pod).collect();
        let found = closed_gate(&json!({ "data": data }), &pods);
        assert_eq!(found.is_some(), broken, "{found:?}");
    }
}
