//! Finalizers of controllers: known ones, unknown ones, and Belayer's own.

use jiff::Timestamp;
use serde_json::json;

use belayer_core::events::namespace_of_events;
use belayer_core::object::Resource;
use belayer_holds::names::RELEASE_ANNOTATION;

use super::{Diagnosis, known, volumes};
use crate::argo::{self, INSTANCE_LABEL, WorkflowController};
use crate::controller_health::{self, ControllerHealth, Observed, OwnDeployment, Workload};
use crate::evidence::csi::{self, Driver};
use crate::evidence::{NotExplained, World};
use crate::explain::{Action, Explained};
use crate::known_finalizers::Entry;
use crate::object::Terminating;
use crate::report::{Cause, Step, Verdict};
use crate::untrusted::word;

/// Whether the controller of `finalizer` runs.
pub(super) fn health_of(
    object: &Terminating,
    finalizer: &str,
    world: &World,
    now: Timestamp,
) -> ControllerHealth {
    if let Some(entry) = world.known.find(finalizer) {
        if csi::is_of_sidecar(entry) {
            return health_of_sidecar(object, finalizer, entry, world, now);
        }
        return health_of_known(object, entry, world, now);
    }
    let manager = object.set_by.get(finalizer).map(|by| by.manager.as_str());
    let seen = Observed {
        workloads: &world.workloads,
        leases: Vec::new(),
        recognized: Vec::new(),
        of_others: Vec::new(),
        driver: None,
        own: None,
    };
    controller_health::of_manager(manager, &seen)
}

fn health_of_known(
    object: &Terminating,
    entry: &Entry,
    world: &World,
    now: Timestamp,
) -> ControllerHealth {
    let kind = &object.object.kind.resource;
    let own = entry
        .component()
        .map(|component| own_deployment(entry, component, world));
    // The place of Belayer's Lease comes from its gate or configuration, not from the list of known finalizers.
    let lease = own.as_ref().and_then(|own| own.lease);
    let instance = object.labels.get(INSTANCE_LABEL);
    let instance = instance.filter(|_| is_of_argo(entry));
    let (of_argo, of_others) = workflow_controllers(object, entry, world);
    // The usual Lease of Argo is that of the controller without an instance ID.
    let has_usual = of_argo.is_empty() && instance.is_none();
    let usual = entry.controllers_of(&kind.kind).into_iter();
    let usual = usual.filter(|_| has_usual).filter_map(|one| {
        let lease = one.lease.as_ref()?;
        Some(format!("{}/{lease}", one.namespace))
    });
    let leases = usual
        .chain(of_argo.iter().filter_map(|one| one.lease()))
        .chain(lease.map(str::to_owned))
        .filter_map(|place| world.leases.get(&place));
    let seen = Observed {
        workloads: &world.workloads,
        leases: leases.collect(),
        recognized: of_argo.iter().map(|one| &*one.place).collect(),
        of_others: of_others.iter().map(|one| &*one.place).collect(),
        driver: None,
        own,
    };
    controller_health::of_known(entry, kind, &seen, now)
}

/// The CSI driver of an object, if the finalizer is that of a sidecar.
fn driver_of(object: &Terminating, finalizer: &str, world: &World) -> Option<Driver> {
    let entry = world.known.find(finalizer)?;
    let of = || world.drivers.of(object, finalizer);
    csi::is_of_sidecar(entry).then(of).flatten()
}

