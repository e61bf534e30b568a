//! Whether the controller of a finalizer runs, by its workloads and its Lease.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::known_finalizers::{Controller, Entry};
use crate::reader::ReadResult;
use crate::report::age;

/// A workload that may be a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Workload {
    /// `deployment`, `statefulset` or `daemonset`.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Desired number of pods.
    pub desired: i64,
    /// Number of ready pods.
    pub ready: i64,
    /// Its containers' images.
    pub images: Vec<String>,
}

impl Workload {
    /// `deployment keda/keda-operator`.
    pub(crate) fn place(&self) -> String {
        format!("{} {}/{}", self.kind, self.namespace, self.name)
    }

    /// Whether `place` is its namespace and name.
    pub(crate) fn is_at(&self, place: &str) -> bool {
        place.split_once('/') == Some((&self.namespace, &self.name))
    }
}

/// A Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lease {
    /// `namespace/name`.
    pub place: String,
    /// The holder; empty if it was released.
    pub holder: String,
    /// Time of the last renewal.
    pub renewed: Option<Timestamp>,
    /// Its duration, in seconds.
    pub seconds: i64,
}

/// The state of a controller. Every variant but the last has proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ControllerHealth {
    /// It runs.
    Alive(Vec<String>, Option<Workload>),
    /// It exists and does not run.
    Down(Vec<String>, Option<Workload>),
    /// It does not exist in the cluster.
    Gone(Vec<String>),
    /// Not proven either way.
    Unknown {
        /// What is known.
        known: Vec<String>,
        /// What is missing.
        missing: Vec<String>,
    },
}

/// What the cluster shows about controllers.
#[derive(Debug, Clone)]
pub(crate) struct Observed<'a> {
    /// All workloads of the cluster, or of the namespace that could be read.
    pub workloads: &'a ReadResult<Vec<Workload>>,
    /// The Leases of the known controllers.
    pub leases: Vec<&'a ReadResult<Lease>>,
    /// For a controller of Belayer's: what tells its Deployment from the others.
    pub own: Option<OwnDeployment<'a>>,
}

/// Belayer's workloads run the same image, and its Deployments have the names of their Leases.
#[derive(Debug, Clone)]
pub(crate) struct OwnDeployment<'a> {
    /// `namespace/name` of the controller's Lease, if it is known.
    pub lease: Option<&'a str>,
    /// The Leases of Belayer's other controllers.
    pub others: BTreeSet<&'a str>,
}

impl OwnDeployment<'_> {
    /// Separates those of Belayer's workloads that may run the controller from the rest. The first controller of the
    /// `entry` names its Deployment, if no Lease does.
    fn separate<'w>(
        &self,
        all: Vec<&'w Workload>,
        entry: &Entry,
    ) -> (Vec<&'w Workload>, Vec<&'w Workload>) {
        let usual = entry.controllers.first();
        let has_its_name = |workload: &&Workload| match self.lease {
            Some(own) => workload.is_at(own),
            None => usual.is_some_and(|usual| usual.is(&workload.namespace, &workload.name)),
        };
        let is_found = all.iter().any(has_its_name);
        all.into_iter().partition(|workload| {
            if is_found {
                return has_its_name(workload);
            }
            let is_another = self.others.iter().any(|other| workload.is_at(other));
            // The node agent is a DaemonSet, and removes no finalizer.
            !is_another && workload.kind != "daemonset"
        })
    }
}

/// A Lease counts as renewed for this many times its duration.
const GRACE_LENGTHS: i64 = 4;

