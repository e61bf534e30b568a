//! The two queries: all stuck objects, and what blocks one object. The [crate's example](crate)
//! calls it by [`Inspector`](crate::Inspector).

mod held_pods;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use belayer_core::http::{METADATA_ONLY, Request, RequestError};
use belayer_core::object::{ObjectKey, Resource};
use belayer_holds::argo;
use belayer_holds::names::WORKFLOW_HOLD;
use belayer_holds::selection::Selector;

use self::held_pods::held_pods;
use crate::diagnose::{FOREGROUND, known, report};
use crate::evidence::{NotExplained, Target, by_hold, gather};
use crate::explain::{Belayer, Explained, Explanation, Finalizer, Subject};
use crate::kinds::{DeadApi, Discovered, Kind, discover};
use crate::object::{Item, ObjectRef, Terminating};
use crate::reader::{Reader, explain as message};
use crate::report::{API_VERSION, Cause, Group, Report, Step, Unseen, UnseenReason, Verdict};
use crate::scan::{Progress, Scan, Scope, Silent, scan};

/// What to report; by default all stuck objects of the cluster. The [crate's example](crate) takes
/// the default.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// The namespaces to read.
    pub scope: Scope,
    /// Only objects with these labels.
    pub selector: Selector,
    /// Only objects past their grace period for this long.
    pub older_than: Duration,
}

/// Why there is no report at all. Returned by [`Inspector::stuck`](crate::Inspector::stuck).
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// Discovery failed.
    #[error("API discovery failed: {0}")]
    Discovery(#[source] RequestError),
    /// No kind has this name.
    #[error(
        "unknown kind {0:?}: the server has no kind of this name that can be listed (see `kubectl api-resources`)"
    )]
    UnknownKind(String),
    /// No kind of an API that answers has this name.
    #[error("unknown kind {kind:?}: it may be of an API that does not answer: {}", dead.join(", "))]
    Unanswered {
        /// The name.
        kind: String,
        /// These APIs: groups and versions.
        dead: Vec<String>,
    },
    /// The kind is namespaced, and no namespace was given.
    #[error("{kind} is namespaced: name the namespace of {name:?}")]
    NoNamespace {
        /// The kind.
        kind: String,
        /// The name of the object.
        name: String,
    },
    /// The object does not exist.
    #[error("{0} does not exist")]
    Absent(String),
    /// The object cannot be read. The message names the cause, so that it is not a source as well.
    #[error("{object}: {}", message(error))]
    Unreadable {
        /// The object.
        object: String,
        /// The cause.
        error: RequestError,
    },
}

/// Reports which objects are stuck in Terminating, and why. [`Inspector`](crate::Inspector) calls
/// it, in the [crate's example](crate).
///
/// # Errors
///
/// When discovery fails. A kind that cannot be listed is part of the report.
pub async fn stuck(
    reader: &Reader,
    query: &Query,
    belayer: &Belayer,
    progress: &dyn Progress,
    clock: impl Fn() -> Timestamp,
) -> Result<Report, InspectError> {
    let discovered = discover(reader).await.map_err(InspectError::Discovery)?;
    let scan = scan(reader, &discovered, &query.scope, progress).await;
    let now = clock();
    let stuck: Vec<_> = scan
        .stuck(now, query.older_than, &query.selector)
        .cloned()
        .collect();
    let any = Selector::default();
    let all = scan.stuck(now, Duration::ZERO, &any).count();
    let target = Target {
        within_grace: scan.terminating.len() - all,
        left_out: all - stuck.len(),
        stuck,
        scope: query.scope.clone(),
    };
    let world = gather(reader, scan, target, belayer, &belayer.explainers).await;
    Ok(report(&world, now))
}

/// Explains what blocks the deletion of one object, or would block it.
/// [`Inspector`](crate::Inspector) calls it.
///
/// # Errors
///
/// When there is no such kind or object, or it cannot be read.
pub async fn explain(
    reader: &Reader,
    (kind, name): (&str, &str),
    namespace: &str,
    belayer: &Belayer,
    clock: impl Fn() -> Timestamp,
) -> Result<Explanation, InspectError> {
    let discovered = discover(reader).await.map_err(InspectError::Discovery)?;
    let kind = discovered
        .find(kind)
        .ok_or_else(|| unknown_kind(&discovered, kind))?;
    // The path would be that of a cluster-scoped kind, and the server would answer that it serves none.
    if kind.namespaced && namespace.is_empty() {
        return Err(InspectError::NoNamespace {
            kind: kind.name(),
            name: name.to_owned(),
        });
    }
    let key = if kind.namespaced {
        ObjectKey::new(namespace, name)
    } else {
        ObjectKey::cluster(name)
    };
    one(reader, &discovered, kind, &key, belayer, clock).await
}

