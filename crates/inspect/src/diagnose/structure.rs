//! Causes that involve other objects: namespace content, dependents, custom resources, APIs that are down.

use std::collections::{BTreeSet, HashMap};

use belayer_core::object::Resource;
use jiff::Timestamp;

use super::others::own_controller;
use super::{
    Diagnosis, FOREGROUND, KUBERNETES, behind, waits_for_namespace_controller, webhooks, why,
};
use crate::details::Condition;
use crate::evidence::{NamespaceState, World};
use crate::object::{ObjectRef, Terminating};
use crate::reader::{ReadResult, one_line};
use crate::report::{Cause, Step, Verdict};
use crate::scan::{Population, Scope};

/// Maximum number of dependents, kinds or names that are listed.
const NAMED: usize = 5;

/// Maximum number of dependents among which a cycle is searched.
const SEARCHED: usize = 1_000;

/// How the API server's error about a conversion webhook starts.
const CONVERSION: &str = "conversion webhook";

/// APIs that do not answer, one group each: each one blocks the deletion of every namespace.
pub(super) fn dead_apis(world: &World) -> Vec<Diagnosis> {
    world
        .dead_apis
        .found()
        .into_iter()
        .flatten()
        .map(|api| {
            let Condition {
                reason, message, ..
            } = &api.condition;
            let mut found = Diagnosis::new(Cause::DeadApi, Verdict::ApiDown).proven(format!(
                "apiservice {} is not available: {reason}: {}",
                api.name,
                one_line(message)
            ));
            found.about.clone_from(&api.name);
            if let Some((namespace, service)) = &api.service {
                found = found.next(Step::run(
                    "Restore the service behind it",
                    behind(namespace, service),
                ));
            }
            found.next(Step::run(
                format!(
                    "If {} was removed permanently, delete its APIService. Lost: access to its objects until it is registered again",
                    api.group_version
                ),
                format!("kubectl delete apiservice {}", api.name),
            ))
        })
        .collect()
}

/// A namespace, apart from finalizers of its own.
pub(super) fn namespace(object: &Terminating, world: &World, now: Timestamp) -> Vec<Diagnosis> {
    let name = object.object.key.name();
    let state = match world.namespaces.get(name) {
        Some(ReadResult::Found(state)) => state,
        other => {
            let mut found = Diagnosis::possible(Cause::NamespaceContent)
                .missing(format!("the namespace's conditions: {}", why(other)))
                .next(Step::run(
                    "Its conditions say what remains: read them with permission to get namespaces",
                    format!("kubectl describe namespace {name}"),
                ));
            found.detail = remaining(object, world);
            return vec![found];
        }
    };
    if !waits_for_namespace_controller(object, world) {
        return Vec::new();
    }
    let mut all = Vec::new();
    if world.dead_apis.found().is_some_and(|apis| !apis.is_empty()) {
        all.push(behind_a_dead_api(object, world));
    } else if let Some(failed) = condition(state, "NamespaceDeletionDiscoveryFailure") {
        let mut found = Diagnosis::new(Cause::NamespaceContent, Verdict::ApiDown)
            .proven(says(failed))
            .next(Step::run(
                "Restore that API, or delete its APIService if it was removed permanently; the deletion then continues, \
                 unless another group names the namespace. This command lists the APIs that do not answer",
                "kubectl get apiservices | grep False",
            ));
        found.detail = remaining(object, world);
        all.push(found);
    }
    // The namespace controller deletes the objects of the other APIs although one is down.
    let failure = condition(state, "NamespaceDeletionContentFailure");
    let refused = failure.filter(|failure| !only_remains(&failure.message));
    all.extend(refused.map(refused_content));
    if all.is_empty() {
        all.push(content(object, state, world, now));
    }
    all
}

/// What a condition of a namespace proves.
fn says(condition: &Condition) -> String {
    format!(
        "the namespace's conditions say: {}",
        one_line(&condition.message)
    )
}

fn condition<'a>(state: &'a NamespaceState, kind: &str) -> Option<&'a Condition> {
    state
        .conditions
        .iter()
        .find(|condition| condition.kind == kind)
}

