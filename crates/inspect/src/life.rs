//! Does the controller of a finalizer show life? Judged by its workloads and its Lease.

use jiff::Timestamp;

use crate::book::{Controller, Entry};
use crate::reader::Look;
use crate::report::age;

/// A workload that may be a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// `deployment`, `statefulset` or `daemonset`.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// How many pods it is to have.
    pub desired: i64,
    /// How many are ready.
    pub ready: i64,
    /// Its containers' images.
    pub images: Vec<String>,
}

impl Workload {
    /// `deployment keda/keda-operator`.
    pub fn place(&self) -> String {
        format!("{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// A Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// `namespace/name`.
    pub place: String,
    /// Who holds it; empty if it was given back.
    pub holder: String,
    /// When it was renewed last.
    pub renewed: Option<Timestamp>,
    /// How long it lasts, in seconds.
    pub seconds: i64,
}

/// What was found out about a controller. Each but the last stands on proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Life {
    /// It runs.
    Alive(Vec<String>, Option<Workload>),
    /// It is there and does not run.
    Down(Vec<String>, Option<Workload>),
    /// It is not there any more.
    Gone(Vec<String>),
    /// Not proven either way.
    Unknown {
        /// What is known.
        known: Vec<String>,
        /// What is missing.
        missing: Vec<String>,
    },
}

/// What was seen of a controller.
#[derive(Debug, Clone)]
pub struct Sightings<'a> {
    /// All workloads of the cluster, or of the namespace that could be looked at.
    pub workloads: &'a Look<Vec<Workload>>,
    /// The Leases that the book names.
    pub leases: Vec<&'a Look<Lease>>,
}

/// A Lease counts as renewed for so many of its own lengths.
const GRACE_LENGTHS: i64 = 4;

/// Judges the controller of a known finalizer on objects of `kind`.
pub fn of_known(entry: &Entry, kind: &str, seen: &Sightings<'_>, now: Timestamp) -> Life {
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
    for look in &seen.leases {
        match look {
            Look::Found(lease) => {
                let (is_renewed, said) = judge(lease, now);
                renewed = Some(renewed.unwrap_or(false) || is_renewed);
                proof.push(said);
            }
            Look::Absent => {}
            Look::Unknown(why) => missing.push(format!("its Lease: {why}")),
        }
    }
    let workloads = match seen.workloads {
        Look::Found(workloads) => workloads,
        Look::Absent | Look::Unknown(_) if renewed == Some(true) => {
            return Life::Alive(proof, None);
        }
        Look::Absent | Look::Unknown(_) => {
            let why = seen.workloads.why_unknown().unwrap_or("not looked at");
            missing.push(format!(
                "whether {} runs: deployments, statefulsets and daemonsets: {why}",
                entry.owner
            ));
            return Life::Unknown {
                known: proof,
                missing,
            };
        }
    };
    let found: Vec<&Workload> = workloads.iter().filter(is_one).collect();
    let ready = found.iter().find(|workload| workload.ready > 0);
    proof.extend(found.iter().map(|workload| said(workload)));
    match (renewed, ready, found.first()) {
        (Some(true), _, _) => Life::Alive(proof, ready.or(found.first()).map(|w| (*w).clone())),
        // Its pods are ready and yet nobody leads.
        (Some(false), Some(ready), _) => Life::Down(proof, Some((*ready).clone())),
        (None, Some(ready), _) => Life::Alive(proof, Some((*ready).clone())),
        (_, None, Some(first)) => Life::Down(proof, Some((*first).clone())),
        (_, None, None) => not_found(entry, &controllers, workloads.len(), proof, missing),
    }
}

fn not_found(
    entry: &Entry,
    controllers: &[&Controller],
    looked: usize,
    mut proof: Vec<String>,
    mut missing: Vec<String>,
) -> Life {
    let names: Vec<_> = controllers
        .iter()
        .map(|controller| controller.name.trim_end_matches('-'))
        .collect();
    let owner = &entry.owner;
    if entry.hosted || names.is_empty() {
        missing.push(format!(
            "whether {owner} runs: it may run outside the cluster, where it cannot be seen"
        ));
        return Life::Unknown {
            known: proof,
            missing,
        };
    }
    proof.insert(
        0,
        format!(
            "none of the {looked} Deployments, StatefulSets and DaemonSets of all namespaces is {} or runs its image",
            names.join(" or ")
        ),
    );
    if missing.is_empty() {
        Life::Gone(proof)
    } else {
        Life::Unknown {
            known: proof,
            missing,
        }
    }
}

