//! Finalizers of controllers: the book's, unknown ones, and Belayer's own.

use jiff::Timestamp;

use belayer_core::object::Resource;
use belayer_holds::names::RELEASE_ANNOTATION;

use super::{Diagnosis, volumes};
use crate::book::{BOOK, Entry};
use crate::evidence::World;
use crate::explain::{Action, Explained};
use crate::life::{self, Life, Sightings, Workload};
use crate::object::Terminating;
use crate::report::{Cause, Step, Verdict};

/// Whether the controller of `finalizer` shows life.
pub(super) fn life_of(
    object: &Terminating,
    finalizer: &str,
    world: &World,
    now: Timestamp,
) -> Life {
    if let Some(entry) = BOOK.find(finalizer) {
        return life_of_known(object, entry, world, now);
    }
    let manager = object.set_by.get(finalizer).map(|by| by.manager.as_str());
    let seen = Sightings {
        workloads: &world.workloads,
        leases: Vec::new(),
    };
    life::of_manager(manager, &seen)
}

fn life_of_known(object: &Terminating, entry: &Entry, world: &World, now: Timestamp) -> Life {
    let kind = &object.object.kind.resource.kind;
    let places = entry.controllers_of(kind).into_iter().filter_map(|one| {
        let lease = one.lease.as_ref()?;
        Some(format!("{}/{lease}", one.namespace))
    });
    // Where Belayer is and what its Lease is called is no matter of the book.
    let own = world.own_lease.clone().filter(|_| entry.is_ours());
    let leases = places
        .chain(own)
        .filter_map(|place| world.leases.get(&place));
    let seen = Sightings {
        workloads: &world.workloads,
        leases: leases.collect(),
    };
    life::of_known(entry, kind, &seen, now)
}

/// A finalizer that some controller has to take off.
pub(super) fn controller(
    object: &Terminating,
    finalizer: &str,
    world: &World,
    now: Timestamp,
) -> Diagnosis {
    let entry = BOOK.find(finalizer);
    if entry.is_some_and(Entry::is_ours) {
        return unruled(object);
    }
    let owner = entry.map_or("its controller", |entry| entry.owner.as_str());
    match life_of(object, finalizer, world, now) {
        Life::Alive(proof, workload) => {
            let mut found = base(Verdict::ControllerAlive, proof);
            found.next = vec![match switch(object, entry) {
                Some(step) => step,
                None => look_at_log(object, owner, workload.as_ref()),
            }];
            found.next.push(Step::run(
                "Events of the object may say what it waits for",
                events(object),
            ));
            found
        }
        Life::Down(proof, workload) => {
            let mut found = base(Verdict::ControllerDown, proof);
            found.next = start_again(owner, BY_ITSELF, workload.as_ref());
            found
        }
        Life::Gone(proof) => {
            let mut found = base(Verdict::ControllerGone, proof);
            found.next = vec![
                Step::say(format!(
                    "Install {owner} again: it cleans up and lets go by itself"
                )),
                force(object, finalizer),
            ];
            found
        }
        Life::Unknown { known, missing } => {
            let mut found = base(Verdict::Unknown, known);
            found.missing = missing;
            found.next = match entry {
                Some(entry) => find_out_about(object, entry),
                None => find_out_whose(object),
            };
            found
        }
    }
}

/// A hold of Belayer on an object of a kind that no rule at hand is about: nobody looks at it.
fn unruled(object: &Terminating) -> Diagnosis {
    let kind = &object.object.kind.resource;
    Diagnosis::new(Cause::Hold, Verdict::HeldByBelayer)
        .missing(format!(
            "by which rule it is held: none of the configuration at hand is about {kind}"
        ))
        .next(Step::say(
            "If Belayer runs with a configuration that has such a rule, give that to this command by --config",
        ))
        .next(Step::run(
            "If it has none any more, Belayer does not look at these objects; this takes its hold off them",
            "belayer drain --unselected --config FILE",
        ))
}

