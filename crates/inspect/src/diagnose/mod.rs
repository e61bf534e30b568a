//! From a [`World`] to a [`Report`]: pure, no I/O, no clock.
//!
//! Each object has one `Diagnosis` per finalizer, or one if it is a pod or namespace without finalizers.
//! Equal diagnoses become one group.

mod others;
mod pods;
mod structure;
mod volumes;
mod webhooks;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use belayer_core::object::Resource;
use belayer_core::words::one_or_many;
use jiff::Timestamp;

use crate::argo;
use crate::evidence::{NotExplained, World};
use crate::explain::Explained;
use crate::known_finalizers::Entry;
use crate::object::Terminating;
use crate::reader::ReadResult;
use crate::report::{
    API_VERSION, Cause, Group, Known, Report, Setter, Step, StuckObject, Summary, Unseen, Verdict,
};
use crate::scan::Scope;
use crate::untrusted::word;

/// Maximum number of steps reported per group; further ones are of the same kind.
const STEPS: usize = 4;

/// Maximum number of groups in a cross-reference.
const SEEN: usize = 3;

/// Maximum number of finalizers of one object that are diagnosed, besides Belayer's: a user may set thousands of them.
const FINALIZERS: usize = 20;

/// The finalizer of the garbage collector.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// The finalizer of a CustomResourceDefinition.
const CRD_CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The finalizer in a namespace's spec.
const KUBERNETES: &str = "kubernetes";

/// Why one object is not deleted yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Diagnosis {
    pub(crate) cause: Cause,
    pub(crate) finalizer: Option<String>,
    pub(crate) verdict: Verdict,
    /// What proves the verdict, the same for every object of the group.
    pub(crate) proof: Vec<String>,
    pub(crate) missing: Vec<String>,
    /// Details of this object alone.
    pub(crate) detail: Vec<String>,
    /// Steps for the group, then those about this object.
    pub(crate) next: Vec<Step>,
    /// Distinguishes groups that are equal otherwise.
    pub(crate) about: String,
    /// The words of the headline after the objects; if it is empty, those of the cause.
    pub(crate) headline: String,
    /// Whether the cause itself is not proven, and not only who has to act.
    pub(crate) is_possible_only: bool,
    /// Facts about the finalizer, if it is a known one.
    pub(crate) known: Option<Known>,
}

impl Diagnosis {
    pub(crate) fn new(cause: Cause, verdict: Verdict) -> Self {
        Self {
            cause,
            finalizer: None,
            verdict,
            proof: Vec::new(),
            missing: Vec::new(),
            detail: Vec::new(),
            next: Vec::new(),
            about: String::new(),
            headline: String::new(),
            is_possible_only: false,
            known: None,
        }
    }

    /// A cause that could not be checked.
    pub(crate) fn possible(cause: Cause) -> Self {
        Self {
            is_possible_only: true,
            ..Self::new(cause, Verdict::Unknown)
        }
    }

    pub(crate) fn of(self, finalizer: &str, world: &World) -> Self {
        Self {
            finalizer: Some(finalizer.to_owned()),
            known: world.known.find(finalizer).map(known),
            ..self
        }
    }

    pub(crate) fn proven(mut self, proof: impl Into<String>) -> Self {
        self.proof.push(proof.into());
        self
    }

    pub(crate) fn missing(mut self, missing: impl Into<String>) -> Self {
        self.missing.push(missing.into());
        self
    }

    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail.push(detail.into());
        self
    }

    pub(crate) fn next(mut self, step: Step) -> Self {
        self.next.push(step);
        self
    }

    /// Whether its finalizer is not a known one. One object of the group is enough to find out which controller set it.
    fn is_about_an_unknown_finalizer(&self) -> bool {
        self.cause == Cause::Finalizer && self.verdict == Verdict::Unknown && self.known.is_none()
    }

    fn is_like(&self, other: &Self) -> bool {
        self.cause == other.cause
            && self.finalizer == other.finalizer
            && self.verdict == other.verdict
            && self.proof == other.proof
            && self.missing == other.missing
            && self.about == other.about
            && self.headline == other.headline
            && self.is_possible_only == other.is_possible_only
    }
}

