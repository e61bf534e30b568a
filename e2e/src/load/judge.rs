//! What happened to each pod, from a watch of the pods alone. No record, Event or metric of Belayer is read.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::Value;

/// The fields of a pod that matter here, as one watch event shows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) node: Option<String>,
    pub(super) phase: Phase,
    pub(super) is_deleting: bool,
}

/// The state of a pod, by its phase and its containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// No container has started.
    Waiting,
    /// Failed, and no container has started.
    Rejected,
    /// A container has started.
    Started,
}

impl Seen {
    pub(super) fn of(pod: &DynamicObject) -> Self {
        let status = &pod.data["status"];
        let phase = if has_started(status) {
            Phase::Started
        } else if status["phase"] == "Failed" {
            Phase::Rejected
        } else {
            Phase::Waiting
        };
        Self {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
            node: pod.data["spec"]["nodeName"].as_str().map(String::from),
            phase,
            is_deleting: pod.metadata.deletion_timestamp.is_some(),
        }
    }
}

/// Whether any container has started, whatever the phase is.
fn has_started(status: &Value) -> bool {
    let of_kind = |kind: &str| status[kind].as_array().into_iter().flatten();
    let mut containers = of_kind("containerStatuses").chain(of_kind("initContainerStatuses"));
    let started = |container: &Value| {
        let started_at = |state: &str| {
            let state = &container[state];
            state["running"].is_object() || state["terminated"]["startedAt"].is_string()
        };
        started_at("state")
            || started_at("lastState")
            || container["restartCount"].as_u64() > Some(0)
    };
    matches!(status["phase"].as_str(), Some("Running" | "Succeeded")) || containers.any(started)
}

/// One pod name of the run, with all pods that had it.
#[derive(Debug, Default)]
struct Chain {
    pods: Vec<Incarnation>,
}

/// One pod, by its UID.
#[derive(Debug)]
struct Incarnation {
    uid: String,
    rejected: Option<Duration>,
    has_started: bool,
    is_gone: bool,
}

/// What became of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Its pod has not started, and was not rejected.
    Waiting,
    /// Its pod was rejected or removed, and there is no other yet.
    Missing,
    /// Exactly one pod started.
    Ran,
    /// More than one pod started.
    Twice,
    /// Every allowed pod was rejected.
    Exhausted,
}

/// Collects watch events. Times are durations since the start of the run.
#[derive(Debug)]
pub(crate) struct Judge {
    max_retries: usize,
    chains: BTreeMap<(String, String), Chain>,
    recreations: Vec<Duration>,
}

impl Judge {
    pub(super) fn new(max_retries: usize) -> Self {
        Self {
            max_retries,
            chains: BTreeMap::new(),
            recreations: Vec::new(),
        }
    }

    /// The API server has confirmed the create.
    pub(super) fn created(&mut self, namespace: &str, name: &str) {
        self.chains
            .entry((namespace.to_owned(), name.to_owned()))
            .or_default();
    }

    /// A pod was added or has changed. Returns how many pods had its name before.
    pub(super) fn seen(&mut self, now: Duration, seen: &Seen) -> usize {
        let key = (seen.namespace.clone(), seen.name.clone());
        let pods = &mut self.chains.entry(key).or_default().pods;
        let at = match pods.iter().position(|pod| pod.uid == seen.uid) {
            Some(at) => at,
            None => {
                // The watch shows the removal of the earlier pod first, except after a new list.
                if let Some(last) = pods.last_mut() {
                    last.is_gone = true;
                    self.recreations
                        .extend(last.rejected.map(|rejected| now - rejected));
                }
                pods.push(Incarnation {
                    uid: seen.uid.clone(),
                    rejected: None,
                    has_started: false,
                    is_gone: false,
                });
                pods.len() - 1
            }
        };
        if let Some(pod) = pods.get_mut(at) {
            match seen.phase {
                Phase::Waiting => {}
                Phase::Rejected => pod.rejected = pod.rejected.or(Some(now)),
                Phase::Started => pod.has_started = true,
            }
        }
        at
    }

    /// A pod was removed, with this last state.
    pub(super) fn removed(&mut self, now: Duration, seen: &Seen) {
        self.seen(now, seen);
        self.with(seen, |pod| pod.is_gone = true);
    }

    /// After a new list: pods that are not in it are gone.
    pub(super) fn listed(&mut self, uids: &BTreeSet<&str>) {
        let pods = self.chains.values_mut().flat_map(|chain| &mut chain.pods);
        for pod in pods {
            pod.is_gone |= !uids.contains(pod.uid.as_str());
        }
    }