/// What is to be found out about a controller that is known and cannot be seen.
fn find_out_about(object: &Terminating, entry: &Entry) -> Vec<Step> {
    let Entry { owner, lost, .. } = entry;
    let first = switch(object, Some(entry)).unwrap_or_else(|| {
        Step::run(
            format!(
                "Find out whether {owner} runs: it lets go by itself. What it waits for often stands in the object's \
                 status and Events"
            ),
            object.object.kubectl("describe"),
        )
    });
    let force = format!("Do not force it off before that is known. Lost: {lost}");
    vec![first, Step::say(force)]
}

fn find_out_whose(object: &Terminating) -> Vec<Step> {
    vec![
        Step::run(
            "Find out whose it is before anything else: its spec and status often say",
            object.object.kubectl("describe"),
        ),
        Step::say(
            "Do not force it off: what that loses, and whether its controller is gone, is not known",
        ),
    ]
}

/// One controller of many in a process: that the process runs does not say that this one does.
fn switch(object: &Terminating, entry: Option<&Entry>) -> Option<Step> {
    let controllers = entry?.controllers_of(&object.object.kind.resource.kind);
    let one = controllers.into_iter().find(|one| one.switch.is_some())?;
    let (manager, switch) = (&one.name, one.switch.as_ref()?);
    Some(Step::say(format!(
        "It is {switch} of {manager} that lets go: see that the flag --controllers of {manager} does not switch it \
         off, and what its log says"
    )))
}

fn base(verdict: Verdict, proof: Vec<String>) -> Diagnosis {
    Diagnosis {
        proof,
        ..Diagnosis::new(Cause::Finalizer, verdict)
    }
}

fn look_at_log(object: &Terminating, owner: &str, workload: Option<&Workload>) -> Step {
    let name = object.object.key.name();
    match workload {
        Some(workload) => Step::run(
            format!("{owner} runs and has not let go: its log says why"),
            format!(
                "kubectl -n {} logs {}/{} --since=1h | grep {name}",
                workload.namespace, workload.kind, workload.name
            ),
        ),
        None => Step::say(format!("{owner} runs and has not let go: its log says why")),
    }
}

fn events(object: &Terminating) -> String {
    let key = &object.object.key;
    let namespace = key.namespace().unwrap_or("default");
    format!(
        "kubectl -n {namespace} get events --field-selector involvedObject.uid={}",
        object.object.uid
    )
}

/// What a controller does that has nothing to wait for.
const BY_ITSELF: &str = "it lets go by itself";

/// What Belayer does that waits for something.
const ONCE_THERE: &str = "it lets go when what is missing is there";

/// How a controller comes back that is not there now, and what it does `then`.
fn start_again(owner: &str, then: &str, workload: Option<&Workload>) -> Vec<Step> {
    let Some(Workload {
        kind,
        namespace,
        name,
        desired,
        ready,
        ..
    }) = workload
    else {
        return vec![Step::say(format!("Start {owner} again: {then}"))];
    };
    if *desired == 0 {
        return vec![Step::run(
            format!("Start {owner} again: {then}"),
            format!("kubectl -n {namespace} scale {kind}/{name} --replicas=1"),
        )];
    }
    if *ready > 0 {
        return vec![Step::run(
            format!("{owner} has ready pods and none of them leads: its log says why"),
            format!("kubectl -n {namespace} logs {kind}/{name} --since=1h"),
        )];
    }
    vec![Step::run(
        format!("Get {owner} to run again: {then}; this says why its pods are not ready"),
        format!("kubectl -n {namespace} describe {kind}/{name}"),
    )]
}

/// The last resort: exactly this finalizer, and only while it stands where it stood.
pub(super) fn force(object: &Terminating, finalizer: &str) -> Step {
    let lost = BOOK
        .find(finalizer)
        .map_or("not known", |entry| entry.lost.as_str());
    let index = object
        .finalizers
        .iter()
        .position(|name| name == finalizer)
        .unwrap_or_default();
    let path = format!("/metadata/finalizers/{index}");
    let patch = format!(
        r#"[{{"op":"test","path":"{path}","value":"{finalizer}"}},{{"op":"remove","path":"{path}"}}]"#
    );
    Step::run(
        format!("Only if it will never come back, force this finalizer off. Lost: {lost}"),
        format!(
            "{} --type=json -p '{patch}'",
            object.object.kubectl("patch")
        ),
    )
}