/// Whether the sidecar runs that belongs to the driver of the object. Those of other drivers do not count.
fn health_of_sidecar(
    object: &Terminating,
    finalizer: &str,
    entry: &Entry,
    world: &World,
    now: Timestamp,
) -> ControllerHealth {
    let kind = &object.object.kind.resource;
    let Some(driver) = driver_of(object, finalizer, world) else {
        return ControllerHealth::Unknown {
            known: Vec::new(),
            missing: vec![format!(
                "whether {} of its CSI driver runs: the driver is not known",
                entry.owner
            )],
        };
    };
    let leases = world.drivers.leases(entry, &driver);
    let sidecars = world.workloads.found().into_iter().flatten();
    let others: Vec<String> = sidecars
        .filter(|one| controller_health::is_one(entry, kind, one))
        .filter(|one| !world.drivers.is_of(one, &driver, &leases))
        .map(|one| format!("{}/{}", one.namespace, one.name))
        .collect();
    let seen = Observed {
        workloads: &world.workloads,
        leases,
        recognized: Vec::new(),
        of_others: others.iter().map(String::as_str).collect(),
        driver: Some(&driver.0),
        own: None,
    };
    let health = controller_health::of_known(entry, kind, &seen, now);
    match health {
        ControllerHealth::Unknown { mut known, missing }
            if world.drivers.has_no_object(&driver) =>
        {
            known.push(format!("no CSIDriver {} exists", driver.0));
            ControllerHealth::Unknown { known, missing }
        }
        health => health,
    }
}

/// Whether Argo's workflow controller removes the finalizer.
fn is_of_argo(entry: &Entry) -> bool {
    argo::FINALIZERS.contains(&&*entry.finalizer)
}

/// Argo's workflow controllers that may process the object, by its instance ID and namespace, and the others. None if
/// the finalizer is of another project.
fn workflow_controllers<'a>(
    object: &Terminating,
    entry: &Entry,
    world: &'a World,
) -> (Vec<&'a WorkflowController>, Vec<&'a WorkflowController>) {
    let instance = object.labels.get(INSTANCE_LABEL).unwrap_or_default();
    let namespace = object.object.key.namespace().unwrap_or_default();
    let all = world.argo.found().into_iter().flatten();
    all.filter(|_| is_of_argo(entry))
        .partition(|one| one.may_process(instance, namespace))
}

/// What distinguishes the Deployment of a component of Belayer's from its others.
fn own_deployment<'a>(entry: &Entry, component: &str, world: &'a World) -> OwnDeployment<'a> {
    // A separate Deployment has a separate Lease, and only the gate names that.
    let is_apart = match &*entry.controllers {
        [apart, _, ..] => {
            let mut all = world.workloads.found().into_iter().flatten();
            all.any(|workload| apart.is(&workload.namespace, &workload.name))
        }
        _ => false,
    };
    let leases = &world.own_leases;
    let is_its = leases.is_named(component) || !is_apart;
    let lease = leases.of(component).filter(|_| is_its);
    OwnDeployment {
        lease,
        others: leases.except(lease),
    }
}

/// A finalizer that a controller has to remove.
pub(super) fn controller(
    object: &Terminating,
    finalizer: &str,
    world: &World,
    now: Timestamp,
) -> Diagnosis {
    let entry = world.known.find(finalizer);
    let health = health_of(object, finalizer, world, now);
    if entry.is_some_and(Entry::is_belayers) {
        return match health {
            ControllerHealth::Gone(proof) => left_alone(proof),
            _ => unruled(object, finalizer, world),
        };
    }
    let owner = entry.map_or("its controller", |entry| entry.owner.as_str());
    let driver = driver_of(object, finalizer, world);
    let owner = match &driver {
        Some(driver) => &format!("{owner} of {}", driver.0),
        None => owner,
    };
    match health {
        ControllerHealth::Alive(proof, workload) => {
            let mut found = base(Verdict::ControllerAlive, proof);
            found.next = vec![match switch(object, entry) {
                Some(step) => step,
                None => {
                    let log = workload.as_ref().map(log_of);
                    check_log(object, not_removed(owner), log)
                }
            }];
            found.next.push(Step::run(
                "Check the object's Events for what it waits for",
                events(object),
            ));
            found
        }
        ControllerHealth::Down(proof, workload) => {
            let mut found = base(Verdict::ControllerDown, proof);
            found.next = start_again(owner, BY_ITSELF, workload.as_ref());
            found
        }
        ControllerHealth::Gone(proof) => {
            let mut found = base(Verdict::ControllerGone, proof);
            found.next = vec![
                Step::say(format!(
                    "Install {owner} again: it cleans up and removes its finalizer by itself"
                )),
                force(object, finalizer, world),
            ];
            found
        }
        ControllerHealth::Unknown { known, missing } => {
            let mut found = base(Verdict::Unknown, known);
            found.missing = missing;
            found.next = match entry {
                Some(entry) if csi::is_of_sidecar(entry) => find_out_about_sidecar(owner, entry),
                Some(entry) => find_out_about(object, entry),
                None => find_out_whose(object),
            };
            found
        }
    }
}