/// Why no kind of this name was found. The name may have its group.
fn unknown_kind(discovered: &Discovered, kind: &str) -> InspectError {
    let kind = kind.to_owned();
    let may_have_it = |api: &&DeadApi| {
        let group = api.group_version.split('/').next().unwrap_or_default();
        !kind.contains('.') || kind.ends_with(&format!(".{group}"))
    };
    let dead = discovered.dead.iter().filter(may_have_it);
    let dead: Vec<String> = dead.map(|api| api.group_version.clone()).collect();
    if dead.is_empty() {
        InspectError::UnknownKind(kind)
    } else {
        InspectError::Unanswered { kind, dead }
    }
}

async fn one(
    reader: &Reader,
    discovered: &Discovered,
    kind: &Arc<Kind>,
    key: &ObjectKey,
    config: &Belayer,
    clock: impl Fn() -> Timestamp,
) -> Result<Explanation, InspectError> {
    let place = format!("{} {key}", kind.name());
    let request = Request::get(kind.resource.object_path(key)).accept(METADATA_ONLY);
    let answer = reader.read(&request).await.map_err(|error| {
        if error.is_gone(&kind.resource, key) {
            InspectError::Absent(place.clone())
        } else {
            InspectError::Unreadable {
                object: place.clone(),
                error,
            }
        }
    })?;
    let item: Item<'_> =
        serde_json::from_slice(&answer.body).map_err(|error| InspectError::Unreadable {
            object: place.clone(),
            error: RequestError::Decode(error.to_string()),
        })?;
    let now = clock();
    let meta = &item.metadata;
    let object = meta.object(kind);
    let terminating = meta.terminating(kind);
    let stuck = terminating.as_ref().is_some_and(|found| found.since <= now);
    let mut missing = Vec::new();
    let mut belayer = Vec::new();
    let mut belayers = BTreeMap::new();
    let explainers = config.explainers.iter();
    for explainer in explainers.filter(|e| e.is_about(&kind.resource)) {
        match (explainer.explain)(kind.resource.clone(), key.clone(), reader.clone()).await {
            Ok(explained) => {
                if explained.held {
                    let answer = Ok(explained.clone());
                    belayers.extend(by_hold(object.uid.as_str(), explainer, answer));
                }
                belayer.push(explained);
            }
            Err(why) => {
                missing.push(format!("what {} decides: {why}", explainer.component));
                let why = NotExplained::Failed(Arc::new(why));
                // Another component's answer about the same hold is not replaced.
                let unknown = by_hold(object.uid.as_str(), explainer, Err(why));
                for (hold, answer) in unknown {
                    belayers.entry(hold).or_insert(answer);
                }
            }
        }
    }
    let holds_workflows = |one: &Explained| one.hold == WORKFLOW_HOLD;
    // Its pods may be held although Belayer does not hold the workflow.
    let pods = if belayer.iter().any(holds_workflows) || argo::is_workflow(&kind.resource) {
        let its = (key, object.uid.as_str());
        let (pods, unknown) = held_pods(reader, &kind.resource, its, config).await;
        missing.extend(unknown);
        pods
    } else {
        Vec::new()
    };
    let groups = match terminating.clone().filter(|_| stuck) {
        Some(found) => {
            let (scan, scope) = context(reader, discovered, &found, kind).await;
            let target = Target {
                stuck: vec![found],
                within_grace: 0,
                left_out: 0,
                scope,
            };
            let mut world = gather(reader, scan, target, config, &[]).await;
            world.belayers = belayers;
            let webhooks = std::mem::take(&mut world.webhooks.unseen);
            missing.extend(unread_webhooks(&webhooks));
            let report = report(&world, now);
            missing.extend(unlisted(&report));
            of_one(report.groups, &object, &world.scan)
        }
        None => Vec::new(),
    };
    let finalizers = meta.finalizers.iter().flatten();
    // If Belayer is configured to use another controller's finalizer, the entry of Belayer's component applies.
    let entry_of = |name: &str| {
        let is_its = |explained: &&Explained| explained.hold == name;
        let component = belayer
            .iter()
            .find(is_its)
            .map(|explained| explained.component);
        let belayers = component.and_then(|component| config.known.of_component(component));
        belayers.or_else(|| config.known.find(name))
    };
    Ok(Explanation {
        api_version: API_VERSION,
        kind: "Explanation",
        object: Subject {
            api_version: kind.resource.api_version(),
            kind: kind.resource.kind.to_string(),
            resource: kind.name(),
            namespace: key.namespace().unwrap_or_default().to_owned(),
            name: key.name().to_owned(),
            uid: object.uid.as_str().to_owned(),
            deletion_timestamp: terminating.as_ref().map(|found| found.since),
            stuck,
        },
        finalizers: if stuck {
            Vec::new()
        } else {
            finalizers
                .map(|name| Finalizer {
                    name: (**name).to_owned(),
                    known: entry_of(name).map(known),
                })
                .collect()
        },
        belayer,
        pods,
        groups,
        missing,
    })
}