/// One of Belayer's own holds, as its component explains it.
pub(super) fn ours(
    object: &Terminating,
    hold: &str,
    explained: &Result<Explained, String>,
    world: &World,
    now: Timestamp,
) -> Diagnosis {
    let explained = match explained {
        Ok(explained) => explained,
        Err(why) => {
            return Diagnosis::new(Cause::Hold, Verdict::Unknown)
                .of(hold)
                .missing(format!("what Belayer would decide: {why}"));
        }
    };
    // By whatever name it holds, the one to let go is Belayer.
    let entry = BOOK.of_component(explained.component);
    let life = match entry {
        Some(entry) => life_of_known(object, entry, world, now),
        None => life_of(object, hold, world, now),
    };
    let row = &explained.row;
    let mut found = Diagnosis::new(Cause::Hold, Verdict::HeldByBelayer)
        .of(hold)
        .proven(format!(
            "{}, row {} ({}): {}",
            explained.component, row.number, row.name, row.says
        ));
    found.whose = entry.or(found.whose);
    found.detail.clone_from(&explained.missing);
    if explained.action != Action::Release {
        return kept(found, object, explained, life, world);
    }
    // The evidence is there. If it still hangs, nobody acts on it.
    let evidence = explained.evidence.as_deref().unwrap_or("complete");
    found = found.proven(format!("the evidence is there: {evidence}"));
    match life {
        Life::Alive(proof, _) => {
            found.proof.extend(proof);
            found.next(Step::say(explained.next.clone()))
        }
        Life::Down(proof, workload) => {
            found.verdict = Verdict::ControllerDown;
            found.proof.extend(proof);
            found
                .next
                .extend(start_again("Belayer", BY_ITSELF, workload.as_ref()));
            found
        }
        Life::Gone(proof) => {
            found.verdict = Verdict::ControllerGone;
            found.proof.extend(proof);
            found
                .next(Step::say(
                    "Install Belayer again: it releases this at once, on that evidence",
                ))
                .next(force(object, hold))
        }
        Life::Unknown { missing, .. } => {
            found.missing = missing;
            found.next(Step::say(
                "A running Belayer releases this at once, on that evidence",
            ))
        }
    }
}

/// The evidence is not there yet: what is waited for, and whether anybody waits.
fn kept(
    mut found: Diagnosis,
    object: &Terminating,
    explained: &Explained,
    life: Life,
    world: &World,
) -> Diagnosis {
    let hold = found.finalizer.clone().unwrap_or_default();
    let users = volumes::end_the_user(object, world);
    match life {
        Life::Gone(proof) => {
            found.proof.extend(proof);
            found.next.push(Step::say(
                "Install Belayer again: it releases this when what is missing is there",
            ));
            found.next.extend(users);
            found.next.push(force(object, &hold));
        }
        Life::Down(proof, workload) => {
            found.proof.extend(proof);
            found.next = start_again("Belayer", ONCE_THERE, workload.as_ref());
            found.next.extend(users);
        }
        Life::Alive(..) | Life::Unknown { .. } => {
            found.next.push(Step::say(explained.next.clone()));
            found.next.extend(users);
            found.next.extend(ask_for_release(object));
        }
    }
    found
}

/// The admin's own order. Pods alone know it: on workflows and claims nobody reads that annotation.
fn ask_for_release(object: &Terminating) -> Option<Step> {
    let is_pod = object.object.kind.resource.is_same_kind(&Resource::pods());
    is_pod.then(|| {
        Step::run(
            "To let it go all the same, and lose what it guards",
            format!(
                "{} {RELEASE_ANNOTATION}=true",
                object.object.kubectl("annotate")
            ),
        )
    })
}

/// What can be said of Kubernetes' own controllers, when nothing else explains a finalizer.
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