/// Whether the condition only reports remaining objects. Every namespace whose pods take longer to terminate than
/// expected has it; nothing rejects the deletion then.
fn only_remains(message: &str) -> bool {
    let remains = message
        .matches("unexpected items still remain in namespace")
        .count();
    let errors = message
        .split_once("resource types, ")
        .and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    remains > 0 && errors.is_none_or(|errors: usize| errors <= remains)
}

fn behind_a_dead_api(object: &Terminating, world: &World) -> Diagnosis {
    let names: Vec<_> = world
        .dead_apis
        .found()
        .into_iter()
        .flatten()
        .map(|api| api.name.as_str())
        .collect();
    let mut found = Diagnosis::new(Cause::NamespaceContent, Verdict::ApiDown)
        .proven(format!(
            "apiservice {} is not available, so its objects in the namespace cannot be listed",
            names.join(", ")
        ))
        .next(Step::say(
            "Restore that API or delete its APIService (see above): the deletion then continues, unless another group names \
             the namespace",
        ));
    found.detail = remaining(object, world);
    found
}

/// The deletion of the content was rejected; reports the namespace controller's own message.
fn refused_content(condition: &Condition) -> Diagnosis {
    let message = one_line(&condition.message);
    let (verdict, step) = if message.contains("failed calling webhook") {
        (
            Verdict::WebhookDown,
            "Restore the service behind that webhook, or delete the webhook's configuration if it was removed permanently",
        )
    } else if message.contains(CONVERSION) {
        (
            Verdict::WebhookDown,
            "Restore the service behind that webhook, or end the conversion in the CustomResourceDefinition of that kind if \
             the webhook was removed permanently",
        )
    } else {
        (
            Verdict::Waiting,
            "Remove what rejects the deletion; the namespace controller retries by itself",
        )
    };
    Diagnosis::new(Cause::NamespaceContent, verdict)
        .proven(says(condition))
        .next(Step::say(step))
}

/// What the namespace still contains.
fn content(
    object: &Terminating,
    state: &NamespaceState,
    world: &World,
    now: Timestamp,
) -> Diagnosis {
    let name = object.object.key.name();
    let lines = remaining(object, world);
    let unlisted = unseen_kinds(object, world);
    if !lines.is_empty() && !being_deleted(name, world).is_empty() {
        let mut found = Diagnosis::new(Cause::NamespaceContent, Verdict::Waiting)
            .proven("a namespace is deleted once it is empty; these objects remain")
            .next(Step::say(
                "Nothing to do for the namespace itself: it is deleted once these objects are. Do not remove its own finalizer",
            ));
        found.detail = lines;
        return found;
    }
    let reported = reported(state, &unlisted);
    if !reported.is_empty() {
        let mut found = unlisted_content(object, reported, &unlisted, world, now);
        found.detail.extend(lines);
        return found;
    }
    if !lines.is_empty() {
        let mut found = namespace_controller(
            object,
            "none of the remaining objects is being deleted: the namespace controller has to delete them",
            world,
            now,
        );
        found.detail.extend(lines);
        if !unlisted.is_empty() {
            // The namespace controller deletes the pods first, and these may be among them.
            if found.verdict == Verdict::ControllerAlive {
                found.verdict = Verdict::Unknown;
            }
            found = found.missing(format!(
                "whether objects of these kinds, which could not be listed, are being deleted: {}",
                unlisted.join(", ")
            ));
        }
        return found;
    }
    if !unlisted.is_empty() {
        return Diagnosis::possible(Cause::NamespaceContent)
            .missing(format!(
                "whether the namespace contains objects of these kinds: {}",
                unlisted.join(", ")
            ))
            .next(Step::run(
                "Check its conditions",
                format!("kubectl get namespace {name} -o yaml"),
            ));
    }
    namespace_controller(
        object,
        "no objects remain in it: the namespace controller has to complete the deletion",
        world,
        now,
    )
}

/// A namespace that only the namespace controller keeps, by `nothing_else`.
fn namespace_controller(
    object: &Terminating,
    nothing_else: &str,
    world: &World,
    now: Timestamp,
) -> Diagnosis {
    Diagnosis {
        cause: Cause::NamespaceContent,
        headline: "the namespace controller has not completed the deletion".to_owned(),
        ..own_controller(object, KUBERNETES, nothing_else, world, now)
    }
}