/// A hold of Belayer's in a cluster without Belayer, as a backup or an archive brings it there (A14).
fn left_alone(proof: Vec<String>) -> Diagnosis {
    let found = Diagnosis {
        proof,
        ..Diagnosis::new(Cause::Hold, Verdict::ControllerGone)
    };
    found.next(Step::run(
        "Nothing removes Belayer's finalizers in a cluster without Belayer: this command removes all of them, of \
         whatever kind the object is, and needs no installation",
        "belayer drain",
    ))
}

/// A hold of Belayer's on an object of a kind that the given configuration does not cover: no controller handles it.
fn unruled(object: &Terminating, finalizer: &str, world: &World) -> Diagnosis {
    let kind = &object.object.kind.resource;
    // Another configuration selects other objects: with a wrong one, the command would release what Belayer still holds.
    let no_longer = "If it no longer has one, Belayer ignores these objects";
    let last = match &world.config {
        Some(path) => Step::run(
            format!("{no_longer}; this command removes its finalizer from them"),
            format!("belayer drain --unselected --config {}", word(path)),
        ),
        None => Step::say(format!(
            "{no_longer}; `belayer drain --unselected` with Belayer's configuration (--config) removes its finalizer from \
             them"
        )),
    };
    Diagnosis::new(Cause::Hold, Verdict::HeldByBelayer)
        .proven(format!("{finalizer} is a finalizer of Belayer"))
        .missing(format!(
            "by which rule it is held: the configuration used here has no rule for {kind}"
        ))
        .next(Step::say(
            "If Belayer runs with a configuration that has such a rule, pass it to this command with --config",
        ))
        .next(last)
}

/// Steps for a known controller whose state could not be determined.
fn find_out_about(object: &Terminating, entry: &Entry) -> Vec<Step> {
    let Entry { owner, lost, .. } = entry;
    let first = switch(object, Some(entry)).unwrap_or_else(|| {
        Step::run(
            format!(
                "Find out whether {owner} runs: it removes its finalizer by itself. The object's status and Events often \
                 show what it waits for"
            ),
            object.object.kubectl("describe"),
        )
    });
    vec![first, not_by_force(lost)]
}

/// Steps for the sidecar of a CSI driver: the driver may be removed, or another sidecar than those that were found may
/// belong to it.
fn find_out_about_sidecar(owner: &str, entry: &Entry) -> Vec<Step> {
    let first = Step::run(
        format!(
            "Find out whether the driver is installed and where {owner} runs: it removes its finalizer by itself. Without \
             the driver, install it again"
        ),
        "kubectl get csidrivers",
    );
    vec![first, not_by_force(&entry.lost)]
}

fn not_by_force(lost: &str) -> Step {
    Step::say(format!(
        "Do not remove it by force before that is known. Lost: {lost}"
    ))
}

fn find_out_whose(object: &Terminating) -> Vec<Step> {
    vec![
        Step::run(
            "First find out which controller set it: the object's spec and status often show it",
            object.object.kubectl("describe"),
        ),
        Step::say(
            "Do not remove it by force: it is unknown what would be lost and whether its controller still exists",
        ),
    ]
}