/// Judges the controller of a known finalizer on objects of `kind`.
pub(crate) fn of_known(
    entry: &Entry,
    kind: &str,
    seen: &Observed<'_>,
    now: Timestamp,
) -> ControllerHealth {
    let controllers = entry.controllers_of(kind);
    let is_one = |workload: &&Workload| {
        controllers
            .iter()
            .any(|controller| controller.is(&workload.namespace, &workload.name))
            || workload.images.iter().any(|image| {
                entry
                    .images
                    .iter()
                    .any(|part| image.contains(part.as_str()))
            })
    };
    let mut proof = Vec::new();
    let mut missing = Vec::new();
    let mut renewed = None;
    for lease in &seen.leases {
        match lease {
            ReadResult::Found(lease) => {
                let (is_renewed, text) = judge(lease, now);
                renewed = Some(renewed.unwrap_or(false) || is_renewed);
                proof.push(text);
            }
            ReadResult::Absent => {}
            ReadResult::Unknown(why) => missing.push(format!("its Lease: {why}")),
        }
    }
    let workloads = match seen.workloads {
        ReadResult::Found(workloads) => workloads,
        ReadResult::Absent | ReadResult::Unknown(_) if renewed == Some(true) => {
            return ControllerHealth::Alive(proof, None);
        }
        ReadResult::Absent | ReadResult::Unknown(_) => {
            let why = seen.workloads.why_unknown().unwrap_or("not read");
            missing.push(format!(
                "whether {} runs: deployments, statefulsets and daemonsets: {why}",
                entry.owner
            ));
            return ControllerHealth::Unknown {
                known: proof,
                missing,
            };
        }
    };
    let found: Vec<&Workload> = workloads.iter().filter(is_one).collect();
    let (found, rest) = match &seen.own {
        Some(own) => own.separate(found, entry),
        None => (found, Vec::new()),
    };
    let ready = found.iter().find(|workload| workload.ready > 0);
    proof.extend(found.iter().map(|workload| describe(workload)));
    match (renewed, ready, found.first()) {
        (Some(true), _, _) => {
            ControllerHealth::Alive(proof, ready.or(found.first()).map(|w| (*w).clone()))
        }
        // Its pods are ready, but there is no leader.
        (Some(false), Some(ready), _) => ControllerHealth::Down(proof, Some((*ready).clone())),
        (None, Some(ready), _) => ControllerHealth::Alive(proof, Some((*ready).clone())),
        (_, None, Some(first)) => ControllerHealth::Down(proof, Some((*first).clone())),
        (_, None, None) => {
            let checked = (workloads.len(), rest.as_slice());
            not_found(entry, &controllers, checked, proof, missing)
        }
    }
}

fn not_found(
    entry: &Entry,
    controllers: &[&Controller],
    (total, rest): (usize, &[&Workload]),
    mut proof: Vec<String>,
    mut missing: Vec<String>,
) -> ControllerHealth {
    let names: Vec<_> = controllers
        .iter()
        .map(|controller| controller.name.trim_end_matches('-'))
        .collect();
    let owner = &entry.owner;
    if entry.hosted || names.is_empty() {
        missing.push(format!(
            "whether {owner} runs: it may run outside the cluster"
        ));
        return ControllerHealth::Unknown {
            known: proof,
            missing,
        };
    }
    let mut absent = format!(
        "no Deployment, StatefulSet or DaemonSet is {} or runs its image ({total} checked)",
        names.join(" or ")
    );
    if !rest.is_empty() {
        let rest: Vec<_> = rest.iter().map(|workload| workload.place()).collect();
        absent = format!(
            "apart from other parts of Belayer ({}), {absent}",
            rest.join(", ")
        );
    }
    proof.insert(0, absent);
    if missing.is_empty() {
        ControllerHealth::Gone(proof)
    } else {
        ControllerHealth::Unknown {
            known: proof,
            missing,
        }
    }
}

/// Judges the controller of an unknown finalizer, by the field manager that set it.
pub(crate) fn of_manager(manager: Option<&str>, seen: &Observed<'_>) -> ControllerHealth {
    let Some(manager) = manager else {
        return ControllerHealth::Unknown {
            known: Vec::new(),
            missing: vec![
                "which controller set it: it is not a known finalizer, and managedFields names no manager".to_owned(),
            ],
        };
    };
    let ReadResult::Found(workloads) = seen.workloads else {
        let why = seen.workloads.why_unknown().unwrap_or("not read");
        return ControllerHealth::Unknown {
            known: Vec::new(),
            missing: vec![format!(
                "whether {manager}, which set it, runs: deployments, statefulsets and daemonsets: {why}"
            )],
        };
    };
    let found: Vec<_> = workloads
        .iter()
        .filter(|workload| workload.name == manager)
        .collect();
    let [workload] = found.as_slice() else {
        let total = workloads.len();
        let how_many = if found.is_empty() {
            "none"
        } else {
            "more than one"
        };
        return ControllerHealth::Unknown {
            known: Vec::new(),
            missing: vec![format!(
                "which controller set it: it is not a known finalizer; it was set by field manager {manager:?}, and {how_many} \
                 of the {total} Deployments, StatefulSets and DaemonSets has that name"
            )],
        };
    };
    let proof = vec![format!(
        "it was set by field manager {manager:?}, the name of {}",
        describe(workload)
    )];
    if workload.ready > 0 {
        ControllerHealth::Alive(proof, Some((*workload).clone()))
    } else {
        ControllerHealth::Down(proof, Some((*workload).clone()))
    }
}