/// What the namespace controller reports about objects of kinds that could not be listed: it counts all kinds.
fn reported(state: &NamespaceState, unlisted: &[String]) -> Vec<String> {
    // As in "secrets. has 1 resource instances, gadgets.two.io has 2 resource instances".
    let is_unlisted = |word: &str| {
        let kind = word.trim_end_matches('.');
        unlisted.iter().any(|unlisted| unlisted == kind)
    };
    let remaining = condition(state, "NamespaceContentRemaining")
        .filter(|remaining| remaining.message.split_whitespace().any(is_unlisted));
    let Some(remaining) = remaining else {
        return Vec::new();
    };
    let finalizers = condition(state, "NamespaceFinalizersRemaining");
    let all = [Some(remaining), finalizers];
    all.into_iter().flatten().map(says).collect()
}

/// A namespace with objects of kinds that could not be listed, as the namespace controller `reported`.
fn unlisted_content(
    object: &Terminating,
    reported: Vec<String>,
    unlisted: &[String],
    world: &World,
    now: Timestamp,
) -> Diagnosis {
    let nothing_else = "the namespace controller reported them before it stopped";
    let mut found = namespace_controller(object, nothing_else, world, now);
    if found.verdict != Verdict::ControllerDown {
        found = Diagnosis::new(Cause::NamespaceContent, Verdict::Waiting).next(Step::run(
            format!(
                "Run this command with permission to list these kinds: it shows what keeps their objects: {}",
                unlisted.join(", ")
            ),
            format!("belayer stuck -n {}", object.object.key.name()),
        ));
    }
    found.proof.extend(reported);
    found
}

/// The kinds that could not be listed and of which the namespace may contain objects, or the owner have dependents.
fn unseen_kinds(object: &Terminating, world: &World) -> Vec<String> {
    let is_namespace = object
        .object
        .kind
        .resource
        .is_same_kind(&Resource::namespaces());
    let only_namespaced = object.object.kind.namespaced || is_namespace;
    let unseen = world.scan.unseen.iter();
    unseen
        .filter(|unseen| !(only_namespaced && unseen.cluster_scoped))
        .map(|unseen| unseen.resource.clone())
        .collect()
}

/// One line for each kind with remaining objects.
fn remaining(object: &Terminating, world: &World) -> Vec<String> {
    let name = object.object.key.name();
    let Some(kinds) = world.scan.population.get(name) else {
        return Vec::new();
    };
    // Events do not block the deletion of a namespace: they are deleted last.
    let kinds = kinds.iter().filter(|(kind, _)| kind.as_str() != "events");
    let mut kinds: Vec<_> = kinds.collect();
    // Pods are deleted first: all other objects may wait for one of them.
    let blocking = being_deleted(name, world);
    kinds.sort_by_key(|(kind, _)| !blocking.contains(*kind));
    let more = kinds.len().saturating_sub(NAMED);
    kinds.truncate(NAMED);
    let named = kinds.into_iter();
    let mut lines: Vec<String> = named
        .map(|(kind, population)| line(name, kind, population))
        .collect();
    if more > 0 {
        lines.push(format!("and objects of {more} more kinds"));
    }
    lines
}

/// The kinds of which an object in a namespace is being deleted.
fn being_deleted(namespace: &str, world: &World) -> BTreeSet<String> {
    let all = world.scan.terminating.iter();
    let these = all.filter(|one| one.object.key.namespace() == Some(namespace));
    these.map(|one| one.object.kind.name()).collect()
}

fn line(namespace: &str, kind: &str, population: &Population) -> String {
    let names = population.samples.join(", ");
    match (population.count, population.samples.as_slice()) {
        (1, [only]) => format!("{namespace}/{kind}/{only} remains"),
        (n, samples) if n == samples.len() as u64 => format!("{n} {kind} remain: {names}"),
        (n, _) => format!("{n} {kind} remain: {names}, ..."),
    }
}