/// The groups of one object.
fn of_one(mut groups: Vec<Group>, object: &ObjectRef, scan: &Scan) -> Vec<Group> {
    // An API that is down is irrelevant unless this object waits for it.
    let waits_for_api = groups
        .iter()
        .any(|group| group.verdict == Verdict::ApiDown && !group.objects.is_empty());
    groups.retain(|group| waits_for_api || !group.objects.is_empty());
    let namespace = match object.key.namespace() {
        None if object.kind.resource.is_same_kind(&Resource::namespaces()) => {
            Some(object.key.name())
        }
        namespace => namespace,
    };
    let stuck = match namespace {
        Some(namespace) => format!("belayer stuck -n {namespace}"),
        None => "belayer stuck".to_owned(),
    };
    let is_other = |one: &Terminating| one.object.uid != object.uid;
    let others_end = scan.terminating.iter().any(is_other);
    let dependents = scan.dependents.get(object.uid.as_str());
    let mut dependents = dependents.into_iter().flatten();
    let dependents_end = dependents
        .any(|one| one.uid != object.uid && scan.terminating_with(one.uid.as_str()).is_some());
    for group in &mut groups {
        // What is not being deleted is in no other group.
        let waits_for_others = match group.cause {
            Cause::NamespaceContent | Cause::Instances => others_end,
            Cause::Dependents => dependents_end,
            _ => false,
        };
        if waits_for_others {
            let step = Step::run("Find out what keeps these objects", &stuck);
            group.next.push(step);
        }
    }
    groups
}

/// The kinds that could not be listed: the object may wait for an object of one of them.
fn unlisted(report: &Report) -> Option<String> {
    // The namespace itself is none of the objects in it.
    let may_remain = |one: &&Unseen| report.namespace.is_none() || !one.cluster_scoped;
    let unseen: Vec<Unseen> = report.unseen.iter().filter(may_remain).cloned().collect();
    let names = names(&unseen)?;
    Some(format!(
        "whether objects of these kinds remain, which could not be listed: {names}"
    ))
}

/// What could not be read about webhooks.
fn unread_webhooks(unseen: &[Unseen]) -> Option<String> {
    let names = names(unseen)?;
    Some(format!(
        "whether a webhook without a ready endpoint rejects every change: could not read {names}"
    ))
}

fn names(unseen: &[Unseen]) -> Option<String> {
    let names = unseen.iter().map(|one| match one.reason {
        UnseenReason::NotAllowed => one.resource.clone(),
        UnseenReason::Failed => format!("{} ({})", one.resource, one.message),
    });
    let names: Vec<String> = names.collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Lists what is needed to diagnose this object: nothing for most kinds.
async fn context(
    reader: &Reader,
    discovered: &Discovered,
    found: &Terminating,
    kind: &Arc<Kind>,
) -> (Scan, Scope) {
    let is = |group: &str, plural: &str| {
        *kind.resource.group == *group && *kind.resource.plural == *plural
    };
    let foreground = found.finalizers.iter().any(|name| name == FOREGROUND);
    let scope = if is("", "namespaces") {
        Scope::Namespace(found.object.key.name().to_owned())
    } else if is("apiextensions.k8s.io", "customresourcedefinitions") {
        // Only the kind that it defines.
        let name = found.object.key.name();
        let kinds = discovered.kinds.iter().filter(|kind| kind.name() == name);
        let only = Discovered {
            kinds: kinds.cloned().collect(),
            dead: Vec::new(),
        };
        return (
            scan(reader, &only, &Scope::Cluster, &Silent).await,
            Scope::Cluster,
        );
    } else if foreground {
        match found.object.key.namespace() {
            Some(namespace) => Scope::Namespace(namespace.to_owned()),
            None => Scope::Cluster,
        }
    } else {
        return (Scan::default(), Scope::Cluster);
    };
    (scan(reader, discovered, &scope, &Silent).await, scope)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[tokio::test]
    async fn an_object_of_a_namespaced_kind_needs_a_namespace() {
        let sandbox = belayer_sandbox::Sandbox::builder().build();
        let reader = Reader::new(sandbox.client(), belayer_core::executor::Bounds::default());
        let belayer = Belayer::default();
        let clock = belayer_core::clock::now;
        let explained = explain(&reader, ("cm", "h1"), "", &belayer, clock).await;
        let error = explained.unwrap_err().to_string();
        let says = r#"configmaps is namespaced: name the namespace of "h1""#;
        assert_eq!(error, says);
    }

    #[rstest]
    #[case::of_it("things.gone.example.com", true)]
    #[case::of_it_with_a_version("things.v1.gone.example.com", true)]
    #[case::of_any_group("things", true)]
    #[case::of_another_group("things.example.com", false)]
    fn a_kind_may_be_of_an_api_that_does_not_answer(#[case] kind: &str, #[case] expected: bool) {
        let dead = DeadApi {
            group_version: "gone.example.com/v1".to_owned(),
            why: "down".to_owned(),
        };
        let discovered = Discovered {
            kinds: Vec::new(),
            dead: vec![dead],
        };
        let error = unknown_kind(&discovered, kind).to_string();
        let says = "an API that does not answer: gone.example.com/v1";
        assert_eq!(error.contains(says), expected, "{error}");
    }
}