/// Reports what blocks the deletion of each stuck object.
pub(crate) fn report(world: &World, now: Timestamp) -> Report {
    let mut groups: Vec<Like> = structure::dead_apis(world)
        .into_iter()
        .map(Like::new)
        .collect();
    for object in &world.stuck {
        for mut diagnosis in diagnose(object, world, now) {
            let stuck = stuck_object(object, &diagnosis, now);
            let like = groups
                .iter_mut()
                .find(|group| group.diagnosis.is_like(&diagnosis));
            match like {
                Some(group) => {
                    group.add_steps(std::mem::take(&mut diagnosis.next));
                    group.objects.push(stuck);
                }
                None => groups.push(Like {
                    objects: vec![stuck],
                    ..Like::new(diagnosis)
                }),
            }
        }
    }
    groups.sort_by(|one, other| {
        let (a, b) = (&one.diagnosis, &other.diagnosis);
        let sizes = (one.objects.len(), other.objects.len());
        (a.verdict, a.cause, std::cmp::Reverse(sizes.0), &a.finalizer).cmp(&(
            b.verdict,
            b.cause,
            std::cmp::Reverse(sizes.1),
            &b.finalizer,
        ))
    });
    let mut groups: Vec<Group> = groups
        .into_iter()
        .enumerate()
        .map(|(index, like)| group(index + 1, like))
        .collect();
    cross_reference(&mut groups);
    Report {
        api_version: API_VERSION,
        kind: "StuckReport",
        summary: summary(world),
        namespace: match &world.scope {
            Scope::Cluster => None,
            Scope::Namespace(name) => Some(name.clone()),
        },
        groups,
        unseen: unseen(world),
    }
}

fn summary(world: &World) -> Summary {
    Summary {
        stuck: world.stuck.len(),
        within_grace: world.within_grace,
        left_out: world.left_out,
        kinds: world.scan.kinds.len(),
        objects: world.scan.objects,
        requests: world.requests,
        complete: world.scan.unseen.is_empty() && world.webhooks.unseen.is_empty(),
    }
}

fn unseen(world: &World) -> Vec<Unseen> {
    let has_group = |what: &str| {
        world
            .dead_apis
            .found()
            .into_iter()
            .flatten()
            .any(|api| api.group_version == what)
    };
    let listed = &world.scan.unseen;
    let is_listed = |one: &&Unseen| listed.iter().any(|unseen| unseen.resource == one.resource);
    let webhooks = world.webhooks.unseen.iter();
    listed
        .iter()
        // The group of its APIService has more details.
        .filter(|unseen| !has_group(&unseen.resource))
        .chain(webhooks.filter(|unseen| !is_listed(unseen)))
        .cloned()
        .collect()
}

/// Everything that blocks the deletion of one object.
pub(crate) fn diagnose(object: &Terminating, world: &World, now: Timestamp) -> Vec<Diagnosis> {
    let kind = &object.object.kind.resource;
    let is_pod = kind.is_same_kind(&Resource::pods());
    let is_belayers = |finalizer: &&String| explained(object, finalizer, world).is_some();
    let (belayers, mut others): (Vec<_>, Vec<_>) = object.finalizers.iter().partition(is_belayers);
    others.sort_by_key(|finalizer| world.known.find(finalizer).is_none());
    let more = others.len().saturating_sub(FINALIZERS);
    others.truncate(FINALIZERS);
    let mut all: Vec<Diagnosis> = belayers
        .iter()
        .chain(&others)
        .map(|finalizer| of_finalizer(object, finalizer, world, now))
        .collect();
    if let (1.., Some(last)) = (more, all.last_mut()) {
        let finalizers = one_or_many(more, "more finalizer", "more finalizers");
        last.detail.push(format!("it has {finalizers}"));
    }
    if kind.is_same_kind(&Resource::namespaces()) {
        all.extend(structure::namespace(object, world, now));
    }
    if all.is_empty() {
        all.push(if is_pod {
            pods::without_finalizers(object, world)
        } else {
            Diagnosis::new(Cause::Nothing, Verdict::Unknown)
                .missing(
                    "what blocks the deletion: it has no finalizer and should have been deleted",
                )
                .next(Step::run(
                    "Read it again; if it still exists, check the API server's log",
                    object.object.kubectl("get"),
                ))
        });
    }
    // Belayer decides about the pods of lost nodes itself.
    if is_pod && !object.finalizers.iter().all(|one| is_belayers(&one)) {
        all.extend(pods::on_lost_node(object, world));
    }
    all.extend(webhooks::in_the_way(object, world));
    all
}

/// What Belayer's component explains about its finalizer on the object.
fn explained<'a>(
    object: &Terminating,
    finalizer: &str,
    world: &'a World,
) -> Option<&'a Result<Explained, NotExplained>> {
    let id = (object.object.uid.as_str().to_owned(), finalizer.to_owned());
    world.belayers.get(&id)
}