/// Foreground deletion: which dependents block it.
pub(super) fn dependents(object: &Terminating, world: &World, now: Timestamp) -> Option<Diagnosis> {
    let Some(dependents) = world.scan.dependents.get(object.object.uid.as_str()) else {
        let unlisted = unseen_kinds(object, world);
        return (!unlisted.is_empty()).then(|| {
            Diagnosis::possible(Cause::Dependents)
                .missing(format!(
                    "whether dependents of these kinds remain: {}",
                    unlisted.join(", ")
                ))
                .next(Step::say(
                    "Run this command again once these kinds can be listed",
                ))
        });
    };
    let is_left = |dependent: &&ObjectRef| {
        let uid = dependent.uid.as_str();
        world.scan.terminating_with(uid).is_none()
    };
    let left = dependents.iter().filter(is_left).count();
    let are_rejected = webhooks::reject_dependents(object, world);
    let cycle = cycle(object, world);
    let mut found = if let Some(cycle) = &cycle {
        wait_for_each_other(cycle)
    } else if left < dependents.len() || are_rejected {
        Diagnosis::new(Cause::Dependents, Verdict::Waiting)
    } else {
        Diagnosis {
            cause: Cause::Dependents,
            ..own_controller(
                object,
                FOREGROUND,
                "none of its dependents is being deleted: the garbage collector has to delete them",
                world,
                now,
            )
        }
    };
    found = found.proven(
        "it was deleted with propagation policy Foreground: blocking dependents are deleted first",
    );
    for dependent in dependents.iter().take(NAMED) {
        found = found.detail(state_of(dependent, world));
    }
    if dependents.len() > NAMED {
        found = found.detail(format!("and {} more", dependents.len() - NAMED));
    }
    if cycle.is_some() {
        return Some(found);
    }
    // If a webhook rejects the deletions, another group says so.
    let first = dependents.iter().find(is_left).filter(|_| !are_rejected);
    Some(found.next(match first {
        Some(first) => Step::run(
            "Check this dependent, which is not being deleted: the garbage collector has not processed it, or lacks permission",
            first.kubectl("get"),
        ),
        None => Step::say(
            "Nothing to do for the owner itself: it is deleted once its dependents are",
        ),
    }))
}

/// The objects that wait for each other and for this one, or this one alone if it owns itself: the garbage collector deletes
/// none of them.
fn cycle<'a>(object: &'a Terminating, world: &'a World) -> Option<Vec<&'a ObjectRef>> {
    let own = object.object.uid.as_str();
    // By the UID of each dependent, the owner through which it was found.
    let mut owners: HashMap<&str, &ObjectRef> = HashMap::new();
    let mut next = vec![&object.object];
    while let Some(owner) = next.pop().filter(|_| owners.len() < SEARCHED) {
        let dependents = world.scan.dependents.get(owner.uid.as_str());
        for dependent in dependents.into_iter().flatten() {
            if !owners.contains_key(dependent.uid.as_str()) {
                owners.insert(dependent.uid.as_str(), owner);
                next.push(dependent);
            }
        }
    }
    let mut all = vec![*owners.get(own)?];
    while let Some(last) = all.last().filter(|last| last.uid.as_str() != own) {
        all.push(owners.get(last.uid.as_str())?);
    }
    let waits = |one: &&ObjectRef| {
        let found = world.scan.terminating_with(one.uid.as_str());
        found.is_some_and(|found| found.finalizers.iter().any(|name| name == FOREGROUND))
    };
    all.iter().all(waits).then_some(all)
}

fn wait_for_each_other(cycle: &[&ObjectRef]) -> Diagnosis {
    let (headline, proof) = match cycle {
        [_] => (
            "the object owns itself and waits for its own deletion (foreground deletion)",
            "its owner reference with blockOwnerDeletion names itself",
        ),
        _ => (
            "the owner references are a cycle, so that each object waits for another one (foreground deletion)",
            "their owner references with blockOwnerDeletion are a cycle: each is deleted after the next one",
        ),
    };
    let mut found = Diagnosis::new(Cause::Dependents, Verdict::Waiting).proven(proof);
    headline.clone_into(&mut found.headline);
    // The same object for all of them.
    let first = cycle.iter().min_by_key(|one| (one.kind.name(), &one.key));
    found.next.extend(first.map(|first| {
        Step::run(
            "Remove this owner reference, or its field blockOwnerDeletion, from one object: the garbage collector then goes on \
             by itself",
            first.kubectl("edit"),
        )
    }));
    found
}