/// For one of many controllers of a process: even if the process runs, this one may be switched off.
fn switch(object: &Terminating, entry: Option<&Entry>) -> Option<Step> {
    let controllers = entry?.controllers_of(&object.object.kind.resource.kind);
    let one = controllers.into_iter().find(|one| one.switch.is_some())?;
    let (manager, switch) = (&one.name, one.switch.as_ref()?);
    Some(Step::say(format!(
        "The controller {switch} of {manager} removes it: check that the flag --controllers of {manager} does not \
         switch it off, and check its log"
    )))
}

fn base(verdict: Verdict, proof: Vec<String>) -> Diagnosis {
    Diagnosis {
        proof,
        ..Diagnosis::new(Cause::Finalizer, verdict)
    }
}

fn not_removed(owner: &str) -> String {
    format!("{owner} runs and has not removed its finalizer: check its log")
}

fn check_log(object: &Terminating, say: String, log: Option<String>) -> Step {
    let name = word(object.object.key.name());
    match log {
        Some(log) => Step::run(say, format!("{log} | grep -F -- {name}")),
        None => Step::say(say),
    }
}

/// The log of all pods of a workload: only the leader writes about an object.
fn log_of(workload: &Workload) -> String {
    let Workload {
        kind,
        namespace,
        name,
        ..
    } = workload;
    format!(
        "kubectl -n {namespace} logs {kind}/{name} --all-pods=true --prefix --all-containers --since=1h"
    )
}

/// The log of Belayer. Its pods have the name of their Deployment as a label, so that no version of kubectl is too old.
fn log_of_belayer(workload: &Workload) -> String {
    let Workload {
        namespace, name, ..
    } = workload;
    format!(
        "kubectl -n {namespace} logs -l app.kubernetes.io/name={name} --prefix --tail=-1 --since=1h"
    )
}

/// What a running Belayer does now, and where to look if it does not: the API server may reject it, and the controller
/// may be switched off.
fn acts_now(object: &Terminating, explained: &Explained, workload: Option<&Workload>) -> [Step; 2] {
    let Explained {
        component, next, ..
    } = explained;
    [
        Step::run(
            format!(
                "{next}; if nothing changes within some seconds, check the object's Events: one such as ReleaseDenied shows \
                 what the API server rejects"
            ),
            events(object),
        ),
        check_log(
            object,
            format!(
                "Then check that the flag --controllers of Belayer does not switch off {component}, and check Belayer's log"
            ),
            workload.map(log_of_belayer),
        ),
    ]
}

fn events(object: &Terminating) -> String {
    let namespace = namespace_of_events(&object.object.key);
    format!(
        "kubectl -n {namespace} get events --field-selector involvedObject.uid={}",
        object.object.uid
    )
}

/// Belayer as the owner of a finalizer.
const BELAYER: &str = "Belayer";

/// What a restarted controller does that waits for nothing.
const BY_ITSELF: &str = "it removes its finalizer by itself";

/// What a restarted Belayer does that waits for something.
const ONCE_THERE: &str = "it removes its finalizer once nothing is missing";

/// How to start a controller that does not run, and what it does `then`.
fn start_again(owner: &str, then: &str, workload: Option<&Workload>) -> Vec<Step> {
    let Some(workload) = workload else {
        return vec![Step::say(format!("Start {owner} again: {then}"))];
    };
    let Workload {
        kind,
        namespace,
        name,
        desired,
        ready,
        ..
    } = workload;
    // A DaemonSet has no number of replicas: its nodes are selected.
    if *desired == 0 && *kind != "daemonset" {
        return vec![Step::run(
            format!("Start {owner} again: {then}"),
            format!("kubectl -n {namespace} scale {kind}/{name} --replicas=1"),
        )];
    }
    if *ready > 0 {
        return vec![Step::run(
            format!("{owner} has ready pods but no leader: check its log"),
            match owner {
                BELAYER => log_of_belayer(workload),
                _ => log_of(workload),
            },
        )];
    }
    vec![Step::run(
        format!("Make {owner} run again: {then}; this command shows why its pods are not ready"),
        format!("kubectl -n {namespace} describe {kind}/{name}"),
    )]
}