fn of_finalizer(object: &Terminating, finalizer: &str, world: &World, now: Timestamp) -> Diagnosis {
    if let Some(belayers) = explained(object, finalizer, world) {
        return others::belayers(object, finalizer, belayers, world, now);
    }
    let kind = &object.object.kind.resource;
    let special = match finalizer {
        FOREGROUND => structure::dependents(object, world, now),
        // An object of another kind may have one of these from a manifest: it has no custom resources, and no pod uses it.
        CRD_CLEANUP if is_definition(kind) => Some(structure::instances(object, world)),
        "kubernetes.io/pvc-protection" | "belayer.dev/pvc-protection"
            if kind.is_same_kind(&Resource::pvcs()) =>
        {
            volumes::pvc_in_use(object, finalizer, world)
        }
        // The provisioners delete the disk only after the PVC.
        "kubernetes.io/pv-protection"
        | "kubernetes.io/pv-controller"
        | "external-provisioner.volume.kubernetes.io/finalizer"
            if kind.group.is_empty() && *kind.plural == *"persistentvolumes" =>
        {
            let its_controller = others::controller(object, finalizer, world, now);
            Some(volumes::volume(object, its_controller, world))
        }
        argo::STATUS_FINALIZER if kind.is_same_kind(&Resource::pods()) => {
            pods::left_by_argo(object, world, now)
        }
        _ if finalizer.starts_with("external-attacher/") => {
            let attacher = others::controller(object, finalizer, world, now);
            volumes::volume_attached(object, finalizer, attacher, world)
        }
        _ => None,
    };
    special
        .unwrap_or_else(|| others::controller(object, finalizer, world, now))
        .of(finalizer, world)
}

/// Whether it is the kind CustomResourceDefinition.
fn is_definition(kind: &Resource) -> bool {
    *kind.group == *"apiextensions.k8s.io" && *kind.plural == *"customresourcedefinitions"
}

/// Objects with equal diagnoses.
struct Like {
    diagnosis: Diagnosis,
    objects: Vec<StuckObject>,
    /// Hashes of all steps. Only those that are shown are stored: each object of thousands may have another one.
    steps: HashSet<u64>,
}

impl Like {
    fn new(mut diagnosis: Diagnosis) -> Self {
        let steps = std::mem::take(&mut diagnosis.next);
        let mut new = Self {
            diagnosis,
            objects: Vec::new(),
            steps: HashSet::new(),
        };
        new.add_steps(steps);
        new
    }

    fn add_steps(&mut self, steps: Vec<Step>) {
        let one_is_enough = self.diagnosis.is_about_an_unknown_finalizer();
        for step in steps {
            let command = step.command.as_ref().filter(|_| !one_is_enough);
            let mut hasher = DefaultHasher::new();
            (&step.say, command).hash(&mut hasher);
            if self.steps.insert(hasher.finish()) && self.diagnosis.next.len() < STEPS {
                self.diagnosis.next.push(step);
            }
        }
    }
}

fn group(number: usize, like: Like) -> Group {
    let Like {
        diagnosis,
        objects,
        steps,
    } = like;
    let headline = headline(&diagnosis, &objects);
    let mut next = diagnosis.next;
    if steps.len() > STEPS {
        let more = steps.len() - (STEPS - 1);
        next.truncate(STEPS - 1);
        next.push(Step::say(format!("and {more} more steps of the same kind")));
    }
    Group {
        number,
        headline,
        known: diagnosis.known,
        cause: diagnosis.cause,
        finalizer: diagnosis.finalizer,
        verdict: diagnosis.verdict,
        proof: diagnosis.proof,
        missing: diagnosis.missing,
        next,
        objects,
    }
}

/// The published part of an entry of the known finalizers.
pub(crate) fn known(entry: &Entry) -> Known {
    Known {
        owner: entry.owner.clone(),
        guards: entry.guards.clone(),
        lost_if_forced: entry.lost.clone(),
        source: entry.source.clone(),
    }
}

fn headline(diagnosis: &Diagnosis, objects: &[StuckObject]) -> String {
    let what = count(objects);
    if !diagnosis.headline.is_empty() {
        return format!("{what}: {}", diagnosis.headline);
    }
    let (is, wait) = match objects.len() {
        _ if diagnosis.is_possible_only => ("may be", "may wait"),
        1 => ("is", "waits"),
        _ => ("are", "wait"),
    };
    let finalizer = diagnosis.finalizer.as_deref().unwrap_or_default();
    match diagnosis.cause {
        Cause::DeadApi => "an API does not answer: no namespace can be deleted".to_owned(),
        Cause::Webhook => {
            format!("{what}: a webhook without a ready endpoint rejects every change")
        }
        Cause::Finalizer => format!("{what} {is} kept by {finalizer}"),
        Cause::Hold => format!("{what} {is} kept by Belayer's finalizer {finalizer}"),
        Cause::Dependents => format!("{what} {wait} for dependents (foreground deletion)"),
        Cause::NamespaceContent => format!("{what} {wait} for the deletion of remaining objects"),
        Cause::ClaimInUse => format!("{what} {is} in use by pods"),
        Cause::VolumeBound => format!("{what} {wait} for the bound PVC"),
        Cause::VolumeAttached => format!("{what} {wait} for the volume to be detached"),
        Cause::Instances => format!("{what} {wait} for the deletion of its custom resources"),
        Cause::Node => format!("{what} {wait} for the kubelet of the node"),
        Cause::Nothing => format!("{what}: no cause found"),
    }
}