    fn with(&mut self, seen: &Seen, change: impl Fn(&mut Incarnation)) {
        let key = (seen.namespace.clone(), seen.name.clone());
        let chain = self.chains.get_mut(&key);
        let pods = chain.into_iter().flat_map(|chain| &mut chain.pods);
        pods.filter(|pod| pod.uid == seen.uid).for_each(change);
    }

    fn fate(&self, chain: &Chain) -> Fate {
        match chain.pods.iter().filter(|pod| pod.has_started).count() {
            0 => {}
            1 => return Fate::Ran,
            _ => return Fate::Twice,
        }
        match chain.pods.last() {
            Some(last) if last.rejected.is_some() && chain.pods.len() > self.max_retries => {
                Fate::Exhausted
            }
            Some(last) if last.rejected.is_none() && !last.is_gone => Fate::Waiting,
            _ => Fate::Missing,
        }
    }

    /// The counts so far.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for chain in self.chains.values() {
            let rejected = chain.pods.iter().filter(|pod| pod.rejected.is_some());
            counts.created += 1;
            counts.rejected += rejected.count();
            counts.recreated += chain.pods.len().saturating_sub(1);
            counts.live += usize::from(chain.is_live());
            match self.fate(chain) {
                Fate::Waiting => counts.waiting += 1,
                Fate::Missing => counts.missing += 1,
                Fate::Ran => counts.ran_once += 1,
                Fate::Twice => counts.twice += 1,
                Fate::Exhausted => counts.exhausted += 1,
            }
        }
        counts
    }

    /// The pods that did not end as they should, as `NAMESPACE/NAME: what happened`.
    pub(super) fn problems(&self) -> Vec<String> {
        let problem = |(key, chain): (&(String, String), &Chain)| {
            let what = match self.fate(chain) {
                Fate::Ran | Fate::Exhausted => return None,
                Fate::Waiting => "never started".to_owned(),
                Fate::Missing => "lost".to_owned(),
                Fate::Twice => "started more than once".to_owned(),
            };
            let uids: Vec<_> = chain.pods.iter().map(|pod| pod.uid.as_str()).collect();
            Some(format!(
                "{}/{}: {what}; UIDs: {}",
                key.0,
                key.1,
                uids.join(", ")
            ))
        };
        self.chains.iter().filter_map(problem).collect()
    }

    /// The times from each rejection to the next pod of that name, the shortest first.
    pub(super) fn recreations(&self) -> Vec<Duration> {
        let mut times = self.recreations.clone();
        times.sort_unstable();
        times
    }
}

impl Chain {
    /// Whether a pod of the name uses a node, or soon will.
    fn is_live(&self) -> bool {
        self.pods
            .last()
            .is_none_or(|last| !last.is_gone && (last.rejected.is_none() || last.has_started))
    }
}

/// How many names had which result, and how many pods were created and rejected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Names: each began with a pod that the run created.
    pub(super) created: usize,
    /// Rejected pods; a name may have several.
    pub(super) rejected: usize,
    /// Pods that others created under a name of the run.
    pub(super) recreated: usize,
    /// Names whose pod has not started yet.
    pub(super) waiting: usize,
    /// Names whose pod was rejected or removed, and that have no other pod yet.
    pub(super) missing: usize,
    /// Names of which exactly one pod started.
    pub(super) ran_once: usize,
    /// Names of which more than one pod started.
    pub(super) twice: usize,
    /// Names of which every allowed pod was rejected.
    pub(super) exhausted: usize,
    /// Names with a pod that uses a node, or soon will.
    pub(super) live: usize,
}