/// The last resort: removes exactly this finalizer.
pub(super) fn force(object: &Terminating, finalizer: &str, world: &World) -> Step {
    let lost = world
        .known
        .find(finalizer)
        .map_or("unknown", |entry| entry.lost.as_str());
    // After one removal the next command fails: the index of its finalizer may have changed.
    let order = match object.finalizers.len() {
        0 | 1 => "",
        _ => " Remove one finalizer at a time, and run this command again after each.",
    };
    Step::run(
        format!(
            "Only if the controller will never run again, remove this finalizer by force.{order} Lost: {lost}"
        ),
        removal(object, finalizer),
    )
}

/// The command that removes exactly this finalizer, and only while it is at the same index.
pub(super) fn removal(object: &Terminating, finalizer: &str) -> String {
    let index = object
        .finalizers
        .iter()
        .position(|name| name == finalizer)
        .unwrap_or_default();
    let path = format!("/metadata/finalizers/{index}");
    let patch = json!([
        { "op": "test", "path": path, "value": finalizer },
        { "op": "remove", "path": path },
    ]);
    format!(
        "{} --type=json -p {}",
        object.object.kubectl("patch"),
        word(&patch.to_string())
    )
}

/// One of Belayer's own holds, as its component explains it.
pub(super) fn belayers(
    object: &Terminating,
    hold: &str,
    explained: &Result<Explained, NotExplained>,
    world: &World,
    now: Timestamp,
) -> Diagnosis {
    let explained = match explained {
        Ok(explained) => explained,
        Err(why) => {
            return Diagnosis::new(Cause::Hold, Verdict::Unknown)
                .of(hold, world)
                .missing(format!("what Belayer would decide: {why}"));
        }
    };
    // Belayer releases it, even if its finalizer has the name of another controller's.
    let entry = world.known.of_component(explained.component);
    let health = match entry {
        Some(entry) => health_of_known(object, entry, world, now),
        None => health_of(object, hold, world, now),
    };
    let row = &explained.row;
    let mut found = Diagnosis::new(Cause::Hold, Verdict::HeldByBelayer)
        .of(hold, world)
        .proven(format!(
            "{}, rule {} ({}): {}",
            explained.component, row.number, row.name, row.says
        ));
    found.known = entry.map(known).or(found.known);
    found.detail.clone_from(&explained.missing);
    if explained.action != Action::Release {
        return kept(found, object, explained, health, entry, world);
    }
    // The evidence exists. If the object is still stuck, Belayer may not run.
    let evidence = explained.evidence.as_deref().unwrap_or("complete");
    found = found.proven(format!("the evidence for its release exists: {evidence}"));
    match health {
        ControllerHealth::Alive(proof, workload) => {
            found.proof.extend(proof);
            found.next = acts_now(object, explained, workload.as_ref()).into();
            found
        }
        ControllerHealth::Down(proof, workload) => {
            found.verdict = Verdict::ControllerDown;
            found.proof.extend(proof);
            found
                .next
                .extend(start_again(BELAYER, BY_ITSELF, workload.as_ref()));
            found
        }
        ControllerHealth::Gone(proof) => {
            found.verdict = Verdict::ControllerGone;
            found.proof.extend(proof);
            found
                .next(install_again(
                    entry,
                    "it releases the object at once, on that evidence",
                    world,
                ))
                .next(force(object, hold, world))
        }
        ControllerHealth::Unknown { missing, .. } => {
            found.missing = missing;
            found.next = acts_now(object, explained, None).into();
            found
        }
    }
}