/// `3 pods`, `1 namespace`, `4 objects of 2 kinds`.
fn count(objects: &[StuckObject]) -> String {
    let mut kinds: Vec<(&str, &str)> = objects
        .iter()
        .map(|object| (object.kind.as_str(), object.resource.as_str()))
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    match (objects.len(), kinds.as_slice()) {
        (1, [(kind, _)]) => format!("1 {kind}"),
        (n, [(_, resource)]) => format!("{n} {resource}"),
        (n, kinds) => format!("{n} objects of {} kinds", kinds.len()),
    }
}

fn stuck_object(object: &Terminating, diagnosis: &Diagnosis, now: Timestamp) -> StuckObject {
    let resource = &object.object.kind.resource;
    let set_by = diagnosis
        .finalizer
        .as_ref()
        .and_then(|finalizer| object.set_by.get(finalizer));
    StuckObject {
        api_version: resource.api_version(),
        kind: resource.kind.to_string(),
        resource: object.object.kind.name(),
        namespace: object.object.key.namespace().unwrap_or_default().to_owned(),
        name: object.object.key.name().to_owned(),
        uid: object.object.uid.as_str().to_owned(),
        deletion_timestamp: object.since,
        age_seconds: now.duration_since(object.since).as_secs(),
        set_by: set_by.map(|by| Setter {
            manager: by.manager.clone(),
            time: by.time,
        }),
        detail: diagnosis.detail.clone(),
        also_in: Vec::new(),
    }
}

/// Adds cross-references: to the other groups of an object that several causes block, and to the group of an
/// object that another one waits for.
fn cross_reference(groups: &mut [Group]) {
    let mut places: std::collections::BTreeMap<String, Vec<(usize, String)>> = Default::default();
    for group in groups.iter() {
        for object in &group.objects {
            let entry = places.entry(object.place()).or_default();
            entry.push((group.number, object.uid.clone()));
        }
    }
    let mut kinds: std::collections::BTreeMap<(String, String), Vec<usize>> = Default::default();
    for group in groups.iter() {
        for object in &group.objects {
            let kind = (object.namespace.clone(), object.resource.clone());
            let numbers = kinds.entry(kind).or_default();
            if numbers.last() != Some(&group.number) {
                numbers.push(group.number);
            }
        }
    }
    for group in groups.iter_mut() {
        let number = group.number;
        for object in &mut group.objects {
            object.also_in = places
                .get(&object.place())
                .into_iter()
                .flatten()
                .filter(|(other, uid)| *other != number && *uid == object.uid)
                .map(|(other, _)| *other)
                .collect();
            for line in &mut object.detail {
                let mut words = line.split_whitespace();
                let named = words.next().unwrap_or_default();
                let place = places.get(named).and_then(|places| places.first());
                let place = place.filter(|(other, _)| *other != number);
                // "2 pods remain: ...", in a namespace.
                let several = words
                    .next()
                    .filter(|_| line.contains(" remain: "))
                    .and_then(|kind| kinds.get(&(object.name.clone(), kind.to_owned())));
                if let Some((other, _)) = place {
                    line.push_str(&format!(", which is stuck too: see [{other}]"));
                } else if let Some(others) = several {
                    line.push_str(&see(others));
                }
            }
        }
    }
}

/// Whether it is a namespace with the finalizer of the namespace controller.
fn waits_for_namespace_controller(object: &Terminating, world: &World) -> bool {
    let kind = &object.object.kind.resource;
    let state = world.namespaces.get(object.object.key.name());
    let state = state.and_then(ReadResult::found);
    kind.is_same_kind(&Resource::namespaces())
        && state.is_some_and(|state| state.finalizers.iter().any(|name| name == KUBERNETES))
}

/// `, see [1], [2]`, with the numbers of groups.
fn see(numbers: &[usize]) -> String {
    let shown: Vec<String> = numbers
        .iter()
        .take(SEEN)
        .map(|n| format!("[{n}]"))
        .collect();
    let more = match numbers.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {}", one_or_many(more, "more group", "more groups")),
    };
    format!(", see {}{more}", shown.join(", "))
}

/// Shows a service and what is behind it.
fn behind(namespace: &str, service: &str) -> String {
    format!(
        "kubectl -n {} get service,endpointslices,pods | grep {}",
        word(namespace),
        word(service)
    )
}

/// Why a live read returned nothing, for `missing`.
fn why<T>(read: Option<&ReadResult<T>>) -> String {
    read.and_then(ReadResult::why_unknown)
        .unwrap_or("not read")
        .to_owned()
}

#[cfg(test)]
mod tests;