/// Judges the controller of a finalizer that is in no book, by the name of who set it.
pub fn of_manager(manager: Option<&str>, seen: &Sightings<'_>) -> Life {
    let Some(manager) = manager else {
        return Life::Unknown {
            known: Vec::new(),
            missing: vec![
                "whose it is: it is in no book, and the server notes nobody who set it".to_owned(),
            ],
        };
    };
    let Look::Found(workloads) = seen.workloads else {
        let why = seen.workloads.why_unknown().unwrap_or("not looked at");
        return Life::Unknown {
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
        let looked = workloads.len();
        let how_many = if found.is_empty() {
            "none"
        } else {
            "more than one"
        };
        return Life::Unknown {
            known: Vec::new(),
            missing: vec![format!(
                "whose it is: it is in no book; it was set by field manager {manager:?}, and {how_many} of the \
                 {looked} Deployments, StatefulSets and DaemonSets has that name"
            )],
        };
    };
    let proof = vec![format!(
        "it was set by field manager {manager:?}, the name of {}",
        said(workload)
    )];
    if workload.ready > 0 {
        Life::Alive(proof, Some((*workload).clone()))
    } else {
        Life::Down(proof, Some((*workload).clone()))
    }
}

fn said(workload: &Workload) -> String {
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
    let said = if lease.holder.is_empty() {
        format!("lease {place} was given back {} ago", age(ago))
    } else {
        format!(
            "lease {place} was last renewed {} ago (it lasts {}s)",
            age(ago),
            lease.seconds
        )
    };
    (fresh, said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::BOOK;
    use rstest::rstest;

    const NOW: i64 = 1_800_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(NOW + seconds).unwrap()
    }

    fn lease(renewed: i64) -> Look<Lease> {
        Look::Found(Lease {
            place: "keda/operator.keda.sh".into(),
            holder: "keda-operator-1".into(),
            renewed: Some(at(renewed)),
            seconds: 15,
        })
    }

    fn operator(ready: i64) -> Look<Vec<Workload>> {
        Look::Found(vec![Workload {
            kind: "deployment",
            namespace: "keda".into(),
            name: "keda-operator".into(),
            desired: 1,
            ready,
            images: vec![],
        }])
    }

    fn word(life: &Life) -> &'static str {
        match life {
            Life::Alive(..) => "alive",
            Life::Down(..) => "down",
            Life::Gone(_) => "gone",
            Life::Unknown { .. } => "unknown",
        }
    }

    #[rstest]
    #[case::renewed(operator(1), lease(-5), "alive")]
    #[case::ready_without_a_lease(operator(1), Look::Absent, "alive")]
    #[case::ready_but_nobody_leads(operator(1), lease(-3_600), "down")]
    #[case::not_ready(operator(0), Look::Absent, "down")]
    #[case::not_ready_with_a_dead_lease(operator(0), lease(-3_600), "down")]
    #[case::nowhere(Look::Found(vec![]), Look::Absent, "gone")]
    #[case::nowhere_with_a_dead_lease(Look::Found(vec![]), lease(-3_600), "gone")]
    #[case::nowhere_but_its_lease_is_renewed(Look::Found(vec![]), lease(-1), "alive")]
    #[case::nowhere_and_its_lease_cannot_be_seen(Look::Found(vec![]), Look::Unknown("not allowed".into()), "unknown")]
    #[case::workloads_cannot_be_seen(Look::Unknown("not allowed".into()), lease(-3_600), "unknown")]
    #[case::workloads_cannot_be_seen_but_its_lease_is_renewed(Look::Unknown("no".into()), lease(-1), "alive")]
    fn a_known_controller(
        #[case] workloads: Look<Vec<Workload>>,
        #[case] lease: Look<Lease>,
        #[case] expected: &str,
    ) {
        let entry = BOOK.find("finalizer.keda.sh").unwrap();
        let seen = Sightings {
            workloads: &workloads,
            leases: vec![&lease],
        };
        assert_eq!(
            word(&of_known(entry, "ScaledObject", &seen, at(0))),
            expected
        );
    }

    #[test]
    fn nothing_follows_from_the_absence_of_what_may_run_elsewhere() {
        let entry = BOOK.find("networking.gke.io/neg-finalizer").unwrap();
        let seen = Sightings {
            workloads: &Look::Found(vec![]),
            leases: vec![],
        };
        assert_eq!(
            word(&of_known(
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
    #[case(Some("someone-else"), 1, "unknown")]
    #[case(None, 1, "unknown")]
    fn an_unknown_finalizer_is_judged_by_who_set_it(
        #[case] manager: Option<&str>,
        #[case] ready: i64,
        #[case] expected: &str,
    ) {
        let workloads = operator(ready);
        let seen = Sightings {
            workloads: &workloads,
            leases: vec![],
        };
        assert_eq!(word(&of_manager(manager, &seen)), expected);
    }
}