/// How to install a deleted controller of Belayer's, and what it does `then`. If another Deployment of Belayer's exists,
/// this names the one that is missing.
fn install_again(entry: Option<&Entry>, then: &str, world: &World) -> Step {
    let own = entry.and_then(|entry| Some(own_deployment(entry, entry.component()?, world)));
    let is_installed = |place: &&str| {
        let mut all = world.workloads.found().into_iter().flatten();
        all.any(|workload| workload.is_at(place))
    };
    let missing = own
        .filter(|own| own.others.iter().any(is_installed))
        .and_then(|own| own.lease);
    Step::say(match missing {
        Some(place) => format!("Install Belayer's Deployment {place} again: {then}"),
        None => format!("Install Belayer again: {then}"),
    })
}

/// The evidence is incomplete: reports what is missing and whether Belayer runs.
fn kept(
    mut found: Diagnosis,
    object: &Terminating,
    explained: &Explained,
    health: ControllerHealth,
    entry: Option<&Entry>,
    world: &World,
) -> Diagnosis {
    let hold = found.finalizer.clone().unwrap_or_default();
    let users = volumes::end_the_user(object, world);
    let acts = !matches!(explained.action, Action::Keep | Action::Nothing);
    match health {
        ControllerHealth::Gone(proof) => {
            found.proof.extend(proof);
            let then = "it releases the object once nothing is missing";
            found.next.push(install_again(entry, then, world));
            found.next.extend(users);
            found.next.push(force(object, &hold, world));
        }
        ControllerHealth::Down(proof, workload) => {
            found.proof.extend(proof);
            found.next = start_again(BELAYER, ONCE_THERE, workload.as_ref());
            found.next.extend(users);
        }
        ControllerHealth::Alive(proof, workload) if acts => {
            found.proof.extend(proof);
            found.next = acts_now(object, explained, workload.as_ref()).into();
            found.next.extend(users);
            found.next.extend(ask_for_release(object));
        }
        ControllerHealth::Alive(..) | ControllerHealth::Unknown { .. } => {
            found.next.push(Step::say(explained.next.clone()));
            found.next.extend(users);
            found.next.extend(ask_for_release(object));
        }
    }
    found
}

/// The release by annotation. Belayer reads it on pods only, not on workflows or PVCs.
fn ask_for_release(object: &Terminating) -> Option<Step> {
    let is_pod = object.object.kind.resource.is_same_kind(&Resource::pods());
    is_pod.then(|| {
        Step::run(
            "To release it anyway and lose what the finalizer protects",
            format!(
                "{} {RELEASE_ANNOTATION}=true",
                object.object.kubectl("annotate")
            ),
        )
    })
}

/// The state of Kubernetes' own controller, if nothing else explains a finalizer.
pub(super) fn own_controller(
    object: &Terminating,
    finalizer: &str,
    nothing_else: &str,
    world: &World,
    now: Timestamp,
) -> Diagnosis {
    let mut found = controller(object, finalizer, world, now);
    found.detail.push(nothing_else.to_owned());
    found
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// A DaemonSet cannot be scaled.
    #[rstest]
    #[case::scaled_to_zero("deployment", 0, "kubectl -n a scale deployment/b --replicas=1")]
    #[case::without_a_node("daemonset", 0, "kubectl -n a describe daemonset/b")]
    #[case::not_ready("deployment", 1, "kubectl -n a describe deployment/b")]
    fn a_workload_is_started_again_by_a_command_of_its_kind(
        #[case] kind: &'static str,
        #[case] desired: i64,
        #[case] expected: &str,
    ) {
        let workload = Workload {
            kind,
            namespace: "a".to_owned(),
            name: "b".to_owned(),
            desired,
            ready: 0,
            images: Vec::new(),
        };
        let steps = start_again("It", BY_ITSELF, Some(&workload));
        assert_eq!(steps[0].command.as_deref(), Some(expected));
    }
}
