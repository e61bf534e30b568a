//! Finalizers of controllers: the book's, unknown ones, and Belayer's own.

use jiff::Timestamp;

use super::Diagnosis;
use crate::book::BOOK;
use crate::evidence::World;
use crate::explain::{Action, Explained};
use crate::life::{self, Life, Sightings, Workload};
use crate::object::Terminating;
use crate::reader::Look;
use crate::report::{Cause, Step, Verdict};

/// Whether the controller of `finalizer` shows life.
pub(super) fn life_of(
    object: &Terminating,
    finalizer: &str,
    world: &World,
    now: Timestamp,
) -> Life {
    let Some(entry) = BOOK.find(finalizer) else {
        let manager = object.set_by.get(finalizer).map(|by| by.manager.as_str());
        let seen = Sightings {
            workloads: &world.workloads,
            leases: Vec::new(),
        };
        return life::of_manager(manager, &seen);
    };
    let kind = &object.object.kind.resource.kind;
    let leases = entry
        .controllers_of(kind)
        .into_iter()
        .filter_map(|controller| {
            let place = format!("{}/{}", controller.namespace, controller.lease.as_ref()?);
            world.leases.get(&place)
        })
        .collect();
    let seen = Sightings {
        workloads: &world.workloads,
        leases,
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
    let owner = BOOK
        .find(finalizer)
        .map_or("its controller", |entry| entry.owner.as_str());
    match life_of(object, finalizer, world, now) {
        Life::Alive(proof, workload) => {
            let mut found = base(Verdict::ControllerAlive, proof);
            found.next = vec![look_at_log(object, owner, workload.as_ref())];
            found.next.push(Step::run(
                "Events of the object may say what it waits for",
                events(object),
            ));
            found
        }
        Life::Down(proof, workload) => {
            let mut found = base(Verdict::ControllerDown, proof);
            found.next = start_again(owner, workload.as_ref());
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
            found.next = vec![
                Step::run(
                    "Find out whose it is before anything else: its spec and status often say",
                    object.object.kubectl("describe"),
                ),
                Step::say(
                    "Do not force it off: what that loses, and whether its controller is gone, is not known",
                ),
            ];
            found
        }
    }
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

fn start_again(owner: &str, workload: Option<&Workload>) -> Vec<Step> {
    let Some(Workload {
        kind,
        namespace,
        name,
        desired,
        ready,
        ..
    }) = workload
    else {
        return vec![Step::say(format!(
            "Start {owner} again: it lets go by itself"
        ))];
    };
    if *desired == 0 {
        return vec![Step::run(
            format!("Start {owner} again: it lets go by itself"),
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
        format!(
            "Get {owner} to run again: it lets go by itself; this says why its pods are not ready"
        ),
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
    let life = life_of(object, hold, world, now);
    let explained = match explained {
        Ok(explained) => explained,
        Err(why) => {
            return Diagnosis::new(Cause::Hold, Verdict::Unknown)
                .of(hold)
                .missing(format!("what Belayer would decide: {why}"));
        }
    };
    let row = &explained.row;
    let mut found = Diagnosis::new(Cause::Hold, Verdict::HeldByBelayer)
        .of(hold)
        .proven(format!(
            "{}, row {} ({}): {}",
            explained.component, row.number, row.name, row.says
        ));
    found.detail.clone_from(&explained.missing);
    if explained.action != Action::Release {
        return kept(found, object, hold, explained, life);
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
            found.next.extend(start_again("Belayer", workload.as_ref()));
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
    found: Diagnosis,
    object: &Terminating,
    hold: &str,
    explained: &Explained,
    life: Life,
) -> Diagnosis {
    match life {
        Life::Gone(proof) => proof
            .into_iter()
            .fold(found, Diagnosis::proven)
            .next(Step::say(
                "Install Belayer again: it releases this when what is missing is there",
            ))
            .next(force(object, hold)),
        Life::Down(proof, workload) => {
            let mut found = proof.into_iter().fold(found, Diagnosis::proven);
            found.next = start_again("Belayer", workload.as_ref());
            found
        }
        Life::Alive(..) | Life::Unknown { .. } => found
            .next(Step::say(explained.next.clone()))
            .next(Step::run(
                "To let it go all the same, and lose what it guards",
                format!(
                    "{} belayer.dev/release=true",
                    object.object.kubectl("annotate")
                ),
            )),
    }
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

/// Why a look gave nothing, for `missing`.
pub(super) fn why<T>(look: Option<&Look<T>>) -> String {
    look.and_then(Look::why_unknown)
        .unwrap_or("not looked at")
        .to_owned()
}