impl Counts {
    /// Whether the fate of every name is known.
    pub(super) fn is_decided(&self) -> bool {
        self.waiting + self.missing == 0
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const RETRIES: usize = 3;

    fn seen(uid: &str, phase: Phase) -> Seen {
        Seen {
            namespace: "ns".into(),
            name: "web".into(),
            uid: uid.into(),
            node: None,
            phase,
            is_deleting: false,
        }
    }

    /// `a!` is a pod with UID a that is rejected, `a+` one that has started, `a-` its removal, `a` one that waits.
    fn judged(events: &str) -> Judge {
        let mut judge = Judge::new(RETRIES);
        judge.created("ns", "web");
        for (second, event) in events.split_whitespace().enumerate() {
            let now = Duration::from_secs(second as u64);
            let uid = event.trim_end_matches(['!', '+', '-']);
            match event.as_bytes().last() {
                Some(b'!') => judge.seen(now, &seen(uid, Phase::Rejected)),
                Some(b'+') => judge.seen(now, &seen(uid, Phase::Started)),
                Some(b'-') => {
                    judge.removed(now, &seen(uid, Phase::Waiting));
                    0
                }
                _ => judge.seen(now, &seen(uid, Phase::Waiting)),
            };
        }
        judge
    }

    #[rstest]
    #[case::r13_a_pod_that_is_not_seen_yet_is_missing("", Fate::Missing)]
    #[case::r13_a_pod_waits("a", Fate::Waiting)]
    #[case::r13_a_pod_ran("a a+ a-", Fate::Ran)]
    #[case::r13_a_rejected_pod_is_missing_until_there_is_another("a a! a-", Fate::Missing)]
    #[case::r13_a_rejected_pod_that_still_exists_is_missing_too("a a!", Fate::Missing)]
    #[case::r13_a_pod_that_is_removed_before_it_starts_is_lost("a a-", Fate::Missing)]
    #[case::r13_a_recreated_pod_waits("a a! a- b", Fate::Waiting)]
    #[case::r13_a_recreated_pod_ran_once("a a! a- b b+ b-", Fate::Ran)]
    #[case::r13_both_ran("a a+ a- b b+", Fate::Twice)]
    #[case::r13_a_rejected_pod_that_ran_counts("a a! a+ a- b b+", Fate::Twice)]
    #[case::r13_three_rejections_are_not_all("a! a- b! b- c! c-", Fate::Missing)]
    #[case::r13_four_rejections_exhaust("a! a- b! b- c! c- d!", Fate::Exhausted)]
    #[case::r13_the_removal_of_an_exhausted_pod_is_no_loss("a! b! c! d! d-", Fate::Exhausted)]
    fn fates(#[case] events: &str, #[case] expected: Fate) {
        let judge = judged(events);
        let chain = judge.chains.values().next().unwrap();
        assert_eq!(judge.fate(chain), expected);
    }

    #[test]
    fn r13_the_time_of_a_recreation_begins_with_the_rejection() {
        // Seconds:          0 1  2  3  4 5  6
        let judge = judged("a a! a! a- b b! c");
        let seconds: Vec<_> = judge.recreations().iter().map(Duration::as_secs).collect();
        assert_eq!(seconds, [1, 3]);
        let counts = judge.counts();
        assert_eq!(
            (counts.created, counts.rejected, counts.recreated),
            (1, 2, 2)
        );
    }

    #[test]
    fn r13_a_pod_that_is_missing_in_a_new_list_is_gone() {
        let mut judge = judged("a");
        judge.listed(&BTreeSet::from(["a"]));
        assert_eq!(judge.counts().waiting, 1);
        judge.listed(&BTreeSet::new());
        assert_eq!(judge.counts().missing, 1);
        assert!(
            judge.problems()[0].starts_with("ns/web: lost"),
            "{:?}",
            judge.problems()
        );
    }

    #[rstest]
    #[case::pending(json!({ "phase": "Pending" }), Phase::Waiting)]
    #[case::waits_for_an_image(
        json!({ "phase": "Pending", "containerStatuses": [{ "restartCount": 0, "state": { "waiting": {} } }] }),
        Phase::Waiting
    )]
    #[case::an_init_container_runs(
        json!({ "phase": "Pending", "initContainerStatuses": [{ "state": { "running": {} } }] }),
        Phase::Started
    )]
    #[case::running(json!({ "phase": "Running" }), Phase::Started)]
    #[case::ended_with_an_error(
        json!({ "phase": "Failed", "containerStatuses": [{ "state": { "terminated": { "startedAt": "2026-01-01T00:00:00Z" } } }] }),
        Phase::Started
    )]
    #[case::rejected(json!({ "phase": "Failed", "reason": "NodeAffinity" }), Phase::Rejected)]
    #[case::failed_without_a_start(
        json!({ "phase": "Failed", "containerStatuses": [{ "restartCount": 0, "state": { "terminated": { "startedAt": null } } }] }),
        Phase::Rejected
    )]
    fn the_phase_follows_from_the_containers(#[case] status: Value, #[case] expected: Phase) {
        let pod =
            json!({ "metadata": { "name": "web", "uid": "a" }, "spec": {}, "status": status });
        let pod: DynamicObject = serde_json::from_value(pod).unwrap();
        assert_eq!(Seen::of(&pod).phase, expected);
    }
}
