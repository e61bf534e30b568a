//! Whether the controller of a finalizer runs, by its workloads and its Lease.

use std::collections::BTreeSet;

use belayer_core::object::Resource;
use jiff::Timestamp;

use crate::known_finalizers::{Controller, Entry, Matching};
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

impl Lease {
    /// Whether it is held and its holder renews it. The holder's clock is not this machine's, and a holder may miss some
    /// renewals: there is a grace period of several times its duration.
    pub(crate) fn is_renewed(&self, now: Timestamp) -> bool {
        let grace = self.seconds.max(15) * GRACE_LENGTHS;
        let ago = self.renewed.map(|at| now.duration_since(at).as_secs());
        !self.holder.is_empty() && ago.is_some_and(|ago| ago <= grace)
    }

    fn is_in(&self, namespace: &str) -> bool {
        let own = self.place.split_once('/');
        own.is_some_and(|(own, _)| own == namespace)
    }
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
    /// Places of workloads that are the controller, whatever their names and images: `namespace/name`.
    pub recognized: Vec<&'a str>,
    /// Places of workloads that are controllers of other objects: `namespace/name`.
    pub of_others: Vec<&'a str>,
    /// For a sidecar of a CSI driver: the driver.
    pub driver: Option<&'a str>,
    /// For a controller of Belayer's: what distinguishes its Deployment from the others.
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

/// Kubernetes' own manager.
const MANAGER: &str = "kube-controller-manager";

/// The usual name of a cloud's manager.
const CLOUD_MANAGER: &str = "cloud-controller-manager";

/// Maximum number of workloads of other drivers that are named.
const NAMED: usize = 3;

/// A Lease counts as renewed for this many times its duration.
const GRACE_LENGTHS: i64 = 4;

/// Judges the controller of a known finalizer on objects of `kind`.
pub(crate) fn of_known(
    entry: &Entry,
    kind: &Resource,
    seen: &Observed<'_>,
    now: Timestamp,
) -> ControllerHealth {
    let controllers = entry.controllers_of(&kind.kind);
    let is_recognized = |one: &&Workload| seen.recognized.iter().any(|place| one.is_at(place));
    let has_its_name =
        |workload: &&Workload| has_name(entry, kind, workload) || is_recognized(workload);
    let mut leases = Vec::new();
    let mut missing = Vec::new();
    for lease in &seen.leases {
        match lease {
            ReadResult::Found(lease) => leases.push((lease, judge(lease, now))),
            ReadResult::Absent => {}
            ReadResult::Unknown(why) => missing.push(format!("its Lease: {why}")),
        }
    }
    let is_renewed = leases.iter().any(|(_, (is_renewed, _))| *is_renewed);
    let texts = |leases: Vec<(_, (bool, String))>| -> Vec<String> {
        leases.into_iter().map(|(_, (_, text))| text).collect()
    };
    let ReadResult::Found(workloads) = seen.workloads else {
        let proof = texts(leases);
        if is_renewed {
            return ControllerHealth::Alive(proof, None);
        }
        let why = seen.workloads.why_unknown().unwrap_or("not read");
        missing.push(format!(
            "whether {} runs: deployments, statefulsets and daemonsets: {why}",
            entry.owner
        ));
        return ControllerHealth::Unknown {
            known: proof,
            missing,
        };
    };
    let is_of_others = |one: &&Workload| seen.of_others.iter().any(|place| one.is_at(place));
    let (of_others, candidates): (Vec<_>, Vec<_>) = workloads.iter().partition(is_of_others);
    let mut found: Vec<&Workload> = candidates.iter().copied().filter(has_its_name).collect();
    // Other parts of a project often run the same image. Those of Belayer are separated below.
    if found.is_empty() || seen.own.is_some() {
        let is_one = |one: &&Workload| is_one(entry, kind, one);
        found = candidates.into_iter().filter(is_one).collect();
    }
    let (found, rest) = match &seen.own {
        Some(own) => own.separate(found, entry),
        None => (found, of_others),
    };
    let ready = found.iter().find(|workload| workload.ready > 0);
    // When a controller moves to another namespace, its Lease stays behind. The manager of each cloud has another name,
    // and may have another Lease.
    if seen.own.is_none()
        && let Some(ready) = ready
    {
        let is_of_a_cloud = |one: &&&Controller| one.name == CLOUD_MANAGER;
        let mut clouds = controllers.iter().filter(is_of_a_cloud);
        let may_have_another = clouds.any(|usual| usual.name != ready.name);
        leases.retain(|(lease, (is_renewed, _))| {
            *is_renewed || !may_have_another && lease.is_in(&ready.namespace)
        });
    }
    let has_expired = !leases.is_empty() && !is_renewed;
    let mut proof = texts(leases);
    proof.extend(found.iter().map(|workload| describe(workload)));
    let workload = |one: &&Workload| (*one).clone();
    match (ready, found.first()) {
        (ready, first) if is_renewed => {
            ControllerHealth::Alive(proof, ready.or(first).map(workload))
        }
        // Its pods are ready, but there is no leader.
        (Some(ready), _) if has_expired => ControllerHealth::Down(proof, Some(workload(ready))),
        (Some(ready), _) => ControllerHealth::Alive(proof, Some(workload(ready))),
        (None, Some(first)) => ControllerHealth::Down(proof, Some(workload(first))),
        // kube-controller-manager renews its Lease wherever it runs. Those of others remain when their provider runs
        // another one.
        (None, None) if has_expired && controllers.iter().any(|one| one.name == MANAGER) => {
            ControllerHealth::Down(proof, None)
        }
        (None, None) => {
            let checked = (workloads.len(), rest.as_slice());
            if entry.by_group {
                missing.push(format!(
                    "whether {} runs: no Deployment, StatefulSet or DaemonSet runs an image that is named after the API \
                     group {}",
                    entry.owner, kind.group
                ));
                let known = proof;
                return ControllerHealth::Unknown { known, missing };
            }
            if let Some(driver) = seen.driver {
                missing.push(of_no_driver(entry, driver, &rest));
                let known = proof;
                return ControllerHealth::Unknown { known, missing };
            }
            if let Some(namesake) = namesake(entry, &controllers, workloads) {
                missing.push(format!(
                    "whether {} runs: {} has the name of its controller, in another namespace than usual",
                    entry.owner,
                    namesake.place()
                ));
                let known = proof;
                return ControllerHealth::Unknown { known, missing };
            }
            not_found(entry, &controllers, checked, proof, missing)
        }
    }
}

/// Whether a workload has the name of a controller that removes a finalizer from objects of `kind`.
fn has_name(entry: &Entry, kind: &Resource, workload: &Workload) -> bool {
    let mut all = entry.controllers_of(&kind.kind).into_iter();
    all.any(|controller| controller.is(&workload.namespace, &workload.name))
}

/// Whether a workload has the name or the image of such a controller.
pub(crate) fn is_one(entry: &Entry, kind: &Resource, workload: &Workload) -> bool {
    let mut images = workload.images.iter();
    has_name(entry, kind, workload) || images.any(|image| entry.has_image(image, &kind.group))
}

/// What is missing if no workload is tied to the CSI driver of an object. Those of other drivers may be.
fn of_no_driver(entry: &Entry, driver: &str, others: &[&Workload]) -> String {
    let mut places: Vec<_> = others.iter().map(|one| one.place()).collect();
    let more = places.len().saturating_sub(NAMED);
    places.truncate(NAMED);
    if more > 0 {
        places.push(format!("{more} more"));
    }
    let apart = if places.is_empty() {
        String::new()
    } else {
        format!(
            " apart from {}, which may belong to other drivers,",
            places.join(", ")
        )
    };
    format!(
        "whether the {} of driver {driver} runs:{apart} no Deployment, StatefulSet or DaemonSet was found that does; it may \
         run outside the cluster",
        entry.owner
    )
}

/// A workload whose name is that of a controller that is known by its name and namespace alone, in another namespace.
fn namesake<'a>(
    entry: &Entry,
    controllers: &[&Controller],
    workloads: &'a [Workload],
) -> Option<&'a Workload> {
    let mut exact = controllers
        .iter()
        .filter(|one| one.matching == Matching::Exact && entry.images.is_empty());
    exact.find_map(|one| workloads.iter().find(|workload| workload.name == one.name))
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
    let image = if entry.images.is_empty() {
        ""
    } else {
        " or runs its image"
    };
    let mut absent = format!(
        "no Deployment, StatefulSet or DaemonSet is {}{image} ({total} checked)",
        names.join(" or ")
    );
    if !rest.is_empty() {
        let places: Vec<_> = rest.iter().map(|workload| workload.place()).collect();
        let what = if entry.is_belayers() {
            "other parts of Belayer"
        } else {
            "controllers of other objects"
        };
        absent = format!("apart from {what} ({}), {absent}", places.join(", "));
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

/// Field managers that are not evidence of a controller: names of the binaries of many controllers, and programs that
/// apply finalizers which others remove.
const NO_EVIDENCE: &[&str] = &[
    "argocd-application-controller",
    "controller",
    "controller-manager",
    "helm-controller",
    "kustomize-controller",
    "main",
    "manager",
    "operator",
];

/// What the field managers of programs that people and scripts run begin with, in lower case. `before-first-apply` is what
/// the API server calls whoever created an object before its first server-side apply.
const TOOLS: &[&str] = &["before-first-apply", "kubectl", "pulumi", "terraform"];

/// Whether a person or a script set a finalizer, and no controller.
fn is_tool(manager: &str) -> bool {
    let manager = manager.to_ascii_lowercase();
    manager == "helm" || TOOLS.iter().any(|tool| manager.starts_with(tool))
}

/// Judges the controller of an unknown finalizer, by the field manager that set it.
pub(crate) fn of_manager(manager: Option<&str>, seen: &Observed<'_>) -> ControllerHealth {
    let unknown = |missing: String| ControllerHealth::Unknown {
        known: Vec::new(),
        missing: vec![missing],
    };
    let Some(manager) = manager else {
        return unknown("which controller set it: it is not a known finalizer, and managedFields names no manager".to_owned());
    };
    if is_tool(manager) {
        return unknown(format!(
            "which controller removes it: it is not a known finalizer; it was set by field manager {manager:?}, so by a person or a \
                 script"
        ));
    }
    if NO_EVIDENCE.contains(&manager) {
        return unknown(format!(
            "which controller set it: it is not a known finalizer; it was set by field manager {manager:?}, and many \
                 controllers have that name or apply finalizers that others remove"
        ));
    }
    let ReadResult::Found(workloads) = seen.workloads else {
        let why = seen.workloads.why_unknown().unwrap_or("not read");
        return unknown(format!(
            "whether {manager}, which set it, runs: deployments, statefulsets and daemonsets: {why}"
        ));
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
        return unknown(format!(
            "which controller set it: it is not a known finalizer; it was set by field manager {manager:?}, and {how_many} \
                 of the {total} Deployments, StatefulSets and DaemonSets has that name"
        ));
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
    let text = if lease.holder.is_empty() {
        format!("lease {place} was released {} ago", age(ago))
    } else {
        format!(
            "lease {place} was last renewed {} ago (its duration is {}s)",
            age(ago),
            lease.seconds
        )
    };
    (lease.is_renewed(now), text)
}

#[cfg(test)]
mod tests;