fn describe(workload: &Workload) -> String {
    format!(
        "{}: {} of {} pods ready",
        workload.place(),
        workload.ready,
        workload.desired
    )
}

fn judge(lease: &Lease, now: Timestamp) -> (bool, String) {
    let place = &lease.place;
    let Some(renewed) = lease.renewed else {
        return (false, format!("lease {place} was never renewed"));
    };
    let ago = now.duration_since(renewed).as_secs();
    let fresh = ago <= lease.seconds.max(15) * GRACE_LENGTHS && !lease.holder.is_empty();
    let text = if lease.holder.is_empty() {
        format!("lease {place} was released {} ago", age(ago))
    } else {
        format!(
            "lease {place} was last renewed {} ago (its duration is {}s)",
            age(ago),
            lease.seconds
        )
    };
    (fresh, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known_finalizers::KNOWN_FINALIZERS;
    use rstest::rstest;

    const NOW: i64 = 1_800_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(NOW + seconds).unwrap()
    }

    fn lease(renewed: i64) -> ReadResult<Lease> {
        ReadResult::Found(Lease {
            place: "keda/operator.keda.sh".into(),
            holder: "keda-operator-1".into(),
            renewed: Some(at(renewed)),
            seconds: 15,
        })
    }

    fn operator(ready: i64) -> ReadResult<Vec<Workload>> {
        ReadResult::Found(vec![Workload {
            kind: "deployment",
            namespace: "keda".into(),
            name: "keda-operator".into(),
            desired: 1,
            ready,
            images: vec![],
        }])
    }

    fn name_of(health: &ControllerHealth) -> &'static str {
        match health {
            ControllerHealth::Alive(..) => "alive",
            ControllerHealth::Down(..) => "down",
            ControllerHealth::Gone(_) => "gone",
            ControllerHealth::Unknown { .. } => "unknown",
        }
    }

    #[rstest]
    #[case::renewed(operator(1), lease(-5), "alive")]
    #[case::ready_without_a_lease(operator(1), ReadResult::Absent, "alive")]
    #[case::ready_without_a_leader(operator(1), lease(-3_600), "down")]
    #[case::not_ready(operator(0), ReadResult::Absent, "down")]
    #[case::not_ready_with_a_dead_lease(operator(0), lease(-3_600), "down")]
    #[case::nowhere(ReadResult::Found(vec![]), ReadResult::Absent, "gone")]
    #[case::nowhere_with_a_dead_lease(ReadResult::Found(vec![]), lease(-3_600), "gone")]
    #[case::nowhere_but_its_lease_is_renewed(ReadResult::Found(vec![]), lease(-1), "alive")]
    #[case::nowhere_and_its_lease_is_unreadable(ReadResult::Found(vec![]), ReadResult::Unknown("not allowed".into()), "unknown")]
    #[case::workloads_are_unreadable(ReadResult::Unknown("not allowed".into()), lease(-3_600), "unknown")]
    #[case::workloads_are_unreadable_but_its_lease_is_renewed(ReadResult::Unknown("no".into()), lease(-1), "alive")]
    fn a_known_controller(
        #[case] workloads: ReadResult<Vec<Workload>>,
        #[case] lease: ReadResult<Lease>,
        #[case] expected: &str,
    ) {
        let entry = KNOWN_FINALIZERS.find("finalizer.keda.sh").unwrap();
        let seen = Observed {
            workloads: &workloads,
            leases: vec![&lease],
            own: None,
        };
        assert_eq!(
            name_of(&of_known(entry, "ScaledObject", &seen, at(0))),
            expected
        );
    }

    const BELAYER: &str = "belayer-system/belayer";
    const APART: &str = "belayer-system/belayer-pod-recreation";

    /// The kind, place and number of ready pods of each.
    fn of_belayer(all: &[(&'static str, &str, i64)]) -> ReadResult<Vec<Workload>> {
        let workload = |(kind, place, ready): &(&'static str, &str, i64)| {
            let (namespace, name) = place.split_once('/').unwrap();
            Workload {
                kind,
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                desired: 1,
                ready: *ready,
                images: vec!["registry.invalid/belayer/belayer:0.1.0".to_owned()],
            }
        };
        ReadResult::Found(all.iter().map(workload).collect())
    }

    /// All of Belayer's workloads run the same image.
    #[rstest]
    #[case::its_deployment_is_down("belayer.dev/pod-recreation", Some(APART), &[BELAYER],
        &[("deployment", BELAYER, 1), ("deployment", APART, 0)], "down")]
    #[case::the_other_deployment_is_down("belayer.dev/pod-recreation", Some(APART), &[BELAYER],
        &[("deployment", BELAYER, 0), ("deployment", APART, 1)], "alive")]
    #[case::its_deployment_is_deleted("belayer.dev/pod-recreation", Some(APART), &[BELAYER],
        &[("deployment", BELAYER, 1)], "gone")]
    #[case::a_single_deployment("belayer.dev/pod-recreation", Some(BELAYER), &[],
        &[("deployment", BELAYER, 1)], "alive")]
    #[case::without_leases("belayer.dev/pod-recreation", None, &[],
        &[("deployment", BELAYER, 1), ("deployment", APART, 0)], "down")]
    #[case::that_of_pod_finalizer_is_down("belayer.dev/pod-status", Some(BELAYER), &[APART],
        &[("deployment", BELAYER, 0), ("deployment", APART, 1)], "down")]
    #[case::that_of_pod_finalizer_is_down_without_leases("belayer.dev/pod-status", None, &[],
        &[("deployment", APART, 1), ("deployment", BELAYER, 0)], "down")]
    #[case::a_deployment_of_another_name("belayer.dev/pod-status", Some(BELAYER), &[APART],
        &[("deployment", "ops/rope", 1), ("deployment", APART, 0)], "alive")]
    #[case::the_node_agent_remains("belayer.dev/pod-status", Some(BELAYER), &[],
        &[("daemonset", "belayer-node-agent/belayer-node-agent", 3)], "gone")]
    fn the_deployments_of_belayer_are_told_apart(
        #[case] finalizer: &str,
        #[case] lease: Option<&str>,
        #[case] others: &[&str],
        #[case] workloads: &[(&'static str, &str, i64)],
        #[case] expected: &str,
    ) {
        let entry = KNOWN_FINALIZERS.find(finalizer).unwrap();
        let workloads = of_belayer(workloads);
        let seen = Observed {
            workloads: &workloads,
            leases: Vec::new(),
            own: Some(OwnDeployment {
                lease,
                others: others.iter().copied().collect(),
            }),
        };
        let health = of_known(entry, "Pod", &seen, at(0));
        assert_eq!(name_of(&health), expected, "{health:?}");
        if let ControllerHealth::Gone(proof) = health {
            let says = "apart from other parts of Belayer (";
            assert!(proof[0].starts_with(says), "{proof:?}");
        }
    }

    #[test]
    fn the_absence_of_a_controller_that_may_run_elsewhere_proves_nothing() {
        let entry = KNOWN_FINALIZERS
            .find("networking.gke.io/neg-finalizer")
            .unwrap();
        let seen = Observed {
            workloads: &ReadResult::Found(vec![]),
            leases: vec![],
            own: None,
        };
        assert_eq!(
            name_of(&of_known(
                entry,
                "ServiceNetworkEndpointGroup",
                &seen,
                at(0)
            )),
            "unknown"
        );
    }

    #[rstest]
    #[case(Some("keda-operator"), 0, "down")]
    #[case(Some("keda-operator"), 1, "alive")]
    #[case(Some("another-manager"), 1, "unknown")]
    #[case(None, 1, "unknown")]
    fn an_unknown_finalizer_is_judged_by_its_manager(
        #[case] manager: Option<&str>,
        #[case] ready: i64,
        #[case] expected: &str,
    ) {
        let workloads = operator(ready);
        let seen = Observed {
            workloads: &workloads,
            leases: vec![],
            own: None,
        };
        assert_eq!(name_of(&of_manager(manager, &seen)), expected);
    }
}