fn state_of(dependent: &ObjectRef, world: &World) -> String {
    match world.scan.terminating_with(dependent.uid.as_str()) {
        Some(_) => format!("{dependent} is being deleted"),
        None => format!("{dependent} is not being deleted yet"),
    }
}

/// A CustomResourceDefinition: which of its custom resources remain.
pub(super) fn instances(object: &Terminating, world: &World) -> Diagnosis {
    let name = object.object.key.name();
    let mut unseen = world.scan.unseen.iter();
    if let Some(unseen) = unseen.find(|unseen| unseen.resource == name) {
        return unlisted_instances(name, &unseen.message);
    }
    let population: Vec<(&String, &Population)> = world
        .scan
        .population
        .iter()
        .filter_map(|(namespace, kinds)| Some((namespace, kinds.get(name)?)))
        .collect();
    let total: u64 = population
        .iter()
        .map(|(_, population)| population.count)
        .sum();
    if total == 0 {
        return Diagnosis::possible(Cause::Instances)
            .missing(if world.scope == Scope::Cluster {
                "why the API server keeps it: no custom resource was found"
            } else {
                "whether custom resources remain: only one namespace was checked"
            })
            .next(Step::run(
                "Check its condition Terminating, which reports the deletion of custom resources",
                format!("{} -o yaml", object.object.kubectl("get")),
            ));
    }
    let mut found = Diagnosis::new(Cause::Instances, Verdict::Waiting)
        .proven("a CustomResourceDefinition is deleted after its last custom resource; some remain")
        .next(Step::say(
            "Nothing to do for the CustomResourceDefinition itself: it is deleted once its custom resources are. Removing its finalizer by force leaves them in etcd",
        ));
    let named = population.iter().flat_map(|(namespace, population)| {
        population
            .samples
            .iter()
            .map(move |sample| match namespace.as_str() {
                "" => format!("{name}/{sample} remains"),
                namespace => format!("{namespace}/{name}/{sample} remains"),
            })
    });
    found.detail.extend(named.take(NAMED));
    let more = total.saturating_sub(found.detail.len() as u64);
    if more > 0 {
        found = found.detail(format!("and {more} more"));
    }
    found
}

/// The API server lists the custom resources before it deletes them, and fails as this list does.
fn unlisted_instances(name: &str, message: &str) -> Diagnosis {
    let why = format!("its custom resources cannot be listed: {message}");
    if !message.contains(CONVERSION) {
        return Diagnosis::possible(Cause::Instances)
            .missing(why)
            .next(Step::say("Run this command again once they can be listed"));
    }
    Diagnosis::new(Cause::Instances, Verdict::WebhookDown)
        .proven(why)
        .next(Step::say("Restore the conversion webhook: the API server then deletes them"))
        .next(Step::run(
            "If it was removed permanently, end the conversion. Lost: fields that only the webhook translates",
            format!(
                "kubectl patch customresourcedefinitions.apiextensions.k8s.io {name} --type=merge -p \
                 '{{\"spec\":{{\"conversion\":{{\"strategy\":\"None\",\"webhook\":null}}}}}}'"
            ),
        ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const PODS: &str = "unexpected items still remain in namespace: st for gvr: /v1, Resource=pods";

    #[rstest]
    #[case::of_pods(&format!("Failed to delete all resource types, 1 remaining: {PODS}"), true)]
    #[case::of_two_kinds(&format!("Failed to delete all resource types, 2 remaining: [{PODS}, {PODS}]"), true)]
    #[case::one_of_them_is_refused(
        &format!("Failed to delete all resource types, 2 remaining: [{PODS}, admission webhook denied the request]"),
        false
    )]
    #[case::refused(
        "Failed to delete all resource types, 1 remaining: the quota is exceeded",
        false
    )]
    fn remaining_objects_are_distinguished_from_rejections(
        #[case] message: &str,
        #[case] expected: bool,
    ) {
        assert_eq!(only_remains(message), expected);
    }
}
